"""Prepare texts for storage and search: valid Unicode, limited length, split into words.

All servers index the same words, whatever their locale. Scripts without spaces between words are indexed by pairs of
characters.
"""

from __future__ import annotations

import hashlib
import itertools
import math
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping

from autoagent.core.memory import RetrievedMemory
from autoagent.text.quoting import Marks, defuse
from autoagent.text.sanitize import valid_text

PART = 8_000  # characters; an embedder reads little more, and a prompt has room for little more
_UNSPACED = re.compile(  # Thai, Lao, Burmese, Khmer, kana, Han
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005\u3040-\u30ff\u31f0-\u31ff\u3400-\u9fff\uf900-\ufaff\uff66-\uff9f"
    "\U00020000-\U0003ffff]{2,}"
)
MAX_LINE = 400  # characters of a memory in a prompt for a dream or an order
MAX_WORD_CHARACTERS = 500  # PostgreSQL takes at most 2046 bytes


def hash_of(text: str) -> bytes:
    """Return the hash by which the memory of a text is looked up."""
    return hashlib.sha256(text.encode()).digest()


def parts(text: str, most: int = PART) -> list[str]:
    """Split a text, made valid, into nonblank pieces of at most `most` characters, if possible after a line or word."""
    text = valid_text(text)
    pieces, start = [], 0
    while start < len(text):
        end = start + most
        if end < len(text):
            cuts = (text.rfind(mark, start + most // 2, end) for mark in ("\n", " "))
            end = next((cut for cut in cuts if cut >= 0), end - 1) + 1
        pieces.append(text[start:end])
        start = end
    return [part for part in pieces if part.strip()]


def pair_unspaced(text: str) -> str:
    """Replace each run of a script without spaces by its overlapping pairs of characters."""
    if text.isascii():
        return text
    return _UNSPACED.sub(lambda run: f" {' '.join(map(''.join, itertools.pairwise(run[0])))} ", text)


def fold(text: str) -> str:
    """Return the text in lower case and without diacritics."""
    folded = text.casefold()
    if folded.isascii():
        return folded
    return "".join(letter for letter in unicodedata.normalize("NFKD", folded) if not unicodedata.combining(letter))


def words(text: str) -> list[str]:
    """Return the words of a text in order, ignoring case and diacritics (see `pair_unspaced`)."""
    return [word[:MAX_WORD_CHARACTERS] for word in re.findall(r"\w+", pair_unspaced(fold(text)))]


def rarity(count: int, total: int) -> float:
    """Return the weight of a word in `count` of `total` memories by BM25, in the form that is never below 0."""
    return math.log(1 + max(total - count + 0.5, 0.5) / (count + 0.5))


def weights(counts: Mapping[str, int], limit: int, total: int) -> dict[str, float]:
    """Weigh the rarest words by BM25 (Robertson and Zaragoza, 2009), given how many of `total` memories have each.

    The counts of the chosen words add up to at most `limit`, but one word is always chosen. Common words say little and
    cost most, as ranking reads every memory that contains a word.
    """
    order = sorted(counts, key=lambda word: counts[word])
    sums = itertools.accumulate(counts[word] for word in order)
    chosen = [word for rank, (word, sum) in enumerate(zip(order, sums, strict=True)) if rank == 0 or sum <= limit]
    return {word: rarity(counts[word], total) for word in chosen}


def fitting_lines(memories: Iterable[RetrievedMemory], room: int) -> Iterator[str]:
    """Yield memories as lines, as many as fit into `room` characters, with marks around untrusted texts."""
    for memory in memories:
        text = " ".join(memory.text.split())[:MAX_LINE]
        if not memory.trusted:
            marks = Marks.of(memory.text, memory.source, run=memory.run, step=memory.step)
            text = marks.quote_line(defuse(text))
        if (room := room - len(text)) < 0:
            return
        yield text
