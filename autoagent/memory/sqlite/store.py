"""Store memories locally: texts in SQLite with a full-text index, and vectors in a file next to it.

Each embedder has its own space and searches only there. Memories without a vector there, or with a damaged vector, are
embedded before the next search.
"""

from __future__ import annotations

import itertools
import json
import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

from autoagent.core.memory import GONE, Change, RetrievedMemory, Stats
from autoagent.core.protocols import Embedder
from autoagent.memory.evidence import MIN_COMPOUND_LETTERS
from autoagent.memory.sqlite.database import FILE, OF_USER, as_state_errors, connect, id_of, writing
from autoagent.memory.sqlite.vector_space import VectorSpace
from autoagent.memory.sqlite.vectors import Damaged
from autoagent.memory.store_base import BATCH, Skip, StoreBase, Vector, search_wider, texts, valid_text

if TYPE_CHECKING:
    from autoagent.registry.memory import StoreOpening

EXTRA_CANDIDATES = 8  # beyond those requested and skipped, as some of the best may be forgotten
MAX_QUERY_WORDS = 100
MAX_MATCHES = 600  # memories ranked by their words, at a few microseconds each
MAX_MATCHES_OF_WORD = 10_000  # memories ranked if each word of the query is in at least MAX_MATCHES
MAX_COUNT = 5_000  # memories counted per word, at a tenth of a microsecond each
MAX_CACHED_COUNTS = 10_000  # words whose count is cached; then the cache is emptied
MIN_CUT_LETTERS = 4  # of a compound, before and after a cut
MIN_PART_LETTERS = 5  # of a part that is looked up
MAX_DRAWS = 8  # rounds of random ids; if they find too few memories, all ids are read

COLUMNS = "m.id, m.text, m.kind, m.source, m.trusted, m.t, m.run, m.step, m.level, m.stored"
SHARED_COLUMNS = "id, text, hash, kind, source, trusted, t, run, step, stored"  # columns of both memories and trash
RESTORED_VALUES = "id, text, hash, kind, source, trusted, ?, run, step, stored"  # the same, with another time

UPSERT = """
INSERT INTO memories (text, hash, kind, source, trusted, t, run, step, stored)
VALUES (:text, :hash, :kind, :source, :trusted, :t, :run, :step, :stored)
ON CONFLICT (hash) DO UPDATE SET t = excluded.t, run = excluded.run, step = excluded.step, stored = excluded.stored,
    kind = CASE WHEN kind IN ('step', 'fact') THEN excluded.kind ELSE kind END,
    source = CASE WHEN excluded.trusted < trusted OR (excluded.trusted = trusted AND source = '') THEN excluded.source
             ELSE source END,
    trusted = min(trusted, excluded.trusted)
RETURNING id
"""

SELECT_BY_WORDS = f"""
SELECT {COLUMNS}, found.score FROM (
    SELECT rowid, -rank AS score FROM words WHERE words MATCH ? ORDER BY rank LIMIT ?
) AS found JOIN memories m ON m.id = found.rowid ORDER BY found.score DESC, m.id
"""  # noqa: S608 - our names

UPDATE = "UPDATE memories SET t = ?, level = ?, source = coalesce(?, source) WHERE id = ? AND t = ? AND level = ?"
TO_TRASH = f"""
INSERT INTO trash ({SHARED_COLUMNS}, level, forgotten) SELECT {SHARED_COLUMNS}, level, ? FROM memories WHERE id = ?
"""  # noqa: S608 - our names
FROM_TRASH = f"""
INSERT INTO memories ({SHARED_COLUMNS}, level) SELECT {RESTORED_VALUES}, ? FROM trash WHERE id = ?
"""  # noqa: S608 - our names
SELECT_SEEN = "SELECT text FROM memories WHERE id = ? AND t = ? AND level = ?"
SELECT_SEEN_IN_TRASH = "SELECT text FROM trash WHERE id = ? AND forgotten = ? AND level = ?"
COUNT_MATCHES = "SELECT count(*) FROM (SELECT rowid FROM words WHERE words MATCH ? LIMIT ?)"
ID_RANGE = "SELECT (SELECT min(id) FROM memories), (SELECT max(id) FROM memories)"  # each from the index


