"""Define the result of reading a document, and its limits."""

from __future__ import annotations

from dataclasses import dataclass

TEXT_LIMIT = 1_000_000  # characters of one document


class UnreadableDocument(Exception):
    """Report an unreadable document. The text continues a sentence after the document's name."""


@dataclass(frozen=True, slots=True)
class Link:
    """Hold a link of a page: its text and its absolute address."""

    text: str
    url: str


@dataclass(frozen=True, slots=True)
class DocumentText:
    """Hold the text of a document, with links of a page in place as `[words](address)`.

    `links` has each address of the whole page once, out of `link_count`. `note` has remarks for the reader, for example
    on a cut text, or ''.
    """

    text: str
    title: str = ""
    links: tuple[Link, ...] = ()
    link_count: int = 0
    note: str = ""


def limited(text: str, note: str = "") -> tuple[str, str]:
    """Cut a text to TEXT_LIMIT. Return it with the note, extended if it was cut."""
    if len(text) <= TEXT_LIMIT:
        return text, note
    cut = f"only the first {TEXT_LIMIT:,} characters"
    return text[:TEXT_LIMIT], f"{note}; {cut}" if note else cut
