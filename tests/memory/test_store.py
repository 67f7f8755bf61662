"""The local memory: nothing acknowledged is lost, whatever happens to processes, files and embedders."""

import os
import signal
import sqlite3
import stat
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from random import Random

import numpy as np
import pytest
from bag_of_words import BagOfWords, Wavering
from databases import Backend, putting
from defaults import forget, put

from autoagent.core.errors import ModelError, StateError
from autoagent.core.memory import Change, RetrievedMemory
from autoagent.core.model import Usage
from autoagent.memory.embedders.lazy import LazyEmbedder
from autoagent.memory.living_memory import LivingMemory
from autoagent.memory.sqlite.store import LocalStore


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "state" / "memory"


@pytest.fixture
def memory(folder: Path) -> Iterator[LocalStore]:
    with LocalStore(folder, BagOfWords(), random=Random(1)) as memory:
        yield memory


class Vectors:
    """Satisfies Embedder: the text is the number of a row of `rows`."""

    def __init__(self, rows: np.ndarray, name: str = "vectors") -> None:
        self.name, self.dim, self._rows = name, rows.shape[1], rows

    def embed(self, texts: Sequence[str]) -> tuple[list[bytes], Usage]:
        return [self._rows[int(text)].tobytes() for text in texts], Usage()


def near(store: LocalStore, query: str, k: int = 10) -> list[RetrievedMemory]:
    return list(store.search(query, k).near)


def texts_of(store: LocalStore, query: str, k: int = 10) -> list[str]:
    return [memory.text for memory in near(store, query, k)]


# Keeping and finding


def test_a_store_opened_again_recalls_without_embedding_its_texts_again(folder: Path) -> None:
    with LocalStore(folder, BagOfWords()) as memory:
        for text in ("red apples", "green pears", "blue plums"):
            put(memory, text)
    embedder = BagOfWords()
    with LocalStore(folder, embedder) as memory:
        assert texts_of(memory, "pears", 1) == ["green pears"]
    assert embedder.embedded == ["pears"]


def test_opening_neither_asks_the_embedder_nor_reads_the_vectors(folder: Path) -> None:
    with LocalStore(folder, BagOfWords()) as memory:
        put(memory, "red apples")
    (folder / "vectors-1.f32").chmod(0)
    embedder = BagOfWords()
    with LocalStore(folder, embedder) as memory:
        assert [m.text for m in memory.listed()] == ["red apples"]
    assert embedder.embedded == []


def test_a_late_embedder_is_loaded_when_a_text_is_to_be_embedded(folder: Path) -> None:
    loaded: list[str] = []

    def load() -> BagOfWords:
        loaded.append("now")
        return BagOfWords()

    with LocalStore(folder, LazyEmbedder(load)) as memory:
        assert (memory.listed(), forget(memory, 1), near(memory, "apples"), memory.stats().count) == ([], False, [], 0)
        assert loaded == []
        put(memory, "red apples")
        assert texts_of(memory, "apples") == ["red apples"]
    assert loaded == ["now"]


def test_recall_equals_a_search_through_all(folder: Path) -> None:
    random = np.random.default_rng(5)
    rows = random.standard_normal((3000, 16))
    rows = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype("<f4")
    with LocalStore(folder, BagOfWords()) as memory:
        for number in range(60):
            put(memory, str(number))
    numbers = rows.astype(np.float64)
    with LocalStore(folder, Vectors(rows)) as memory:
        for number in range(60, 200):
            put(memory, str(number))
        for query in range(200, 220):
            wanted = sorted(range(200), key=lambda n: -numbers[n] @ numbers[query])[:10]
            assert texts_of(memory, str(query)) == [str(n) for n in wanted]


def test_a_query_without_a_direction_recalls_none(folder: Path) -> None:
    rows = np.array([[1, 0], [0, 0]], "<f4")
    with LocalStore(folder, Vectors(rows)) as memory:
        put(memory, "0")
        assert near(memory, "1") == []
        assert texts_of(memory, "0") == ["0"]


def test_a_forgotten_memory_does_not_come_back_nor_its_id(memory: LocalStore) -> None:
    for number in range(50):
        put(memory, f"apples {number}")
    keep = put(memory, "apples to keep")
    for m in memory.listed():
        assert m.id == keep or forget(memory, m.id)
    assert texts_of(memory, "apples") == ["apples to keep"]
    assert forget(memory, keep)
    assert not forget(memory, keep)
    assert near(memory, "apples") == []
    assert put(memory, "apples to keep") > keep
    assert texts_of(memory, "apples") == ["apples to keep"]


