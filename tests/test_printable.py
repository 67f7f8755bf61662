"""Hostile and foreign text: what is shown of it, how wide it is, how it is cut and wrapped."""

# ruff: noqa: RUF001 (letters that look alike are what is tested)

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoagent.text.sanitize import escape, fold_blanks, script_notes, shorten, shorten_lines, width
from autoagent.text.wrapping import Flow, cut, wrap


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain\n\ttext", "plain\n\ttext"),
        ("\x1b[2J\x1b]0;title\x07", r"\x1b[2J\x1b]0;title\x07"),
        ("a\rb\x00c\x7f\x9b1m", r"a\rb\x00c\x7f\x9b1m"),
        ("user\u202e txt.exe\u2066", r"user\u202e txt.exe\u2066"),
        ("a\u200bb\u200dc\ufeffd\u2060", r"a\u200bb\u200dc\ufeffd\u2060"),
        ("\U000e0041\U000e007f", r"\U000e0041\U000e007f"),
        ("\ud800", r"\ud800"),
        ("\u2028\x85\u3164\xad", r"\u2028\x85\u3164\xad"),
        ("⚠\ufe0f fine", "⚠\ufe0f fine"),
        ("a\ufe0f⚠\ufe0f\ufe0f\U000e0100", "a\\ufe0f⚠\ufe0f\\ufe0f\\U000e0100"),
        ("naïve 漢字 שלום e\u0301", "naïve 漢字 שלום e\u0301"),
    ],
)
def test_what_a_terminal_would_obey_or_hide_is_shown_as_an_escape(text: str, shown: str) -> None:
    assert escape(text) == shown


@settings(deadline=None)
@given(st.text(st.characters(codec=None)))
def test_escaped_text_can_be_written_and_holds_no_control(text: str) -> None:
    shown = escape(text)
    shown.encode("utf-8")
    assert not [char for char in shown if (char < " " and char not in "\n\t") or "\x7f" <= char <= "\x9f"]
    assert escape(shown) == shown


def test_words_of_mixed_scripts_are_named_with_their_letters() -> None:
    assert script_notes("run \u0430pt install, then \u0430pt again") == ("'\u0430pt' (Cyrillic: \\u0430pt)",)
    assert script_notes("g\u03bfogle.com") == ("'g\u03bfogle' (Greek: g\\u03bfogle)",)


@pytest.mark.parametrize("text", ["apt install", "Привет, мир", "Δx and λ", "naïve café", "漢字 with text"])
def test_words_of_one_script_are_left_alone(text: str) -> None:
    assert script_notes(text) == ()


@pytest.mark.parametrize(
    ("text", "columns"), [("abc", 3), ("漢字", 4), ("e\u0301", 1), ("ｆｕ", 4), ("🙂", 2), ("⚠\ufe0f", 1)]
)
def test_width_counts_columns(text: str, columns: int) -> None:
    assert width(text) == columns


def test_long_blank_runs_are_folded() -> None:
    assert fold_blanks("ls" + " " * 2000 + "; rm x") == "ls ... 2,000 spaces ... ; rm x"
    assert fold_blanks("a" + "\n" * 2001 + "b") == "a\n... 2,000 blank lines ...\nb"
    for blank in "\u00a0\u2003\u2800\u3000":
        assert fold_blanks("ls" + blank * 2000 + "; rm x") == "ls ... 2,000 spaces ... ; rm x"
        assert fold_blanks("a" + f"{blank}\n" * 2001 + "b") == f"a{blank}\n... 2,000 blank lines ...\nb"
    assert fold_blanks(text := "a\n\n\n." + " " * 72 + "[100%]") == text


def test_a_long_text_keeps_head_and_tail_and_says_what_is_missing() -> None:
    text = "HEAD" + "x" * 50_000 + "PAYLOAD" + "x" * 50_000 + "TAIL"
    short = shorten(text, 300)
    assert short.startswith("HEAD") and short.endswith("TAIL")
    assert "... 99,715 characters left out of 100,015 ..." in short
    assert shorten("short", 300) == "short"


def test_many_lines_keep_head_and_tail() -> None:
    lines = [str(number) for number in range(100)]
    assert shorten_lines(lines, 6) == ["0", "1", "2", "3", "... 94 lines left out of 100 ...", "98", "99"]
    assert shorten_lines(lines[:6], 6) == lines[:6]


def test_prose_is_wrapped_at_words_and_wide_characters() -> None:
    assert wrap("The quick brown fox jumps", 20, at=5) == "The quick brown\n  fox jumps"
    assert wrap("漢字漢字漢字漢字漢字漢字", 20) == "漢字漢字漢字漢字漢字\n  漢字"
    assert wrap("x" * 30, 20, at=3) == "\n  " + "x" * 18 + "\n  " + "x" * 12
    assert wrap("one\n\n- two", 20) == "one\n\n  - two"


@settings(deadline=None)
@given(st.lists(st.text(st.sampled_from("ab 漢\n\t\x1be\u0301🙂⚠\ufe0f"), max_size=30)), st.integers(1, 60))
def test_wrapping_is_the_same_however_the_text_is_cut_into_pieces(pieces: list[str], columns: int) -> None:
    flow = Flow(columns)
    streamed = "".join(map(flow.feed, pieces)) + flow.flush()
    assert streamed == wrap("".join(pieces), columns)
    assert all(width(line) <= max(columns, 20) for line in streamed.split("\n"))


def test_a_line_of_a_block_is_cut_by_columns() -> None:
    assert list(cut("x" * 30, 20, "| ")) == ["| " + "x" * 18, "|     " + "x" * 12]
    assert list(cut("漢" * 10, 20, "|")) == ["|" + "漢" * 9, "|    " + "漢"]
    assert list(cut("", 20, "| ")) == ["| "]


def test_a_line_may_be_cut_at_its_spaces() -> None:
    line = "one two three four five six"
    assert list(cut(line, 20, "| ", at_spaces=True)) == ["| one two three four", "|     five six"]
    assert list(cut("x" * 30, 20, "| ", at_spaces=True)) == list(cut("x" * 30, 20, "| "))
    assert list(cut("a " + "x" * 30, 20, "| ", at_spaces=True)) == ["| a " + "x" * 16, "|     " + "x" * 14]
    assert list(cut("    " + "x" * 15, 20, "| ", at_spaces=True)) == ["|     " + "x" * 14, "|     x"]
