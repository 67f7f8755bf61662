"""A base class for memory stores: preparing texts, embedding, and searching.

Extensions with a store use it beside `autoagent.extension`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, Unpack

from autoagent.core.errors import ModelError
from autoagent.core.memory import Change, Found, Known, RetrievedMemory, Wanted
from autoagent.core.protocols import Embedder
from autoagent.memory import texts
from autoagent.memory.embedders.embedding import FLOAT, Embedding, Vector
from autoagent.memory.evidence import terms
from autoagent.memory.ranking import filtered, widened
from autoagent.text.sanitize import valid

__all__ = ["BATCH", "FLOAT", "Skip", "StoreBase", "Vector", "texts", "valid", "widened"]

Skip = Collection[tuple[str, int]]
BATCH = 256  # texts embedded together, and stored in one transaction


class StoreBase(AbstractContextManager["StoreBase"], ABC):
    """The part of a MemoryStore that does not depend on the storage.

    A text longer than `texts.PART` characters becomes several memories. `put` returns the first. A memory whose vector
    could not be made is kept, found by its words, and embedded at a later search. Each instance belongs to one thread
    at a time. `listen` hears, in one line, about additional work of the store.
    """

    def __init__(self, embedder: Embedder, listen: Callable[[str], None] = lambda line: None) -> None:
        self._embedding = Embedding(embedder, listen)
        self._listen = listen

    @abstractmethod
    def _ours(self) -> AbstractContextManager[object]:
        """Open the storage if needed, and turn its errors into StateError."""

    @abstractmethod
    def _not_there(self, parts: Sequence[str]) -> list[str]:
        """Return those of these texts that are not kept."""

    @abstractmethod
    def _put(
        self, parts: Sequence[str], known: Mapping[str, Any], vectors: Mapping[str, Vector], *, durable: bool
    ) -> int:
        """Store texts in one transaction, with the vectors that there are. Return the first's id.

        `known` has the fields t, stored, kind, source, trusted, run and step.
        """

    @abstractmethod
    def _change(self, changes: Sequence[Change], *, whole: bool, durable: bool, expired: float | None) -> int:
        """Apply changes as MemoryStore.change does, where there is something to do."""

    @abstractmethod
    def _wanting(self, after: int) -> Mapping[int, str]:
        """Return texts that have no vector by this embedder, at most BATCH, of ids above `after` in their order."""

    @abstractmethod
    def _keep_vectors(self, vectors: Mapping[int, Vector]) -> None:
        """Store vectors of kept texts, by id. One that has meanwhile got its vector, or is gone, is passed over."""

    @abstractmethod
    def _nearest(self, vector: Vector, k: int, skip: Skip) -> list[RetrievedMemory]:
        """Return the k memories nearest to a vector that is not zero, as Found.near."""

    @abstractmethod
    def _worded(self, query: str, k: int, skip: Skip) -> list[RetrievedMemory]:
        """Return the k memories that share words with the query, as Found.worded."""

    @abstractmethod
    def _word_counts(self, words: Collection[str]) -> tuple[dict[str, int], int]:
        """Return for each of these words in how many memories it is, and how many there are, both about."""

    @abstractmethod
    def listed(
        self, limit: int = -1, offset: int = 0, *, of_user: bool = False, trash: bool = False
    ) -> list[RetrievedMemory]:
        """See MemoryStore."""

    @abstractmethod
    def vectors(self, ids: Sequence[int]) -> dict[int, bytes]:
        """See MemoryStore."""

    @abstractmethod
    def close(self) -> None:
        """Close the store."""

    def put(self, text: str, *, durable: bool = True, **known: Unpack[Known]) -> int | None:
        """See MemoryStore."""
        parts = list(dict.fromkeys(texts.parts(text)))
        if not parts:
            return None
        with self._ours():
            vectors = self._embedding.of_new(self._not_there(parts))
            fields = {"stored": known["t"], **known, "source": valid(known["source"])}
            return self._put(parts, fields, vectors, durable=durable)

    def change(
        self, changes: Sequence[Change], *, whole: bool = False, durable: bool = True, expired: float | None = None
    ) -> int:
        """See MemoryStore."""
        if not changes and expired is None:
            return 0
        with self._ours():
            return self._change(changes, whole=whole, durable=durable, expired=expired)

    def search(self, query: str, k: int, skip: Skip = (), wanted: Wanted | None = None) -> Found:
        """See MemoryStore. Only the first `texts.PART` characters of the query count."""
        text = valid(query)[: texts.PART]
        near: list[RetrievedMemory] = []
        with self._ours():
            if k < 1 or not text.strip() or not self.listed(1):  # the query is not embedded for nothing
                return Found((), (), {}, {}, {}, 0)
            words = terms(text)
            counts, total = self._word_counts(words) if words else ({}, 0)
            worded = filtered(partial(self._worded, text, skip=skip), k, wanted)
            try:
                if (vector := self._embedding.of_query(text)).any():
                    self._embed_missing()
                    near = filtered(partial(self._nearest, vector, skip=skip), k, wanted)
                ids = list(dict.fromkeys(memory.id for memory in (*near, *worded)))
                vectors = self.vectors(ids) if ids else {}
                meaning = self._embedding.meaning(text, vectors) if vectors else {}
            except ModelError as error:
                return Found((), worded, {}, {}, counts, total, str(error))
        return Found(near, worded, vectors, meaning, counts, total)

    def _embed_missing(self) -> None:
        """Make the vectors that are still to be made. Raises ModelError."""
        last = 0
        while batch := self._wanting(last):
            last = max(batch)
            if vectors := self._embedding.of_kept(batch):
                self._keep_vectors(vectors)

    def __exit__(self, *_: object) -> None:
        self.close()
