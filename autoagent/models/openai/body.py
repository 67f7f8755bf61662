"""Reads the bytes of an answer from an untrusted endpoint within limits of memory and nesting.

Compressed bodies are unpacked in small pieces, so that a limit applies before memory is used. Anything but acceptable
JSON is Broken.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Iterator
from typing import Any

LARGEST = 32 * 2**20  # bytes of an answer; a stream spends some 300 on each token

_PIECE = 1 << 16  # bytes
_ENCODINGS = ("gzip", "x-gzip", "deflate")


class Broken(Exception):
    """The answer is incomplete or unreadable. The text says why. A retry may help."""


class TooLong(Exception):
    """The answer exceeds every plausible reply. The text names the limit."""


def within(chunks: Iterable[bytes], limit: int) -> Iterator[bytes]:
    """Yield the chunks, up to `limit` bytes of them. Raises TooLong."""
    size = 0
    for chunk in chunks:
        size += len(chunk)
        if size > limit:
            raise TooLong(f"the answer has more than {limit / 2**20:g} MB")
        yield chunk


def unpacked(chunks: Iterable[bytes], encoding: str) -> Iterator[bytes]:
    """Yield the chunks without their compression (Content-Encoding), in pieces of at most 64 KiB. Raises Broken."""
    encoding = encoding.strip().lower()
    if encoding in ("", "identity"):
        for chunk in chunks:  # not `yield from`, which would close them with this: they may be read on
            yield chunk
        return
    if encoding not in _ENCODINGS:
        raise Broken("the answer is compressed in a way that was not asked for")
    unpacking = zlib.decompressobj(zlib.MAX_WBITS | 32)  # gzip or zlib, as its first bytes say
    try:
        for chunk in chunks:
            while chunk and not unpacking.eof:
                yield unpacking.decompress(chunk, _PIECE)
                chunk = unpacking.unconsumed_tail
        yield unpacking.flush()  # less than a piece: all input was taken
    except zlib.error as error:
        raise Broken("the answer is compressed and cannot be unpacked") from error


def json_value(text: str | bytes) -> Any:
    """Parse a JSON value. Raises Broken for invalid JSON, deep nesting, or a number with thousands of digits."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Broken(f"the answer is not valid JSON ({error})") from error


def json_object(text: str | bytes) -> dict[str, Any]:
    """Parse a JSON object. Raises Broken as `json_value`, and for another value."""
    value = json_value(text)
    if not isinstance(value, dict):
        raise Broken("the answer is no JSON object")
    return value


def read_object(content_type: str, chunks: Iterable[bytes]) -> dict[str, Any]:
    """Read the body as a JSON object, whatever its declared type. Raises Broken and TooLong."""
    return json_object(b"".join(within(chunks, LARGEST)))


def json_text(value: Any) -> str:
    """Serialise a value that came as JSON. Raises Broken if it is nested more deeply than can be written."""
    try:
        return json.dumps(value, ensure_ascii=False)
    except RecursionError as error:
        raise Broken("the answer is nested too deeply") from error
