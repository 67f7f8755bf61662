"""Send HTTP requests to a provider that the user has chosen: of pictures, transcripts or a voice.

Its address comes from the user's settings, so no network guard is needed, and a provider on this machine is allowed.
Neither proxies nor credentials are taken from the environment, and redirects are not followed, as the key would go
along. Not covered by the time limit: a server that sends its headers byte by byte.

This is separate from the guarded client of network/client. There the model chooses the address and errors name it. Here
the user does, and errors name the setting to fix.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from autoagent.core.errors import CommandError, causes
from autoagent.network.addresses import is_private
from autoagent.text.redaction import Redactor

if TYPE_CHECKING:
    import requests

CONNECT_SECONDS = 10.0
ANSWER_SECONDS = 300.0  # for a whole answer, and at most so long without a byte: generating an image takes long
ANSWER_LIMIT = 64_000_000  # bytes
ERROR_LIMIT = 100_000  # bytes of an error response
REASON_LIMIT = 300  # characters of it that are shown

_BLOCK = 1 << 16


@dataclass(frozen=True, slots=True)
class ApiAnswer:
    """A provider's answer."""

    provider: str
    media_type: str  # without parameters
    body: bytes

    def fields(self) -> Mapping[str, Any]:
        """Return the body as a JSON object. Raises CommandError for anything else."""
        try:
            value = json.loads(self.body)
        except (ValueError, RecursionError) as error:
            content = f"{len(self.body):,} bytes of {self.media_type or 'an unnamed type'}"
            raise CommandError(f"{self.provider} did not answer with JSON but with {content}.") from error
        if not isinstance(value, dict):
            raise CommandError(f"{self.provider} did not answer with a JSON object.")
        return value


@dataclass(frozen=True, slots=True)
class ApiProvider:
    """A provider and its address.

    `url_variable` and `key_variable` are the settings to fix after a failure. `headers` go with every request and hold
    the `key` in the provider's form.
    """

    name: str
    url: str
    url_variable: str
    key: str = field(default="", repr=False)
    key_variable: str = ""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def host(self) -> str:
        return host_of(self.url)

    @property
    def is_private(self) -> bool:
        """Return whether the server is on this machine or in a private network."""
        try:
            host = urlsplit(self.url).hostname or ""
        except ValueError:  # brackets that are not closed
            host = ""
        return is_private(host)

    def get(self, path: str, **content: Any) -> ApiAnswer:
        """Send a GET request, with content and errors as in `post`."""
        return self._request("GET", path, content)

    def post(self, path: str, **content: Any) -> ApiAnswer:
        """POST `content`, as for `requests` (json, data, files, params, headers), to a path below the address.

        Raises CommandError with the provider and the reason: no answer, a refused key, an error status, too large.
        """
        return self._request("POST", path, content)

    def _request(self, method: str, path: str, content: Mapping[str, Any]) -> ApiAnswer:
        import requests

        end = time.monotonic() + ANSWER_SECONDS
        headers = {"User-Agent": "autoagent", **self.headers, **content.get("headers", {})}
        try:
            with requests.Session() as session:
                session.trust_env = False
                with session.request(
                    method,
                    self.url.rstrip("/") + path,
                    **{**content, "headers": headers},
                    timeout=(CONNECT_SECONDS, ANSWER_SECONDS),
                    allow_redirects=False,
                    hooks={"response": _forget_target},
                    stream=True,
                ) as response:
                    if not 200 <= response.status_code < 300:
                        raise self._refusal(response.status_code, self._body(response, ERROR_LIMIT, end, cut=True))
                    media_type = response.headers.get("Content-Type", "").partition(";")[0].strip().lower()
                    return ApiAnswer(self.name, media_type, self._body(response, ANSWER_LIMIT, end))
        except (requests.RequestException, UnicodeEncodeError) as error:  # the second: a header beyond Latin-1
            raise CommandError(self._masked(unreachable(self.name, self.host, self.url_variable, error))) from error

    def _body(self, response: requests.Response, limit: int, end: float, *, cut: bool = False) -> bytes:
        body = bytearray()
        for block in response.iter_content(_BLOCK):
            body += block
            if len(body) > limit:
                if cut:
                    break
                raise CommandError(f"{self.name} sent more than {limit // 1_000_000} MB; the answer was dropped.")
            if time.monotonic() > end:
                raise CommandError(f"{self.name} did not finish its answer within {ANSWER_SECONDS:.0f} s; try again.")
        return bytes(body[:limit])

    def _refusal(self, status: int, body: bytes) -> CommandError:
        reason = self._masked(reason_of(body))
        remedy = ""
        if status == 401 and self.key_variable:
            remedy = f"; set {'another key' if self.key else 'a key'} in {self.key_variable}"
        elif 300 <= status < 400:
            remedy = f"; that is a redirect, which is not followed: check {self.url_variable}"
        return CommandError(f"{self.name} answered {status}: {reason}{remedy}.")

    def _masked(self, text: str) -> str:
        return Redactor([self.key]).mask(text)


def _forget_target(response: requests.Response, **_: Any) -> None:
    """Remove a redirect's target. It is not followed, but `requests` fails on an invalid target."""
    response.headers.pop("Location", None)


def host_of(url: str) -> str:
    """Return the host of an address, with its port if any, or ''."""
    try:
        return urlsplit(url).netloc.rpartition("@")[2]
    except ValueError:  # brackets that are not closed
        return ""


def reason_of(body: bytes) -> str:
    """Return the text of an error body on one line, or the message in known places of a JSON body."""
    text = body.decode(errors="replace")
    try:
        message = next(_messages(json.loads(text)), "")
    except (ValueError, RecursionError):
        message = "" if "<html" in text.lower() else text
    line = "".join(c for c in " ".join(message.split()) if c.isprintable())
    return line[:REASON_LIMIT].rstrip(". ") or "no reason given"


def _messages(value: Any) -> Iterator[str]:
    """Yield the texts of an error object, the most informative first."""
    if isinstance(value, str):
        if value.strip():
            yield value
    elif isinstance(value, list):
        for item in value:
            yield from _messages(item)
    elif isinstance(value, Mapping):
        for name in ("error", "errors", "detail", "message", "msg", "title", "status"):
            yield from _messages(value.get(name))


def unreachable(name: str, host: str, url_variable: str, error: BaseException) -> str:
    """Describe an error of `requests` in one line: the host, the reason, and the setting with its address."""
    import socket
    import ssl

    import requests

    chain = list(causes(error))
    if any(isinstance(cause, (ssl.SSLError, requests.exceptions.SSLError)) for cause in chain):
        return f"{name}: no secure connection to {host}; check its certificate and the system's."
    if isinstance(error, requests.Timeout) or any(isinstance(cause, TimeoutError) for cause in chain):
        return f"{name}: {host} did not answer in time; try again later."
    if any(isinstance(cause, socket.gaierror) for cause in chain):
        return f"{name}: the name {host} cannot be resolved; check {url_variable} and the network."
    if any(isinstance(cause, ConnectionRefusedError) for cause in chain):
        return f"{name}: nothing answers at {host} (connection refused); is it running? See {url_variable}."
    if isinstance(error, ValueError):  # of `requests`: an address or a header that cannot be used
        return f"{name}: {url_variable} or the key cannot be used: {error}."
    return f"{name}: the connection to {host} broke; try again."
