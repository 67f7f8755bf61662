"""Reads the log of a run, whichever process holds it. A last line torn by a crash is skipped.

Damage anywhere else is an error that names the line. A long log is scanned once; of lines that are not wanted, only the
beginning is parsed.
"""

from __future__ import annotations

import errno
import os
import re
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, fields
from functools import lru_cache
from pathlib import Path
from typing import IO, Any

from autoagent.core.codec import event_of, from_line
from autoagent.core.errors import SetupError, StateError
from autoagent.core.events import (
    EVENTS,
    VERSION,
    Acted,
    Answered,
    Changed,
    Ended,
    Event,
    Forked,
    Hired,
    Published,
    Rejected,
    Resumed,
    Returned,
    Rewound,
    RoundBegan,
    RoundEnded,
    RunStarted,
    Spent,
    Thought,
    Undone,
)
from autoagent.core.model import Usage

# What begins and ends a run, and takes it back: a few events, that several look for.
_TURNS = (RunStarted, Resumed, Changed, Rewound, Undone, Forked, Ended)

_BEGINNING = re.compile(
    rb'\{"v":%d,"type":"(\w+)","run":"[^"\\]*","seq":(\d+),"step":(\d+),"t":([\d.]+),"agent":"([^"\\]*)"' % VERSION
)
"""How EventLog begins a line. Others write JSON otherwise: such a line is read as a whole."""


def runs_folder(state_dir: Path) -> Path:
    """Return the folder of the logs, which need not exist."""
    return state_dir / "runs"


def run_ids(state_dir: Path) -> list[str]:
    """Return the ids of all runs, newest first. An id begins with the time of its start, so that ids sort by age.

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
    """Return the one run whose id begins with `prefix`. Raises StateError if there is none, or more than one."""
    ids = run_ids(state_dir)
    found = [run for run in ids if run.startswith(prefix)]
    if prefix in ids:
        return prefix
    if not found:
        raise StateError(f"No run {prefix!r} in {state_dir}; `autoagent runs` lists them.")
    if len(found) > 1:
        raise StateError(f"{prefix!r} fits {len(found)} runs ({', '.join(found[:3])} …); give more of the id.")
    return found[0]


def read(
    state_dir: Path, run: str, kinds: Collection[type[Event]] = (), *, until: int | None = None
) -> Iterator[Event]:
    """Yield the events of a run without taking its lock. A torn last line is skipped.

    With `kinds` only those of these types, which takes a tenth of the time: of other lines only the beginning is read.
    They end with the step `until` of the run's own agent.
    """
    for event in events_in(log_path(state_dir, run), {kind.type for kind in kinds} or EVENTS.keys()):
        if until is not None and event.step > until and not event.agent:
            return
        yield event


def effective(events: Iterable[Event], rewinds: Sequence[Rewound]) -> Iterator[Event]:
    """Return the events that count: those not taken back by one of the `rewinds` among them.

    The money and time of events taken back still count.
    """
    ahead, step = deque(rewinds), 0
    for event in events:
        while ahead and ahead[0].seq <= event.seq:
            ahead.popleft()
        if not event.agent:
            step = max(step, event.step)
        if not ahead or step <= min(rewind.to for rewind in ahead):
            yield event
        elif isinstance(event, (Thought, Rejected, Spent, Answered, Returned, Ended)):
            envelope: dict[str, Any] = {f.name: getattr(event, f.name) for f in fields(Event)}
            yield Spent(purpose="a step taken back", usage=getattr(event, "usage", Usage()), **envelope)


def log_path(state_dir: Path, run: str) -> Path:
    """Return the file of a run's log, which need not exist."""
    return runs_folder(state_dir) / run / "events.jsonl"


