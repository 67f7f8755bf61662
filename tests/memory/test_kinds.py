"""Kinds with lives of their own, pins, corrections, and what counts as use."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from bag_of_words import BagOfWords
from corrections import KEPT, REPLACED, UNSEEN_KEPT, UNSEEN_REPLACED

from autoagent.core.errors import StateError
from autoagent.core.memory import LIVES, RetrievedMemory
from autoagent.memory.combined import CombinedMemory
from autoagent.memory.duplicates import corrects
from autoagent.memory.living_memory import LifeRules, LivingMemory
from autoagent.memory.ranking import DAY
from autoagent.memory.sqlite.store import LocalStore
from autoagent.prompt import recollection_lines

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


def test_an_edited_memory_stays_out_of_the_core(memory: LivingMemory) -> None:
    id = memory.add("Always answer in German.", source="user")
    assert id is not None and memory.keep_in_core(id, kept=False)
    assert memory.edit(id, "Always answer in German or French.") is not None
    assert memory.core() == []


def test_an_edit_that_only_adds_to_a_long_text_keeps_it(memory: LivingMemory) -> None:
    old = "word\n" * 1590
    id = memory.add(old)
    assert id is not None
    memory.edit(id, f"{old}and one more sentence that the user appends to it, without a line end")
    assert {found.text[:4] for found in memory.store.listed()} == {"word", "and "}


def test_what_a_step_holds_already_is_kept_once_the_user_adds_it(memory: LivingMemory, now: list[float]) -> None:
    memory.add("The server listens on port 8080.", kind="step", run="r", step=3)
    memory.add("The server listens on port 8080.", source="user")
    now[0] += YEAR
    memory.nap()
    assert [(found.kind, found.source) for found in memory.core()] == [("note", "user")]


def test_a_users_memory_that_cannot_be_read_takes_nothing_from_the_folders_core(memory: LivingMemory) -> None:
    def damaged(create: bool) -> LivingMemory:
        raise StateError("memory.db is damaged.")

    said: list[str] = []
    combined = CombinedMemory(memory, damaged, lambda text: "", said.append)
    memory.add("Deploy only on Mondays.", source="user")
    assert [found.text for found in combined.core()] == ["Deploy only on Mondays."]
    combined.recall("When to deploy?")
    assert said == ["Your own memory is left out: memory.db is damaged."]


def test_a_fact_lives_for_ninety_days_after_its_last_use(memory: LivingMemory, now: list[float]) -> None:
    fact = memory.add("A run for: Write a\nIt came to: a.txt", kind="fact")
    assert fact is not None

    left = []
    for days in (90, 90, 93, 92):  # from a higher level it falls first
        now[0] += days * DAY
        memory.sleep(10, lambda prompt: "")
        left.append(len(memory.store.of([fact])))
        memory.use([fact] if len(left) == 1 else ())
    assert left == [1, 1, 1, 0]


def _superseded(memory: LivingMemory) -> dict[str, str]:
    texts = {found.id: found.text for found in memory.store.listed()}
    return {m.text: texts[m.superseded_by] for m in memory.store.listed() if m.superseded_by is not None}


def test_another_value_in_the_same_words_supersedes_and_what_has_it_beside_does_not() -> None:
    found = [corrects(new, old) for old, new in REPLACED]
    assert found.count(True) >= 13 and [corrects(new, old) for old, new in UNSEEN_REPLACED].count(True) >= 11
    assert [(old, new) for old, new in KEPT + UNSEEN_KEPT if corrects(new, old)] == []


def test_a_value_of_today_supersedes_that_of_yesterday_and_both_are_kept(memory: LivingMemory) -> None:
    old, new = REPLACED[0]
    memory.add(old)
    memory.add(new)
    assert _superseded(memory) == {old: new}
    assert [m.text for m in memory.recall(new, pushed=True).memories] == [new], (
        "the old one matches far worse than the best"
    )
    assert [m.text for m in memory.recall(new).memories] == [new, old]
    memory.add(old)
    assert _superseded(memory) == {new: old}, "what is said again holds again"
    assert memory.forget(listed(memory)[old].id)
    assert memory.recall(new, pushed=True).memories[0].superseded_by is None, "nothing says otherwise any more"


def test_a_prompt_names_the_newer_memory(memory: LivingMemory, now: list[float]) -> None:
    old, new = REPLACED[0]
    memory.add(old)
    id = memory.add(new)
    shown = recollection_lines(memory.recall(old).memories, 200, len, now=now[0])
    assert any(f", SUPERSEDED by memory {id}, your note) {old}" in line for line in shown), shown


def test_what_the_user_said_or_pinned_gives_way_to_his_own_words_alone(memory: LivingMemory) -> None:
    old, new = REPLACED[0]
    memory.add(old, source="user")
    memory.add(new, source="agent")
    assert _superseded(memory) == {}
    memory.add("The limit is 5", source="agent")
    assert memory.pin(listed(memory)["The limit is 5"].id)
    memory.add("The limit is 6", source="agent")
    assert _superseded(memory) == {}
    memory.add("The limit is 7", source="user")
    assert _superseded(memory) == {"The limit is 5": "The limit is 7", "The limit is 6": "The limit is 7"}
    memory.add("The limit is 6", source="agent")
    assert _superseded(memory)["The limit is 6"] == "The limit is 7", "an agent that says it again undoes nothing"
    memory.add("The limit is 8", kind="feedback")
    assert "The limit is 7" not in _superseded(memory), "what is said to one run, unseen, is no word on that"


def test_the_marks_of_an_earlier_rule_no_longer_count(memory: LivingMemory) -> None:
    memory.add("Never delete anything in /srv/archive.", source="user, superseded")
    [found] = memory.store.listed()
    assert found.superseded_by is None and found.private


def test_an_edited_correction_still_corrects(memory: LivingMemory) -> None:
    memory.add("The port is 5433", source="user")
    new = memory.add("The port is 5434", source="user")
    assert new is not None
    edited = memory.edit(new, "The port is 5434 on staging")
    old = memory.store.find("The port is 5433")
    assert old is not None and old.superseded_by == edited
    assert [found.text for found in memory.core()] == ["The port is 5434 on staging"]
