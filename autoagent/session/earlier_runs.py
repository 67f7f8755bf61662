"""List the runs of a state folder, and load the state, settings and task of earlier runs to resume them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from autoagent import __version__
from autoagent.agent.stats import RunStats
from autoagent.core import events
from autoagent.core.codec import from_line, to_plain
from autoagent.core.durable_files import read_regular, replacing
from autoagent.core.errors import StateError
from autoagent.core.events import Event, RunStarted
from autoagent.core.frozen import dataclass
from autoagent.core.task import Status
from autoagent.log.event_log import EventLog
from autoagent.log.reader import effective, find_run, log_path, read, run_ids, summary_events
from autoagent.session.session import Session
from autoagent.settings import EMBEDDER, Settings
from autoagent.terminal.console import Console
from autoagent.terminal.output import Column, Columns, echo, minute
from autoagent.text.figures import counted
from autoagent.text.sanitize import shorten

MAX_ROW_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class EarlierRun:
    """Describe a run of this state folder: its newest start, its status (None if it has not ended), its last change."""

    run: str
    start: RunStarted
    status: Status | None
    updated: float = 0.0

    @property
    def name(self) -> str:
        """Return the user's name for the run, or its goals."""
        return self.start.settings.get("run_name") or " ".join("; ".join(map(str, self.start.task.goals)).split())


def session_of_run(start: RunStarted, session: Session) -> Session:
    """Return the session that continues a run: with the run's settings, except for flags and what has changed since."""
    from autoagent.session.plan import KEPT_SETTINGS, persistent_settings

    logged = ((name, start.settings[name]) for name in KEPT_SETTINGS if name in start.settings)  # a log can be forged
    own_settings = {name: tuple(value) if isinstance(value, list) else value for name, value in logged}
    if "said" not in start.settings and own_settings.get("embedding_model") == EMBEDDER:  # a default in older logs
        del own_settings["embedding_model"]
    old_values = start.settings.get("said", {})
    new_values = persistent_settings(session)
    changed = {name for name, value in new_values.items() if (name, value) not in old_values.items()} - {"workspace"}
    return session.continuing({name: value for name, value in own_settings.items() if name not in changed})


def newest_state(state_dir: Path, run: str) -> tuple[RunStarted, Status | None]:
    """Return the newest start or change of the run, and its status since. Raises StateError if it has no start."""
    start, status = _scan_starts(state_dir, run)
    if start is None:
        raise StateError(f"The run {run} was cut off before it began; start a new run.")
    return start, status


def earlier_runs(state_dir: Path) -> Iterator[EarlierRun]:
    """Yield the resumable runs, most recently changed first. Report damaged logs."""
    mtimes = {run: log_path(state_dir, run).stat().st_mtime_ns for run in run_ids(state_dir)}
    for run in sorted(mtimes, key=mtimes.__getitem__, reverse=True):
        try:
            start, status = _scan_starts(state_dir, run)
        except StateError as error:
            echo(f"autoagent: {error}", err=True)
        else:
            if start is not None:
                yield EarlierRun(run, start, status, mtimes[run] / 1e9)


def newest_run(state_dir: Path, *, finished: bool) -> str:
    """Return the newest resumable run. Report damaged logs. Raises StateError without one."""
    for earlier in earlier_runs(state_dir):
        if finished or earlier.status is None or not earlier.status.ended_by_agent:
            return earlier.run
    raise StateError(f"There is no {'' if finished else 'unfinished '}run in {state_dir}.")


def named_run(state_dir: Path, prefix: str | None) -> str:
    """Return the run whose id begins with `prefix`, or without one the newest run. Raises StateError for none."""
    return find_run(state_dir, prefix) if prefix else newest_run(state_dir, finished=True)


def count_replies(settings: Settings, run: str, step: int | None) -> int:
    """Count the replies of a recording used up to the end of a step (None: until now), or 0 for other models."""
    if not settings.model_choice.provider.recorded:
        return 0
    return sum(step is None or event.step <= step for event in replies(settings, run))


