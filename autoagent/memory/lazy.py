"""An embedder that waits until it is needed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property

from autoagent.core.model import Usage
from autoagent.core.protocols import Embedder
from autoagent.memory.embedders.scale import scale_of


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
