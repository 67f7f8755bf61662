"""The vectors of one embedder: rows of float32, little-endian, back to back in one file that only grows.

Which rows count, and the checksum of each block of rows, is written in SQLite after the rows are on disk. So a crash
leaves at most rows that nobody refers to, and the next ones written take their place.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Vectors = NDArray[np.float32]

FLOAT = np.dtype("<f4")
BLOCK = 1024  # rows under one checksum


class VectorFile:
    """Vectors of `dim` values in the file at `path`, mapped, never read as a whole. Raises OSError as the file does."""

    def __init__(self, path: Path, dim: int) -> None:
        self.path = path
        self.dim = dim
        self._width = dim * FLOAT.itemsize
        self._mapped = self._empty()

    def whole_rows(self) -> int:
        """How many whole rows the file holds; 0 where there is none."""
        try:
            return self.path.stat().st_size // self._width
        except FileNotFoundError:
            return 0

    def write(self, row: int, vectors: Vectors) -> None:
        """Put the vectors, shape (n, dim), from `row` on; they are on disk when this returns."""
        created = not self.path.exists()
        with os.fdopen(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600), "r+b") as file:
            file.seek(row * self._width)
            file.write(vectors.astype(FLOAT, copy=False).tobytes())
            file.flush()
            os.fdatasync(file.fileno())
        if created:
            _sync_folder(self.path.parent)

    def read(self, rows: int) -> Vectors:
        """The first `rows` vectors, shape (rows, dim), as they are in the file."""
        if len(self._mapped) != rows:
            # Nothing cannot be mapped.
            self._mapped = np.memmap(self.path, FLOAT, "r", shape=(rows, self.dim)) if rows else self._empty()
        return self._mapped

    def _empty(self) -> Vectors:
        return np.empty((0, self.dim), FLOAT)

    def checksums(self, rows: int) -> dict[int, int]:
        """The CRC-32 of each block among the first `rows` rows, the last one as far as it goes."""
        return {block: extended(0, piece) for block, piece in by_block(0, self.read(rows))}


def by_block(row: int, vectors: Vectors) -> Iterator[tuple[int, Vectors]]:
    """Vectors that stand from `row` on, piece by piece with the number of the block each piece falls into."""
    done = 0
    while done < len(vectors):
        block = (row + done) // BLOCK
        size = (block + 1) * BLOCK - (row + done)
        yield block, vectors[done : done + size]
        done += size


def extended(checksum: int, vectors: Vectors) -> int:
    """The checksum of a block once these vectors are appended to it; 0 is that of an empty one."""
    return zlib.crc32(np.ascontiguousarray(vectors, FLOAT).data, checksum)


def _sync_folder(folder: Path) -> None:
    """A new file survives a power cut only once its folder is on disk too."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
