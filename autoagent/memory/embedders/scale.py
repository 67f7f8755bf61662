"""The scale of an embedder's cosines."""

from __future__ import annotations

from autoagent.core.protocols import Embedder

UNKNOWN = (0.2, 0.8)  # an embedder that declares no scale has to be near indeed


def scale_of(embedder: Embedder) -> tuple[float, float]:
    """Return the cosine of unrelated texts, and that of texts that belong together without doubt."""
    unrelated, related = getattr(embedder, "scale", UNKNOWN)
    return float(unrelated), float(related)
