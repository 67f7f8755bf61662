"""List the runs of a state folder as the rows of a table. Each row is cached beside its log until the log grows."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from autoagent import __version__
from autoagent.agent.stats import RunStats
from autoagent.core.codec import from_line, to_plain
from autoagent.core.durable_files import read_regular, replacing
from autoagent.core.errors import StateError
from autoagent.core.events import Forked, RunStarted
from autoagent.core.frozen import dataclass
from autoagent.log.reader import digest, log_path, run_ids
from autoagent.terminal.output import Column, Columns, echo, minute
from autoagent.text.figures import counted
from autoagent.text.sanitize import shorten

MAX_ROW_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class RunRow:
    """Hold the row of a run, as cached beside its log."""

    id: str
    name: str
    status: str
    proofs: tuple[str, ...]
    steps: int
    cost: float | None
    updated: float
    workspace: str
    parent: str
    goals: tuple[str, ...]


def _cost(row: RunRow) -> str:
    return "cost ?" if row.cost is None else f"${row.cost:.4f}"


def _result(row: RunRow) -> str:
    """Return the status, or `claimed` for a run that finished because claims were accepted in advance."""
    return "claimed" if row.status == "finished" and "claimed" in row.proofs else row.status


def line_of(row: RunRow) -> str:
    """Format a row for an output that is no terminal."""
    origin = f"from {row.parent}  " if row.parent else ""
    steps, when, name = counted(row.steps, "step"), minute(row.updated), shorten(row.name, 100)
    return f"{row.id}  {_result(row):11}  {steps:>10}  {_cost(row)}  {when}  {origin}{name}"


COLUMNS: Columns[RunRow] = Columns(
    (
        Column("RUN", lambda row: row.id),
        Column("RESULT", _result),
        Column("STEPS", lambda row: f"{row.steps:,}", spare=3, right=True),
        Column("COST", _cost, spare=2, right=True),
        Column("UPDATED", lambda row: minute(row.updated), spare=4),
        Column("FORK OF", lambda row: row.parent, spare=1),
    ),
    Column("NAME", lambda row: row.name),
)


def rows(state_dir: Path) -> Iterator[RunRow]:
    """Yield the rows of all runs that have begun, newest first. Report damaged logs."""
    for run in run_ids(state_dir):
        kept = log_path(state_dir, run).with_name("row")
        try:
            log = log_path(state_dir, run).lstat()
            version = f"{__version__} {run} {log.st_ino} {log.st_size} {log.st_mtime_ns}\n".encode()
            with suppress(OSError, ValueError):
                if (data := read_regular(kept, MAX_ROW_BYTES)).startswith(version):
                    yield replace(from_line(RunRow, data.removeprefix(version)), id=run)
                    continue
            if row := _row(state_dir, run):
                with suppress(OSError), replacing(kept, synced=False) as file:
                    file.write(version + json.dumps(to_plain(row)).encode())
                yield row
        except (OSError, StateError) as error:
            echo(f"autoagent: {error}", err=True)


def _row(state_dir: Path, run: str) -> RunRow | None:
    """Return the row of a run from its log, with its latest start, or None if it has not begun. Raises StateError."""
    tally, began, origin = RunStats(), None, ""
    for event in digest(state_dir, run):
        tally.add(event)
        origin = event.origin if isinstance(event, Forked) else origin
        began = event if isinstance(event, RunStarted) and not event.agent else began
    if began is None:
        return None
    goals = tuple(map(str, began.task.goals))
    name = began.settings.get("run_name") or " ".join("; ".join(goals).split())
    status = tally.outcome.status if tally.outcome else "unfinished"
    figures = tally.proofs, tally.step, tally.usage.cost, tally.updated
    return RunRow(run, name, status, *figures, began.workspace, origin, goals)
