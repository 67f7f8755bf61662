"""Measure the evidence that a memory fits a query, on an absolute scale, so that possibly none fits. Pure functions.

A ranking orders memories, but never says whether any fits. Two kinds of evidence are added, each sufficient at 1: the
similarity in meaning on the embedder's scale (see Embedding.meaning), and the share of the query's words found in the
memory, weighted by rarity. With only the vectors of words, right answers and the best wrong answers overlap. The sum
separates them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from itertools import groupby

from autoagent.memory.texts import fold, pair_unspaced, parts, rarity

MIN_PUSHED = 0.8  # for memories pushed into a prompt
MIN_PUSHED_SHARE = 0.9  # of the best score, for pushed memories: weaker matches are mostly useless next to it
MIN_USED = 0.3  # for a result to count as used, and so to be strengthened
MIN_ASKED = 0.1  # for an explicit recall: a paraphrase shares no words, and its vector is hardly near
MIN_COVERAGE = 0.5  # the weighted share of the query's words that suffices on its own
MAX_TERMS = 64  # of a query; the first ones count
MIN_STEM = 5  # letters; a longer word loses its last two, the ending
MIN_COMPOUND_LETTERS = 9  # of a stem made up of two words, as in German
MIN_TOTAL_MEMORIES = 1000  # the least number of memories assumed, for the rarity of a word
MAX_PIECE_CHARACTERS = 200  # a piece is the unit of a passage
COVERED_WEIGHT = 0.4  # the factor for a word's weight, once another piece contains it
FULL_PIECE_CHARACTERS = 80  # a shorter piece, such as a heading, counts proportionally less

_WORD = re.compile(r"[^\W_]+")

_SMALL_WORDS = (
    "a about after all also an and any are as at be been before but by can could did do does each for from get had has "
    "have how i if in into is it its let like may me more most must my need new no not now of on one only or other our "
    "out over should so some such than that the their them then there these they this those to too up us use used "
    "using very was we were what when where which while who why will with would you your "
    "aber als am auch auf aus bei bis das dass dem den der des die doch ein eine einem einen einer eines er es für hat "
    "ich im in ist ja kann man mit nach nicht noch nur oder sein sich sie sind so um und uns unter vom von vor war was "
    "wenn wer wie wird wir wo zu zum zur "
    "au aux avec ce ces cette dans de des du elle en est et eux il ils je la le les leur lui mais mes mon ne nos notre "
    "nous on ou par pas pour qu que qui sa se ses son sur ta te tes toi ton tu un une vos votre vous"
)
_COMMON = frozenset(_SMALL_WORDS.split())
"""Words without topical meaning, in the languages of the benchmark."""


def content_words(text: str) -> list[str]:
    """Return the distinct content words of a text in order, or character pairs in scripts without spaces."""
    words = (word for word in _WORD.findall(pair_unspaced(fold(text))) if word not in _COMMON and len(word) > 1)
    return list(dict.fromkeys(words))[:MAX_TERMS]


class Query:
    """A query as weighted words. `counts` tells how many of the `total` memories contain each of its content words."""

    def __init__(self, counts: Mapping[str, int], total: int) -> None:
        self._weights: dict[str, float] = {}
        for word, count in counts.items():
            stem = _stem(word)
            self._weights[stem] = max(rarity(count, max(total, MIN_TOTAL_MEMORIES)), self._weights.get(stem, 0.0))
        self._total = sum(self._weights.values())

    def coverage(self, text: str) -> float:
        """Return how much of the query's words the text contains, by weight, from 0 to 1."""
        if not self._total:
            return 0.0
        words = _words_of(text)
        return sum(weight for stem, weight in self._weights.items() if words.contain(stem)) / self._total

    def passage(self, text: str, limit: int) -> str:
        """Return the pieces of the text with most of the query's words, in order and within `limit` characters.

        Without a match, return the beginning. An ellipsis marks omissions.
        """
        if len(text) <= limit:
            return text
        sentences = re.split(r"\n|(?<=[.!?;]) ", text)
        pieces = [piece.rstrip() for sentence in sentences for piece in parts(sentence.strip(), MAX_PIECE_CHARACTERS)]
        stems_of = [{stem for stem in self._weights if _words_of(piece).contain(stem)} for piece in pieces]
        chosen: set[int] = set()
        covered: set[str] = set()
        room = limit - len("…")
        while True:
            gains = [
                min(len(piece) / FULL_PIECE_CHARACTERS, 1.0)
                * sum(self._weights[s] * (COVERED_WEIGHT if s in covered else 1.0) for s in stems)
                for piece, stems in zip(pieces, stems_of, strict=True)
            ]
            fitting = [n for n, piece in enumerate(pieces) if n not in chosen and gains[n] and len(piece) + 3 <= room]
            if not fitting:
                break
            best = max(fitting, key=lambda n: (gains[n], -n))
            chosen.add(best)
            covered |= stems_of[best]
            room -= len(pieces[best]) + 3
        if not chosen:
            return text[:limit]
        runs = groupby(range(len(pieces)), key=lambda n: n in chosen)
        return " ".join(" ".join(pieces[n] for n in group) if is_chosen else "…" for is_chosen, group in runs)


def _stem(word: str) -> str:
    """Return the word roughly without its ending, in any language."""
    return word[: max(MIN_STEM, len(word) - 2)]


class _Words:
    """A text without case and diacritics, and its words."""

    def __init__(self, text: str) -> None:
        self.folded = fold(text)
        self.each = frozenset(_WORD.findall(pair_unspaced(self.folded)))
        # Stems that may be part of a compound:
        self.parts = [_stem(word) for word in self.each if len(word) >= MIN_STEM and word not in _COMMON]

    def contain(self, stem: str) -> bool:
        """Return whether a short word or its plural is present. A longer stem may be anywhere in a word.

        A compound is present if two of the words form it.
        """
        if stem not in self.folded:
            return len(stem) >= MIN_COMPOUND_LETTERS and any(
                stem.startswith(first) and any(second in stem[len(first) :] for second in self.parts)
                for first in self.parts
            )
        return len(stem) >= MIN_STEM or not self.each.isdisjoint((stem, f"{stem}s", f"{stem}es"))


_words_of = lru_cache(maxsize=1024)(_Words)  # successive steps look at the same memories
