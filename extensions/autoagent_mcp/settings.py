"""The settings of MCP servers."""

from __future__ import annotations

from pathlib import Path

from autoagent.core.declaration import limit, setting
from autoagent.core.frozen import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class McpSettings:
    """MCP servers."""

    mcp_servers_file: Path = setting(
        Path(".mcp.json"), "AUTOAGENT_MCP_SERVERS", help="the list of MCP servers", folder="inside"
    )
    mcp_seconds: float = limit(60.0, "AUTOAGENT_MCP_SECONDS", help="seconds that one call of an MCP server may take")
