"""Load an embedder on first use, count its cost, and define the scale of its cosines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property

from autoagent.core.model import Usage
from autoagent.core.protocols import Embedder

UNKNOWN_SCALE = (0.2, 0.8)  # strict, for embedders that do not declare a scale


def scale_of(embedder: Embedder) -> tuple[float, float]:
    """Return the cosines of unrelated and of clearly related texts."""
    unrelated, related = getattr(embedder, "scale", UNKNOWN_SCALE)
    return float(unrelated), float(related)


class LazyEmbedder:
    """Call `load` on first use. Satisfies Embedder."""

    def __init__(self, load: Callable[[], Embedder]) -> None:
        self._load = load
        self._usage = Usage()

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
        vectors, usage = self._embedder.embed(texts)
        self._usage += usage
        return vectors, usage

    def take_usage(self) -> Usage:
        usage, self._usage = self._usage, Usage()
        return usage