def test_stats_say_what_there_is(memory: LocalStore, folder: Path) -> None:
    put(memory, "red apples")
    stats = memory.stats()
    on_disk = sum(file.stat().st_size for file in folder.iterdir())
    assert (stats.count, stats.embedder, stats.dim) == (1, "bag-of-words-64", 64)
    assert stats.place == str(folder)
    assert stats.bytes == on_disk > 64 * 4


def test_only_the_owner_can_read_it(memory: LocalStore, folder: Path) -> None:
    put(memory, "red apples")
    modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in folder.iterdir()}
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert set(modes) >= {"memory.db", "memory.db-wal", "vectors-1.f32", "lock"}
    assert set(modes.values()) == {0o600}


# Words


def worded(store: LocalStore, query: str, k: int = 10) -> list[str]:
    return [memory.text for memory in store.search(query, k).worded]


def test_memories_are_found_by_any_of_their_words_the_rarest_first(memory: LocalStore) -> None:
    for text in ("the red apples", "the green pears", "the pears of the north", "tea"):
        put(memory, text)
    assert worded(memory, "red pears") == ["the red apples", "the green pears", "the pears of the north"]
    first, *_ = memory.search("red pears", 10).worded
    assert first.score > 0 and first.level == 0
    assert worded(memory, "pears", 1) == ["the green pears"]  # of equal ones the shorter
    assert worded(memory, "coffee") == []
    assert len(worded(memory, "the coffee")) == 3  # a word of no memory leaves the others their say
    assert worded(memory, "tea", 0) == []


def test_words_are_found_whatever_their_case_and_accents(memory: LocalStore) -> None:
    for text in ("Der Müller wohnt in der Straße 5", "Le café est fermé", "ТЕЛЕФОН брата"):
        put(memory, text)
    found = {query: worded(memory, query) for query in ("mu\u0308ller", "MULLER", "Straße", "CAFE", "телефон")}
    assert [len(texts) for texts in found.values()] == [1, 1, 1, 1, 1]
    assert found["CAFE"] == ["Le café est fermé"]


HOSTILE = [
    '"', "' OR 1=1 --", "NEAR(tea, 2)", "tea AND", "NOT tea", "text:tea", "-tea", "^tea", "te*", "(tea", "{a b}: tea",
    "", "a + b", "_", "\x00tea", "tea\udc80", "OR", "; DROP TABLE memories", "tea " * 5000, "w%d " * 3000, "\u0301",
    "🍵 tea", " ".join(f"word{n}" for n in range(5000)),
]  # fmt: skip


@pytest.mark.parametrize("query", HOSTILE, ids=range(len(HOSTILE)))
def test_no_query_is_taken_for_the_language_of_the_index(memory: LocalStore, query: str) -> None:
    put(memory, "tea is hot")
    assert worded(memory, query) == (["tea is hot"] if "tea" in query else [])


# Changes, samples and the trash


def test_a_change_counts_once_where_it_is_given_twice(memory: LocalStore) -> None:
    assert memory.change([Change(put(memory, "red apples", 10.5), (10.5, 0), 20.0, None)] * 2) == 1


def test_a_sample_is_random_without_repeats_and_below_the_level(memory: LocalStore) -> None:
    assert memory.sample(5, 4) == []
    for number in range(200):
        id = put(memory, f"fact {number}", 0.0)
        if number % 2:
            memory.change([Change(id, (0.0, 0), 0.0, 4)])
    drawn = [memory.sample(10, 4) for _ in range(50)]
    assert all(len({m.id for m in some}) == 10 and all(m.level < 4 for m in some) for some in drawn)
    assert len({m.id for some in drawn for m in some}) > 90  # of the 100 that can be drawn
    assert len(memory.sample(10_000, 4)) == 100
    assert len(memory.sample(10_000, 5)) == 200
    assert memory.sample(0, 4) == memory.sample(-3, 4) == memory.sample(5, 0) == []


@pytest.mark.slow
def test_a_sample_is_found_where_most_ids_are_gone(memory: LocalStore) -> None:
    ids = [put(memory, f"fact {number}") for number in range(300)]
    for id in ids[1:-1]:
        assert forget(memory, id)
    assert sorted(m.text for m in memory.sample(5, 4)) == ["fact 0", "fact 299"]


