"""Decode the bytes of a text file, and encode the text again in the file's own encoding.

Not charset-normalizer: it guesses, and the bytes written back must be those that were read.
"""

from __future__ import annotations

import codecs
from dataclasses import dataclass

from autoagent.text.file_forms import mark_of

_REPLACED = "\ufffd"


@dataclass(frozen=True, slots=True)
class Decoded:
    """A file's text without its byte order mark, the mark, and the encoding.

    `damaged`: some bytes did not fit the encoding. The text stands for them with a replacement mark.
    """

    text: str
    encoding: str = "utf-8"
    mark: bytes = b""
    damaged: bool = False

    @property
    def note(self) -> str:
        """Notes for the reader of the text, or '' if all is well."""
        if self.encoding == "latin-1":
            return "not valid UTF-8, read as latin-1"
        return f"bytes that are not valid {self.encoding} are shown as {_REPLACED}" if self.damaged else ""

    def encode(self, text: str) -> bytes:
        """Encode another text as this file would hold it. Raises UnicodeEncodeError."""
        return self.mark + text.encode(self.encoding)


def decode(data: bytes, *, whole: bool = True) -> Decoded | None:
    """Decode the bytes, or return None if they are binary. Unless `whole`, the last character may be cut in two."""
    mark, encoding = mark_of(data)
    if mark:
        return _decoded(data[len(mark) :], encoding, mark, whole)
    if b"\0" in data:
        return None
    found = _decoded(data, "utf-8", b"", whole)
    # Where something is not ASCII and nothing of it is valid UTF-8, it is an older one-byte encoding.
    if found.damaged and found.text.replace(_REPLACED, "").isascii():
        return Decoded(data.decode("latin-1"), "latin-1")
    return found


def _decoded(data: bytes, encoding: str, mark: bytes, whole: bool) -> Decoded:
    decoder = codecs.getincrementaldecoder(encoding)
    try:
        return Decoded(decoder("strict").decode(data, whole), encoding, mark)
    except UnicodeDecodeError:
        return Decoded(decoder("replace").decode(data, whole), encoding, mark, damaged=True)
