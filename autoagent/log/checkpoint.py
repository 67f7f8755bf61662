"""Save the state of a run's folds at a point of its log, so that a long run resumes at once.

A checkpoint is a cache: without it, all events are folded again, to the same state. It is used only if it is sealed
with this user's key, so that a folder cannot bring one, if this very program made it for the same commands and model,
and if the log still begins with the same bytes. Runs with sub-agents, and rewound runs, have none.

The state of a fold is its attributes, except for those in NOT_KEPT: its arguments, and state that no replay restores.
It is pickled, as it may hold any records, and unpickled only after its seal and its program are verified.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import pickle
import sys
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import autoagent
from autoagent.core.durable_files import read_regular, replacing
from autoagent.core.events import Event

if TYPE_CHECKING:
    from autoagent.log.event_log import EventLog


EVENTS_BETWEEN = 1500  # events, about 200 steps
NAME = "checkpoint"
_KEY_BYTES = 32
_SEAL_BYTES = 32
_ORIGIN_BYTES = 32
_MAX_BYTES = 1 << 26  # bytes

Folds = Mapping[str, object]
"""The folds of a run by name."""


@dataclass(frozen=True, slots=True)
class _Covered:
    """Describe the covered beginning of a log: its bytes, events and digest."""

    size: int = 0
    events: int = 0
    digest: bytes = b""


class Checkpoint:
    """Save and load the checkpoint in the folder of a run's log.

    `screen_folds` are folds of the events as the user sees them.

    `key_file` has the user's key, created with the first checkpoint. If a file cannot be read or written, there is no
    checkpoint.
    """

    def __init__(self, log: EventLog, screen_folds: Folds, key_file: Path) -> None:
        self._log = log
        self._path = log.path.with_name(NAME)
        self._screen_folds = screen_folds
        self._key_file = key_file
        self._position = _Covered()
        self._hash = hashlib.sha256()  # of the covered beginning
        self._is_alone = True  # no other agent has an event in the log
        log.subscribe(self._hear)
        log.listen(self._hear)

    def save(self, folds: Folds, fingerprint: Callable[[], str]) -> None:
        """Save the state of the folds if the last checkpoint is old. It is valid for the same `fingerprint` only."""
        size, events = self._log.position
        if not self._is_alone or self._log.was_rewound or events - self._position.events < EVENTS_BETWEEN:
            return
        with suppress(OSError, pickle.PicklingError, TypeError, AttributeError):  # some state cannot be pickled
            position = self._advance(size, events)
            states = {name: _state_of(fold) for name, fold in (*folds.items(), *self._screen_folds.items())}
            body = _origin(fingerprint()) + zlib.compress(pickle.dumps((position, states)), 1)
            key = _key(self._key_file) or _new_key(self._key_file)
            with replacing(self._path, synced=False) as file:
                file.write(_seal(key, self._log.run, body) + body)

    def events(self, folds: Folds, fingerprint: Callable[[], str]) -> Iterator[Event]:
        """Restore the folds from a valid checkpoint, and yield the events after it."""
        checkpoint = self._load(fingerprint)
        if checkpoint is None:
            yield from self._log.effective()
            return
        self._position, states = checkpoint
        for name, fold in (*folds.items(), *self._screen_folds.items()):
            vars(fold).update(states[name])
        yield from self._log.effective(self._position.size, self._position.events)

    def _load(self, fingerprint: Callable[[], str]) -> tuple[_Covered, dict[str, Any]] | None:
        key = _key(self._key_file)
        if key is None or self._log.was_rewound:
            return None
        try:
            data = read_regular(self._path, _MAX_BYTES)
            seal, body = data[:_SEAL_BYTES], data[_SEAL_BYTES:]
            if not hmac.compare_digest(seal, _seal(key, self._log.run, body)):
                return None
            origin, states = body[:_ORIGIN_BYTES], body[_ORIGIN_BYTES:]
            if origin != _origin(fingerprint()):
                return None
            return self._verified(*pickle.loads(zlib.decompress(states)))  # noqa: S301 see the top
        except Exception:  # on any problem, the log has everything and the run continues
            self._position, self._hash = _Covered(), hashlib.sha256()
            return None

    def _verified(self, position: _Covered, states: dict[str, Any]) -> tuple[_Covered, dict[str, Any]] | None:
        """Return the saved state if the log still begins with the covered bytes. Raises OSError."""
        if position.size <= self._log.position[0] and self._advance(position.size, position.events) == position:
            return position, states
        self._position, self._hash = _Covered(), hashlib.sha256()
        return None

    def _advance(self, size: int, events: int) -> _Covered:
        """Extend the covered part to this many bytes of the log. Raises OSError."""
        for piece in self._log.read_chunks(self._position.size, size):
            self._hash.update(piece)
        self._position = _Covered(size, events, self._hash.digest())
        return self._position

    def _hear(self, event: Event) -> None:
        self._is_alone = self._is_alone and not event.agent


def _state_of(fold: object) -> dict[str, Any]:
    excluded = getattr(fold, "NOT_KEPT", ())
    return {name: value for name, value in vars(fold).items() if name not in excluded}


def _origin(fingerprint: str) -> bytes:
    return hashlib.sha256(f"{_program_fingerprint()}\n{fingerprint}".encode("utf-8", "surrogatepass")).digest()


@cache
def _program_fingerprint() -> str:
    """Return a fingerprint of the installed program."""
    top = Path(autoagent.__file__).parent
    files = sorted(top.rglob("*.py"))
    statuses = ((file.relative_to(top), file.stat()) for file in files)
    lines = [f"{file} {status.st_size} {status.st_mtime_ns}" for file, status in statuses]
    return "\n".join([sys.version, *lines])


def _seal(key: bytes, run: str, body: bytes) -> bytes:
    return hmac.digest(key, run.encode() + b"\n" + body, "sha256")


def _key(path: Path) -> bytes | None:
    """Return the user's key, or None if it is missing or others may have written it."""
    try:
        status = path.lstat()
        if status.st_uid != os.geteuid() or status.st_mode & 0o077:
            return None
        key = read_regular(path, _MAX_BYTES)
    except OSError:
        return None
    return key if len(key) == _KEY_BYTES else None


def _new_key(path: Path) -> bytes:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    key = os.urandom(_KEY_BYTES)
    with replacing(path) as file:
        file.write(key)
    return key
