"""The program's own files: replaced whole, added to line by line, written by one process at a time.

What a command does in the workspace goes through its gate instead (workspace/gate), which opens no path by its name.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedRandom
from pathlib import Path


@contextmanager
def replacing(path: Path, mode: int = 0o600, *, synced: bool = True) -> Iterator[BufferedRandom]:
    """Yield a file to fill, which replaces `path` once the block ends well and it is on disk.

    A reader and a crash see the old content or the new; after a power cut it may be neither unless `synced`.
    Raises OSError, and leaves no partial file behind.
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


def add_lines(path: Path, lines: str) -> None:
    """Add lines to a file that only its owner may read, made with its folder (0700); they are on disk at the return.

    Raises OSError.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "a+b") as file:
        if file.tell() and os.pread(descriptor, 1, file.tell() - 1) != b"\n":
            lines = f"\n{lines}"  # the last one was torn by a crash
        file.write(lines.encode())  # one write, so that those of two processes do not mix
        file.flush()
        os.fsync(descriptor)


@contextmanager
def sole_writer_of(path: Path) -> Iterator[None]:
    """Wait for the lock of a folder, or of a file that is made where there is none, and hold it. Raises OSError."""
    flags = os.O_RDONLY if path.is_dir() else os.O_RDWR | os.O_CREAT
    descriptor = os.open(path, flags | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
