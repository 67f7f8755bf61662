"""Near-duplicates among memories, by the cosine of their vectors. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from autoagent.core.memory import PRIVATE_SOURCES, RetrievedMemory

AT_ONCE = 20_000_000  # cosines computed at once: 80 MB
LISTED = 20  # sources that a merged memory names


@dataclass(frozen=True, slots=True)
class DuplicateGroup:
    """A memory to keep and those that are nearly the same."""

    kept: RetrievedMemory
    others: tuple[RetrievedMemory, ...]

    @property
    def sources(self) -> str:
        """The distinct sources of all members: `a.html, run-1/3`, with those that make a memory private first."""
        every = [name for memory in (self.kept, *self.others) for name in _origin(memory).split(", ") if name]
        named = sorted(dict.fromkeys(every), key=lambda name: name not in PRIVATE_SOURCES)
        more = f", and {len(named) - LISTED} more" if len(named) > LISTED else ""
        return ", ".join(named[:LISTED]) + more


def groups(memories: Sequence[RetrievedMemory], vectors: Mapping[int, bytes], alike: float) -> list[DuplicateGroup]:
    """Return the groups of two or more. Each memory is in at most one. Memories without a vector are in none.

    The firmest memory (the newest of equals) takes all remaining memories whose cosine to it is at least `alike`, and
    so on, so every member is near the one that is kept. Memories that differ in kind, trust or a number stay apart:
    embedders hardly see numbers, and `the code is 7421` is not `the code is 7422`.
    """
    order = sorted((m for m in memories if m.id in vectors), key=lambda m: (-m.level, -m.t, m.id))
    if not order:
        return []
    matrix = np.frombuffer(b"".join(vectors[memory.id] for memory in order), "<f4").reshape(len(order), -1)
    free = np.ones(len(order), bool)
    found = []
    block = max(AT_ONCE // len(order), 1)
    for start in range(0, len(order), block):
        close = matrix[start : start + block] @ matrix[start:].T >= alike
        for at in np.flatnonzero(np.count_nonzero(close, axis=1) > 1).tolist():  # each is close to itself
            row = start + at
            if not free[row]:
                continue
            free[row] = False
            near = np.flatnonzero(close[at] & free[start:]) + start
            same = [other for other in near.tolist() if _key(order[other]) == _key(order[row])]
            if same:
                free[same] = False
                found.append(DuplicateGroup(order[row], tuple(order[other] for other in same)))
    return found


def _key(memory: RetrievedMemory) -> tuple[str, bool, list[str]]:
    return memory.kind, memory.trusted, sorted(re.findall(r"\w*\d\w*", memory.text))


def _origin(memory: RetrievedMemory) -> str:
    return memory.source or (f"{memory.run}/{memory.step}" if memory.run else "")
