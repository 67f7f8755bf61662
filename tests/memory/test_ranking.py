"""Ranking: fused from two lists, weighted by recency and level, diverse, and cut."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoagent.core.memory import RUN_RECORD, Found, Recall, RetrievedMemory
from autoagent.memory import ranking
from autoagent.memory.ranking import DAY, RankingWeights

NOW = 1000 * DAY
PLAIN = RankingWeights(words=0.5, recency=0, level=0, diversity=0, evidence=0)


def memory(id: int, score: float = 0.5, *, age: float = 0.0, level: int = 0, text: str = "") -> RetrievedMemory:
    return RetrievedMemory(id, text or f"fact {id}", score, t=NOW - age, level=level)


def near(*ids: int) -> list[RetrievedMemory]:
    return [memory(id, 0.9 - place / 100) for place, id in enumerate(ids)]


def rank(
    near: Sequence[RetrievedMemory],
    worded: Sequence[RetrievedMemory],
    *,
    vectors: Mapping[int, bytes],
    evidence: Mapping[int, float] | None = None,
    **rest: Any,
) -> Recall:
    """Rank what two searches have found, each with its scores."""
    memories = {m.id: m for m in (*worded, *near)}
    found = Found(near, worded, vectors, {m.id: m.score for m in near}, {}, 0)
    return ranking.rank(list(memories.values()), found, evidence or dict.fromkeys(memories, 0.0), now=NOW, **rest)


def ids(recall: Recall) -> list[int]:
    return [memory.id for memory in recall.memories]


def unit(*values: float) -> bytes:
    return (np.array(values, "<f4") / np.linalg.norm(values)).astype("<f4").tobytes()


def test_a_memory_in_both_lists_comes_before_one_that_is_first_in_either() -> None:
    recall = rank(near(1, 2, 3), near(4, 2, 5), n=10, weights=PLAIN, vectors={})
    assert ids(recall) == [2, 1, 4, 3, 5]
    assert recall.memories[0].score == pytest.approx(0.89 / 0.9)
    assert recall.memories[1].score == pytest.approx(0.5)
    assert recall.left_out == ()


def test_recency_halves_with_every_half_life() -> None:
    weights = RankingWeights(recency=1, half_life=DAY, level=0, diversity=0, evidence=0)
    found = [memory(1, age=2 * DAY), memory(2, age=0), memory(3, age=-5 * DAY)]
    scores = {m.id: m.score for m in rank(found, found, n=3, weights=weights, vectors={}).memories}
    assert scores[1] == pytest.approx(0.25)
    assert scores[2] == pytest.approx(1)
    assert scores[3] == pytest.approx(1)  # the clock went backwards: no memory is younger than now


def test_being_recent_does_not_bring_in_what_does_not_fit() -> None:
    old, new = memory(1, age=365 * DAY), memory(2)
    recall = rank([old, *near(*range(10, 40)), new], [old], n=3, weights=RankingWeights(), vectors={})
    assert ids(recall)[0] == 1 and 2 not in ids(recall)


def test_of_two_that_fit_as_well_the_firmer_comes_first() -> None:
    weights = replace(PLAIN, level=0.05)
    recall = rank([memory(1)], [memory(2, level=3)], n=2, weights=weights, vectors={})
    assert ids(recall) == [2, 1]


def test_of_equal_ones_the_older_id_comes_first() -> None:
    assert ids(rank([memory(9)], [memory(4)], n=2, weights=PLAIN, vectors={})) == [4, 9]


def test_a_memory_like_one_already_taken_gives_way_to_another() -> None:
    vectors = {1: unit(1, 0, 0), 2: unit(1, 0.01, 0), 3: unit(0, 1, 0)}
    weights = RankingWeights(recency=0, level=0, diversity=0.3, evidence=0)
    found = near(1, 2, 3)
    recall = rank(found, found, n=2, weights=weights, vectors=vectors)
    assert ids(recall) == [1, 3]
    assert [(out.id, out.reason) for out in recall.left_out] == [(2, "too similar to memory 1 (cosine 1.00)")]


def test_what_has_too_little_evidence_or_fits_far_less_than_the_best_is_left_out() -> None:
    found = [memory(1, 0.8), memory(2, 0.7), memory(3, 0.3), memory(4, 0.75)]
    evidence = {1: 1.2, 2: 0.7, 3: 0.9, 4: 1.1}
    recall = rank(found, [], n=10, weights=PLAIN, vectors={}, evidence=evidence, min_evidence=0.8, min_share=0.9)
    assert ids(recall) == [1, 4]
    assert {out.id: out.reason for out in recall.left_out} == {
        2: "matches too little",
        3: "matches far worse than the best",
    }


def test_a_memory_that_repeats_the_query_sets_no_bar_for_the_others() -> None:
    for text, left in ((f"{RUN_RECORD}fact", [1, 2]), ("fact", [1])):
        near, worded = ([memory(1, 0.9, text=text), memory(2, score)] for score in (0.5, 0.4))
        recall = rank(
            near, worded, vectors={}, evidence={1: 2.0, 2: 1.0}, n=5, weights=PLAIN, min_evidence=0.8, min_share=0.9
        )
        assert ids(recall) == left


def test_evidence_lifts_what_words_alone_would_put_behind() -> None:
    found = [memory(1, 0.8), memory(2, 0.75)]
    assert ids(rank(found, [], n=2, weights=PLAIN, vectors={}, evidence={1: 0.5, 2: 1.5})) == [1, 2]
    weights = replace(PLAIN, evidence=0.6)
    assert ids(rank(found, [], n=2, weights=weights, vectors={}, evidence={1: 0.5, 2: 1.5})) == [2, 1]


def test_the_number_cuts_and_says_so() -> None:
    found = near(1, 2, 3, 4)
    recall = rank(found, found, n=3, weights=PLAIN, vectors={})
    assert ids(recall) == [1, 2, 3]
    assert [(out.id, out.reason) for out in recall.left_out] == [(4, "beyond the number asked for")]


def test_nothing_found_recalls_nothing() -> None:
    assert rank([], [], n=5, weights=RankingWeights(), vectors={}) == Recall()
    assert rank(near(1), [], n=0, weights=RankingWeights(), vectors={}).memories == ()


memories = st.lists(
    st.builds(
        memory,
        st.integers(1, 12),
        st.floats(0.001, 1),
        age=st.floats(-1e9, 1e9),
        level=st.integers(0, 5),
        text=st.text(max_size=40),
    ),
    unique_by=lambda m: m.id,
    max_size=12,
)
shares = st.floats(0, 1)
weightings = st.builds(
    RankingWeights,
    words=shares,
    recency=shares,
    level=shares,
    diversity=shares,
    evidence=shares,
    half_life=st.floats(0, 1e9),
)


@pytest.mark.slow
@given(memories, memories, st.integers(0, 15), weightings, st.integers())
def test_every_candidate_is_returned_or_left_out_with_a_reason(
    by_cosine: list[RetrievedMemory], by_words: list[RetrievedMemory], n: int, weights: RankingWeights, seed: int
) -> None:
    candidates = {m.id for m in (*by_cosine, *by_words)}
    random = Random(seed)
    vectors = {id: unit(random.gauss(0, 1), random.gauss(0, 1)) for id in candidates if random.random() < 0.8}
    recall = rank(by_cosine, by_words, n=n, weights=weights, vectors=vectors)
    returned, left_out = ids(recall), [out.id for out in recall.left_out]
    assert sorted(returned + left_out) == sorted(candidates)
    assert len(returned) <= n
    assert all(0 <= m.score <= 1 + 1e-9 and math.isfinite(m.score) for m in (*recall.memories, *recall.left_out))
    assert all(out.reason for out in recall.left_out)
    again = rank(by_cosine, by_words, n=n, weights=weights, vectors=vectors)
    assert again == recall
