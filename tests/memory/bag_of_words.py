"""A small real embedder: a text is the sum of its words' directions, which a hash gives; and one that can fail."""

import hashlib
from collections.abc import Mapping, Sequence

import numpy as np

from autoagent.core.errors import Unreachable
from autoagent.core.model import Usage


class BagOfWords:
    """Satisfies Embedder; each embedded text costs a token a word."""

    def __init__(self, dim: int = 64) -> None:
        self.name = f"bag-of-words-{dim}"
        self.dim = dim
        self.embedded: list[str] = []  # every text it was asked for, in order

    def embed(self, texts: Sequence[str]) -> tuple[list[bytes], Usage]:
        self.embedded += texts
        return [self._vector(text).tobytes() for text in texts], Usage(prompt=sum(len(t.split()) for t in texts))

    def _vector(self, text: str) -> np.ndarray:
        total = np.zeros(self.dim)
        for word in text.lower().split():
            seed = int.from_bytes(hashlib.sha256(word.encode()).digest()[:8], "big")
            total += np.random.default_rng(seed).standard_normal(self.dim)
        length = np.linalg.norm(total)
        return (total / length if length else total).astype("<f4")


class Wavering(BagOfWords):
    """An endpoint that fails while it is `down`, and gives the vectors of `refused` for the texts there."""

    def __init__(self, refused: Mapping[str, bytes] | None = None, *, down: bool = False) -> None:
        super().__init__()
        self.refused = refused or {}
        self.down = down

    def embed(self, texts: Sequence[str]) -> tuple[list[bytes], Usage]:
        if self.down:
            raise Unreachable("The endpoint is down.")
        vectors, usage = super().embed(texts)
        return [self.refused.get(text, vector) for text, vector in zip(texts, vectors, strict=True)], usage
