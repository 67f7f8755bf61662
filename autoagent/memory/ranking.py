"""Ranking: selects and orders the candidates of a store, and gives a reason for each one left out. Pure functions.

1. Fit. The weighted sum of three scores, each relative to the best candidate's: meaning, words, and the evidence that
the gate weighs, so that rank and gate agree. It is a convex combination (Bruch, Gai and Ingber, An Analysis of Fusion
Functions for Hybrid Retrieval, ACM TOIS 2023), and benchmarks/memory_quality.py agrees that it beats reciprocal ranks.
2. Weight. Relevance times recency (an exponential decay since the last recall) times level. Park et al., Generative
Agents (UIST 2023), add relevance, recency and an importance judged by a model. The product lets no memory in for being
recent alone, and the level, earned by use, replaces the importance. 3. Diversity. Maximal marginal relevance: next is
the candidate with the highest lambda * score - (1 - lambda) * its greatest cosine to those chosen (Carbonell and
Goldstein, The Use of MMR, SIGIR 1998).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from autoagent.core.memory import LeftOut, Recall, RetrievedMemory

DAY = 86_400.0
SUPERSEDED_WEIGHT = 0.5  # of a memory of which a newer one says otherwise


@dataclass(frozen=True, slots=True)
class RankingWeights:
    """The weights of a ranking. `words`, `recency`, `level` and `diversity` range from 0 (ignored) to 1 (alone).

    `breadth`: candidates of each search per requested memory. `words`: their weight against meaning. `evidence`: its
    weight beside both. `half_life`: seconds.
    """

    breadth: int = 4
    words: float = 0.4
    evidence: float = 0.6
    recency: float = 0.05
    half_life: float = 30 * DAY
    level: float = 0.05
    diversity: float = 0.1


@dataclass(frozen=True, slots=True)
class Candidate:
    """A memory found, with its nearness in meaning, its score by words, and the evidence for it, each 0 if unknown.

    `echoes`: it repeats goals, as the record of a run does, so others are not measured by it.
    """

    memory: RetrievedMemory
    meaning: float
    words: float
    evidence: float
    echoes: bool = False


def rank(
    found: Sequence[Candidate],
    *,
    n: int,
    now: float,
    weights: RankingWeights,
    vectors: Mapping[int, bytes],
    enough: float = 0.0,
    part: float = 0.0,
) -> Recall:
    """Return at most n candidates, best first, with final scores from 0 to 1, and the others with the reason.

    Args:
        found: the candidates. Their scores may have any scale from 0 on.
        now: seconds since the epoch.
        enough: the evidence that a memory needs, whatever its rank; `part`: of the best score.
        vectors: the known unit vectors (float32) of the candidates, all of one dimension.

    The result is deterministic: of equal scores the older id comes first.
    """
    shares = (1 - weights.words, weights.words, weights.evidence)
    best = [max(values) or 1.0 for values in zip(*((c.meaning, c.words, c.evidence) for c in found), strict=True)]
    scores: dict[int, float] = {}
    for one in found:
        memory, values = one.memory, (one.meaning, one.words, one.evidence)
        age = max(now - memory.t, 0.0)
        recency = 0.5 ** (age / weights.half_life) if weights.half_life > 0 else 0.0
        earned = (1 - weights.recency * (1 - recency)) * (1 - weights.level / (memory.level + 1))
        fit = sum(share * value / most for share, value, most in zip(shares, values, best, strict=True)) / sum(shares)
        scores[memory.id] = fit * earned * (SUPERSEDED_WEIGHT if memory.superseded_by is not None else 1.0)
    evidence = {one.memory.id: one.evidence for one in found}
    scored = sorted((one.memory for one in found), key=lambda memory: (-scores[memory.id], memory.id))
    fitting = [memory for memory in scored if evidence[memory.id] >= enough]
    echoes = {one.memory.id for one in found if one.echoes}
    least = part * next((scores[memory.id] for memory in fitting if memory.id not in echoes), 0.0)
    candidates = [memory for memory in fitting if scores[memory.id] >= least]
    returned, others = _choose(candidates, n, scores, vectors, weights.diversity)
    others += [(memory, "fits far less than the best") for memory in fitting if scores[memory.id] < least]
    others += [(memory, "fits too little") for memory in scored if evidence[memory.id] < enough]
    left_out = sorted(
        (LeftOut(memory.id, scores[memory.id], reason) for memory, reason in others),
        key=lambda one: (-one.score, one.id),
    )
    return Recall(tuple(replace(memory, score=scores[memory.id]) for memory in returned), tuple(left_out))


def widened(
    best: Callable[[int], tuple[list[RetrievedMemory], bool]], k: int, skip: Collection[tuple[str, int]], slack: int
) -> list[RetrievedMemory]:
    """Return the first k that are not to be skipped. `best(count)` returns the best `count`, and whether that is all.

    The first request asks for k, the number to skip, and `slack`.
    """
    skipped, count = frozenset(skip), k + len(skip) + slack
    while True:
        memories, all_there = best(count)
        found = [memory for memory in memories if (memory.run, memory.step) not in skipped]
        if len(found) >= k or all_there:
            return found[:k]
        count *= 4


def _choose(
    candidates: Sequence[RetrievedMemory],
    n: int,
    scored: Mapping[int, float],
    vectors: Mapping[int, bytes],
    diversity: float,
) -> tuple[list[RetrievedMemory], list[tuple[RetrievedMemory, str]]]:
    """Choose at most n of the candidates by maximal marginal relevance. Return the others with the reason."""
    size = max((len(vectors[memory.id]) for memory in candidates if memory.id in vectors), default=4)
    rows = b"".join(vectors.get(memory.id, bytes(size)) for memory in candidates)  # zeros resemble nothing
    matrix = np.frombuffer(rows, "<f4").reshape(len(candidates), size // 4)
    worth = (1 - diversity) * np.array([scored[memory.id] for memory in candidates])
    nearest, nearest_of = np.zeros(len(candidates)), np.zeros(len(candidates), int)
    chosen: dict[int, RetrievedMemory] = {}
    while len(chosen) < min(n, len(candidates)):
        row = int((worth - diversity * nearest).argmax())  # of equal ones the first, which has the better score
        chosen[row] = candidates[row]
        worth[row] = -math.inf
        cosines = np.vecdot(matrix, matrix[row])  # not by `@`, whose threads have to be woken for it
        nearest_of[cosines > nearest] = candidates[row].id
        np.maximum(nearest, cosines, out=nearest)
    others = []
    for row, memory in enumerate(candidates):
        if row not in chosen:
            alike = row < n and nearest_of[row]
            like = f"too like memory {nearest_of[row]} (cosine {nearest[row]:.2f})"
            others.append((memory, like if alike else "beyond the number asked for"))
    return list(chosen.values()), others
