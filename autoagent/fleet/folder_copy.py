"""Copy a run's folder between the head and a node that does not share it, by messages on their connection.

The node sends its changes: the workspace and the snapshots before the log that mentions them. So the head's copy is
always in a state that a killed run could have left, from which another node can continue. Each file is replaced as a
whole, except growing logs. Only files, links and folders are copied, with at most MAX_HOLE_BYTES of holes in sparse
files. Anything else stays behind. A database in the state folder is copied through SQLite, as other threads may be
writing to it.
"""

from __future__ import annotations

import os
import re
import shutil
import sqlite3
import stat
import tempfile
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from autoagent.core.errors import StateError
from autoagent.fleet.engine import OUTPUT_FILE
from autoagent.text.text_file import is_inside
from autoagent.workspace.gate import shown, walk_gate

CHUNK_BYTES = 48_000  # of a message: below 100 KB, Ray sends it with the call, not through the object store
MAX_HOLE_BYTES = 1 << 30  # in all files together
SQLITE_HEADER = b"SQLite format 3\0"
STATE_PREFIX = "state/"
LOG_PATTERN = re.compile(r"state/runs/[^/]+/[^/]+\.jsonl")  # a file that only grows
INCOMING = ".incoming"  # the file being received

Change = Mapping[str, Any]
"""A change: a path, with the target of a link, or with a chunk of a file, its position and the file's mode."""


