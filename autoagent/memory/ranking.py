"""Ranking: which of the candidates that a store found are returned, in which order, and why the others are not. Pure.

1. Fusion. The candidates by cosine and those by words come in one order by a convex combination: a weighted mean of the
   two scores, each as a part of the best one of its list, 0 where a memory is not in it. (Bruch, Gai and Ingber, An
   Analysis of Fusion Functions for Hybrid Retrieval, ACM TOIS 2023, who find it better than reciprocal rank fusion; so
   do we, see benchmarks/recall_quality.py: with few candidates, ranks make much of being mediocre in both lists.)
2. Weighting. Relevance, recency (halved over and over, by the time since the memory last came back) and level. Park
   et al., Generative Agents (UIST 2023), add up relevance, recency and an importance that a model is asked for. Here
   they are multiplied, so that nothing comes in by being recent alone, and the level, earned by use, stands for the
   importance.
3. Diversity. Maximal marginal relevance: the next is the one with the best of lambda * score - (1 - lambda) * its
   greatest cosine to those already taken. (Carbonell and Goldstein, The Use of MMR, SIGIR 1998.)
4. The cut, to a number and to the tokens a prompt has room for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from autoagent.messages import LeftOut, Recall, Recollection

DAY = 86_400.0
SHOWN = 4  # a prompt shows of a memory no more than the room divided by this, so it counts for no more
CHOSEN = 2  # times the number asked for are weighed against one another, as some of them may not fit the room
LINE = 3  # tokens of the mark and the line break around a memory


@dataclass(frozen=True, slots=True)
class Weights:
    """How much counts what. `words`, `recency`, `level` and `diversity` are from 0 (not at all) to 1 (nothing else).

    `breadth`: candidates that each search gives, for each memory asked for. `words`: beside cosines. `half_life`:
    seconds. `floor`: a memory that shares no word with the query is too far when its cosine is below this part of the
    best one.
    """

    breadth: int = 4
    words: float = 0.4
    recency: float = 0.05
    half_life: float = 30 * DAY
    level: float = 0.05
    diversity: float = 0.1
    floor: float = 0.3


@dataclass(frozen=True, slots=True)
class Room:
    """The tokens there are for the memories returned, and how they are counted."""

    tokens: int
    count: Callable[[str], int]

    def cost(self, text: str) -> int:
        return min(self.count(text), max(self.tokens // SHOWN, 1)) + LINE


def rank(
    near: Sequence[Recollection],
    worded: Sequence[Recollection],
    *,
    n: int,
    now: float,
    weights: Weights,
    vectors: Mapping[int, bytes],
    room: Room | None = None,
) -> Recall:
    """At most n of the candidates, best first, each with its final score from 0 to 1; the others with the reason.

    Args:
        near: the candidates by cosine, best first, which is their `score`.
        worded: the candidates by words, best first; their `score` is 0 or more, on any scale.
        now: seconds since the epoch.
        vectors: unit vectors (float32) of the candidates, all of one dimension, as far as there are any.
        room: None for all the room in the world.

    The same arguments always give the same result: of equal scores the older id comes first.
    """
    fused = _fused(near, worded, weights)
    far = _too_far(near, {memory.id for memory in worded}, weights.floor)
    scores = {memory.id: score * _weight(memory, now, weights) for memory, score in fused}
    scored = sorted((memory for memory, _ in fused), key=lambda memory: (-scores[memory.id], memory.id))
    left_out = [LeftOut(memory.id, scores[memory.id], "too far") for memory in scored if memory.id in far]
    candidates = [memory for memory in scored if memory.id not in far]
    taken, likeness = _diverse(candidates, scores, vectors, weights.diversity, CHOSEN * n)
    returned, beyond = _cut(taken, n, room)
    first_n = {memory.id for memory in candidates[:n]}
    for memory, reason in beyond:
        alike, cosine = likeness.get(memory.id, (0, 0.0))
        if reason == _NUMBER and memory.id in first_n and alike:
            reason = f"too like memory {alike} (cosine {cosine:.2f})"
        left_out.append(LeftOut(memory.id, scores[memory.id], reason))
    left_out.sort(key=lambda candidate: (-candidate.score, candidate.id))
    return Recall(tuple(replace(memory, score=scores[memory.id]) for memory in returned), tuple(left_out))


def _fused(
    near: Sequence[Recollection], worded: Sequence[Recollection], weights: Weights
) -> list[tuple[Recollection, float]]:
    """Each candidate once, with its fused score: 1 where it is first in both lists."""
    memories: dict[int, Recollection] = {}
    scores: dict[int, float] = {}
    for found, weight in ((near, 1 - weights.words), (worded, weights.words)):
        best = max((memory.score for memory in found), default=0.0) or 1.0
        for memory in found:
            memories.setdefault(memory.id, memory)
            scores[memory.id] = scores.get(memory.id, 0.0) + weight * memory.score / best
    return [(memory, scores[id]) for id, memory in memories.items()]


def _too_far(near: Sequence[Recollection], by_words: set[int], floor: float) -> set[int]:
    least = floor * max((memory.score for memory in near), default=0.0)
    return {memory.id for memory in near if memory.score < least and memory.id not in by_words}


def _weight(memory: Recollection, now: float, weights: Weights) -> float:
    """At most 1: a memory of this moment and of an endless level."""
    age = max(now - memory.t, 0.0)
    recency = 0.5 ** (age / weights.half_life) if weights.half_life > 0 else 0.0
    level = memory.level / (memory.level + 1)
    return (1 - weights.recency * (1 - recency)) * (1 - weights.level * (1 - level))


def _diverse(
    candidates: Sequence[Recollection],
    scored: Mapping[int, float],
    vectors: Mapping[int, bytes],
    diversity: float,
    most: int,
) -> tuple[list[Recollection], dict[int, tuple[int, float]]]:
    """All candidates, the first `most` in the order of maximal marginal relevance, the others by their scores; for each
    the one that it is most like of those chosen before it."""
    matrix = _matrix(candidates, vectors)
    scores = np.array([scored[memory.id] for memory in candidates])
    nearest, nearest_of = np.zeros(len(candidates)), np.full(len(candidates), -1)
    open_, order = np.ones(len(candidates), bool), []
    for _ in candidates[:most]:
        worth = np.where(open_, (1 - diversity) * scores - diversity * nearest, -math.inf)
        taken = int(worth.argmax())  # of equal ones the first, which has the better score
        open_[taken] = False
        order.append(taken)
        cosines = np.vecdot(matrix, matrix[taken])  # not by `@`, whose threads have to be woken for it
        closer = open_ & (cosines > nearest)
        nearest[closer], nearest_of[closer] = cosines[closer], taken
    likeness = {
        candidates[row].id: (candidates[other].id, float(nearest[row]))
        for row, other in enumerate(nearest_of.tolist())
        if other >= 0
    }
    return [candidates[row] for row in (*order, *np.flatnonzero(open_))], likeness


def _matrix(candidates: Sequence[Recollection], vectors: Mapping[int, bytes]) -> NDArray[np.float32]:
    """Their vectors, shape (candidates, dim); zeros, which are like nothing, where there is none."""
    size = max((len(vectors[memory.id]) for memory in candidates if memory.id in vectors), default=4)
    rows = (vectors.get(memory.id, bytes(size)) for memory in candidates)
    return np.frombuffer(b"".join(rows), "<f4").reshape(len(candidates), -1) if candidates else np.empty((0, 1), "<f4")


_NUMBER = "beyond the number asked for"


def _cut(
    ordered: Sequence[Recollection], n: int, room: Room | None
) -> tuple[list[Recollection], list[tuple[Recollection, str]]]:
    """The first n that fit the room, and the others with the reason; after one too long a shorter one may still fit."""
    returned: list[Recollection] = []
    others: list[tuple[Recollection, str]] = []
    left = room.tokens if room else 0
    for memory in ordered:
        if len(returned) >= n:
            others.append((memory, _NUMBER))
            continue
        cost = room.cost(memory.text) if room else 0
        if room and cost > left:
            others.append((memory, f"beyond the room of {room.tokens} tokens"))
            continue
        left -= cost
        returned.append(memory)
    return returned, others
