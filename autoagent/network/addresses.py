"""Define the rules of the network guard: acceptable URLs and addresses.

A URL is parsed once, here, and rebuilt from its parts, so that no later parser reads it differently. A name is resolved
and all its addresses are checked. The caller connects to one of these addresses, never to the name, so a second lookup
cannot lead elsewhere.

Not covered: services of this machine on a public address of it, and the behaviour of public hosts. Proxies are never
used.
"""

from __future__ import annotations

import ipaddress
import re
import socket
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import field
from typing import Any
from urllib.parse import quote, urlsplit

from autoagent.core.errors import CommandError, SettingsError
from autoagent.core.frozen import dataclass
from autoagent.text.redaction import MASK
from autoagent.workspace.gate import shown

PORTS = {"http": 80, "https": 443}
MAX_ADDRESSES = 64  # per name; genuine names have a handful
RESOLVE_SECONDS = 10.0

_MAX_URL = 8192  # characters
_MAX_HOST_CHARACTERS = 253  # RFC 1035
_HOST = re.compile(r"[a-z0-9_](?:[a-z0-9_.-]*[a-z0-9_])?")
_SAFE = "!$%&'()*+,/:;=?@[]~"  # left unquoted in a path and a query, besides letters, digits and -._


@dataclass(frozen=True, slots=True)
class Address:
    """A parsed URL."""

    scheme: str
    host: str  # lower-case ASCII (punycode)
    port: int
    target: str  # path and query, no fragment

    @property
    def url(self) -> str:
        port = "" if self.port == PORTS.get(self.scheme) else f":{self.port}"
        return f"{self.scheme}://{bracketed(self.host)}{port}{self.target}"

    @property
    def origin(self) -> tuple[str, str, int]:
        """Return scheme, host and port. Credentials are valid for a single origin."""
        return self.scheme, self.host, self.port


def parse(url: str) -> Address:
    """Parse an http or https URL. Raises CommandError, omitting any password."""
    text = url.strip()
    shown_url = shown(re.sub(r"(?<=://).*@", f"{MASK}@", text, flags=re.DOTALL))  # a password may hold a slash
    if len(text) > _MAX_URL:
        raise CommandError(f"{shown_url} is too long for an address: {len(text):,} characters of at most {_MAX_URL:,}.")
    if match := re.search(r"[^\S ]|[\\\x00-\x1f\x7f\ud800-\udfff]", text):
        raise CommandError(f"{shown_url} is not an address: it holds {match.group()!a}.")
    scheme = re.match(r"([A-Za-z][A-Za-z0-9+.-]*):(?!\d)", text)
    if scheme is None:
        raise CommandError(f"{shown_url} has no scheme; write https:// before it.")
    if scheme[1].lower() not in PORTS:
        raise CommandError(f"{shown_url} has the scheme {scheme[1].lower()}:; only http: and https: are reached.")
    if re.match(r"[^/?#]*//[^/?#]*@", text):  # first, as a masked password would break the parsing
        raise CommandError(f"{shown_url} holds a user name or a password; leave it out.")
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:  # its text quotes the URL, perhaps with a password
        raise CommandError(f"{shown_url} is not an address: its host or its port cannot be read.") from None
    try:
        host = normal_host(parts.hostname or "")
    except ValueError as error:
        raise CommandError(f"{shown_url} is not an address: {error}.") from None
    if port == 0:
        raise CommandError(f"{shown_url} is not an address: there is no port 0.")
    target = quote(parts.path or "/", safe=_SAFE) + (f"?{quote(parts.query, safe=_SAFE)}" if parts.query else "")
    return Address(parts.scheme, host, port or PORTS[parts.scheme], target)


def normal_host(host: str) -> str:
    """Normalize a host: ASCII, lower case, no final dot. Raises ValueError with the reason."""
    host = host.removesuffix(".")
    if ":" in host:
        try:
            return str(ipaddress.IPv6Address(host if "%" not in host else ""))
        except ValueError:
            raise ValueError(f"{shown(host)} is not an IPv6 address") from None
    try:
        ascii_host = host[: _MAX_HOST_CHARACTERS + 1].encode("idna").decode().lower()
    except UnicodeError:
        raise ValueError("a part of its host is empty or longer than 63 characters") from None
    if len(host) > _MAX_HOST_CHARACTERS or len(ascii_host) > _MAX_HOST_CHARACTERS:
        raise ValueError(f"its host is longer than {_MAX_HOST_CHARACTERS} characters")
    if not _HOST.fullmatch(ascii_host):
        raise ValueError(f"{shown(ascii_host)} is not a host name" if ascii_host else "it names no host")
    return ascii_host


def bracketed(host: str) -> str:
    """Return the host as written before a port, with an IPv6 address in brackets."""
    return f"[{host}]" if ":" in host else host


def parse_allowed_hosts(entries: Iterable[str]) -> frozenset[tuple[str, int]]:
    """Parse the addresses the user allows besides public ones, each HOST:PORT. Raises SettingsError for all else."""
    pairs = set()
    for entry in entries:
        host, _, port = entry.strip().rpartition(":")
        try:
            number = int(port) if port.isascii() and port.isdigit() else 0
            if not 0 < number < 65536:
                raise ValueError("it does not end with a port")
            pairs.add((normal_host(host.removeprefix("[").removesuffix("]")), number))
        except ValueError as error:
            raise SettingsError(
                f"AUTOAGENT_ALLOW_HOSTS: {shown(entry)} is not HOST:PORT, such as localhost:8000: {error}."
            ) from None
    return frozenset(pairs)


