"""Ranking: which stored vectors are nearest to a query. Pure; nothing here knows of files or texts."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def cosines(vectors: NDArray[np.float32], query: NDArray[np.float32]) -> NDArray[np.float32]:
    """The cosine of each row with the query, exact: shapes (n, dim) and (dim,), all of unit length or zero -> (n,)."""
    return vectors @ query


def best(scores: NDArray[np.float32], count: int) -> NDArray[np.intp]:
    """The rows of the `count` highest scores above 0, best first; of equal scores the lower row comes first.

    A score of 0 or below means that the texts share no direction: such a row fits no better than none.
    """
    if count < len(scores):
        edge = np.partition(scores, len(scores) - count)[len(scores) - count]
        rows = np.flatnonzero(scores >= edge)  # everything that ties with the last one is still in
    else:
        rows = np.arange(len(scores))
    rows = rows[scores[rows] > 0]
    order = np.argsort(-scores[rows], kind="stable")
    return rows[order][:count]
