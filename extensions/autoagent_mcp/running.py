"""Connect to the MCP servers in the user's lists, and offer their tools as commands of a run.

The program asks the user about each offer, and about each call.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING

from autoagent.core.errors import SettingsError, SetupError
from autoagent.extension import Extra, Offer, OfferedCommand, Place, RunPart, folded, is_installed
from autoagent_mcp.folder import listed_file
from autoagent_mcp.server_lists import listed_servers, untrusted_server
from autoagent_mcp.server_tools import category_of, server_commands
from autoagent_mcp.tool_servers import ServerEntry, ServerTool

if TYPE_CHECKING:
    from autoagent_mcp.client import ConnectedServer

EXTRA = Extra("mcp", "mcp", "a list of MCP servers")


class Servers(RunPart):
    """Make the servers a part of a run. They are closed with the stack."""

    def __init__(self, place: Place, stack: ExitStack) -> None:
        self._place = place
        self._stack = stack

    def offers(self, say: Callable[[str], None], warn: Callable[[str], None]) -> Sequence[Offer]:
        """Connect to the servers and return what they offer. Report those that cannot be used.

        Raises SettingsError for a list that cannot be read.
        """
        off = self._place.setting("disabled_command_categories")
        entries = [entry for entry in configured(self._place, warn) if category_of(entry.name) not in off]
        if entries and not is_installed(EXTRA):
            warn(f"MCP servers are listed, but the package for them is not installed: {EXTRA.remedy}")
            return ()
        offers = []
        for entry in entries:
            say(f"Connecting to the MCP server {entry.name}.")
            try:
                server = self._stack.enter_context(closing(open_server(entry, self._place)))
            except (SetupError, SettingsError) as error:
                warn(str(error))
                continue
            offers.append(offer_of(server, warn))
        return offers


def configured(place: Place, warn: Callable[[str], None]) -> list[ServerEntry]:
    """Return the servers that the user has listed, and those that this folder is trusted with. None in a scenario,
    which a server would lead out of its folder.

    Raises SettingsError for a list that cannot be read.
    """
    if place.is_scenario:
        return []
    named = place.is_named("mcp_servers_file")
    if named and not listed_file(place).is_file():
        raise SettingsError(f"{place.setting('mcp_servers_file')}: no such file (AUTOAGENT_MCP_SERVERS).")
    top = Path(os.path.realpath(place.folder / place.setting("workspace")))
    found: dict[str, ServerEntry] = {}
    for entry, is_asked in listed_servers(place, named=named, tell=warn):
        if is_asked and not place.trusts(untrusted_server(entry)):
            continue
        if loose := [program.name for program in entry.places if program.parent == top and program.is_file()]:
            warn(
                f"The MCP server {entry.name} is left out: {loose[0]} is at the top of the workspace, where an "
                "agent may add files that it loads. Move it into a folder of its own."
            )
            continue
        first = found.setdefault(folded(entry.name), entry)
        if first is not entry:
            warn(f"The MCP server {entry.name} of {entry.place} is left out: {first.place} lists it too.")
    return list(found.values())


def require_mcp() -> None:
    """Raise SetupError if the package that speaks MCP is not installed."""
    if not is_installed(EXTRA):
        raise SetupError(f"The package for MCP is not installed: {EXTRA.remedy}.")


def open_server(entry: ServerEntry, place: Place) -> ConnectedServer:
    """Connect to a server. The caller closes it. Raises SetupError or SettingsError if it cannot be used."""
    from autoagent_mcp.client import connected

    log = place.folder / place.setting("state_dir") / "mcp" / f"{entry.name}.log"
    return connected(entry, log, place.setting("mcp_seconds"))


def offer_of(server: ConnectedServer, warn: Callable[[str], None]) -> Offer:
    """Return the tools of a server as an offer. Report those that cannot be used."""
    entry = server.entry
    return Offer(
        source=f"MCP server {entry.name}",
        written=entry.written,
        file=entry.place,
        folder=entry.folder,
        allowed_by=f"autoagent mcp allow {entry.name}",
        commands=[
            OfferedCommand(command=command, name=tool.name, told=tool.self_description, remark=_claims(tool))
            for tool, command in server_commands(server, server.tools, warn)
        ],
    )


def _claims(tool: ServerTool) -> str:
    says = ", ".join(f"{name}: {'yes' if value else 'no'}" for name, value in tool.hints.items())
    return says and f"the server says: {says}; nobody has checked that"
