"""Connections of requests that go where the network guard says, and no longer than they may.

The guard is asked when a connection is opened, and the socket goes to an address it gave: between check and connect
nothing is resolved again. TLS is still checked against the host in the URL, never against the address.

No library connects by an address that another check has given; requests and urllib3 do the rest.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Self

from autoagent.network.addresses import NetworkGuard

if TYPE_CHECKING:
    from requests.adapters import HTTPAdapter

CONNECT_SECONDS = 10.0  # for one address
SILENCE_SECONDS = 30.0  # without a byte

Connect = Callable[[str, int], socket.socket]
"""Opens a TCP connection to a host and a port."""


class Deadline:
    """Ends a conversation `seconds` after its start: its sockets
    are shut down, so that whatever waits for them goes on.

    A limit on each wait would not do: a server that sends a byte now and then would hold us for ever.
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

    def left(self) -> float:
        """Return the seconds that are left, or a moment if none are."""
        return max(self._end - time.monotonic(), 0.001)

    def watch(self, connection: socket.socket) -> None:
        """Shut this connection down too when the time is over."""
        self._sockets.append(connection.dup())  # TLS takes the descriptor away from the socket it is given
        if self.passed:
            self._shut_down()

    def _shut_down(self) -> None:
        self.passed = True
        for watched in list(self._sockets):
            with contextlib.suppress(OSError):  # it is closed already
                watched.shutdown(socket.SHUT_RDWR)


def guarded_connect(guard: NetworkGuard, deadline: Deadline) -> Connect:
    """Connect to the first address of a host that answers, within the deadline. Raises CommandError and OSError."""

    def connect(host: str, port: int) -> socket.socket:
        addresses = guard.reach(host, port)
        for number, ip in enumerate(addresses, 1):
            try:
                connection = socket.create_connection((ip, port), min(CONNECT_SECONDS, deadline.left()))
            except OSError:
                if number == len(addresses) or deadline.passed:
                    raise
                continue
            connection.settimeout(SILENCE_SECONDS)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            deadline.watch(connection)
            return connection
        raise AssertionError("the guard gives one address at least")

    return connect


def authorities() -> ssl.SSLContext:
    """Return TLS that trusts the authorities of certifi and of the system (also SSL_CERT_FILE and SSL_CERT_DIR)."""
    import certifi

    context = ssl.create_default_context(cafile=certifi.where())
    context.load_default_certs()
    return context


def adapter(connect: Connect) -> HTTPAdapter:
    """Return an adapter of requests that opens all connections by `connect`, without proxies or retries."""
    from requests.adapters import HTTPAdapter
    from urllib3 import HTTPConnectionPool, HTTPSConnectionPool, PoolManager
    from urllib3.connection import HTTPConnection, HTTPSConnection

    class Plain(HTTPConnection):
        def _new_conn(self) -> socket.socket:
            return connect(self.host, self.port)

    class Secure(HTTPSConnection):
        def _new_conn(self) -> socket.socket:
            return connect(self.host, self.port)

    class PlainPool(HTTPConnectionPool):
        ConnectionCls = Plain

    class SecurePool(HTTPSConnectionPool):
        ConnectionCls = Secure

        def __init__(self, host: str, port: int | None = None, **options: Any) -> None:
            super().__init__(host, port, ssl_context=authorities(), **options)

    class Adapter(HTTPAdapter):
        def init_poolmanager(self, connections: int, maxsize: int, block: bool = False, **options: Any) -> None:
            self.poolmanager = PoolManager(connections, maxsize=maxsize, block=block, **options)
            self.poolmanager.pool_classes_by_scheme = {"http": PlainPool, "https": SecurePool}

        def cert_verify(self, conn: Any, url: str, verify: Any, cert: Any) -> None:
            """Do nothing: what is trusted is in the context, and requests would add a file of its own."""

    return Adapter(pool_connections=1, pool_maxsize=1)
