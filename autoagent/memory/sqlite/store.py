"""The local store: texts in SQLite with a full-text index, and vectors in a file beside it.

Each embedder has its own space and searches only there. Memories without a vector there, or with a damaged vector, are
embedded before the next search.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

from autoagent.core.memory import Change, RetrievedMemory, Stats
from autoagent.core.protocols import Embedder
from autoagent.memory.evidence import COMPOUND
from autoagent.memory.sqlite.database import OF_USER, connect, id_of, may_be_written, our_errors, writing
from autoagent.memory.sqlite.vector_space import VectorSpace
from autoagent.memory.sqlite.vectors import Damaged, Vectors
from autoagent.memory.store_base import Skip, StoreBase, Vector, texts, valid, widened

if TYPE_CHECKING:
    from autoagent.registry.memory import StoreOpening

BATCH = 256  # texts embedded together, and stored in one transaction
SLACK = 8  # candidates ranked beyond those asked for and those to be skipped: some of the best are forgotten
FETCH = 500  # memories looked up by one query
WORDS = 100  # of a query, that are looked for
MATCHES = 600  # memories that are ranked by their words, at some microseconds each
MATCHES_OF_ONE = 10_000  # that are ranked where no word of the query is in fewer than MATCHES
COUNTABLE = 5_000  # memories with a word that are counted, at a tenth of a microsecond each
COUNTED = 10_000  # words whose memory counts are cached
DRAWS = 8  # rounds of random ids, before the ids are so sparse that all are read

COLUMNS = "m.id, m.text, m.kind, m.source, m.trusted, m.t, m.run, m.step, m.level"
KEPT = "id, text, hash, kind, source, trusted, t, run, step"  # in memories as in the trash

PUT = """
INSERT INTO memories (text, hash, kind, source, trusted, t, run, step)
VALUES (:text, :hash, :kind, :source, :trusted, :t, :run, :step)
ON CONFLICT (hash) DO UPDATE SET t = excluded.t, run = excluded.run, step = excluded.step,
    source = CASE WHEN excluded.trusted < trusted THEN excluded.source ELSE source END,
    trusted = min(trusted, excluded.trusted)
