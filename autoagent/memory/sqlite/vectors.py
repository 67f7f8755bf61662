"""The vectors of one embedder: rows of float32, little-endian, in an append-only file.

SQLite records the valid rows and the checksum of each block after the rows are written, so a crash leaves at most
unreferenced rows, which are then overwritten. The file is synced when a block is full, not per row: a power cut can
damage rows of the last block, which the checksum reveals, and they are computed anew from their texts.
"""

from __future__ import annotations

import mmap
import os
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Vectors = NDArray[np.float32]

FLOAT = np.dtype("<f4")
BLOCK = 1024  # rows under one checksum


class Damaged(OSError):
    """Vectors are not as they were written."""


class VectorFile:
    """Vectors of `dim` values in the file at `path`, mapped, never read as a whole. Raises OSError as the file does."""

    def __init__(self, path: Path, dim: int) -> None:
        self.path = path
        self.dim = dim
        self._width = dim * FLOAT.itemsize
        self._mapped = np.empty((0, dim), FLOAT)
        self._is_mapped = (0, 0, 0)  # the file's inode, the first row, the row after the last

    def whole_rows(self) -> int:
        """Count the whole rows in the file, or 0 if it does not exist."""
        try:
            return self.path.stat().st_size // self._width
        except FileNotFoundError:
            return 0

    def write(self, row: int, vectors: Vectors) -> None:
        """Write the vectors, shape (n, dim), from `row` on, and sync every block that is full."""
        created = not self.path.exists()
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            _write_all(descriptor, vectors.astype(FLOAT, copy=False).tobytes(), row * self._width)
            if (row + len(vectors)) // BLOCK > row // BLOCK:
                os.fdatasync(descriptor)
        finally:
            os.close(descriptor)
        if created:
            _sync_folder(self.path.parent)

    def read(self, first: int, last: int) -> Vectors:
        """Return the rows from `first` to before `last`, shape (n, dim). The file must hold them."""
        if first >= last:  # nothing cannot be mapped
            return np.empty((0, self.dim), FLOAT)
        wanted = (self.path.stat().st_ino, first, last)
        if self._is_mapped != wanted:
            start = first * self._width
            before = start % mmap.ALLOCATIONGRANULARITY
            with self.path.open("rb") as file:
                size = last * self._width - start + before
                mapped = mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ, offset=start - before)
            self._mapped = np.frombuffer(mapped, FLOAT, offset=before).reshape(-1, self.dim)
            self._is_mapped = wanted
        return self._mapped


def by_block(row: int, vectors: Vectors) -> Iterator[tuple[int, Vectors]]:
    """Yield vectors that stand from `row` on, piece by piece with the number of the block each piece falls into."""
    done = 0
    while done < len(vectors):
        block = (row + done) // BLOCK
        size = (block + 1) * BLOCK - (row + done)
        yield block, vectors[done : done + size]
        done += size


def extended(checksum: int, vectors: Vectors) -> int:
    """Return the checksum of a block after appending these vectors. 0 is the checksum of an empty block."""
    return zlib.crc32(np.ascontiguousarray(vectors, FLOAT).data, checksum)


def _write_all(descriptor: int, data: bytes, offset: int) -> None:
    """Write all of the data, as a single write may put down less than it was given."""
    while data:
        written = os.pwrite(descriptor, data, offset)
        data, offset = data[written:], offset + written


def _sync_folder(folder: Path) -> None:
    """Sync the folder, without which a new file would not survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
