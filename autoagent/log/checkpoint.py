"""A checkpoint: the state of a run's folds at a point of its log, so that a long run resumes at once.

It is a cache: without it, all events are folded again, to the same state. It is used only if it is sealed with this
user's key, so that a folder cannot bring one, if this very program made it for the same commands and model, and if the
log still begins with the same bytes. Runs with sub-agents, and runs rewound to a step, have none.

The state of a fold is its attributes, except for those in NOT_KEPT: its arguments, and state that no replay restores.
It is pickled, as it may hold any records, and unpickled only after its seal and the program that made it are verified.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import pickle
import stat
import sys
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import autoagent
from autoagent.core.durable_files import replacing
from autoagent.core.events import Event

if TYPE_CHECKING:
    from autoagent.log.event_log import EventLog


EVERY = 1500  # events, about 200 steps
NAME = "checkpoint"
_KEY_BYTES = 32
_SEAL_BYTES = 32
_MADE_FOR_BYTES = 32
_LARGEST = 1 << 26  # bytes

Folds = Mapping[str, object]
"""The folds of a run, each by its name."""


@dataclass(frozen=True, slots=True)
class _Covered:
    """The beginning of a log: its bytes, how many events that is, and its digest."""

    size: int = 0
    events: int = 0
    digest: bytes = b""


class Checkpoint:
    """The checkpoint of a run, in the folder of its log. `shown` are folds that hear its events as the user sees them.

    `key_file` has the user's key, and is made with the first checkpoint. Where a file cannot be read or written, there
    is no checkpoint.
    """

    def __init__(self, log: EventLog, shown: Folds, key_file: Path) -> None:
        self._log = log
        self._path = log.path.with_name(NAME)
        self._shown = shown
        self._key_file = key_file
        self._covered = _Covered()
        self._hashed = hashlib.sha256()  # what is covered
        self._is_alone = True  # no other agent has an event in the log
        log.subscribe(self._hear)
        log.listen(self._hear)

    def keep(self, folds: Folds, fingerprint: Callable[[], str]) -> None:
        """Save the state of the folds, if the last checkpoint is old. It is valid for the same `fingerprint` only."""
        size, events = self._log.position
        if not self._is_alone or self._log.was_rewound or events - self._covered.events < EVERY:
            return
        with suppress(OSError, pickle.PicklingError, TypeError, AttributeError):  # the last of what cannot be pickled
            covered = self._cover(size, events)
            states = {name: _state_of(fold) for name, fold in (*folds.items(), *self._shown.items())}
            body = _made_for(fingerprint()) + zlib.compress(pickle.dumps((covered, states)), 1)
            key = _key(self._key_file) or _new_key(self._key_file)
            with replacing(self._path, synced=False) as file:
                file.write(_seal(key, self._log.run, body) + body)

    def events(self, folds: Folds, fingerprint: Callable[[], str]) -> Iterator[Event]:
        """Bring the folds to where the checkpoint has them, if it is of use. Yield the events that they then lack."""
        found = self._load(fingerprint)
        if found is None:
            yield from self._log.effective()
            return
        self._covered, states = found
        for name, fold in (*folds.items(), *self._shown.items()):
            vars(fold).update(states[name])
        yield from self._log.effective(self._covered.size, self._covered.events)

    def _load(self, fingerprint: Callable[[], str]) -> tuple[_Covered, dict[str, Any]] | None:
        key = _key(self._key_file)
        if key is None or self._log.was_rewound:
            return None
        try:
            data = _bytes_of(self._path)
            seal, body = data[:_SEAL_BYTES], data[_SEAL_BYTES:]
            if not hmac.compare_digest(seal, _seal(key, self._log.run, body)):
                return None
            made_for, states = body[:_MADE_FOR_BYTES], body[_MADE_FOR_BYTES:]
            if made_for != _made_for(fingerprint()):
                return None
            return self._of_this_log(*pickle.loads(zlib.decompress(states)))  # noqa: S301 see the top
        except Exception:  # whatever is wrong with it, the log has all, and the run must go on
            self._covered, self._hashed = _Covered(), hashlib.sha256()
            return None

    def _of_this_log(self, covered: _Covered, states: dict[str, Any]) -> tuple[_Covered, dict[str, Any]] | None:
        """Return the saved state if the log still begins with the bytes that it covers. Raises OSError."""
        if covered.size <= self._log.position[0] and self._cover(covered.size, covered.events) == covered:
            return covered, states
        self._covered, self._hashed = _Covered(), hashlib.sha256()
        return None

    def _cover(self, size: int, events: int) -> _Covered:
        """Go on to so many bytes of the log. Raises OSError."""
        for piece in self._log.pieces(self._covered.size, size):
            self._hashed.update(piece)
        self._covered = _Covered(size, events, self._hashed.digest())
        return self._covered

    def _hear(self, event: Event) -> None:
        self._is_alone = self._is_alone and not event.agent


def _bytes_of(path: Path) -> bytes:
    """Return the content of a regular file, or nothing if it is larger than any checkpoint. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        return file.read() if stat.S_ISREG(status.st_mode) and status.st_size <= _LARGEST else b""


def _state_of(fold: object) -> dict[str, Any]:
    left_out = getattr(fold, "NOT_KEPT", ())
    return {name: value for name, value in vars(fold).items() if name not in left_out}


def _made_for(fingerprint: str) -> bytes:
    return hashlib.sha256(f"{_program()}\n{fingerprint}".encode("utf-8", "surrogatepass")).digest()


@cache
def _program() -> str:
    """Return a fingerprint of the installed program."""
    top = Path(autoagent.__file__).parent
    files = sorted(top.rglob("*.py"))
    statuses = ((file.relative_to(top), file.stat()) for file in files)
    found = [f"{file} {status.st_size} {status.st_mtime_ns}" for file, status in statuses]
    return "\n".join([sys.version, *found])


def _seal(key: bytes, run: str, body: bytes) -> bytes:
    return hmac.digest(key, run.encode() + b"\n" + body, "sha256")


def _key(path: Path) -> bytes | None:
    """Return the user's key, or None where there is none, or it may not be his own."""
    try:
        status = path.lstat()
        if status.st_uid != os.geteuid() or status.st_mode & 0o077:
            return None
        key = _bytes_of(path)
    except OSError:
        return None
    return key if len(key) == _KEY_BYTES else None


def _new_key(path: Path) -> bytes:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    key = os.urandom(_KEY_BYTES)
    with replacing(path) as file:
        file.write(key)
    return key
