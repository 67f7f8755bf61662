"""Sign bits: they find what is near, and what is half-written, damaged or of other vectors is not taken in."""

import os
import stat
from pathlib import Path

import numpy as np
import pytest

from autoagent.memory.sqlite.vectors import BLOCK, SignBits, Vectors, row_checks, signs

DIM = 2048


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "vectors.bits"


def some(rows: int, dim: int = DIM, seed: int = 1) -> Vectors:
    return np.random.default_rng(seed).standard_normal((rows, dim), np.float32)


def written(path: Path, chunks: int = 2) -> tuple[SignBits, Vectors]:
    """Bits of so many chunks, chunk n from source n; not loaded."""
    bits = SignBits(path, DIM)
    vectors = some(chunks * bits.chunk)
    for number in range(chunks):
        bits.write(number, number, vectors[number * bits.chunk : (number + 1) * bits.chunk])
    return bits, vectors


@pytest.mark.parametrize("dim", [1, 64, 100, 256, 1536, 100_000])
def test_a_chunk_is_whole_blocks(dim: int) -> None:
    chunk = SignBits(Path("nowhere"), dim).chunk
    assert chunk > 0 and chunk % BLOCK == 0


@pytest.mark.parametrize("dim", [1, 63, 64, 65, 256])
def test_the_candidates_are_the_rows_that_differ_in_the_fewest_signs(path: Path, dim: int) -> None:
    bits = SignBits(path, dim)
    vectors, query = some(bits.chunk, dim), some(1, dim, seed=2)[0]
    bits.write(0, 7, vectors)
    bits.load([7])
    differing = ((vectors > 0) != (query > 0)).sum(axis=1)
    for count in (1, 10, 500):
        edge = np.sort(differing)[count - 1]
        assert bits.candidates(query, count).tolist() == np.flatnonzero(differing <= edge).tolist()


def test_candidates_come_from_all_chunks_and_are_at_most_all_rows(path: Path) -> None:
    bits, vectors = written(path)
    bits.load([0, 1])
    assert bits.rows == len(vectors) == 2 * bits.chunk
    for row in (0, bits.chunk - 1, bits.chunk, 2 * bits.chunk - 1):
        assert bits.candidates(vectors[row], 1).tolist() == [row]
    assert len(bits.candidates(vectors[0], 10**6)) == bits.rows


def test_a_row_opposite_to_the_query_is_no_candidate(path: Path) -> None:
    bits = SignBits(path, 256)
    vectors = some(bits.chunk, 256)
    vectors[5] = -vectors[9]  # differs in all 256 signs, one more than a byte counts
    bits.write(0, 0, vectors)
    bits.load([0])
    assert 5 not in bits.candidates(vectors[9], 100)


def test_no_file_holds_no_rows(path: Path) -> None:
    bits = SignBits(path, DIM)
    bits.load([0, 1])
    assert (bits.rows, bits.is_replaced()) == (0, True)


@pytest.mark.parametrize("cut", [1, 10_000], ids=["a byte", "much"])
def test_a_chunk_that_is_half_written_is_none(path: Path, cut: int) -> None:
    bits, _ = written(path)
    os.truncate(path, path.stat().st_size - cut)
    bits.load([0, 1])
    assert bits.rows == bits.chunk


@pytest.mark.parametrize("place", [0, 8, 9000, -1], ids=["checksum", "first check", "bits", "end"])
def test_a_damaged_chunk_is_none(path: Path, place: int) -> None:
    bits, _ = written(path)
    damaged = bytearray(path.read_bytes())
    damaged[place if place < 0 else len(damaged) // 2 + place] ^= 1
    path.write_bytes(damaged)
    bits.load([0, 1])
    assert bits.rows == bits.chunk


def test_a_chunk_made_from_other_vectors_is_none(path: Path) -> None:
    bits, _ = written(path)
    bits.load([0, 99])
    assert bits.rows == bits.chunk
    bits.load([99, 1])
    assert bits.rows == 0


def test_a_chunk_of_zeros_is_none(path: Path) -> None:
    bits, _ = written(path, 1)
    path.write_bytes(bytes(path.stat().st_size))
    bits.load([0])
    assert bits.rows == 0


def test_a_file_that_was_removed_or_replaced_has_changed(path: Path) -> None:
    bits, vectors = written(path)
    bits.load([0, 1])
    assert not bits.is_replaced()
    path.unlink()
    assert bits.is_replaced()
    written(path)
    assert bits.is_replaced()
    assert bits.candidates(vectors[3], 1).tolist() == [3]  # what was loaded can still be used


def test_only_the_owner_can_read_it(path: Path) -> None:
    written(path, 1)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_changed_vector_is_noticed(path: Path) -> None:
    bits, vectors = written(path)
    bits.load([0, 1])
    rows = np.array([3, bits.chunk - 1, bits.chunk, bits.chunk + 77])
    assert bits.sound(rows, vectors[rows])
    for place in range(len(rows)):
        changed = vectors[rows]
        changed[place, 100] = np.nextafter(changed[place, 100], np.float32(9))
        assert not bits.sound(rows, changed)
    assert not bits.sound(rows, vectors[rows + 1])
    assert bits.sound(rows[:0], vectors[:0])


def test_the_check_of_a_row_sees_values_changed_swapped_and_lost() -> None:
    vectors = some(1, 100)
    swapped, bit = vectors.copy(), vectors.copy()
    swapped[0, [3, 4]] = vectors[0, [4, 3]]
    bit.view(np.uint32)[0, 50] ^= 1 << 31
    checks = [row_checks(each)[0] for each in (vectors, swapped, bit, np.zeros_like(vectors))]
    assert len(set(checks)) == 4


def test_zero_has_no_sign() -> None:
    assert signs(np.zeros((2, 65), np.float32)).tolist() == [[0, 0], [0, 0]]
