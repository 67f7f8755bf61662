"""Store the vectors of one embedder: rows of little-endian float32 in an append-only file, and their signs in another.

SQLite records the valid rows and the checksum of each block after the rows are written, so a crash leaves at most
unreferenced rows, which are then overwritten. The file is synced when a block is full, not per row: a power cut can
damage rows of the last block, which the checksum reveals, and they are computed anew from their texts.

The signs, one bit per value, preselect the nearest of a million vectors. The number of differing signs estimates the
angle between two vectors (Charikar, Similarity Estimation Techniques from Rounding Algorithms, STOC 2002). A pass over
them is nearly 32 times faster. The preselected vectors are then compared exactly. Their file holds whole chunks of rows
only, is derived from the vectors, and can be deleted at any time. A chunk consists of a checksum, a check of each row's
vector, and the bits by column: the first 64 signs of all rows, then the next. The checksum starts from that of the
chunk's vectors, so a chunk that is incomplete, damaged or stale is detected. Any process may write a missing chunk
without a lock, as all write the same.
"""

from __future__ import annotations

import mmap
import os
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from autoagent.core.durable_files import sync_folder, write_whole

Vectors = NDArray[np.float32]

FLOAT = np.dtype("<f4")
BLOCK = 1024  # rows under one checksum


class Damaged(OSError):
    """Report vectors that differ from those written."""


class VectorFile:
    """Access vectors of `dim` values in the memory-mapped file at `path`. Methods raise OSError."""

    def __init__(self, path: Path, dim: int) -> None:
        self.path = path
        self.dim = dim
        self._width = dim * FLOAT.itemsize
        self._mapped = np.empty((0, dim), FLOAT)
        self._mapped_range = (0, 0, 0)  # the file's inode, the first row, the row after the last

    def whole_rows(self) -> int:
        """Count the whole rows in the file, or 0 if it does not exist."""
        try:
            return self.path.stat().st_size // self._width
        except FileNotFoundError:
            return 0

    def write(self, row: int, vectors: Vectors) -> None:
        """Write the vectors, shape (n, dim), starting at `row`, and sync once a block is full."""
        is_new = not self.path.exists()
        fills_block = (row + len(vectors)) // BLOCK > row // BLOCK
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            os.lseek(descriptor, row * self._width, os.SEEK_SET)
            write_whole(descriptor, vectors.astype(FLOAT, copy=False).tobytes(), synced=fills_block)
        finally:
            os.close(descriptor)
        if is_new:
            sync_folder(self.path.parent)

    def read(self, first: int, last: int) -> Vectors:
        """Return the rows from `first` to before `last`, shape (n, dim). The file must hold them."""
        if first >= last:  # an empty range cannot be mapped
            return np.empty((0, self.dim), FLOAT)
        file_range = (self.path.stat().st_ino, first, last)
        if self._mapped_range != file_range:
            start = first * self._width
            padding = start % mmap.ALLOCATIONGRANULARITY
            with self.path.open("rb") as file:
                size = last * self._width - start + padding
                mapped = mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ, offset=start - padding)
            self._mapped = np.frombuffer(mapped, FLOAT, offset=padding).reshape(-1, self.dim)
            self._mapped_range = file_range
        return self._mapped


def by_block(row: int, vectors: Vectors) -> Iterator[tuple[int, Vectors]]:
    """Split vectors that are stored from `row` on into blocks. Yield each block's number and vectors."""
    done = 0
    while done < len(vectors):
        block = (row + done) // BLOCK
        size = (block + 1) * BLOCK - (row + done)
        yield block, vectors[done : done + size]
        done += size


def extend_checksum(checksum: int, vectors: Vectors) -> int:
    """Return the checksum of a block after appending these vectors. 0 is the checksum of an empty block."""
    return zlib.crc32(np.ascontiguousarray(vectors, FLOAT).data, checksum)


WORD_BITS = 64  # signs compared at once
CHUNK_WORDS = 65_536  # roughly: intermediate results fit into the processor's cache, and calls are few
BYTE = 256  # values of a byte
HEAD_BYTES = 8  # before the checks: the checksum, and 4 bytes that keep the words aligned


