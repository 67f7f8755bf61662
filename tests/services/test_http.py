"""Pages over real HTTP, from sites on loopback that behave as badly as they can."""

from __future__ import annotations

import gc
import gzip
import re
import socket
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from loopback_site import Authority, Site, Visit, answer, names, needs_openssl, redirect
from test_addresses import raises_refusal

from autoagent.core.errors import CommandError
from autoagent.core.services import WebPage
from autoagent.network.addresses import NetworkGuard, parse_allowed_hosts
from autoagent.network.client import HttpClient
from autoagent.network.connections import Deadline

MB = 1_000_000


@pytest.fixture
def site() -> Iterator[Site]:
    with Site() as site:
        yield site


@pytest.fixture
def other() -> Iterator[Site]:
    with Site() as site:
        yield site


def client(*sites: Site, known: Mapping[str, Sequence[str]] | None = None, user_agent: str = "test/1") -> HttpClient:
    """A client that may reach these sites on loopback, by address; other names are the given ones."""
    return HttpClient(
        NetworkGuard(parse_allowed_hosts(site.allowed() for site in sites), names(known or {})), user_agent
    )


def get(site: Site, path: str = "/", limit: int = MB, **headers: str) -> WebPage:
    return client(site).fetch(site.url(path), limit=limit, headers=headers)


# What a page is ----------------------------------------------------------------------------------------------------


def test_a_page_comes_with_its_url_type_and_charset(site: Site) -> None:
    site.pages["/page"] = answer("Grüße".encode("latin-1"), Content_Type='Text/HTML; charset="ISO-8859-1"')
    page = get(site, "/page?q=1#part")
    assert page == WebPage(site.url("/page?q=1"), "text/html", "Grüße".encode("latin-1"), "iso-8859-1", cut=False)
    path, headers = site.seen[0]
    assert path == "/page?q=1"
    assert headers["User-Agent"] == "test/1"
    assert headers["Host"] == f"127.0.0.1:{site.server_port}"


def test_the_program_names_itself_where_nothing_else_is_set(site: Site) -> None:
    site.pages["/"] = answer(b"x")
    HttpClient(NetworkGuard(parse_allowed_hosts([site.allowed()]))).fetch(site.url(), limit=MB)
    assert re.fullmatch(r"autoagent/[0-9.]+", site.seen[0][1]["User-Agent"])


@pytest.mark.parametrize("given", [{}, {"Content_Type": "nonsense"}, {"Content_Type": "text/html<script>"}])
def test_a_page_without_a_usable_type_says_so(site: Site, given: dict[str, str]) -> None:
    site.pages["/"] = answer(b"x", **given)
    assert (get(site).media_type, get(site).charset) == ("", "")


def test_a_page_of_any_type_is_cut_at_the_limit(site: Site) -> None:
    site.pages["/"] = answer(b"%PDF" + bytes(5 * MB), Content_Type="application/pdf")
    page = get(site, limit=1000)
    assert (len(page.body), page.cut, page.media_type) == (1000, True, "application/pdf")
    assert not get(site, limit=5 * MB + 4).cut
    site.pages["/"] = answer(b"all of it", length=3)
    assert get(site).body == b"all", "a length that is too small cuts the page as well"


@pytest.mark.parametrize("encoding", ["gzip", "x-gzip", "deflate", "GZIP", "identity"])
def test_compressed_pages_are_unpacked(site: Site, encoding: str) -> None:
    text = b"the same words " * 100
    packed = text if encoding == "identity" else zlib.compress(text) if encoding == "deflate" else gzip.compress(text)
    site.pages["/"] = answer(packed, Content_Encoding=encoding)
    assert get(site).body == text


def test_what_unpacks_to_very_much_is_cut_at_the_limit(site: Site) -> None:
    site.pages["/"] = answer(gzip.compress(bytes(200 * MB), compresslevel=1), Content_Encoding="gzip")
    began = time.process_time()
    page = get(site)
    assert (len(page.body), page.cut) == (MB, True)
    assert time.process_time() - began < 2


