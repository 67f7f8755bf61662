"""What of the goals' words stands where: endings of names, words in lines."""

from __future__ import annotations

import pytest

from autoagent.agent.goal_words import describe_lines, mentioned_groups

PEOPLE = {"people.csv": "name,city\nAnna,Oslo\nBen,Rome\nCara,Oslo\nDev,Lima\n"}


@pytest.mark.parametrize(
    ("text", "endings"),
    [
        ("Delete every file whose name ends with .tmp", [".tmp"]),
        ("Lösche alle .md- und *.log-Dateien und x.bak", [".md", ".log"]),
        ("Move all .md files. Then end.", [".md"]),
        ("see a.b.c, https://x.y/z.tmp, items.bak() and 3.5 m", []),
    ],
)
def test_the_names_with_an_ending_that_stands_alone_are_listed(text: str, endings: list[str]) -> None:
    names = ["a.tmp", "tmp.md", "b/c.tmp", "d.log", "e.bak"]
    having = {".tmp": ["a.tmp", "b/c.tmp"], ".md": ["tmp.md"], ".log": ["d.log"]}
    assert mentioned_groups(text, names) == {f"Ending with {ending}": having[ending] for ending in endings}


def test_the_lines_with_a_word_of_the_goals_are_shown() -> None:
    assert list(describe_lines("Write the names of everybody who lives in Oslo to oslo.txt", PEOPLE)) == [
        "Lines of 'people.csv' with \"Oslo\" (2 of 5):\nAnna,Oslo\nCara,Oslo"
    ]


def test_a_word_is_looked_for_in_all_files_together() -> None:
    texts = {"a.txt": "hay", "b.txt": "hay needle hay", "c.txt": "hay"}
    assert list(describe_lines("Find which file holds the word needle", texts)) == [
        "Lines of 'b.txt' with \"needle\" (1 of 1):\nhay needle hay"
    ]


@pytest.mark.parametrize(
    ("goal", "text"),
    [
        ("Say when the meeting is", "The meeting is on Monday.\n"),  # in every line
        ("Read it with care", "it\ncares\nrea\nd\n"),  # a short word, and parts of words
        ("Add up the numbers in a.txt", "a.txt\n1\n2\n3\n"),  # the name of a file
    ],
)
def test_words_that_tell_no_lines_apart_are_left_out(goal: str, text: str) -> None:
    assert list(describe_lines(goal, {"a.txt": text})) == []


def test_many_and_long_lines_are_cut() -> None:
    (shown,) = describe_lines("Find ERROR", {"app.log": ("ERROR " + "x" * 500 + "\n") * 20 + "ok\n" * 30})
    head, *lines = shown.split("\n")
    assert head == "Lines of 'app.log' with \"ERROR\" (20 of 50):"
    assert [len(line) for line in lines] == [100] * 6
