"""Ranking: the exact nearest, in an order that is always the same."""

import numpy as np
import pytest

from autoagent.memory.sqlite.vector_space import highest


def unit(rows: np.ndarray) -> np.ndarray:
    return (rows / np.linalg.norm(rows, axis=-1, keepdims=True)).astype("<f4")


@pytest.mark.parametrize("n", [0, 1, 9, 10, 11, 500, 3000])
def test_it_finds_what_a_search_through_all_finds(n: int) -> None:
    random = np.random.default_rng(n)
    vectors, query = unit(random.standard_normal((n, 32))), unit(random.standard_normal(32))
    scores = vectors @ query
    slowly = sorted((row for row in range(n) if float(vectors[row] @ query) > 0), key=lambda row: -scores[row])
    assert highest(scores, 10).tolist() == slowly[:10]


def test_of_equal_scores_the_lower_row_comes_first_also_at_the_edge() -> None:
    scores = np.array([0.5, 0.9, 0.5, 0.9, 0.5, 0.5], "<f4")
    assert highest(scores, 4).tolist() == [1, 3, 0, 2]
    assert highest(scores, 6).tolist() == [1, 3, 0, 2, 4, 5]


def test_what_shares_no_direction_does_not_come_back() -> None:
    scores = np.array([0.0, -0.2, 0.1, -1.0], "<f4")
    assert highest(scores, 10).tolist() == [2]
    assert highest(np.zeros(3, "<f4"), 2).tolist() == []
