"""Parse the facts of a run from a model's list: lines with a dash, a star or a number."""

from __future__ import annotations

import re

from autoagent.text.sanitize import shorten

PURPOSE = "facts of the run"  # the purpose of the question in `answered` events
MOST = 5  # facts per run
FACT = 400  # characters per fact

_BULLET = re.compile(r"\s*(?:[-*\u2022]|\d{1,2}[.)])\s+(.+)")
_REPLACES = re.compile(r"\[replaces (\d{1,9})\]\s+(.+)", re.DOTALL)


def replaced_by(fact: str) -> tuple[int | None, str]:
    """Split a fact into the id of the memory to replace, or None, and its text."""
    match = _REPLACES.fullmatch(fact)
    return (int(match[1]), match[2]) if match else (None, fact)


def facts_in(answer: str, *, truncated: bool = False) -> list[str]:
    """Return the distinct facts of an answer. Drop the last of a `truncated` answer, as it may be incomplete."""
    found = [match[1].strip() for line in answer.splitlines() if (match := _BULLET.fullmatch(line))]
    whole = found[:-1] if truncated else found
    return [shorten(fact, FACT) for fact in dict.fromkeys(whole)][:MOST]
