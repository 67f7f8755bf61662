"""The memory in PostgreSQL with pgvector: one that many machines share.

The nearest are found by an HNSW index (Malkov and Yashunin, TPAMI 2020), so `near` may miss some: `EF_SEARCH` says how
widely it looks. A table that is still small is read as a whole by PostgreSQL's own choice, and a search that came back
with too few is repeated exactly. Vectors of more than 2000 values are indexed in half precision (pgvector 0.7) and
ranked in full; beyond 4000, or with an older pgvector, each search looks at every memory.

Words are ranked by the sum of ts_rank over the words of the query, each weighted by how rare it is, as in BM25.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from autoagent.extension import GONE, Change, Embedder, RetrievedMemory, Stats
from autoagent.memory.store_base import BATCH, FLOAT, Skip, StoreBase, Vector, texts, valid_text
from autoagent_postgres.session import Connection, PostgresSession, escaped, plain

SLACK = 32  # neighbours beyond those requested, as some of the nearest are skipped
EF_SEARCH = (
    200  # neighbours that HNSW keeps track of: recall@10 of 10,000 real text vectors .994; pgvector's own 40: .972
)
MAX_EF = 1000  # the limit of pgvector
MAX_WORDS = 64  # words of a query; a long one is described by fewer
MAX_WORD_BYTES = 2_000  # PostgreSQL refuses a query with a longer word, and indexes none
MAX_MATCHES = 5_000  # memories that are ranked by a word, counted for each word

COLUMNS = "m.id, m.text, m.kind, m.source, m.trusted, m.t, m.run, m.step, m.level, m.stored"

# xmax is 0 in a row that was inserted, not updated.
PUT = """
INSERT INTO memories (text, hash, kind, source, trusted, t, stored, run, step, words)
VALUES (
    %(text)s, %(hash)s, %(kind)s, %(source)s, %(trusted)s, %(t)s, %(stored)s, %(run)s, %(step)s, %(words)s::tsvector
)
ON CONFLICT (hash) DO UPDATE SET t = excluded.t, run = excluded.run, step = excluded.step, stored = excluded.stored,
    kind = CASE WHEN memories.kind IN ('step', 'fact') THEN excluded.kind ELSE memories.kind END,
    source = CASE WHEN memories.trusted AND NOT excluded.trusted OR memories.source = '' THEN excluded.source
             ELSE memories.source END,
    trusted = memories.trusted AND excluded.trusted
RETURNING id, xmax = 0
"""
LOCKED = """
SELECT id, forgotten IS NOT NULL, coalesce(forgotten, t), level FROM memories WHERE id = ANY(%s) ORDER BY id FOR UPDATE
"""
WANT_VECTORS = "INSERT INTO vectors (space, memory) SELECT id, %s FROM spaces ON CONFLICT DO NOTHING"
SET_VECTOR = "UPDATE vectors SET vector = %s WHERE space = %s AND memory = %s AND vector IS NULL"

NOT_SKIPPED = """
NOT EXISTS (SELECT 1 FROM unnest(%(runs)s::text[], %(steps)s::bigint[]) AS s (run, step)
            WHERE s.run = m.run AND s.step = m.step)