# Redirects -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_redirects_are_followed_and_the_last_url_is_told(site: Site, status: int) -> None:
    site.pages["/a"] = answer(bytes(3 * MB), status, Location="b/c?x=1#y")
    site.pages["/b/c"] = redirect("/ä d")
    site.pages["/%C3%A4%20d"] = answer(b"here")
    page = get(site, "/a")
    assert (page.url, page.body) == (site.url("/%C3%A4%20d"), b"here")


def test_a_redirect_in_a_circle_ends_at_the_limit(site: Site) -> None:
    site.pages["/a"], site.pages["/b"] = redirect("/b"), redirect("/a")
    with raises_refusal(f"{site.url('/a')} leads to too many redirects (10)"):
        get(site, "/a")
    assert len(site.seen) == 11


@pytest.mark.parametrize(
    ("answered", "problem"),
    [
        (answer(b"", 302), "answers 302 Found, but not where to go."),
        (redirect("  "), "answers 302 Found, but not where to go."),
        (redirect("file:///etc/passwd"), "has the scheme file:"),
        (redirect("javascript:alert(1)"), "has the scheme javascript:"),
        (redirect("//me:hunter2@127.0.0.1/"), "holds a user name or a password"),
        (redirect("http://[::1/"), "redirects to a refused address"),
        (redirect("http://169.254.169.254/latest/"), "169.254.169.254 is link-local, where clouds keep their metadata"),
        (redirect("http://localhost.example/"), "localhost.example is 127.0.0.1, this machine (loopback)"),
    ],
)
def test_a_redirect_to_nowhere_good_is_refused(site: Site, answered: bytes, problem: str) -> None:
    site.pages["/"] = answered
    with raises_refusal(problem) as caught:
        client(site, known={"localhost.example": ["127.0.0.1"]}).fetch(site.url(), limit=MB)
    assert "hunter2" not in str(caught.value)


def test_every_hop_is_checked_before_it_is_connected_to(site: Site, other: Site) -> None:
    site.pages["/"] = redirect(other.url())
    with raises_refusal(f"{other.allowed()} is not reached: 127.0.0.1 is this machine (loopback)."):
        get(site)
    assert other.seen == []


def test_credentials_stay_with_the_host_they_are_for(site: Site, other: Site) -> None:
    site.pages["/"] = redirect("/again", Set_Cookie="session=abc")
    site.pages["/again"] = redirect(other.url(host="other.example"))
    other.pages["/"] = answer(b"caught")
    guard = NetworkGuard(
        parse_allowed_hosts([site.allowed(), other.allowed()]), names({"other.example": ["127.0.0.1"]})
    )
    sent = {"Authorization": "Bearer secret", "X-Api-Key": "secret", "Accept-Language": "de"}
    HttpClient(guard, "test/1").fetch(site.url(), limit=MB, headers=sent)
    (_, first), (_, again), (_, elsewhere) = *site.seen, *other.seen
    assert (first["Authorization"], first["X-Api-Key"], first["Cookie"]) == ("Bearer secret", "secret", None)
    assert (again["Authorization"], again["X-Api-Key"], again["Cookie"]) == ("Bearer secret", "secret", "session=abc")
    assert (elsewhere["Authorization"], elsewhere["X-Api-Key"], elsewhere["Cookie"]) == (None, None, None)
    assert (elsewhere["User-Agent"], elsewhere["Accept-Language"]) == ("test/1", "de")


def test_a_cookie_is_kept_neither_across_hosts_and_ports_nor_from_one_fetch_to_the_next(
    site: Site, other: Site
) -> None:
    site.pages["/"] = redirect(other.url())
    other.pages["/"] = answer(b"x", Set_Cookie="session=abc")
    web = client(site, other)
    web.fetch(site.url(), limit=MB, headers={"cookie": "session=abc"})
    web.fetch(other.url(), limit=MB)
    assert site.seen[0][1]["Cookie"] == "session=abc"
    assert [headers["Cookie"] for _, headers in other.seen] == [None, None]


