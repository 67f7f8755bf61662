"""Embed texts for a store, and check the vectors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from autoagent.core.errors import ModelError, QuotaExceeded, Unreachable
from autoagent.core.protocols import Embedder
from autoagent.memory.embedders.lazy import scale_of

FLOAT = np.dtype("<f4")

Vector = NDArray[np.float32]


class Embedding:
    """Embed texts as vectors of unit length or zero. `listen` reports texts without a vector."""

    def __init__(self, embedder: Embedder, listen: Callable[[str], None]) -> None:
        self._embedder = embedder
        self._listen = listen
        self._rejected: set[int] = set()  # memories for which the embedder gave no usable vector
        self._reported = ""  # the last reported failure
        self._recent: dict[str, Vector] = {}  # of the texts last stored, as an agent often recalls by its last step
        self._query: dict[str, Vector] = {}  # of the last query, which its results are compared with

    @property
    def name(self) -> str:
        return self._embedder.name

    @property
    def dim(self) -> int:
        return self._embedder.dim

    def report_change(self, old_name: str, old_dim: int, count: int) -> None:
        """Report that texts embedded by another embedder are now embedded by this one."""
        self._listen(
            f"The memory was embedded by {old_name} ({old_dim} values); its {count} texts are embedded again by "
            f"{self.name} ({self.dim}), as the two cannot be compared."
        )

    def of_query(self, text: str) -> Vector:
        """Return the vector of a query. Raises ModelError if the embedder fails or gives no usable vector."""
        if text in self._recent:
            return self._recent[text]
        if text not in self._query:
            self._query = self._embed([text])
        if text not in self._query:
            raise ModelError(
                f"The embedder {self.name} did not give a unit vector of {self.dim} values, so that nothing can be "
                "recalled; choose another EMBEDDING_MODEL."
            )
        return self._query[text]

    def meaning(self, text: str, vectors: Mapping[int, bytes]) -> dict[int, float]:
        """Return by id how near vectors are to a query: 0 is unrelated, 1 or more near. Raises like `of_query`."""
        query, (unrelated, related) = self.of_query(text), scale_of(self._embedder)
        rows = np.frombuffer(b"".join(vectors.values()), FLOAT).reshape(len(vectors), -1)
        nearness = np.maximum(np.vecdot(rows, query) - unrelated, 0.0) / (related - unrelated)
        return dict(zip(vectors, nearness.tolist(), strict=True))

    def of_new(self, texts: Sequence[str]) -> dict[str, Vector]:
        """Return the vectors of new texts, or {} after a reported failure of the embedder."""
        if not texts:
            return {}
        try:
            vectors = self._embed(texts)
        except ModelError as error:
            problem = f"Memories are kept, but found only by their words until they are embedded: {error}"
            if problem != self._reported:
                self._listen(problem)
            self._reported = problem
            return {}
        self._reported = ""
        self._report_rejected(len(texts) - len(vectors))
        self._recent = vectors
        return vectors

    def of_stored(self, texts: Mapping[int, str]) -> dict[int, Vector]:
        """Return by id the vectors of stored texts that are not rejected. Raises ModelError if no text is the cause."""
        pending = {id: text for id, text in texts.items() if id not in self._rejected}
        if not pending:
            return {}
        try:
            vectors = self._embed(list(pending.values()))
        except ModelError:  # a single rejected text must not exclude the others
            vectors = self._embed_singly(list(pending.values()))
        rejected = {id for id, text in pending.items() if text not in vectors}
        self._rejected |= rejected
        self._report_rejected(len(rejected))
        return {id: vectors[text] for id, text in pending.items() if id not in rejected}

    def _embed(self, texts: Sequence[str]) -> dict[str, Vector]:
        """Embed the texts, dropping vectors of a wrong dimension or length."""
        vectors, _ = self._embedder.embed(texts)
        size = self.dim * FLOAT.itemsize
        pairs = zip(texts, vectors, strict=False)
        sized = {text: np.frombuffer(vector, FLOAT) for text, vector in pairs if len(vector) == size}
        squares = {text: float(np.square(vector, dtype=np.float64).sum()) for text, vector in sized.items()}
        return {text: sized[text] for text, square in squares.items() if square == 0 or abs(square - 1) < 0.01}

    def _embed_singly(self, texts: Sequence[str]) -> dict[str, Vector]:
        """Embed the texts one by one, skipping failures. Raises a second consecutive failure, and an outage."""
        vectors: dict[str, Vector] = {}
        has_failed = False  # at the text before
        for text in texts:
            try:
                vectors |= self._embed([text])
                has_failed = False
            except ModelError as error:
                if has_failed or isinstance(error, (QuotaExceeded, Unreachable)):
                    raise
                has_failed = True
        return vectors

    def _report_rejected(self, count: int) -> None:
        if count:
            self._listen(
                f"The embedder {self.name} gave no usable vector for {count} of the memories; "
                "they are kept, but cannot be recalled by meaning."
            )
