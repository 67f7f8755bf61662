"""The durable log of a run: one JSON event a line, appended before it is shown, and synced before anything acts on it.

A kernel lock (flock) lets one process write a run at a time; it goes with the process, however that ends. A line
that a crash tore at the end is dropped when the log is opened; damage anywhere else is an error that names the line.

Not a database: one line a fact can be read, copied, cut and mended with any tool, years from now.
"""

from __future__ import annotations

import errno
import fcntl
import itertools
import json
import os
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from pathlib import Path
from typing import IO, Any

from autoagent.core.commands import Call
from autoagent.core.errors import SetupError, StateError
from autoagent.core.event_codec import event_of, from_json, to_json
from autoagent.core.events import (
    EVENTS,
    VERSION,
    Acted,
    AgentMessage,
    Answered,
    Changed,
    Decided,
    Ended,
    Event,
    Forked,
    Hired,
    Prompted,
    Proposed,
    Published,
    Recalled,
    Rejected,
    Remembered,
    Resumed,
    Retried,
    Returned,
    Rewound,
    RoundBegan,
    RunStarted,
    Spent,
    Started,
    SystemNotice,
    Tainted,
    Thought,
    Undone,
)
from autoagent.core.model import Usage

Mask = Callable[[Any], Any]
"""Takes secrets out of a JSON value."""


# Events that nothing acts on until a later event is synced, and they with it. A process that ends loses none of them;
# a power cut may, and the step is then repeated.
_PASSING = (
    Recalled,
    Tainted,
    Prompted,
    Retried,
    Thought,
    Rejected,
    Proposed,
    Decided,
    SystemNotice,
    AgentMessage,
    Remembered,
    Hired,
    RoundBegan,
    Answered,
    Published,
    Acted,
)


# What begins and ends a run, and takes it back: a few events, that several look for.
_TURNS = (RunStarted, Resumed, Changed, Rewound, Undone, Forked, Ended)


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


def read(state_dir: Path, run: str, kinds: Collection[type[Event]] = ()) -> Iterator[Event]:
    """Yield the events of a run without taking its lock; a torn last line is skipped.

    With `kinds` only those of these types, which takes a tenth of the time: of other lines only the beginning is read.
    """
    yield from _events(_path(state_dir, run), {kind.type for kind in kinds} or EVENTS.keys())


