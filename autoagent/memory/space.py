"""The vectors of all memories as one embedder makes them: which rows of its file they are, and that these are sound."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from autoagent.memory.database import writing
from autoagent.memory.vectors import BLOCK, VectorFile, Vectors, by_block, extended

FETCH = 500  # rows looked up by one query

FIND = "SELECT id FROM spaces WHERE embedder = ? AND dim = ?"


class Space:
    """One line of the table `spaces` and its file. A memory is in it with a row, or wanting one."""

    def __init__(self, db: sqlite3.Connection, folder: Path, id: int, dim: int) -> None:
        self._db = db
        self._folder = folder
        self._id = id
        self._file = VectorFile(folder / f"vectors-{id}.f32", dim)
        self._checked = False  # the checksums were compared once; what is appended later is trusted

    @classmethod
    def find(cls, db: sqlite3.Connection, folder: Path, embedder: str, dim: int) -> Space | None:
        row = db.execute(FIND, (embedder, dim)).fetchone()
        return cls(db, folder, row[0], dim) if row else None

    @classmethod
    def make(cls, db: sqlite3.Connection, folder: Path, embedder: str, dim: int) -> Space:
        """A space in which all memories there are want their row; the one that is there, if another was faster."""
        with writing(db, folder):
            if (space := cls.find(db, folder, embedder, dim)) is not None:
                return space
            insert = "INSERT INTO spaces (embedder, dim) VALUES (?, ?) RETURNING id"
            id = int(db.execute(insert, (embedder, dim)).fetchone()[0])
            db.execute("INSERT INTO vectors (memory, space) SELECT id, ? FROM memories", (id,))
        return cls(db, folder, id, dim)

    @property
    def path(self) -> Path:
        return self._file.path

    def wanting(self, after: int, limit: int) -> list[tuple[int, str]]:
        """Ids and texts of memories without a row, ids above `after` in their order."""
        query = (
            "SELECT m.id, m.text FROM vectors v JOIN memories m ON m.id = v.memory "
            "WHERE v.space = ? AND v.row IS NULL AND v.memory > ? ORDER BY v.memory LIMIT ?"
        )
        return self._db.execute(query, (self._id, after, limit)).fetchall()

    def append(self, vectors: Mapping[int, Vectors]) -> None:
        """Give memories their vectors, within a transaction: first the rows on disk, then what refers to them."""
        # While they were embedded, another process may have done the same, or forgotten them.
        query = "SELECT 1 FROM vectors WHERE memory = ? AND space = ? AND row IS NULL"
        new = {id: vector for id, vector in vectors.items() if self._db.execute(query, (id, self._id)).fetchone()}
        if not new:
            return
        first, rows = self._rows(), np.stack(list(new.values()))
        self._file.write(first, rows)
        for block, piece in by_block(first, rows):
            key = (self._id, block)
            old = self._db.execute("SELECT checksum FROM blocks WHERE space = ? AND block = ?", key).fetchone()
            checksum = extended(old[0] if old else 0, piece)
            self._db.execute("INSERT OR REPLACE INTO blocks VALUES (?, ?, ?)", (*key, checksum))
        self._db.executemany(
            "UPDATE vectors SET row = ? WHERE memory = ? AND space = ?",
            [(row, id, self._id) for row, id in enumerate(new, first)],
        )
        self._set_rows(first + len(new))

    def vectors(self) -> Vectors:
        """All rows, shape (rows, dim), those of forgotten memories among them."""
        return self._file.read(self._rows())

    def memories(self, rows: Iterable[int], columns: str) -> dict[int, tuple[Any, ...]]:
        """By row, these columns of the memory whose vector it holds; none for a row nobody refers to any more."""
        rows = list(rows)
        found: dict[int, tuple[Any, ...]] = {}
        for start in range(0, len(rows), FETCH):
            some = rows[start : start + FETCH]
            query = (
                f"SELECT v.row, {columns} FROM vectors v JOIN memories m ON m.id = v.memory "  # noqa: S608 - our names
                f"WHERE v.space = ? AND v.row IN ({','.join('?' * len(some))})"
            )
            found.update((row, tuple(values)) for row, *values in self._db.execute(query, (self._id, *some)))
        return found

    def damaged(self) -> bool:
        """Whether the file is too short, or, looked at once, differs from its checksums."""
        if self._checked:
            return self._file.whole_rows() < self._rows()
        # One statement, so that rows and checksums are of one moment while others append.
        query = "SELECT s.rows, b.block, b.checksum FROM spaces s LEFT JOIN blocks b ON b.space = s.id WHERE s.id = ?"
        stored = self._db.execute(query, (self._id,)).fetchall()
        rows = stored[0][0]
        if self._file.whole_rows() < rows:
            return True
        self._checked = True
        return self._file.checksums(rows) != {block: checksum for _, block, checksum in stored if block is not None}

    def drop_damaged(self) -> int:
        """Let go of rows that are lost and of blocks that are not as written; how many memories want a new row."""
        drop = "UPDATE vectors SET row = NULL WHERE space = ? AND row >= ? AND row < ?"
        with writing(self._db, self._folder):
            all_rows = self._rows()
            rows = min(all_rows, self._file.whole_rows())
            stored = dict(self._db.execute("SELECT block, checksum FROM blocks WHERE space = ?", (self._id,)))
            found = self._file.checksums(rows)
            lost = self._db.execute(drop, (self._id, rows, all_rows)).rowcount
            for block in (block for block, checksum in found.items() if stored.get(block) != checksum):
                lost += self._db.execute(drop, (self._id, block * BLOCK, (block + 1) * BLOCK)).rowcount
            self._db.execute("DELETE FROM blocks WHERE space = ?", (self._id,))
            self._db.executemany("INSERT INTO blocks VALUES (?, ?, ?)", [(self._id, *pair) for pair in found.items()])
            self._set_rows(rows)
        return lost

    def _rows(self) -> int:
        return int(self._db.execute("SELECT rows FROM spaces WHERE id = ?", (self._id,)).fetchone()[0])

    def _set_rows(self, rows: int) -> None:
        self._db.execute("UPDATE spaces SET rows = ? WHERE id = ?", (rows, self._id))
