"""The record of the user's trust: a file for each folder, with a digest of each trusted value.

Not covered: anyone who can write into the user's own folders can trust for the user.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autoagent.core.durable_files import sole_writer_of
from autoagent.core.errors import SettingsError
from autoagent.registry.parts import UntrustedValue
from autoagent.text.text_file import read_text, write_text


@dataclass(frozen=True, slots=True)
class Record:
    """A folder, its trusted values (their names by their marks), and the time of the last change."""

    folder: str
    items: dict[str, str]
    t: float


class Trusted:
    """The records in the folder `base`, which is made (mode 0700) with the first one.

    Values trusted through this object stay trusted for it, even if they could not be written.
    """

    def __init__(self, base: Path) -> None:
        self.base = base
        self._known: dict[Path, set[str]] = {}

    def holds(self, folder: Path, mark: str) -> bool:
        """Return whether the folder was trusted with this."""
        if folder not in self._known:
            record = self._read(self._file(folder))
            self._known[folder] = set(record.items) if record and record.folder == str(folder) else set()
        return mark in self._known[folder]

    def add(self, folder: Path, items: Iterable[UntrustedValue]) -> None:
        """Trust the folder with these as well. Raises SettingsError if that cannot be kept."""
        fresh = {item.mark: item.called for item in items}
        self.holds(folder, "")
        self._known[folder] |= fresh.keys()
        with self._locked():
            record = self._read(self._file(folder))
            kept = record.items if record and record.folder == str(folder) else {}
            written = {"v": 1, "folder": str(folder), "t": time.time(), "items": {**kept, **fresh}}
            write_text(self._file(folder), json.dumps(written, ensure_ascii=False, indent=1), private=True)

    def names(self, folder: Path) -> set[str]:
        """Return the names of the values that the folder is trusted with, unchanged or not."""
        record = self._read(self._file(folder))
        return set(record.items.values()) if record and record.folder == str(folder) else set()

    def remove(self, folder: Path) -> bool:
        """Trust the folder with nothing any more, nor state in it, however deep, or False if it was not trusted.

        State in a folder below that was trusted by itself stays with that. Raises SettingsError if it cannot be kept.
        """
        records = self.records()
        states = [Path(record.folder) for record in records if set(record.items.values()) == {_STATE}]
        others = {Path(record.folder) for record in records} - {folder, *states}
        below = [state for state in states if folder in state.parents]
        between = {state: state.parents[: state.parents.index(folder)] for state in below}
        places = [folder, *(state for state in below if others.isdisjoint(between[state]))]
        with self._locked():
            there = [self._file(place) for place in places if self._file(place).exists()]
            for path in there:
                path.unlink()
        return bool(there)

    def records(self) -> list[Record]:
        """Return all records, by folder."""
        found = (self._read(path) for path in self._folders.glob("*.json"))
        return sorted((record for record in found if record), key=lambda record: record.folder)

    @property
    def _folders(self) -> Path:
        return self.base / "folders"

    def _file(self, folder: Path) -> Path:
        return self._folders / f"{hashlib.sha256(os.fsencode(folder)).hexdigest()[:32]}.json"

    def _read(self, path: Path) -> Record | None:
        """Read a record, or None if it is missing or damaged: nothing was trusted then."""
        try:
            found: Any = json.loads(read_text(path))
            items = {str(mark): str(called) for mark, called in found["items"].items()}
            return Record(str(found["folder"]), items, float(found["t"]))
        except (SettingsError, ValueError, TypeError, KeyError, AttributeError, RecursionError, OverflowError):
            return None

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the lock that admits one writer at a time. Raises SettingsError if it cannot be written."""
        try:
            with suppress(FileNotFoundError):
                if self.base.is_file() and not self.base.stat().st_size:  # an agent that was killed can leave one
                    self.base.unlink()
            for folder in (self.base, self._folders):
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with sole_writer_of(self._folders):
                yield
        except OSError as error:
            raise SettingsError(f"What you trust cannot be kept in {self.base}: {error.strerror}.") from error


# The state folder ------------------------------------------------------------------------------------------------

ID = "id"  # the name of the file in a state folder that says which one it is
IGNORED = ".gitignore"  # it keeps the whole folder out of the user's repository
_DRAFTS = (f".{ID}.", f".{IGNORED}.")  # of the two, as they are written
_ID_LENGTH = 64  # characters of it, at most
_STATE = "runs and memory made here"  # what is trusted in a state folder


def is_own(state: Path, trusted: Trusted) -> bool:
    """Return whether the state folder is missing, empty and owned by this user, or was made here by this user."""
    if is_empty(state):  # looked at first: whoever puts something in has given it its id before
        with suppress(OSError):  # whose folder it is can put other runs into it, whoever made these
            return not state.exists() or state.stat().st_uid == os.geteuid()
        return True
    id = _id_in(state)
    return bool(id) and trusted.holds(state, _state(state, id).mark)


def is_empty(state: Path) -> bool:
    """Return whether there is no such folder, or nothing in it that anybody could use."""
    try:
        with os.scandir(state) as entries:
            return all(entry.name in (ID, IGNORED) or entry.name.startswith(_DRAFTS) for entry in entries)
    except FileNotFoundError:
        return True
    except OSError:  # whoever uses it will say why it cannot be used
        return False


def claim(state: Path, trusted: Trusted) -> None:
    """Make the state folder, and note that it is this user's own. Raises SettingsError if that cannot be kept.

    The note is made before the folder has its id, so that another process that sees the id finds the note.
    """
    id = _id_in(state)
    if id and trusted.holds(state, _state(state, id).mark):
        return
    id = os.urandom(16).hex()
    trusted.add(state, [_state(state, id)])
    try:
        state.mkdir(mode=0o700, parents=True, exist_ok=True)
        if state.stat().st_mode & 0o022:
            state.chmod(0o700)
    except OSError as error:
        raise SettingsError(f"The state folder {state} cannot be made: {error.strerror}.") from error
    write_text(state / ID, f"{id}\n", private=True)
    with suppress(SettingsError):  # git then shows the folder, which is no reason not to work
        write_text(state / IGNORED, "*\n", private=True)


def give_up(state: Path) -> None:
    """Remove a state folder that stayed empty."""
    if is_empty(state):
        with suppress(OSError):
            (state / ID).unlink()
            (state / IGNORED).unlink()
            state.rmdir()


def _id_in(state: Path) -> str:
    with suppress(OSError, UnicodeDecodeError):
        descriptor = os.open(state / ID, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            return os.read(descriptor, _ID_LENGTH).decode().strip()
        finally:
            os.close(descriptor)
    return ""


def _state(state: Path, id: str) -> UntrustedValue:
    return UntrustedValue(file="", name=_STATE, value=id, about="")


def find_trap(state: Path, *, itself: bool) -> tuple[Path, str] | None:
    """Return a path in the state folder that is neither a file nor a folder, with its kind, or None if there is none.

    With `itself` the folder counts too. A symbolic link leads elsewhere, and opening a pipe waits. The logs of the runs
    are checked when they are opened.
    """
    if itself and state.is_symlink():
        return state, "a symbolic link"
    return next(_traps_in(state, 3, but=state / "runs"), None)


def _traps_in(folder: Path, depth: int, but: Path) -> Iterator[tuple[Path, str]]:
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_symlink():
                yield Path(entry.path), "a symbolic link"
            elif entry.is_dir(follow_symlinks=False):
                if depth > 1 and folder != but:
                    yield from _traps_in(Path(entry.path), depth - 1, but)
            elif not entry.is_file(follow_symlinks=False):
                yield Path(entry.path), "a pipe, a socket or a device"
