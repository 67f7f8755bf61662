"""The check that a goal's own words call for, to be proposed to the user; it is never run unless the user takes it.

Only what cannot be meant otherwise: a file that the goal wants written is there and not empty, or holds the text that
the goal quotes; a file that it wants deleted is gone.
"""

from __future__ import annotations

import re
import shlex

from autoagent.core.task import Goal
from autoagent.text.named_files import FILE, named_files

_MADE = (  # what a file is, that it is named behind
    re.compile(
        r"\b(?:write|create|make|generate|produce|draft|build)\s+(?:an?\s+|the\s+)?(?:\w+\s+)?"
        rf"(?:file\s+)?(?:called\s+|named\s+)?[`'\"]?({FILE})",
        re.IGNORECASE,
    ),
    re.compile(rf"\b(?:to|into|as|called|named)\s+(?:the\s+|a\s+)?(?:file\s+)?[`'\"]?({FILE})", re.IGNORECASE),
)
_MAKES = re.compile(
    r"\b(?:write|create|make|save|store|generate|produce|draft|build|export|convert|put|copy|summari[sz]e)\b",
    re.IGNORECASE,
)
_DELETES = re.compile(rf"^\W*(?:delete|remove|erase)\s+(?:the\s+)?(?:file\s+)?[`'\"]?({FILE})", re.IGNORECASE)
_HOLDS = re.compile(
    r"\b(?:contain(?:s|ing)?|hold(?:s|ing)?|says?|saying|with the (?:text|words?|line|content))\s*:?\s*"
    r"(?:\"([^\"\n]+)\"|'([^'\n]+)'|`([^`\n]+)`)",
    re.IGNORECASE,
)


def derived_check(goal: Goal) -> str:
    """Return the shell command that would check the goal; '' where it has one, or nothing sensible follows from it."""
    if goal.check:
        return ""
    files = named_files(goal.text)
    if (found := _DELETES.search(goal.text)) and len(files) == 1:
        return f"test ! -e {shlex.quote(found[1])}"
    made = {found[1]: None for pattern in _MADE for found in pattern.finditer(goal.text)}
    if not made or not _MAKES.search(goal.text):
        return ""
    tests = [f"test -s {shlex.quote(path)}" for path in made]
    if len(made) == 1 and len(files) == 1 and (held := _HOLDS.search(goal.text)):
        text = next(filter(None, held.groups()))
        tests = [f"grep -qF -e {shlex.quote(text)} -- {shlex.quote(path)}" for path in made]
    return " && ".join(tests)
