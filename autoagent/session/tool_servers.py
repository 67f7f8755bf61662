"""The MCP servers of a run: those of the user's lists, connected, with the commands that the user has allowed.

No tool of a server is offered to the agent before a person has seen its name, its texts and its arguments. A tool whose
description changes is asked about again.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from autoagent.commands.registry import Command, folded
from autoagent.commands.server_tools import category_of, server_commands
from autoagent.commands.support.extras import MCP, is_installed
from autoagent.core.errors import SettingsError, SetupError
from autoagent.core.tool_servers import ServerEntry, ServerTool
from autoagent.registry.parts import UntrustedValue
from autoagent.session.permissions import HELD_TO
from autoagent.session.server_lists import listed_servers, untrusted_server
from autoagent.session.session import Session
from autoagent.session.trust import Trusted
from autoagent.settings import Settings
from autoagent.terminal.console import Console
from autoagent.terminal.output import echo
from autoagent.text.wrapping import wrap

if TYPE_CHECKING:
    from autoagent.services.mcp.client import ConnectedServer


def configured(session: Session, warn: Callable[[str], None]) -> list[ServerEntry]:
    """Return the servers that the user has listed, and those that this folder is trusted with. None in a scenario,
    which somebody else may have written, and which a server would lead out of its folder.

    Raises SettingsError for a list that cannot be read.
    """
    if HELD_TO in os.environ:
        return []
    settings, named = session.settings, session.is_named("mcp_servers_file")
    if named and not settings.mcp_servers_file.is_file():
        raise SettingsError(f"{settings.mcp_servers_file}: there is no such file (AUTOAGENT_MCP_SERVERS).")
    top = Path(os.path.realpath(session.folder / settings.workspace))
    found: dict[str, ServerEntry] = {}
    for entry, is_asked in listed_servers(settings, session.folder, named=named):
        if is_asked and not session.holds(untrusted_server(entry)):
            continue
        if loose := [place.name for place in entry.places if place.parent == top and place.is_file()]:
            warn(
                f"The MCP server {entry.name} is left out: {loose[0]} lies at the top of the workspace, where an agent "
                "may add what it loads. Move it into a folder of its own."
            )
            continue
        first = found.setdefault(folded(entry.name), entry)
        if first is not entry:
            warn(f"The MCP server {entry.name} of {entry.place} is left out: {first.place} has one too.")
    return list(found.values())


def programs_in(settings: Settings, folder: Path) -> list[str]:
    """Return patterns for where in the workspace the programs of listed servers lie: they run as the user."""
    root = os.path.realpath(folder / settings.workspace)
    found = set()
    for named in (True, False):
        with suppress(SettingsError):
            for entry, _ in listed_servers(settings, folder, named=named):
                found |= {os.path.relpath(place, root) for place in entry.places if Path(root) in place.parents}
    return sorted(re.sub("[*!]", "?", place) for place in found)


@contextmanager
def opened_servers(session: Session, screen: Console) -> Iterator[tuple[Command, ...]]:
    """Connect to the servers and return their commands. Close them at the end. One that cannot be used is told.

    Raises SettingsError for a list that cannot be read.
    """
    entries, settings = configured(session, screen.warn), session.settings
    off = settings.disabled_command_categories
    entries = [entry for entry in entries if category_of(entry.name) not in off]
    if entries and not is_installed(MCP):
        screen.warn(f"MCP servers are listed, and the package for them is not installed: {MCP.remedy}")
        entries = []
    with ExitStack() as stack:
        commands: list[Command] = []
        for entry in entries:
            screen.say(f"Connecting to the MCP server {entry.name}.")
            try:
                server = stack.enter_context(closing(open_server(entry, settings)))
            except (SetupError, SettingsError) as error:
                screen.warn(str(error))
                continue
            commands += _allowed(entry, server_commands(server, server.tools, screen.warn), screen, session.trusted)
        yield tuple(commands)


def require_mcp() -> None:
    """Raise SetupError if the package that speaks MCP is not installed."""
    if not is_installed(MCP):
        raise SetupError(f"The package for MCP is not installed: {MCP.remedy}.")


def open_server(entry: ServerEntry, settings: Settings) -> ConnectedServer:
    """Connect to a server. The caller closes it. Raises SetupError, with the reason, if it cannot be used."""
    from autoagent.services.mcp.client import connected

    log = Path.cwd() / settings.state_dir / "mcp" / f"{entry.name}.log"
    return connected(entry, log, settings.mcp_seconds)


# What the user has allowed ---------------------------------------------------------------------------------------


Offered = Sequence[tuple[ServerTool, Command]]


def waiting(entry: ServerEntry, offered: Offered, trusted: Trusted) -> Offered:
    """Return the tools of a server that the user has not allowed as they are."""
    return [(tool, command) for tool, command in offered if not trusted.holds(entry.folder, _offer(entry, tool).mark)]


def allow(entry: ServerEntry, offered: Offered, trusted: Trusted) -> None:
    """Keep that the user has allowed this, as it is. Raises SettingsError if that cannot be kept."""
    trusted.add(entry.folder, [_offer(entry, tool) for tool, _ in offered])


def described(entry: ServerEntry, offered: Offered, trusted: Trusted) -> Iterator[str]:
    """Yield lines with all that the agent would be told of this, and which of it was allowed as something else."""
    known = trusted.names(entry.folder)
    for tool, command in offered:
        changed = "  CHANGED since you allowed it" if _offer(entry, tool).called in known else ""
        yield f"  {command.spec.signature()}{changed}"
        yield f"      {command.spec.label}"
        for parameter in command.spec.parameters:
            yield f"      - {parameter.name}: {json.dumps(parameter.schema, ensure_ascii=False)}"
        if tool.hints:
            says = ", ".join(f"{name}: {'yes' if value else 'no'}" for name, value in tool.hints.items())
            yield f"      (the server says of it: {says}; nobody has checked that)"


def _offer(entry: ServerEntry, tool: ServerTool) -> UntrustedValue:
    value = f"{entry.written}\0{tool.told}"
    return UntrustedValue(file=f"MCP server {entry.name}", name=tool.name, value=value, about="")


def _allowed(entry: ServerEntry, offered: Offered, screen: Console, trusted: Trusted) -> list[Command]:
    """Return the allowed tools of a server. Ask about the others if somebody can be asked."""
    new = waiting(entry, offered, trusted)
    if new and sys.stdin.isatty():
        try:
            if is_allowed_now(entry, new, trusted):
                allow(entry, new, trusted)
                new = []
        except EOFError:
            screen.warn("The input has ended; nothing new of it is offered.")
    elif new:
        screen.warn(
            f"Of the MCP server {entry.name} this is left out until you allow it (`autoagent mcp allow {entry.name}`): "
            f"{', '.join(tool.name for tool, _ in new)}."
        )
    return [command for tool, command in offered if (tool, command) not in new]


def is_allowed_now(entry: ServerEntry, offered: Offered, trusted: Trusted) -> bool:
    """Show a person at the terminal the tools of a server, and ask. Raises EOFError if there is no answer."""
    from autoagent.terminal.answers import ClickTerminal

    terminal = ClickTerminal()
    terminal.say(f"The MCP server {entry.name} ({entry.place}) offers what you have not allowed yet:")
    for line in described(entry, offered, trusted):
        echo(wrap(line, shutil.get_terminal_size().columns, indent=6), err=True)
    return terminal.decide("Offer it to the agent, until it changes? Each call is still asked about. y = yes, n = no:")