class FolderSender:
    """Send the changes in a folder since the last call.

    With `is_complete`, the other side already has the current content. `say` reports each skipped file once.
    """

    def __init__(self, base: Path, say: Callable[[str], None], *, is_complete: bool = False) -> None:
        self._base = base
        self._say = say
        self._skipped: set[str] = set()
        self._sent: dict[str, tuple[int, ...]] = {}
        if is_complete:  # except logs, whose ends may differ
            self._sent = {path: mark for path, mark in self._marks() if not LOG_PATTERN.fullmatch(path)}

    def changes(self, *, logs_only: bool = False) -> Iterator[Change]:
        """Yield the changes that bring the copy up to date, logs last. With `logs_only`, include only run logs."""
        if logs_only:
            logs = self._base.glob("state/runs/*/*.jsonl")
            marks = {str(log.relative_to(self._base)): fingerprint(log.lstat()) for log in logs}
        else:
            marks = dict(self._marks())
            for path in sorted(self._sent.keys() - marks.keys(), reverse=True):
                del self._sent[path]
                yield {"path": path, "gone": True}
        for path in sorted(marks, key=lambda path: (bool(LOG_PATTERN.fullmatch(path)), path)):
            if self._sent.get(path) != marks[path]:
                try:
                    yield from self.file(path, marks[path])
                except FileNotFoundError:
                    continue
                except StateError as error:
                    if path not in self._skipped:
                        self._skipped.add(path)
                        self._say(str(error))

    def file(self, path: str, mark: tuple[int, ...]) -> Iterator[Change]:
        """Yield the changes for a file, link or folder. If a log has grown, yield only the new part."""
        source, mode, size = self._base / path, mark[0], mark[1]
        old_mark, self._sent[path] = self._sent.get(path), mark
        if stat.S_ISLNK(mode):
            yield {"path": path, "link": str(source.readlink())}
        elif stat.S_ISDIR(mode):
            yield {"path": path, "folder": True}
        else:
            grows = path == OUTPUT_FILE or bool(LOG_PATTERN.fullmatch(path))
            position = old_mark[1] if grows and old_mark and old_mark[3] == mark[3] and old_mark[1] <= size else 0
            in_place = position > 0 or path == OUTPUT_FILE  # a worker may have it open
            with open_for_copy(self._base, path) as file:
                file.seek(position)
                while True:
                    chunk = file.read(min(CHUNK_BYTES, size - position) if grows else CHUNK_BYTES)
                    is_last = len(chunk) < CHUNK_BYTES
                    change = {"path": path, "at": position, "data": b64encode(chunk).decode(), "last": is_last}
                    position += len(chunk)
                    yield {**change, "mode": stat.S_IMODE(mode), "in_place": in_place}
                    if is_last:
                        break

    def _marks(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        """Yield each path with a fingerprint that changes with its content. Folders precede their content."""
        folders, holes = [self._base], 0
        while folders:
            folder = folders.pop()
            try:
                scan = os.scandir(folder)
            except FileNotFoundError:  # removed meanwhile
                continue
            except OSError:  # closed to this user: what was sent of it stays
                prefix = f"{os.path.relpath(folder, self._base)}/"
                yield from ((path, mark) for path, mark in self._sent.items() if path.startswith(prefix))
                continue
            with scan as entries:
                for entry in entries:
                    with suppress(FileNotFoundError):
                        status = entry.stat(follow_symlinks=False)
                        path = os.path.relpath(entry.path, self._base)
                        in_state = path.startswith(STATE_PREFIX)
                        if path == INCOMING or (in_state and path.endswith(("-wal", "-shm"))):
                            continue
                        if stat.S_ISDIR(status.st_mode):
                            folders.append(Path(entry.path))
                            yield path, (stat.S_IFDIR, 0)
                        elif stat.S_ISLNK(status.st_mode):
                            yield path, fingerprint(status)
                        elif stat.S_ISREG(status.st_mode):
                            hole_bytes = max(0, status.st_size - status.st_blocks * 512)
                            if holes + hole_bytes > MAX_HOLE_BYTES:
                                if path not in self._skipped:
                                    self._skipped.add(path)
                                    self._say(f"{shown(path)} is not copied: {hole_bytes:,} bytes of it are holes.")
                                if path in self._sent:
                                    yield path, self._sent[path]
                                continue
                            holes += hole_bytes
                            wal = Path(f"{entry.path}-wal")
                            wal_mark = (wal.stat().st_ctime_ns,) if in_state and wal.exists() else ()
                            yield path, (*fingerprint(status), *wal_mark)


def fingerprint(status: os.stat_result) -> tuple[int, ...]:
    """Return a fingerprint of a file's state: its mode, size, ctime in nanoseconds and inode."""
    return status.st_mode, status.st_size, status.st_ctime_ns, status.st_ino


def open_for_copy(base: Path, relative_path: str) -> Any:
    """Open a file for reading, or a copy of a database of the program that includes the write-ahead log.

    Programs may be running in the folder, so do not follow a link that replaced a folder, and do not wait for a pipe.
    Raises FileNotFoundError if the path is no longer a file, StateError for a damaged database.
    """
    root = os.open(base, os.O_PATH)
    try:
        file = os.fdopen(walk_gate(root, relative_path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb")
    except OSError as error:
        raise FileNotFoundError(error.errno, error.strerror, relative_path) from error
    finally:
        os.close(root)
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise FileNotFoundError(relative_path)
    path = base / relative_path
    if not relative_path.startswith(STATE_PREFIX) or file.read(len(SQLITE_HEADER)) != SQLITE_HEADER:
        return file
    file.close()
    database_copy = tempfile.NamedTemporaryFile()  # noqa: SIM115 - the caller closes it
    try:
        with (
            closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as source,
            closing(sqlite3.connect(database_copy.name)) as copy,
        ):
            source.backup(copy)
    except sqlite3.Error as error:
        database_copy.close()
        raise StateError(f"{path}: cannot be copied: {error}.") from error
    return database_copy


def receive(base: Path, change: Change) -> None:
    """Apply a change to the folder `base`. Raises StateError if its path leads outside or cannot be written."""
    place = base / change["path"]
    try:
        if ".." in place.parts or not is_inside(base, place.absolute().parent):
            raise StateError(f"{place}: leads out of the folder of its run.")
        is_folder = place.is_dir() and not place.is_symlink()
        if is_folder and "folder" not in change:
            shutil.rmtree(place)
        elif not is_folder and "data" not in change:
            place.unlink(missing_ok=True)
        if "link" in change:
            place.symlink_to(change["link"])
        elif "folder" in change:
            place.mkdir(mode=0o700, exist_ok=True)
        elif "data" in change:
            receive_chunk(place, base / INCOMING, change)
    except OSError as error:
        raise StateError(f"{place}: cannot be copied: {error.strerror}.") from error


def receive_chunk(place: Path, draft: Path, change: Change) -> None:
    """Write a chunk of a file. With the last one, replace the file. Append to a log in place. Raises OSError."""
    in_place, position, is_last = change["in_place"], change["at"], change["last"]
    flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | (0 if position else os.O_TRUNC)
    with os.fdopen(os.open(place if in_place else draft, flags, 0o600), "wb") as file:
        data = b64decode(change["data"])
        if any(data):
            file.seek(position)
            file.write(data)
        else:  # a hole takes no space
            file.truncate(position + len(data))
        if is_last and LOG_PATTERN.fullmatch(change["path"]):
            file.flush()
            os.fsync(file.fileno())  # a command may run once its event is in the log
    if is_last and not in_place:
        draft.chmod(change["mode"] & 0o777)
        draft.replace(place)
