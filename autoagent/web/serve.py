"""Serve the live page on an address of this machine until interrupted."""

from __future__ import annotations

import asyncio
import ipaddress
import secrets
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from autoagent.core.errors import SettingsError, SetupError
from autoagent.web.actions import Actions

MIN_TOKEN_CHARACTERS = 20  # of a token that the user gives


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """The address to serve at.

    `port` 0 takes a free port. `token` '' makes a new token. Any host but a loopback address needs TLS (the files
    `certificate` and `key`) and a token of the user's.
    """

    host: str = "127.0.0.1"
    port: int = 0
    token: str = ""
    certificate: Path | None = None
    key: Path | None = None

    def check(self) -> None:
        """Raise SettingsError if serving here would not be safe."""
        if self.token and len(self.token) < MIN_TOKEN_CHARACTERS:
            raise SettingsError(f"The token has {len(self.token)} characters; give it at least {MIN_TOKEN_CHARACTERS}.")
        if (self.certificate is None) != (self.key is None):
            raise SettingsError("A certificate needs its key, and a key its certificate.")
        try:
            address = ipaddress.ip_address(self.host)
        except ValueError:
            raise SettingsError(f"{self.host} is not an IP address; the page is served on 127.0.0.1.") from None
        if address.is_unspecified:
            raise SettingsError(f"{self.host} is no address that a browser can name; give that of this machine.")
        if not address.is_loopback and not (self.certificate and self.token):
            raise SettingsError(
                f"{self.host} can be reached from other machines: add --certificate, --key and --token-file."
            )


def serve(
    address: ServerAddress, actions: Actions, state_dir: Path, path: str, on_start: Callable[[str], None]
) -> None:
    """Serve until Ctrl-C. `on_start` receives the link, with its token. Raises SettingsError, SetupError."""
    address.check()
    try:
        import uvicorn

        from autoagent.web.app import application
    except ImportError as error:
        raise SetupError(f"{error.name} is not installed; pip install 'autoagent[view]'") from error
    if secure := address.certificate is not None:
        try:
            ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(address.certificate, address.key)
        except OSError as error:
            names = f"{address.certificate} and {address.key}"
            raise SettingsError(f"{names} are not a certificate and its key: {error.strerror or error}.") from error
    token = address.token or secrets.token_urlsafe(24)
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as server_socket:
        server_socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            server_socket.bind((address.host, address.port))
            server_socket.listen(128)  # before the link is announced
        except OSError as error:
            raise SettingsError(f"Cannot serve on {address.host} port {address.port}: {error.strerror}.") from error
        port = server_socket.getsockname()[1]
        host = f"[{address.host}]" if family == socket.AF_INET6 else address.host
        hosts = {f"{host}:{port}"} | ({host} if port == (443 if secure else 80) else set())
        app = application(state_dir, actions, token, hosts, secure=secure)
        on_start(f"{'https' if secure else 'http'}://{host}:{port}{path}?token={quote(token, safe='')}")
        config = uvicorn.Config(
            app,
            log_level="critical",
            access_log=False,
            server_header=False,
            lifespan="off",
            ws="none",
            timeout_graceful_shutdown=1,
            ssl_certfile=address.certificate,
            ssl_keyfile=address.key,
        )
        try:
            asyncio.run(uvicorn.Server(config).serve(sockets=[server_socket]))
        finally:
            actions.close()
