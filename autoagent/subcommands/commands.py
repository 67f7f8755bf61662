"""`autoagent commands`: what the agent can do, and why it cannot do the rest here."""

from __future__ import annotations

from typing import Any

import click

from autoagent.session.session import Session
from autoagent.terminal.output import echo, echo_json


@click.command("commands")
@click.option("--json", "as_json", is_flag=True, help="A list of objects; `reason`: why it cannot be used here.")
@click.pass_context
def commands(ctx: click.Context, as_json: bool) -> None:
    """List the commands; those that cannot be used with these settings say why."""
    from autoagent.commands import selection

    registry = selection.available(Session.read(ctx.obj).settings)
    plugins = {command.spec.name: one.plugin for one in selection.added() for command in one.commands}
    for problem in filter(None, (one.problem for one in selection.added())):
        echo(f"autoagent: {problem}", err=True)
    rows: list[dict[str, Any]] = []
    for command in selection.all_commands():
        spec = command.spec
        rows.append(
            {
                "name": spec.name,
                "signature": spec.signature(),
                "label": spec.label,
                "category": spec.category,
                "risk": spec.risk,
                "aliases": list(spec.aliases),
                "reason": registry.switched_off.get(spec.name, ""),
                "plugin": plugins[spec.name].called if spec.name in plugins else "",
            }
        )
    if as_json:
        echo_json(rows)
        return
    for category in selection.categories():
        echo(f"{category}")
        for row in rows:
            if row["category"] == category:
                aliases = f" [{', '.join(row['aliases'])}]" if row["aliases"] else ""
                reason = f"  NOT HERE: {row['reason']}" if row["reason"] else ""
                origin = f"  plug-in: {row['plugin']}" if row["plugin"] else ""
                echo(f"  {row['signature']}{aliases}\n      {row['label']} ({row['risk']}){origin}{reason}")
