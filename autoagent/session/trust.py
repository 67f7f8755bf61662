"""Record the user's trust: a file for each folder, with a digest of each trusted value.

Not covered: anyone who can write into the user's own folders can give trust in the user's name.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from autoagent.core.codec import from_line
from autoagent.core.durable_files import sole_writer_of
from autoagent.core.errors import SettingsError
from autoagent.core.frozen import dataclass
from autoagent.registry.parts import UntrustedValue
from autoagent.text.text_file import read_text, write_text


@dataclass(frozen=True, slots=True)
class Record:
    """A folder, its trusted values (names by mark), and the time of the last change."""

    folder: str
    items: dict[str, str]
    t: float


class Trusted:
    """Manage the records in the folder `base`, created (mode 0700) with the first one.

    Values trusted through this object stay trusted for it, even if they could not be written.
    """

    def __init__(self, base: Path) -> None:
        self.base = base
        self._folders = base / "folders"
        self._marks: dict[Path, set[str]] = {}

    def holds(self, folder: Path, mark: str) -> bool:
        """Return whether the folder is trusted with the value that has this mark."""
        if folder not in self._marks:
            self._marks[folder] = set(self._items(folder))
        return mark in self._marks[folder]

    def add(self, folder: Path, items: Iterable[UntrustedValue]) -> None:
        """Trust the folder with these values as well. Raises SettingsError if that cannot be saved."""
        new_items = {item.mark: item.location for item in items}
        self.holds(folder, "")
        self._marks[folder] |= new_items.keys()
        with self._locked():
            content = {"v": 1, "folder": str(folder), "t": time.time(), "items": {**self._items(folder), **new_items}}
            write_text(self._file(folder), json.dumps(content, indent=1), private=True)

    def names(self, folder: Path) -> set[str]:
        """Return the names of the values that the folder is trusted with, unchanged or not."""
        return set(self._items(folder).values())

    def remove(self, folder: Path) -> bool:
        """Revoke the trust in the folder and in state below it, or return False if there was none.

        State inside a subfolder that was trusted by itself stays trusted. Raises SettingsError if this cannot be saved.
        """
        records = self.records()
        state_folders = [Path(record.folder) for record in records if set(record.items.values()) == {_STATE_NAME}]
        other_folders = {Path(record.folder) for record in records} - {folder, *state_folders}
        states_below = [state for state in state_folders if folder in state.parents]
        folders_between = {state: state.parents[: state.parents.index(folder)] for state in states_below}
        places = [folder, *(state for state in states_below if other_folders.isdisjoint(folders_between[state]))]
        with self._locked():
            files = [self._file(place) for place in places if self._file(place).exists()]
            for path in files:
                path.unlink()
        return bool(files)

    def records(self) -> list[Record]:
        records = (self._read(path) for path in self._folders.glob("*.json"))
        return sorted((record for record in records if record), key=lambda record: record.folder)

    def _file(self, folder: Path) -> Path:
        return self._folders / f"{hashlib.sha256(os.fsencode(folder)).hexdigest()[:32]}.json"

    def _items(self, folder: Path) -> dict[str, str]:
        """Return the names of the folder's trusted values by mark."""
        record = self._read(self._file(folder))
        return record.items if record and record.folder == str(folder) else {}

    def _read(self, path: Path) -> Record | None:
        """Read a record, or None if it is missing or damaged: nothing was trusted then."""
        try:
            return from_line(Record, read_text(path).encode())
        except (SettingsError, ValueError):
            return None

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the lock for a single writer. Raises SettingsError if it cannot be written."""
        try:
            with suppress(FileNotFoundError):
                if self.base.is_file() and not self.base.stat().st_size:  # a killed agent can leave an empty file
                    self.base.unlink()
            for folder in (self.base, self._folders):
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with sole_writer_of(self._folders):
                yield
        except OSError as error:
            raise SettingsError(f"Your trust cannot be saved in {self.base}: {error.strerror}.") from error


ID_FILE = "id"  # the identity of a state folder
IGNORE_FILE = ".gitignore"  # keeps the whole folder out of the user's repository
_DRAFTS = (f".{ID_FILE}.", f".{IGNORE_FILE}.")  # prefixes of the temporary names of the two
_MAX_ID_BYTES = 64
_STATE_NAME = "runs and memory made here"  # the name of the value that is trusted in a state folder


def is_own(state: Path, trusted: Trusted) -> bool:
    """Return whether the state folder is missing, empty and owned by this user, or created here by this user."""
    if is_empty(state):  # checked first: whoever adds something has already written the identity
        with suppress(OSError):  # the folder's owner can add other runs to it
            return not state.exists() or state.stat().st_uid == os.geteuid()
        return True
    id = _read_identity(state)
    return bool(id) and trusted.holds(state, _state_value(state, id).mark)


def is_empty(state: Path) -> bool:
    """Return whether the folder is missing, or holds nothing usable."""
    try:
        with os.scandir(state) as entries:
            return all(entry.name in (ID_FILE, IGNORE_FILE) or entry.name.startswith(_DRAFTS) for entry in entries)
    except FileNotFoundError:
        return True
    except OSError:  # its next user will report why it cannot be used
        return False


def claim_folder(state: Path, trusted: Trusted) -> None:
    """Create the state folder and record it as this user's own. Raises SettingsError if that cannot be saved.

    The record is written before the folder's identity, so that a process that sees the identity finds the record.
    """
    id = _read_identity(state)
    if id and trusted.holds(state, _state_value(state, id).mark):
        return
    id, foreign_runs = os.urandom(16).hex(), []
    with suppress(OSError):
        foreign_runs = os.listdir(state / "runs")  # noqa: PTH208 - names
    trusted.add(state, [_state_value(state, id), *(_state_value(state, f"{id} {run}") for run in foreign_runs)])
    try:
        state.mkdir(mode=0o700, parents=True, exist_ok=True)
        if state.stat().st_mode & 0o022:
            state.chmod(0o700)
    except OSError as error:
        raise SettingsError(f"The state folder {state} cannot be made: {error.strerror}.") from error
    write_text(state / ID_FILE, f"{id}\n", private=True)
    with suppress(SettingsError):  # without it, git shows the folder, which is harmless
        write_text(state / IGNORE_FILE, "*\n", private=True)


def is_foreign(state: Path, run: str, trusted: Trusted) -> bool:
    """Return whether the run was in the state folder before this user trusted it."""
    id = _read_identity(state)
    return trusted.holds(state, _state_value(state, f"{id} {run}").mark)


def lock_state(state: Path, trusted: Trusted) -> int:
    """Claim the state folder if it is empty. Return a descriptor that keeps other processes from removing it, or -1.

    Raises SettingsError as `claim_folder`.
    """
    while True:
        if is_empty(state):
            claim_folder(state, trusted)
        try:
            descriptor = os.open(state, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except FileNotFoundError:  # removed meanwhile
            continue
        except OSError:  # its next user will report why it cannot be used
            return -1
        with suppress(OSError):  # a file system without locks
            fcntl.flock(descriptor, fcntl.LOCK_SH)
        if not is_empty(state) or _read_identity(state):
            return descriptor
        os.close(descriptor)  # removed meanwhile


def unlock_state(state: Path, descriptor: int) -> None:
    """Remove the state folder if it is still empty and no other process holds it."""
    if descriptor < 0:
        return
    with suppress(OSError):  # BlockingIOError: somebody else works here
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if is_empty(state):
            (state / ID_FILE).unlink()
            (state / IGNORE_FILE).unlink()
            state.rmdir()
    os.close(descriptor)


def _read_identity(state: Path) -> str:
    with suppress(OSError, UnicodeDecodeError):
        descriptor = os.open(state / ID_FILE, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            return os.read(descriptor, _MAX_ID_BYTES).decode().strip()
        finally:
            os.close(descriptor)
    return ""


def _state_value(state: Path, id: str) -> UntrustedValue:
    return UntrustedValue(file="", name=_STATE_NAME, value=id, about="")


def find_unsafe(state: Path, *, checks_state: bool) -> tuple[Path, str] | None:
    """Return a path in the state folder that is neither a file nor a folder, with its kind, or None.

    With `checks_state`, the state folder itself is checked, too. A symbolic link leads elsewhere, and opening a pipe
    blocks. The logs of the runs are checked when they are opened.
    """
    if checks_state and state.is_symlink():
        return state, "a symbolic link"
    return next(_unsafe_paths_in(state, 3, excluded=state / "runs"), None)


def _unsafe_paths_in(folder: Path, depth: int, excluded: Path) -> Iterator[tuple[Path, str]]:
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_symlink():
                yield Path(entry.path), "a symbolic link"
            elif entry.is_dir(follow_symlinks=False):
                if depth > 1 and folder != excluded:
                    yield from _unsafe_paths_in(Path(entry.path), depth - 1, excluded)
            elif not entry.is_file(follow_symlinks=False):
                yield Path(entry.path), "a pipe, a socket or a device"