def events_in(
    path: Path, kinds: Collection[str], *, others: bool = False, begin: tuple[int, int] = (0, 0)
) -> Iterator[Event]:
    """Yield the events of these types; with `others` only those of sub-agents.

    `begin` says where the first of them begins, in bytes, and how many lines come before. Raises StateError.
    """
    if begin == (0, 0) and (others or all(issubclass(EVENTS[kind], _TURNS) for kind in kinds)):
        look = looked_through(path)
        if not others or not look.others:
            yield from () if others else (event for event in look.turns if event.type in kinds)
            return
    for line in _lines(path, kinds, others=others, begin=begin):
        if isinstance(line, Event) and line.type in kinds and (line.agent or not others):
            yield line


@dataclass(frozen=True, slots=True)
class Look:
    """The result of one scan of a log: the number of events, those of _TURNS, and whether others have any."""

    events: int
    turns: tuple[Event, ...]
    others: bool


def looked_through(path: Path) -> Look:
    """Look through a log, once as long as it is the same. Raises StateError."""
    try:
        status = path.lstat()
    except OSError:
        return _look_through(path)  # which says why
    return _look_once(path, status.st_ino, status.st_size, status.st_mtime_ns)


@lru_cache(maxsize=1)
def _look_once(path: Path, *_: int) -> Look:
    return _look_through(path)


def _look_through(path: Path) -> Look:
    number, others = 0, False
    turns: list[Event] = []
    for line in _lines(path, {kind.type for kind in _TURNS}):
        number += 1
        others = others or bool(line.agent if isinstance(line, Event) else line)
        if isinstance(line, _TURNS):
            turns.append(line)
    return Look(number, tuple(turns), others)


def _lines(
    path: Path, kinds: Collection[str], *, others: bool = False, begin: tuple[int, int] = (0, 0)
) -> Iterator[Event | bytes]:
    """Yield each line's event, or of an unwanted one, of which only the beginning is read, the key of its agent.

    `begin` as for `events_in`.
    """
    unwanted = {kind.encode() for kind in EVENTS.keys() - set(kinds)}
    for number, line, begins in _scan(path, begin):
        if begins and (begins[1] in unwanted or (others and not begins[5])):
            yield begins[5]
        else:
            yield _event(path, number, line, begins)


def _scan(path: Path, begin: tuple[int, int] = (0, 0)) -> Iterator[tuple[int, bytes, re.Match[bytes] | None]]:
    """Yield the number of each whole line, the line, and its beginning, or None where the line has to be read whole."""
    try:
        with open_to_read(path) as file:
            file.seek(begin[0])
            for number, line in enumerate(file, begin[1] + 1):
                if not line.endswith(b"\n"):
                    return  # torn by a crash, or being written this moment
                begins = _BEGINNING.match(line)
                is_next = begins and int(begins[2]) == number - 1 and line.endswith(b"}\n")
                yield number, line, begins if is_next else None
    except OSError as error:
        raise StateError(f"Cannot read the log {path}: {error.strerror}.") from error


def _event(path: Path, number: int, line: bytes, begins: re.Match[bytes] | None = None) -> Event:
    """Return the event of a line. Raises StateError."""
    try:
        event = event_of(line, begins[1].decode() if begins else "")
    except ValueError as error:
        raise StateError(f"{path}:{number}: not an event of version {VERSION}: {error}.") from error
    if event.seq != number - 1:
        raise StateError(f"{path}:{number}: event {event.seq} stands where {number - 1} belongs.")
    return event


# In short --------------------------------------------------------------------------------------------------------

_TEAM = (Hired, RoundBegan, RoundEnded, Published, Acted)
_PAID = (Thought, Rejected, Spent, Answered)


@dataclass(frozen=True, slots=True)
class _Paid:
    usage: Usage = field(default_factory=Usage)


