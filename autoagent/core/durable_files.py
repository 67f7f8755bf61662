"""Write the program's own files: atomic replacement, durable appends and locks.

Commands access the workspace through its gate instead (workspace/gate).
"""

from __future__ import annotations

import fcntl
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import BufferedRandom
from pathlib import Path

DRAFT = re.compile(r"\.autoagent-[0-9a-f]{16}\.tmp")  # a file that `replace_in` has not yet renamed to its target
sync_data = getattr(os, "fdatasync", os.fsync)  # macOS has only the latter
_drafts: set[str] = set()  # drafts of this process, as other programs could use such names


@contextmanager
def replacing(path: Path, mode: int = 0o600, *, synced: bool = True) -> Iterator[BufferedRandom]:
    """Yield a file to fill. It replaces `path` once the block ends without an error.

    Readers and a crash see the old content or the new one, after a power cut only if `synced`. Raises OSError
    and leaves no partial file.
    """
    draft = path.with_name(f".{path.name}.{os.urandom(4).hex()}.new")
    try:
        descriptor = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        with os.fdopen(descriptor, "w+b") as file:
            yield file
            file.flush()
            if synced:
                os.fsync(file.fileno())
        draft.replace(path)
    except BaseException:  # Ctrl-C too
        draft.unlink(missing_ok=True)
        raise


def read_regular(path: Path, limit: int) -> bytes:
    """Return the content of a regular file, or b'' for anything else or more than `limit` bytes. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        return file.read() if stat.S_ISREG(status.st_mode) and status.st_size <= limit else b""


def add_lines(path: Path, lines: str) -> None:
    """Append lines to a private file and sync it, creating file and folder (0700). Raises OSError."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "a+b") as file:
        if file.tell() and os.pread(descriptor, 1, file.tell() - 1) != b"\n":
            lines = f"\n{lines}"  # the last line was torn by a crash
        file.write(lines.encode())  # a single write, so that two processes do not interleave
        file.flush()
        os.fsync(descriptor)


def sync_folder(folder: Path) -> None:
    """Sync the folder, without which a new file would not survive a power cut. Raises OSError."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def sole_writer_of(path: Path) -> Iterator[None]:
    """Wait for the lock of a folder or file and hold it. Create a missing file. Raises OSError."""
    flags = os.O_RDONLY if path.is_dir() else os.O_RDWR | os.O_CREAT
    descriptor = os.open(path, flags | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


@contextmanager
def open_entry(parent: int | None, name: str | Path) -> Iterator[tuple[str, os.stat_result]]:
    """Yield a path to exactly this entry of an open folder, whatever its mode, and its status. Raises OSError."""
    descriptor = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
    try:
        yield f"/proc/self/fd/{descriptor}", os.fstat(descriptor)
    finally:
        os.close(descriptor)


def replace_in(parent: int, name: str, data: bytes, mode: int | None) -> None:
    """Replace a name in an open folder by a file with this mode (None: default); S_IFLNK makes a link to `data`.

    A new file is written next to the old one and renamed over it: readers and crashes see the old or the new content,
    and links are not followed. Owner and group stay if this user may set them. The folder is not
    synced. Raises OSError.
    """
    temporary = f".autoagent-{os.urandom(8).hex()}.tmp"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    _drafts.add(temporary)
    try:
        if mode == stat.S_IFLNK:
            os.symlink(os.fsdecode(data), temporary, dir_fd=parent)
        else:
            descriptor = os.open(temporary, flags, 0o666 if mode is None else 0o600, dir_fd=parent)
            try:
                with suppress(OSError):  # no old file, or only root can give a file away
                    old_status = os.stat(name, dir_fd=parent, follow_symlinks=False)
                    os.fchown(descriptor, -1, old_status.st_gid)
                    os.fchown(descriptor, old_status.st_uid, -1)
                if mode is not None:
                    os.fchmod(descriptor, mode)
                write_whole(descriptor, data)
            finally:
                os.close(descriptor)
        os.rename(temporary, name, src_dir_fd=parent, dst_dir_fd=parent)
    except BaseException:  # Ctrl-C too leaves no partial file
        with suppress(FileNotFoundError):
            os.unlink(temporary, dir_fd=parent)
        raise
    finally:
        _drafts.discard(temporary)


def is_draft(path: str) -> bool:
    """Return whether this process is writing the file as a draft."""
    return path.rpartition("/")[2] in _drafts


def write_whole(descriptor: int, data: bytes, *, synced: bool = True) -> None:
    """Write all data, although a single write may be partial. Raises OSError."""
    remaining = memoryview(data)
    while remaining:
        remaining = remaining[os.write(descriptor, remaining) :]
    if synced:
        os.fsync(descriptor)
