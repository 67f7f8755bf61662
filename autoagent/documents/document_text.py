"""Define the result of reading a document and its limits, and decode plain text, whatever its encoding."""

from __future__ import annotations

import codecs
import io
import re

from autoagent.core.frozen import dataclass
from autoagent.text.file_formats import byte_order_mark
from autoagent.text.sanitize import valid_text

TEXT_LIMIT = 1_000_000  # characters of one document
ENTRY_LIMIT = 10_000  # files in one archive

_DECLARATION = re.compile(
    rb"""<(?:meta[^>]{0,200}?charset|\?xml[^>]{0,200}?encoding)\s*=\s*["']?\s*([\w.:-]{1,40})""", re.IGNORECASE
)
_FALLBACK_ENCODING = "windows-1252"  # a browser's assumption for a page without a charset

# Invisible letters, direction overrides and the tag plane: text that no reader of the page sees.
_INVISIBLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u200b\u202a-\u202e\u2060-\u2069\ufeff\U000e0000-\U000e0fff]")


class UnreadableDocument(Exception):
    """Report an unreadable document. The text continues a sentence after the document's name."""


@dataclass(frozen=True, slots=True)
class Link:
    """A link of a page."""

    text: str
    url: str  # absolute


@dataclass(frozen=True, slots=True)
class DocumentText:
    """The text of a document, with links of a page in place as `[words](address)`."""

    text: str
    title: str = ""
    links: tuple[Link, ...] = ()  # each address of the whole page once
    link_count: int = 0  # of all addresses, listed or not
    note: str = ""  # remarks for the reader, for example on a cut text


def limit_text(text: str, note: str = "") -> tuple[str, str]:
    """Cut a text to TEXT_LIMIT. Return it with the note, extended if it was cut."""
    if len(text) <= TEXT_LIMIT:
        return text, note
    cut = f"only the first {TEXT_LIMIT:,} characters"
    return text[:TEXT_LIMIT], f"{note}; {cut}" if note else cut


def decode(data: bytes, charset: str) -> str:
    """Decode the bytes, without invisible characters. `charset` is the server's claim.

    A byte order mark decides; else valid UTF-8 is UTF-8; else the first match of the server's claim, the document's
    claim and Windows-1252.
    """
    return visible_text(valid_text(_decode(data, charset)).replace("\r\n", "\n"))


def visible_text(text: str) -> str:
    """Return the text without control characters, invisible letters and direction overrides."""
    return _INVISIBLE.sub("", text)


def is_binary(data: bytes) -> bool:
    """Return whether the bytes are binary: NULs without the byte order mark of a wide encoding."""
    return b"\0" in data and not byte_order_mark(data)[0]


def _decode(data: bytes, charset: str) -> str:
    mark, encoding = byte_order_mark(data)
    if mark:
        return data[len(mark) :].decode(encoding, "replace")
    declaration = _DECLARATION.search(data, 0, 4096)
    for encoding in ("utf-8", charset, declaration[1].decode("ascii") if declaration else ""):
        try:
            io.TextIOWrapper(io.BytesIO(), encoding)  # LookupError for one of bytes into bytes, such as zlib
            # The last character may have been cut in two with the page.
            return codecs.getincrementaldecoder(encoding)("strict").decode(data, final=False)
        except (LookupError, ValueError, TypeError):  # unknown, or does not fit
            continue
    return data.decode(_FALLBACK_ENCODING, "replace")
