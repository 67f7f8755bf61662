"""An embedder that waits until it is needed, and the scale of any embedder's cosines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property

from autoagent.core.model import Usage
from autoagent.core.protocols import Embedder

UNKNOWN = (0.2, 0.8)  # an embedder that declares no scale has to be near indeed


def scale_of(embedder: Embedder) -> tuple[float, float]:
    """Return the cosine of unrelated texts, and that of texts that belong together without doubt."""
    unrelated, related = getattr(embedder, "scale", UNKNOWN)
    return float(unrelated), float(related)


class LazyEmbedder:
    """Satisfies Embedder. Calls `load` at first use."""

    def __init__(self, load: Callable[[], Embedder]) -> None:
        self._load = load

    @cached_property
    def _embedder(self) -> Embedder:
        return self._load()

    @property
    def name(self) -> str:
        return self._embedder.name

    @property
    def dim(self) -> int:
        return self._embedder.dim

    @property
    def scale(self) -> tuple[float, float]:
        return scale_of(self._embedder)

    def embed(self, texts: Sequence[str]) -> tuple[list[bytes], Usage]:
        return self._embedder.embed(texts)
