"""Records of the web: pages, search hits and downloads."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class WebPage:
    """A fetched page: its final `url`, media type without parameters, and bytes.

    `cut`: it was longer than the limit. `charset` is declared by the server or the document, or '' if neither does.
    """

    url: str
    media_type: str
    body: bytes
    charset: str = ""
    cut: bool = False


@dataclass(frozen=True, slots=True)
class SearchHit:
    """A result of a web search."""

    title: str
    url: str
    text: str


@dataclass(frozen=True, slots=True)
class SearchResults:
    """The results of a web search, best first, and the engine that gave them."""

    engine: str
    hits: tuple[SearchHit, ...]
