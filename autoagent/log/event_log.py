"""Write the durable log of a run: one JSON event per line, appended before it is shown, and synced before use.

A kernel lock (flock) lets one process write a run at a time and ends with that process. A line torn by a crash at the
end is dropped when the log is opened. Damage anywhere else is an error that names the line. The expected number of
lines is stored next to it (LogHolder).

It is not a database: lines can be read, copied, cut and repaired with any tool, years from now. `reader` reads it.
"""

from __future__ import annotations

import fcntl
import itertools
import json
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from autoagent.core.codec import event_from_line, event_to_dict
from autoagent.core.commands import Call
from autoagent.core.durable_files import sync_data, sync_folder, write_whole
from autoagent.core.errors import StateError
from autoagent.core.events import EVENTS, Event, Recalled, Returned, Rewound, Started, Thought
from autoagent.log import reader
from autoagent.log.reader import LogHolder, effective, events_in, log_path, runs_folder

Mask = Callable[[Any], Any]  # replaces the secrets in a JSON value


class EventLog(AbstractContextManager["EventLog"]):
    """The locked log of one run. Satisfies the Recorder protocol.

    `mask` is applied to every event before it is written. All readers see its result. Any thread may append.
    """

    def __init__(self, path: Path, mask: Mask) -> None:
        self.run = path.parent.name
        self.path = path
        self._seq = 0
        self._size = 0
        self._mask = mask
        self.rewinds: list[Rewound] = []
        self._append_listeners: list[Callable[[Event], None]] = []
        self._replay_listeners: list[Callable[[Event], None]] = []
        self._file = -1
        self._holder: LogHolder | None = None
        self.lost = 0  # events missing at the end; the program may have acted on them
        self._problem = ""  # why writing is impossible
        self._lock = threading.Lock()

    @classmethod
    def create(cls, state_dir: Path, *, mask: Mask = lambda v: v, lines: bytes = b"") -> EventLog:
        """Create a new run under `state_dir` (made with mode 0700), locked, whose log begins with these lines."""
        path = log_path(state_dir, "")
        try:
            for folder in (state_dir, runs_folder(state_dir)):
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            _restrict_access(state_dir)
            with suppress(FileExistsError):  # with `-w .` the state folder may be in a repository, where git ignores it
                file = os.open(state_dir / ".gitignore", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
                with os.fdopen(file, "w") as gitignore:
                    gitignore.write("*\n")
            path = _create_folder(state_dir)
            log = cls(path, mask)
            draft = path.with_name("events.tmp")  # a run exists completely or not at all
            try:
                log._open_locked(draft, os.O_CREAT | os.O_EXCL)
                write_whole(log._file, lines, synced=False)
                log._size = len(lines)
                sync_data(log._file)
                draft.rename(path)
                sync_folder(path.parent)
                sync_folder(path.parent.parent)
            except BaseException:  # Ctrl-C too
                log.close()
                shutil.rmtree(path.parent, ignore_errors=True)
                raise
        except OSError as error:
            raise StateError(f"Cannot write the log {error.filename or path}: {error.strerror}.") from error
        return log

    @classmethod
    def open(cls, state_dir: Path, run: str, *, mask: Mask = lambda v: v, accept_truncated: bool = False) -> EventLog:
        """Reopen a run: lock it, drop a torn last line, and continue after the last event.

        Raises StateError if another process holds the run, the log is damaged (with the line), or more than a torn line
        is missing. `accept_truncated` allows the latter, for a caller that rewinds the run.
        """
        path = log_path(state_dir, run)
        log = cls(path, mask)
        try:
            _restrict_access(state_dir)
            expected = log._open_locked(path, 0)
            log._scan()
            log.lost = max(expected - log._seq, 0)
            if log._size < os.fstat(log._file).st_size:
                if log.lost > 1 and not accept_truncated:  # a crash tears one line
                    raise StateError(reader.truncation_message(path, run, log._seq, expected))
                os.ftruncate(log._file, log._size)
                sync_data(log._file)
        except BaseException as error:  # Ctrl-C too: the lock goes with the log
            log.close()
            if isinstance(error, OSError):
                raise StateError(f"Cannot open the log {path}: {error.strerror}.") from error
            raise
        return log

    @classmethod
    def fork(cls, state_dir: Path, origin: str, events: int, *, mask: Mask = lambda v: v) -> EventLog:
        """Create a new run, locked, that begins with the first `events` lines of another run."""
        source = log_path(state_dir, origin)
        try:
            _, expected = reader.holder_of(source)
            with reader.open_log_file(source) as file:
                lines = b"".join(itertools.islice(file, events))
                is_complete = not file.readline().endswith(b"\n")
        except OSError as error:
            raise StateError(f"Cannot read the log {source}: {error.strerror}.") from error
        log = cls.create(state_dir, mask=mask, lines=lines)
        log._scan()
        log.lost = max(expected - log._seq, 0) if is_complete else 0
        return log

    @property
    def position(self) -> tuple[int, int]:
        """Return the bytes and the events of the log."""
        with self._lock:
            return self._size, self._seq

    def read_chunks(self, offset: int, end: int) -> Iterator[bytes]:
        """Yield the bytes between two positions. Raises OSError."""
        while offset < end and (piece := os.pread(self._file, min(end - offset, 1 << 20), offset)):
            offset += len(piece)
            yield piece

    def masked(self, value: Any) -> Any:
        return self._mask(value)

    def append(self, event: Event, *, passing: bool = False) -> Event:
        """Stamp the event and write it, synced if something acts on it. Return it as written."""
        with self._lock:
            if self._problem:
                raise StateError(self._problem)
            stamped = replace(event, run=self.run, seq=self._seq, t=time.time())
            plain = event_to_dict(stamped)
            masked = self._mask(plain)
            line = _encode(masked).encode("utf-8", "backslashreplace")
            try:
                write_whole(self._file, line + b"\n", synced=False)
                if is_synced := not passing and not event.passing:
                    sync_data(self._file)
            except OSError as error:
                # Part of the line may be on disk, so nothing may be appended until the log is opened again.
                self._problem = f"Cannot write the log {self.path}: {error.strerror}; earlier steps are intact."
                raise StateError(self._problem) from error
            self._seq += 1
            self._size += len(line) + 1
            if is_synced and self._holder:
                self._holder.count(self._seq)
            if isinstance(stamped, Rewound):
                self.rewinds.append(stamped)
            for listener in self._append_listeners:
                listener(stamped)
        return stamped if masked is plain or masked == plain else event_from_line(line, event.type)

    def events(self, *, sub_agents: bool = False) -> Iterator[Event]:
        return events_in(self.path, EVENTS.keys(), sub_agents=sub_agents)

    def returned(self, step: int, agent: str = "") -> Returned | None:
        results = [event for event in events_in(self.path, {Returned.type}) if isinstance(event, Returned)]
        return next((event for event in reversed(results) if (event.step, event.agent) == (step, agent)), None)

    def calls(self) -> Iterator[tuple[str, Call]]:
        """Yield each call, as requested and as run, with the key of its agent."""
        for event in effective(events_in(self.path, {Thought.type, Started.type, Rewound.type}), self.rewinds):
            if isinstance(event, (Thought, Started)):
                yield event.agent, event.call

    def effective(self, offset: int = 0, events_before: int = 0) -> Iterator[Event]:
        """Yield the events that a resumed run continues from: those that count, except recalled memories.

        With an `offset` in bytes, yield later events only. None of the `events_before` it may have been taken back.
        """
        kinds = EVENTS.keys() - {Recalled.type}
        for event in effective(events_in(self.path, kinds, begin=(offset, events_before)), self.rewinds):
            for listener in self._replay_listeners:
                listener(event)
            yield event

    def on_append(self, listener: Callable[[Event], None]) -> None:
        """Call a listener with each event written from now on, in order."""
        self._append_listeners.append(listener)

    def on_replay(self, listener: Callable[[Event], None]) -> None:
        """Call a listener with each event of `effective`, so that a long log is read only once."""
        self._replay_listeners.append(listener)

    def close(self) -> None:
        """Release the lock."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
        if self._holder is not None:
            self._holder.close()
            self._holder = None

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _open_locked(self, path: Path, flags: int) -> int:
        """Open and lock the log, or its draft. Return the recorded number of its events."""
        with reader.refuse_link(path):
            self._file = os.open(path, flags | os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.close()
            process, _ = reader.holder_of(self.path)
            raise StateError(f"The run {self.run} is held by {process}; end it first, or wait for it.") from None
        self._holder = LogHolder(self.path)
        return self._holder.recorded_count

    def _scan(self) -> None:
        scan = reader.scan_log(self.path)
        self._seq, self._size = scan.event_count, scan.size
        self.rewinds = [event for event in scan.boundaries if isinstance(event, Rewound)]


def _restrict_access(state_dir: Path) -> None:
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


def _create_folder(state_dir: Path) -> Path:
    """Create the folder of a new run. Its id is the time in UTC, so that ids sort by age. Return its log's path."""
    now = time.time()
    while True:
        fraction = int(now % 1 * 65536)
        path = log_path(state_dir, f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime(now))}-{fraction:04x}")
        try:
            path.parent.mkdir(mode=0o700)
            return path
        except FileExistsError:
            now += 2 / 65536  # another run began at the same moment


_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
