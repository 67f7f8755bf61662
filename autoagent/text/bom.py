"""Byte order marks: the first bytes of a text that say how the others are encoded."""

from __future__ import annotations

import codecs

_ENCODINGS = {  # the longer mark first: that of UTF-32-LE begins with that of UTF-16-LE
    codecs.BOM_UTF8: "utf-8",
    codecs.BOM_UTF32_LE: "utf-32-le",
    codecs.BOM_UTF32_BE: "utf-32-be",
    codecs.BOM_UTF16_LE: "utf-16-le",
    codecs.BOM_UTF16_BE: "utf-16-be",
}


def mark_of(data: bytes) -> tuple[bytes, str]:
    """Return the byte order mark at the beginning and its encoding. Both empty without a mark."""
    return next(((mark, name) for mark, name in _ENCODINGS.items() if data.startswith(mark)), (b"", ""))
