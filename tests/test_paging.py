"""Pages and ends of long texts: nothing is lost between two pages, and every number in a note is right."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from autoagent.core.errors import CommandError
from autoagent.text.paging import fill_page, keep_ends

TEXTS = st.text(st.sampled_from("ab \n\r\té中"), max_size=300)


def words(text: str) -> int:
    """A count of tokens that is easily reckoned: one for each character."""
    return len(text)


@given(TEXTS, st.integers(1, 60))
@example("", 5)
@example("\n\n", 1)
def test_pages_read_on_one_after_the_other_are_the_text(text: str, room: int) -> None:
    read, first, column = "", 1, 1
    for _ in range(2 * len(text) + 1):
        part = fill_page(text, lambda piece: len(piece) <= room, first=first, column=column)
        read += part.text
        assert len(part.text) <= room
        if part.next_position is None:
            break
        assert part.text
        assert f"first_line={part.next_position[0]}" in part.note("read_on(")
        first, column = part.next_position
    assert read == text


@given(TEXTS, st.integers(1, 30), st.integers(1, 30))
def test_a_page_of_so_many_lines_holds_these(text: str, first: int, lines: int) -> None:
    part = fill_page(text, lambda piece: True, first=first, lines=lines)
    assert part.text == "".join(re.findall(r"[^\n]*\n|[^\n]+\Z", text)[first - 1 : first - 1 + lines])


def test_a_column_past_the_end_of_a_line_begins_at_its_end() -> None:
    part = fill_page("abc\ndef\nghi", lambda piece: True, lines=2, column=50)
    assert (part.text, part.next_position) == ("\ndef\n", (3, 1))


def test_the_note_of_a_page_says_where_it_stopped_and_how_to_go_on() -> None:
    text = "".join(f"line {n}\n" for n in range(1, 101))
    part = fill_page(text, lambda piece: len(piece) <= 71)
    assert part.note('read_file("a", ') == '[lines 1 to 10 of 100; go on with read_file("a", first_line=11)]'
    assert part.text.endswith("line 10\n")
    assert fill_page(text, lambda piece: True, first=91).note("f(") == "[lines 91 to 100 of 100: the end]"
    assert fill_page(text, lambda piece: True, first=100, lines=5).note("f(") == "[line 100 of 100: the end]"
    assert fill_page(text, lambda piece: True, first=101).note("f(") == "[there is no line 101: the last one is 100]"
    assert fill_page(text, lambda piece: True).note("f(") == ""
    long = fill_page("x" * 1000, lambda piece: len(piece) <= 300, column=301)
    assert long.note("f(") == "[line 1 from column 301 up to column 600 of 1; go on with f(first_line=1, column=601)]"


@pytest.mark.parametrize("wrong", [{"first": 0}, {"lines": 0}, {"column": -1}])
def test_numbers_below_one_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(CommandError, match="count from 1"):
        fill_page("a\nb\n", lambda piece: True, **wrong)


@given(st.lists(st.text("abc ", max_size=40), min_size=30, max_size=120), st.integers(150, 400))
def test_between_two_ends_exactly_what_the_note_names_is_left_out(lines: list[str], limit: int) -> None:
    text = "\n".join(lines) + "\n"
    shown = keep_ends(text, limit, words, "read_result(step=7, ")
    assert len(shown) <= limit or shown.startswith("[… ")
    if shown == text:
        return
    found = re.fullmatch(r"(?s)(.*?)\n?\[… (.+?) left out; read_result\(step=7, (.+?)\) shows them …\]\n?(.*)", shown)
    assert found
    head, what, place, tail = found.groups()
    assert text.startswith(head) and text.endswith(tail)
    if by_line := re.fullmatch(r"lines? ([\d,]+)(?: to ([\d,]+))? of ([\d,]+)", what):
        first, last = int(by_line[1]), int(by_line[2] or by_line[1])
        assert int(by_line[3]) == len(lines)
        assert place == f"first_line={first}"
        assert head.split("\n") == lines[: first - 1]
        assert tail == "".join(f"{line}\n" for line in lines[last:])
    else:
        left_out = len(text) - len(head) - len(tail)
        assert what == f"{left_out:,} of {len(text):,} characters"


def test_a_long_line_is_read_on_from_a_column() -> None:
    shown = keep_ends("x" * 5000, 500, words, "read_result(step=7, ")
    assert re.search(r"\[… [\d,]+ of 5,000 characters left out; read_result\(step=7, first_line=1, column=\d+\)", shown)


def test_what_fits_stays_as_it_is() -> None:
    assert keep_ends("a\n" * 100, 200, words) == "a\n" * 100