class LocalStore(StoreBase):
    """Store memories in a folder that any number of processes may use at once. Satisfies MemoryStore.

    `random` draws the samples. Methods raise StateError if the folder cannot be read or a change cannot be written. In
    a read-only folder, using memories changes nothing.
    """

    def __init__(
        self,
        folder: Path,
        embedder: Embedder,
        listen: Callable[[str], None] = lambda line: None,
        random: Random | None = None,
    ) -> None:
        super().__init__(embedder, listen)
        self._folder = folder
        self._random = random or Random()  # noqa: S311 - which memories fade is no secret
        self._open_space: VectorSpace | None = None
        self._counts: dict[str, tuple[int, int]] = {}  # memories with a word, and the last id when they were counted
        with as_state_errors(folder):
            self._db = connect(folder)
            self._is_read_only = not (os.access(folder / FILE, os.W_OK) and os.access(folder, os.W_OK))

    def close(self) -> None:
        self._db.close()

    def _storage(self) -> AbstractContextManager[None]:
        return as_state_errors(self._folder)

    def _missing(self, parts: Sequence[str]) -> list[str]:
        return [part for part in parts if self.find(part) is None]

    def _put(
        self, parts: Sequence[str], metadata: Mapping[str, Any], vectors: Mapping[str, Vector], *, durable: bool
    ) -> int:
        """Store texts. They survive a crash once this returns, and a power cut if `durable`."""
        if vectors:
            self._space()  # opened or created in its own transaction
        ids: dict[str, int] = {}
        with writing(self._db, self._folder, durable=durable):
            new = self._missing(parts)
            for part in parts:
                key = texts.hash_of(part)
                [(ids[part],)] = self._db.execute(UPSERT, {**metadata, "text": part, "hash": key})
                if part in new:
                    self._db.execute("DELETE FROM trash WHERE hash = ?", (key,))
                    self._index(ids[part], part)
            if vectors:
                self._space().append({ids[part]: vector for part, vector in vectors.items()})
        return ids[parts[0]]

    def _index(self, id: int, text: str) -> None:
        """Index the words of a new memory, and list it as lacking a vector. Call within a transaction."""
        self._db.execute("INSERT INTO words (rowid, text) VALUES (?, ?)", (id, texts.pair_unspaced(text)))
        self._db.execute("INSERT OR IGNORE INTO vectors (memory, space) SELECT ?, id FROM spaces", (id,))

    def _change(self, changes: Sequence[Change], *, whole: bool, durable: bool, expired: float | None) -> int:
        if self._is_read_only and all(c.source is None and not c.trash and c.level != GONE for c in changes):
            return 0  # they are from use alone, and recalls still work
        with writing(self._db, self._folder, durable=durable):
            if expired is not None:
                self._db.execute("DELETE FROM trash WHERE forgotten < ?", (expired,))
            if whole and any(self._text_if_unchanged(change) is None for change in changes):
                return 0
            return sum(self._apply(change) for change in changes)

    def _text_if_unchanged(self, change: Change) -> str | None:
        """Return the text of the memory if it has not changed since it was seen, else None."""
        query = SELECT_SEEN_IN_TRASH if change.trash else SELECT_SEEN
        row = self._db.execute(query, (change.id, *change.seen)).fetchone()
        return None if row is None else str(row[0])

    def _apply(self, change: Change) -> bool:
        """Apply a change within a transaction unless the memory has changed since it was seen."""
        id = change.id
        if change.level not in (None, GONE) and not change.trash:
            source = None if change.source is None else valid_text(change.source)
            return self._db.execute(UPDATE, (change.t, change.level, source, id, *change.seen)).rowcount > 0
        text = self._text_if_unchanged(change)
        if text is None:
            return False
        if change.trash:
            self._db.execute(FROM_TRASH, (change.t, change.level, id))
            self._db.execute("DELETE FROM trash WHERE id = ?", (id,))
            self._index(id, text)
            return True
        if change.level is None:
            self._db.execute(TO_TRASH, (change.t, id))
        delete_words = "INSERT INTO words (words, rowid, text) VALUES ('delete', ?, ?)"
        self._db.execute(delete_words, (id, texts.pair_unspaced(text)))
        self._db.execute("DELETE FROM vectors WHERE memory = ?", (id,))  # the row stays in the file, unreferenced
        self._db.execute("DELETE FROM memories WHERE id = ?", (id,))
        return True

    def listed(
        self, limit: int = -1, offset: int = 0, *, of_user: bool = False, trash: bool = False
    ) -> list[RetrievedMemory]:
        """See MemoryStore, with score 0."""
        condition = f"WHERE {OF_USER}" if of_user else ""
        return self._read(f"{condition} ORDER BY time DESC, m.id DESC LIMIT ? OFFSET ?", (limit, offset), trash=trash)

    def stats(self) -> Stats:
        with as_state_errors(self._folder):
            last = self._db.execute("SELECT embedder, dim FROM spaces ORDER BY id DESC LIMIT 1").fetchone()
            newest = self._db.execute("SELECT seq FROM sqlite_sequence WHERE name = 'memories'").fetchone()
            [(count,)] = self._db.execute("SELECT COUNT(*) FROM memories")
            size = 0
            for file in self._folder.iterdir():
                with suppress(FileNotFoundError):  # another process may just have deleted it
                    size += file.stat().st_size
            id = id_of(self._db)
        embedder, dim = last or ("", 0)
        return Stats(count, size, embedder, dim, str(self._folder), id, newest[0] if newest else 0)

    def find(self, text: str) -> RetrievedMemory | None:
        return next(iter(self._read("WHERE m.hash = ?", (texts.hash_of(valid_text(text)),))), None)

    def _read(self, clause: str, parameters: Sequence[Any], *, trash: bool = False) -> list[RetrievedMemory]:
        time_column, table = ("m.forgotten", "trash") if trash else ("m.t", "memories")
        query = f"SELECT {COLUMNS.replace('m.t,', f'{time_column} AS time,')} FROM {table} m {clause}"  # noqa: S608 - our names
        with as_state_errors(self._folder):
            return [_memory_from(columns, 0.0) for columns in self._db.execute(query, parameters)]

    def _nearest(self, vector: Vector, k: int, skip: Skip) -> list[RetrievedMemory]:
        def best(count: int) -> tuple[list[RetrievedMemory], bool]:
            space = self._space()
            try:
                rows, scores = space.search(vector, count)
            except Damaged:
                if lost := space.drop_damaged():
                    self._listen(
                        f"{space.path} was damaged; {lost} of its vectors are computed again from their texts."
                    )
                self._embed_missing()
                rows, scores = space.search(vector, count)
            memories = space.memories(rows.tolist(), COLUMNS)
            scored = zip(rows.tolist(), scores.tolist(), strict=True)
            return [_memory_from(memories[row], score) for row, score in scored if row in memories], len(rows) < count

        return search_wider(best, k, skip, EXTRA_CANDIDATES)

    def _matching(self, query: str, k: int, skip: Skip) -> list[RetrievedMemory]:
        """Return the memories that share words with the query, ranked by BM25, ignoring diacritics and case."""
        tokens = re.findall(r"[\w\u0300-\u036f]+", texts.pair_unspaced(query))  # with combining accents
        distinct = dict.fromkeys(tokens)
        words = [f'"{word}"' for word in itertools.islice(distinct, MAX_QUERY_WORDS)]  # in quotes, none is an operator
        selective = self._selective([*words, *self._compound_parts(words)])

        def best(count: int) -> tuple[list[RetrievedMemory], bool]:
            rows = self._db.execute(SELECT_BY_WORDS, (" OR ".join(selective), count)).fetchall()
            return [_memory_from(columns, score) for *columns, score in rows], len(rows) < count

        return search_wider(best, k, skip, EXTRA_CANDIDATES) if selective else []

    def _compound_parts(self, words: Collection[str]) -> list[str]:
        """Split unknown (quoted) words, such as German compounds, into two known parts, or one beside a linking s."""
        parts: dict[str, None] = {}
        for word in words:
            unquoted = word.strip('"')
            if len(unquoted) >= MIN_COMPOUND_LETTERS and not unquoted.isdecimal() and not self._count(word, 1):
                for cut in range(MIN_CUT_LETTERS, len(unquoted) - MIN_CUT_LETTERS + 1):
                    halves = [half for half in (unquoted[:cut], unquoted[cut:]) if len(half) >= MIN_PART_LETTERS]
                    found = [quoted for half in halves if self._count(quoted := f'"{half}"', 1)]
                    has_linking_s = unquoted[cut - 1] == "s"
                    parts |= dict.fromkeys(found if len(found) == 2 or has_linking_s else ())
        return list(parts)

    def _selective(self, words: Iterable[str]) -> list[str]:
        """Return the rarest words, up to MAX_MATCHES memories in total. The others distinguish little and cost most."""
        first, last = self._db.execute(ID_RANGE).fetchone()
        if last is None:
            return []
        half = (last - first) // 2 + 1
        counts = {word: self._estimate_count(word, last) for word in words}
        selective: list[str] = []
        total = 0
        for word in sorted(counts, key=counts.__getitem__):
            if total + counts[word] >= MAX_MATCHES or (total and counts[word] > half):
                break
            selective.append(word)
            total += counts[word]
        if total or len(selective) == len(counts):
            return selective
        # All known words are common: return only the rarest, unless it is too common as well.
        counts = {word: self._count(word, MAX_MATCHES_OF_WORD) for word in counts}
        return [word for word in sorted(counts, key=counts.__getitem__) if 0 < counts[word] < MAX_MATCHES_OF_WORD][:1]

    def _estimate_count(self, word: str, last: int) -> int:
        """Count the memories with a word, up to MAX_COUNT. Recount once the store has grown by a quarter."""
        count, last_counted = self._counts.get(word, (0, 0))
        if count < MAX_COUNT and last > last_counted + last_counted // 4:
            if len(self._counts) >= MAX_CACHED_COUNTS:
                self._counts.clear()
            count = self._count(word, MAX_COUNT)
            self._counts[word] = count, last
        return count

    def _count(self, word: str, limit: int) -> int:
        """Count the memories with a word, up to `limit`."""
        return int(self._db.execute(COUNT_MATCHES, (word, limit)).fetchone()[0])

    def _word_counts(self, words: Collection[str]) -> tuple[dict[str, int], int]:
        first, last = (end or 0 for end in self._db.execute(ID_RANGE).fetchone())
        return {word: self._estimate_count(f'"{word}"', last) for word in words}, last - first + 1

    def vectors(self, ids: Sequence[int]) -> dict[int, bytes]:
        with as_state_errors(self._folder):
            return {id: vector.tobytes() for id, vector in self._space().of(ids).items()} if ids else {}

    def sample(self, n: int, below: int) -> list[RetrievedMemory]:
        """Draw random memories by their ids. Read all ids only if most are gone, or if few memories are that low."""
        with as_state_errors(self._folder):
            first, last = self._db.execute(ID_RANGE).fetchone()
            if n < 1 or first is None:
                return []
            found: dict[int, RetrievedMemory] = {}
            if last - first >= 4 * n:
                for _ in range(MAX_DRAWS):
                    random_ids = {self._random.randint(first, last) for _ in range(2 * n)} - found.keys()
                    found |= {memory.id: memory for memory in self.of(random_ids) if memory.level < below}
                    if len(found) >= n:
                        return self._random.sample(list(found.values()), n)
            query = "SELECT id FROM memories WHERE level < ?"
            ids = [id for (id,) in self._db.execute(query, (below,))]
            return self.of(self._random.sample(ids, min(n, len(ids))))

    def of(self, ids: Collection[int], *, trash: bool = False) -> list[RetrievedMemory]:
        clause = "WHERE m.id IN (SELECT value FROM json_each(?)) ORDER BY m.id"
        return self._read(clause, (json.dumps(list(ids)),), trash=trash)

    def _without_vector(self, after: int) -> dict[int, str]:
        return {} if self._is_read_only else dict(self._space().without_row(after, BATCH))

    def _store_vectors(self, vectors: Mapping[int, Vector]) -> None:
        with writing(self._db, self._folder):
            self._space().append(vectors)

    def _space(self) -> VectorSpace:
        if self._open_space is None:
            name, dim = self._embedding.name, self._embedding.dim
            self._open_space = VectorSpace.find(self._db, self._folder, name, dim)
            if self._open_space is None:
                old_stats = self.stats()
                self._open_space = VectorSpace.make(self._db, self._folder, name, dim)
                if old_stats.embedder and old_stats.count:
                    self._embedding.report_change(old_stats.embedder, old_stats.dim, old_stats.count)
        return self._open_space


def _memory_from(columns: Sequence[Any], score: float) -> RetrievedMemory:
    id, text, kind, source, trusted, t, run, step, level, stored = columns
    return RetrievedMemory(id, text, score, kind, source, bool(trusted), t, run, step, level, stored=stored)


def open_store(opening: StoreOpening) -> LocalStore:
    """Open the store in the folder of the opening. Raises StateError."""
    return LocalStore(opening.folder, opening.embedder, opening.listen)
