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

MAX_CACHED_COUNTS = 20_000
MAX_CACHED_CHARACTERS = 64  # of a piece worth caching
MAX_PIECE_BYTES = 600  # of a piece counted here, as merging takes quadratic time
MAX_TOTAL_MERGED_BYTES = 131_072  # at some microseconds each; beyond, tiktoken (50 times as fast) is worth its memory
MAX_CACHED_RANKS = 20_000  # of parts of pieces, as merging looks them up repeatedly

_CHUNK_BYTES = 1 << 18  # of the ranks read at once
_NO_RANK = 1 << 40  # above every rank

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

    `ranks` has a line for each token, by rank, which begins with the token in base64. `count_long` counts the tokens of
    a piece that is too long to be merged here, and of every piece once much has been merged.
    """

    def __init__(self, ranks: bytes, pattern: str, count_long: Callable[[bytes], int]) -> None:
        import numpy as np

        chunks, begin = [], 0
        while begin < len(ranks):
            end = ranks.find(b"\n", begin + _CHUNK_BYTES) + 1 or len(ranks)
            chunks.append(np.fromiter(map(hash, map(a2b_base64, ranks[begin:end].split()[::2])), "<i8"))
            begin = end
        hashes = np.concatenate(chunks)
        order = np.argsort(hashes)
        self._hashes, self._ranks = hashes[order].data, order.astype("<i4").data
        self._pattern = pattern
        ascii_only = reduce(lambda text, pair: text.replace(*pair), _IN_ASCII.items(), pattern)
        self._split_ascii = re.compile(ascii_only, re.ASCII).findall
        self._count_long = count_long
        self._cached_count = lru_cache(MAX_CACHED_COUNTS)(self._count)
        self._cached_rank = lru_cache(MAX_CACHED_RANKS)(self._rank)
        self._merged_bytes = 0

    def count(self, text: str) -> int:
        pieces = (self._split_ascii if text.isascii() else self._split_any)(text)
        return sum(
            self._cached_count(piece) if len(piece) <= MAX_CACHED_CHARACTERS else self._count(piece) for piece in pieces
        )

    @cached_property
    def _split_any(self) -> Any:
        import regex

        return regex.compile(self._pattern).findall

    def _count(self, piece: str) -> int:
        data = piece.encode()
        if self._rank(data) < _NO_RANK:
            return 1
        if len(data) > MAX_PIECE_BYTES or self._merged_bytes >= MAX_TOTAL_MERGED_BYTES:
            return self._count_long(data)
        self._merged_bytes += len(data)
        return self._merged(data)

    def _merged(self, data: bytes) -> int:
        """Merge the adjacent pair with the lowest rank, leftmost first, until no pair is a token."""
        parts = [data[n : n + 1] for n in range(len(data))]
        ranks = [self._cached_rank(data[n : n + 2]) for n in range(len(data) - 1)]
        while ranks and (best := min(ranks)) < _NO_RANK:
            at = ranks.index(best)
            parts[at : at + 2] = [parts[at] + parts[at + 1]]
            del ranks[at]
            if at:
                ranks[at - 1] = self._cached_rank(parts[at - 1] + parts[at])
            if at < len(ranks):
                ranks[at] = self._cached_rank(parts[at] + parts[at + 1])
        return len(parts)

    def _rank(self, token: bytes) -> int:
        token_hash, hashes = hash(token), self._hashes
        index = bisect_left(hashes, token_hash)
        return self._ranks[index] if index < len(hashes) and hashes[index] == token_hash else _NO_RANK
