"""`autoagent migrate`: from an AutoGPT folder into this one."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import click

from autoagent.core.errors import SettingsError
from autoagent.terminal.output import echo, echo_json


@click.command("migrate")
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--apply", "applies", is_flag=True, help="Do it; otherwise it is only shown.")
@click.option("--json", "as_json", is_flag=True, help="A list of objects: item, how, to, why.")
def migrate(folder: Path, applies: bool, as_json: bool) -> None:
    """Move an AutoGPT FOLDER into the current one, translated: settings, task, files, memory.

    Shows a table of the things taken, renamed and left out, with reasons. No file here is overwritten, and nothing is
    trusted by being moved. An AutoGPT folder also works as it is: start autoagent in it.
    """
    from autoagent.session.migration import carry_out, plan

    source, here = folder.resolve(), Path.cwd()
    if source == here.resolve():
        raise SettingsError("This is the folder itself, which works where it lies: start autoagent in it.")
    migration = plan(source, here)
    if applies:
        carry_out(migration, here, lambda line: echo(line, err=True))
    if as_json:
        echo_json([dataclasses.asdict(row) for row in migration.rows])
        return
    width = min(48, max(len(row.item) for row in migration.rows))
    for row in migration.rows:
        echo(f"{row.how:9}  {row.item:{width}}  {'-> ' + row.to if row.to else ''}{row.why}".rstrip())
    echo("It is done; start autoagent here." if applies else "Nothing was written; --apply does it.", err=True)
