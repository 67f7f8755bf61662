"""`autoagent plugins`: the AutoGPT plugins that were found, the commands of each, and why some are not used."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import click

from autoagent.session.session import Session, claimed_state
from autoagent.terminal.output import echo, echo_json


@click.command("plugins")
@click.option("--json", "as_json", is_flag=True, help="A list of objects.")
@click.option("--install-plugin-deps", "installs", is_flag=True, help="Install what the used ones are missing.")
@click.pass_context
def plugins(ctx: click.Context, as_json: bool, installs: bool) -> None:
    """List the plug-ins in PLUGINS_DIR (./plugins) and those installed; the used ones with their hooks and commands.

    One that is not enabled in plugins_config.yaml, or not trusted, is not imported.
    """
    from autoagent.session.plugins import install, states_of

    session = Session.read(ctx.obj)
    settings, states = session.settings, states_of(session)
    if installs:
        install(states, lambda line: echo(line, err=True))
        states = states_of(session)
    with claimed_state(settings):
        rows = [_row(state, settings) for state in states]
    if as_json:
        echo_json(rows)
        return
    if not rows:
        echo(f"There are no plug-ins in {Path.cwd() / settings.plugins_dir}, nor installed.")
    for row in rows:
        echo(f"{row['name']}  {row['version']}".rstrip() + f"  {row['description']}".rstrip())
        echo(f"    {'used' if row['used'] else 'NOT USED: ' + row['reason']} ({row['kind']})")
        for title in ("hooks", "commands", "missing", "problems"):
            if row[title] and row["reason"] != row[title][0]:
                echo(f"    {title}: {', '.join(row[title])}")


def _row(state: Any, settings: Any) -> dict[str, Any]:
    row = {
        "name": state.plugin.name, "kind": state.plugin.kind, "classes": list(state.plugin.classes),
        "enabled": state.entry.enabled, "used": not state.problem, "reason": state.problem, "version": "",
        "description": "", "hooks": [], "commands": [], "problems": [], "missing": list(state.missing),
        "env": list(state.entry.env),
    }  # fmt: skip
    return row if state.problem else {**row, **_looked_at(state, settings)}


def _looked_at(state: Any, settings: Any) -> dict[str, Any]:
    """Return the description of a used plug-in by itself."""
    from autoagent.commands.selection import all_specs
    from autoagent.core.command_schema import TEXT_FORM
    from autoagent.plugins.plugin_hooks import PromptParts
    from autoagent.session.plugins import open_one

    problems: list[str] = []
    with closing(open_one(state, settings, problems.append)) as hooks:
        about = hooks.loaded[state.plugin.name]
        parts = PromptParts("Agent", "an agent", ("a goal",), (), (), ())
        _, commands = hooks.prompt(parts, TEXT_FORM, all_specs())
    return {
        "used": bool(about),
        "reason": "" if about else " ".join(problems),
        "problems": problems,
        "version": about[0]["version"] if about else "",
        "description": about[0]["description"] if about else "",
        "hooks": [hook for one in about for hook in one["hooks"]],
        "commands": [command.spec.signature() for command in commands],
    }
