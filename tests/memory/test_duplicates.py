"""Near-duplicates: groups around the firmest, never along a chain."""

import math

import numpy as np

from autoagent.core.memory import RetrievedMemory
from autoagent.memory.duplicates import MAX_SOURCES, DuplicateGroup, find_groups


def memory(id: int, level: int = 0, **given: str) -> RetrievedMemory:
    return RetrievedMemory(id, "a fact", 0.0, t=float(id), level=level, **given)


def at_angle(degrees: float) -> bytes:
    return np.array([math.cos(math.radians(degrees)), math.sin(math.radians(degrees))], "<f4").tobytes()


def shown(found: list[DuplicateGroup]) -> list[tuple[int, list[int]]]:
    return [(group.kept.id, [other.id for other in group.others]) for group in found]


def test_a_group_is_around_its_firmest_memory_and_drifts_along_no_chain() -> None:
    alike = math.cos(math.radians(10))
    vectors = {id: at_angle(8 * id) for id in range(1, 6)}  # each is near its neighbours alone
    assert shown(find_groups([memory(id) for id in vectors], vectors, alike)) == [(5, [4]), (3, [2])]
    firm = [memory(id, level=3 if id == 4 else 0) for id in vectors]
    assert shown(find_groups(firm, vectors, alike)) == [(4, [5, 3]), (2, [1])]


def test_a_memory_without_a_vector_or_a_direction_is_in_no_group() -> None:
    vectors = {1: at_angle(0), 2: bytes(8), 3: bytes(8)}
    assert find_groups([memory(id) for id in (1, 2, 3, 4)], vectors, 0.9) == []
    assert find_groups([], {}, 0.9) == []


def test_duplicates_are_found_however_far_apart_they_stand() -> None:
    random = np.random.default_rng(2)
    rows = random.standard_normal((6000, 16)).astype("<f4")  # more than are compared at once
    rows[5999], rows[3100], rows[10] = rows[0], rows[1], rows[2]
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    vectors = {id: row.tobytes() for id, row in enumerate(rows)}
    found = find_groups([memory(id) for id in vectors], vectors, 0.9999)
    assert shown(found) == [(5999, [0]), (3100, [1]), (10, [2])]


def test_the_sources_are_listed_once_each_and_not_without_end() -> None:
    two = DuplicateGroup(
        memory(1, source="b.html, a.html"), (memory(2, source="a.html"), memory(3), memory(4, run="r1"))
    )
    assert two.sources == "b.html, a.html, r1/0"
    many = DuplicateGroup(memory(1), tuple(memory(n, source=f"{n}.html") for n in range(50)))
    assert many.sources.endswith(f"{MAX_SOURCES - 1}.html, and 30 more")


def test_the_marks_of_a_merged_memory_are_those_of_the_kept_one() -> None:
    marked = memory(2, source="user, superseded by 3, set aside, public")
    assert DuplicateGroup(memory(1, source="user"), (marked,)).sources == "user"
    merged = DuplicateGroup(marked, (memory(1, source="a.html"),))
    assert merged.sources == "user, a.html, superseded by 3, set aside, public"


def test_what_is_merged_into_a_memory_of_many_sources_stays_private() -> None:
    merged = DuplicateGroup(memory(1), tuple(memory(n, source=f"{n}.html" if n < 40 else "user") for n in range(41)))
    assert merged.sources.startswith("user, 0.html")
    assert memory(1, source=merged.sources).private
