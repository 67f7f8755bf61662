"""Copies the folder of a run between the head and a node that does not share it, by messages on their connection.

The node sends what has changed: the workspace and the snapshots before the log that tells of them. So the head's copy
is at any moment one that a killed run could have left behind, and another node goes on from it. A file is put in its
place whole, but for logs, which grow. Only files, links and folders are copied. A database of the
state folder is copied through SQLite, as other threads may be writing it.
"""

from __future__ import annotations

import os
import re
import shutil
import sqlite3
import stat
import tempfile
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from autoagent.core.errors import StateError
from autoagent.fleet.engine import OUTPUT

PIECE = 48_000  # bytes of a message: Ray sends what is below 100 KB along with the call, not by the object store
SQLITE = b"SQLite format 3\0"
STATE = "state/"
LOG = re.compile(r"state/runs/[^/]+/[^/]+\.jsonl")  # it grows
INCOMING = ".incoming"  # the file that is being received

Put = Mapping[str, Any]
"""A change: `path`, and for a link its target, for a folder its mode, for a file a piece of it, its place, its mode."""


class FolderSender:
    """Sends what has changed in a folder since it was sent last; with `has`, the other side has what is there now."""

    def __init__(self, base: Path, *, has: bool = False) -> None:
        self._base = base
        self._sent: dict[str, tuple[int, ...]] = {}
        if has:  # but for the logs, whose ends may differ
            self._sent = {path: mark for path, mark in self._seen() if not LOG.fullmatch(path)}

    def changes(self, *, whole: bool = True) -> Iterator[Put]:
        """Yield what brings the copy up to date, logs last; unless `whole`, what the log of the run has grown by."""
        seen = dict(self._seen()) if whole else {}
        if not whole:
            for log in self._base.glob("state/runs/*/*.jsonl"):
                seen[str(log.relative_to(self._base))] = marked(log.lstat())
        for path in sorted(self._sent.keys() - seen.keys() if whole else (), reverse=True):
            del self._sent[path]
            yield {"path": path, "gone": True}
        for path in sorted(seen, key=lambda path: (bool(LOG.fullmatch(path)), path)):
            if self._sent.get(path) != seen[path]:
                with suppress(FileNotFoundError):
                    yield from self.file(path, seen[path])

    def file(self, path: str, mark: tuple[int, ...]) -> Iterator[Put]:
        """Yield a file, link or folder; of a log that grew, what came to it."""
        place, mode, size = self._base / path, mark[0], mark[1]
        before, self._sent[path] = self._sent.get(path), mark
        if stat.S_ISLNK(mode):
            yield {"path": path, "link": str(place.readlink())}
        elif stat.S_ISDIR(mode):
            yield {"path": path, "folder": True}
        else:
            grows = path == OUTPUT or bool(LOG.fullmatch(path))
            at = before[1] if grows and before and before[3] == mark[3] and before[1] <= size else 0
            in_place = at > 0 or path == OUTPUT  # which a worker has open
            with opened(place, own=path.startswith(STATE)) as file:
                file.seek(at)
                while True:
                    piece = file.read(min(PIECE, size - at) if grows else PIECE)
                    last = len(piece) < PIECE
                    put = {"path": path, "at": at, "data": b64encode(piece).decode(), "mode": stat.S_IMODE(mode)}
                    at += len(piece)
                    yield {**put, "last": last, "in_place": in_place}
                    if last:
                        break

    def _seen(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        """Yield each path with what tells whether it has changed; folders before what is in them."""
        folders = [self._base]
        while folders:
            with os.scandir(folders.pop()) as entries:
                for entry in entries:
                    with suppress(FileNotFoundError):
                        found = entry.stat(follow_symlinks=False)
                        path = os.path.relpath(entry.path, self._base)
                        own = path.startswith(STATE)
                        if path == INCOMING or (own and path.endswith(("-wal", "-shm"))):
                            continue
                        if stat.S_ISDIR(found.st_mode):
                            folders.append(Path(entry.path))
                            yield path, (stat.S_IFDIR, 0)
                        elif stat.S_ISLNK(found.st_mode):
                            yield path, marked(found)
                        elif stat.S_ISREG(found.st_mode):
                            wal = Path(f"{entry.path}-wal")
                            later = (wal.stat().st_ctime_ns,) if own and wal.exists() else ()
                            yield path, (*marked(found), *later)


def marked(found: os.stat_result) -> tuple[int, ...]:
    """Return what changes with a file: mode, size, the time that no program can set, number."""
    return found.st_mode, found.st_size, found.st_ctime_ns, found.st_ino


def opened(path: Path, *, own: bool) -> Any:
    """Open a file to read; of the program's `own` ones a database as it is once its changes are in it."""
    file = os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb")
    if not own or file.read(len(SQLITE)) != SQLITE:
        return file
    file.close()
    whole = tempfile.NamedTemporaryFile()  # noqa: SIM115 - the caller closes it
    with (
        closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as source,
        closing(sqlite3.connect(whole.name)) as copy,
    ):
        source.backup(copy)
    return whole


def receive(base: Path, change: Put) -> None:
    """Take up a change of the folder `base`. Raises StateError if it leads out of it or cannot be written."""
    place = base / change["path"]
    try:
        if ".." in place.parts or not place.parent.resolve().is_relative_to(base.resolve()):
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
            receive_piece(place, base / INCOMING, change)
    except OSError as error:
        raise StateError(f"{place}: cannot be copied: {error.strerror}.") from error


def receive_piece(place: Path, draft: Path, change: Put) -> None:
    """Take up a piece of a file, which is put in its place with the last one. A log is added to. Raises OSError."""
    in_place, at, last = change["in_place"], change["at"], change["last"]
    flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | (0 if at else os.O_TRUNC)
    with os.fdopen(os.open(place if in_place else draft, flags, 0o600), "wb") as file:
        file.seek(at)
        file.write(b64decode(change["data"]))
        if last and LOG.fullmatch(change["path"]):
            file.flush()
            os.fsync(file.fileno())  # a command may act once the log has it
    if last and not in_place:
        draft.chmod(change["mode"])
        draft.replace(place)
