"""Which URLs are taken and which addresses may be reached."""

from __future__ import annotations

import re
import socket
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoagent.core.errors import CommandError, SettingsError
from autoagent.network.addresses import NetworkGuard, parse, parse_allowed_hosts, refusal_reason, resolve


def raises_refusal(text: str) -> pytest.RaisesExc[CommandError]:
    return pytest.raises(CommandError, match=re.escape(text))


def refused(url: str) -> str:
    with pytest.raises(CommandError) as caught:
        parse(url)
    return str(caught.value)


# URLs --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "understood"),
    [
        ("https://example.com", "https://example.com/"),
        ("  HTTPS://Example.COM.:443/a/../b?q=1&r=%20#part  ", "https://example.com/a/../b?q=1&r=%20"),
        ("http://example.com:80/", "http://example.com/"),
        ("http://example.com:8080?x", "http://example.com:8080/?x"),
        ("http://example.com/ä b?ö=`", "http://example.com/%C3%A4%20b?%C3%B6=%60"),
        ("http://[2606:4700:0::1111]:8/", "http://[2606:4700::1111]:8/"),
        ("http://bücher.example/", "http://xn--bcher-kva.example/"),
        ("http://аpple.com/", "http://xn--pple-43d.com/"),  # noqa: RUF001 - the first letter is Cyrillic
        ("http://１２７。０。０。１/", "http://127.0.0.1/"),  # noqa: RUF001 - what a browser would make of it
    ],
)
def test_a_url_is_understood_in_one_way(url: str, understood: str) -> None:
    assert parse(url).url == understood
    assert parse(understood) == parse(url)


@pytest.mark.parametrize(
    ("url", "scheme"),
    [
        ("file:///etc/passwd", "file:"), ("FILE:/etc/passwd", "file:"), ("ftp://example.com/x", "ftp:"),
        ("gopher://example.com", "gopher:"), ("data:text/html,<script>", "data:"),
        ("javascript:alert(1)", "javascript:"), ("about:blank", "about:"), ("jar:http://example.com!/x", "jar:"),
        ("ws://example.com", "ws:"), ("ext::sh -c id", "ext:"),
    ],
)  # fmt: skip
def test_other_schemes_are_refused_by_name(url: str, scheme: str) -> None:
    assert f"has the scheme {scheme}; only http: and https: are reached." in refused(url)


NO_ADDRESSES = {
    "has no scheme; write https:// before it.": ("example.com/x", "example.com:80/x", "", "//example.com"),
    "names no host": ("HTTP:/x", "http:example.com", "http://:80/", "http://./"),
    "empty or longer than 63": ("http://a..b/", f"http://{'a' * 300}.com/", f"http://{'ä' * 60}.com/"),
    "longer than 253 characters": ("http://" + "a." * 200 + "com/",),
    "too long for an address": ("http://" + "a" * 9000,),
    "is not a host name": ("http://exa mple.com/", "http://exa%6dple.com/", "http://-x.com/"),
    "it holds '\\\\'": ("http://example.com\\@evil.example/",), "it holds '\\n'": ("http://a.com\n.evil.example/",),
    "it holds '\\x00'": ("http://example.com/\x00",), "it holds '\\ud800'": ("http://example.com/\ud800",),
    "there is no port 0": ("http://example.com:0/",), "is not an IPv6 address": ("http://[fe80::1%25eth0]/",),
    "its host or its port cannot be read": ("http://a.com:99999/", "http://a.com:8a/", "http://[::1/", "http://[1:2]/"),
}  # fmt: skip


@pytest.mark.parametrize(("reason", "urls"), NO_ADDRESSES.items())
def test_what_is_no_address_is_refused_with_the_reason(reason: str, urls: tuple[str, ...]) -> None:
    assert not [url for url in urls if reason not in refused(url)]


@pytest.mark.parametrize(
    "url",
    [
        "https://me:hunter2secret@example.com/", "https://hunter2secret@example.com/",
        "https://me:hunter2/secret@example.com/", "https://me:hunter2#secret@example.com/x@y",
        "ftp://me:hunter2secret@example.com/", "https://me:hunter2secret@\n/",
    ],
)  # fmt: skip
def test_a_password_in_a_url_is_refused_and_not_repeated(url: str) -> None:
    assert "hunter2" not in refused(url)
    assert "secret" not in refused(url)


@pytest.mark.slow
@given(st.text(max_size=60) | st.from_regex(r"https?://[a-z0-9@:./\\\[\]%#? -]{0,40}"))
def test_any_text_is_an_address_or_refused_in_one_line(text: str) -> None:
    try:
        address = parse(text)
    except CommandError as error:
        assert "\n" not in str(error)
    else:
        assert address.scheme in ("http", "https")
        assert address.url.isascii()
        assert parse(address.url) == address


# Exceptions ------------------------------------------------------------------------------------------------------


def test_exceptions_are_pairs_of_host_and_port() -> None:
    allowed = parse_allowed_hosts(["localhost:8000", " LOCALHOST.:8001 ", "10.0.0.5:443", "[::1]:9"])
    assert allowed == {("localhost", 8000), ("localhost", 8001), ("10.0.0.5", 443), ("::1", 9)}


