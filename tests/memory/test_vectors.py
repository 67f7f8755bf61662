"""The vector file: rows where they were put, mapped as the file is now."""

import os
import stat
from pathlib import Path

import numpy as np
import pytest

from autoagent.memory.sqlite.vectors import BLOCK, VectorFile, Vectors, by_block, extend_checksum


@pytest.fixture
def file(tmp_path: Path) -> VectorFile:
    return VectorFile(tmp_path / "vectors.f32", 3)


def some(rows: int, dim: int = 3) -> Vectors:
    return np.random.default_rng(1).standard_normal((rows, dim), np.float32)


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


def test_only_the_owner_can_read_it(file: VectorFile) -> None:
    file.write(0, some(1))
    assert stat.S_IMODE(file.path.stat().st_mode) == 0o600


def test_pieces_end_where_blocks_do() -> None:
    pieces = list(by_block(BLOCK - 10, some(BLOCK + 20)))
    assert [(block, len(piece)) for block, piece in pieces] == [(0, 10), (1, BLOCK), (2, 10)]
    assert np.array_equal(np.concatenate([piece for _, piece in pieces]), some(BLOCK + 20))


def test_a_checksum_extended_is_that_of_the_whole() -> None:
    vectors = some(100)
    assert extend_checksum(extend_checksum(0, vectors[:37]), vectors[37:]) == extend_checksum(0, vectors)
    assert extend_checksum(0, vectors) != extend_checksum(0, vectors[::-1])
