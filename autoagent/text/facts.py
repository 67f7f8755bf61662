"""Parse the facts of a run from a model's list: lines with a dash, a star or a number."""

from __future__ import annotations

import re

from autoagent.text.sanitize import shorten

PURPOSE = "facts of the run"  # the purpose of the question in `answered` events
MAX_FACTS = 5  # per run
MAX_FACT_CHARACTERS = 400

_BULLET = re.compile(r"\s*(?:[-*\u2022]|\d{1,2}[.)])\s+(.+)")
_REPLACES = re.compile(r"\[replaces (\d{1,9})\]\s+(.+)", re.DOTALL)


def split_fact(fact: str) -> tuple[int | None, str]:
    """Split a fact into the id of the memory to replace, or None, and its text."""
    match = _REPLACES.fullmatch(fact)
    return (int(match[1]), match[2]) if match else (None, fact)


def parse_facts(answer: str, *, truncated: bool = False) -> list[str]:
    """Return the distinct facts of an answer. Drop the last of a `truncated` answer, as it may be incomplete."""
    facts = [match[1].strip() for line in answer.splitlines() if (match := _BULLET.fullmatch(line))]
    complete = facts[:-1] if truncated else facts
    return [shorten(fact, MAX_FACT_CHARACTERS) for fact in dict.fromkeys(complete)][:MAX_FACTS]
