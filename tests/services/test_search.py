"""Search engines: a server on loopback in the shape of theirs, ddgs without a way out, and a script in its place."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
from loopback_site import Page, Site, answer
from website import page, resource
from website import search as searxng_over

from autoagent.core.errors import CommandError
from autoagent.core.services import SearchHit, SearchResults
from autoagent.services import search
from autoagent.services.search import ENGINES

Results = Sequence[Mapping[str, str]] | CommandError


def engines(**answers: list[Results]) -> tuple[search.Ask, list[str]]:
    """Engines that give these answers one after the other, nothing afterwards; and who was asked."""
    asked: list[str] = []

    def ask(engine: str, query: str, count: int) -> Sequence[Mapping[str, str]]:
        asked.append(engine)
        left = answers.get(engine, [])
        answer = left.pop(0) if left else ()
        if isinstance(answer, CommandError):
            raise answer
        return answer

    return ask, asked


def result(title: str, url: str) -> dict[str, str]:
    return {"title": title, "href": url, "body": f"about {title}"}


@contextmanager
def answering(page: Page) -> Iterator[Site]:
    """A site whose search answers so."""
    with Site() as site:
        site.pages["/search"] = page
        yield site


def as_json(body: Any, status: int = 200) -> Page:
    return answer(json.dumps(body).encode(), status, Content_Type="application/json")


# Through ddgs ------------------------------------------------------------------------------------------------------


def test_duckduckgo_is_asked_first_and_named() -> None:
    ask, asked = engines(duckduckgo=[[result("Tides", "https://t.example/")]])
    assert search.search("tides", 5, ask=ask) == SearchResults(
        "duckduckgo", (SearchHit("Tides", "https://t.example/", "about Tides"),)
    )
    assert asked == ["duckduckgo"]


def test_the_next_engine_is_asked_where_one_fails_or_has_nothing_and_all_again_after_a_pause() -> None:
    tides = [result("Tides", "https://t.example/")]
    ask, asked = engines(duckduckgo=[CommandError("rate limit")], mojeek=[tides])
    assert search.search("tides", 5, ask=ask).engine == "mojeek"
    assert asked == ["duckduckgo", "brave", "mojeek"]
    ask, asked = engines(duckduckgo=[(), tides])
    assert search.search("tides", 5, ask=ask, pause=0.01).engine == "duckduckgo"
    assert asked == [*ENGINES, "duckduckgo"]


def test_nothing_found_is_no_failure() -> None:
    ask, _ = engines(duckduckgo=[CommandError("x"), CommandError("x")])
    assert search.search("qqxxzz", 5, ask=ask, pause=0.01) == SearchResults("brave", ())


def test_offline_is_one_clear_line() -> None:
    refused = {engine: [CommandError("no way out")] * 2 for engine in ENGINES if engine != "yahoo"}
    ask, _ = engines(**refused, yahoo=[CommandError("another reason")] * 2)
    with pytest.raises(CommandError) as failed:
        search.search("tides", 5, ask=ask, pause=0.01)
    assert str(failed.value) == (
        "No search engine can be reached; is this machine offline? "
        "duckduckgo, brave, mojeek, startpage: no way out; yahoo: another reason."
    )


def test_ddgs_itself_without_a_way_out_says_why() -> None:
    """Real ddgs, whose proxy does not answer; in a process of its own, as it reads the environment."""
    code = (
        "from autoagent.services import search\n"
        "try:\n    search.search('tides', 3, pause=0.01)\n"
        "except Exception as error:\n    print(type(error).__name__, error)\n"
    )
    proxy = {"DDGS_PROXY": "http://127.0.0.1:1"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=proxy, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout.strip() == (
        "CommandError No search engine can be reached; is this machine offline? "
        f"{', '.join(ENGINES)}: the connection is refused."
    )


def test_hits_are_plain_lines_with_addresses_of_the_web() -> None:
    hits = [result("a\n  b" + "c" * 900, "https://t.example/"), result("x", "javascript:alert(1)"), result("y", "")]
    ask, _ = engines(duckduckgo=[hits])
    found = search.search("tides", 5, ask=ask).hits
    assert len(found) == 1
    assert found[0].title.startswith("a bccc") and len(found[0].title) == 500


# SearXNG -----------------------------------------------------------------------------------------------------------


def test_a_searxng_server_is_asked_and_named() -> None:
    with answering(searxng_over) as site:
        site.pages |= {"/t": page("Tides", "<p>High at noon.</p>"), "/m": page("Moon", "<p>Full.</p>")}
        found = search.searxng("tides at noon", 5, url=site.url(""))
        assert found == SearchResults(
            f"searxng at {site.allowed()}", (SearchHit("Tides", site.url("/t"), "Tides High at noon."),)
        )
        assert search.searxng("tides at noon", 5, url=site.url("/search")) == found
        assert [path for path, _ in site.seen] == ["/search?q=tides+at+noon&format=json"] * 2
        assert search.searxng("qqxxzz", 5, url=site.url("/")).hits == ()


@pytest.mark.parametrize(
    ("page", "reason"),
    [
        (answer(b"Forbidden", 403), "answers 403 Forbidden."),
        (resource(b"<html>", "text/html"), "did not answer with JSON."),
        (resource(b"[" * 100_000, "application/json"), "did not answer with JSON."),
        (resource(b'{"a": "' + b"x" * 6_000_000, "a/b"), "did not answer with JSON."),
        (answer(b"", 302, Location="http://10.0.0.1/"), "10.0.0.1 is in a private network"),
        (b"SSH-2.0\r\n", "cannot be fetched: the server does not speak HTTP."),
    ],
    ids=["refused", "a page", "nested", "endless", "redirected", "not HTTP"],
)
def test_a_searxng_server_that_does_not_answer_as_one_is_named(page: Page, reason: str) -> None:
    with answering(page) as site, pytest.raises(CommandError, match=re.escape(reason)):
        search.searxng("x", 5, url=site.url(""))


@pytest.mark.parametrize("body", [[], {"results": None}, {"results": [3, {"url": 5}]}, {"results": {"a": 1}}])
def test_an_answer_of_another_shape_is_no_hit(body: Any) -> None:
    with answering(as_json(body)) as site:
        assert search.searxng("x", 5, url=site.url("")).hits == ()


def test_a_server_that_is_not_there_is_named() -> None:
    url = "http://127.0.0.1:1/search?q=a+tide&format=json"
    with pytest.raises(
        CommandError, match=rf"^{re.escape(url)} cannot be fetched: the server refuses the connection\.$"
    ):
        search.searxng("a tide", 5, url="http://127.0.0.1:1")


# Google ------------------------------------------------------------------------------------------------------------


def ask_google(site: Site, count: int = 5) -> SearchResults:
    return search.google("tides", count, key="the-key", engine="the-engine", url=site.url("/search"))


def test_google_is_asked_in_its_own_way_and_may_find_nothing() -> None:
    item = {"title": "Tides", "link": "https://t.example/", "snippet": "High\nat noon."}
    with answering(as_json({"items": [item] * 12})) as site:
        assert ask_google(site, 25) == SearchResults(
            "google", (SearchHit("Tides", "https://t.example/", "High at noon."),) * 12
        )
        path, headers = site.seen[0]
        assert path == "/search?q=tides&cx=the-engine&num=10"
        assert headers["X-Goog-Api-Key"] == "the-key"
    with answering(as_json({"searchInformation": {"totalResults": "0"}})) as site:
        assert ask_google(site) == SearchResults("google", ())


def test_google_refusing_is_told_without_the_key() -> None:
    with answering(as_json({"error": {"code": 429, "message": "Quota exceeded"}}, 429)) as site:
        url = re.escape(site.url("/search?q=tides&cx=the-engine&num=5"))
        with pytest.raises(CommandError, match=rf"^{url} answers 429 Too Many Requests\.$"):
            ask_google(site)
