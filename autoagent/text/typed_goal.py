r"""Parse a goal typed by the user: `Write report.md :: test -s report.md`.

Only typed text is split into a goal and a check, so that text from a model or a file never becomes a program. Since `
:: ` also occurs in Haskell, C++ and prose, it splits only before a runnable command. ` \:: ` never splits.
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
_ARROWS = {"->", "=>"}  # of function types: a shell would run `id -> id` and write a file
MAX_MARKS = 10  # per goal: a foreign file can hold thousands, and each starts a shell
_SHELL_SECONDS = 5.0  # to check one line, usually milliseconds


def parse_goal(line: str) -> Goal:
    """Return the goal and its check, the text after the last ` :: ` before a runnable command.

    The check itself is not run: a shell only parses it. At most the last MAX_MARKS are tried.
    """
    end = len(line)
    for _ in range(MAX_MARKS):
        end = line.rfind(_MARK, 0, end)
        if end < 0:
            break
        text, check = line[:end].strip(), line[end + len(_MARK) :].strip()
        if text and _is_runnable(check):
            return Goal(text.replace(_LITERAL, _MARK), check)
    return Goal(line.strip().replace(_LITERAL, _MARK))


def format_goal(goal: Goal) -> str:
    """Return the line that a user would type for this goal."""
    text = goal.text.replace(_MARK, _LITERAL)
    return f"{text}{_MARK}{goal.check}" if goal.check else text


def describe_check(check: str) -> str:
    """Describe a check by its command, and in words if it is a simple file test."""
    match = re.fullmatch(r"test -(s|f|e|d) ([\w./-]+)", check)
    if match is None:
        return check
    meanings = {"s": "is not empty", "f": "is a file", "e": "exists", "d": "is a folder"}
    return f"{match[2]} {meanings[match[1]]} ({check})"


def parse_and_explain(line: str, say: Callable[[str], None], *, is_shown: bool = False) -> Goal:
    """Return the goal of a typed line, and tell the user how its check was understood.

    If the goal `is_shown` with its check afterwards, tell the user only of a check that counts as text.
    """
    goal = parse_goal(line)
    if (note := check_note(line, goal)) and not (is_shown and goal.check):
        say(note)
    return goal


def check_note(line: str, goal: Goal) -> str:
    """Describe how the check of a typed line was understood, or return '' without ` :: `."""
    if goal.check:
        return f"Check of this goal, run in the workspace after each change: {describe_check(goal.check)}"
    if _MARK in line:
        return f"Taken as text, with no check, as no shell here can run what follows ` :: `: {goal.text}"
    return ""


def _is_runnable(check: str) -> bool:
    """Return whether this is a shell command whose first program exists."""
    lexer = shlex.shlex(check, posix=False, punctuation_chars="();&|")
    lexer.whitespace_split = True
    try:
        words = list(lexer)
    except ValueError:  # unbalanced quotes
        return False
    first = next((word for word in words if not _BEFORE_A_PROGRAM.fullmatch(word)), "")
    if not first or _ARROWS & set(words):
        return False
    return _shell_succeeds("-n", "-c", check) and (
        first.startswith(("./", "../")) or _shell_succeeds("-c", 'command -v -- "$1"', "sh", first)
    )


def _shell_succeeds(*arguments: str) -> bool:
    try:
        done = subprocess.run(  # noqa: S603 - it reads what the user has typed, and runs none of it
            [_SHELL, *arguments], capture_output=True, stdin=subprocess.DEVNULL, timeout=_SHELL_SECONDS
        )
    except (OSError, ValueError, subprocess.SubprocessError):  # no such shell, or text that cannot be an argument
        return False
    return done.returncode == 0
