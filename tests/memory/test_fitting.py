"""What a recall brings fits what was asked, in the passage that fits; where nothing fits, nothing comes back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from bag_of_words import BagOfWords

from autoagent.core.model import Usage
from autoagent.memory.evidence import Query, content_words
from autoagent.memory.living_memory import MAX_PASSAGE, LivingMemory
from autoagent.memory.sqlite.store import LocalStore
from autoagent.memory.texts import MAX_WORD_CHARACTERS, weights, words


class TwoLanguages(BagOfWords):
    """An embedder for which a German word is its English one."""

    WORDS = {"die": "the", "fähre": "ferry", "liegt": "lies", "im": "in", "hafen": "harbour"}  # noqa: RUF012

    def embed(self, texts: Sequence[str]) -> tuple[list[bytes], Usage]:
        return super().embed([" ".join(self.WORDS.get(word, word) for word in text.lower().split()) for text in texts])


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[LivingMemory]:
    with LivingMemory(LocalStore(tmp_path, BagOfWords())) as memory:
        yield memory


def test_nothing_fits_is_an_answer(memory: LivingMemory) -> None:
    memory.add("I am allergic to penicillin.")
    memory.add("The staging database listens on port 5433.")
    for asked in ("zzzz qqqq", "How tall is the giraffe?"):
        recall = memory.recall(asked)
        assert recall.memories == ()
        assert {other.reason for other in recall.left_out} <= {"matches too little"}
    [found] = memory.recall("Which port does the staging database listen on?").memories
    assert "5433" in found.text


def test_more_must_speak_for_what_the_program_pushes_than_for_what_is_asked_for(memory: LivingMemory) -> None:
    memory.add("The weekly report is written in British English.")
    query = "Report to the harbour master which ships lie in the northern dock"
    assert memory.recall(query, pushed=True).memories == ()
    assert memory.recall("the weekly report", pushed=True).memories != ()


def test_the_passage_that_fits_is_pushed_and_the_whole_text_is_for_who_asks(memory: LivingMemory) -> None:
    filling = "The weather was fine, and the ships lay in the harbour all day long. " * 12
    text = f"{filling}Each request names the tenant in the header X-Meridian-Tenant. {filling}"
    memory.add(text)
    query = "the tenant header of a request"
    [pushed] = memory.recall(query, pushed=True).memories
    assert "X-Meridian-Tenant" in pushed.text and len(pushed.text) <= MAX_PASSAGE
    assert pushed.text.startswith("… ") and pushed.text.endswith(" …")
    [asked] = memory.recall(query).memories
    assert asked.text == text


def test_being_pushed_is_no_use_and_being_asked_for_is(memory: LivingMemory) -> None:
    memory.add("The staging database listens on port 5433.")
    memory.recall("the port of the staging database", pushed=True)
    assert [m.level for m in memory.store.listed()] == [0]
    memory.recall("the port of the staging database")
    assert [m.level for m in memory.store.listed()] == [1]


def test_rare_words_cover_more_of_a_question_than_common_ones() -> None:
    assert content_words("What is the port of the STAGING database?") == ["port", "staging", "database"]
    asked = Query({"port": 900, "staging": 1, "database": 900}, 1000)
    assert asked.coverage("a port and a database") < 0.2 < 0.8 < asked.coverage("staged on staging")
    assert asked.coverage("nothing of it") == Query({}, 0).coverage("anything") == 0.0


def test_one_that_is_trusted_is_found_among_many_that_are_not(tmp_path: Path) -> None:
    with LivingMemory(LocalStore(tmp_path, BagOfWords()), trusted_only=True) as memory:
        memory.add("The ferry leaves from the northern harbour when the tide is high.")
        for number in range(60):
            memory.add(f"The ferry leaves at {number}.", source="https://ferry.example", trusted=False)
        [found] = memory.recall("when the ferry leaves", 1).memories
        assert found.trusted


@pytest.mark.parametrize(("embedder", "pushed"), [(TwoLanguages, 1), (BagOfWords, 0)])
def test_a_fact_is_pushed_for_a_question_in_another_language_if_the_embedder_knows_both(
    tmp_path: Path, embedder: type[BagOfWords], pushed: int
) -> None:
    with LivingMemory(LocalStore(tmp_path, embedder())) as memory:
        memory.add("Die Fähre liegt im nördlichen Hafen")
        memory.add("Der Wein ist im Keller")
        found = memory.recall("In which harbour lies the ferry", pushed=True).memories
        assert [one.text for one in found] == ["Die Fähre liegt im nördlichen Hafen"][:pushed]


def test_a_passage_is_never_longer_than_asked() -> None:
    text = f"{'Nothing of it. ' * 9}{'The ferry ' + 'goes ' * 16 + 'early.'} {'Nothing of it. ' * 9}"
    for limit in range(20, len(text)):
        assert len(Query({"ferry": 1}, 10).passage(text, limit)) <= limit


def test_words_are_spelt_alike() -> None:
    assert words("Ünïcode, STRASSE: Straße; ﬁne_print 4711!") == ["unicode", "strasse", "strasse", "fine_print", "4711"]
    assert words("e\u0301t\u00e9") == ["ete"]
    assert words(" ~ ' \" ") == []
    assert words("x" * 9_000) == ["x" * MAX_WORD_CHARACTERS]


def test_common_words_are_left_out_where_rare_ones_do() -> None:
    counts = {"the": 900, "anchor": 3, "ship": 40, "of": 700}
    assert list(weights(counts, 50, 1000)) == ["anchor", "ship"]
    assert list(weights(counts, 10_000, 1000)) == ["anchor", "ship", "of", "the"]
    assert list(weights({"the": 900, "of": 700}, 50, 1000)) == ["of"]
    assert list(weights({}, 50, 1000)) == []
