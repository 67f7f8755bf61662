"""The facts of a run as a model puts them down: a line each that begins with a dash, a star or a number."""

from __future__ import annotations

import re

from autoagent.text.sanitize import shorten

PURPOSE = "facts of the run"
"""What a model is asked for then, as an `answered` event names it."""

MOST = 5  # facts of one run
FACT = 400  # characters of one

_BULLET = re.compile(r"\s*(?:[-*\u2022]|\d{1,2}[.)])\s+(.+)")


def facts_in(answer: str, *, truncated: bool = False) -> list[str]:
    """Return the distinct facts of an answer. Drop the last of a `truncated` answer, as it may be incomplete."""
    found = [match[1].strip() for line in answer.splitlines() if (match := _BULLET.fullmatch(line))]
    whole = found[:-1] if truncated else found
    return [shorten(fact, FACT) for fact in dict.fromkeys(whole)][:MOST]
