"""The words of a text, as the servers index them: the same for every server, whatever its locale."""

from __future__ import annotations

import itertools
import re
import unicodedata
from collections.abc import Mapping

LONGEST = 500  # characters of a word; PostgreSQL takes no more than 2046 bytes


def words(text: str) -> list[str]:
    """The words of a text in their order, case and diacritics aside; what is written without spaces is one word."""
    spelt = unicodedata.normalize("NFKD", text.casefold())
    bare = "".join(letter for letter in spelt if not unicodedata.combining(letter))
    return [word[:LONGEST] for word in re.findall(r"\w+", bare)]


def rarest(counts: Mapping[str, int], most: int) -> list[str]:
    """The rarest words, as many as are in `most` memories together, but one at least.

    The common ones, which tell little and cost most, are left out: ranking looks at every memory that has a word.
    """
    order = sorted(counts, key=lambda word: counts[word])
    sums = itertools.accumulate(counts[word] for word in order)
    return [word for rank, (word, sum) in enumerate(zip(order, sums, strict=True)) if rank == 0 or sum <= most]
