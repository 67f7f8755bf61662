"""What every backend promises as a MemoryStore: one suite for all of them, each on a real server."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from bag_of_words import BagOfWords, Wavering
from databases import Backend, putting
from defaults import forget, put, restore

from autoagent.core.memory import Change, RetrievedMemory
from autoagent.core.model import Usage
from autoagent.core.protocols import MemoryStore
from autoagent.memory.embedders.lazy import LazyEmbedder
from autoagent.memory.texts import PART


def texts_of(memories: Sequence[RetrievedMemory]) -> list[str]:
    return [memory.text for memory in memories]


# What is kept ----------------------------------------------------------------------------------------------------


def test_a_memory_comes_back_as_it_was_put(store: MemoryStore) -> None:
    id = put(store, "the key is under the mat", t=12.25, kind="step", source="a page", trusted=False, run="r", step=7)

    known = (0.0, "step", "a page", False, 12.25, "r", 7, 0)
    expected = RetrievedMemory(id, "the key is under the mat", *known, stored=12.25)
    assert store.find("the key is under the mat") == expected
    assert store.listed() == [expected]
    assert store.stats().count == 1


@pytest.mark.parametrize(
    "text",
    [
        "nul \0 and \x1a0 and \x1a", "emoji 🦉 Ünïcode 漢字", "it's a \"quote\" \\ %s $1 {x}", "tab\tline\nend ",
        "x" * PART, "word " * (PART // 5),
    ],
)  # fmt: skip
def test_texts_come_back_letter_by_letter(store: MemoryStore, text: str) -> None:
    put(store, text, source=text[:50], kind="k\0", run="r\0")
    found = store.find(text)
    assert found is not None
    assert (found.text, found.source, found.kind, found.run) == (text, text[:50], "k\0", "r\0")
    assert store.search(text, 1).worded == [] or store.search(text, 1).worded[0].text == text


def test_when_a_text_was_stored_stays_whatever_its_time_is(store: MemoryStore) -> None:
    id = put(store, "tea", t=2.0)
    assert store.change([Change(id, (2.0, 0), 3.0, 1)]) == store.change([Change(id, (3.0, 1), 4.0, None)]) == 1
    assert [memory.made for memory in store.listed(trash=True)] == [2.0]
    assert store.change([Change(id, (4.0, 1), 5.0, 0, trash=True)]) == 1
    assert [(memory.t, memory.made) for memory in store.listed()] == [(5.0, 2.0)]
    put(store, "tea", t=6.0)
    assert [memory.made for memory in store.listed()] == [6.0], "it was stored again"


def test_lone_surrogates_are_replaced_and_pairs_joined(store: MemoryStore) -> None:
    put(store, "half a \ud83e letter, \ud83d\ude00", source="\udc80.txt")
    [found] = store.search("letter \ud800", 1).near
    assert (found.text, found.source) == ("half a \ufffd letter, \U0001f600", "\ufffd.txt")
    assert store.find("half a \ud83e letter, \ud83d\ude00") is not None


@pytest.mark.parametrize("text", ["", "  \n\t"])
def test_what_has_no_content_is_not_kept(store: MemoryStore, text: str) -> None:
    assert store.put(text, t=1.0, kind="note", source="", trusted=True, run="", step=0) is None
    assert store.stats().count == 0


def test_a_long_text_becomes_memories_that_join_to_the_whole(store: MemoryStore) -> None:
    text = "".join(f"line {n} about pears\n" for n in range(1000)) + "".join(map(str, range(PART))) + " the end is near"
    first = put(store, text, source="book")
    parts = sorted(texts_of(store.listed()), key=text.index)
    assert "".join(parts) == text and max(map(len, parts)) <= PART
    assert parts[0].endswith("\n"), "it is cut after a line"
    assert texts_of(store.search("near end", 1).near) == parts[-1:]
    head = store.find(parts[0])
    assert head is not None and head.id == first
    assert {memory.source for memory in store.listed()} == {"book"}


def test_the_same_text_is_the_same_memory(store: MemoryStore) -> None:
    id = put(store, "tea at four", t=1.0, run="first", step=1, kind="step", source="one")
    store.change([Change(id, (1.0, 0), 2.0, 3)])
    assert put(store, "tea at four", t=5.0, run="second", step=2, kind="note", source="two") == id
    known = (0.0, "note", "one", True, 5.0, "second", 2, 3)
    assert store.listed() == [RetrievedMemory(id, "tea at four", *known, stored=5.0)]
    put(store, "tea at four", t=6.0, kind="step")
    assert [memory.kind for memory in store.listed()] == ["note"], "what was stored on purpose stays so"


def test_a_memory_without_a_source_takes_that_of_the_same_text(store: MemoryStore) -> None:
    put(store, "tea at four", kind="fact")
    put(store, "tea at four", kind="feedback", source="user")
    assert [(memory.kind, memory.source) for memory in store.listed()] == [("feedback", "user")]
    assert [memory.text for memory in store.listed(of_user=True)] == ["tea at four"]


def test_once_untrusted_a_memory_stays_so(store: MemoryStore) -> None:
    put(store, "the moon is cheese", source="user")
    put(store, "the moon is cheese", trusted=False, source="a page")
    put(store, "the moon is cheese", source="user again")
    [memory] = store.listed()
    assert (memory.trusted, memory.source) == (False, "a page")


def test_the_newest_are_listed_first(store: MemoryStore) -> None:
    for t in (3.0, 1.0, 2.0, 2.0):
        put(store, f"memory {t} {store.stats().count}", t=t)
    assert [memory.t for memory in store.listed()] == [3.0, 2.0, 2.0, 1.0]
    second, third = store.listed(2, 1)
    assert (second.t, third.t) == (2.0, 2.0) and second.id > third.id
    assert store.listed(0) == []


def test_a_forgotten_memory_is_gone_for_good(store: MemoryStore) -> None:
    id, other = put(store, "red apples"), put(store, "red wine")
    assert forget(store, id)
    assert not forget(store, id)
    assert store.find("red apples") is None
    found = store.search("red apples", 5)
    assert texts_of(found.near) == texts_of(found.worded) == ["red wine"]
    assert store.listed(trash=True) == []
    assert put(store, "red apples") not in (id, other)


def test_what_was_put_is_there_for_whoever_opens_the_memory_next(backend: Backend) -> None:
    put(backend.open(), "a fact")
    assert texts_of(backend.open().listed()) == ["a fact"]
    assert texts_of(backend.open().search("a fact", 1).near) == ["a fact"]


# What is found ---------------------------------------------------------------------------------------------------


def test_the_nearest_come_first_with_their_cosine(store: MemoryStore) -> None:
    for text in ("red apples", "green apples and pears", "a far away planet"):
        put(store, text)
    found = store.search("red apples", 3).near
    assert texts_of(found[:2]) == ["red apples", "green apples and pears"]
    assert found[0].score == pytest.approx(1.0, abs=1e-5)
    assert all(memory.score > 0 for memory in found)
    assert [memory.score for memory in found] == sorted((memory.score for memory in found), reverse=True)


def test_nothing_fits_a_query_without_content_or_an_empty_memory(store: MemoryStore) -> None:
    assert [*store.search("red", 3).near, *store.search("red", 3).worded] == []
    put(store, "red apples")
    for query, k in (("", 3), (" \n", 3), ("red", 0), ("red", -1)):
        assert [*store.search(query, k).near, *store.search(query, k).worded] == []


def test_rare_words_weigh_more(store: MemoryStore) -> None:
    for number in range(20):
        put(store, f"the ship sails on day {number}")
    put(store, "an anchor of the fleet")
    assert store.search("the anchor", 1).worded[0].text == "an anchor of the fleet"


@pytest.mark.parametrize(
    "query", ["ANCHOR", "änchor", "anchor' | 'x:* & ( ! \\", 'anchor" OR "x* NEAR(', "-anchor AND -x"]
)
def test_words_are_words_whatever_stands_around_them(store: MemoryStore, query: str) -> None:
    put(store, "the anchor holds")
    put(store, "a calm sea")
    assert texts_of(store.search(query, 5).worded) == ["the anchor holds"]
    assert store.search("~ ' \" \\ ()", 5).worded == []


def test_the_words_of_any_tongue_are_found(store: MemoryStore) -> None:
    put(store, "Die Straße führt über den Fluß")
    put(store, "Дорога ведёт к реке")
    assert texts_of(store.search("fuhrt eine ÜBER", 5).worded) == ["Die Straße führt über den Fluß"]
    assert texts_of(store.search("реке", 5).worded) == ["Дорога ведёт к реке"]


@pytest.mark.parametrize("find", ["near", "worded"])
def test_memories_of_skipped_steps_make_room_for_others(store: MemoryStore, find: str) -> None:
    for step in range(80):
        put(store, f"fact {step}", run="now", step=step)
    put(store, "an older fact in more words than the others have", run="before", step=3)
    skip = {("now", step) for step in range(80)}
    found = getattr(store.search("fact", 3, skip), find)
    assert texts_of(found) == ["an older fact in more words than the others have"]


@pytest.mark.slow
def test_near_finds_what_brute_force_finds(store: MemoryStore) -> None:
    embedder, random = BagOfWords(), np.random.default_rng(4)
    vocabulary = [f"word{number}" for number in range(300)]
    facts = [" ".join(random.choice(vocabulary, 8)) + f" {number}" for number in range(400)]
    for fact in facts:
        put(store, fact)
    matrix = np.stack([np.frombuffer(vector, "<f4") for vector in embedder.embed(facts)[0]])
    hits = 0
    for query in (" ".join(random.choice(vocabulary, 4)) for _ in range(20)):
        scores = matrix @ np.frombuffer(embedder.embed([query])[0][0], "<f4")
        expected = {facts[row] for row in np.argsort(-scores)[:10]}
        hits += len(expected & set(texts_of(store.search(query, 10).near)))
    assert hits / 200 >= 0.99


# What becomes of memories ----------------------------------------------------------------------------------------


def test_changes_are_carried_out_where_memories_are_as_they_were_seen(store: MemoryStore) -> None:
    a, b, c = (put(store, text, t=0.1) for text in ("a", "b", "c"))
    changes = [Change(a, (0.1, 0), 9.7, 2), Change(b, (0.1, 1), 9.7, 2), Change(c, (0.2, 0), 9.7, None)]
    assert store.change(changes) == 1
    assert store.change([*changes, Change(999, (0.1, 0), 1.0, 1)]) == 0, "the same recall cannot count twice"
    assert store.change([]) == 0
    assert {memory.text: (memory.t, memory.level) for memory in store.listed()} == {
        "a": (9.7, 2), "b": (0.1, 0), "c": (0.1, 0)
    }  # fmt: skip


def test_changes_that_belong_together_are_carried_out_all_or_none(store: MemoryStore) -> None:
    a, b = put(store, "a"), put(store, "b")
    assert store.change([Change(a, (1.0, 0), 2.0, 1), Change(b, (7.0, 0), 2.0, None)], whole=True) == 0
    assert [memory.level for memory in store.listed()] == [0, 0]
    merged = [Change(a, (1.0, 0), 2.0, 1, "both \ud83e"), Change(b, (1.0, 0), 2.0, None)]
    assert store.change(merged, whole=True) == 2
    [memory] = store.listed()
    assert (memory.text, memory.level, memory.source) == ("a", 1, "both \ufffd")


def test_the_trash_keeps_what_is_forgotten_until_it_is_restored_or_emptied(store: MemoryStore) -> None:
    old, new, kept = (put(store, text, source="s", step=4) for text in ("old bread", "new bread", "kept bread"))
    store.change([Change(old, (1.0, 0), 10.0, None), Change(new, (1.0, 0), 20.0, None)])
    assert texts_of(store.listed()) == ["kept bread"]
    assert texts_of(store.search("bread", 5).near) == texts_of(store.search("bread", 5).worded) == ["kept bread"]
    assert [(memory.id, memory.text, memory.t) for memory in store.listed(trash=True)] == [
        (new, "new bread", 20.0), (old, "old bread", 10.0)
    ]  # fmt: skip
    assert store.find("old bread") is None and not forget(store, old) and store.stats().count == 1

    assert restore(store, new, 30.0) and not restore(store, new, 30.0) and not restore(store, kept, 30.0)
    known = (0.0, "note", "s", True, 30.0, "", 4, 0)
    assert store.find("new bread") == RetrievedMemory(new, "new bread", *known, stored=1.0)
    assert set(texts_of(store.search("bread", 5).near)) == {"new bread", "kept bread"}
    assert set(texts_of(store.search("bread", 5).worded)) == {"new bread", "kept bread"}

    assert store.change([], expired=10.0) == 0 and texts_of(store.of([old], trash=True)) == ["old bread"]
    assert store.change([], expired=10.5) == 0
    assert store.listed(trash=True) == []


def test_a_text_in_the_trash_comes_back_as_new(store: MemoryStore) -> None:
    id = put(store, "a dream", trusted=False, source="a page", kind="step")
    store.change([Change(id, (1.0, 0), 2.0, None)])
    put(store, "a dream", t=3.0, source="user")
    assert store.listed(trash=True) == []
    [memory] = store.listed()
    assert (memory.trusted, memory.source, memory.kind, memory.t, memory.level) == (True, "user", "note", 3.0, 0)
    assert texts_of(store.search("dream", 2).worded) == texts_of(store.search("dream", 2).near) == ["a dream"]


def test_a_sample_is_of_the_levels_below(store: MemoryStore) -> None:
    ids = [put(store, f"memory {number}") for number in range(12)]
    store.change([Change(id, (1.0, 0), 1.0, level) for level, id in enumerate(ids)])
    drawn = store.sample(3, 6)
    assert len({memory.id for memory in drawn}) == 3 and all(memory.level < 6 for memory in drawn)
    assert {memory.level for memory in store.sample(100, 6)} == set(range(6))
    assert store.sample(0, 6) == store.sample(5, 0) == []
    assert len({tuple(memory.id for memory in store.sample(3, 12)) for _ in range(12)}) > 1


# Vectors ---------------------------------------------------------------------------------------------------------


def test_vectors_are_those_the_embedder_gave(store: MemoryStore) -> None:
    ids = [put(store, text) for text in ("red apples", "green pears")]
    expected = BagOfWords().embed(["red apples", "green pears"])[0]
    assert store.vectors([*ids, 999]) == dict(zip(ids, expected, strict=True))
    assert store.vectors([]) == {}


def test_what_was_embedded_is_paid_for_once(backend: Backend) -> None:
    embedder = BagOfWords()
    metered = LazyEmbedder(lambda: embedder)
    store = backend.open(metered)
    put(store, "three red apples")
    put(store, "three red apples")
    assert metered.take_usage() == Usage(prompt=3)
    store.search("two words", 1)
    assert metered.take_usage() == Usage(prompt=2)
    assert embedder.embedded == ["three red apples", "two words"]


def test_another_embedder_gets_vectors_of_its_own(backend: Backend) -> None:
    lines: list[str] = []
    first = backend.open(BagOfWords(64))
    for number in range(300):
        put(first, f"fact {number}")
    second = backend.open(BagOfWords(32), lines.append)
    assert texts_of(second.search("fact 7", 1).near) == ["fact 7"]
    assert len(lines) == 1 and "bag-of-words-64 (64 values); its 300 texts are embedded again" in lines[0]
    late = put(second, "a late fact")
    assert texts_of(first.search("a late fact", 1).near) == ["a late fact"]
    assert len(first.vectors([late])[late]) == 64 * 4 and len(second.vectors([late])[late]) == 32 * 4
    stats = second.stats()
    assert (stats.count, stats.embedder, stats.dim) == (301, "bag-of-words-32", 32) and stats.bytes > 0


def test_a_memory_that_could_not_be_embedded_is_embedded_later(backend: Backend) -> None:
    embedder, lines = Wavering(), []
    store = backend.open(embedder, lines.append)
    put(store, "red apples")
    embedder.down = True
    id = put(store, "red wine")
    problem = "Memories are kept, but found only by their words until they are embedded: The endpoint is down."
    assert store.vectors([id]) == {}
    assert set(texts_of(store.search("red", 5).worded)) == {"red apples", "red wine"}
    for query in ("red", "red apples"):  # the vector of the latter is known
        assert "endpoint is down" in store.search(query, 5).problem
    assert lines == [problem]
    embedder.down = False
    assert set(texts_of(store.search("red", 5).near)) == {"red apples", "red wine"}
    assert len(store.vectors([id])) == 1


def test_bad_vectors_are_kept_out_and_named(backend: Backend) -> None:
    lines: list[str] = []
    not_a_number = np.full(64, np.nan, "<f4").tobytes()
    store = backend.open(Wavering({"poison": b"", "not a number": not_a_number}), lines.append)
    ids = [put(store, text) for text in ("poison", "not a number", "good fruit")]
    assert len(lines) == 2 and all("no usable vector for 1" in line for line in lines)
    assert texts_of(store.search("good poison", 5).near) == ["good fruit"]
    assert list(store.vectors(ids)) == ids[2:]
    assert "EMBEDDING_MODEL" in store.search("poison", 1).problem


@pytest.mark.slow
def test_two_processes_put_a_hundred_memories_each(backend: Backend) -> None:
    writers = [putting(backend, prefix, 100) for prefix in ("left", "right")]
    acknowledged = [int(line) for writer in writers for line in writer.communicate()[0].split()]
    assert [writer.returncode for writer in writers] == [0, 0]
    store = backend.open()
    assert len(set(acknowledged)) == 200 == store.stats().count
    assert set(texts_of(store.listed())) == {
        f"{prefix} fact {number}" for prefix in ("left", "right") for number in range(100)
    }
    assert texts_of(store.search("left fact 32", 1).near) == ["left fact 32"]
