"""The vector file: rows where they were put, mapped as the file is now.

Sign bits: they find what is near, and what is half-written, damaged or of other vectors is not taken in.
"""

import os
import stat
from pathlib import Path

import numpy as np
import pytest

from autoagent.memory.sqlite.vectors import (
    BLOCK,
    SignBits,
    VectorFile,
    Vectors,
    by_block,
    extend_checksum,
    row_checks,
    signs,
)  # fmt: skip

DIM = 2048  # of vectors whose signs are kept


@pytest.fixture
def file(tmp_path: Path) -> VectorFile:
    return VectorFile(tmp_path / "vectors.f32", 3)


def some(rows: int, dim: int = 3, seed: int = 1) -> Vectors:
    return np.random.default_rng(seed).standard_normal((rows, dim), np.float32)


def test_rows_are_read_as_they_were_written(file: VectorFile) -> None:
    vectors = some(5000)
    file.write(0, vectors[:1])
    file.write(1, vectors[1:4000])
    file.write(4000, vectors[4000:])
    assert file.whole_rows() == 5000
    for first, last in ((0, 5000), (0, 1), (4999, 5000), (1365, 1367), (17, 4711)):
        assert np.array_equal(file.read(first, last), vectors[first:last])


def test_what_is_read_cannot_be_written_by_accident(file: VectorFile) -> None:
    file.write(0, some(2))
    with pytest.raises(ValueError, match="read-only"):
        file.read(0, 2)[0] = 0


def test_no_rows_can_be_read_where_there_is_no_file(file: VectorFile) -> None:
    assert file.whole_rows() == 0
    assert file.read(0, 0).shape == (0, 3)
    with pytest.raises(FileNotFoundError):
        file.read(0, 1)


def test_half_a_row_does_not_count_and_is_written_over(file: VectorFile) -> None:
    file.write(0, some(3))
    os.truncate(file.path, 3 * 12 - 5)
    assert file.whole_rows() == 2
    file.write(2, some(1))
    assert file.path.stat().st_size == 3 * 12
    assert np.array_equal(file.read(2, 3), some(1))


def test_a_file_put_in_the_place_of_another_is_read(file: VectorFile) -> None:
    file.write(0, some(4))
    before = file.read(0, 4)
    other = VectorFile(file.path.with_name("other"), 3)
    other.write(0, np.ones((4, 3), np.float32))
    other.path.replace(file.path)
    assert np.array_equal(file.read(0, 4), np.ones((4, 3)))
    assert np.array_equal(before, some(4))  # what somebody still holds does not change


def test_only_the_owner_can_read_the_files(file: VectorFile, path: Path) -> None:
    file.write(0, some(1))
    written(path, 1)
    assert {stat.S_IMODE(each.stat().st_mode) for each in (file.path, path)} == {0o600}


def test_pieces_end_where_blocks_do() -> None:
    pieces = list(by_block(BLOCK - 10, some(BLOCK + 20)))
    assert [(block, len(piece)) for block, piece in pieces] == [(0, 10), (1, BLOCK), (2, 10)]
    assert np.array_equal(np.concatenate([piece for _, piece in pieces]), some(BLOCK + 20))


def test_a_checksum_extended_is_that_of_the_whole() -> None:
    vectors = some(100)
    assert extend_checksum(extend_checksum(0, vectors[:37]), vectors[37:]) == extend_checksum(0, vectors)
    assert extend_checksum(0, vectors) != extend_checksum(0, vectors[::-1])


# Sign bits


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "vectors.bits"


def written(path: Path, chunks: int = 2) -> tuple[SignBits, Vectors]:
    """Bits of so many chunks, chunk n from source n; not loaded."""
    bits = SignBits(path, DIM)
    vectors = some(chunks * bits.chunk, DIM)
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
