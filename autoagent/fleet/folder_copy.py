"""Copy the folder of a run between the head and a node that does not share it, by messages on their connection.

The node sends its changes: the workspace and the snapshots before the log that mentions them. So at any moment the
head's copy is a state that a killed run could have left, and another node can continue from it. Each file is replaced
as a whole, except growing logs. Only files, links and folders are copied, and sparse files with holes up to MOST_HOLES
in all. Anything else stays behind. A database in the state folder is copied through SQLite, as other threads may be
writing it.
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
from autoagent.fleet.engine import OUTPUT
from autoagent.text.text_file import is_inside
from autoagent.workspace.gate import shown, walk_gate

PIECE = 48_000  # bytes of a message: Ray sends less than 100 KB with the call, not through the object store
MOST_HOLES = 1 << 30  # bytes of holes in all files
SQLITE = b"SQLite format 3\0"
STATE = "state/"
LOG = re.compile(r"state/runs/[^/]+/[^/]+\.jsonl")  # the file grows
INCOMING = ".incoming"  # the file being received

Put = Mapping[str, Any]
"""A change: `path`, and for a link its target, for a folder its mode, for a file a piece of it, its place, its mode."""


class FolderSender:
    """Send the changes in a folder since the last time.

    With `has`, the other side already has the present content. `say` reports each skipped file once.
    """

    def __init__(self, base: Path, say: Callable[[str], None], *, has: bool = False) -> None:
        self._base = base
        self._say = say
        self._left: set[str] = set()
        self._sent: dict[str, tuple[int, ...]] = {}
        if has:  # except the logs: their ends may differ
            self._sent = {path: mark for path, mark in self._seen() if not LOG.fullmatch(path)}

    def changes(self, *, whole: bool = True) -> Iterator[Put]:
        """Yield the changes that bring the copy up to date, logs last. Unless `whole`, only of run logs."""
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
        """Yield a file, link or folder. If a log has grown, yield only the new part."""
        place, mode, size = self._base / path, mark[0], mark[1]
        before, self._sent[path] = self._sent.get(path), mark
        if stat.S_ISLNK(mode):
            yield {"path": path, "link": str(place.readlink())}
        elif stat.S_ISDIR(mode):
            yield {"path": path, "folder": True}
        else:
            grows = path == OUTPUT or bool(LOG.fullmatch(path))
            at = before[1] if grows and before and before[3] == mark[3] and before[1] <= size else 0
            in_place = at > 0 or path == OUTPUT  # a worker has it open
            with opened(self._base, path) as file:
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
        """Yield each path with a fingerprint that changes with it. Folders precede their contents."""
        folders, holes = [self._base], 0
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
                            missing = max(0, found.st_size - found.st_blocks * 512)
                            if holes + missing > MOST_HOLES:
                                if path not in self._left:
                                    self._left.add(path)
                                    self._say(f"{shown(path)} is not copied: {missing:,} bytes of it are holes.")
                                if path in self._sent:
                                    yield path, self._sent[path]
                                continue
                            holes += missing
                            wal = Path(f"{entry.path}-wal")
                            later = (wal.stat().st_ctime_ns,) if own and wal.exists() else ()
                            yield path, (*marked(found), *later)


def marked(found: os.stat_result) -> tuple[int, ...]:
    """Return a fingerprint of a file's state: its mode, size, ctime in nanoseconds and inode."""
    return found.st_mode, found.st_size, found.st_ctime_ns, found.st_ino


def opened(base: Path, where: str) -> Any:
    """Open a file for reading. Open the program's own databases as a copy that includes the write-ahead log.

    Programs may be running there, so follow no link that replaced a folder, and do not wait for a pipe. Raises
    FileNotFoundError if the path is no longer a file.
    """
    root = os.open(base, os.O_PATH)
    try:
        file = os.fdopen(walk_gate(root, where, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb")
    except OSError as error:
        raise FileNotFoundError(error.errno, error.strerror, where) from error
    finally:
        os.close(root)
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise FileNotFoundError(where)
    path = base / where
    if not where.startswith(STATE) or file.read(len(SQLITE)) != SQLITE:
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
    """Apply a change to the folder `base`. Raises StateError if it leads outside or cannot be written."""
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
            receive_piece(place, base / INCOMING, change)
    except OSError as error:
        raise StateError(f"{place}: cannot be copied: {error.strerror}.") from error


def receive_piece(place: Path, draft: Path, change: Put) -> None:
    """Apply a piece of a file. Replace the file with the last piece, or append to a log. Raises OSError."""
    in_place, at, last = change["in_place"], change["at"], change["last"]
    flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | (0 if at else os.O_TRUNC)
    with os.fdopen(os.open(place if in_place else draft, flags, 0o600), "wb") as file:
        data = b64decode(change["data"])
        if any(data):
            file.seek(at)
            file.write(data)
        else:  # a hole takes no space
            file.truncate(at + len(data))
        if last and LOG.fullmatch(change["path"]):
            file.flush()
            os.fsync(file.fileno())  # a command may run once it is in the log
    if last and not in_place:
        draft.chmod(change["mode"] & 0o777)
        draft.replace(place)
