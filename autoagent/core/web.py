"""What the web gives: a page, a search hit, a file that was found."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class WebPage:
    """What was fetched: from which `url` in the end, its media type without parameters, and its bytes.

    `cut`: there was more than the limit. `charset` as the server or the document says, '' where neither does.
    """

    url: str
    media_type: str
    body: bytes
    charset: str = ""
    cut: bool = False


@dataclass(frozen=True, slots=True)
class SearchHit:
    """One result of a web search."""

    title: str
    url: str
    text: str


@dataclass(frozen=True, slots=True)
class SearchResults:
    """The results of a web search, best first, and the engine that gave them."""

    engine: str
    hits: tuple[SearchHit, ...]