RETURNING id
"""

WORDED = f"""
SELECT {COLUMNS}, found.score FROM (
    SELECT rowid, -rank AS score FROM words WHERE words MATCH ? ORDER BY rank LIMIT ?
) AS found JOIN memories m ON m.id = found.rowid ORDER BY found.score DESC, m.id
"""  # noqa: S608 - our names

UPDATE = """
UPDATE memories SET t = ?, level = ?, source = coalesce(?, source) WHERE id = ? AND t = ? AND level = ?
"""

TO_TRASH = f"""
INSERT INTO trash ({KEPT}, level, forgotten) SELECT {KEPT}, level, ? FROM memories WHERE id = ? RETURNING text
"""  # noqa: S608 - our names

FROM_TRASH = f"""
INSERT INTO memories ({KEPT}, level) SELECT {KEPT.replace(" t,", " ?,")}, 0 FROM trash WHERE id = ? RETURNING text
"""  # noqa: S608 - our names

OWNERS = "SELECT run, hash FROM memories WHERE id = ? UNION ALL SELECT run, hash FROM trash WHERE id = ?"

MATCHED = "SELECT count(*) FROM (SELECT rowid FROM words WHERE words MATCH ? LIMIT ?)"

ENDS = "SELECT (SELECT min(id) FROM memories), (SELECT max(id) FROM memories)"  # each from the index, none by a scan


class LocalStore(StoreBase):
    """Satisfies MemoryStore. Any number of processes may use the folder at once.

    `random` draws the samples. Methods raise StateError if the folder cannot be read or a change cannot be written. In
    a read-only folder, use changes nothing. `near` raises ModelError if the embedder fails.
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
        self._own_space: VectorSpace | None = None
        self._counted: dict[str, tuple[int, int]] = {}  # in how many memories a word was, and the last id at that time
        with our_errors(folder):
            self._db = connect(folder)
            self._reads_only = not may_be_written(folder)
            self.id = id_of(self._db)

    def close(self) -> None:
        self._db.close()

    def _ours(self) -> AbstractContextManager[None]:
        return our_errors(self._folder)

    # What is kept -----------------------------------------------------------------------------------------------

    def put(
        self, text: str, *, t: float, kind: str, source: str, trusted: bool, run: str, step: int, durable: bool = True
    ) -> int | None:
        """Store a text. It survives a crash once this returns, and a power cut if it is `durable`."""
        parts = texts.parts(text)
        if not parts:
            return None
        with our_errors(self._folder):
            vectors = self._vectors_of_new(parts)
            known = {
                "kind": kind, "source": valid(source), "trusted": trusted, "t": t, "run": run, "step": step,
            }  # fmt: skip
            with writing(self._db, self._folder, durable=durable):
                ids = [self._put(part, known) for part in parts]
                if vectors:
                    by_id = zip(ids, parts, strict=True)
                    self._space().append({id: vectors[part] for id, part in by_id if part in vectors})
        return ids[0]

    def has_assigned(self, id: int, run: str, text: str = "") -> bool:
        """As MemoryStore. A power cut loses the last changes that are not durable, and their ids are assigned again."""
        first = next(iter(texts.parts(text)), "")
        with our_errors(self._folder):
            newest = self._db.execute("SELECT seq FROM sqlite_sequence WHERE name = 'memories'").fetchone()
            rows = self._db.execute(OWNERS, (id, id)).fetchall()
        assigned = newest is not None and int(newest[0]) >= id
        return assigned and all(owner == run or key == texts.hash_of(first) for owner, key in rows)

    def _put(self, text: str, known: Mapping[str, Any]) -> int:
        """Insert or refresh one text within a transaction. Return its id."""
        key = texts.hash_of(text)
        old = self._db.execute("SELECT 1 FROM memories WHERE hash = ?", (key,)).fetchone()
        id = int(self._db.execute(PUT, {**known, "text": text, "hash": key}).fetchone()[0])
        if not old:
            self._db.execute("DELETE FROM trash WHERE hash = ?", (key,))
            self._index(id, text)
        return id

    def _index(self, id: int, text: str) -> None:
        """Let a new memory be found, within a transaction: by its words now, by its vectors once they are made."""
        self._db.execute("INSERT INTO words (rowid, text) VALUES (?, ?)", (id, texts.spaced(text)))
        self._db.execute("INSERT OR IGNORE INTO vectors (memory, space) SELECT ?, id FROM spaces", (id,))

    def _remove(self, id: int, text: str) -> None:
        """Remove a memory from the table and the indexes within a transaction, leaving its row in the vector file."""
        self._db.execute("INSERT INTO words (words, rowid, text) VALUES ('delete', ?, ?)", (id, texts.spaced(text)))
        self._db.execute("DELETE FROM vectors WHERE memory = ?", (id,))
        self._db.execute("DELETE FROM memories WHERE id = ?", (id,))

    def change(self, changes: Sequence[Change], *, whole: bool = False, durable: bool = True) -> int:
        if not changes or self._reads_only:  # what is found may be shown all the same
            return 0
        with our_errors(self._folder), writing(self._db, self._folder, durable=durable):
            if whole and not all(self._is_as_seen(change) for change in changes):
                return 0
            return sum(self._carry_out(change) for change in changes)

    def _is_as_seen(self, change: Change) -> bool:
        query = "SELECT 1 FROM memories WHERE id = ? AND t = ? AND level = ?"
        return self._db.execute(query, (change.id, *change.seen)).fetchone() is not None

    def _carry_out(self, change: Change) -> bool:
        """Apply a change within a transaction if the memory is as it was seen."""
        if change.level is not None:
            source = None if change.source is None else valid(change.source)
            values = (change.t, change.level, source, change.id, *change.seen)
            return self._db.execute(UPDATE, values).rowcount > 0
        if not self._is_as_seen(change):
            return False
        [(text,)] = self._db.execute(TO_TRASH, (change.t, change.id)).fetchall()
        self._remove(change.id, text)
        return True

    def forget(self, memory: int) -> bool:
        """Delete a memory. Its row stays in the vector file, unreferenced."""
        with our_errors(self._folder), writing(self._db, self._folder):
            found = self._db.execute("SELECT text FROM memories WHERE id = ?", (memory,)).fetchone()
            if found:
                self._remove(memory, found[0])
            return found is not None

    def trash(self) -> list[RetrievedMemory]:
        columns = COLUMNS.replace("m.t,", "m.forgotten,")
        query = f"SELECT {columns} FROM trash m ORDER BY m.forgotten DESC, m.id DESC"  # noqa: S608 - our names
        with our_errors(self._folder):
            return [_recollection(columns, 0.0) for columns in self._db.execute(query)]

    def restore(self, memory: int, t: float) -> bool:
        with our_errors(self._folder), writing(self._db, self._folder):
            found = self._db.execute(FROM_TRASH, (t, memory)).fetchall()
            for (text,) in found:
                self._db.execute("DELETE FROM trash WHERE id = ?", (memory,))
                self._index(memory, text)
        return bool(found)

    def empty_trash(self, before: float) -> int:
        if self._reads_only:
            return 0
        with our_errors(self._folder), writing(self._db, self._folder):
            return self._db.execute("DELETE FROM trash WHERE forgotten < ?", (before,)).rowcount

    def __len__(self) -> int:
        with our_errors(self._folder):
            return int(self._db.execute("SELECT COUNT(*) FROM memories").fetchone()[0])

    def listed(self, limit: int = -1, offset: int = 0, *, of_user: bool = False) -> list[RetrievedMemory]:
        """As MemoryStore, with score 0."""
        those = f"WHERE {OF_USER}" if of_user else ""
        query = f"SELECT {COLUMNS} FROM memories m {those} ORDER BY m.t DESC, m.id DESC LIMIT ? OFFSET ?"  # noqa: S608
        with our_errors(self._folder):
            return [_recollection(columns, 0.0) for columns in self._db.execute(query, (limit, offset))]

    def stats(self) -> Stats:
        with our_errors(self._folder):
            last = self._db.execute("SELECT embedder, dim FROM spaces ORDER BY id DESC LIMIT 1").fetchone()
            size = sum(file.stat().st_size for file in self._folder.iterdir())
        embedder, dim = last or ("", 0)
        return Stats(len(self), size, embedder, dim, str(self._folder))

    # What comes back --------------------------------------------------------------------------------------------

    def find(self, text: str) -> RetrievedMemory | None:
        query = f"SELECT {COLUMNS} FROM memories m WHERE m.hash = ?"  # noqa: S608 - our names
        with our_errors(self._folder):
            columns = self._db.execute(query, (texts.hash_of(valid(text)),)).fetchone()
        return _recollection(columns, 0.0) if columns else None

    def _is_empty(self) -> bool:
        return not self._db.execute("SELECT 1 FROM memories LIMIT 1").fetchone()

    def _nearest(self, vector: Vector, k: int, skip: Skip) -> list[RetrievedMemory]:
        return widened(lambda count: self._best(vector, count), k, skip, SLACK)

    def _best(self, vector: Vectors, count: int) -> tuple[list[RetrievedMemory], bool]:
        try:
            rows, scores = self._space().search(vector, count)
        except Damaged:
            self._mend()
            rows, scores = self._space().search(vector, count)
        at = self._space().memories(rows.tolist(), COLUMNS)
        scored = zip(rows.tolist(), scores.tolist(), strict=True)
        return [_recollection(at[row], score) for row, score in scored if row in at], len(rows) < count

    def worded(self, query: str, k: int, skip: Skip = ()) -> list[RetrievedMemory]:
        """Return the memories that share words with the query by BM25, ignoring diacritics and case."""
        accented = r"[\w\u0300-\u036f]+"  # with the accents written as marks of their own
        each = dict.fromkeys(re.findall(accented, texts.spaced(texts.query(query))))
        words = [f'"{word}"' for word in itertools.islice(each, WORDS)]  # the index takes none for an operator
        if k < 1 or not words:
            return []
        with our_errors(self._folder):
            if not (telling := self._telling([*words, *self._parts_of(words)])):
                return []
            return widened(lambda count: self._best_worded(" OR ".join(telling), count), k, skip, SLACK)

    def _parts_of(self, words: Collection[str]) -> list[str]:
        """Return the words that make up those compounds among these (quoted) words that no memory has."""
        found: dict[str, None] = {}
        for word in words:
            bare = word.strip('"')
            if len(bare) >= COMPOUND and not bare.isdecimal() and not self._matched(word, 1):
                for cut in range(4, len(bare) - 3):
                    halves = (f'"{bare[:cut]}"', f'"{bare[cut:]}"')
                    known = [half for half in halves if len(half) > 6 and self._matched(half, 1)]
                    found |= dict.fromkeys(known if len(known) == 2 or bare[cut - 1] == "s" else ())
        return list(found)

    def _telling(self, words: Iterable[str]) -> list[str]:
        """Return the rarest of these words, as many as are in MATCHES memories together: BM25 gives a
        word in more than half of them no weight, but only after looking at every memory that has it.
        """
        first, last = self._db.execute(ENDS).fetchone()
        if last is None:
            return []
        half = (last - first) // 2 + 1
        found = {word: self._about_how_many(word, last) for word in words}
        telling: list[str] = []
        left = MATCHES
        for word in sorted(found, key=found.__getitem__):
            if (left := left - found[word]) <= 0 or (telling and found[word] > half):
                break
            telling.append(word)
        if telling:
            return telling
        found = {word: self._matched(word, MATCHES_OF_ONE) for word in found}
        return [word for word in sorted(found, key=found.__getitem__) if found[word] < MATCHES_OF_ONE][:1]

    def _about_how_many(self, word: str, last: int) -> int:
        """Count the memories with a word, up to COUNTABLE. Recount after the memory has grown by a quarter."""
        count, then = self._counted.get(word, (0, 0))
        if count < COUNTABLE and last > then + then // 4:
            if len(self._counted) >= COUNTED:
                self._counted.clear()
            count = self._matched(word, COUNTABLE)
            self._counted[word] = count, last
        return count

    def _matched(self, word: str, limit: int) -> int:
        """Count the memories that a word is in, up to `limit`."""
        return int(self._db.execute(MATCHED, (word, limit)).fetchone()[0])

    def _best_worded(self, wanted: str, count: int) -> tuple[list[RetrievedMemory], bool]:
        rows = self._db.execute(WORDED, (wanted, count)).fetchall()
        return [_recollection(columns, score) for *columns, score in rows], len(rows) < count

    def word_counts(self, words: Collection[str]) -> tuple[dict[str, int], int]:
        with our_errors(self._folder):
            first, last = (end or 0 for end in self._db.execute(ENDS).fetchone())
            return {word: self._about_how_many(f'"{word}"', last) for word in words}, last - first + 1

    def vectors(self, ids: Sequence[int]) -> dict[int, bytes]:
        with our_errors(self._folder):
            return {id: vector.tobytes() for id, vector in self._space().of(ids).items()} if ids else {}

    def sample(self, n: int, below: int) -> list[RetrievedMemory]:
        """Draw random memories by their ids: all are read only if most ids are gone, or few are below."""
        with our_errors(self._folder):
            first, last = self._db.execute(ENDS).fetchone()
            if n < 1 or first is None:
                return []
            found: dict[int, RetrievedMemory] = {}
            if last - first >= 4 * n:
                for _ in range(DRAWS):
                    drawn = {self._random.randint(first, last) for _ in range(2 * n)} - found.keys()
                    found |= {memory.id: memory for memory in self.of(drawn) if memory.level < below}
                    if len(found) >= n:
                        return self._random.sample(list(found.values()), n)
            query = "SELECT id FROM memories WHERE level < ?"
            ids = [id for (id,) in self._db.execute(query, (below,))]
            return self.of(self._random.sample(ids, min(n, len(ids))))

    def of(self, ids: Collection[int]) -> list[RetrievedMemory]:
        wanted, found = sorted(ids), []
        with our_errors(self._folder):
            for start in range(0, len(wanted), FETCH):
                some = wanted[start : start + FETCH]
                query = f"SELECT {COLUMNS} FROM memories m WHERE m.id IN ({','.join('?' * len(some))}) ORDER BY m.id"  # noqa: S608
                found += [_recollection(columns, 0.0) for columns in self._db.execute(query, some)]
        return found

    # Texts to vectors -------------------------------------------------------------------------------------------

    def _vectors_of_new(self, parts: Sequence[str]) -> dict[str, Vectors]:
        """Return the vectors of those texts that are not stored yet, as far as the embedder gives them."""
        query = "SELECT 1 FROM memories WHERE hash = ?"
        new = [part for part in dict.fromkeys(parts) if not self._db.execute(query, (texts.hash_of(part),)).fetchone()]
        vectors = self._embedding.of_new(new)
        if vectors:
            self._space()  # found, or made, in a transaction of its own
        return vectors

    def _mend(self) -> None:
        space = self._space()
        if lost := space.drop_damaged():
            self._listen(f"{space.path} was damaged; {lost} of its vectors are made anew from their texts.")
        self._embed_missing()

    def _embed_missing(self) -> None:
        if self._reads_only:
            return
        space, last = self._space(), 0
        while batch := space.wanting(last, BATCH):
            last = batch[-1][0]
            if vectors := self._embedding.of_kept(dict(batch)):
                with writing(self._db, self._folder):
                    space.append(vectors)

    def _space(self) -> VectorSpace:
        if self._own_space is None:
            name, dim = self._embedding.name, self._embedding.dim
            self._own_space = VectorSpace.find(self._db, self._folder, name, dim)
            if self._own_space is None:
                before = self.stats()
                self._own_space = VectorSpace.make(self._db, self._folder, name, dim)
                if before.embedder and before.count:
                    self._embedding.tell_anew(before.embedder, before.dim, before.count)
        return self._own_space


def _recollection(columns: Sequence[Any], score: float) -> RetrievedMemory:
    id, text, kind, source, trusted, t, run, step, level = columns
    return RetrievedMemory(id, text, score, kind, source, bool(trusted), t, run, step, level)


def open_store(opening: StoreOpening) -> LocalStore:
    """Open the store in the folder of the opening. Raises StateError."""
    return LocalStore(opening.folder, opening.embedder, opening.listen)
