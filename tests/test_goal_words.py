"""What of the goals' words stands where: endings of names, words in lines, and what a goal wants deleted."""

from __future__ import annotations

import pytest

from autoagent.core.task import Goal
from autoagent.steps.goal_words import endings_shown, left_to_delete, left_to_move, lines_shown, want_change
from autoagent.text.named_files import named_endings

PEOPLE = {"people.csv": "name,city\nAnna,Oslo\nBen,Rome\nCara,Oslo\nDev,Lima\n"}


@pytest.mark.parametrize(
    ("text", "endings"),
    [
        ("Delete every file whose name ends with .tmp", (".tmp",)),
        ("all *.log files, each .md, and x.bak", (".log", ".md")),
        ("Move all .txt files. Then end.", (".txt",)),
        ("see a.b.c, https://x.y/z.tmp, items.sort() and 3.5 m", ()),
    ],
)
def test_endings_are_those_that_stand_alone(text: str, endings: tuple[str, ...]) -> None:
    assert named_endings(text) == endings


def test_the_names_with_an_ending_are_listed() -> None:
    assert list(endings_shown("Delete each .tmp and .bak", ["a.tmp", "tmp.md", "b/c.tmp"])) == [
        "Ending with .tmp: 'a.tmp', 'b/c.tmp'."
    ]


@pytest.mark.parametrize(
    ("goal", "left"),
    [
        ("Delete every file whose name ends with .tmp", ("a.tmp", "b.tmp")),
        ("Remove all *.tmp files", ("a.tmp", "b.tmp")),
        ("Delete all .tmp files except a.tmp", ()),
        ("Delete all .tmp files older than a week", ()),
        ("Delete a .tmp file", ()),
        ("Keep all .tmp files", ()),
        ("Delete all files", ()),
    ],
)
def test_what_a_goal_wants_deleted_is_what_it_says_without_a_but(goal: str, left: tuple[str, ...]) -> None:
    assert left_to_delete([Goal(goal)], ["a.tmp", "b.tmp", "tmp.md"]) == left


@pytest.mark.parametrize(
    ("goal", "left"),
    [
        ("Move all .md files into a folder docs", ("b.md",)),
        ("Rename every .md file so that it ends with .txt", ("b.md",)),
        ("Move all .md files but b.md into a folder docs", ()),
        ("Move b.md into a folder docs", ()),
    ],
)
def test_what_a_goal_wants_moved_is_what_the_run_has_not_moved(goal: str, left: tuple[str, ...]) -> None:
    assert left_to_move([Goal(goal)], ["b.md", "c.txt", "docs/a.md"], {"docs/a.md"}) == left


@pytest.mark.parametrize(
    ("goal", "wanted"),
    [
        ("Fix the bug in calc.py", True),
        ("calc.py is wrong. Mend it", True),
        ("Read config.txt and set the port to 80", True),
        ("Do not change c.md", False),
        ("Add up the numbers in numbers.txt", False),
        ("Fix the bug", False),  # in what, it does not say
        ("Find the set of names in names.txt", False),
    ],
)
def test_a_goal_that_wants_a_file_changed(goal: str, wanted: bool) -> None:
    assert want_change([Goal(goal)]) is wanted


def test_the_lines_with_a_word_of_the_goals_are_shown() -> None:
    assert list(lines_shown("Write the names of everybody who lives in Oslo to oslo.txt", PEOPLE)) == [
        "Lines of 'people.csv' with \"Oslo\" (2 of 5):\nAnna,Oslo\nCara,Oslo"
    ]


def test_a_word_is_looked_for_in_all_files_together() -> None:
    texts = {"a.txt": "hay", "b.txt": "hay needle hay", "c.txt": "hay"}
    assert list(lines_shown("Find which file holds the word needle", texts)) == [
        "Lines of 'b.txt' with \"needle\" (1 of 1):\nhay needle hay"
    ]


@pytest.mark.parametrize(
    ("goal", "text"),
    [
        ("Say when the meeting is", "The meeting is on Monday.\n"),  # in every line
        ("Read every line with care", "every\nline\nwith\ncares\n"),  # words of any instruction, and a part of one
        ("Put all of it in one", "all\nput\none\nthe\n"),
        ("Add up the numbers in sum.txt", "sum.txt\n1\n2\n3\n"),  # the name of a file
    ],
)
def test_words_that_tell_no_lines_apart_are_left_out(goal: str, text: str) -> None:
    assert list(lines_shown(goal, {"a.txt": text})) == []


def test_many_and_long_lines_are_cut() -> None:
    (shown,) = lines_shown("Find ERROR", {"app.log": ("ERROR " + "x" * 500 + "\n") * 20 + "ok\n" * 30})
    head, *lines = shown.split("\n")
    assert head == "Lines of 'app.log' with \"ERROR\" (20 of 50):"
    assert [len(line) for line in lines] == [100] * 6