def test_a_memory_of_the_first_version_is_brought_up_to_this_one(folder: Path) -> None:
    with LocalStore(folder, BagOfWords()) as memory:
        id = put(memory, "red apples", 5.0, source="a.html")
    db = sqlite3.connect(folder / "memory.db")
    db.executescript(
        "ALTER TABLE memories DROP COLUMN stored; DROP TABLE words; DROP TABLE trash; PRAGMA user_version = 1;"
    )
    db.close()
    with LocalStore(folder, BagOfWords()) as memory, LocalStore(folder, BagOfWords()) as other:
        assert worded(memory, "apples") == worded(other, "apples") == ["red apples"]
        [found] = near(memory, "apples")
        assert (found.id, found.t, found.source, found.level) == (id, 5.0, "a.html", 0)
        assert memory.listed(trash=True) == []
    with LocalStore(folder, BagOfWords()) as memory:
        put(memory, "green apples")
        assert len(worded(memory, "apples")) == 2  # indexed once, not with every opening


def test_older_memories_get_the_day_of_their_run_or_that_of_their_last_use(folder: Path) -> None:
    with LocalStore(folder, BagOfWords()) as memory:
        put(memory, "red apples", 5e9, run="20231106-120000-aaaa")
        put(memory, "green pears", 6e9)
        gone = put(memory, "blue plums", 7e9)
        memory.change([Change(gone, (7e9, 0), 8e9, None)])
    with closing(sqlite3.connect(folder / "memory.db")) as db:
        for table in ("memories", "trash"):
            db.execute(f"ALTER TABLE {table} DROP COLUMN stored")
        db.execute("PRAGMA user_version = 3")
        db.commit()
    with LocalStore(folder, BagOfWords()) as memory:
        for found in memory.listed():
            memory.change([Change(found.id, (found.t, 0), 9e9, 1)])
        memory.change([Change(gone, (8e9, 0), 9e9, 0, trash=True)])
        made = {found.text: found.made for found in memory.listed()}
    assert made == {"red apples": 1699272000.0, "green pears": 6e9, "blue plums": 7e9}


# Other embedders, failing embedders


def test_two_embedders_take_turns_and_embed_only_what_they_have_not_seen(folder: Path) -> None:
    for text, dim in (("red apples", 64), ("green pears", 32), ("blue plums", 64)):
        with LocalStore(folder, BagOfWords(dim)) as memory:
            put(memory, text)
            assert texts_of(memory, text, 1) == [text]
    embedder = BagOfWords(32)
    with LocalStore(folder, embedder) as memory:
        assert texts_of(memory, "plums", 1) == ["blue plums"]
    assert embedder.embedded == ["plums", "blue plums"]


def test_the_same_name_with_another_dimension_is_another_embedder(folder: Path) -> None:
    with LocalStore(folder, Vectors(np.eye(3, dtype="<f4"), "small")) as memory:
        put(memory, "1")
    with LocalStore(folder, Vectors(np.eye(5, dtype="<f4"), "small")) as memory:
        assert texts_of(memory, "1") == ["1"]


@pytest.mark.parametrize(
    "vector",
    [
        np.full(64, np.nan, "<f4").tobytes(),
        np.full(64, np.inf, "<f4").tobytes(),
        np.full(64, 5, "<f4").tobytes(),
        np.zeros(32, "<f4").tobytes(),
        b"abc",
        b"",
    ],
    ids=["NaN", "infinity", "no unit", "other dimension", "half a number", "nothing"],
)
def test_vectors_that_are_none_are_not_stored_and_the_text_is(folder: Path, vector: bytes) -> None:
    embedder = Wavering({"red apples": vector, "apples": vector})
    said: list[str] = []
    with LocalStore(folder, embedder, listen=said.append) as memory:
        put(memory, "green pears")
        put(memory, "red apples")
        assert "bag-of-words-64 did not give a unit vector of 64" in memory.search("apples", 10).problem
        embedder.refused = {}
        assert sorted(texts_of(memory, "apples pears")) == ["green pears", "red apples"]
    assert len(said) == 1 and "no usable vector for 1" in said[0]


