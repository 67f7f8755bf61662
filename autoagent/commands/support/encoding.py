"""Decode the bytes of a text file, and encode the text again in the file's own encoding.

Not charset-normalizer: it guesses, and the bytes written back must be those that were read.
"""

from __future__ import annotations

import codecs

from autoagent.core.frozen import dataclass
from autoagent.text.file_forms import mark_of

_REPLACEMENT = "\ufffd"


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
    mark, encoding = mark_of(data)
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
