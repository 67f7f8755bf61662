"""Texts told apart by a number that is the same in every process."""

from __future__ import annotations

import hashlib


def fingerprint(text: str) -> int:
    """Return 64 bits of the text's digest."""
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big")