def report_changes(earlier_start: RunStarted, start: RunStarted, console: Console, wish: str = "") -> Iterator[Event]:
    """Tell the user of the changes since the run began, and yield the events that tell the agent.

    With a new `wish`, the user knows the task already. The wish may refer to earlier goals, so the agent is told them.
    """
    if replace(start.task, budget=earlier_start.task.budget) != earlier_start.task:
        prefix = f"The task has changed. You are {start.task.name}, {start.task.role}"
        if wish:
            prefix = f"The user goes on. Goals so far: {earlier_start.task.numbered}"
        text = f"{prefix}. Goals now: {start.task.numbered}"
        if not wish:
            console.say(text)
        yield events.SystemNotice(text=text)
    before, now = (_comparable(event) for event in (earlier_start, start))
    differing = [name for name in now if name in before and before[name] != now[name]]
    if changes := [f"{name} {before[name]!r} -> {now[name]!r}" for name in differing]:
        console.say(f"Changed from here on: {', '.join(changes)}.")


def report_lost_events(log: EventLog, warn: Callable[[str], None]) -> Iterator[Event]:
    """Warn the user of events missing at the end of a log. Yield the events that tell the agent."""
    if log.lost:
        text = f"Missing at the end of the log: {counted(log.lost, 'event')}. Their actions may have been carried out."
        warn(text)
        yield events.SystemNotice(text=f"{text} Look before you repeat anything.")


def _comparable(start: RunStarted) -> dict[str, Any]:
    """Return the logged settings, except those that depend on the folder of the start."""
    logged = {name: value for name, value in start.settings.items() if name not in ("protected", "workspace", "said")}
    derived = {"model": start.model, "window": start.window, "api_budget": start.task.budget}
    values: dict[str, Any] = json.loads(json.dumps({**logged, **derived}))
    return values


def replies(settings: Settings, run: str) -> list[Event]:
    """Return the replies of the run's own agent that were not rewound."""
    kinds = events.Thought, events.Rejected, events.Rewound
    logged = [event for event in read(settings.state_dir, run, kinds) if not event.agent]
    in_effect = effective(logged, [event for event in logged if isinstance(event, events.Rewound)])
    return [event for event in in_effect if isinstance(event, (events.Thought, events.Rejected))]


def _scan_starts(state_dir: Path, run: str) -> tuple[RunStarted | None, Status | None]:
    start, status = None, None
    for event in read(state_dir, run, (RunStarted, events.Resumed, events.Changed, events.Rewound, events.Ended)):
        if event.agent:
            continue
        start = event if isinstance(event, RunStarted) else start
        status = event.status if isinstance(event, events.Ended) else None
    return start, status


@dataclass(frozen=True, slots=True)
class RunRow:
    """The row of a run in the list, as cached beside its log."""

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
    """Format a row for an output that is not a terminal."""
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
        cache = log_path(state_dir, run).with_name("row")
        try:
            log = log_path(state_dir, run).lstat()
            version = f"{__version__} {run} {log.st_ino} {log.st_size} {log.st_mtime_ns}\n".encode()
            with suppress(OSError, ValueError):
                if (data := read_regular(cache, MAX_ROW_BYTES)).startswith(version):
                    yield replace(from_line(RunRow, data.removeprefix(version)), id=run)
                    continue
            if row := _row(state_dir, run):
                with suppress(OSError), replacing(cache, synced=False) as file:
                    file.write(version + json.dumps(to_plain(row)).encode())
                yield row
        except (OSError, StateError) as error:
            echo(f"autoagent: {error}", err=True)


def _row(state_dir: Path, run: str) -> RunRow | None:
    """Return the row of a run from its log, with its latest start, or None if it has not begun. Raises StateError."""
    stats, start, origin = RunStats(), None, ""
    for event in summary_events(state_dir, run):
        stats.add(event)
        origin = event.origin if isinstance(event, events.Forked) else origin
        start = event if isinstance(event, RunStarted) and not event.agent else start
    if start is None:
        return None
    status = stats.outcome.status if stats.outcome else "unfinished"
    figures = stats.proofs, stats.step, stats.usage.cost, stats.updated
    name, goals = EarlierRun(run, start, None).name, tuple(map(str, start.task.goals))
    return RunRow(run, name, status, *figures, start.workspace, origin, goals)
