"""The result of reading a document, and its limits."""

from __future__ import annotations

from dataclasses import dataclass

TEXT_LIMIT = 1_000_000  # characters of one document


class UnreadableDocument(Exception):
    """A document that cannot be read; the text goes on a sentence that begins with the document's name."""


@dataclass(frozen=True, slots=True)
class Link:
    """A link of a page: the words it stands under, and its absolute address."""

    text: str
    url: str


@dataclass(frozen=True, slots=True)
class DocumentText:
    """The text of a document, with its links in place as `[words](address)` where it is a page.

    `links` are those of the whole page, each address once, of `link_count` there are. `note` says what a reader must
    know of the text, such as where it was cut; '' if all is well.
    """

    text: str
    title: str = ""
    links: tuple[Link, ...] = ()
    link_count: int = 0
    note: str = ""


def limited(text: str, note: str = "") -> tuple[str, str]:
    """Cut a text to TEXT_LIMIT; return it with the note, which says so if it was cut."""
    if len(text) <= TEXT_LIMIT:
        return text, note
    cut = f"only the first {TEXT_LIMIT:,} characters"
    return text[:TEXT_LIMIT], f"{note}; {cut}" if note else cut
