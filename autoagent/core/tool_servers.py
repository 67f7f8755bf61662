"""MCP servers as records: where one is to be found, what it offers, what it answers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

PREFIX = "mcp__"
"""Before the names of all commands that servers offer: `mcp__SERVER__TOOL`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerEntry:
    """A server of a list: a program to start, or the address of one that runs.

    Attributes:
        name: as its commands bear it.
        place: the file of the list.
        folder: the folder in which what it offers is allowed: that of the list.
        command, args, env, cwd: the program, what it gets besides a few harmless variables, and where it starts.
        url, headers: the address, and what is sent with each request.
        written: its entry as the list has it, variables not filled in.
    """

    name: str
    place: Path
    folder: Path
    command: str = ""
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: str = ""
    url: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    written: str = ""

    @property
    def about(self) -> str:
        """What it does when it is used, in words."""
        return "an address that calls are sent to" if self.url else "a program, run outside the sandbox"


Kind = Literal["tool", "resources", "resource", "prompts", "prompt"]
"""What a call asks of a server: one of its tools, the list of its resources, one of them, and so of its prompts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerTool:
    """Something that a server offers to be called; the words and the schema of a tool are the server's own.

    `hints` is what the server says of its effects, which nobody has to believe.
    """

    name: str
    description: str
    schema: Mapping[str, Any]
    hints: Mapping[str, bool] = field(default_factory=dict)
    kind: Kind = "tool"

    @property
    def told(self) -> str:
        """All that it says of itself, as one text: if that changes, it is another tool."""
        return json.dumps([self.description, self.schema, self.hints, self.kind], sort_keys=True, ensure_ascii=False)


@dataclass(frozen=True, slots=True)
class ServerAnswer:
    """What came of a call; `failed`: the server says that it did not work."""

    text: str
    failed: bool = False
