"""Load the state, settings and task of earlier runs, so that they can be resumed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from autoagent.core.errors import StateError
from autoagent.core.events import Changed, Ended, Event, Rejected, Resumed, Rewound, RunStarted, SystemNotice, Thought
from autoagent.core.task import Status
from autoagent.log.event_log import EventLog
from autoagent.log.reader import effective, log_path, read, run_ids
from autoagent.session.session import Session
from autoagent.settings import EMBEDDER, Settings
from autoagent.terminal.console import Console
from autoagent.terminal.output import echo


@dataclass(frozen=True, slots=True)
class EarlierRun:
    """Describe a run of this state folder: its newest start, its status (None if it has not ended), its last change."""

    run: str
    began: RunStarted
    status: Status | None
    updated: float = 0.0

    @property
    def name(self) -> str:
        """Return the user's name for the run, or its goals."""
        return self.began.settings.get("run_name") or " ".join("; ".join(map(str, self.began.task.goals)).split())


def session_of_run(began: RunStarted, session: Session) -> Session:
    """Return the session that continues a run: with its own settings, except for flags and those changed since."""
    from autoagent.session.plan import KEPT_SETTINGS, persistent_settings

    logged = ((name, began.settings[name]) for name in KEPT_SETTINGS if name in began.settings)  # a log can be forged
    own_settings = {name: tuple(value) if isinstance(value, list) else value for name, value in logged}
    if "said" not in began.settings and own_settings.get("embedding_model") == EMBEDDER:  # a default in older logs
        del own_settings["embedding_model"]
    old_values = began.settings.get("said", {})
    new_values = persistent_settings(session)
    changed = [
        name
        for name in new_values
        if name != "workspace" and (name not in old_values or old_values[name] != new_values[name])
    ]
    return session.continuing({name: value for name, value in own_settings.items() if name not in changed})


def last_start(state_dir: Path, run: str) -> RunStarted:
    """Return the newest RunStarted or Resumed. Raises StateError if there is none."""
    return newest_state(state_dir, run)[0]


def newest_state(state_dir: Path, run: str) -> tuple[RunStarted, Status | None]:
    """Return the newest start or change of the run, and its status since. Raises StateError if it has no start."""
    began, status = _scan_starts(state_dir, run)
    if began is None:
        raise StateError(f"The run {run} was cut off before it began; start a new run.")
    return began, status


def earlier_runs(state_dir: Path) -> Iterator[EarlierRun]:
    """Yield the resumable runs, most recently changed first. Report damaged logs."""
    mtimes = {run: log_path(state_dir, run).stat().st_mtime_ns for run in run_ids(state_dir)}
    for run in sorted(mtimes, key=mtimes.__getitem__, reverse=True):
        try:
            began, status = _scan_starts(state_dir, run)
        except StateError as error:
            echo(f"autoagent: {error}", err=True)
        else:
            if began is not None:
                yield EarlierRun(run, began, status, mtimes[run] / 1e9)


def newest_run(state_dir: Path, *, finished: bool = False) -> str:
    """Return the newest resumable run. Report damaged logs. Raises StateError without one."""
    for earlier in earlier_runs(state_dir):
        if finished or earlier.status is None or not earlier.status.ended_by_agent:
            return earlier.run
    raise StateError(f"There is no {'' if finished else 'unfinished '}run in {state_dir}.")


def count_replies(settings: Settings, run: str, step: int | None = None) -> int:
    """Count the replies of a recording used up to the end of a step (None: until now), or 0 for other models."""
    if not settings.model_choice.provider.recorded:
        return 0
    return sum(step is None or event.step <= step for event in replies(settings, run))


def report_changes(began: RunStarted, start: RunStarted, console: Console, wish: str = "") -> Iterator[Event]:
    """Tell the user what has changed since the run began, and yield the events that tell the agent.

    With a new `wish`, the user knows the task already. It may refer to the goals so far, so the agent is told of these.
    """
    if replace(start.task, budget=began.task.budget) != began.task:
        prefix = f"The task has changed. You are {start.task.name}, {start.task.role}"
        if wish:
            prefix = f"The user goes on. Goals so far: {began.task.numbered}"
        text = f"{prefix}. Goals now: {start.task.numbered}"
        if not wish:
            console.say(text)
        yield SystemNotice(text=text)
    before, now = (_comparable(event) for event in (began, start))
    differing = [name for name in now if name in before and before[name] != now[name]]
    if changes := [f"{name} {before[name]!r} -> {now[name]!r}" for name in differing]:
        console.say(f"Changed from here on: {', '.join(changes)}.")


def report_lost_events(log: EventLog, warn: Callable[[str], None]) -> Iterator[Event]:
    """Warn the user of events missing at the end of a log. Yield the events that tell the agent."""
    if log.lost:
        events = f"{log.lost:,} event{'s' if log.lost > 1 else ''}"
        text = f"Missing at the end of the log: {events}. Their actions may have been carried out."
        warn(text)
        yield SystemNotice(text=f"{text} Look before you repeat anything.")


def _comparable(start: RunStarted) -> dict[str, Any]:
    """Return the logged settings, except those that depend on the folder of the start."""
    logged = {name: value for name, value in start.settings.items() if name not in ("protected", "workspace", "said")}
    derived = {"model": start.model, "window": start.window, "api_budget": start.task.budget}
    values: dict[str, Any] = json.loads(json.dumps({**logged, **derived}))
    return values


def replies(settings: Settings, run: str) -> list[Event]:
    """Return the replies of the run's own agent that were not rewound."""
    events = [event for event in read(settings.state_dir, run, (Thought, Rejected, Rewound)) if not event.agent]
    events_in_effect = effective(events, [event for event in events if isinstance(event, Rewound)])
    return [event for event in events_in_effect if isinstance(event, (Thought, Rejected))]


def _scan_starts(state_dir: Path, run: str) -> tuple[RunStarted | None, Status | None]:
    began, status = None, None
    for event in read(state_dir, run, (RunStarted, Resumed, Changed, Rewound, Ended)):
        if event.agent:
            continue
        began = event if isinstance(event, RunStarted) else began
        status = event.status if isinstance(event, Ended) else None
    return began, status
