"""Summarise a long text from outside: cut it into parts, summarise each against a question, merge the summaries."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from autoagent.core.errors import ContextOverflow
from autoagent.text.quoting import EXPLANATION, marked

PART_CHARACTERS = 8_000  # about 2,000 tokens of English, at most 8,000 of anything
MIN_PART_CHARACTERS = 500  # a smaller part is not halved again
MAX_SUMMARY_CHARACTERS = 2_500  # so that at least three summaries make a part

Ask = Callable[[str], str]
"""Asks a model. Raises ContextOverflow for a prompt that does not fit it, ModelError for other failures."""

_DIGEST = "Say in short what this text holds that matters for the question. Keep names, numbers and dates as they are."
_MERGE = "These notes are on the parts of one text. Merge them into one answer to the question, in short."


def split(text: str, size: int = PART_CHARACTERS) -> list[str]:
    """Split the text into parts of at most `size` characters, preferably at a paragraph, line, sentence or word."""
    parts, begin = [], 0
    while len(text) - begin > size:
        earliest, latest = begin + size // 2, begin + size
        ends = (text.rfind(mark, earliest, latest) for mark in ("\n\n", "\n", ". ", " "))
        end = next((position + 1 for position in ends if position >= 0), latest)
        parts.append(text[begin:end].strip())
        begin = end
    return [part for part in (*parts, text[begin:].strip()) if part]


def digest(
    ask: Ask, parts: Sequence[str], question: str, source: str, *, run: str = "", progress: Callable[[str], None]
) -> str:
    """Summarise all parts against the question, reporting `progress`. Raises the errors of `ask`."""
    summaries = []
    for number, part in enumerate(parts, 1):
        progress(f"{source}: part {number} of {len(parts)}")
        summaries.append(_answer(ask, _DIGEST, part, question, source, run))
    while len(summaries) > 1:
        progress(f"{source}: merging {len(summaries)} summaries")
        summaries = [_answer(ask, _MERGE, group, question, source, run) for group in _groups(summaries)]
    return summaries[0]


def _answer(ask: Ask, task: str, text: str, question: str, source: str, run: str) -> str:
    """Ask the model about a text, in halves if it does not fit."""
    prompt = f"{task}\n{EXPLANATION}\n\n{marked(text, source, run=run)}\n\nThe question: {question}\nThe answer:"
    try:
        return ask(prompt).strip()[:MAX_SUMMARY_CHARACTERS]
    except ContextOverflow:
        if len(text) <= MIN_PART_CHARACTERS:
            raise
    halves = split(text, len(text) // 2 + 1)
    return "\n".join(_answer(ask, task, half, question, source, run) for half in halves)[:MAX_SUMMARY_CHARACTERS]


def _groups(summaries: Sequence[str]) -> Iterator[str]:
    """Join the summaries in order into texts of up to a part each. Several fit into each, so that grouping ends."""
    group: list[str] = []
    for summary in summaries:
        if group and sum(map(len, group)) + len(summary) > PART_CHARACTERS:
            yield "\n\n".join(group)
            group = []
        group.append(summary)
    yield "\n\n".join(group)