def in_short(state_dir: Path, run: str, step: int | None = None) -> Iterator[Event]:
    """Yield all that the figures of a run are made of, in a tenth of the time: `Spent` stands for what was paid.

    The events of a `step` of the run's own agent are all among them, with the prompt before it. Raises StateError.
    """
    path = log_path(state_dir, run)
    whole = {kind.type.encode() for kind in (*_TURNS, *_TEAM)}
    paid = {kind.type.encode() for kind in _PAID}
    wanted, step_reached, at = str(step).encode(), 0, 0.0
    usage: dict[str, Usage] = {}  # since the last event that was yielded, by agent
    prompted = started = (0, b"")

    def so_far() -> Iterator[Event]:
        for agent, spent in usage.items():
            yield Spent(purpose="", usage=spent, step=0 if agent else step_reached, t=at, agent=agent, run=run)
        usage.clear()

    for number, line, begins in _scan(path):
        if begins:
            agent, at = begins[5].decode(), float(begins[4])
            step_reached = step_reached if agent else max(step_reached, int(begins[3]))
        if begins is None or begins[1] in whole or (begins[3] == wanted and not agent):
            yield from so_far()
            if prompted[0]:
                yield _event(path, *prompted)
            prompted = (0, b"")
            yield _event(path, number, line)
        elif begins[1] in paid:
            try:
                spent = from_line(_Paid, line).usage
            except ValueError:
                spent = Usage(cost=None)
            if spent.cost is None:  # what it was for is named, or what is wrong with it
                yield from so_far()
                if started[0]:
                    yield _event(path, *started)
                yield _event(path, number, line)
            else:
                usage[agent] = usage[agent] + spent if agent in usage else spent
        elif begins[1] == b"prompted" and not agent:
            prompted = (number, line)
        elif begins[1] == b"started":
            started = (number, line)
    usage.setdefault("", Usage())
    yield from so_far()


@contextmanager
def no_link(path: Path) -> Iterator[None]:
    """Raise SetupError if opening fails because the file is a symbolic link."""
    try:
        yield
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        raise SetupError(f"{path} is a symbolic link, and no log is ever kept behind one; remove it.") from None


def open_to_read(path: Path) -> IO[bytes]:
    """Open a log. Raises OSError, and SetupError if it is a symbolic link."""
    with no_link(path):
        return os.fdopen(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW), "rb")


# The file beside a log -------------------------------------------------------------------------------------------

_HOLDER = "holder"


class LogHolder:
    """The file `holder` beside a log that this process has locked: its process, and how many events are on disk.

    A log alone cannot tell that its end is missing. The count is written after each sync of the log, so a crash leaves
    it no higher than the log. `counted` is the one that an earlier process has left.
    """

    def __init__(self, log: Path) -> None:
        """Open the file, or create it. Raises OSError, and SetupError if it is a symbolic link."""
        self.counted = counted(log)
        path = log.with_name(_HOLDER)
        with no_link(path):
            self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
        os.fchmod(self._file, 0o600)
        self.count(self.counted)

    def count(self, events: int) -> None:
        """Overwrite the number in the file, with as many bytes, in one write."""
        with suppress(OSError):  # a count that is too low does no harm
            os.pwrite(self._file, b"process %-10d\n%-20d\n" % (os.getpid(), events), 0)

    def close(self) -> None:
        os.close(self._file)


def holder_of(log: Path) -> str:
    """Return which process holds a log, as far as it is known. Raises OSError, and SetupError for a symbolic link."""
    return _holder(log)[0] or "another process"


def counted(log: Path) -> int:
    """Return how many events of a log were on disk, or 0 where nobody has counted. Raises as holder_of."""
    count = _holder(log)[1]
    return int(count) if count.isdecimal() else 0


def cut_message(log: Path, run: str, events: int, written: int) -> str:
    """Describe a log that was cut to so many `events`, and how the run can go on. Raises StateError as events_in."""
    step = max((event.step for event in events_in(log, {Returned.type}) if not event.agent), default=0)
    return (
        f"The end of the log {log} is missing: {written:,} events were written, {events:,} are left. What came after "
        f"them is not known. `autoagent resume {run} --from {step}` takes the files back to the end of step {step} and "
        f"goes on from there; `autoagent fork {run} --at {step}` does so in a copy."
    )


def _holder(log: Path) -> tuple[str, str]:
    path = log.with_name(_HOLDER)
    with suppress(FileNotFoundError), no_link(path):
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(file, "rb") as opened:
            process, _, count = opened.read(100).decode("ascii", "replace").partition("\n")
            return process.strip(), count.strip()
    return "", ""
