"""A base class for memory stores, with the preparation of texts, words and vectors that all stores share.

Extensions with a store use it beside `autoagent.extension`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager
from typing import Self

from autoagent.core.memory import RetrievedMemory
from autoagent.core.model import Usage
from autoagent.core.protocols import Embedder
from autoagent.memory import texts
from autoagent.memory.embedders.embedding import FLOAT, Embedding, Vector
from autoagent.memory.ranking import widened
from autoagent.text.sanitize import valid

__all__ = ["FLOAT", "Skip", "StoreBase", "Vector", "texts", "valid", "widened"]

Skip = Collection[tuple[str, int]]


class StoreBase(ABC):
    """The part of a MemoryStore that does not depend on the storage.

    A text longer than `texts.PART` characters becomes several memories. `put` returns the first. A memory whose vector
    could not be made is kept, found by its words, and embedded at a later search. Each instance belongs to one thread
    at a time. `listen` hears, in one line, about additional work of the store.
    """

    def __init__(self, embedder: Embedder, listen: Callable[[str], None] = lambda line: None) -> None:
        self._embedding = Embedding(embedder, listen)
        self._listen = listen

    @abstractmethod
    def close(self) -> None:
        """Close the store."""

    @abstractmethod
    def _ours(self) -> AbstractContextManager[object]:
        """Open the storage if needed, and turn its errors into StateError."""

    @abstractmethod
    def _is_empty(self) -> bool:
        """Return whether there is nothing to find."""

    @abstractmethod
    def _embed_missing(self) -> None:
        """Make the vectors that are still to be made. Raises ModelError."""

    @abstractmethod
    def _nearest(self, vector: Vector, k: int, skip: Skip) -> list[RetrievedMemory]:
        """Return the k memories nearest to a vector that is not zero, as `near` does."""

    def near(self, query: str, k: int, skip: Skip = ()) -> list[RetrievedMemory]:
        """As MemoryStore. Only the first `texts.PART` characters of the query count."""
        text = texts.query(query)
        with self._ours():
            if k < 1 or not text.strip() or self._is_empty():
                return []
            vector = self._embedding.of_query(text)
            if not vector.any():
                return []
            self._embed_missing()
            return self._nearest(vector, k, skip)

    def meaning(self, query: str, vectors: Mapping[int, bytes]) -> dict[int, float]:
        text = texts.query(query)
        return self._embedding.meaning(text, vectors) if vectors and text.strip() else {}

    def take_usage(self) -> Usage:
        return self._embedding.take_usage()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
