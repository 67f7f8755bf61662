"""Open connections for requests, only to addresses that the network guard approves, within a deadline.

The guard is asked when a connection is opened, and the socket connects to an approved address without resolving again.
TLS is verified against the host in the URL.

requests cannot be told which address to connect to, so connections are opened here; requests and urllib3 do the rest.
Their errors become errors of this program. No message repeats the server's words, which are untrusted.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Self

from autoagent.core.errors import CommandError, causes
from autoagent.network.addresses import NetworkGuard

if TYPE_CHECKING:
    from requests.adapters import HTTPAdapter

CONNECT_SECONDS = 10.0  # for one address
SILENCE_SECONDS = 30.0  # without a byte


class Deadline:
    """End a conversation after `seconds` by shutting down its sockets, which wakes any waiting thread.

    A limit on each wait does not stop a server that sends a byte now and then.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.passed = False
        self._end = time.monotonic() + seconds
        self._sockets: list[socket.socket] = []
        self._timer = threading.Timer(seconds, self._shut_down)
        self._timer.daemon = True

    def __enter__(self) -> Self:
        self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()
        self._timer.join()
        for watched in self._sockets:
            watched.close()

    def remaining(self) -> float:
        """Return the remaining seconds, at least a millisecond."""
        return max(self._end - time.monotonic(), 0.001)

    def watch(self, connection: socket.socket) -> None:
        """Include this connection in the shutdown at the deadline."""
        # A copy, as TLS detaches the descriptor from the socket. A TLS socket has no `dup`.
        self._sockets.append(socket.fromfd(connection.fileno(), connection.family, connection.type))
        if self.passed:
            self._shut_down()

    def _shut_down(self) -> None:
        self.passed = True
        for watched in list(self._sockets):
            with contextlib.suppress(OSError):  # already closed
                watched.shutdown(socket.SHUT_RDWR)


def _connect(host: str, port: int, guard: NetworkGuard, deadline: Deadline) -> socket.socket:
    """Connect to the first answering address of a host within the deadline. Raises CommandError and OSError."""
    addresses = guard.approved_addresses(host, port)
    for number, ip in enumerate(addresses, 1):
        try:
            connection = socket.create_connection((ip, port), min(CONNECT_SECONDS, deadline.remaining()))
        except OSError:
            if number == len(addresses) or deadline.passed:
                raise
            continue
        connection.settimeout(SILENCE_SECONDS)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        deadline.watch(connection)
        return connection
    raise AssertionError("the guard gives one address at least")


def guarded_adapter(guard: NetworkGuard, deadline: Deadline) -> HTTPAdapter:
    """Return a requests adapter that connects within the guard's rules and the deadline, without proxies or retries.

    TLS trusts certifi and the system (also SSL_CERT_FILE and SSL_CERT_DIR).
    """
    import ssl

    import certifi
    from requests.adapters import HTTPAdapter
    from urllib3 import HTTPConnectionPool, HTTPSConnectionPool, PoolManager
    from urllib3.connection import HTTPConnection, HTTPSConnection

    class GuardedHTTPConnection(HTTPConnection):
        def _new_conn(self) -> socket.socket:
            return _connect(self.host, self.port, guard, deadline)

    class GuardedHTTPSConnection(HTTPSConnection):
        def _new_conn(self) -> socket.socket:
            return _connect(self.host, self.port, guard, deadline)

    class PlainPool(HTTPConnectionPool):
        ConnectionCls = GuardedHTTPConnection

    class SecurePool(HTTPSConnectionPool):
        ConnectionCls = GuardedHTTPSConnection

        def __init__(self, host: str, port: int | None = None, **options: Any) -> None:
            context = ssl.create_default_context(cafile=certifi.where())
            context.load_default_certs()
            super().__init__(host, port, ssl_context=context, **options)

    class Adapter(HTTPAdapter):
        def init_poolmanager(self, connections: int, maxsize: int, block: bool = False, **options: Any) -> None:
            self.poolmanager = PoolManager(connections, maxsize=maxsize, block=block, **options)
            self.poolmanager.pool_classes_by_scheme = {"http": PlainPool, "https": SecurePool}

        def cert_verify(self, conn: Any, url: str, verify: Any, cert: Any) -> None:
            """Do nothing, as the context has the trusted certificates and requests would add a file."""

    return Adapter(pool_connections=1, pool_maxsize=1)


# What goes wrong --------------------------------------------------------------------------------------------------

# X509_V_ERR_... of OpenSSL
_CERTIFICATE_PROBLEMS = {
    9: "it is not valid yet",
    10: "it has expired",
    18: "it is self-signed",
    19: "it is signed by an authority that is not trusted",
    20: "its authority is not known",
    21: "its authority is not known",
    62: "it is for another host",
    64: "it is for another host",
}


@contextlib.contextmanager
def translating_errors(url: str, deadline: Deadline) -> Iterator[None]:
    """Turn every failure, including the deadline, into a CommandError with the URL and the reason."""
    from http.client import HTTPException

    from requests import RequestException
    from urllib3.exceptions import HTTPError

    too_long = f"it took longer than {deadline.seconds:,g} s"
    try:
        yield
    except (RequestException, HTTPError, HTTPException, OSError, ValueError) as error:
        reasons = [text for cause in causes(error) if (text := _reason(cause))]  # the innermost cause explains it best
        reason = reasons[-1] if reasons else f"the server's answer cannot be used ({type(error).__name__})"
        raise CommandError(f"{url} cannot be fetched: {too_long if deadline.passed else reason}.") from error
    if deadline.passed:  # a connection shut down at the deadline looks like the end of the page
        raise CommandError(f"{url} cannot be fetched: {too_long}.")


def _reason(error: BaseException) -> str:
    import http.client
    import ssl

    from urllib3 import exceptions as urllib3

    match error:
        case ssl.SSLCertVerificationError():
            problem = _CERTIFICATE_PROBLEMS.get(error.verify_code, error.verify_message)
            return f"the certificate of the server is not accepted: {problem}"
        case ssl.SSLEOFError() | ssl.SSLZeroReturnError():
            return "the server broke off the encrypted connection"
        case ssl.SSLError():
            return f"no encrypted connection could be made ({error.reason or 'TLS failed'})"
        case ConnectionRefusedError():
            return "the server refuses the connection"
        case http.client.RemoteDisconnected():
            return "the server closed the connection without an answer"
        case ConnectionResetError() | BrokenPipeError():
            return "the server broke off the connection"
        case urllib3.InvalidChunkLength():
            return "the server's answer is broken (chunks)"
        case urllib3.DecodeError():
            return "the server's answer is broken (compression)"
        case urllib3.IncompleteRead() | http.client.IncompleteRead():
            return "the server broke off its answer before the end"
        case urllib3.InvalidHeader():  # two lengths
            return "the headers of the answer contradict each other"
        case http.client.LineTooLong():
            return "the headers of the answer are too long"
        case http.client.BadStatusLine() | http.client.UnknownProtocol():
            return "the server does not speak HTTP"
        case http.client.HTTPException() if "headers" in str(error):  # "got more than 100 headers"
            return "the answer has too many headers"
        case TimeoutError() | urllib3.ReadTimeoutError():
            return "the server was silent for too long"
        case OSError() if error.strerror:
            return str(error.strerror)
        case _:
            return ""