# Names and addresses -----------------------------------------------------------------------------------------------


def test_the_address_that_was_checked_is_the_one_connected_to(site: Site) -> None:
    """A name that leads elsewhere at each look: the look that was checked is the only one."""
    site.pages["/"] = answer(b"x")
    looks = [["127.0.0.1"], ["127.0.0.2"]]
    web = HttpClient(NetworkGuard(parse_allowed_hosts([site.allowed()]), lambda host, port: looks.pop(0)))
    assert web.fetch(site.url(host="rebind.example"), limit=MB).body == b"x"
    assert len(looks) == 1
    with raises_refusal("rebind.example is 127.0.0.2, this machine (loopback)"):
        web.fetch(site.url(host="rebind.example"), limit=MB)
    assert [headers["Host"] for _, headers in site.seen] == [f"rebind.example:{site.server_port}"]


def test_the_next_address_is_tried_where_one_does_not_answer(site: Site) -> None:
    site.pages["/"] = answer(b"x")
    known = {"two.example": ["127.0.0.9", "127.0.0.1"]}
    guard = NetworkGuard(parse_allowed_hosts([f"two.example:{site.server_port}"]), names(known))
    assert HttpClient(guard).fetch(site.url(host="two.example"), limit=MB).body == b"x"


def test_proxies_and_passwords_of_the_environment_are_not_used(
    site: Site, other: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login me password secret\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, other.url())
    monkeypatch.setenv("NO_PROXY", "")
    site.pages["/"] = answer(b"x")
    assert get(site).body == b"x"
    assert site.seen[0][1]["Authorization"] is None
    assert other.seen == []


# Answers that are none -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (204, "204 No Content"), (206, "206 Partial Content without being asked for a part"),
        (300, "300 Multiple Choices"), (304, "304 Not Modified"), (401, "401 Unauthorized"), (403, "403 Forbidden"),
        (404, "404 Not Found"), (429, "429 Too Many Requests"), (500, "500 Internal Server Error"), (799, "799"),
    ],
)  # fmt: skip
def test_a_status_without_a_page_is_named_in_our_own_words(site: Site, status: int, said: str) -> None:
    site.pages["/"] = answer(b"", status)
    with pytest.raises(CommandError) as caught:
        get(site)
    assert str(caught.value) == f"{site.url()} answers {said}."


@pytest.mark.parametrize(
    ("answered", "problem"),
    [
        (answer(b"short", length=100), "the server broke off its answer before the end"),
        (answer(b"", length=-1, Transfer_Encoding="chunked") + b"zz\r\nxx", "the server's answer is broken (chunks)"),
        (answer(b"", length=-1, Transfer_Encoding="chunked") + b"5\r\nab", "the server broke off its answer"),
        (answer(b"no gzip", Content_Encoding="gzip"), "the server's answer is broken (compression)"),
        (answer(b"x", Content_Encoding="br"), "has an unrequested compression"),
        (answer(b"x", Content_Encoding="gzip, gzip"), "has an unrequested compression"),
        (b"HTTP/1.1 200 OK\r\n" + b"".join(b"X-%d: y\r\n" % n for n in range(200)), "the answer has too many headers"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"y" * 10 * MB, "the headers of the answer are too long"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "the server does not speak HTTP"),
        (b"", "the server closed the connection without an answer"),
    ],
)
def test_an_answer_that_is_broken_is_refused_with_the_reason(site: Site, answered: bytes, problem: str) -> None:
    site.pages["/"] = answered
    with raises_refusal(problem) as caught:
        get(site)
    assert str(caught.value).startswith(site.url())


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_answer_of_two_lengths_is_refused(site: Site) -> None:
    site.pages["/"] = answer(b"xx", length=-1, Content_Length="2, 3")
    with raises_refusal("the headers of the answer contradict each other"):
        get(site)
    gc.collect()  # urllib3 leaves this socket to the collector, which complains