class SignBits:
    """Access the signs of vectors of `dim` values in the file at `path`. Methods raise OSError.

    A chunk has `chunk` rows. `rows` counts the rows in valid chunks.
    """

    def __init__(self, path: Path, dim: int) -> None:
        self.path = path
        self.rows = 0
        self._words = -(-dim // WORD_BITS)
        self.chunk = max(1, CHUNK_WORDS // self._words // BLOCK) * BLOCK
        self._size = HEAD_BYTES + self.chunk * (4 + 8 * self._words)
        self._inode = 0
        self._checks = np.empty(0, np.uint32)  # of each row
        self._bits: list[NDArray[np.uint64]] = []  # of each chunk, shape (words, chunk)

    def is_replaced(self) -> bool:
        """Return whether the file was replaced since it was loaded. While it is mapped, its inode is unique."""
        try:
            return self.path.stat().st_ino != self._inode
        except FileNotFoundError:
            return True

    def load(self, sources: Sequence[int]) -> None:
        """Load the valid chunks, up to the first invalid one. Chunk n was made from `sources[n]`."""
        self.rows, self._inode, self._bits = 0, 0, []
        checks = []
        try:
            with self.path.open("rb") as file:
                stat = os.fstat(file.fileno())
                count = min(len(sources), stat.st_size // self._size)
                if not count:  # an empty range cannot be mapped
                    return
                mapped = memoryview(mmap.mmap(file.fileno(), count * self._size, access=mmap.ACCESS_READ))
        except FileNotFoundError:
            return
        self._inode = stat.st_ino
        for number, source in enumerate(sources[:count]):
            chunk = mapped[number * self._size : (number + 1) * self._size]
            if int.from_bytes(chunk[:4], "little") != zlib.crc32(chunk[HEAD_BYTES:], source):
                break
            words = HEAD_BYTES + 4 * self.chunk
            checks.append(np.frombuffer(chunk[HEAD_BYTES:words], "<u4"))
            self._bits.append(np.frombuffer(chunk[words:], "<u8").reshape(self._words, self.chunk))
            self.rows += self.chunk
        self._checks = np.concatenate(checks) if checks else np.empty(0, np.uint32)

    def write(self, number: int, source: int, vectors: Vectors) -> None:
        """Write a chunk of vectors, shape (chunk, dim), to the file. `load` then reads it."""
        body = row_checks(vectors).tobytes() + np.ascontiguousarray(signs(vectors).T).tobytes()
        head = zlib.crc32(body, source).to_bytes(4, "little").ljust(HEAD_BYTES, b"\0")
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            os.pwrite(descriptor, head + body, number * self._size)
        finally:
            os.close(descriptor)

    def candidates(self, query: Vectors, count: int) -> NDArray[np.intp]:
        """Return in ascending order the `count` rows whose signs differ least from the query's, and any ties."""
        target = signs(query[np.newaxis])[0]
        # A byte is twice as fast if it holds the sum. A sum of 256 overflows to 0, see below.
        differing = np.empty((len(self._bits), self.chunk), np.uint8 if self._words * WORD_BITS <= BYTE else np.uint16)
        words, ones = np.empty(self.chunk, np.uint64), np.empty(self.chunk, np.uint8)
        for bits, total in zip(self._bits, differing, strict=True):
            total[:] = 0
            for column, word in zip(bits, target, strict=True):
                np.bitwise_xor(column, word, out=words)
                np.bitwise_count(words, out=ones)
                np.add(total, ones, out=total)
        flat = differing.reshape(-1)
        if count >= len(flat):
            return np.arange(len(flat))
        # Counting rows by difference is faster than sorting.
        near = np.flatnonzero(flat <= int(np.searchsorted(np.bincount(flat).cumsum(), count)))
        same = near[flat[near] == 0]
        opposite = [row for row in same.tolist() if self._bits[row // self.chunk][0, row % self.chunk] != target[0]]
        return np.setdiff1d(near, opposite, assume_unique=True) if opposite else near

    def sound(self, rows: NDArray[np.intp], vectors: Vectors) -> bool:
        """Return whether these vectors, shape (n, dim), are those from which the rows' chunks were made."""
        return np.array_equal(self._checks[rows], row_checks(vectors))


def signs(vectors: Vectors) -> NDArray[np.uint64]:
    """Return bits for the values above 0: shape (n, dim) -> (n, dim / 64 rounded up)."""
    packed = np.packbits(vectors > 0, axis=1)
    return np.pad(packed, ((0, 0), (0, -packed.shape[1] % 8))).view(np.uint64)


def row_checks(vectors: Vectors) -> NDArray[np.uint32]:
    """Compute a check of each row: the sum of its values' bits, each times a different odd number, modulo 2**32.

    As odd numbers have inverses, every change of a single value is detected. A CRC takes ten times longer.
    """
    weights = np.arange(1, 2 * vectors.shape[1], 2, dtype=np.uint32)
    checks: NDArray[np.uint32] = np.einsum("ij,j->i", np.ascontiguousarray(vectors).view(np.uint32), weights)
    return checks
