"""An HTTP server on loopback that answers every request with one status, one media type and any bytes.

For what no server of a known kind would send: `tests/server.py` is the one that behaves.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Self


@dataclass(frozen=True)
class Raw:
    """An answer: what its status line, its headers and its body hold."""

    body: bytes
    status: int = 200
    media_type: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)

    def __bytes__(self) -> bytes:
        headers = {"Content-Type": self.media_type, "Content-Length": str(len(self.body)), **self.headers}
        lines = [f"HTTP/1.1 {self.status} Said", *(f"{name}: {value}" for name, value in headers.items())]
        return "\r\n".join(lines).encode() + b"\r\n\r\n" + self.body


class Listening:
    """Listens on loopback from the start until `close`, and serves each connection in a thread."""

    def __init__(self) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self._listening.getsockname()[1]}/v1"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
        self._listening.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        raise NotImplementedError


class RawServer(Listening):
    """`answer` is what each request gets from now on."""

    def __init__(self) -> None:
        self.answer = Raw(b"{}")
        super().__init__()

    def _serve(self, connection: socket.socket) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with connection, connection.makefile("rb") as asked:
            try:
                while True:
                    length = 0
                    while line := asked.readline().strip():
                        name, _, value = line.partition(b":")
                        length = int(value) if name.lower() == b"content-length" else length
                    if length and len(asked.read(length)) < length:
                        return
                    connection.sendall(bytes(self.answer))
            except OSError:  # the client has left in the middle
                return
