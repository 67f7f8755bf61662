"""Read the log of a run while any process holds it, skipping a last line torn by a crash.

Damage anywhere else is an error that names the line. A long log is scanned once. Only the beginning of unwanted lines
is parsed.
"""

from __future__ import annotations

import errno
import os
import re
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import field, fields
from functools import lru_cache
from pathlib import Path
from typing import IO, Any

from autoagent.core import events
from autoagent.core.codec import event_from_line, from_line
from autoagent.core.errors import SetupError, StateError
from autoagent.core.events import EVENTS, VERSION, Event
from autoagent.core.frozen import dataclass
from autoagent.core.model import Usage

# The few events that begin, end or rewind a run, needed by several readers.
_STARTS = (events.RunStarted, events.Resumed, events.Changed, events.Forked)
_BOUNDARY_EVENTS = (*_STARTS, events.Rewound, events.Undone, events.Ended)
_TEAM_EVENTS = (events.Hired, events.RoundBegan, events.RoundEnded, events.Published, events.Acted)
_COST_EVENTS = (events.Thought, events.Rejected, events.Spent, events.Answered)

# The head of EventLog's lines. Lines written by others are read as a whole.
_HEAD = re.compile(
    rb'\{"v":%d,"type":"(\w+)","run":"[^"\\]*","seq":(\d+),"step":(\d+),"t":([\d.]+),"agent":"([^"\\]*)"' % VERSION
)

_END_BYTES = 65_536  # of a log: enough for the last line if a run ends there


def runs_folder(state_dir: Path) -> Path:
    """Return the folder of the logs, which need not exist."""
    return state_dir / "runs"


def run_ids(state_dir: Path) -> list[str]:
    """Return the ids of all runs, newest first, as an id begins with the start time.

    Raises StateError if they cannot be listed.
    """
    folder = runs_folder(state_dir)
    try:
        if not folder.is_dir():
            return []
        return sorted((entry.name for entry in folder.iterdir() if (entry / "events.jsonl").is_file()), reverse=True)
    except OSError as error:
        raise StateError(f"Cannot list the runs in {folder}: {error.strerror}.") from error


def find_run(state_dir: Path, prefix: str) -> str:
    """Return the run whose id begins with `prefix`. Raises StateError if there is none or more than one."""
    ids = run_ids(state_dir)
    matches = [run for run in ids if run.startswith(prefix)]
    if prefix in ids:
        return prefix
    if not matches:
        raise StateError(f"No run {prefix!r} in {state_dir}; `autoagent runs` lists them.")
    if len(matches) > 1:
        raise StateError(f"{prefix!r} matches {len(matches)} runs ({', '.join(matches[:3])} …); give more of the id.")
    return matches[0]


def read(
    state_dir: Path,
    run: str,
    kinds: Collection[type[Event]] = (),
    *,
    until: int | None = None,
    begin: tuple[int, int] = (0, 0),
) -> Iterator[Event]:
    """Yield the events of a run without taking its lock, skipping a torn last line.

    With `kinds`, only those types, which takes a tenth of the time, since only the beginning of other lines is parsed.
    Stop after the step `until` of the run's own agent. `begin` as for `events_in`.
    """
    kinds_read = {kind.type for kind in kinds} or EVENTS.keys()
    for event in events_in(log_path(state_dir, run), kinds_read, begin=begin):
        if until is not None and event.step > until and not event.agent:
            return
        yield event


def effective(all_events: Iterable[Event], rewinds: Sequence[events.Rewound]) -> Iterator[Event]:
    """Yield the events that count: those not taken back by one of the `rewinds` among them.

    The money and time of events taken back still count.
    """
    pending, step = deque(rewinds), 0
    for event in all_events:
        while pending and pending[0].seq <= event.seq:
            pending.popleft()
        if not event.agent:
            step = max(step, event.step)
        if not pending or step <= min(rewind.to for rewind in pending):
            yield event
        elif isinstance(event, (*_COST_EVENTS, events.Returned, events.Ended)):
            envelope: dict[str, Any] = {f.name: getattr(event, f.name) for f in fields(Event)}
            yield events.Spent(purpose="a step taken back", usage=getattr(event, "usage", Usage()), **envelope)


def log_path(state_dir: Path, run: str) -> Path:
    """Return the file of a run's log, which need not exist."""
    return runs_folder(state_dir) / run / "events.jsonl"


