"""Connect to an OpenAI-compatible endpoint: the `openai` client, its time limits, and its errors as ours.

Only this module and `late_import`, which loads it at first use, import `openai`. Requests go through the client's
`post`, as the typed `create` copies all messages at every call.

The server is untrusted: its answers are bounded, and read by `response` and `refusals`. Redirects are followed only on
the same server, as prompt and key go along.

Not covered by the total limit: a server that sends its headers byte by byte. The user is notified of a silence and can
press Ctrl-C.
"""

from __future__ import annotations

import contextlib
import math
import re
import socket
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, TypeVar, cast
from urllib.parse import SplitResult, urljoin, urlsplit

from autoagent.core.errors import ContextOverflow, ModelError, QuotaExceeded, SettingsError, SetupError, StopRun
from autoagent.core.model import Price
from autoagent.core.protocols import Listener
from autoagent.models import pricing
from autoagent.models.openai.heartbeat import Heartbeat
from autoagent.models.openai.late_import import import_openai
from autoagent.models.openai.refusals import Insecure, Refusals, Refused
from autoagent.models.openai.response import Broken, StreamError, TooLong, decompress, limit_bytes, read_object
from autoagent.models.openai.retry import Fault, RetryPolicy, with_retries
from autoagent.models.openai.wire import encode
from autoagent.network.addresses import is_private
from autoagent.network.connections import Deadline
from autoagent.settings import OPENAI_URL

if TYPE_CHECKING:
    import httpx2
    import openai

T = TypeVar("T")
Read = Callable[[str, Iterable[bytes]], T]  # parses a body, given its content type; raises Broken if it is incomplete

ERROR_LIMIT = 100_000  # bytes read of a refusal
MAX_REDIRECTS = 20
END_SECONDS = 0.1  # to wait for the end of a complete answer; a new connection costs less than waiting longer

_REDIRECT_STATUSES = (301, 302, 303, 307, 308)
_SAME_METHOD_STATUSES = (307, 308)  # the redirects that keep the method and the body


def preload() -> None:
    """Import everything the first request needs. Call it in a thread while the user reads."""
    import_openai()
    import httpcore2  # noqa: F401


@dataclass(frozen=True, slots=True)
class RequestTimeouts:
    """Timeouts in seconds: to connect, between two pieces, for the whole answer, for a refusal."""

    connect: float = 10.0
    silence: float = 60.0
    total: float = 600.0
    refusal: float = 10.0


# A CPU may read a long prompt for minutes before its first word.
_LOCAL_TIMEOUTS = RequestTimeouts(silence=300.0, total=1800.0)
# For requests that only improve an error message.
_QUICK_TIMEOUTS = RequestTimeouts(connect=3.0, silence=3.0, total=5.0, refusal=1.0)


