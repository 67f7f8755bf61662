"""One OpenAI-compatible endpoint: the client of the `openai` package, its time limits, and its errors as ours.

The only module that imports `openai` (when it is first used: it takes half a second). Requests go through the
client's `post`, not through its typed `create`, which walks all messages anew at every call.

Not covered by the total limit: a server that drips its headers or the body of an error, byte by byte. The user is
told of it as of a silence, and Ctrl-C ends it.
"""

from __future__ import annotations

import contextlib
import json
import re
import socket
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar, cast
from urllib.parse import urlsplit

from autoagent.addresses import is_private
from autoagent.causes import causes
from autoagent.errors import ContextOverflow, ModelError, QuotaExceeded, SettingsError, SetupError
from autoagent.messages import Price
from autoagent.models import prices
from autoagent.models.answer import Broken, ToldInStream, TooLong
from autoagent.models.retry import Fault, Policy, deserves, persist, retry_after
from autoagent.models.silence import LONGEST, Silence
from autoagent.models.timers import Timers
from autoagent.protocols import Listener

if TYPE_CHECKING:
    import httpx2
    import openai

T = TypeVar("T")
Read = Callable[[str, Iterable[bytes]], T]
"""Makes something of a content type and the chunks of a body; raises Broken where they hold only a part of it."""

OPENAI = "https://api.openai.com/v1"
END_SECONDS = 0.1  # for the end of an answer that has said all; waiting longer would cost more than a new connection

_OVERFLOW = re.compile(
    r"context[_ ](length|window|size)|maximum context|prompt is too long|too many (input )?tokens|exceed_context", re.I
)
_QUOTA = re.compile(
    r"insufficient_quota|billing_hard_limit|insufficient (balance|credit)|exceeded your current quota", re.I
)
_UNSUPPORTED = re.compile(r"not support|unsupported|that support|not implemented|requires --", re.I)
_KEYS = re.compile(r"\b(sk|pk|gsk|key)-[\w*.-]{4,}")


def preload() -> None:
    """Import what the first request needs, for a thread that does so while the user reads."""
    import openai  # noqa: F401


@dataclass(frozen=True, slots=True)
class Limits:
    """Seconds: to connect, between two pieces of an answer, for all of it."""

    connect: float = 10.0
    silence: float = 60.0
    total: float = 600.0


_OWN_MACHINE = Limits(silence=300.0, total=1800.0)  # a CPU may read a long prompt for minutes before its first word


class Refused(ModelError):
    """The endpoint will not take the request as it is; `param` is the parameter it blames, '' where it names none."""

    def __init__(self, text: str, param: str, said: str) -> None:
        super().__init__(text)
        self.param = param
        self.said = said