# IP addresses ----------------------------------------------------------------------------------------------------

# From IANA's registries of special-purpose addresses (RFC 6890 and its successors).
_REASONS = {
    "no address of a host": "0.0.0.0/8 ::/128",
    "in a private network": "10.0.0.0/8 172.16.0.0/12 192.168.0.0/16 fc00::/7 fec0::/10",
    "in the network of a provider (CGNAT)": "100.64.0.0/10",
    "this machine (loopback)": "127.0.0.0/8 ::1/128",
    "a cloud's service for its machines (metadata)": "168.63.129.16/32",
    "link-local, where clouds keep their metadata": "169.254.0.0/16",
    "link-local": "fe80::/10",
    "reserved": "192.0.0.0/24 240.0.0.0/4",
    "reserved for documentation": "192.0.2.0/24 198.51.100.0/24 203.0.113.0/24 2001:db8::/32 3fff::/20",
    "reserved for benchmarks": "198.18.0.0/15",
    "reserved, or a tunnel to IPv4 (Teredo)": "2001::/23",
    "a relay to IPv6": "192.88.99.0/24",
    "a tunnel to IPv4 (6to4)": "2002::/16",
    "an IPv4 address in another guise": "::ffff:0:0/96",
    "a multicast address": "224.0.0.0/4 ff00::/8",
}
_SPECIAL_NETWORKS = [(ipaddress.ip_network(each), reason) for reason, all in _REASONS.items() for each in all.split()]
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")  # NAT64; RFC 6052
_GLOBAL = ipaddress.IPv6Network("2000::/3")  # all allocated IPv6 addresses


def refusal_reason(ip: str) -> str:
    """Describe an IP address that is not on the public internet, or '' if it is public."""
    address = ipaddress.ip_address(ip.partition("%")[0])
    if address.version == 6 and address in _NAT64:
        return refusal_reason(str(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)))
    for network, reason in _SPECIAL_NETWORKS:
        if address in network:
            return reason
    return "reserved" if address.version == 6 and address not in _GLOBAL else ""


def is_private(host: str) -> bool:
    """Return whether a host is this machine or on its own network: nothing sent there is billed, or goes by a proxy."""
    try:
        return ipaddress.ip_address(host).is_private
    except ValueError:
        return "." not in host or host.endswith((".local", ".localhost"))


Lookup = Callable[..., Sequence[tuple[Any, Any, Any, Any, tuple[Any, ...]]]]  # such as socket.getaddrinfo


def resolve(
    host: str, port: int, seconds: float = RESOLVE_SECONDS, lookup: Lookup = socket.getaddrinfo
) -> tuple[str, ...]:
    """Resolve a host by the system. Raises CommandError if there is no answer within `seconds`."""
    outcomes: list[Sequence[tuple[Any, Any, Any, Any, tuple[Any, ...]]] | OSError | UnicodeError] = []

    def ask_resolver() -> None:
        try:
            outcomes.append(lookup(host, port, type=socket.SOCK_STREAM))
        except (OSError, UnicodeError) as error:
            outcomes.append(error)

    # The system's resolver has no time limit, so a thread that waits for it is abandoned.
    thread = threading.Thread(target=ask_resolver, daemon=True)
    thread.start()
    thread.join(seconds)
    if not outcomes:
        raise CommandError(f"The host {shown(host)} cannot be found: no name server answered in {seconds:g} s.")
    if isinstance(outcomes[0], Exception):
        error = outcomes[0]
        reason, number = str(error), error.errno if isinstance(error, socket.gaierror) else None
        if number in (socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME)):
            reason = "there is no such name"
        elif number == socket.EAI_AGAIN:
            reason = "no name server answered; this machine may be offline"
        raise CommandError(f"The host {shown(host)} cannot be found: {reason}.") from error
    return tuple(dict.fromkeys(str(entry[4][0]) for entry in outcomes[0]))


@dataclass(frozen=True, slots=True)
class NetworkGuard:
    """Allow connections to public addresses, and to the `allowed` pairs of host and port.

    A pair allows the host as named in the URL, whatever its address, and an IP address, whatever the name.
    """

    allowed: frozenset[tuple[str, int]] = field(default_factory=frozenset)
    resolve: Callable[[str, int], Sequence[str]] = resolve

    def approved_addresses(self, host: str, port: int) -> tuple[str, ...]:
        """Return the IP addresses to connect to, in order. A single refused address refuses all.

        Raises CommandError with the host, the address and the reason.
        """
        addresses = tuple(self.resolve(host, port))
        if not 0 < len(addresses) <= MAX_ADDRESSES:
            raise CommandError(
                f"The host {shown(host)} has {len(addresses)} addresses; at most {MAX_ADDRESSES} are looked at."
            )
        if (host, port) in self.allowed:
            return addresses
        for ip in addresses:
            reason = refusal_reason(ip)
            if reason and (ip, port) not in self.allowed:
                subject = f"{host} is {reason}" if ip == host else f"{host} is {ip}, {reason}"
                raise CommandError(
                    f"{bracketed(host)}:{port} is not reached: {subject}. "
                    f"The user can allow it with AUTOAGENT_ALLOW_HOSTS={bracketed(host)}:{port}."
                )
        return addresses
