"""A web site on loopback that says, byte by byte, what a test wants it to say."""

from __future__ import annotations

import http.server
import shutil
import socket
import ssl
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from email.message import Message
from pathlib import Path
from typing import Any, Self

import pytest

Page = bytes | Callable[["Visit"], None]


def answer(body: bytes = b"", status: int = 200, /, length: int | None = None, **headers: str) -> bytes:
    """An HTTP answer; `length` lies about the body's, -1 leaves it out. `Content_Type="..."` gives a header."""
    lines = [f"HTTP/1.1 {status} Whatever", "Connection: close"]
    if length != -1:
        lines.append(f"Content-Length: {len(body) if length is None else length}")
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + body


def redirect(location: str, **headers: str) -> bytes:
    return answer(b"", 302, Location=location, **headers)


class Site(http.server.ThreadingHTTPServer):
    """Serves `pages` by path, `*` for all others: bytes are sent as they are, functions get the visit.

    `seen` holds what was asked for.
    """

    daemon_threads = False

    def __init__(self, host: str = "127.0.0.1", port: int = 0, tls: ssl.SSLContext | None = None) -> None:
        super().__init__((host, port), Visit)
        self.pages: dict[str, Page] = {}
        self.seen: list[tuple[str, Message]] = []
        self.scheme = "https" if tls else "http"
        self.over = threading.Event()
        self._tls = tls
        self._thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.01})

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        self.shutdown()
        self._thread.join()
        self.server_close()

    def get_request(self) -> tuple[socket.socket, Any]:
        connection, client = super().get_request()
        if self._tls:  # the handshake comes with the first byte read, in the thread of the visit
            connection = self._tls.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)
        return connection, client

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that goes away is no failure of the site."""

    def url(self, path: str = "/", host: str = "127.0.0.1") -> str:
        return f"{self.scheme}://{host}:{self.server_port}{path}"

    def allowed(self, host: str = "127.0.0.1") -> str:
        return f"{host}:{self.server_port}"


class Visit(http.server.BaseHTTPRequestHandler):
    """One request."""

    server: Site
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.server.seen.append((self.path, self.headers))
        self.close_connection = True
        pages = self.server.pages
        page = pages.get(self.path.partition("?")[0], pages.get("*", answer(b"There is no such page.", 404)))
        if callable(page):
            page(self)
        else:
            self.wfile.write(page)

    do_POST = do_HEAD = do_OPTIONS = do_GET

    def drip(self, data: bytes, every: float = 0.02) -> None:
        """Send byte by byte, until the site closes or the client goes away."""
        for byte in data:
            self.wfile.write(bytes([byte]))
            self.wfile.flush()
            if self.server.over.wait(every):
                return

    def log_message(self, *_: object) -> None:
        pass


def names(known: Mapping[str, Sequence[str]]) -> Callable[[str, int], Sequence[str]]:
    """A name server that knows these names alone; an IP address stands for itself."""
    return lambda host, port: known.get(host, [host])


class Authority:
    """A throw-away certificate authority, made with openssl in a folder; `file` is its certificate."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.file = folder / "ca.pem"
        may_sign = ("-addext", "keyUsage=critical,keyCertSign,cRLSign")  # without which Python 3.13 trusts none
        subject = ("-days", "2", "-subj", "/CN=Test Authority")
        self._openssl("req", "-x509", *self._new("ca"), *subject, *may_sign, "-out", self.file)

    def tls(self, host: str, *, days: int = 2, self_signed: bool = False) -> ssl.SSLContext:
        """The server's side of TLS for a host, with a certificate of its own; it has expired with days < 0."""
        kind = "DNS" if host.rpartition(".")[2].isalpha() else "IP"
        request, certificate = self._folder / f"{host}.csr", self._folder / f"{host}{days}{self_signed}.pem"
        extensions = self._folder / f"{host}.ext"
        signed_by = "" if self_signed else "authorityKeyIdentifier=keyid\n"
        extensions.write_text(f"subjectAltName={kind}:{host}\nsubjectKeyIdentifier=hash\n{signed_by}")
        self._openssl("req", *self._new(host), "-subj", f"/CN={host}", "-out", request)
        signer = ("-signkey", self._key(host)) if self_signed else ("-CA", self.file, "-CAkey", self._key("ca"))
        serial = () if self_signed else ("-CAcreateserial",)
        sign = ("-days", str(days), "-extfile", extensions, "-in", request, "-out", certificate)
        self._openssl("x509", "-req", *signer, *serial, *sign)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, self._key(host))
        return context

    def _key(self, name: str) -> Path:
        return self._folder / f"{name}.key"

    def _new(self, name: str) -> tuple[str | Path, ...]:
        curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1")
        return (*curve, "-nodes", "-keyout", self._key(name))

    def _openssl(self, *arguments: str | Path) -> None:
        subprocess.run(["openssl", *arguments], check=True, capture_output=True)


needs_openssl = pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificates")
