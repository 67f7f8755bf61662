"""Pages for a site on loopback, and a search engine over them that answers as a SearXNG server does."""

from __future__ import annotations

import json
import re
from urllib.parse import parse_qs, urlsplit

from loopback_site import Page, Visit, answer


def page(title: str, body: str, head: str = "") -> bytes:
    """An HTML page."""
    html = f"<!doctype html><html><head><title>{title}</title>{head}</head><body>{body}</body></html>"
    return answer(html.encode(), Content_Type="text/html; charset=utf-8")


def resource(body: bytes, media_type: str) -> bytes:
    """A file of this type."""
    return answer(body, Content_Type=media_type)


def search(visit: Visit) -> None:
    """`/search?q=...&format=json`: the site's pages that hold a word of the query, best first."""
    query = parse_qs(urlsplit(visit.path).query)["q"][0]
    wanted = set(re.findall(r"\w+", query.lower()))
    found = []
    for path, known in visit.server.pages.items():
        text = " ".join(re.sub(r"<[^>]+>", " ", _body(known)).split())
        if score := len(wanted & set(re.findall(r"\w+", text.lower()))):
            title = re.search(r"<title>(.*?)</title>", _body(known))
            hit = {"url": visit.server.url(path), "title": title[1] if title else path, "content": text[:120]}
            found.append((score, hit))
    results = [hit for _, hit in sorted(found, key=lambda one: -one[0])]
    body = {"query": query, "number_of_results": 0, "results": results, "answers": [], "suggestions": []}
    visit.wfile.write(resource(json.dumps(body).encode(), "application/json"))


def _body(known: Page) -> str:
    return known.partition(b"\r\n\r\n")[2].decode("utf-8", "replace") if isinstance(known, bytes) else ""