@dataclass(eq=False, repr=False)
class _RefusedAnswer(Exception):
    """Report an answer with an error status, and the beginning of its body."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def __str__(self) -> str:
        return f"status {self.status}"  # the body may hold the key


class Endpoint:
    """Send requests to an endpoint over connections that are reused.

    `silence` is how long a request may stay silent, in seconds, or 0 for a default that depends on whether the server
    is local. `request_hook` sends each request: it is called with `check_time_left` of the listener, and a function
    that sends.

    Raises SettingsError if the base URL is not an http address, SetupError if the key is malformed, or missing for
    OpenAI.
    """

    def __init__(
        self,
        *,
        api_key: str,
        base_url: str = "",
        organization: str = "",
        timeouts: RequestTimeouts | None = None,
        policy: RetryPolicy | None = None,
        silence: float = 0.0,
        request_hook: Callable[[Callable[[], float], Callable[[], Any]], Any] | None = None,
    ) -> None:
        self.base_url = (base_url or OPENAI_URL).rstrip("/")
        self.host = _host(self.base_url)
        self.private = is_private(self.host)
        self._key = api_key.strip()
        if not self._key and self.base_url == OPENAI_URL:
            raise SetupError("OPENAI_API_KEY is not set; set it, or name a server of your own in OPENAI_BASE_URL")
        if not re.fullmatch(r"[!-~]*", self._key):
            raise SetupError("OPENAI_API_KEY holds a space or a character that no key has; copy it again")
        self._organization = organization
        defaults = _LOCAL_TIMEOUTS if self.private else RequestTimeouts()
        chosen = replace(defaults, silence=silence, total=max(defaults.total, silence)) if silence else defaults
        self._timeouts = timeouts or chosen
        self._policy = policy or RetryPolicy()
        self._request_hook = request_hook
        waits = self._timeouts.connect, self._timeouts.silence
        self._refusals = Refusals(self.base_url, self.host, self._key, *waits, self._policy.clock)
        self._has_answered = False

    def price(self, model: str) -> Price | None:
        """Return a model's price from the table, even behind a proxy, or 0 for others on a private endpoint."""
        if entry := pricing.find_model(model):
            return entry.price
        return Price(0.0, 0.0, 0.0) if self.private else None

    def post(
        self,
        path: str,
        body: Mapping[str, Any],
        read: Read[T],
        listener: Listener | None,
        *,
        is_known: bool = True,
        on_charge: Callable[[], None] = lambda: None,
    ) -> tuple[T, tuple[str, ...]]:
        """Return the result of `read` for the answer, and the reasons for retries.

        The listener is notified of each wait and each long silence. With `is_known`, this endpoint answered an
        earlier process. `on_charge` is called for each unanswered request that may be charged. Raises as
        Model.complete does, and Refused if the endpoint rejects the request as it is.
        """

        check_time_left = listener.check_time_left if listener else partial(float, math.inf)
        is_sent = False

        def send() -> T:
            nonlocal is_sent
            remaining = check_time_left()
            is_sent = True
            return self._attempt(path, body, read, listener, remaining)

        def attempt() -> T:
            nonlocal is_sent
            is_sent = False
            try:
                return cast(T, self._request_hook(check_time_left, send)) if self._request_hook else send()
            except BaseException as error:  # Ctrl-C too
                if is_sent and _is_charged(error):
                    on_charge()
                raise

        is_known = is_known or self._has_answered
        if listener is None:
            return with_retries(attempt, self._policy, has_answered=is_known)
        return with_retries(attempt, self._policy, listener.waiting, listener.check_time_left, has_answered=is_known)

    def models(self) -> list[dict[str, Any]]:
        """Return the endpoint's list of models. Each has an `id`. Raises as Model.complete does, without retries."""
        try:
            data = self._attempt("/models", None, read_object).get("data")
        except Fault as fault:
            raise ModelError(f"{self.base_url}/models lists no models: {fault.reason}") from fault
        models = data if isinstance(data, list) else []
        entries = [model for model in models if isinstance(model, dict) and isinstance(model.get("id"), str)]
        return [model for model in entries if model["id"].isprintable()]

    def _model_names(self) -> list[str]:
        """Return the names of the endpoint's models from a short request, or [] if unknown."""
        key, organization = self._key, self._organization
        endpoint = Endpoint(api_key=key, base_url=self.base_url, organization=organization, timeouts=_QUICK_TIMEOUTS)
        try:
            return [model["id"] for model in endpoint.models()]
        except (ModelError, SetupError):
            return []

    def _attempt(
        self,
        path: str,
        body: Mapping[str, Any] | None,
        read: Read[T],
        listener: Listener | None = None,
        remaining: float = math.inf,
    ) -> T:
        """Send one request, and convert the client's errors to ours, or to a Fault to retry.

        `remaining` is how many seconds the run has left.
        """
        import_openai()
        import httpx2
        import openai

        end = time.monotonic() + self._timeouts.total
        try:
            with (
                Heartbeat(self.host, self._timeouts.silence, listener) as heartbeat,
                contextlib.closing(self._send(path, body, remaining)) as response,
            ):
                chunks = self._in_time(limit_bytes(response.iter_raw()), end, heartbeat, listener)
                encoding = response.headers.get("content-encoding", "")
                answer = read(response.headers.get("content-type", ""), decompress(chunks, encoding))
                # The rest is read so that the connection can serve the next request. If it is late, it is closed.
                with contextlib.suppress(Exception), Deadline(END_SECONDS) as deadline:  # the answer is whole
                    deadline.watch(_connection(response))
                    for _ in chunks:
                        pass
                return answer
        except _RefusedAnswer as error:
            refusal = self._refusals.from_status(error.status, error.headers, error.body, body, self._model_names)
            raise refusal from error
        except (openai.APIConnectionError, httpx2.HTTPError) as error:  # the latter while reading the body
            if listener:
                listener.check_time_left()  # perhaps the run's time is up
            cause = error.__cause__ if isinstance(error, openai.APIConnectionError) else None
            raise self._refusals.from_connection(cause or error) from error
        except StreamError as error:
            raise self._refusals.from_status(200, {}, error.error, body) from error
        except Broken as error:
            raise Fault(f"{self.host}: {error}") from error
        except TooLong as error:
            raise ModelError(f"{self.host} keeps sending: {error}; retry, or use another model") from error

    def _send(self, path: str, body: Mapping[str, Any] | None, limit: float) -> httpx2.Response:
        """POST the body, or GET without one, for at most `limit` seconds of silence. The response still streams.

        Raises _RefusedAnswer for an error status, SetupError for a forbidden redirect, Fault for a circle of them.
        """
        import httpx2
        import openai

        stream_cls = openai.Stream[object]  # never instantiated: a Response is requested and returned unchanged
        times = self._timeouts
        timeout = httpx2.Timeout(max(0.01, min(times.silence, limit)), connect=max(0.01, min(times.connect, limit)))
        options = openai.RequestOptions(timeout=timeout)
        send = self._client.get if body is None else partial(self._client.post, content=encode(body))
        for _ in range(MAX_REDIRECTS + 1):
            try:
                response = send(path, cast_to=httpx2.Response, options=options, stream=True, stream_cls=stream_cls)
                return cast("httpx2.Response", response)
            except _RefusedAnswer as refusal:
                location = refusal.headers.get("location")
                if refusal.status not in _REDIRECT_STATUSES or not location:
                    raise
                path = self._redirect_target(path, body is None or refusal.status in _SAME_METHOD_STATUSES, location)
        raise Fault(f"{self.host} redirects in a circle")

    def _redirect_target(self, path: str, needs_body: bool, location: str) -> str:
        """Return a redirect's target. Raises SetupError for another server or another method."""
        source = urlsplit(urljoin(f"{self.base_url}/", path.lstrip("/")))
        try:
            target = urlsplit(urljoin(source.geturl(), location))
            origin = _origin(target)
        except ValueError:  # an invalid address
            target, origin = source, ""
        if origin != _origin(source):
            label = ascii(origin)[1:-1] or "an invalid address"
            raise SetupError(
                f"{self.host} redirects to {label[:200]}; prompts and keys go to the server in OPENAI_BASE_URL and to "
                "no other: set it to the correct address"
            )
        if not needs_body:
            raise SetupError(f"{self.host} redirects to {target.path[:200]!r}; check the path in OPENAI_BASE_URL")
        return target.geturl()

    def _check_status(self, response: httpx2.Response) -> None:
        """Note the endpoint's answer. Raise _RefusedAnswer for an error status, with the body that arrives in time."""
        import httpx2

        self._has_answered = True
        if response.status_code < 300:
            return
        received = bytearray()
        # The status matters, with as much of the reason as arrives.
        with contextlib.suppress(httpx2.HTTPError, Broken, OSError), Deadline(self._timeouts.refusal) as deadline:
            deadline.watch(_connection(response))
            for piece in decompress(response.iter_raw(), response.headers.get("content-encoding", "")):
                received += piece
                if len(received) >= ERROR_LIMIT:
                    break
        raise _RefusedAnswer(response.status_code, response.headers, bytes(received[:ERROR_LIMIT]))

    @cached_property
    def _client(self) -> openai.OpenAI:
        import ssl

        import_openai()
        import httpx2
        import openai

        # On plain connections loading certificates would cost a tenth of a second. This context accepts none.
        is_plain = self.private and self.base_url.startswith("http:")
        host = f"[{self.host}]" if ":" in self.host else self.host
        try:
            http_client = openai.DefaultHttpxClient(
                follow_redirects=False,
                event_hooks={"response": [self._check_status]},
                # no proxy in front of a private server
                mounts={f"all://{host}": None} if self.private else None,
                verify=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT) if is_plain else True,
                trust_env=not is_plain,
            )
        except (ImportError, ValueError, OSError, httpx2.InvalidURL) as error:
            raise SetupError(
                f"the variables for a proxy or certificates cannot be used ({error}); "
                "check ALL_PROXY, HTTPS_PROXY, HTTP_PROXY and SSL_CERT_FILE"
            ) from error
        client = openai.OpenAI(
            api_key=self._key or "none",  # private servers need no key, but the client does
            base_url=self.base_url,
            organization=self._organization or None,
            max_retries=0,
            timeout=httpx2.Timeout(self._timeouts.silence, connect=self._timeouts.connect),
            default_headers={"Accept-Encoding": "gzip"},
            http_client=http_client,
        )
        weakref.finalize(self, client.close)  # the connections end with the endpoint
        return client

    def _in_time(
        self, chunks: Iterator[bytes], end: float, heartbeat: Heartbeat, listener: Listener | None
    ) -> Iterator[bytes]:
        for chunk in chunks:
            heartbeat.restart()
            if listener:
                listener.check_time_left()
            if time.monotonic() > end:
                limit = f"{self._timeouts.total:g} s"
                raise ModelError(f"{self.host} did not finish its answer within {limit}; retry, or use another model")
            yield chunk


