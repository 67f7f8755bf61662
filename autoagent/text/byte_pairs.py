"""Count tokens by byte-pair encoding, as tiktoken does but with a tenth of its memory.

tiktoken keeps each token of an encoding four times (75 MB) and loads for a third of a second. Here the rank of a token
is found by the 64-bit hash of its bytes in two arrays of 2 MB. Pieces of text are mostly tokens or were counted before.
"""

from __future__ import annotations

import re
from binascii import a2b_base64
from bisect import bisect_left
from collections.abc import Callable
from functools import cached_property, lru_cache, reduce
from typing import Any

PIECES = 20_000  # cached counts
LONG = 64  # bytes of a piece worth caching
LONGEST = 600  # bytes of a piece counted here, as merging takes quadratic time
MERGED_HERE = 131_072  # bytes, at some microseconds each; beyond, tiktoken (50 times as fast) is worth its memory
RANKS = 20_000  # cached parts of pieces, as merging looks them up repeatedly

_CHUNK = 1 << 18  # bytes of the ranks read at once
_NONE = 1 << 40  # above every rank

# The Unicode classes restricted to ASCII: `re` splits such a text twice as fast as `regex`.
_IN_ASCII = {
    r"[^\r\n\p{L}\p{N}]": r"[^\r\nA-Za-z0-9]",
    r"[^\s\p{L}\p{N}]": r"[^\sA-Za-z0-9]",
    r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]": "[A-Z]",
    r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]": "[a-z]",
    r"\p{L}": "[A-Za-z]",
    r"\p{N}": "[0-9]",
}


class BytePairs:
    """Count tokens by the `ranks` of an encoding and the pattern of its pieces.

    The ranks have a line for each token in their order, which begins with it in base64. `count_long` counts the bytes
    of a piece that is too long to be counted here, and of any after many.
    """

    def __init__(self, ranks: bytes, pattern: str, count_long: Callable[[bytes], int]) -> None:
        import numpy as np

        found = []
        begin = 0
        while begin < len(ranks):
            end = ranks.find(b"\n", begin + _CHUNK) + 1 or len(ranks)
            found.append(np.fromiter(map(hash, map(a2b_base64, ranks[begin:end].split()[::2])), "<i8"))
            begin = end
        hashes = np.concatenate(found)
        order = np.argsort(hashes)
        self._hashes, self._ranks = hashes[order].data, order.astype("<i4").data
        self._pattern = pattern
        ascii_only = reduce(lambda found, pair: found.replace(*pair), _IN_ASCII.items(), pattern)
        self._split_ascii = re.compile(ascii_only, re.ASCII).findall
        self._count_long = count_long
        self._known = lru_cache(PIECES)(self._count)
        self._known_rank = lru_cache(RANKS)(self._rank)
        self._merged_here = 0  # bytes

    def count(self, text: str) -> int:
        pieces = (self._split_ascii if text.isascii() else self._split_any)(text)
        return sum(self._known(piece) if len(piece) <= LONG else self._count(piece) for piece in pieces)

    @cached_property
    def _split_any(self) -> Any:
        import regex

        return regex.compile(self._pattern).findall

    def _count(self, piece: str) -> int:
        data = piece.encode()
        if self._rank(data) < _NONE:
            return 1
        if len(data) > LONGEST or self._merged_here >= MERGED_HERE:
            return self._count_long(data)
        self._merged_here += len(data)
        return self._merged(data)

    def _merged(self, data: bytes) -> int:
        """Merge the adjacent pair with the lowest rank, leftmost first, until no pair is a token."""
        parts = [data[n : n + 1] for n in range(len(data))]
        ranks = [self._known_rank(data[n : n + 2]) for n in range(len(data) - 1)]
        while ranks and (best := min(ranks)) < _NONE:
            at = ranks.index(best)
            parts[at : at + 2] = [parts[at] + parts[at + 1]]
            del ranks[at]
            if at:
                ranks[at - 1] = self._known_rank(parts[at - 1] + parts[at])
            if at < len(ranks):
                ranks[at] = self._known_rank(parts[at] + parts[at + 1])
        return len(parts)

    def _rank(self, token: bytes) -> int:
        wanted, hashes = hash(token), self._hashes
        at = bisect_left(hashes, wanted)
        return self._ranks[at] if at < len(hashes) and hashes[at] == wanted else _NONE
