"""Decode the bytes of a text file, encode its text again in the file's own encoding, and show its changes as a diff.

Not charset-normalizer: it guesses, and the bytes written back must be those that were read.
"""

from __future__ import annotations

import codecs
import difflib

from autoagent.core.frozen import dataclass
from autoagent.text.file_formats import byte_order_mark

_REPLACEMENT = "\ufffd"
_CONTEXT_LINES = 3  # unchanged, around a change
_MAX_DIFFLIB_LINES = 4_000  # difflib takes quadratic time; longer texts get one hunk around all that differs


@dataclass(frozen=True, slots=True)
class Decoded:
    """A file's text without its byte order mark, the mark, and the encoding."""

    text: str
    encoding: str = "utf-8"
    mark: bytes = b""
    damaged: bool = False  # whether the text has replacement characters for bytes invalid in the encoding

    @property
    def note(self) -> str:
        """Return a note for the reader of the text, or ''."""
        if self.encoding == "latin-1":
            return "not valid UTF-8, read as latin-1"
        return f"bytes that are not valid {self.encoding} are shown as {_REPLACEMENT}" if self.damaged else ""

    def encode(self, text: str) -> bytes:
        """Encode another text in this file's encoding. Raises UnicodeEncodeError."""
        return self.mark + text.encode(self.encoding)


def decode(data: bytes, *, whole: bool = True) -> Decoded | None:
    """Decode the bytes, or return None for binary data. Unless `whole`, the last character may be incomplete."""
    mark, encoding = byte_order_mark(data)
    if mark:
        return _decoded(data[len(mark) :], encoding, mark, whole)
    if b"\0" in data:
        return None
    decoded = _decoded(data, "utf-8", b"", whole)
    # If no non-ASCII byte is valid UTF-8, the file has an older one-byte encoding.
    if decoded.damaged and decoded.text.replace(_REPLACEMENT, "").isascii():
        return Decoded(data.decode("latin-1"), "latin-1")
    return decoded


def _decoded(data: bytes, encoding: str, mark: bytes, whole: bool) -> Decoded:
    decoder = codecs.getincrementaldecoder(encoding)
    try:
        return Decoded(decoder("strict").decode(data, whole), encoding, mark)
    except UnicodeDecodeError:
        return Decoded(decoder("replace").decode(data, whole), encoding, mark, damaged=True)


def unified(filename: str, before: str, after: str, *, is_new: bool = False) -> str:
    """Return the diff, or '' if nothing differs. It is never cut, as a person approves it."""
    if before == after:
        return ""
    old, new = _lines(before), _lines(after)
    names = "/dev/null" if is_new else f"a/{filename}", f"b/{filename}"
    if len(old) + len(new) <= _MAX_DIFFLIB_LINES:
        return "\n".join(difflib.unified_diff(old, new, *names, n=_CONTEXT_LINES, lineterm=""))
    prefix = _common_prefix(old, new)
    suffix = _common_prefix(old[prefix:][::-1], new[prefix:][::-1])
    old_end, new_end = len(old) - suffix, len(new) - suffix
    start = max(0, prefix - _CONTEXT_LINES)
    context = old[old_end : old_end + _CONTEXT_LINES]
    lines = [
        f"--- {names[0]}",
        f"+++ {names[1]}",
        f"@@ -{_range(start, old_end + len(context))} +{_range(start, new_end + len(context))} @@",
        *(f" {line}" for line in old[start:prefix]),
        *(f"-{line}" for line in old[prefix:old_end]),
        *(f"+{line}" for line in new[prefix:new_end]),
        *(f" {line}" for line in context),
    ]
    return "\n".join(lines)


def _common_prefix(old: list[str], new: list[str]) -> int:
    pairs = zip(old, new, strict=False)
    return next((n for n, (left, right) in enumerate(pairs) if left != right), min(len(old), len(new)))


def _range(start: int, end: int) -> str:
    """Return the first line, from 1, and the number of lines. An empty range names the line before it."""
    return f"{start + 1 if end > start else start},{end - start}"


def _lines(text: str) -> list[str]:
    lines = text.split("\n")
    if lines[-1]:
        lines[-1] += "\n\\ No newline at end of file"
        return lines
    return lines[:-1]