def _connection(response: httpx2.Response) -> socket.socket:
    return cast("socket.socket", response.extensions["network_stream"].get_extra_info("socket"))


def _origin(address: SplitResult) -> str:
    port = address.port or {"http": 80, "https": 443}.get(address.scheme)
    return f"{address.scheme}://{address.hostname}:{port}"


def _is_charged(error: BaseException) -> bool:
    """Return whether the server may charge for a failed request: received and not refused."""
    if isinstance(error, Fault):
        return error.stage == "begun"
    if isinstance(error, (Refused, Insecure, ContextOverflow, QuotaExceeded)):
        return False
    return isinstance(error, (ModelError, StopRun, KeyboardInterrupt))


def _host(base_url: str) -> str:
    try:
        parts = urlsplit(base_url)
        is_usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
        (parts.hostname or "").encode("idna")  # as in a DNS lookup
    except ValueError:  # UnicodeError too
        is_usable = False
    if not is_usable:
        raise SettingsError(f"OPENAI_BASE_URL is {base_url!r}; it must be an address such as http://localhost:8080/v1")
    if parts.username or parts.password:  # the address is shown, and saved in a file
        raise SettingsError("OPENAI_BASE_URL holds a name or a password; keep them out of it and use OPENAI_API_KEY")
    return parts.hostname or ""
