"""`autoagent memory export` and `import`: a memory into files and out of them, to move it between backends."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from autoagent.app.current import settings_here, trusted_here
from autoagent.app.memory_factory import lazy_embedder, memory_of_user, say
from autoagent.core.errors import SettingsError
from autoagent.terminal.output import echo

if TYPE_CHECKING:  # numpy and sqlite3 wait until a memory is opened
    from autoagent.memory.transfer import Counts

file = click.argument("file", type=click.Path(dir_okay=False, path_type=Path))


@click.command("export")
@file
@click.option("--overwrite", is_flag=True, help="Replace FILE if it is there.")
@click.pass_context
def export_memory(ctx: click.Context, file: Path, overwrite: bool) -> None:
    """Write the memory to FILE (JSON Lines), its vectors to FILE.npy, for `autoagent memory import` of any backend."""
    from autoagent.memory import transfer

    if file.exists() and not overwrite:
        raise SettingsError(f"{file} is there already; choose another FILE, or add --overwrite.")
    settings = settings_here(ctx.obj)
    embedder = lazy_embedder(settings)
    with memory_of_user(settings, embedder) as living:
        counts = transfer.export(living.store, embedder, living.journal, file, say)
    echo(f"Exported {_counted(counts)} to {file}; {counts.vectors} have their vectors beside it.")


@click.command("import")
@file
@click.option("--trusted", is_flag=True, help="FILE is your own export: take over which memories are trusted.")
@click.pass_context
def import_memory(ctx: click.Context, file: Path, trusted: bool) -> None:
    """Add the memories that `autoagent memory export` wrote to FILE; those that are here already are kept.

    Without --trusted, each that is new here counts as text from outside, as anybody could have written FILE.
    """
    from autoagent.memory import transfer

    settings = trusted_here(ctx.obj).settings
    exported = transfer.read(file, say)
    embedder = lazy_embedder(settings)
    if exported.vectors is not None:
        embedder = transfer.TakenOver(embedder, exported.vectors)
    with memory_of_user(settings, embedder) as living:
        counts = transfer.import_into(living.store, living.journal, exported, trusted=trusted)
        there = len(living)
    echo(f"Imported {_counted(counts)} that were new here; there are {there} memories now.")
    if counts.doubted:
        say(
            f"{counts.doubted} that FILE calls trusted count as text from outside, and stay so. If it is your own "
            "export: forget them here, and import it with --trusted."
        )


def _counted(counts: Counts) -> str:
    return f"{counts.memories} memories, {counts.trash} in the trash and {counts.dreams} dreams"