def effective(events: Iterable[Event], rewinds: Sequence[Rewound]) -> Iterator[Event]:
    """Return the events that count: those not taken back by one of the
    `rewinds` among them. What those cost, in money and time, still counts.
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


class EventLog:
    """The log of one run, held by this process; satisfies the Recorder protocol.

    `mask` sees every event before it is written, and what it returns is what everybody reads. Any thread may append.
    """

    def __init__(self, path: Path, run: str, seq: int, mask: Mask, clock: Callable[[], float]) -> None:
        self.run = run
        self.path = path
        self._seq = seq
        self._size = 0
        self._mask = mask
        self._clock = clock
        self._rewinds: list[Rewound] = []
        self._listeners: list[Callable[[Event], None]] = []
        self._hearers: list[Callable[[Event], None]] = []
        self._file = -1
        self._broken = ""  # why no more can be written
        self._lock = threading.Lock()

    @classmethod
    def create(cls, state_dir: Path, *, mask: Mask = lambda v: v, clock: Callable[[], float] = time.time) -> EventLog:
        """Create a new run under `state_dir` (made with mode 0700), locked."""
        path = _path(state_dir, "")
        try:
            for folder in (state_dir, runs_folder(state_dir)):
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            _keep_private(state_dir)
            _keep_out_of_git(state_dir)
            path = _new_path(state_dir, clock())
            log = cls(path, path.parent.name, 0, mask, clock)
            log._take(os.O_CREAT | os.O_EXCL)
            _sync_folder(path.parent)
            _sync_folder(path.parent.parent)
        except OSError as error:
            raise StateError(f"Cannot write the log {error.filename or path}: {error.strerror}.") from error
        return log

    @classmethod
    def open(
        cls,
        state_dir: Path,
        run: str,
        *,
        mask: Mask = lambda v: v,
        clock: Callable[[], float] = time.time,
    ) -> EventLog:
        """Take up a run again: lock it, drop a torn last line, go on after the last event.

        Raises:
            StateError: another process holds the run (it is named), or the log is damaged (the line is named).
        """
        path = _path(state_dir, run)
        log = cls(path, run, 0, mask, clock)
        try:
            _keep_private(state_dir)
            log._take(0)
            log._drop_torn_line()
        except OSError as error:
            raise StateError(f"Cannot open the log {path}: {error.strerror}.") from error
        log._look_through()
        return log

    @classmethod
    def fork(
        cls,
        state_dir: Path,
        origin: str,
        events: int,
        *,
        mask: Mask = lambda v: v,
        clock: Callable[[], float] = time.time,
    ) -> EventLog:
        """Create a new run, locked, that begins with the first `events` lines of another one, unchanged."""
        path = _path(state_dir, "")
        try:
            with _open_to_read(_path(state_dir, origin)) as file:
                shared = b"".join(itertools.islice(file, events))
            path = _new_path(state_dir, clock())
            log = cls(path, path.parent.name, 0, mask, clock)
            log._take(os.O_CREAT | os.O_EXCL, path.with_name("events.tmp"))  # a run exists as a whole or not at all
            _write(log._file, shared)
            log._size = len(shared)
            os.fdatasync(log._file)
            path.with_name("events.tmp").rename(path)
            _sync_folder(path.parent)
            _sync_folder(path.parent.parent)
        except OSError as error:
            raise StateError(f"Cannot write the log {path}: {error.strerror}.") from error
        log._look_through()
        return log

    @property
    def position(self) -> tuple[int, int]:
        """The bytes and events so far."""
        with self._lock:
            return self._size, self._seq

    @property
    def was_rewound(self) -> bool:
        """Whether some of its events do not count any more."""
        return bool(self._rewinds)

    def pieces(self, offset: int, end: int) -> Iterator[bytes]:
        """Yield its bytes between two places. Raises OSError."""
        while offset < end and (piece := os.pread(self._file, min(end - offset, 1 << 20), offset)):
            offset += len(piece)
            yield piece

    def masked(self, value: Any) -> Any:
        return self._mask(value)

    def append(self, event: Event, *, passing: bool = False) -> Event:
        """Stamp the event and write it, synced where something acts on it; what is returned is what is written."""
        with self._lock:
            if self._broken:
                raise StateError(self._broken)
            stamped = replace(event, run=self.run, seq=self._seq, t=self._clock())
            plain = to_json(stamped)
            masked = self._mask(plain)
            line = _written(masked).encode("utf-8", "backslashreplace")
            try:
                _write(self._file, line + b"\n")
                if not passing and not isinstance(event, _PASSING):
                    os.fdatasync(self._file)
            except OSError as error:
                # Whatever part of the line is on disk, nothing may be appended before it was checked.
                self._broken = f"Cannot write the log {self.path}: {error.strerror}; earlier steps are whole."
                raise StateError(self._broken) from error
            self._seq += 1
            self._size += len(line) + 1
            if isinstance(stamped, Rewound):
                self._rewinds.append(stamped)
            for hear in self._hearers:
                hear(stamped)
        return stamped if masked is plain or masked == plain else from_json(masked)

    def events(self, *, others: bool = False) -> Iterator[Event]:
        """Yield all events on disk; with `others` only those of sub-agents."""
        yield from _events(self.path, EVENTS.keys(), others=others)

    def returned(self, step: int, agent: str = "") -> Returned | None:
        found = None
        for event in _events(self.path, {Returned.type}):
            if isinstance(event, Returned) and event.step == step and event.agent == agent:
                found = event
        return found

    def results(self, agent: str = "") -> Iterator[tuple[Call, Returned]]:
        call: Call | None = None
        for event in effective(_events(self.path, {Started.type, Returned.type, Rewound.type}), self._rewinds):
            if event.agent != agent:
                continue
            if isinstance(event, Started):
                call = event.call
            elif isinstance(event, Returned) and call is not None and event.call_id == call.id:
                yield call, event

    def calls(self) -> Iterator[tuple[str, Call]]:
        """Yield the calls of all agents, each with the key of its agent, as they were asked for and as they ran."""
        for event in effective(_events(self.path, {Thought.type, Started.type, Rewound.type}), self._rewinds):
            if isinstance(event, (Thought, Started)):
                yield event.agent, event.call

    def effective(self, offset: int = 0, before: int = 0) -> Iterator[Event]:
        """Yield the events that a resumed run continues from: those that count, except what was recalled.

        With an `offset`, in bytes, only those from there on, where so many came `before` and none was taken back.
        """
        kinds = EVENTS.keys() - {Recalled.type}
        for event in effective(_events(self.path, kinds, begin=(offset, before)), self._rewinds):
            for hear in self._listeners:
                hear(event)
            yield event

    def listen(self, hear: Callable[[Event], None]) -> None:
        """Let somebody hear each event that is written from now on, in the order of the log."""
        self._hearers.append(hear)

    def subscribe(self, hear: Callable[[Event], None]) -> None:
        """Let somebody hear each event that `effective` gives, so that a long log need be read but once."""
        self._listeners.append(hear)

    def close(self) -> None:
        """Release the lock."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def __enter__(self) -> EventLog:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _take(self, flags: int, path: Path | None = None) -> None:
        with _no_link(path or self.path):
            flags |= os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
            self._file = os.open(path or self.path, flags, 0o600)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.close()
            holder = self._holder.read_text() if self._holder.is_file() else "another process"
            raise StateError(f"The run {self.run} is held by {holder}; end that first, or wait for it.") from None
        with _no_link(self._holder):
            told = os.open(self._holder, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        with os.fdopen(told, "w") as file:
            os.fchmod(told, 0o600)
            file.write(f"process {os.getpid()}")

    def _look_through(self) -> None:
        """Count the events, and find those that take others back."""
        look = _looked_through(self.path)
        self._seq = look.events
        self._rewinds = [event for event in look.turns if isinstance(event, Rewound)]

    @property
    def _holder(self) -> Path:
        return self.path.with_name("holder")  # informative only; the kernel's lock decides

    def _drop_torn_line(self) -> None:
        size = os.fstat(self._file).st_size
        position, tail = size, b""
        while position > 0 and b"\n" not in tail:
            step = min(65536, position)
            position -= step
            tail = os.pread(self._file, step, position) + tail
        whole = position + tail.rfind(b"\n") + 1
        if whole < size:
            os.ftruncate(self._file, whole)
            os.fdatasync(self._file)
        self._size = whole


def _keep_out_of_git(state_dir: Path) -> None:
    """Have git leave out the state folder, which lies in a repository with `-w .`; what the user wrote there stays."""
    with suppress(FileExistsError):
        file = os.open(state_dir / ".gitignore", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(file, "w") as ignored:
            ignored.write("*\n")


def _keep_private(state_dir: Path) -> None:
    """Restrict the logs to their user, even if a copy or another program has opened them to others.

    Raises OSError, and StateError if they are another user's: what is written there would lock that one out.
    """
    folder = runs_folder(state_dir)
    status = folder.stat()
    if status.st_uid != os.geteuid():
        raise StateError(
            f"The runs in {folder} belong to another user (id {status.st_uid}); "
            "choose a folder of your own with --state-dir."
        )
    if status.st_mode & 0o077:
        folder.chmod(0o700)


def _new_path(state_dir: Path, now: float) -> Path:
    """Make the folder of a run that starts now; its id is the
    time in UTC, so that ids sort in the order of the runs.
    """
    while True:
        fraction = int(now % 1 * 65536)
        path = _path(state_dir, f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime(now))}-{fraction:04x}")
        try:
            path.parent.mkdir(mode=0o700)
            return path
        except FileExistsError:
            now += 2 / 65536  # another run began in the same instant


def _path(state_dir: Path, run: str) -> Path:
    return runs_folder(state_dir) / run / "events.jsonl"


_written = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode

_BEGINNING = re.compile(
    rb'\{"v":%d,"type":"(\w+)","run":"[^"\\]*","seq":(\d+),"step":\d+,"t":[\d.e+-]+,"agent":"([^"\\]*)"' % VERSION
)
"""How `append` begins a line. Others write JSON otherwise: such a line is read as a whole."""


def _events(
    path: Path, kinds: Collection[str], *, others: bool = False, begin: tuple[int, int] = (0, 0)
) -> Iterator[Event]:
    """Yield the events of these types; with `others` only those of sub-agents; `begin` as for `_lines`."""
    if begin == (0, 0) and (others or all(issubclass(EVENTS[kind], _TURNS) for kind in kinds)):
        look = _looked_through(path)
        if not others or not look.others:
            yield from () if others else (event for event in look.turns if event.type in kinds)
            return
    for line in _lines(path, kinds, others=others, begin=begin):
        if isinstance(line, Event) and line.type in kinds and (line.agent or not others):
            yield line


@dataclass(frozen=True, slots=True)
class _Look:
    """What one look through a log tells: the number of its events, those of _TURNS, and whether others have any."""

    events: int
    turns: tuple[Event, ...]
    others: bool


def _looked_through(path: Path) -> _Look:
    """Look through a log, once as long as it is the same. Raises StateError."""
    try:
        status = path.lstat()
    except OSError:
        return _look_through(path)  # which says why
    return _look_once(path, status.st_ino, status.st_size, status.st_mtime_ns)


@lru_cache(maxsize=1)
def _look_once(path: Path, *_: int) -> _Look:
    return _look_through(path)


def _look_through(path: Path) -> _Look:
    number, others = 0, False
    turns: list[Event] = []
    for line in _lines(path, {kind.type for kind in _TURNS}):
        number += 1
        others = others or bool(line.agent if isinstance(line, Event) else line)
        if isinstance(line, _TURNS):
            turns.append(line)
    return _Look(number, tuple(turns), others)


def _lines(
    path: Path, kinds: Collection[str], *, others: bool = False, begin: tuple[int, int] = (0, 0)
) -> Iterator[Event | bytes]:
    """Yield each line's event, or of an unwanted one, of which only the beginning is read, the key of its agent.

    `begin` says where the first of them begins, in bytes, and how many lines come before.
    """
    unwanted = {kind.encode() for kind in EVENTS.keys() - set(kinds)}
    try:
        with _open_to_read(path) as file:
            file.seek(begin[0])
            for number, line in enumerate(file, begin[1] + 1):
                begins = _BEGINNING.match(line)
                passed = begins and (begins[1] in unwanted or (others and not begins[3]))
                if begins and passed and int(begins[2]) == number - 1 and line.endswith(b"}\n"):
                    yield begins[3]
                    continue
                if not line.endswith(b"\n"):
                    return  # torn by a crash, or being written this moment
                try:
                    event = event_of(line)
                except ValueError as error:
                    raise StateError(f"{path}:{number}: not an event of version {VERSION}: {error}.") from error
                if event.seq != number - 1:
                    raise StateError(f"{path}:{number}: event {event.seq} stands where {number - 1} belongs.")
                yield event
    except OSError as error:
        raise StateError(f"Cannot read the log {path}: {error.strerror}.") from error


@contextmanager
def _no_link(path: Path) -> Iterator[None]:
    """Raise SetupError if opening fails because the file is a symbolic link."""
    try:
        yield
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        raise SetupError(f"{path} is a symbolic link, and no log is ever kept behind one; remove it.") from None


def _open_to_read(path: Path) -> IO[bytes]:
    with _no_link(path):
        return os.fdopen(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW), "rb")


def _write(file: int, data: bytes) -> None:
    while data:
        data = data[os.write(file, data) :]


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
