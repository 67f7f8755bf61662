"""`autoagent mcp`: the MCP servers that the agent may use, and what it serves to other agents itself."""

from __future__ import annotations

import sys
from contextlib import closing
from typing import Any

import click

from autoagent.commands.server_tools import server_commands
from autoagent.core.errors import SettingsError, SetupError
from autoagent.session.session import Session, claimed_state
from autoagent.session.tool_servers import (
    allow,
    configured,
    described,
    is_allowed_now,
    open_server,
    require_mcp,
    waiting,
)
from autoagent.settings import Settings
from autoagent.subcommands.flags import given_in, serve_flags
from autoagent.subcommands.task_flags import check_flags
from autoagent.terminal.console import Console, EventHooks
from autoagent.terminal.output import echo, echo_list
from autoagent.terminal.screen import Style


@click.group("mcp")
def mcp() -> None:
    """MCP: servers whose tools the agent may use, and what it serves itself.

    Servers are listed in .mcp.json here, which counts once you trust this folder, and in ~/.config/autoagent/mcp.json.
    """


@mcp.command("list")
@click.option("--json", "as_json", is_flag=True, help="A list of objects; `problem`: why it cannot be used.")
@click.pass_context
def list_servers(ctx: click.Context, as_json: bool) -> None:
    """Connect to each server and list its commands; what you have not allowed yet is marked."""
    session = Session.read(ctx.obj)
    settings, entries = session.settings, configured(session, _tell)
    if entries:
        require_mcp()
    rows: list[dict[str, Any]] = []
    for entry in entries:
        row: dict[str, Any] = {"name": entry.name, "place": str(entry.place), "commands": [], "new": [], "problem": ""}
        rows.append(row)
        try:
            with claimed_state(settings.state_dir), closing(open_server(entry, settings)) as server:
                offered = server_commands(server, server.tools, _tell)
        except SetupError as error:
            row["problem"] = str(error)
            continue
        row["commands"] = [command.spec.name for _, command in offered]
        row["new"] = [command.spec.name for _, command in waiting(entry, offered, session.trusted)]
    echo_list(rows, as_json, lambda row: row, _line, "No MCP server is listed here.")


@mcp.command("allow")
@click.argument("name")
@click.pass_context
def allow_server(ctx: click.Context, name: str) -> None:
    """Show what the server NAME offers that you have not allowed yet, and offer it to the agent from now on.

    At a terminal it asks, else it allows. It holds until that changes. Each call is still asked about; a rule such as
    `mcp__NAME__TOOL` lets calls run (`autoagent rules add`).
    """
    session = Session.open(ctx.obj)
    settings, trusted = session.settings, session.trusted
    entries = {entry.name: entry for entry in configured(session, _tell)}
    if name not in entries:
        listed = f" Those that can are: {', '.join(entries)}." if entries else ""
        raise SettingsError(f"There is no MCP server {name!r} that can be used here.{listed}")
    require_mcp()
    entry = entries[name]
    with claimed_state(settings.state_dir), closing(open_server(entry, settings)) as server:
        new = waiting(entry, server_commands(server, server.tools, _tell), trusted)
    if not new:
        echo(f"Nothing of {name} waits to be allowed.")
        return
    try:
        if sys.stdin.isatty():
            allowed = is_allowed_now(entry, new, trusted)
        else:
            allowed = True
            for line in described(entry, new, trusted):
                echo(line)
    except EOFError:
        raise SettingsError("The input has ended; nothing is allowed.") from None
    if allowed:
        allow(entry, new, trusted)
    echo(f"{len(new)} commands of {name} are {'allowed now' if allowed else 'not allowed'}.")


_port = click.option(
    "--port",
    type=click.IntRange(0, 65535),
    metavar="N",
    help="Serve HTTP on this port of 127.0.0.1; 0: a free one.",
)


@mcp.command("serve")
@_port
@serve_flags
@click.pass_context
def serve(ctx: click.Context, /, port: int | None, **given: Any) -> None:
    """Serve the commands to another agent in this folder's workspace, over standard input and output or HTTP (--port).

    Nobody can be asked meanwhile. Without -c only what a rule allows is run (--allow); with -c all but what the guard
    warns of. The calls stand in the log of a run. Flags are as with `run`.
    """
    from autoagent.session.mcp_service import serve_commands

    given = given_in(ctx.obj or {}, given)
    session = Session.open(given)
    check_flags(given, session.settings)
    require_mcp()
    with claimed_state(session.settings.state_dir):
        serve_commands(session, _console(session.settings), port)


@mcp.command("memory")
@click.option("--read-only", is_flag=True, help="Serve what searches and lists alone.")
@_port
@click.pass_context
def serve_memory(ctx: click.Context, read_only: bool, port: int | None) -> None:
    """Serve the long-term memory to another agent: search, recent, add, forget.

    What it adds counts as text from outside. It is given your own memories too.
    """
    from autoagent.services.mcp.server import serve as serve_tools
    from autoagent.session.build import mask_of
    from autoagent.session.mcp_service import MEMORY_INSTRUCTIONS, MEMORY_TOOLS, MemoryService, place_of
    from autoagent.session.memories import memory_of_user

    settings = Session.open(ctx.obj).settings
    require_mcp()
    tools = [tool for tool in MEMORY_TOOLS if not read_only or tool.hints["reads only"]]
    with memory_of_user(settings) as memory:
        service = MemoryService(memory, mask_of(settings))
        serve_tools("autoagent-memory", MEMORY_INSTRUCTIONS, tools, service.call, http=place_of(settings, port))


def _console(settings: Settings) -> Console:
    """Return a screen on standard error, as standard output belongs to the protocol."""
    from autoagent.session.build import mask_of
    from autoagent.session.extension_hooks import heard, rendered

    hooks = EventHooks(rendered, heard)
    return Console(sys.stderr, sys.stderr, sys.stdin, style=Style(plain=True), mask=mask_of(settings), hooks=hooks)


def _tell(line: str) -> None:
    echo(f"autoagent: {line}", err=True)


def _line(row: dict[str, Any]) -> str:
    lines = [f"{row['name']}  ({row['place']})"]
    lines += [f"  NOT HERE: {row['problem']}"] if row["problem"] else []
    lines += [f"  {name}{'  not allowed yet' if name in row['new'] else ''}" for name in row["commands"]]
    return "\n".join(lines)