def is_cut_off(path: Path) -> bool:
    """Return whether the last line of a log is not the end of a run, as after a kill. Raises as open_log_file."""
    with open_log_file(path) as file:
        file.seek(max(0, path.stat().st_size - _END_BYTES))
        head = _HEAD.match(file.read().rpartition(b"\n")[0].rpartition(b"\n")[2])
    return head is None or head[1] != events.Ended.type.encode() or bool(head[5])  # not the end of a sub-agent


def events_in(
    path: Path, kinds: Collection[str], *, sub_agents: bool = False, begin: tuple[int, int] = (0, 0)
) -> Iterator[Event]:
    """Yield the events of these types, or only those of `sub_agents`.

    `begin` is the offset of the first in bytes, and the number of lines before it. Raises StateError.
    """
    if sub_agents and not scan_log(path).has_sub_agents:
        return
    if begin == (0, 0) and not sub_agents and all(issubclass(EVENTS[kind], _BOUNDARY_EVENTS) for kind in kinds):
        yield from (event for event in scan_log(path).boundaries if event.type in kinds)
        return
    skipped = {kind.encode() for kind in EVENTS.keys() - set(kinds)}
    for number, line, head in _raw_lines(path, begin):
        if head and (head[1] in skipped or (sub_agents and not head[5])):
            continue
        event = _event(path, number, line, head)
        if event.type in kinds and (event.agent or not sub_agents):
            yield event


@dataclass(frozen=True, slots=True)
class Scan:
    """The result of scanning a log."""

    event_count: int
    size: int  # bytes of the complete lines
    boundaries: tuple[Event, ...]
    has_sub_agents: bool


def scan_log(path: Path) -> Scan:
    """Scan a log, once while it is unchanged. Raises StateError."""
    try:
        status = path.lstat()
    except OSError:
        return _scan(path)  # raises StateError with the reason
    return _scan(path, status.st_ino, status.st_size, status.st_mtime_ns)


@lru_cache(maxsize=1)
def _scan(path: Path, *_: int) -> Scan:
    count, size, has_sub_agents = 0, 0, False
    boundaries: list[Event] = []
    skipped = {kind.encode() for kind in EVENTS.keys() - {kind.type for kind in _BOUNDARY_EVENTS}}
    for count, line, head in _raw_lines(path):  # the last number is the count
        size += len(line)
        event = None if head and head[1] in skipped else _event(path, count, line, head)
        has_sub_agents = has_sub_agents or bool(event.agent if event else head and head[5])
        if isinstance(event, _BOUNDARY_EVENTS):
            boundaries.append(event)
    return Scan(count, size, tuple(boundaries), has_sub_agents)


def _raw_lines(path: Path, begin: tuple[int, int] = (0, 0)) -> Iterator[tuple[int, bytes, re.Match[bytes] | None]]:
    """Yield each complete line's number, the line, and the match of its head, or None to parse the whole line."""
    try:
        with open_log_file(path) as file:
            file.seek(begin[0])
            for number, line in enumerate(file, begin[1] + 1):
                if not line.endswith(b"\n"):
                    return  # torn by a crash, or still being written
                head = _HEAD.match(line)
                is_consecutive = head and int(head[2]) == number - 1 and line.endswith(b"}\n")
                yield number, line, head if is_consecutive else None
    except OSError as error:
        raise StateError(f"Cannot read the log {path}: {error.strerror}.") from error


def _event(path: Path, number: int, line: bytes, head: re.Match[bytes] | None = None) -> Event:
    try:
        event = event_from_line(line, head[1].decode() if head else "")
    except ValueError as error:
        raise StateError(f"{path}:{number}: not an event of version {VERSION}: {error}.") from error
    if event.seq != number - 1:
        raise StateError(f"{path}:{number}: event {event.seq} stands where {number - 1} belongs: lines are lost.")
    return event


# A summary of a log ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _UsageOnly:
    usage: Usage = field(default_factory=Usage)


