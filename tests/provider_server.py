"""A server on the loopback interface in a provider's place: it answers by method and path, and keeps what it got."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from email.message import Message
from email.parser import BytesParser
from email.policy import HTTP
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit


@dataclass(frozen=True)
class Received:
    """A request as it arrived; the names of its headers are in lower case."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        assert self.headers["content-type"] == "application/json"
        return json.loads(self.body)

    @property
    def parts(self) -> dict[str, Message]:
        """The parts of a multipart form by their names."""
        head = f"Content-Type: {self.headers['content-type']}\r\n\r\n".encode()
        form = BytesParser(policy=HTTP).parsebytes(head + self.body)
        assert form.get_content_type() == "multipart/form-data"
        return {str(part.get_param("name", header="content-disposition")): part for part in form.iter_parts()}


@dataclass(frozen=True)
class Sent:
    """An answer. A `body` of JSON values is written as JSON."""

    body: Any = b""
    status: int = 200
    media_type: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)


Route = Sent | Callable[[Received], Sent]


class ProviderServer:
    """`routes` maps `POST /path` to an answer, or to what makes one of a request; anything else is a 404."""

    def __init__(self, routes: Mapping[str, Route]) -> None:
        self.routes = routes
        self.received: list[Received] = []
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), _answering(self))
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.005,), daemon=True)
        self._thread.start()

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self._http.server_address[1]}"

    @property
    def url(self) -> str:
        return f"http://{self.host}"

    def __enter__(self) -> ProviderServer:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    def answer(self, received: Received) -> Sent:
        self.received.append(received)
        route = self.routes.get(f"{received.method} {received.path}", Sent({"error": "no such path"}, 404))
        return route(received) if callable(route) else route


def _answering(server: ProviderServer) -> type[BaseHTTPRequestHandler]:
    class Answering(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            address = urlsplit(self.path)
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            headers = {name.lower(): value for name, value in self.headers.items()}
            query = dict(parse_qsl(address.query))
            sent = server.answer(Received(self.command, address.path, query, headers, body))
            data = sent.body if isinstance(sent.body, bytes) else json.dumps(sent.body).encode()
            self.send_response(sent.status)
            self.send_header("Content-Type", sent.media_type)
            self.send_header("Content-Length", str(len(data)))
            for name, value in sent.headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST

        def log_message(self, format: str, *args: Any) -> None:
            pass

    return Answering
