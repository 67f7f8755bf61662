"""Define `autoagent plugins`, which lists the plug-ins, and why some are not used."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import click

from autoagent.extension import Place, PromptParts, claimed_state, echo, echo_json, read_place
from autoagent_autogpt_plugins.running import State, install, started, states_of


@click.command("plugins")
@click.option("--json", "as_json", is_flag=True, help="A list of objects.")
@click.option("--install-plugin-deps", "installs", is_flag=True, help="Install their missing requirements.")
@click.pass_context
def plugins(ctx: click.Context, as_json: bool, installs: bool) -> None:
    """List the AutoGPT plug-ins, and why some are not used. They are in PLUGINS_DIR (./plugins) or installed.

    A plug-in is imported only if it is enabled in plugins_config.yaml and trusted.
    """
    place = read_place(ctx.obj)
    states = states_of(place)
    if installs:
        install(place, states, lambda line: echo(line, err=True))
        states = states_of(place)
    with claimed_state(place):
        rows = [_row(state, place) for state in states]
    if as_json:
        echo_json(rows)
        return
    if not rows:
        echo(f"There are no plug-ins in {place.folder / place.setting('plugins_dir')}, nor installed.")
    for row in rows:
        echo(f"{row['name']}  {row['version']}".rstrip() + f"  {row['description']}".rstrip())
        echo(f"    {'used' if row['used'] else 'NOT USED: ' + row['reason']} ({row['kind']})")
        for title in ("hooks", "commands", "missing", "problems"):
            if row[title] and row["reason"] != row[title][0]:
                echo(f"    {title}: {', '.join(row[title])}")


def _row(state: State, place: Place) -> dict[str, Any]:
    row = {
        "name": state.plugin.name, "kind": state.plugin.kind, "classes": list(state.plugin.classes),
        "enabled": state.entry.enabled, "used": not state.problem, "reason": state.problem, "version": "",
        "description": "", "hooks": [], "commands": [], "problems": [], "missing": list(state.missing),
        "env": list(state.entry.env),
    }  # fmt: skip
    return row if state.problem else {**row, **_looked_at(state, place)}


def _looked_at(state: State, place: Place) -> dict[str, Any]:
    """Return how a plug-in in use describes itself."""
    problems: list[str] = []
    with closing(started(place, [state], problems.append)) as hooks:
        about = hooks.loaded[state.plugin.name]
        _, commands = hooks.shape(PromptParts("Agent", "an agent", ("a goal",), (), (), ()))
    return {
        "used": bool(about),
        "reason": "" if about else " ".join(problems),
        "problems": problems,
        "version": about[0]["version"] if about else "",
        "description": about[0]["description"] if about else "",
        "hooks": [hook for one in about for hook in one["hooks"]],
        "commands": [command.spec.signature() for command in commands],
    }
