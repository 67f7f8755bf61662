"""Kinds with lives of their own, pins, corrections, and what counts as use."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from bag_of_words import BagOfWords

from autoagent.core.memory import LIVES, RetrievedMemory
from autoagent.memory.living_memory import LifeRules, LivingMemory
from autoagent.memory.ranking import DAY
from autoagent.memory.sqlite.store import LocalStore

YEAR = 365 * DAY


@pytest.fixture
def now() -> list[float]:
    return [1_700_000_000.0]


@pytest.fixture
def memory(tmp_path: Path, now: list[float]) -> Iterator[LivingMemory]:
    store = LocalStore(tmp_path, BagOfWords())
    with LivingMemory(store, rules=LifeRules(lives=LIVES), clock=lambda: now[0]) as memory:
        yield memory


def listed(memory: LivingMemory) -> dict[str, RetrievedMemory]:
    return {found.text: found for found in memory.store.listed()}


def test_steps_fade_facts_slowly_and_what_somebody_chose_to_keep_not_at_all(
    memory: LivingMemory, now: list[float]
) -> None:
    for kind in ("step", "fact", "note", "feedback"):
        memory.add(f"a {kind}", kind=kind)
    now[0] += 4 * DAY
    memory.nap()
    assert listed(memory).keys() == {"a fact", "a note", "a feedback"}
    now[0] += YEAR
    memory.sleep(None, lambda prompt: "")
    assert listed(memory).keys() == {"a note", "a feedback"}
    assert memory.forecast() == []


def test_a_pinned_memory_never_fades_until_it_is_let_go(memory: LivingMemory, now: list[float]) -> None:
    id = memory.add("the build took nine minutes", kind="step")
    assert id is not None and memory.pin(id) and memory.pin(id), "to pin it twice is no fault"
    now[0] += YEAR
    memory.nap()
    memory.recall("the build took nine minutes", pushed=True)
    [kept] = memory.store.listed()
    assert kept.pinned
    assert memory.pin(id, pinned=False)
    memory.nap()
    assert memory.store.listed() == []
    assert not memory.pin(id)


def test_what_is_acted_on_was_used_and_what_is_gone_is_ignored(memory: LivingMemory) -> None:
    id = memory.add("The staging database listens on port 5433.", kind="step")
    assert id is not None
    memory.use([id, 999])
    assert [m.level for m in memory.store.listed()] == [1]


def test_an_edited_memory_keeps_what_is_known_of_it(memory: LivingMemory) -> None:
    id = memory.add("The lamp is red.", source="user", run="r", step=3)
    assert id is not None and memory.pin(id)
    new = memory.edit(id, "The lamp is green.")
    [found] = memory.store.listed()
    assert (found.id, found.text, found.source, found.run, found.step) == (new, "The lamp is green.", "user", "r", 3)
    assert found.pinned
    assert memory.edit(id, "x") is None and memory.edit(found.id, "  ") is None


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("The shop is deployed to alpha.", "The shop is deployed to omega now, alpha is off."),
        ("The code of the door is 7421", "The code of the door is 7422"),
    ],
)
def test_what_says_otherwise_supersedes_and_both_are_kept(memory: LivingMemory, old: str, new: str) -> None:
    memory.add(old)
    memory.add(new)
    found = listed(memory)
    assert found[old].superseded and not found[new].superseded
    assert [m.text for m in memory.recall(new, pushed=True).memories] == [new, old]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("The shop is deployed to alpha.", "The forum is deployed to omega."),
        ("Server 1 holds the archive.", "Server 2 holds the archive."),
        ("The cat sleeps on the sofa.", "It rains now."),
    ],
)
def test_what_is_about_something_else_supersedes_nothing(memory: LivingMemory, old: str, new: str) -> None:
    memory.add(old)
    memory.add(new)
    assert not any(found.superseded for found in memory.store.listed())
