"""Search among few and many vectors: results equal brute force, and damage is found before it misleads."""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import numpy as np
import pytest

from autoagent.memory.sqlite.database import connect, writing
from autoagent.memory.sqlite.vector_space import MIN_VALUES_FOR_BITS, VectorSpace, highest
from autoagent.memory.sqlite.vectors import BLOCK, Damaged, Vectors

DIM = 2048
CHUNK = 2048  # rows of one chunk of bits in so many dimensions
GROUP = 10  # vectors that are near to one another
MANY = MIN_VALUES_FOR_BITS // DIM // GROUP * GROUP + GROUP
CHUNKS = MANY // CHUNK  # that are full
WIDTH = DIM * 4

PUT = "INSERT INTO memories (id, text, hash, kind, source, trusted, t, run, step) VALUES (?, ?, ?, '', '', 1, 0, '', 0)"


def unit(rows: np.ndarray) -> Vectors:
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype("<f4")


def groups(rows: int, seed: int = 1, dim: int = DIM) -> Vectors:
    """Unit vectors, each ten of which are near to one another, and far from all others."""
    dice = np.random.default_rng(seed)
    centres = dice.standard_normal((rows // GROUP, 1, dim), np.float32)
    return unit((centres + 0.3 * dice.standard_normal((rows // GROUP, GROUP, dim), np.float32)).reshape(-1, dim))


class Opened(AbstractContextManager["Opened"]):
    """A folder with one space, and what a process holds of it."""

    def __init__(self, folder: Path, dim: int = DIM) -> None:
        self.db = connect(folder)
        self.folder = folder
        self.space = VectorSpace.find(self.db, folder, "e", dim) or VectorSpace.make(self.db, folder, "e", dim)
        self.bits = folder / "vectors-1.bits"
        self.file = folder / "vectors-1.f32"

    def __exit__(self, *_: object) -> None:
        self.db.close()

    def add(self, vectors: Vectors) -> None:
        [first] = self.db.execute("SELECT coalesce(max(id), 0) + 1 FROM memories").fetchone()
        ids = range(first, first + len(vectors))
        with writing(self.db, self.folder):
            self.db.executemany(PUT, [(id, f"text {id}", b"%d" % id) for id in ids])
            self.db.executemany("INSERT INTO vectors (memory, space) VALUES (?, 1)", [(id,) for id in ids])
            self.space.append(dict(zip(ids, vectors, strict=True)))

    def nearest(self, query: Vectors, *, exact: bool = False) -> list[int]:
        rows, scores = self.space.search(query, GROUP, exact=exact)
        assert np.all(np.diff(scores) <= 0)
        return rows.tolist()

    def damage(self, row: int) -> None:
        with self.file.open("r+b") as file:
            file.seek(row * WIDTH + 99)
            byte = file.read(1)
            file.seek(row * WIDTH + 99)
            file.write(bytes([byte[0] ^ 0x80]))


def brute_force(vectors: Vectors, query: Vectors) -> list[int]:
    return np.argsort(-(vectors @ query), kind="stable")[:GROUP].tolist()


@pytest.fixture(scope="module")
def vectors() -> Vectors:
    return groups(MANY)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory, vectors: Vectors) -> Path:
    """Many vectors, never searched."""
    folder = tmp_path_factory.mktemp("many") / "memory"
    with Opened(folder) as opened:
        opened.add(vectors)
    return folder


@pytest.fixture
def many(template: Path, tmp_path: Path) -> Iterator[Opened]:
    shutil.copytree(template, tmp_path / "memory")
    with Opened(tmp_path / "memory") as opened:
        yield opened


@pytest.fixture
def few(tmp_path: Path) -> Iterator[Opened]:
    with Opened(tmp_path / "memory", 16) as opened:
        yield opened


# The highest scores


@pytest.mark.parametrize("n", [0, 1, 9, 10, 11, 500, 3000])
def test_it_finds_what_a_search_through_all_finds(n: int) -> None:
    random = np.random.default_rng(n)
    vectors, query = unit(random.standard_normal((n, 32))), unit(random.standard_normal((1, 32)))[0]
    scores = vectors @ query
    slowly = sorted((row for row in range(n) if float(vectors[row] @ query) > 0), key=lambda row: -scores[row])
    assert highest(scores, 10).tolist() == slowly[:10]


def test_of_equal_scores_the_lower_row_comes_first_also_at_the_edge() -> None:
    scores = np.array([0.5, 0.9, 0.5, 0.9, 0.5, 0.5], "<f4")
    assert highest(scores, 4).tolist() == [1, 3, 0, 2]
    assert highest(scores, 6).tolist() == [1, 3, 0, 2, 4, 5]


def test_what_shares_no_direction_does_not_come_back() -> None:
    scores = np.array([0.0, -0.2, 0.1, -1.0], "<f4")
    assert highest(scores, 10).tolist() == [2]
    assert highest(np.zeros(3, "<f4"), 2).tolist() == []


# Few


def test_few_are_searched_in_whole(few: Opened) -> None:
    vectors = groups(3000, dim=16)
    few.add(vectors)
    for row in range(0, 3000, 100):
        rows, scores = few.space.search(vectors[row], GROUP)
        assert rows.tolist() == brute_force(vectors, vectors[row])
        assert np.allclose(scores, vectors[rows] @ vectors[row])
    assert not few.bits.exists()


def test_an_empty_space_and_one_without_anything_near_give_nothing(few: Opened) -> None:
    one = np.eye(16, dtype=np.float32)
    assert few.nearest(one[0]) == []
    few.add(np.array([one[1], -one[0]]))
    assert few.nearest(one[0]) == []


def test_each_memory_has_its_vector_back(few: Opened) -> None:
    vectors = groups(1200, dim=16)
    few.add(vectors)
    found = few.space.of([1, 1200, 7, 9999])
    assert sorted(found) == [1, 7, 1200]
    assert all(np.array_equal(vector, vectors[id - 1]) for id, vector in found.items())
    assert few.space.of([]) == {}


# Many


@pytest.mark.slow
def test_among_many_the_bits_find_what_brute_force_finds(many: Opened, vectors: Vectors) -> None:
    for row in (0, CHUNK - 1, CHUNK, CHUNKS * CHUNK - 1, CHUNKS * CHUNK, MANY - 1):  # in chunks, and beyond the last
        right = brute_force(vectors, vectors[row])
        assert many.nearest(vectors[row]) == many.nearest(vectors[row], exact=True) == right
    size = many.bits.stat().st_size
    assert CHUNKS * CHUNK * DIM // 8 < size < CHUNKS * CHUNK * (DIM // 8 + 5)


def test_what_is_added_is_found_at_once_and_gets_bits_when_a_chunk_is_full(many: Opened, vectors: Vectors) -> None:
    assert many.nearest(vectors[0]) == brute_force(vectors, vectors[0])
    size, new = many.bits.stat().st_size, groups(CHUNK // GROUP * GROUP, seed=2)
    all_vectors = np.concatenate([vectors, new])
    many.add(new[:GROUP])
    assert many.nearest(new[0]) == brute_force(all_vectors, new[0])
    assert many.bits.stat().st_size == size
    many.add(new[GROUP:])
    for vector in (new[0], new[-1], vectors[0]):
        assert many.nearest(vector) == brute_force(all_vectors, vector)
    assert many.bits.stat().st_size == size // CHUNKS * (CHUNKS + 1)


def test_another_process_uses_the_bits_that_are_there(many: Opened, vectors: Vectors) -> None:
    many.nearest(vectors[0])
    written = many.bits.stat().st_mtime_ns
    with Opened(many.folder) as other:
        assert other.nearest(vectors[4000]) == brute_force(vectors, vectors[4000])
    assert many.bits.stat().st_mtime_ns == written


@pytest.mark.parametrize("harm", ["gone", "short", "empty", "of zeros", "garbled"])
def test_bits_that_are_lost_or_damaged_are_made_anew(many: Opened, vectors: Vectors, harm: str) -> None:
    many.nearest(vectors[0])
    sound = many.bits.read_bytes()
    many.bits.unlink()
    if harm != "gone":
        half = sound[: len(sound) // 2]
        bad = {"short": half, "empty": b"", "of zeros": bytes(len(sound)), "garbled": half + half}
        many.bits.write_bytes(bad[harm])
    with Opened(many.folder) as other:
        for opened in (many, other):
            for row in (0, 5000):
                assert opened.nearest(vectors[row]) == brute_force(vectors, vectors[row])
    assert many.bits.read_bytes() == sound


@pytest.mark.slow
def test_vectors_that_are_mostly_zeros_are_searched_in_whole(tmp_path: Path) -> None:
    sparse = groups(MANY)
    sparse[:, 100:] = 0
    with Opened(tmp_path / "memory") as opened:
        opened.add(sparse)
        assert opened.nearest(sparse[4000]) == brute_force(sparse, sparse[4000])
        assert not opened.bits.exists()


def test_among_many_each_memory_has_its_vector_back(many: Opened, vectors: Vectors) -> None:
    found = many.space.of([1, CHUNK, 3 * CHUNK + 1, MANY])
    assert sorted(found) == [1, CHUNK, 3 * CHUNK + 1, MANY]
    assert all(np.array_equal(vector, vectors[id - 1]) for id, vector in found.items())


SEARCH = """
import sys
from pathlib import Path
import numpy as np
from autoagent.memory.sqlite.database import connect
from autoagent.memory.sqlite.vector_space import VectorSpace
folder = Path(sys.argv[1])
space = VectorSpace.find(connect(folder), folder, "e", 2048)
print(*space.search(np.fromfile(folder / "query", "<f4"), 10)[0])
"""


def test_processes_that_make_the_bits_at_once_find_the_same(many: Opened, vectors: Vectors) -> None:
    vectors[4321].tofile(many.folder / "query")
    command = [sys.executable, "-c", SEARCH, str(many.folder)]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    answers = [process.communicate(timeout=60)[0] for process in running]
    assert [[int(row) for row in answer.split()] for answer in answers] == [brute_force(vectors, vectors[4321])] * 3
    assert many.nearest(vectors[4321]) == brute_force(vectors, vectors[4321])


# Damage


@pytest.mark.parametrize("row", [4321, MANY - 5], ids=["under bits", "beyond them"])
@pytest.mark.parametrize("searched", [False, True], ids=["before the bits", "after them"])
def test_a_damaged_vector_is_found_before_it_is_compared(
    many: Opened, vectors: Vectors, row: int, searched: bool
) -> None:
    if searched:
        many.nearest(vectors[0])
    many.damage(row)
    opened = Opened(many.folder)
    with pytest.raises(Damaged, match=r"vectors-1\.f32"):
        opened.nearest(vectors[row])
    assert opened.space.of([row + 1]) == {}
    block = row // BLOCK * BLOCK
    lost = min(block + BLOCK, MANY) - block
    assert opened.space.drop_damaged() == lost
    assert [id for id, _ in opened.space.without_row(0, MANY)] == list(range(block + 1, block + lost + 1))
    left = vectors.copy()
    left[block : block + lost] = 0
    for query in (vectors[row], vectors[0], vectors[MANY - 2000]):
        rows = [found for found in brute_force(left, query) if left[found] @ query > 0]
        assert opened.nearest(query) == opened.nearest(query, exact=True) == rows
    opened.db.close()


def test_damage_done_while_a_process_searches_is_found(many: Opened, vectors: Vectors) -> None:
    many.nearest(vectors[0])
    many.damage(4321)
    with pytest.raises(Damaged):
        many.nearest(vectors[4321])


def test_what_another_process_mends_is_searched_as_it_is_now(many: Opened, vectors: Vectors) -> None:
    assert many.nearest(vectors[4321]) == brute_force(vectors, vectors[4321])
    with Opened(many.folder) as other:
        other.damage(4321)
        lost = other.space.drop_damaged()
        missing = [id for id, _ in other.space.without_row(0, MANY)]
        assert len(missing) == lost == BLOCK
        with writing(other.db, other.folder):
            other.space.append({id: vectors[id - 1] for id in missing})
        rows = dict(other.db.execute("SELECT memory, row FROM vectors"))
        at = sorted(rows[row + 1] for row in brute_force(vectors, vectors[4321]))
        assert sorted(many.nearest(vectors[4321])) == sorted(other.nearest(vectors[4321])) == at


@pytest.mark.parametrize("rows", [0, 100, CHUNK, MANY - 1])
def test_a_file_that_lost_its_end_is_noticed(many: Opened, vectors: Vectors, rows: int) -> None:
    many.nearest(vectors[0])
    kept = many.file.read_bytes()[: rows * WIDTH + 5]
    many.file.unlink()
    many.file.write_bytes(kept)
    with pytest.raises(Damaged):
        many.nearest(vectors[0])
    assert many.space.drop_damaged() == MANY - rows // BLOCK * BLOCK  # half a block differs from its checksum
    assert [row for row in many.nearest(vectors[0]) if row >= rows] == []


def test_rows_lost_to_a_power_cut_are_noticed(few: Opened) -> None:
    vectors = groups(2000, dim=16)
    few.add(vectors)
    with few.file.open("r+b") as file:  # the size is on disk, what was in the last pages is not
        file.seek(1990 * 64)
        file.write(bytes(10 * 64))
    with pytest.raises(Damaged):
        few.nearest(vectors[0])
    assert few.space.drop_damaged() == 2000 - BLOCK  # the last block alone


def test_not_a_number_left_by_damage_hides_nothing(few: Opened) -> None:
    vectors = groups(2000, dim=16)
    few.add(vectors)
    with few.file.open("r+b") as file:
        file.seek(1500 * 64)
        file.write(np.full((50, 16), np.nan, "<f4").tobytes())
    assert few.space.drop_damaged() == 2000 - BLOCK
    assert few.nearest(vectors[3]) == brute_force(vectors[:BLOCK], vectors[3])