def test_one_text_that_the_embedder_cannot_take_does_not_keep_out_the_others(folder: Path) -> None:
    with LocalStore(folder, BagOfWords(32)) as memory:
        for text in ("red apples", "poison", "green pears"):
            put(memory, text)

    class Picky(BagOfWords):
        def embed(self, texts: Sequence[str]) -> tuple[list[bytes], Usage]:
            if "poison" in texts:
                raise ModelError("400: that text is not allowed")
            return super().embed(texts)

    said: list[str] = []
    with LocalStore(folder, Picky(), listen=said.append) as memory:
        assert sorted(texts_of(memory, "apples and pears")) == ["green pears", "red apples"]
        assert texts_of(memory, "pears", 1) == ["green pears"]
        assert memory.stats().count == 3
    assert len(said) == 2 and "no usable vector for 1 of the memories" in said[1]


def test_an_embedder_that_fails_midway_is_not_asked_for_every_text(folder: Path) -> None:
    with LocalStore(folder, BagOfWords(32)) as memory:
        for number in range(50):
            put(memory, f"fact {number}")

    class Breaking(BagOfWords):
        asked = 0

        def embed(self, texts: Sequence[str]) -> tuple[list[bytes], Usage]:
            self.asked += 1
            if self.asked > 1:
                raise ModelError("The endpoint is down.")
            return super().embed(texts)

    embedder = Breaking()
    with LocalStore(folder, embedder) as memory:
        assert "endpoint is down" in memory.search("fact", 10).problem
    assert embedder.asked == 4  # the query, all texts together, and two of them alone


# Damage


@pytest.mark.parametrize(
    "left", [None, 0, 100, 64 * 4 * 20 + 7], ids=["a changed bit", "nothing", "half a row", "half a file"]
)
def test_vectors_that_are_damaged_or_lost_are_made_anew_once(folder: Path, left: int | None) -> None:
    with LocalStore(folder, BagOfWords()) as memory:
        for number in range(40):
            put(memory, f"fact {number} about pears")
        before = near(memory, "fact 17")
    vectors = folder / "vectors-1.f32"
    damaged = bytearray(vectors.read_bytes())
    damaged[17 * 64 * 4 + 3] ^= 0x80
    vectors.write_bytes(damaged if left is None else damaged[:left])
    said: list[str] = []
    with LocalStore(folder, BagOfWords(), listen=said.append) as memory:
        assert near(memory, "fact 17") == before
        put(memory, "one more fact")
    with LocalStore(folder, BagOfWords(), listen=said.append) as memory:
        assert near(memory, "fact 17", 1) == before[:1]
    assert said == [f"{vectors} was damaged; 40 of its vectors are computed again from their texts."]


def test_a_vector_file_that_is_gone_is_made_anew_even_while_it_is_in_use(memory: LocalStore, folder: Path) -> None:
    put(memory, "red apples")
    before = near(memory, "apples")
    (folder / "vectors-1.f32").unlink()
    assert near(memory, "apples") == before


def test_rows_that_a_crash_left_are_written_over(folder: Path) -> None:
    with LocalStore(folder, BagOfWords()) as memory:
        put(memory, "red apples")
    with (folder / "vectors-1.f32").open("ab") as file:
        file.write(b"\xff" * 100)
    said: list[str] = []
    with LocalStore(folder, BagOfWords(), listen=said.append) as memory:
        put(memory, "green pears")
        assert texts_of(memory, "pears", 1) == ["green pears"]
    assert said == []
    assert (folder / "vectors-1.f32").stat().st_size == 2 * 64 * 4


def test_a_file_that_is_no_database_is_named(folder: Path) -> None:
    folder.mkdir(parents=True)
    (folder / "memory.db").write_bytes(b"this is not a database at all" * 100)
    with pytest.raises(StateError, match=rf"memory in {folder} cannot be used: file is not a database"):
        LocalStore(folder, BagOfWords())


def test_a_newer_memory_is_refused(folder: Path) -> None:
    LocalStore(folder, BagOfWords()).close()
    db = sqlite3.connect(folder / "memory.db")
    db.execute("PRAGMA user_version = 99")
    db.close()
    with pytest.raises(StateError, match=r"memory\.db was written by a newer autoagent \(version 99"):
        LocalStore(folder, BagOfWords())


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_the_memory_of_another_user_is_refused(folder: Path) -> None:
    LocalStore(folder, BagOfWords()).close()
    os.chown(folder, 12345, -1)
    with pytest.raises(StateError, match=r"belongs to another user \(id 12345\)"):
        LocalStore(folder, BagOfWords())


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file")
    with pytest.raises(StateError, match="state/memory cannot be used"):
        LocalStore(tmp_path / "state" / "memory", BagOfWords())


# Several processes