@pytest.mark.parametrize("entry", ["localhost", "localhost:", ":80", "x:0", "x:99999", "http://x:80", "x:٣", "*:80"])
def test_what_is_no_exception_is_named(entry: str) -> None:
    with pytest.raises(SettingsError) as caught:
        parse_allowed_hosts(["fine:80", entry])
    assert f"AUTOAGENT_ALLOW_HOSTS: {entry!r} is not HOST:PORT, such as localhost:8000: " in str(caught.value)


# IP addresses ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reason", "ips"),
    [
        ("", "8.8.8.8 172.32.0.1 100.128.0.1 2606:4700::1111 64:ff9b::808:808"),
        ("this machine (loopback)", "127.0.0.1 127.255.255.254 ::1 64:ff9b::7f00:1"),
        ("no address of a host", "0.0.0.0 ::"),
        ("in a private network", "10.1.2.3 172.16.0.1 172.31.255.255 192.168.1.1 fd00::1 fd00:ec2::254"),
        ("link-local, where clouds keep their metadata", "169.254.169.254"),
        ("link-local", "fe80::1 fe80::1%eth0"),
        ("in the network of a provider (CGNAT)", "100.64.0.1"),
        ("a cloud's service for its machines (metadata)", "168.63.129.16"),
        ("a multicast address", "224.0.0.1 ff02::1"),
        ("reserved", "255.255.255.255 240.0.0.1 ::7f00:1 64:ff9b:1::a00:1 4000::1"),
        ("an IPv4 address in another guise", "::ffff:127.0.0.1"),
        ("a tunnel to IPv4 (6to4)", "2002:7f00:1::"),
        ("reserved, or a tunnel to IPv4 (Teredo)", "2001::7f00:1"),
    ],
)
def test_what_is_not_of_the_public_internet_is_named(reason: str, ips: str) -> None:
    assert {ip: refusal_reason(ip) for ip in ips.split()} == dict.fromkeys(ips.split(), reason)


# Names -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["127.0.0.1", "2130706433", "0x7f000001", "017700000001", "127.1", "localhost"])
def test_every_spelling_of_this_machine_is_seen_through(host: str) -> None:
    with pytest.raises(CommandError, match=r"127\.0\.0\.1, this machine|127\.0\.0\.1 is this machine"):
        NetworkGuard().approved_addresses(host, 80)


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (socket.EAI_NONAME, "there is no such name"),
        (socket.EAI_AGAIN, "no name server answered; this machine may be offline"),
    ],
)
def test_a_name_that_is_not_there_is_told_with_the_name_server_s_answer(code: int, reason: str) -> None:
    with raises_refusal("The host 'no-such-host.invalid' cannot be found: "):
        resolve("no-such-host.invalid", 80)

    def lookup(*_: object, **__: object) -> list[tuple[int, int, int, str, tuple[str, int]]]:
        raise socket.gaierror(code, "as the C library puts it")

    with raises_refusal(f"The host 'xn--pple-43d.com' cannot be found: {reason}"):
        resolve("xn--pple-43d.com", 80, lookup=lookup)


def test_a_name_server_that_is_silent_is_waited_for_no_longer_than_the_limit() -> None:
    over = threading.Event()

    def lookup(*_: object, **__: object) -> list[tuple[int, int, int, str, tuple[str, int]]]:
        over.wait()
        return []

    with raises_refusal("'slow.example' cannot be found: no name server answered in 0.05 s"):
        resolve("slow.example", 80, seconds=0.05, lookup=lookup)
    over.set()


def test_a_name_with_no_or_with_very_many_addresses_is_refused() -> None:
    many = NetworkGuard(resolve=lambda host, port: [f"8.8.{n // 256}.{n % 256}" for n in range(300)])
    with raises_refusal("The host 'many.example' has 300 addresses; at most 64 are looked at"):
        many.approved_addresses("many.example", 443)
    with raises_refusal("has 0 addresses"):
        NetworkGuard(resolve=lambda host, port: []).approved_addresses("none.example", 443)


def test_one_private_address_among_public_ones_is_enough_to_refuse() -> None:
    guard = NetworkGuard(resolve=lambda host, port: ["8.8.8.8", "10.0.0.5"])
    with pytest.raises(CommandError) as caught:
        guard.approved_addresses("half.example", 443)
    assert str(caught.value) == (
        "half.example:443 is not reached: half.example is 10.0.0.5, in a private network. "
        "The user can allow it with AUTOAGENT_ALLOW_HOSTS=half.example:443."
    )


def test_the_user_allows_a_name_or_an_address_for_one_port() -> None:
    def lookup(host: str, port: int) -> list[str]:
        return ["10.0.0.5"]

    by_name = NetworkGuard(parse_allowed_hosts(["intranet.example:8443"]), lookup)
    by_address = NetworkGuard(parse_allowed_hosts(["10.0.0.5:8443"]), lookup)
    for guard in (by_name, by_address):
        assert guard.approved_addresses("intranet.example", 8443) == ("10.0.0.5",)
        with raises_refusal("intranet.example:443 is not reached"):
            guard.approved_addresses("intranet.example", 443)
    with raises_refusal("other.example:8443 is not reached"):
        by_name.approved_addresses("other.example", 8443)