"""
# The number of the space is written out: only so does PostgreSQL see which partial index serves the query.
NEAR = f"""
WITH nearest AS MATERIALIZED (
    SELECT memory, vector FROM vectors WHERE space = {{space}} AND vector IS NOT NULL
    ORDER BY vector::{{cast}} <=> %(query)s::{{cast}} LIMIT %(wanted)s
)
SELECT {COLUMNS}, n.vector <=> %(query)s AS distance FROM nearest n JOIN memories m ON m.id = n.memory
WHERE m.forgotten IS NULL AND {NOT_SKIPPED} ORDER BY distance, m.id LIMIT %(k)s
"""  # noqa: S608 - ours
WORDED = f"""
SELECT {COLUMNS}, (
    SELECT sum(weight * ts_rank(m.words, word::tsquery, 1)) FROM unnest(%(words)s::text[], %(weights)s::float8[])
    AS asked (word, weight)
) AS score
FROM memories m WHERE m.words @@ %(any)s::tsquery AND m.forgotten IS NULL AND {NOT_SKIPPED}
ORDER BY score DESC, m.id LIMIT %(k)s
"""  # noqa: S608 - ours
COUNT_WORDS = """
SELECT word, (SELECT count(*) FROM memories m WHERE m.words @@ word::tsquery AND m.forgotten IS NULL)
FROM unnest(%s::text[]) AS word
"""


OF_USER = "AND (level >= 1000000 OR kind IN ('feedback', 'user') OR strpos(', ' || source || ',', ', user,') > 0)"


@dataclass(frozen=True, slots=True)
class _Space:
    id: int
    cast: str  # what vectors are cast to where they are compared: the type that is indexed


class PostgresStore(StoreBase):
    """Satisfies MemoryStore. Any number of machines may use it at once.

    It is as durable as the server is set to be: out of the box, wholly.

    Raises SettingsError for an address that is none; nothing is connected before something is asked.
    """

    def __init__(
        self, url: str, index: str, embedder: Embedder, listen: Callable[[str], None] = lambda line: None
    ) -> None:
        super().__init__(embedder, listen)
        self._session = PostgresSession(url, index)
        self._own_space: _Space | None = None

    def close(self) -> None:
        self._session.close()

    def _storage(self) -> AbstractContextManager[None]:
        return nullcontext()  # the session turns errors into ours, in each of its transactions

    # What is kept -----------------------------------------------------------------------------------------------

    def _put(
        self, parts: Sequence[str], known: Mapping[str, Any], vectors: Mapping[str, Vector], *, durable: bool
    ) -> int:
        space = self._space() if vectors else None
        known = {name: escaped(value) if isinstance(value, str) else value for name, value in known.items()}

        def work(db: Connection) -> int:
            hashes = [texts.hash_of(part) for part in parts]
            db.execute("DELETE FROM memories WHERE forgotten IS NOT NULL AND hash = ANY(%s)", (hashes,))
            ids: dict[str, int] = {}
            for part in sorted(parts, key=texts.hash_of):  # all in one order, or two writers might wait for each other
                row = {**known, "text": escaped(part), "hash": texts.hash_of(part), "words": _tsvector(part)}
                [(ids[part], inserted)] = db.execute(PUT, row).fetchall()
                if inserted:
                    db.execute(WANT_VECTORS, (ids[part],))
                if space and part in vectors:
                    db.execute(SET_VECTOR, (vectors[part], space.id, ids[part]))
            return ids[parts[0]]

        return self._session.run(work)

    def _missing(self, parts: Sequence[str]) -> list[str]:
        hashes = {texts.hash_of(part): part for part in parts}
        query = "SELECT hash FROM memories WHERE hash = ANY(%s) AND forgotten IS NULL"
        there = {row[0] for row in self._rows(query, (list(hashes),))}
        return [part for hash, part in hashes.items() if hash not in there]

    def find(self, text: str) -> RetrievedMemory | None:
        return next(iter(self._recollections(f"{_kept()} AND hash = %s", (texts.hash_of(valid_text(text)),))), None)

    def _change(self, changes: Sequence[Change], *, whole: bool, durable: bool, expired: float | None) -> int:
        def work(db: Connection) -> int:
            if expired is not None:
                db.execute("DELETE FROM memories WHERE forgotten < %s", (expired,))
            ids = [change.id for change in changes]
            there = {(id, forgotten): (t, level) for id, forgotten, t, level in db.execute(LOCKED, (ids,))}
            as_seen = [change for change in changes if there.get((change.id, change.trash)) == change.seen]
            if whole and len(as_seen) < len(changes):
                return 0
            for change in as_seen:
                _change(db, change)
            return len(as_seen)

        return self._session.run(work)

    def sample(self, n: int, below: int) -> list[RetrievedMemory]:
        return self._recollections(f"{_kept()} AND level < %s ORDER BY random() LIMIT %s", (below, max(n, 0)))

    def of(self, ids: Collection[int], *, trash: bool = False) -> list[RetrievedMemory]:
        return self._recollections(f"{_kept(trash=trash)} AND id = ANY(%s) ORDER BY id", (list(ids),))

    def listed(
        self, limit: int = -1, offset: int = 0, *, of_user: bool = False, trash: bool = False
    ) -> list[RetrievedMemory]:
        query = f"{_kept(trash=trash)} {OF_USER if of_user else ''} ORDER BY time DESC, id DESC LIMIT %s OFFSET %s"
        return self._recollections(query, (None if limit < 0 else limit, offset))

    def _count(self) -> int:
        return int(self._rows("SELECT count(*) FROM memories WHERE forgotten IS NULL", ())[0][0])

    def stats(self) -> Stats:
        last = self._rows("SELECT embedder, dim FROM spaces ORDER BY id DESC LIMIT 1", ())
        tables = "SELECT sum(pg_total_relation_size(name::regclass)) FROM unnest(ARRAY['memories', 'vectors']) AS name"
        embedder, dim = last[0] if last else ("", 0)
        return Stats(self._count(), int(self._rows(tables, ())[0][0]), embedder, dim, self._session.where)

    # What is found ----------------------------------------------------------------------------------------------

    def _nearest(self, vector: Vector, k: int, skip: Skip) -> list[RetrievedMemory]:
        space = self._space()
        wanted = k + len(skip) + SLACK
        values = {"query": vector, "k": k, "wanted": wanted, **_skipping(skip)}

        def indexed(db: Connection) -> list[tuple[Any, ...]]:
            db.execute(f"SET LOCAL hnsw.ef_search = {max(EF_SEARCH, wanted)}".encode())
            return _fetched(db, NEAR.format(space=space.id, cast=space.cast), values)

        def exact(db: Connection) -> list[tuple[Any, ...]]:
            db.execute("SET LOCAL enable_indexscan = off")
            return _fetched(db, NEAR.format(space=space.id, cast="vector"), {**values, "wanted": None})

        rows = self._session.run(indexed) if wanted <= MAX_EF else []
        if len(rows) < k:
            rows = self._session.run(exact)
        found = (_recollection(row[:-1], 1.0 - row[-1]) for row in rows)
        return [memory for memory in found if memory.score > 0]  # that of a zero vector is NaN, which no 0 is below

    def _matching(self, query: str, k: int, skip: Skip) -> list[RetrievedMemory]:
        counts, total = self._word_counts(list(dict.fromkeys(texts.words(query)))[:MAX_WORDS])
        there = {f"'{word}'": n for word, n in counts.items() if n}
        if not there:
            return []
        weights = texts.weights(there, MAX_MATCHES, total)
        asked = list(weights)
        values = {"words": asked, "weights": [*weights.values()], "any": " | ".join(asked), "k": k, **_skipping(skip)}
        return self._recollections(WORDED, values)

    def _word_counts(self, words: Collection[str]) -> tuple[dict[str, int], int]:
        asked = {word: f"'{word}'" for word in words if len(word.encode()) <= MAX_WORD_BYTES}
        there = dict(self._rows(COUNT_WORDS, (list(asked.values()),)))
        last = self._rows("SELECT max(id) FROM memories", ())[0][0] or 0  # nearly; to count them all would be slow
        return {word: int(there.get(f"'{word}'", 0)) for word in words}, int(last)

    def vectors(self, ids: Sequence[int]) -> dict[int, bytes]:
        query = "SELECT memory, vector FROM vectors WHERE space = %s AND vector IS NOT NULL AND memory = ANY(%s)"
        rows = self._rows(query, (self._space().id, list(ids)))
        return {id: vector.to_numpy().astype(FLOAT, copy=False).tobytes() for id, vector in rows}

    # Texts to vectors -------------------------------------------------------------------------------------------

    def _without_vector(self, after: int) -> dict[int, str]:
        query = (
            "SELECT v.memory, m.text FROM vectors v JOIN memories m ON m.id = v.memory "
            "WHERE v.space = %s AND v.vector IS NULL AND v.memory > %s ORDER BY v.memory LIMIT %s"
        )
        return {id: plain(text) for id, text in self._rows(query, (self._space().id, after, BATCH))}

    def _store_vectors(self, vectors: Mapping[int, Vector]) -> None:
        space = self._space()

        def work(db: Connection) -> None:
            for id, vector in sorted(vectors.items()):
                db.execute(SET_VECTOR, (vector, space.id, id))

        self._session.run(work)

    def _space(self) -> _Space:
        """Return the space of this embedder; one made now wants a vector for every memory there is."""
        if self._own_space is None:
            name, dim = self._embedding.name, self._embedding.dim
            before = self._rows("SELECT embedder, dim FROM spaces ORDER BY id DESC LIMIT 1", ())
            id, made = self._session.run(lambda db: _find_or_make(db, name, dim))
            cast, indexed = self._session.run(lambda db: _indexed(db, dim))
            self._own_space = _Space(id, cast)
            if made and before and (count := self._count()):
                self._embedding.report_change(before[0][0], before[0][1], count)
            if made and not indexed:
                self._listen(
                    f"The vectors of {name} have {dim} values, more than this server's pgvector can index: each "
                    "recall looks at every memory."
                )
        return self._own_space

    # PostgreSQL -------------------------------------------------------------------------------------------------

    def _rows(self, query: str, values: Any) -> list[tuple[Any, ...]]:
        return self._session.run(lambda db: _fetched(db, query, values))

    def _recollections(self, query: str, values: Any) -> list[RetrievedMemory]:
        """Return the memories of a query for COLUMNS and a score."""
        return [_recollection(row[:-1], float(row[-1])) for row in self._rows(query, values)]


def _kept(*, trash: bool = False) -> str:
    """Return the beginning of a query for memories, or for those in the trash."""
    time, state = ("m.forgotten", "IS NOT NULL") if trash else ("m.t", "IS NULL")
    columns = COLUMNS.replace("m.t,", f"{time} AS time,")
    return f"SELECT {columns}, 0 FROM memories m WHERE forgotten {state}"  # noqa: S608 - ours


def _change(db: Connection, change: Change) -> None:
    if change.level == GONE:
        db.execute("DELETE FROM memories WHERE id = %s", (change.id,))
    elif change.trash:
        update = "UPDATE memories SET forgotten = NULL, t = %s, level = %s WHERE id = %s"
        db.execute(update, (change.t, change.level, change.id))
        db.execute(WANT_VECTORS, (change.id,))
    elif change.level is None:
        db.execute("UPDATE memories SET forgotten = %s WHERE id = %s", (change.t, change.id))
        db.execute("DELETE FROM vectors WHERE memory = %s", (change.id,))
    else:
        update = "UPDATE memories SET t = %s, level = %s, source = coalesce(%s, source) WHERE id = %s"
        source = None if change.source is None else escaped(valid_text(change.source))
        db.execute(update, (change.t, change.level, source, change.id))


def _find_or_make(db: Connection, embedder: str, dim: int) -> tuple[int, bool]:
    """Return the number of the embedder's space, and whether it was made now."""
    find = "SELECT id FROM spaces WHERE embedder = %s AND dim = %s"
    if row := db.execute(find, (embedder, dim)).fetchone():
        return int(row[0]), False
    # Whoever is putting a memory has not seen this space yet: they finish first, and the next ones see it.
    db.execute("LOCK TABLE memories IN SHARE ROW EXCLUSIVE MODE")
    if row := db.execute(find, (embedder, dim)).fetchone():
        return int(row[0]), False
    insert = "INSERT INTO spaces (embedder, dim) VALUES (%s, %s) RETURNING id"
    row = db.execute(insert, (embedder, dim)).fetchone()
    assert row is not None
    id = int(row[0])
    db.execute("INSERT INTO vectors (space, memory) SELECT %s, id FROM memories WHERE forgotten IS NULL", (id,))
    cast, indexed = _indexed(db, dim)
    if indexed:
        operators = cast.partition("(")[0] + "_cosine_ops"
        index = f"CREATE INDEX ON vectors USING hnsw ((vector::{cast}) {operators}) WHERE space = {id}"
        db.execute(index.encode())
    return id, True


