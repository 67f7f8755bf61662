"""The durable log of a run: one JSON event a line, appended before it is shown, and synced before anything acts on it.

A kernel lock (flock) lets one process write a run at a time. It goes with the process, however that ends. A line
that a crash tore at the end is dropped when the log is opened. Damage anywhere else is an error that names the line.
How many lines there should be is counted beside it (LogHolder).

Not a database: one line a fact can be read, copied, cut and mended with any tool, years from now.
How it is read stands in log_reader.
"""

from __future__ import annotations

import fcntl
import itertools
import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from autoagent.core.codec import from_json, to_json
from autoagent.core.commands import Call
from autoagent.core.errors import StateError
from autoagent.core.events import (
    EVENTS,
    Event,
    Recalled,
    Returned,
    Rewound,
    Started,
    Thought,
)
from autoagent.log.reader import (
    LogHolder,
    counted,
    cut_message,
    effective,
    events_in,
    holder_of,
    log_path,
    looked_through,
    no_link,
    open_to_read,
    runs_folder,
)

Mask = Callable[[Any], Any]
"""Takes secrets out of a JSON value."""


class EventLog:
    """The log of one run, held by this process. Satisfies the Recorder protocol.

    `mask` is applied to every event before it is written. All readers see its result. Any thread may append.
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
        self._holder: LogHolder | None = None
        self.lost = 0  # events that were on disk and are missing at the end: what they said may have been acted on
        self._broken = ""  # why no more can be written
        self._lock = threading.Lock()

    @classmethod
    def create(cls, state_dir: Path, *, mask: Mask = lambda v: v, clock: Callable[[], float] = time.time) -> EventLog:
        """Create a new run under `state_dir` (made with mode 0700), locked."""
        path = log_path(state_dir, "")
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
        shortened: bool = False,
    ) -> EventLog:
        """Take up a run again: lock it, drop a torn last line, go on after the last event.

        Raises:
            StateError: another process holds the run (it is named), the log is damaged (the line is named), or it ends
                in the middle of a line and lacks more than that. `shortened` accepts this: the caller goes back.
        """
        path = log_path(state_dir, run)
        log = cls(path, run, 0, mask, clock)
        try:
            _keep_private(state_dir)
            written = log._take(0)
            log._look_through()
            log.lost = max(written - log._seq, 0)
            whole = log._whole_size()
            if whole < os.fstat(log._file).st_size:
                if log.lost > 1 and not shortened:  # a crash tears one line
                    raise StateError(cut_message(path, run, log._seq, written))
                os.ftruncate(log._file, whole)
                os.fdatasync(log._file)
            log._size = whole
        except OSError as error:
            raise StateError(f"Cannot open the log {path}: {error.strerror}.") from error
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
        path = log_path(state_dir, "")
        try:
            source = log_path(state_dir, origin)
            written = counted(source)
            with open_to_read(source) as file:
                shared = b"".join(itertools.islice(file, events))
                is_all = not file.readline().endswith(b"\n")
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
        log.lost = max(written - log._seq, 0) if is_all else 0
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
        """Stamp the event and write it, synced if something acts on it. Return it as written."""
        with self._lock:
            if self._broken:
                raise StateError(self._broken)
            stamped = replace(event, run=self.run, seq=self._seq, t=self._clock())
            plain = to_json(stamped)
            masked = self._mask(plain)
            line = _written(masked).encode("utf-8", "backslashreplace")
            try:
                _write(self._file, line + b"\n")
                if synced := not passing and not event.passing:
                    os.fdatasync(self._file)
            except OSError as error:
                # Whatever part of the line is on disk, nothing may be appended before it was checked.
                self._broken = f"Cannot write the log {self.path}: {error.strerror}; earlier steps are whole."
                raise StateError(self._broken) from error
            self._seq += 1
            self._size += len(line) + 1
            if synced and self._holder:
                self._holder.count(self._seq)
            if isinstance(stamped, Rewound):
                self._rewinds.append(stamped)
            for hear in self._hearers:
                hear(stamped)
        return stamped if masked is plain or masked == plain else from_json(masked)

    def events(self, *, others: bool = False) -> Iterator[Event]:
        """Yield all events on disk; with `others` only those of sub-agents."""
        yield from events_in(self.path, EVENTS.keys(), others=others)

    def returned(self, step: int, agent: str = "") -> Returned | None:
        found = None
        for event in events_in(self.path, {Returned.type}):
            if isinstance(event, Returned) and event.step == step and event.agent == agent:
                found = event
        return found

    def results(self, agent: str = "") -> Iterator[tuple[Call, Returned]]:
        call: Call | None = None
        for event in effective(events_in(self.path, {Started.type, Returned.type, Rewound.type}), self._rewinds):
            if event.agent != agent:
                continue
            if isinstance(event, Started):
                call = event.call
            elif isinstance(event, Returned) and call is not None and event.call_id == call.id:
                yield call, event

    def calls(self) -> Iterator[tuple[str, Call]]:
        """Yield the calls of all agents, each with the key of its agent, as they were asked for and as they ran."""
        for event in effective(events_in(self.path, {Thought.type, Started.type, Rewound.type}), self._rewinds):
            if isinstance(event, (Thought, Started)):
                yield event.agent, event.call

    def effective(self, offset: int = 0, before: int = 0) -> Iterator[Event]:
        """Yield the events that a resumed run continues from: those that count, except recollections.

        With an `offset`, in bytes, only later ones. `before` is the number of earlier ones, none of them taken back.
        """
        kinds = EVENTS.keys() - {Recalled.type}
        for event in effective(events_in(self.path, kinds, begin=(offset, before)), self._rewinds):
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
        if self._holder is not None:
            self._holder.close()
            self._holder = None

    def __enter__(self) -> EventLog:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _take(self, flags: int, path: Path | None = None) -> int:
        """Open and lock the log. Return how many events of it were on disk, as far as that was counted."""
        with no_link(path or self.path):
            flags |= os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
            self._file = os.open(path or self.path, flags, 0o600)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.close()
            message = f"The run {self.run} is held by {holder_of(self.path)}; end that first, or wait for it."
            raise StateError(message) from None
        self._holder = LogHolder(self.path)
        return self._holder.counted

    def _look_through(self) -> None:
        """Count the events, and find those that take others back."""
        look = looked_through(self.path)
        self._seq = look.events
        self._rewinds = [event for event in look.turns if isinstance(event, Rewound)]

    def _whole_size(self) -> int:
        """Return how many bytes its whole lines take."""
        position, tail = os.fstat(self._file).st_size, b""
        while position > 0 and b"\n" not in tail:
            step = min(65536, position)
            position -= step
            tail = os.pread(self._file, step, position) + tail
        return position + tail.rfind(b"\n") + 1


def _keep_out_of_git(state_dir: Path) -> None:
    """Have git ignore the state folder, which lies in a repository with `-w .`. A .gitignore of the user stays."""
    with suppress(FileExistsError):
        file = os.open(state_dir / ".gitignore", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(file, "w") as ignored:
            ignored.write("*\n")


def _keep_private(state_dir: Path) -> None:
    """Restrict the logs to their user, even if a copy or another program has opened them to others.

    Raises OSError, and StateError if they belong to another user, who would be locked out.
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
    """Make the folder of a run that starts now. Its id is the
    time in UTC, so that ids sort in the order of the runs.
    """
    while True:
        fraction = int(now % 1 * 65536)
        path = log_path(state_dir, f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime(now))}-{fraction:04x}")
        try:
            path.parent.mkdir(mode=0o700)
            return path
        except FileExistsError:
            now += 2 / 65536  # another run began in the same instant


_written = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def _write(file: int, data: bytes) -> None:
    while data:
        data = data[os.write(file, data) :]


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
