"""Ask search engines: DuckDuckGo and others through ddgs, Google's Custom Search, the user's own SearXNG server.

Not covered: ddgs connects by itself, to the engines it names and nowhere else. The network guard does not see it, and
the proxy of the environment is used.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import urlencode, urlsplit

from autoagent.core.errors import CommandError
from autoagent.core.services import SearchHit, SearchResults
from autoagent.network.addresses import NetworkGuard, parse
from autoagent.network.client import HttpClient

GOOGLE = "https://customsearch.googleapis.com/customsearch/v1"
GOOGLE_LARGEST = 10  # hits per request
ENGINES = ("duckduckgo", "brave", "mojeek", "startpage", "yahoo")  # ddgs's engines, in the order of use
ROUNDS = 2  # attempts with all of them
PAUSE = 2.0  # seconds between attempts, for rate limits
TIMEOUT = 15.0  # seconds of silence
ANSWER_LIMIT = 4_000_000  # bytes

_MAX_CHARACTERS = 500  # of a hit's title, and of its text
_FAILURES = {  # as named by ddgs and its HTTP client
    "DNSError": "its name cannot be found",
    "Connection refused": "the connection is refused",
    "ConnectError": "no connection",
    "timed out": f"no answer in {TIMEOUT:.0f} s",
    "Timeout": f"no answer in {TIMEOUT:.0f} s",
}

# Asks one engine: (its name, query, number) -> results with `title`, `href` and `body`. Raises CommandError.
Ask = Callable[[str, str, int], Sequence[Mapping[str, str]]]


def ask_ddgs(engine: str, query: str, count: int) -> Sequence[Mapping[str, str]]:
    """Ask an engine through ddgs. Return () for no results, which may also be a refusal."""
    from ddgs import DDGS
    from ddgs.exceptions import DDGSException

    try:
        return DDGS(timeout=int(TIMEOUT)).text(query, backend=engine, max_results=count)
    except DDGSException as error:
        problem = str(error)
        if "No results found" in problem:
            return ()
        known = (words for mark, words in _FAILURES.items() if mark in problem)
        raise CommandError(next(known, " ".join(problem.split())[:200])) from error


def search(query: str, count: int, *, ask: Ask = ask_ddgs, pause: float = PAUSE) -> SearchResults:
    """Return the hits of the first engine with results, asking each twice. Raises CommandError if none answers."""
    problems: dict[str, str] = {}
    for turn in range(ROUNDS):
        if turn:
            time.sleep(pause)
        for engine in ENGINES:
            try:
                results = ask(engine, query, count)
            except CommandError as error:
                problems[engine] = str(error)
                continue
            problems.pop(engine, None)
            if results:
                return _results(engine, results, ("title", "href", "body"), count)
    if len(problems) == len(ENGINES):
        engines: dict[str, list[str]] = {}
        for engine, reason in problems.items():
            engines.setdefault(reason, []).append(engine)
        reasons = "; ".join(f"{', '.join(names)}: {reason}" for reason, names in engines.items())
        raise CommandError(f"No search engine can be reached; is this machine offline? {reasons}.")
    return SearchResults(next(engine for engine in ENGINES if engine not in problems), ())


def google(query: str, count: int, *, key: str, engine: str, url: str = GOOGLE) -> SearchResults:
    """Ask Google's Custom Search JSON API. `engine` is the id (cx) of a search engine created there."""
    parameters = {"q": query, "cx": engine, "num": min(count, GOOGLE_LARGEST)}
    body = _json("google", url, parameters, {"X-Goog-Api-Key": key})  # in a header, as URLs appear in messages and logs
    return _results("google", _items(body, "items"), ("title", "link", "snippet"), count)


def searxng(query: str, count: int, *, url: str) -> SearchResults:
    """Ask the SearXNG server at `url`, private or not. It must offer JSON (search.formats in its settings)."""
    address = parse(url).url.rstrip("/")
    engine = f"searxng at {urlsplit(address).netloc}"
    page = address if address.endswith("/search") else f"{address}/search"
    body = _json(engine, page, {"q": query, "format": "json"}, {})
    return _results(engine, _items(body, "results"), ("title", "url", "content"), count)


def _json(engine: str, url: str, parameters: Mapping[str, Any], headers: Mapping[str, str]) -> Any:
    """Send a GET to an address from the settings, allowed on any network. Its redirects are checked."""
    address = parse(f"{url}?{urlencode(parameters)}")
    client = HttpClient(NetworkGuard(frozenset({(address.host, address.port)})))
    page = client.fetch(address.url, limit=ANSWER_LIMIT, headers=headers)
    try:
        return json.loads(page.body)
    except (ValueError, RecursionError):  # RecursionError: implausibly deep nesting
        raise CommandError(f"{engine} did not answer with JSON.") from None


def _items(body: Any, key: str) -> list[Mapping[str, Any]]:
    items = body.get(key) if isinstance(body, dict) else None
    return [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []


def _results(
    engine: str, results: Sequence[Mapping[str, Any]], keys: tuple[str, str, str], count: int
) -> SearchResults:
    """Return the results with a valid web address, as plain text. `keys` name the title, the address and the text."""
    hits = []
    for result in results:
        title, url, text = (" ".join(str(result.get(key) or "").split()) for key in keys)
        if url.startswith(("http://", "https://")) and " " not in url:
            hits.append(SearchHit(title[:_MAX_CHARACTERS], url, text[:_MAX_CHARACTERS]))
    return SearchResults(engine, tuple(hits[:count]))