def summary_events(state_dir: Path, run: str, step: int | None = None) -> Iterator[Event]:
    """Yield all events that a run's figures need, in a tenth of the time: `Spent` summarizes costs.

    All events of a `step` of the run's own agent are included, with the prompt before them, and none after the step.
    Raises StateError.
    """
    path = log_path(state_dir, run)
    whole_types = {kind.type.encode() for kind in (*_BOUNDARY_EVENTS, *_TEAM_EVENTS)}
    cost_types = {kind.type.encode() for kind in _COST_EVENTS}
    step_key, current_step, time = str(step).encode(), 0, 0.0
    usage: dict[str, Usage] = {}  # since the last yielded event, by agent
    prompted_line = started_line = (0, b"")

    def pending_costs() -> Iterator[Event]:
        for agent, cost in usage.items():
            yield events.Spent(purpose="", usage=cost, step=0 if agent else current_step, t=time, agent=agent, run=run)
        usage.clear()

    for number, line, head in _raw_lines(path):
        if head:
            agent, time = head[5].decode(), float(head[4])
            current_step = current_step if agent else max(current_step, int(head[3]))
            if step is not None and current_step > step:
                break
        if head is None or head[1] in whole_types or (head[3] == step_key and not agent):
            yield from pending_costs()
            if prompted_line[0]:
                yield _event(path, *prompted_line)
            prompted_line = (0, b"")
            yield _event(path, number, line)
        elif head[1] in cost_types:
            try:
                cost = from_line(_UsageOnly, line).usage
            except ValueError:
                cost = Usage(cost=None)
            if cost.cost is None:  # the whole event is needed, for its purpose or its error
                yield from pending_costs()
                if started_line[0]:
                    yield _event(path, *started_line)
                yield _event(path, number, line)
            else:
                usage[agent] = usage[agent] + cost if agent in usage else cost
        elif head[1] == b"prompted" and not agent:
            prompted_line = (number, line)
        elif head[1] == b"started":
            started_line = (number, line)
    usage.setdefault("", Usage())
    yield from pending_costs()


@contextmanager
def refuse_link(path: Path) -> Iterator[None]:
    """Raise SetupError if opening fails because the file is a symbolic link."""
    try:
        yield
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        raise SetupError(f"{path} is a symbolic link, and no log is ever kept behind a link; remove it.") from None


def open_log_file(path: Path) -> IO[bytes]:
    """Open a log. Raises OSError, and SetupError if it is a symbolic link."""
    with refuse_link(path):
        return os.fdopen(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW), "rb")


# The file beside a log -------------------------------------------------------------------------------------------

_HOLDER = "holder"


class LogHolder:
    """Record the process that holds a log and the number of events on disk, in a file `holder` beside it.

    A log alone cannot tell that its end is missing. The count is written after each sync, so after a crash it is never
    more than the log has.
    """

    def __init__(self, log: Path) -> None:
        """Open the file, or create it. Raises OSError, and SetupError if it is a symbolic link."""
        _, self.recorded_count = holder_of(log)  # by an earlier process
        path = log.with_name(_HOLDER)
        with refuse_link(path):
            self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
        os.fchmod(self._file, 0o600)
        self.count(self.recorded_count)

    def count(self, events: int) -> None:
        """Overwrite the number in the file, with as many bytes, in one write."""
        with suppress(OSError):  # a count that is too low does no harm
            os.pwrite(self._file, b"process %-10d\n%-20d\n" % (os.getpid(), events), 0)

    def close(self) -> None:
        os.close(self._file)


def holder_of(log: Path) -> tuple[str, int]:
    """Return the process that holds a log, if known, and the recorded number of its events, or 0.

    Raises OSError, and SetupError for a symbolic link.
    """
    path, process, count = log.with_name(_HOLDER), "", ""
    with suppress(FileNotFoundError), refuse_link(path):
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb") as file:
            process, _, count = file.read(100).decode("ascii", "replace").partition("\n")
    return process.strip() or "another process", int(count) if count.strip().isdecimal() else 0


def truncation_message(log: Path, run: str, left: int, recorded: int) -> str:
    """Describe a log cut to `left` events, and how the run can continue. Raises StateError as events_in."""
    step = max((event.step for event in events_in(log, {events.Returned.type}) if not event.agent), default=0)
    return (
        f"The end of the log {log} is missing: {recorded:,} events were written, {left:,} are left. What came after "
        f"them is not known. `autoagent resume {run} --from {step}` takes the files back to the end of step {step} and "
        f"goes on from there; `autoagent fork {run} --at {step}` does so in a copy."
    )