def adding(folder: Path, prefix: str, count: int) -> subprocess.Popen[str]:
    return putting(Backend("local", str(folder.parent), folder.name), prefix, count)


@pytest.mark.parametrize(
    ("processes", "each"), [(4, 60), pytest.param(8, 500, marks=pytest.mark.slow)], ids=["small", "large"]
)
def test_processes_that_add_at_once_lose_nothing(folder: Path, processes: int, each: int) -> None:
    running = [adding(folder, f"p{number}", each) for number in range(processes)]
    for process in running:
        out, err = process.communicate(timeout=300)
        assert (process.returncode, err, len(out.split())) == (0, "", each)
    embedder = BagOfWords()
    with LocalStore(folder, embedder) as memory:
        assert memory.stats().count == processes * each
        assert {m.text for m in memory.listed()} == {f"p{p} fact {n}" for p in range(processes) for n in range(each)}
        last = f"p{processes - 1} fact {each - 1}"
        assert texts_of(memory, last, 1) == [last]
        assert last in worded(memory, last, processes)  # its rarest word is in one memory of each process
    assert embedder.embedded == [last]  # every vector was there, and sound
    assert (folder / "vectors-1.f32").stat().st_size == processes * each * 64 * 4


def test_what_another_process_adds_is_found_at_once(memory: LocalStore, folder: Path) -> None:
    put(memory, "red apples")
    assert texts_of(memory, "other fact 2", 1) != ["other fact 2"]
    process = adding(folder, "other", 3)
    process.communicate(timeout=60)
    assert texts_of(memory, "other fact 2", 1) == ["other fact 2"]
    assert memory.stats().count == 4


@pytest.mark.parametrize("acknowledged", [1, 2, 40, 150])
def test_what_was_acknowledged_survives_kill_9(folder: Path, acknowledged: int) -> None:
    process = adding(folder, "a", 1_000_000)
    assert process.stdout is not None
    ids = [int(process.stdout.readline()) for _ in range(acknowledged)]
    process.send_signal(signal.SIGKILL)
    ids += [int(line) for line in process.stdout if line.endswith("\n")]
    process.communicate(timeout=60)
    said: list[str] = []
    with LocalStore(folder, BagOfWords(), listen=said.append) as memory:
        there = {m.id: m.text for m in memory.listed()}
        assert {id: there.get(id) for id in ids} == {id: f"a fact {number}" for number, id in enumerate(ids)}
        assert len(there) <= len(ids) + 1  # the one that was not acknowledged may be there
        last = there[ids[-1]]
        assert texts_of(memory, last, 1) == [last]
        assert put(memory, "added after the crash") is not None
        assert texts_of(memory, "added after the crash", 1) == ["added after the crash"]
    assert said == []


def test_what_is_not_durable_waits_for_no_disk_and_is_missed_once_it_is_lost(folder: Path, tmp_path: Path) -> None:
    def waits(store: LocalStore) -> bool:
        [(mode,)] = store._db.execute("PRAGMA synchronous")
        return bool(mode == 2)

    with LocalStore(folder, BagOfWords()) as store:
        assert put(store, "red apples") == 1
        assert waits(store)
        kept = {path.name: path.read_bytes() for path in folder.iterdir() if not path.name.endswith("-shm")}
        assert put(store, "green pears", durable=False) == 2
        assert not waits(store)
        assert not LivingMemory(store).has_lost(2, "run", "green pears")
        id = store.stats().id
    for name, data in kept.items():  # as a power cut leaves it
        (folder / name).write_bytes(data)
    (folder / "memory.db-shm").unlink(missing_ok=True)
    with LocalStore(folder, BagOfWords()) as store:
        assert store.stats().id == id
        assert not LivingMemory(store).has_lost(1, "run", "red apples")
        assert LivingMemory(store).has_lost(2, "run", "green pears")
        assert put(store, "blue plums", run="another") == 2
        assert LivingMemory(store).has_lost(2, "run", "green pears"), "its id belongs to another memory by now"
        assert not LivingMemory(store).has_lost(2, "run", "blue plums"), "another run has stored it, too"
        forget(store, 2)
        assert [memory.text for memory in store.listed()] == ["red apples"]
        forget(store, 1)
        assert not LivingMemory(store).has_lost(1, "run", "red apples"), "what is forgotten was not lost"
    with LocalStore(tmp_path / "another", BagOfWords()) as store:
        assert store.stats().id not in ("", id)
