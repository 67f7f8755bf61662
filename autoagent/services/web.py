"""Provide the web for commands: the guarded client, search engines, and a browser to render pages."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from autoagent.core.frozen import dataclass
from autoagent.core.services import SearchResults, WebPage
from autoagent.network.addresses import parse
from autoagent.network.client import HttpClient, OpenPart, Progress, download

Search = Callable[[str, int], SearchResults]  # asks an engine: query and number of hits


@dataclass(frozen=True, slots=True)
class GuardedWeb:
    """Implement protocols.Web. `browser(url, limit=...)` renders a page. With None, pages stay as sent.

    `download_limit` is in bytes.
    """

    client: HttpClient
    search: Search
    google: Search
    browser: Callable[..., WebPage] | None = None
    download_limit: int = 1 << 30

    def fetch(self, url: str, *, limit: int, headers: Mapping[str, str] | None = None) -> WebPage:
        return self.client.fetch(url, limit=limit, headers=headers)

    def render(self, url: str, *, limit: int) -> WebPage:
        return self.browser(url, limit=limit) if self.browser else self.fetch(url, limit=limit)

    def download(self, url: str, part: OpenPart, *, progress: Progress) -> int:
        return download(self.client, url, part, limit=self.download_limit, progress=progress)

    def pin(self, url: str) -> tuple[str, int, str]:
        address = parse(url)
        return address.host, address.port, self.client.guard.approved_addresses(address.host, address.port)[0]