def _indexed(db: Connection, dim: int) -> tuple[str, bool]:
    """Return the type that vectors of so many values are compared as, and whether pgvector can index it."""
    halfvec = db.execute("SELECT to_regtype('halfvec') IS NOT NULL").fetchone() == (True,)
    if dim > 2000 and halfvec and dim <= 4000:
        return f"halfvec({dim})", True
    return f"vector({dim})", dim <= 2000


def _fetched(db: Connection, query: str, values: Any) -> list[tuple[Any, ...]]:
    return list(db.execute(query.encode(), values).fetchall())


def _skipping(skip: Skip) -> dict[str, list[Any]]:
    return {"runs": [escaped(run) for run, step in skip], "steps": [step for run, step in skip]}


def _tsvector(text: str) -> str:
    """Return the words of a text with their positions; no word has a letter that would need quoting."""
    positions = defaultdict(list)
    for position, word in enumerate(texts.words(text), 1):
        positions[word].append(position)
    return " ".join(f"'{word}':{','.join(map(str, at[:256]))}" for word, at in positions.items())


def _recollection(columns: Iterable[Any], score: float) -> RetrievedMemory:
    id, text, kind, source, trusted, t, run, step, level, stored = columns
    return RetrievedMemory(
        id, plain(text), score, plain(kind), plain(source), trusted, t, plain(run), step, level, stored=stored
    )
