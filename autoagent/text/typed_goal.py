r"""Parse a goal typed by the user: `Write report.md :: test -s report.md`.

Only typed text is split into a goal and a check, so that no text of a model or a file turns into a program. As ` :: `
also occurs in Haskell, C++ and prose, it splits only before a runnable command. ` \:: ` never splits.
"""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Callable

from autoagent.core.task import Goal

_MARK = " :: "
_LITERAL = r" \:: "
_SHELL = "/bin/sh"
_BEFORE_A_PROGRAM = re.compile(r"[({!]|[A-Za-z_]\w*=.*", re.DOTALL)
_ARROWS = {"->", "=>"}  # of a type; `id -> id` would be a program that writes into a file
MOST_MARKS = 10  # in one goal; a file of somebody else's can hold thousands, and a shell is started for each
_SECONDS = 5.0  # to look at one line; it takes milliseconds


def parse_goal(line: str) -> Goal:
    """Return the goal and its check, which follows the last ` :: ` before a runnable command.

    Only a shell in read-only mode is run. At most the last MOST_MARKS are tried.
    """
    end = len(line)
    for _ in range(MOST_MARKS):
        end = line.rfind(_MARK, 0, end)
        if end < 0:
            break
        text, check = line[:end].strip(), line[end + len(_MARK) :].strip()
        if text and _runs(check):
            return Goal(text.replace(_LITERAL, _MARK), check)
    return Goal(line.strip().replace(_LITERAL, _MARK))


def typed(goal: Goal) -> str:
    """Return the line to type for this goal."""
    text = goal.text.replace(_MARK, _LITERAL)
    return f"{text}{_MARK}{goal.check}" if goal.check else text


def in_words(check: str) -> str:
    """Describe a check by its command, and in words if it is a plain test of a file."""
    found = re.fullmatch(r"test -(s|f|e|d) ([\w./-]+)", check)
    if found is None:
        return check
    says = {"s": "has text in it", "f": "is a file", "e": "is there", "d": "is a folder"}
    return f"{found[2]} {says[found[1]]} ({check})"


def parse_and_tell(line: str, say: Callable[[str], None]) -> Goal:
    """Return the goal of a typed line, and tell the user the interpretation of its check."""
    goal = parse_goal(line)
    if told := remark(line, goal):
        say(told)
    return goal


def remark(line: str, goal: Goal) -> str:
    """Return a hint on the goal of a typed line, or '' without ` :: `."""
    if goal.check:
        return f"Check of this goal, run in the workspace after each change: {in_words(goal.check)}"
    if _MARK in line:
        return f"Taken as text, with no check, as what follows ` :: ` is nothing that a shell can run here: {goal.text}"
    return ""


def _runs(check: str) -> bool:
    """Return whether it is a shell command whose first program exists."""
    lexer = shlex.shlex(check, posix=False, punctuation_chars="();&|")
    lexer.whitespace_split = True
    try:
        words = list(lexer)
    except ValueError:  # quotes that are never closed
        return False
    first = next((word for word in words if not _BEFORE_A_PROGRAM.fullmatch(word)), "")
    if not first or _ARROWS & set(words):
        return False
    return _sh("-n", "-c", check) and (first.startswith(("./", "../")) or _sh("-c", 'command -v -- "$1"', "sh", first))


def _sh(*arguments: str) -> bool:
    try:
        done = subprocess.run(  # noqa: S603 - it reads what the user has typed, and runs none of it
            [_SHELL, *arguments], capture_output=True, stdin=subprocess.DEVNULL, timeout=_SECONDS
        )
    except (OSError, ValueError, subprocess.SubprocessError):  # no such shell, or a text that cannot be an argument
        return False
    return done.returncode == 0
