"""Save the state of a run's folds at points of its log: a long run resumes, and shows a late prompt, at once.

A checkpoint is a cache: without it, all events are folded again, with the same result. It is used only if it is sealed
with this user's key, so that no folder can supply one, if this same program made it for the same commands and model,
and if the log still begins with the same bytes. Runs with sub-agents, and rewound runs, have none.

The newest is the file `checkpoint` next to the log. What is needed to show earlier steps is kept as `checkpoint-STEP`:
the screen and the history after the prompt of that step.

The state of a fold is its attributes, except for those in NOT_IN_CHECKPOINT: its arguments, and state that no
replay restores. It is pickled, as it may hold any records, and unpickled only after its seal and its program are
verified.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import pickle
import sys
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import autoagent
from autoagent.core.durable_files import read_regular, replacing
from autoagent.core.events import Answered, Event, Rejected, Spent, Thought
from autoagent.core.frozen import dataclass

if TYPE_CHECKING:
    from autoagent.log.event_log import EventLog


EVENTS_BETWEEN = 1500  # two checkpoints: about 200 steps
NAME = "checkpoint"
_COST_EVENTS = {kind.type for kind in (Answered, Rejected, Spent, Thought)}
_HISTORY = "History"  # the fold kept for each step
_KEY_BYTES = 32
_DIGEST_BYTES = 32
_ORIGIN_BYTES = 3 * _DIGEST_BYTES  # of the program and of two fingerprints
_MAX_BYTES = 1 << 26

Folds = Mapping[str, object]  # of a run by name
Fingerprints = Callable[[], Sequence[str]]  # of the model and the commands, then of the configuration of the guard


class Checkpoints:
    """Save checkpoints in the folder of a run's log, and load the newest.

    `screen_folds` are folds of the events as the user sees them. `key_file` has the user's key, created with the first
    checkpoint. If a file cannot be read or written, there is no checkpoint.
    """

    def __init__(self, log: EventLog, screen_folds: Folds, key_file: Path) -> None:
        self._log = log
        self._screen_folds = screen_folds
        self._key_file = key_file
        self._position = Position()
        self._hash = hashlib.sha256()  # of the covered beginning
        self._is_alone = True  # no other agent has an event in the log
        log.on_replay(self._note_agent)
        log.on_append(self._note_agent)

    def save(self, step: int, folds: Folds, fingerprints: Fingerprints) -> None:
        """Save the state of the folds if the last checkpoint is old. It is valid for these fingerprints alone."""
        size, events = self._log.position
        if not self._is_alone or self._log.rewinds or events - self._position.events < EVENTS_BETWEEN:
            return
        with suppress(OSError, pickle.PicklingError, TypeError, AttributeError):  # some state cannot be pickled
            for piece in self._log.read_chunks(self._position.size, size):
                self._hash.update(piece)
            self._position = Position(size, events, self._hash.digest())
            states = {}
            for name, fold in (*folds.items(), *self._screen_folds.items()):
                excluded = getattr(fold, "NOT_IN_CHECKPOINT", ())
                states[name] = {key: value for key, value in vars(fold).items() if key not in excluded}
            display_states = {name: states[name] for name in (_HISTORY, *self._screen_folds)}
            if (key := _key(self._key_file)) is None:
                self._key_file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                key = os.urandom(_KEY_BYTES)
                with replacing(self._key_file) as file:
                    file.write(key)
            origin = _origin(fingerprints())
            for name, content in ((NAME, states), (f"{NAME}-{step}", display_states)):
                body = origin + zlib.compress(pickle.dumps((self._position, content)), 1)
                with replacing(self._log.path.with_name(name), synced=False) as file:
                    file.write(_seal(key, self._log.run, body) + body)

    def events(self, folds: Folds, fingerprints: Fingerprints) -> Iterator[Event]:
        """Restore the folds from a valid checkpoint, and yield the events after it."""
        from autoagent.log.reader import events_in

        saved = None if self._log.rewinds else load(self._log.path, self._key_file)
        if saved is None or not saved.is_made_for(*fingerprints()):
            yield from self._log.effective()
            return
        begin = (saved.position.size, saved.position.events)
        if any(event.agent for event in events_in(self._log.path, _COST_EVENTS, begin=begin)):
            yield from self._log.effective()  # no checkpoint has what these agents have spent
            return
        self._position, self._hash = saved.position, saved.hash
        for name, fold in (*folds.items(), *self._screen_folds.items()):
            saved.restore(name, fold, getattr(fold, "NOT_RESUMED", ()))
        yield from self._log.effective(*begin)

    def _note_agent(self, event: Event) -> None:
        self._is_alone = self._is_alone and not event.agent


@dataclass(frozen=True, slots=True)
class Position:
    """The end of the beginning of a log that a checkpoint covers."""

    size: int = 0  # bytes
    events: int = 0
    digest: bytes = b""


@dataclass(frozen=True, slots=True)
class Saved:
    """A verified checkpoint."""

    position: Position
    states: Mapping[str, Mapping[str, Any]]  # the attributes of each fold by name
    hash: hashlib._Hash  # of the covered beginning
    origin: bytes

    def is_made_for(self, *fingerprints: str) -> bool:
        """Return whether the state was made for these fingerprints. The last may be omitted."""
        return self.origin.startswith(_origin(fingerprints))

    def restore(self, name: str, fold: object, excluded: Collection[str] = ()) -> None:
        vars(fold).update({key: value for key, value in self.states[name].items() if key not in excluded})


def load(log: Path, key_file: Path, before: int | None = None) -> Saved | None:
    """Return the newest checkpoint of a log, or the display state `before` a step, or None if there is no valid one.

    The caller checks the fingerprints, and that no event before the checkpoint was rewound.
    """
    from autoagent.log.reader import open_log_file

    try:
        steps = [int(path.name.partition("-")[2]) for path in log.parent.glob(f"{NAME}-[0-9]*")]
        name = NAME if before is None else f"{NAME}-{max(step for step in steps if step < before)}"
        key, data = _key(key_file), read_regular(log.with_name(name), _MAX_BYTES)
        seal, body = data[:_DIGEST_BYTES], data[_DIGEST_BYTES:]
        if key is None or not hmac.compare_digest(seal, _seal(key, log.parent.name, body)):
            return None
        origin, states = body[:_ORIGIN_BYTES], body[_ORIGIN_BYTES:]
        if not origin.startswith(_origin(())):
            return None
        position, folds = pickle.loads(zlib.decompress(states))  # noqa: S301 - see the module's docstring
        saved = Saved(position, folds, hashlib.sha256(), origin)
        with open_log_file(log) as file:
            remaining = position.size
            while remaining > 0 and (piece := file.read(min(remaining, 1 << 20))):
                saved.hash.update(piece)
                remaining -= len(piece)
        return saved if saved.hash.digest() == position.digest else None
    except Exception:  # on any problem, the log has everything
        return None


def _origin(fingerprints: Sequence[str]) -> bytes:
    parts = [_program_fingerprint(), *fingerprints]
    return b"".join(hashlib.sha256(part.encode("utf-8", "surrogatepass")).digest() for part in parts)


@cache
def _program_fingerprint() -> str:
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
