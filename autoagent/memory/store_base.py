"""Provide a base class for memory stores, which prepares texts, embeds them and searches.

Extensions with a store use it in addition to `autoagent.extension`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, Unpack

from autoagent.core.errors import ModelError
from autoagent.core.memory import Change, Filter, Found, MemoryFields, RetrievedMemory
from autoagent.core.protocols import Embedder
from autoagent.memory import texts
from autoagent.memory.embedders.embedding import FLOAT, Embedding, Vector
from autoagent.memory.evidence import content_words
from autoagent.memory.ranking import search_filtered, search_wider
from autoagent.text.sanitize import valid_text

__all__ = ["BATCH", "FLOAT", "Skip", "StoreBase", "Vector", "search_wider", "texts", "valid_text"]

Skip = Collection[tuple[str, int]]
BATCH = 256  # texts embedded together, and stored in one transaction


class StoreBase(AbstractContextManager["StoreBase"], ABC):
    """Implement the part of a MemoryStore that does not depend on the storage.

    A text longer than `texts.PART` characters becomes several memories, of which `put` returns the first. A memory that
    could not be embedded is stored, found by its words, and embedded at a later search. Each instance belongs to one
    thread at a time. `listen` receives messages on additional work of the store.
    """

    def __init__(self, embedder: Embedder, listen: Callable[[str], None] = lambda line: None) -> None:
        self._embedding = Embedding(embedder, listen)
        self._listen = listen

    @abstractmethod
    def _storage(self) -> AbstractContextManager[object]:
        """Open the storage if necessary, and turn its errors into StateError."""

    @abstractmethod
    def _missing(self, parts: Sequence[str]) -> list[str]:
        """Return the texts that are not stored."""

    @abstractmethod
    def _put(
        self, parts: Sequence[str], metadata: Mapping[str, Any], vectors: Mapping[str, Vector], *, durable: bool
    ) -> int:
        """Store texts in one transaction, with their vectors if any. Return the id of the first.

        `metadata` has the fields t, stored, kind, source, trusted, run and step.
        """

    @abstractmethod
    def _change(self, changes: Sequence[Change], *, whole: bool, durable: bool, expired: float | None) -> int:
        """Apply changes as MemoryStore.change does, when there is something to do."""

    @abstractmethod
    def _without_vector(self, after: int) -> Mapping[int, str]:
        """Return at most BATCH texts without a vector of this embedder, by ascending ids above `after`."""

    @abstractmethod
    def _store_vectors(self, vectors: Mapping[int, Vector]) -> None:
        """Store the vectors of memories by id. Skip memories that are gone, or already have a vector."""

    @abstractmethod
    def _nearest(self, vector: Vector, k: int, skip: Skip) -> list[RetrievedMemory]:
        """Return the k memories nearest to a nonzero vector, for Found.near."""

    @abstractmethod
    def _matching(self, query: str, k: int, skip: Skip) -> list[RetrievedMemory]:
        """Return the k memories that share words with the query, for Found.worded."""

    @abstractmethod
    def _word_counts(self, words: Collection[str]) -> tuple[dict[str, int], int]:
        """Estimate how many memories contain each of these words, and how many memories there are."""

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

    def put(self, text: str, *, durable: bool = True, **metadata: Unpack[MemoryFields]) -> int | None:
        parts = list(dict.fromkeys(texts.parts(text)))
        if not parts:
            return None
        with self._storage():
            vectors = self._embedding.of_new(self._missing(parts))
            fields = {"stored": metadata["t"], **metadata, "source": valid_text(metadata["source"])}
            return self._put(parts, fields, vectors, durable=durable)

    def change(
        self, changes: Sequence[Change], *, whole: bool = False, durable: bool = True, expired: float | None = None
    ) -> int:
        if not changes and expired is None:
            return 0
        with self._storage():
            return self._change(changes, whole=whole, durable=durable, expired=expired)

    def search(self, query: str, k: int, skip: Skip = (), wanted: Filter | None = None) -> Found:
        """See MemoryStore. Only the first `texts.PART` characters of the query count."""
        text = valid_text(query)[: texts.PART]
        near: list[RetrievedMemory] = []
        with self._storage():
            if k < 1 or not text.strip() or not self.listed(1):  # do not embed the query in vain
                return Found((), (), {}, {}, {}, 0)
            words = content_words(text)
            counts, total = self._word_counts(words) if words else ({}, 0)
            worded = search_filtered(partial(self._matching, text, skip=skip), k, wanted)
            try:
                if (vector := self._embedding.of_query(text)).any():
                    self._embed_missing()
                    near = search_filtered(partial(self._nearest, vector, skip=skip), k, wanted)
                ids = list(dict.fromkeys(memory.id for memory in (*near, *worded)))
                vectors = self.vectors(ids) if ids else {}
                meaning = self._embedding.meaning(text, vectors) if vectors else {}
            except ModelError as error:
                return Found((), worded, {}, {}, counts, total, str(error))
        return Found(near, worded, vectors, meaning, counts, total)

    def _embed_missing(self) -> None:
        """Embed the memories that have no vector yet. Raises ModelError."""
        last = 0
        while batch := self._without_vector(last):
            last = max(batch)
            if vectors := self._embedding.of_stored(batch):
                self._store_vectors(vectors)

    def __exit__(self, *_: object) -> None:
        self.close()
