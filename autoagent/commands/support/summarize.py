"""Long texts from outside in short: cut into parts, each summarised against a question, the summaries merged."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from autoagent.core.errors import ContextOverflow
from autoagent.text.quoting import EXPLANATION, marked

PART = 8_000  # characters of a part: about 2,000 tokens of English, at most 8,000 of anything
LEAST_PART = 500  # characters below which a part that does not fit the model is not halved again
SUMMARY_LIMIT = 2_500  # characters of one summary, so that at least three of them make a part

Ask = Callable[[str], str]
"""Asks a model. Raises ContextOverflow for a prompt that does not fit it, ModelError for other failures."""

_OF_PART = "Say in short what this text holds that matters for the question. Keep names, numbers and dates as they are."
_OF_SUMMARIES = "These notes are on the parts of one text. Merge them into one answer to the question, in short."


def split(text: str, size: int = PART) -> list[str]:
    """Split the text into parts of at most `size` characters, cut at a paragraph, else a line, a sentence, a word."""
    parts, begin = [], 0
    while len(text) - begin > size:
        least, most = begin + size // 2, begin + size
        ends = (text.rfind(mark, least, most) for mark in ("\n\n", "\n", ". ", " "))
        end = next((found + 1 for found in ends if found >= 0), most)
        parts.append(text[begin:end].strip())
        begin = end
    return [part for part in (*parts, text[begin:].strip()) if part]


def digest(
    ask: Ask, parts: Sequence[str], question: str, source: str, *, run: str = "", progress: Callable[[str], None]
) -> str:
    """Summarise all parts against the question. `progress` hears which one is next. Raises the errors of `ask`."""
    summaries = []
    for number, part in enumerate(parts, 1):
        progress(f"{source}: part {number} of {len(parts)}")
        summaries.append(_answer(ask, _OF_PART, part, question, source, run))
    while len(summaries) > 1:
        progress(f"{source}: merging {len(summaries)} summaries")
        summaries = [_answer(ask, _OF_SUMMARIES, group, question, source, run) for group in _groups(summaries)]
    return summaries[0]


def _answer(ask: Ask, task: str, text: str, question: str, source: str, run: str) -> str:
    """Ask the model about a text, in halves if it is too long for it."""
    prompt = f"{task}\n{EXPLANATION}\n\n{marked(text, source, run=run)}\n\nThe question: {question}\nThe answer:"
    try:
        return ask(prompt).strip()[:SUMMARY_LIMIT]
    except ContextOverflow:
        if len(text) <= LEAST_PART:
            raise
    halves = split(text, len(text) // 2 + 1)
    return "\n".join(_answer(ask, task, half, question, source, run) for half in halves)[:SUMMARY_LIMIT]


def _groups(summaries: Sequence[str]) -> Iterator[str]:
    """Join the summaries in order into texts of up to a part each. Several fit into one, so that grouping ends."""
    group: list[str] = []
    for summary in summaries:
        if group and sum(map(len, group)) + len(summary) > PART:
            yield "\n\n".join(group)
            group = []
        group.append(summary)
    yield "\n\n".join(group)
