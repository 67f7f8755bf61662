"""What a user types is parted into goal and check only where the check can be run, and never against their word."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoagent.core.task import Goal
from autoagent.text.typed_goal import check_note, parse_goal


@pytest.mark.parametrize(
    ("text", "check"),
    [
        ("Write report.md", "test -s report.md"),
        ("Implement add :: Int -> Int in add.hs", "grep -q add add.hs"),
        ("Write it", "grep -q 'a :: b' x"),
        ("Write it", "grep -q '->' x"),
        ("Write it", "[ -f x ] && ! grep y z"),
        ("Write it", "! test -e b"),
        ("Write it", "(test -s a; test -s b)"),
        ("Write it", "if test -s x; then true; else false; fi"),
        ("Write it", "X=1 Y=$(echo 2) test -n 1"),
        ("Write it", "./check.sh"),
        ("Write it", "test 1 -gt 0 >/dev/null 2>&1"),
        ("Write it", """test "it's" = 'a "quoted" one'"""),
    ],
)
def test_a_shell_command_after_the_double_colon_is_a_check(text: str, check: str) -> None:
    goal = parse_goal(f" {text} ::  {check} ")
    assert goal == Goal(text, check)
    assert check in check_note(f"{text} :: {check}", goal)


@pytest.mark.parametrize(
    "line",
    [
        "Implement add :: Int -> Int -> Int in add.hs", "Implement id :: id -> id", "Implement f :: (Int, Int)",
        "Implement f :: [a]", "Implement f :: IO ()", "Say why :: it's so", "Look at x :: there is no such program",
        "Use a :: \x00", "a ::", ":: true",
    ],
)  # fmt: skip
def test_anything_else_is_text_and_that_is_said(line: str) -> None:
    goal = parse_goal(line)
    assert goal == Goal(line)
    assert (" :: " in line) == ("with no check" in check_note(line, goal))


def test_the_mark_can_be_written_literally() -> None:
    assert parse_goal(r"Explain sort \:: sort") == Goal("Explain sort :: sort")
    assert check_note(r"Explain sort \:: sort", Goal("Explain sort :: sort")) == ""
    assert parse_goal(r"Explain sort \:: sort :: test -s a") == Goal("Explain sort :: sort", "test -s a")


def test_nothing_is_run_to_find_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for check in ("touch made", "test $(touch made)", "true > made", "X=1 touch made", "if touch made; then :; fi"):
        assert parse_goal(f"Do it :: {check}") == Goal("Do it", check)
    assert not list(tmp_path.iterdir())


@given(st.text().filter(lambda text: " :: " not in text and r" \:: " not in text))
def test_what_holds_no_mark_is_the_text(line: str) -> None:
    assert parse_goal(line) == Goal(line.strip())
