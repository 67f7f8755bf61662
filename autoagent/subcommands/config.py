"""`autoagent config`: the settings that hold here, and where each one comes from."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import click

from autoagent.session.session import Session, plain
from autoagent.settings import GROUPS, Settings, secrets_of
from autoagent.terminal.output import echo, echo_json
from autoagent.text.redaction import MASK, Redactor


@click.command("config")
@click.option("--all", "every", is_flag=True, help="Those that are as they are by default, too.")
@click.option("--show-origin", is_flag=True, help="Say where each value comes from.")
@click.option("--json", "as_json", is_flag=True, help="A list of all: name, value, origin, left_out, env, help, group.")
@click.pass_context
def config(ctx: click.Context, every: bool, show_origin: bool, as_json: bool) -> None:
    """Show the settings that hold in this folder and are not as by default; secrets are masked."""
    here = Session.load(ctx.obj)
    here.tell()
    rows = list(_rows(here))
    if as_json:
        echo_json(rows)
        return
    changed = {f.name for f in dataclasses.fields(Settings) if getattr(here.settings, f.name) != f.default}
    shown = [row for row in rows if every or row["left_out"] or row["name"] in changed]
    for group, members in groupby(shown, lambda row: row["group"]):
        echo(f"{group}:")
        for row in members:
            value = ",".join(row["value"]) if isinstance(row["value"], (list, tuple)) else row["value"]
            left = f"; left out: {row['left_out']}" if row["left_out"] else ""
            origin = f"  ({row['origin']}{left})" if show_origin else ""
            echo(f"  {row['name']} = {'' if value is None else value}{origin}")
    if rest := len(rows) - len(shown):
        echo(f"{rest} of {len(rows)} settings are as they are by default; --all shows them.", err=True)


def _rows(here: Session) -> Iterator[dict[str, Any]]:
    loaded = here.loaded
    left_out = {untrusted.setting: plain(untrusted.called) for untrusted in here.left_out}
    redactor = Redactor(secrets_of(loaded.settings))
    group = ""
    for setting in dataclasses.fields(Settings):
        group = GROUPS.get(setting.name, group)
        value = getattr(loaded.settings, setting.name)
        if isinstance(value, Path):
            value = str(value)
        if setting.metadata["secret"] and value:
            value = MASK
        yield {
            "name": setting.name,
            "value": redactor.mask_json(value),
            "origin": loaded.origins[setting.name],
            "left_out": left_out.get(setting.name, ""),
            "env": list(setting.metadata["env"]),
            "help": setting.metadata["help"],
            "group": group,
        }
