"""The local memory: texts in SQLite, their vectors in a file beside it, exact search by cosine.

Each embedder has a space of its own and is searched in that alone; memories that have no vector there yet, or lost it
to a damaged file, are embedded from their texts before the next search.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from autoagent.errors import ModelError
from autoagent.memory import recall, texts
from autoagent.memory.database import connect, our_errors, writing
from autoagent.memory.space import Space
from autoagent.memory.vectors import FLOAT, Vectors
from autoagent.messages import Recollection, Usage
from autoagent.protocols import Embedder

BATCH = 256  # texts embedded together, and stored in one transaction
SLACK = 32  # rows ranked beyond those asked for: some of the nearest are forgotten or to be skipped

COLUMNS = "m.id, m.text, m.kind, m.source, m.trusted, m.t, m.run, m.step"

PUT = """
INSERT INTO memories (text, hash, kind, source, trusted, t, run, step)
VALUES (:text, :hash, :kind, :source, :trusted, :t, :run, :step)
ON CONFLICT (hash) DO UPDATE SET t = excluded.t, run = excluded.run, step = excluded.step,
    source = CASE WHEN excluded.trusted < trusted THEN excluded.source ELSE source END,
    trusted = min(trusted, excluded.trusted)
RETURNING id
"""


@dataclass(frozen=True, slots=True)
class Stats:
    """What a memory holds: how many texts, bytes on disk, the newest embedder ('' for none) and its dimension."""

    count: int
    bytes: int
    embedder: str
    dim: int
    folder: str


class LocalMemory:
    """Satisfies Memory. Any number of processes may use the folder at once, each instance one thread at a time.

    A text longer than `texts.PART` characters becomes several memories, of which `add` returns the first. A text that
    is there already is the same memory: its time, run and step are those of the last time; once untrusted it stays
    so. A memory whose vector could not be made is kept all the same, and embedded when a later recall can.

    `clock` gives seconds since the epoch; `listen` hears, in one line, what the memory does beyond what was asked.
    Methods raise StateError where the folder cannot be read or written, and `recall` ModelError where the embedder
    fails.
    """

    def __init__(
        self,
        folder: Path,
        embedder: Embedder,
        clock: Callable[[], float] = time.time,
        listen: Callable[[str], None] = lambda line: None,
    ) -> None:
        self._folder = folder
        self._embedder = embedder
        self._clock = clock
        self._listen = listen
        self._usage = Usage()
        self._own_space: Space | None = None
        self._refused: set[int] = set()  # memories this embedder gave no usable vector for
        with our_errors(folder):
            self._db = connect(folder)

    def close(self) -> None:
        self._db.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def take_usage(self) -> Usage:
        """What embedding has cost since this was last asked."""
        usage, self._usage = self._usage, Usage()
        return usage

    # What is kept -----------------------------------------------------------------------------------------------

    def add(
        self, text: str, *, kind: str = "note", source: str = "", trusted: bool = True, run: str = "", step: int = 0
    ) -> int | None:
        """Store a text; it survives a crash or a power cut from the moment this returns."""
        parts = texts.parts(texts.clean(text))
        if not parts:
            return None
        with our_errors(self._folder):
            vectors = self._vectors_of_new(parts)
            known = {
                "kind": kind, "source": texts.clean(source), "trusted": trusted, "t": self._clock(),
                "run": run, "step": step,
            }  # fmt: skip
            with writing(self._db, self._folder):
                ids = [self._put(part, known) for part in parts]
                if vectors:
                    by_id = zip(ids, parts, strict=True)
                    self._space().append({id: vectors[part] for id, part in by_id if part in vectors})
        return ids[0]

    def _put(self, text: str, known: Mapping[str, Any]) -> int:
        """Insert or refresh one text, within a transaction; its id."""
        id = int(self._db.execute(PUT, {**known, "text": text, "hash": _hash(text)}).fetchone()[0])
        self._db.execute("INSERT OR IGNORE INTO vectors (memory, space) SELECT ?, id FROM spaces", (id,))
        return id

    def forget(self, memory: int) -> bool:
        """Delete one memory. Its row stays in the vector file, and nothing refers to it any more."""
        with our_errors(self._folder), writing(self._db, self._folder):
            self._db.execute("DELETE FROM vectors WHERE memory = ?", (memory,))
            return self._db.execute("DELETE FROM memories WHERE id = ?", (memory,)).rowcount > 0

    def __len__(self) -> int:
        with our_errors(self._folder):
            return int(self._db.execute("SELECT COUNT(*) FROM memories").fetchone()[0])

    def listed(self, limit: int = -1, offset: int = 0) -> list[Recollection]:
        """The memories from the newest on, their score 0 as nothing was asked; all with a negative limit."""
        query = f"SELECT {COLUMNS} FROM memories m ORDER BY m.t DESC, m.id DESC LIMIT ? OFFSET ?"  # noqa: S608 - ours
        with our_errors(self._folder):
            return [_recollection(columns, 0.0) for columns in self._db.execute(query, (limit, offset))]

    def stats(self) -> Stats:
        with our_errors(self._folder):
            last = self._db.execute("SELECT embedder, dim FROM spaces ORDER BY id DESC LIMIT 1").fetchone()
            size = sum(file.stat().st_size for file in self._folder.iterdir())
        embedder, dim = last or ("", 0)
        return Stats(len(self), size, embedder, dim, str(self._folder))

    # What comes back --------------------------------------------------------------------------------------------

    def recall(self, query: str, k: int = 10, *, skip: Collection[tuple[str, int]] = ()) -> list[Recollection]:
        """The nearest memories by cosine, exact; of a query longer than `texts.PART` its first part counts."""
        text = texts.clean(query)[: texts.PART]
        with our_errors(self._folder):
            if k < 1 or not text.strip() or not self._db.execute("SELECT 1 FROM memories LIMIT 1").fetchone():
                return []
            vector = self._embed([text]).get(text)
            if vector is None:
                raise ModelError(
                    f"The embedder {self._embedder.name} did not give a unit vector of {self._embedder.dim} values, "
                    "so that nothing can be recalled; choose another EMBEDDING_MODEL."
                )
            if not vector.any():
                return []
            self._make_whole()
            return self._nearest(recall.cosines(self._space().vectors(), vector), k, frozenset(skip))

    def _nearest(self, scores: NDArray[np.float32], k: int, skip: frozenset[tuple[str, int]]) -> list[Recollection]:
        found: list[Recollection] = []
        seen, wanted = 0, k + SLACK
        while True:
            rows = recall.best(scores, wanted)
            new = rows[seen:].tolist()
            at = self._space().memories(new, COLUMNS)
            memories = (_recollection(at[row], float(scores[row])) for row in new if row in at)
            found += (memory for memory in memories if (memory.run, memory.step) not in skip)
            if len(found) >= k or len(rows) < wanted:
                return found[:k]
            seen, wanted = wanted, wanted * 4

    # Texts to vectors -------------------------------------------------------------------------------------------

    def _embed(self, wanted: Sequence[str]) -> dict[str, Vectors]:
        """The vector of each text, without those that are not of the embedder's dimension, or neither unit nor zero."""
        vectors, usage = self._embedder.embed(wanted)
        self._usage += usage
        size = self._embedder.dim * FLOAT.itemsize
        pairs = zip(wanted, vectors, strict=False)
        sized = {text: np.frombuffer(vector, FLOAT) for text, vector in pairs if len(vector) == size}
        return {text: vector for text, vector in sized.items() if _unit_or_zero(vector)}

    def _vectors_of_new(self, parts: Sequence[str]) -> dict[str, Vectors]:
        """The vectors of those texts that are not there yet; {} where the embedder fails, which is said."""
        query = "SELECT 1 FROM memories WHERE hash = ?"
        new = [part for part in dict.fromkeys(parts) if not self._db.execute(query, (_hash(part),)).fetchone()]
        if not new:
            return {}
        try:
            vectors = self._embed(new)
            self._space()
        except ModelError as error:
            self._listen(f"A memory was kept, but cannot be recalled until it is embedded: {error}")
            return {}
        self._tell_refused(len(new) - len(vectors))
        return vectors

    def _make_whole(self) -> None:
        """See that every memory has a sound vector of this embedder."""
        space = self._space()
        self._embed_missing(space)
        if space.damaged():
            if lost := space.drop_damaged():
                self._listen(f"{space.path} was damaged; {lost} of its vectors are made anew from their texts.")
            self._embed_missing(space)

    def _embed_missing(self, space: Space) -> None:
        last, before = 0, len(self._refused)
        while batch := space.wanting(last, BATCH):
            last = batch[-1][0]
            missing = {id: text for id, text in batch if id not in self._refused}
            if not missing:
                continue
            try:
                vectors = self._embed(list(missing.values()))
            except ModelError:  # one text that the embedder cannot take must not keep out the others
                vectors = self._embed_singly(missing)
            with writing(self._db, self._folder):
                space.append({id: vectors[text] for id, text in missing.items() if text in vectors})
            self._refused |= {id for id, text in missing.items() if text not in vectors}
        self._tell_refused(len(self._refused) - before)

    def _embed_singly(self, missing: Mapping[int, str]) -> dict[str, Vectors]:
        """As `_embed`, without the texts at which it fails; where two in a row fail, the fault is not in the texts."""
        vectors: dict[str, Vectors] = {}
        failed = False
        for id, text in missing.items():
            try:
                vectors |= self._embed([text])
                failed = False
            except ModelError:
                self._refused.add(id)
                if failed:
                    raise
                failed = True
        return vectors

    def _tell_refused(self, count: int) -> None:
        if count:
            self._listen(
                f"The embedder {self._embedder.name} gave no usable vector for {count} of the memories; "
                "they are kept, but cannot be recalled."
            )

    def _space(self) -> Space:
        if self._own_space is None:
            name, dim = self._embedder.name, self._embedder.dim
            self._own_space = Space.find(self._db, self._folder, name, dim)
            if self._own_space is None:
                before = self.stats()
                self._own_space = Space.make(self._db, self._folder, name, dim)
                if before.embedder and before.count:
                    self._listen(
                        f"The memory was embedded by {before.embedder} ({before.dim} values); its {before.count} texts "
                        f"are embedded anew by {name} ({dim}), as the two cannot be compared."
                    )
        return self._own_space


def _hash(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()


def _unit_or_zero(vector: Vectors) -> bool:
    """False for NaN and infinity as well: no comparison with them holds."""
    square = float(np.square(vector, dtype=np.float64).sum())
    return square == 0 or abs(square - 1) < 0.01


def _recollection(columns: Sequence[Any], score: float) -> Recollection:
    id, text, kind, source, trusted, t, run, step = columns
    return Recollection(id, text, score, kind, source, bool(trusted), t, run, step)