def test_a_closed_port_is_named() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/"
        guard = NetworkGuard(parse_allowed_hosts([url[7:-1]]))
        with raises_refusal(f"{url} cannot be fetched: the server refuses the connection."):
            HttpClient(guard).fetch(url, limit=MB)


# Time ----------------------------------------------------------------------------------------------------------------


def dripping(rest: bytes, begin: bytes = b"", every: float = 0.02) -> Callable[[Visit], None]:
    def page(visit: Visit) -> None:
        visit.wfile.write(begin)
        visit.drip(rest, every)

    return page


SLOW_PAGES: dict[str, Callable[[Visit], object]] = {
    "headers": dripping(b"HTTP/1.1 200 OK\r\n" + b"X-More: y\r\n" * 1000),
    "a body": dripping(b"x" * 1000, answer(length=1000)),
    "a body without a length": dripping(b"x" * 1000, answer(length=-1)),
    "interim answers": dripping(b"HTTP/1.1 100 Continue\r\n\r\n" * 1000, every=0.001),
    "nothing": lambda visit: visit.server.over.wait(),
}


@pytest.mark.parametrize("page", SLOW_PAGES.values(), ids=SLOW_PAGES)
def test_a_server_that_takes_its_time_is_left(site: Site, page: Callable[[Visit], None]) -> None:
    site.pages["/"] = page
    began = time.monotonic()
    with (
        raises_refusal(f"{site.url()} cannot be fetched: it took longer than 0.2 s."),
        Deadline(0.2) as deadline,
        client(site).get(site.url(), {}, deadline) as answered,
    ):
        b"".join(answered.blocks(MB))
    assert time.monotonic() - began < 15, "each of them takes 20 s or more"


def test_a_handshake_that_never_ends_is_left() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        host = f"127.0.0.1:{listening.getsockname()[1]}"
        web = HttpClient(NetworkGuard(parse_allowed_hosts([host])))
        with (
            raises_refusal("it took longer than 0.2 s"),
            Deadline(0.2) as deadline,
            web.get(f"https://{host}/", {}, deadline),
        ):
            pytest.fail("nobody answered")


# TLS -----------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@contextmanager
def secure(authority: Authority, host: str, **certificate: int) -> Iterator[Site]:
    with Site(tls=authority.tls(host, **certificate)) as site:
        site.pages["/"] = answer(b"private")
        yield site


def named(site: Site, host: str) -> HttpClient:
    return HttpClient(NetworkGuard(parse_allowed_hosts([f"{host}:{site.server_port}"]), names({host: ["127.0.0.1"]})))


@needs_openssl
def test_a_page_over_tls_is_checked_against_the_name_in_its_url(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.file))
    with secure(authority, "good.example") as site:
        assert named(site, "good.example").fetch(site.url(host="good.example"), limit=MB).body == b"private"


@needs_openssl
@pytest.mark.parametrize(
    ("asked", "certificate", "trusted", "problem"),
    [
        ("good.example", {"days": -1}, True, "it has expired"),
        ("wrong.example", {}, True, "it is for another host"),
        ("good.example", {"self_signed": True}, True, "it is self-signed"),
        ("good.example", {}, False, "its authority is not known"),
    ],
    ids=["expired", "wrong host", "self-signed", "unknown authority"],
)
def test_a_certificate_that_is_not_in_order_is_named_and_nothing_is_asked(
    authority: Authority,
    monkeypatch: pytest.MonkeyPatch,
    asked: str,
    certificate: dict[str, int],
    trusted: bool,
    problem: str,
) -> None:
    if trusted:
        monkeypatch.setenv("SSL_CERT_FILE", str(authority.file))
    with secure(authority, "good.example", **certificate) as site:
        with raises_refusal(f"the certificate of the server is not accepted: {problem}"):
            named(site, asked).fetch(site.url(host=asked), limit=MB)
        assert site.seen == []


def test_plain_http_behind_https_is_named(site: Site) -> None:
    with raises_refusal("encrypted connection"):
        client(site).fetch(site.url().replace("http:", "https:"), limit=MB)
