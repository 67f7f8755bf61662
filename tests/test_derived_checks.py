"""Which check follows from the words of a goal, and from which none does."""

from __future__ import annotations

import pytest

from autoagent.config.derived_check import derived_check
from autoagent.core.task import Goal


@pytest.mark.parametrize(
    ("goal", "check"),
    [
        ("Write report.md", "test -s report.md"),
        ("Read notes.txt and save a summary as out/summary.md", "test -s out/summary.md"),
        ('Create a file hello.txt containing "it\'s me"', """grep -qF -e 'it'"'"'s me' -- hello.txt"""),
        ("Delete old.txt", "test ! -e old.txt"),
        ("Fix the bug in calc.py so that test_calc.py passes", ""),
        ("Add a function to calc.py", ""),
        ("Rename a.txt to b.txt", ""),
        ("Increase net worth", ""),
    ],
)
def test_the_check_of_a_goal(goal: str, check: str) -> None:
    assert derived_check(Goal(goal)) == check
    assert derived_check(Goal(goal, "true")) == ""
