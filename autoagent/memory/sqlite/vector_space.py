"""Search all memories' vectors by one embedder, and map memories to rows of its file.

Every vector is verified by a checksum before it is compared with a query. Vectors searched in full are verified once
per process, before the first search. Vectors behind sign bits are verified when the bits are made, and again each time
the bits select them, by a check stored with the bits.

Vector libraries (hnswlib, FAISS, sqlite-vec) are not used: each is a native dependency of every start, with an index to
keep consistent through crashes. For a million texts, a pass over bits is fast enough.
"""

from __future__ import annotations

import json
import sqlite3
import zlib
from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autoagent.memory.sqlite.database import writing
from autoagent.memory.sqlite.vectors import BLOCK, Damaged, SignBits, VectorFile, Vectors, by_block, extend_checksum

MIN_THREADED_VALUES = 2_000_000  # above this, the threads of `@` save more time than waking them takes
MIN_VALUES_FOR_BITS = 20_000_000  # (rows x dim), above which bits are faster than a pass over all values
MAX_RESCORED = 2_000  # rows compared exactly after their bits; of 1 M texts, 99.5 % of the nearest 10 are among them
MAX_RESCORED_OF_SMALL = 1_500  # the same for at most MAX_SMALL rows, with equally good results
MAX_SMALL = 250_000
CHUNK_VALUES = 1 << 18  # copied and compared at once; they fit into the processor's cache
SAMPLE_ROWS = 64  # that show whether the vectors are dense


