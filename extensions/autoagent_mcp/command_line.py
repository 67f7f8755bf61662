"""Define `autoagent mcp`, which manages MCP servers, and serves commands and memory to other agents."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import click

from autoagent.core.errors import SettingsError, SetupError
from autoagent.extension import (
    ServiceCommand,
    allow_at_once,
    claimed_state,
    echo,
    echo_list,
    opened_memory,
    opened_place,
    opened_service,
    read_place,
    waiting,
)
from autoagent_mcp.running import configured, offer_of, open_server, require_mcp


@click.group("mcp")
def mcp() -> None:
    """Use MCP servers, or serve commands and memory to other agents.

    Servers are listed in ~/.config/autoagent/mcp.json, and in .mcp.json here, which counts once you trust this folder.
    """


@mcp.command("list")
@click.option("--json", "as_json", is_flag=True, help="A list of objects; `problem`: why it cannot be used.")
@click.pass_context
def list_servers(ctx: click.Context, as_json: bool) -> None:
    """List the commands of each server. Those not allowed yet are marked."""
    place = read_place(ctx.obj)
    entries = configured(place, _tell)
    if entries:
        require_mcp()
    rows: list[dict[str, Any]] = []
    for entry in entries:
        row: dict[str, Any] = {"name": entry.name, "place": str(entry.place), "commands": [], "new": [], "problem": ""}
        rows.append(row)
        try:
            with claimed_state(place), closing(open_server(entry, place)) as server:
                offer = offer_of(server, _tell)
        except (SetupError, SettingsError) as error:
            row["problem"] = str(error)
            continue
        row["commands"] = [one.command.spec.name for one in offer.commands]
        row["new"] = [one.command.spec.name for one in waiting(place, offer)]
    echo_list(rows, as_json, lambda row: row, _line, "No MCP server is listed here.")


@mcp.command("allow")
@click.argument("name")
@click.pass_context
def allow_server(ctx: click.Context, name: str) -> None:
    """Show what is new of the server NAME, and allow it from now on.

    At a terminal it asks first. The permission holds until the server's description changes. Each call is still asked
    about; a rule such as `mcp__NAME__TOOL` lets calls run (`autoagent rules add`).
    """
    place = opened_place(ctx.obj)
    entries = {entry.name: entry for entry in configured(place, _tell)}
    if name not in entries:
        listed = f" Usable servers: {', '.join(entries)}." if entries else ""
        raise SettingsError(f"There is no MCP server {name!r} that can be used here.{listed}")
    require_mcp()
    with claimed_state(place), closing(open_server(entries[name], place)) as server:
        offer = offer_of(server, _tell)
    count, is_allowed = allow_at_once(place, offer)
    if count:
        echo(f"{count} commands of {name} are {'allowed now' if is_allowed else 'not allowed'}.")
    else:
        echo(f"The server {name} has nothing new to allow.")


_port = click.option(
    "--port", type=click.IntRange(0, 65535), metavar="N", help="Serve HTTP on this port of 127.0.0.1; 0: a free one."
)


@mcp.command("serve", cls=ServiceCommand)
@_port
@click.pass_context
def serve_commands(ctx: click.Context, /, port: int | None, **given: Any) -> None:
    """Serve the commands in this folder's workspace to another agent.

    It uses standard input and output, or HTTP (--port). Nobody can be asked: without -c only calls that a rule allows
    (--allow) are run; with -c all but those that the guard warns of. The calls are logged as a run.
    """
    require_mcp()
    from autoagent_mcp.server import loopback, serve
    from autoagent_mcp.services import INSTRUCTIONS, offered

    with opened_service(ctx.obj, given, over="MCP", started_by="autoagent mcp serve") as service:
        tools = [offered(spec) for spec in service.specs]
        http = loopback(service.place, port)
        serve(
            "autoagent",
            INSTRUCTIONS,
            tools,
            service.call,
            interruptible=service.waiting,
            http=http,
            workspace=service.workspace,
        )


@mcp.command("memory")
@click.option("--read-only", is_flag=True, help="Serve only search and recent.")
@_port
@click.pass_context
def serve_memory(ctx: click.Context, read_only: bool, port: int | None) -> None:
    """Serve the memory to another agent: search, recent, add, forget.

    Texts that it adds count as text from outside. It can read all memories here, but not `memory --user`.
    """
    require_mcp()
    from autoagent_mcp.server import loopback, serve
    from autoagent_mcp.services import MEMORY_INSTRUCTIONS, MEMORY_TOOLS, MemoryService

    tools = [tool for tool in MEMORY_TOOLS if not read_only or tool.hints["reads only"]]
    with opened_memory(ctx.obj) as memory:
        http = loopback(memory.place, port)
        serve("autoagent-memory", MEMORY_INSTRUCTIONS, tools, MemoryService(memory).call, http=http)


def _tell(line: str) -> None:
    echo(f"autoagent: {line}", err=True)


def _line(row: dict[str, Any]) -> str:
    lines = [f"{row['name']}  ({row['place']})"]
    lines += [f"  NOT HERE: {row['problem']}"] if row["problem"] else []
    lines += [f"  {name}{'  not allowed yet' if name in row['new'] else ''}" for name in row["commands"]]
    return "\n".join(lines)
