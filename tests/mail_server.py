"""A mail server on the loopback interface, as far as smtplib and imaplib speak to one: it keeps what it is sent."""

from __future__ import annotations

import base64
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

ADDRESS, PASSWORD = "agent@example.org", "secret-of-the-mailbox"


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    box: ClassVar[list[bytes]]


class _Lines(socketserver.StreamRequestHandler):
    server: _Server

    def say(self, *lines: str) -> None:
        for line in lines:
            self.wfile.write(line.encode() + b"\r\n")

    def line(self) -> str:
        return self.rfile.readline().decode().strip()


class _Smtp(_Lines):
    def handle(self) -> None:
        self.say("220 mail")
        allowed = False
        while line := self.line():
            word = line.split()[0].upper()
            if word == "EHLO":
                self.say("250-mail", "250 AUTH PLAIN")
            elif word == "AUTH":
                given = base64.b64decode(line.split()[2]).decode().split("\0")
                allowed = given[1:] == [ADDRESS, PASSWORD]
                self.say("235 welcome" if allowed else "535 who are you?")
            elif word == "DATA" and allowed:
                self.say("354 go on")
                message = b""
                while (piece := self.rfile.readline()) != b".\r\n":
                    message += piece.removeprefix(b".") if piece.startswith(b"..") else piece
                self.server.box.append(message)
                self.say("250 kept")
            elif word == "QUIT":
                self.say("221 bye")
                return
            else:
                self.say("250 well" if allowed else "530 log in first")


class _Imap(_Lines):
    def handle(self) -> None:
        self.say("* OK mail")
        while line := self.line():
            tag, word, *rest = line.split()
            if word.upper() == "CAPABILITY":
                self.say("* CAPABILITY IMAP4rev1")
            elif word.upper() == "LOGIN" and [one.strip('"') for one in rest] != [ADDRESS, PASSWORD]:
                self.say(f"{tag} NO who are you?")
                continue
            elif word.upper() == "SELECT":
                self.say(f"* {len(self.server.box)} EXISTS")
            elif word.upper() == "SEARCH":
                self.say(" ".join(["* SEARCH", *(str(n + 1) for n in range(len(self.server.box)))]))
            elif word.upper() == "FETCH":
                message = self.server.box[int(rest[0]) - 1]
                self.wfile.write(f"* {rest[0]} FETCH (RFC822 {{{len(message)}}}\r\n".encode() + message + b")\r\n")
            elif word.upper() == "LOGOUT":
                self.say("* BYE", f"{tag} OK bye")
                return
            self.say(f"{tag} OK done")


@contextmanager
def mail_server() -> Iterator[tuple[list[bytes], dict[str, str]]]:
    """Its messages, and the variables that name it."""
    box: list[bytes] = []
    servers: list[Any] = []
    for handler in (_Smtp, _Imap):
        server = _Server(("127.0.0.1", 0), handler)
        server.box = box  # type: ignore[misc]
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        servers.append(server)
    smtp, imap = (str(server.server_address[1]) for server in servers)
    try:
        yield box, {
            "EMAIL_ADDRESS": ADDRESS, "EMAIL_PASSWORD": PASSWORD, "EMAIL_SMTP_HOST": "127.0.0.1",
            "EMAIL_SMTP_PORT": smtp, "EMAIL_IMAP_PORT": imap,
        }  # fmt: skip
    finally:
        for server in servers:
            server.shutdown()
            server.server_close()