class VectorSpace:
    """Manage a row of the table `spaces` and its file, in which each memory has a row or has yet to get one."""

    def __init__(self, db: sqlite3.Connection, folder: Path, id: int, dim: int) -> None:
        self._db = db
        self._folder = folder
        self._id = id
        self._dim = dim
        self.path = folder / f"vectors-{id}.f32"
        self._file = VectorFile(self.path, dim)
        self._bits_source = VectorFile(self.path, dim)  # mapped separately, so that appending does not unmap it
        self._bits = SignBits(folder / f"vectors-{id}.bits", dim)
        self._checked: int | None = None  # the first row with verified checksums; rows appended later are trusted

    @classmethod
    def find(cls, db: sqlite3.Connection, folder: Path, embedder: str, dim: int) -> VectorSpace | None:
        row = db.execute("SELECT id FROM spaces WHERE embedder = ? AND dim = ?", (embedder, dim)).fetchone()
        return cls(db, folder, row[0], dim) if row else None

    @classmethod
    def make(cls, db: sqlite3.Connection, folder: Path, embedder: str, dim: int) -> VectorSpace:
        """Create a space in which no memory has a row yet, or return the space of another process."""
        with writing(db, folder):
            if (space := cls.find(db, folder, embedder, dim)) is not None:
                return space
            insert = "INSERT INTO spaces (embedder, dim) VALUES (?, ?) RETURNING id"
            id = int(db.execute(insert, (embedder, dim)).fetchone()[0])
            db.execute("INSERT INTO vectors (memory, space) SELECT id, ? FROM memories", (id,))
        return cls(db, folder, id, dim)

    def without_row(self, after: int, limit: int) -> list[tuple[int, str]]:
        """Return the ids and texts of memories without a row, by ascending ids above `after`."""
        query = (
            "SELECT m.id, m.text FROM vectors v JOIN memories m ON m.id = v.memory "
            "WHERE v.space = ? AND v.row IS NULL AND v.memory > ? ORDER BY v.memory LIMIT ?"
        )
        return self._db.execute(query, (self._id, after, limit)).fetchall()

    def append(self, vectors: Mapping[int, Vectors]) -> None:
        """Store vectors of memories within a transaction: first the rows on disk, and then the references."""
        # Meanwhile, another process may have embedded them as well, or forgotten them.
        query = "SELECT 1 FROM vectors WHERE memory = ? AND space = ? AND row IS NULL"
        new = {id: vector for id, vector in vectors.items() if self._db.execute(query, (id, self._id)).fetchone()}
        if not new:
            return
        first, rows = self._rows(), np.stack(list(new.values()))
        self._file.write(first, rows)
        for block, piece in by_block(first, rows):
            key = (self._id, block)
            old = self._db.execute("SELECT checksum FROM blocks WHERE space = ? AND block = ?", key).fetchone()
            checksum = extend_checksum(old[0] if old else 0, piece)
            self._db.execute("INSERT OR REPLACE INTO blocks VALUES (?, ?, ?)", (*key, checksum))
        update = "UPDATE vectors SET row = ? WHERE memory = ? AND space = ?"
        self._db.executemany(update, [(row, id, self._id) for row, id in enumerate(new, first)])
        self._db.execute("UPDATE spaces SET rows = ? WHERE id = ?", (first + len(new), self._id))

    def of(self, ids: Sequence[int]) -> dict[int, Vectors]:
        """Return the existing vectors of these memories, shape (dim,) each, or none while any of them is damaged."""
        query = (
            "SELECT row, memory FROM vectors WHERE space = ? AND +row IS NOT NULL "
            "AND memory IN (SELECT value FROM json_each(?))"
        )
        memory_by_row = dict(self._db.execute(query, (self._id, json.dumps(list(ids)))))
        rows, all_rows = np.array(sorted(memory_by_row), np.intp), self._rows()
        try:
            first = self._covered(all_rows)
            self._check(first)
            old, new = rows[rows < first], rows[rows >= first] - first
            vectors = (*self._copy_of(old, first), *self._file.read(first, all_rows)[new])
        except (Damaged, IndexError):  # IndexError: another process is repairing it. A mere request can do without them
            return {}
        return {memory_by_row[row]: vector for row, vector in zip(rows.tolist(), vectors, strict=True)}

    def search(self, query: Vectors, k: int, *, exact: bool = False) -> tuple[NDArray[np.intp], Vectors]:
        """Return the k rows nearest to the query and their cosines above 0, both of shape (n,), best first.

        `query` is a unit vector of shape (dim,). All rows are compared if that is faster or `exact`, otherwise the
        newest rows and those selected by their bits. Rows of forgotten memories may be included. Raises Damaged: call
        `drop_damaged`, embed the missing vectors, and search again.
        """
        rows = self._rows()
        first = 0 if exact else self._covered(rows)
        self._check(first)
        newest = self._file.read(first, rows)
        # For few values, `@` would waste time: waking its threads can take 8 ms.
        if not first:
            scores = newest @ query if newest.size >= MIN_THREADED_VALUES else np.vecdot(newest, query)
            best = highest(scores, k)
            return best, scores[best]
        near = self._bits.candidates(query, max(MAX_RESCORED_OF_SMALL if rows <= MAX_SMALL else MAX_RESCORED, k))
        step = max(1, CHUNK_VALUES // self._dim)
        pieces = (self._copy_of(near[start : start + step], first) for start in range(0, len(near), step))
        scores = np.concatenate([np.vecdot(piece, query) for piece in chain(pieces, [newest])])
        compared = np.concatenate([near, np.arange(first, rows)])
        best = highest(scores, k)
        return compared[best], scores[best]

    def memories(self, rows: list[int], columns: str) -> dict[int, tuple[Any, ...]]:
        """Return these columns of the memories by row. Unreferenced rows are left out."""
        query = (
            f"SELECT v.row, {columns} FROM vectors v JOIN memories m ON m.id = v.memory "  # noqa: S608 - ours
            "WHERE v.space = ? AND v.row IN (SELECT value FROM json_each(?))"
        )
        return {row: tuple(rest) for row, *rest in self._db.execute(query, (self._id, json.dumps(rows)))}

    def drop_damaged(self) -> int:
        """Drop lost rows and corrupt blocks. Return how many memories lose their vector."""
        drop = "UPDATE vectors SET row = NULL WHERE space = ? AND row >= ? AND row < ?"
        with writing(self._db, self._folder):
            all_rows = self._rows()
            rows = min(all_rows, self._file.whole_rows())
            stored = self._checksums()
            lost = self._db.execute(drop, (self._id, rows, all_rows)).rowcount
            blocks = {}
            for block, vectors in by_block(0, self._file.read(0, rows)):
                blocks[block] = extend_checksum(0, vectors)
                if blocks[block] != stored.get(block):
                    lost += self._db.execute(drop, (self._id, block * BLOCK, (block + 1) * BLOCK)).rowcount
                    zeros = np.zeros_like(vectors)  # the block may hold NaN, which cannot be ranked
                    self._file.write(block * BLOCK, zeros)
                    blocks[block] = extend_checksum(0, zeros)
            self._db.execute("DELETE FROM blocks WHERE space = ?", (self._id,))
            self._db.executemany("INSERT INTO blocks VALUES (?, ?, ?)", [(self._id, *pair) for pair in blocks.items()])
            self._db.execute("UPDATE spaces SET rows = ? WHERE id = ?", (rows, self._id))
        self._bits.path.unlink(missing_ok=True)  # so that other processes rebuild the bits, too
        self._checked = None
        return lost

    def _check(self, first: int) -> None:
        """Verify the checksums of the blocks from the row `first` once. Raises Damaged, also for a short file."""
        if self._checked is not None and self._checked <= first:
            self._ensure(self._file.whole_rows() >= self._rows())
            return
        # A single statement, so that rows and checksums are consistent while others append.
        query = (
            "SELECT s.rows, b.block, b.checksum FROM spaces s LEFT JOIN blocks b ON b.space = s.id AND b.block >= ? "
            "WHERE s.id = ?"
        )
        stored = self._db.execute(query, (first // BLOCK, self._id)).fetchall()
        self._compare(first, stored[0][0], {block: checksum for _, block, checksum in stored})
        self._checked = first

    def _compare(self, first: int, last: int, stored: Mapping[int, int]) -> None:
        self._ensure(self._file.whole_rows() >= last)
        for block, vectors in by_block(first, self._file.read(first, last)):
            self._ensure(extend_checksum(0, vectors) == stored.get(block))

    def _ensure(self, is_sound: bool) -> None:
        if not is_sound:
            raise Damaged(f"{self.path} differs from what was written")

    def _covered(self, rows: int) -> int:
        """Load the bits if that saves time. Return the number of rows that they cover, or 0.

        Raises Damaged if vectors without bits are corrupt.
        """
        if rows * self._dim < MIN_VALUES_FOR_BITS or self._file.whole_rows() < rows or not self._is_dense:
            return 0
        chunk = self._bits.chunk
        covered = rows - rows % chunk
        if covered == self._bits.rows and not self._bits.is_replaced():
            return covered
        stored = self._checksums()
        blocks = (range(first // BLOCK, (first + chunk) // BLOCK) for first in range(0, covered, chunk))
        sources = [zlib.crc32(b"".join(stored.get(n, 0).to_bytes(4, "little") for n in numbers)) for numbers in blocks]
        self._bits.load(sources)
        if self._bits.rows < covered:
            for first in range(self._bits.rows, covered, chunk):
                self._compare(first, first + chunk, stored)
                self._bits.write(first // chunk, sources[first // chunk], self._file.read(first, first + chunk))
            self._bits.load(sources)
        return self._bits.rows

    @cached_property
    def _is_dense(self) -> bool:
        """Return whether signs distinguish vectors: most values are nonzero, unlike those of hashed words."""
        sample = self._file.read(0, SAMPLE_ROWS)
        return int(np.count_nonzero(sample)) > sample.size // 2

    def _copy_of(self, rows: NDArray[np.intp], covered: int) -> Vectors:
        """Return a verified copy of these rows, which have bits. Raises Damaged."""
        vectors = self._bits_source.read(0, covered)[rows]
        self._ensure(self._bits.sound(rows, vectors))
        return vectors

    def _checksums(self) -> dict[int, int]:
        return dict(self._db.execute("SELECT block, checksum FROM blocks WHERE space = ?", (self._id,)))

    def _rows(self) -> int:
        return int(self._db.execute("SELECT rows FROM spaces WHERE id = ?", (self._id,)).fetchone()[0])


def highest(scores: NDArray[np.float32], count: int) -> NDArray[np.intp]:
    """Return the rows of the `count` highest scores above 0, best first. Of equal scores, the lower row comes first.

    A score of 0 or below means that the texts share no direction.
    """
    if count < len(scores):
        edge = np.partition(scores, len(scores) - count)[len(scores) - count]
        rows = np.flatnonzero(scores >= edge)  # including all ties with the last row
    else:
        rows = np.arange(len(scores))
    rows = rows[scores[rows] > 0]
    order = np.argsort(-scores[rows], kind="stable")
    return rows[order][:count]