class Endpoint:
    """Where requests go. Models and embedders of one endpoint share it, and with it the connections.

    `patience`: seconds for which it may be silent; 0 for what fits a server of one's own, or one elsewhere.

    Raises:
        SettingsError: the base URL is no http address.
        SetupError: there is no key for OpenAI's own endpoint, or it holds what no key holds.
    """

    def __init__(
        self,
        *,
        api_key: str,
        base_url: str | None = None,
        organization: str | None = None,
        limits: Limits | None = None,
        policy: Policy | None = None,
        patience: float = 0.0,
    ) -> None:
        self.base_url = (base_url or OPENAI).rstrip("/")
        self.host = _host(self.base_url)
        self.private = is_private(self.host)
        self._key = api_key.strip()
        if not self._key and self.base_url == OPENAI:
            raise SetupError("OPENAI_API_KEY is not set; set it, or name a server of your own in OPENAI_BASE_URL")
        if not re.fullmatch(r"[!-~]*", self._key):
            raise SetupError("OPENAI_API_KEY holds a space or a character that no key has; copy it again")
        self._organization = organization or None
        self._limits = limits or _limits(_OWN_MACHINE if self.private else Limits(), patience)
        self._policy = policy or Policy()
        self._timers = Timers()

    def price(self, model: str) -> Price | None:
        """What a model costs here: nothing on a private endpoint, else as the table has it."""
        if self.private:
            return Price(0.0, 0.0, 0.0)
        known = prices.known(model)
        return known.price if known else None

    def post(
        self, path: str, body: Mapping[str, Any], read: Read[T], listener: Listener | None
    ) -> tuple[T, tuple[str, ...]]:
        """What `read` made of the answer, and the reasons of the retries before it. Raises as Model.complete does.

        The listener hears of each wait before a retry, and of each long silence.

        Raises:
            Refused: the endpoint does not take the request as it is.
        """
        waiting = listener.waiting if listener else _unheard
        return persist(lambda: self._attempt(path, body, read, listener), self._policy, waiting)

    def models(self) -> list[dict[str, Any]]:
        """What the endpoint lists of its models; each has an `id`. Raises as Model.complete does, without a retry."""
        try:
            listed = self._attempt("/models", None, lambda _, chunks: json.loads(b"".join(chunks)))
        except Fault as fault:
            raise ModelError(fault.reason) from fault
        except ValueError as error:
            raise ModelError(f"{self.base_url}/models does not answer with a list of models") from error
        data = listed.get("data") if isinstance(listed, dict) else None
        return [model for model in data or () if isinstance(model, dict) and isinstance(model.get("id"), str)]

    def _attempt(self, path: str, body: Mapping[str, Any] | None, read: Read[T], listener: Listener | None = None) -> T:
        """One request. Here, and nowhere else, the errors of the client become ours, or a Fault to try again."""
        import httpx2
        import openai

        end = time.monotonic() + self._limits.total
        try:
            with self._breaking_silence(listener) as silence, contextlib.closing(self._send(path, body)) as response:
                chunks = self._in_time(response.iter_bytes(), end, silence)
                answer = read(response.headers.get("content-type", ""), chunks)
                self._read_out(response, chunks)
                return answer
        except openai.APIStatusError as error:
            raise self._status_error(error.status_code, error.response.headers, error.body, body) from error
        except openai.APIConnectionError as error:
            raise self._connection_error(error.__cause__ or error) from error
        except httpx2.HTTPError as error:  # while the body was read
            raise self._connection_error(error) from error
        except ToldInStream as error:
            raise self._status_error(200, {}, error.error, body) from error
        except Broken as error:
            raise Fault(f"{self.host}: {error}") from error
        except TooLong as error:
            raise ModelError(f"{self.host} does not stop: {error}; try again, or another model") from error

    def _send(self, path: str, body: Mapping[str, Any] | None) -> httpx2.Response:
        """POST the body, or GET without one. The response still streams; one that says no is raised by the client."""
        import httpx2
        import openai

        stream_cls = openai.Stream[object]  # never made: a Response is asked for, and given as it is
        if body is None:
            got = self._client.get(path, cast_to=httpx2.Response, stream=True, stream_cls=stream_cls)
        else:
            got = self._client.post(path, body=body, cast_to=httpx2.Response, stream=True, stream_cls=stream_cls)
        return cast("httpx2.Response", got)

    @cached_property
    def _client(self) -> openai.OpenAI:
        import httpx2
        import openai

        timeout = httpx2.Timeout(self._limits.silence, connect=self._limits.connect)
        client = openai.OpenAI(
            api_key=self._key or "none",  # servers of one's own want no key, the client wants one
            base_url=self.base_url,
            organization=self._organization,
            max_retries=0,
            timeout=timeout,
            # no proxy stands before a server of one's own
            http_client=openai.DefaultHttpxClient(mounts={f"all://{self.host}": None}) if self.private else None,
        )
        weakref.finalize(self, client.close)  # the connections end with the endpoint
        return client

    def _breaking_silence(self, listener: Listener | None) -> Silence:
        """Tells the listener halfway through the patience there is, and at least every so often."""
        longest = self._limits.silence
        if listener is None:
            return Silence(self._timers)

        def tell(seconds: float) -> None:
            what = f"waiting for {self.host}, which has said nothing for {seconds:.0f} s"
            listener.working(what, max(0.0, longest - seconds))

        return Silence(self._timers, min(LONGEST, max(1.0, longest / 2)), tell)

    def _in_time(self, chunks: Iterator[bytes], end: float, silence: Silence) -> Iterator[bytes]:
        for chunk in chunks:
            silence.heard()
            if time.monotonic() > end:
                limit = f"{self._limits.total:g} s"
                raise ModelError(f"{self.host} did not finish its answer within {limit}; try again, or another model")
            yield chunk

    def _read_out(self, response: httpx2.Response, chunks: Iterator[bytes]) -> None:
        """Read the end of an answer that has said all, so that its connection serves the next request as well.

        A connection on which the end does not come at once is given up, as it is when it is not read out.
        """
        connection: socket.socket = response.extensions["network_stream"].get_extra_info("socket")
        cancel = self._timers.after(END_SECONDS, lambda: _shut(connection))
        try:
            for _ in chunks:
                pass
        except Exception:  # noqa: S110 - whatever goes wrong now, the answer is there and whole
            pass
        finally:
            cancel()

    def _status_error(
        self, status: int, headers: Mapping[str, str], error: Any, body: Mapping[str, Any] | None
    ) -> Exception:
        """Our error for an answer that says no to this body; status 200 stands for an error inside a stream."""
        said, message, param = self._said(error)
        if _QUOTA.search(said) or status == 402:
            return QuotaExceeded(f"{self.host}: the account has no credit left: {message}; add some or use another key")
        if status == 413 or (status != 429 and _OVERFLOW.search(said)):
            return ContextOverflow(f"{self.host}: the prompt is too long for the model: {message}")
        if status in (401, 403):
            return SetupError(f"{self.host} refused the key in OPENAI_API_KEY ({status}: {message}); set another")
        if status in (404, 500, 501) and _UNSUPPORTED.search(said):
            return Refused(f"{self.base_url} answered {status}: {message}", param, said)
        if status == 404:
            what = f"model {body['model']!r}" if body else "list of models"
            return SetupError(f"{self.base_url} has no {what} (404: {message}); check --model and OPENAI_BASE_URL")
        if status == 200:
            return Fault(f"{self.host} broke off its answer: {message}")
        if deserves(status, headers):
            return Fault(f"{self.host} answered {status}: {message}", retry_after(headers, self._policy.clock()))
        return Refused(f"{self.base_url} answered {status}: {message}", param, said)

    def _said(self, body: Any) -> tuple[str, str, str]:
        """Of an error's body: everything it says, its message on one line and without keys, the parameter it names."""
        error = body.get("error", body) if isinstance(body, dict) else body
        said = error if isinstance(error, str) else json.dumps(error, ensure_ascii=False)
        message, param = said, ""
        if isinstance(error, dict):
            message = error.get("message") or error.get("detail") or said
            param = error.get("param") or ""
        if self._key:
            message = str(message).replace(self._key, "***")
        line = _KEYS.sub(r"\1-***", " ".join(str(message).split())).rstrip(".")
        return said, line[:300] or "no reason given", str(param)

    def _connection_error(self, error: BaseException) -> Exception:
        import ssl

        import httpx2

        limits, came_from = self._limits, list(causes(error))
        if any(isinstance(cause, ssl.SSLError) for cause in came_from):
            return ModelError(f"no secure connection to {self.host}: {error}; check its certificate and the system's")
        if isinstance(error, httpx2.ConnectTimeout):
            return Fault(f"{self.host} did not take the connection within {limits.connect:g} s")
        if isinstance(error, httpx2.TimeoutException):
            return Fault(f"{self.host} said nothing for {limits.silence:g} s")
        if any(isinstance(cause, socket.gaierror) for cause in came_from):
            return Fault(f"the name {self.host} cannot be resolved; check OPENAI_BASE_URL and the network")
        if any(isinstance(cause, ConnectionRefusedError) for cause in came_from):
            return Fault(f"nothing answers at {self.base_url} (connection refused); is the server running?")
        return Fault(f"the connection to {self.host} broke: {error}")


def _limits(usual: Limits, patience: float) -> Limits:
    return replace(usual, silence=patience, total=max(usual.total, patience)) if patience else usual


def _unheard(reason: str, seconds: float) -> None:
    """Hears of the retries where nobody else does."""


def _shut(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):  # it ended just now
        connection.shutdown(socket.SHUT_RDWR)


def _host(base_url: str) -> str:
    try:
        parts = urlsplit(base_url)
        usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise SettingsError(f"OPENAI_BASE_URL is {base_url!r}; it must be an address such as http://localhost:8080/v1")
    if parts.username or parts.password:  # the address is shown, and kept in a file
        raise SettingsError("OPENAI_BASE_URL holds a name or a password; keep them out of it and use OPENAI_API_KEY")
    return parts.hostname or ""
