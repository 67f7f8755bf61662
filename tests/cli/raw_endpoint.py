"""An endpoint that misbehaves below HTTP: a relay before the scripted server that answers some requests itself.

Each chat request that comes in takes the next of `faults`; for None, where there is none left, and for what is no
chat, the request goes on to the server. A fault is given the connection and does with it what it likes; then the
connection is closed.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from collections.abc import Callable

from raw_answers import Listening
from server import ScriptedServer

Connection = socket.socket
RawFault = Callable[[Connection], None]


class Relay(Listening):
    """Listens on the loopback interface from the start until `close`."""

    def __init__(self, server: ScriptedServer, *faults: RawFault | None, spared: int = 0) -> None:
        self.faults = list(faults)
        self._spared = spared  # chat requests that go through before the first fault, the probe among them
        self._server = server
        self._turn = threading.Lock()
        super().__init__()

    def _serve(self, connection: Connection) -> None:
        with connection, contextlib.suppress(OSError):
            request = _whole_request(connection)
            fault = self._fault(request)
            if fault is not None:
                fault(connection)
            else:
                self._pass_on(request, connection)

    def _fault(self, request: bytes) -> RawFault | None:
        if b"/chat/completions" not in request.partition(b"\r\n")[0]:
            return None
        with self._turn:
            if self._spared:
                self._spared -= 1
                return None
            return self.faults.pop(0) if self.faults else None

    def _pass_on(self, request: bytes, connection: Connection) -> None:
        host, _, port = self._server.base_url.removeprefix("http://").removesuffix("/v1").partition(":")
        head, _, body = request.partition(b"\r\n\r\n")
        lines = [line for line in head.split(b"\r\n") if not line.lower().startswith(b"connection:")]
        with socket.create_connection((host, int(port))) as upstream:
            upstream.sendall(b"\r\n".join([*lines, b"Connection: close"]) + b"\r\n\r\n" + body)
            status = _some(upstream)  # and more; the client is told as well that its connection ends with the answer
            connection.sendall(status.replace(b"\r\n", b"\r\nConnection: close\r\n", 1))
            while piece := upstream.recv(65536):
                connection.sendall(piece)


def _whole_request(connection: Connection) -> bytes:
    data = b""
    while b"\r\n\r\n" not in data:
        data += _some(connection)
    head, _, body = data.partition(b"\r\n\r\n")
    length = next((int(x.split(b":")[1]) for x in head.split(b"\r\n") if x.lower().startswith(b"content-length:")), 0)
    while len(body) < length:
        body += _some(connection)
    return head + b"\r\n\r\n" + body


def _some(connection: Connection) -> bytes:
    if not (piece := connection.recv(65536)):
        raise OSError("the client has gone")
    return piece


def says(data: bytes) -> RawFault:
    """Send these bytes."""
    return lambda connection: connection.sendall(data)


def reset(connection: Connection) -> None:
    """End the connection with an RST."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def silent(connection: Connection) -> None:
    """Say nothing until the client goes."""
    connection.recv(1)


def drips(data: bytes, each: float) -> RawFault:
    """Send these bytes one by one, `each` seconds apart."""

    def drip(connection: Connection) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in data:
            connection.sendall(bytes([byte]))
            time.sleep(each)

    return drip
