"""Translate an endpoint's refusals, by status, wording or silence, into our errors.

Servers word the same refusal in many ways, which the patterns here recognize. Their text is shown on one line, without
keys.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from autoagent.core.errors import ContextOverflow, ModelError, QuotaExceeded, SetupError, causes
from autoagent.models.openai.response import Broken, json_text, json_value
from autoagent.models.openai.retry import Fault, is_retryable, retry_after

_SUSPECTS = ("tools", "response_format")  # parameters on which some servers fail without naming them
_OVERFLOW = re.compile(
    r"context[_ ](length|window|size)|maximum context|prompt is too long|too many (input )?tokens|exceed_context", re.I
)
_QUOTA = re.compile(
    r"(?i)insufficient_quota|billing_hard_limit|insufficient (balance|credit)|exceeded your current quota"
)
_UNSUPPORTED = re.compile(
    r"(?i)not support|unsupported|that support|not implemented|requires --|must alternate|are supported"
)
_MAX_SUGGESTIONS = 5  # models suggested in place of a missing one
_MAX_NAME_CHARACTERS = 60
_KEYS = re.compile(r"\b(sk|pk|gsk|key)-[\w*.-]{4,}")


class Refused(ModelError):
    """Report that the endpoint rejects the request as it is. `param` is the parameter it blames, or ''."""

    def __init__(self, message: str, param: str, text: str) -> None:
        super().__init__(message)
        self.param = param
        self.text = text


class Insecure(ModelError):
    """Report that there is no secure connection to the endpoint, so that it takes no request."""


@dataclass(frozen=True, slots=True)
class Refusals:
    """Convert the refusals of one endpoint into errors. Its timeouts are in seconds."""

    base_url: str
    host: str
    key: str = field(repr=False)
    connect_timeout: float
    silence_timeout: float
    clock: Callable[[], float]

    def from_status(
        self,
        status: int,
        headers: Mapping[str, str],
        error: Any,
        body: Mapping[str, Any] | None,
        list_models: Callable[[], Sequence[str]] = tuple,
    ) -> Exception:
        """Return our error for a response that rejects this body. Status 200 means an error inside a stream.

        `error` is the bytes of the answer, or the JSON value in the stream. `list_models` returns the endpoint's model
        names, requested if the wanted model is missing.
        """
        text, message, param = self._error_parts(error)
        # The order matters: servers report quota and overflow with various statuses.
        if _QUOTA.search(text) or status == 402:
            return QuotaExceeded(f"{self.host}: the account has no credit left: {message}; add some or use another key")
        if status == 413 or (status != 429 and _OVERFLOW.search(text)):
            return ContextOverflow(f"{self.host}: the prompt is too long for the model: {message}")
        if status in (401, 403):
            problem = "refused the key in OPENAI_API_KEY" if self.key else "requires a key"
            remedy = "set another" if self.key else "set OPENAI_API_KEY"
            return SetupError(f"{self.host} {problem} ({status}: {message}); {remedy}")
        refused = Refused(f"{self.base_url} answered {status}: {message}", param, text)
        if status in (404, 500, 501) and _UNSUPPORTED.search(text):
            return refused
        if status == 404:
            model = body["model"] if body else ""
            subject = f"model {model!r}" if body else "list of models"
            remedy = (model and _suggest(model, list_models())) or "check --model and OPENAI_BASE_URL"
            return SetupError(f"{self.base_url} has no {subject} (404: {message}); {remedy}")
        if status == 200:
            return Fault(f"{self.host} broke off its answer: {message}")
        if is_retryable(status, headers):
            # A server may fail with 500 on a parameter that it does not know.
            refusal = refused if status == 500 and body and not body.keys().isdisjoint(_SUSPECTS) else None
            delay = retry_after(headers, self.clock())
            return Fault(f"{self.host} answered {status}: {message}", delay, "refused", refusal)
        return refused

    def _error_parts(self, body: Any) -> tuple[str, str, str]:
        """Return the whole text of an error body, its message on one line without keys, and its parameter."""
        if isinstance(body, bytes):
            try:
                body = json_value(body)
            except Broken:
                body = body.decode("utf-8", "replace").strip()
        body = body[0] if isinstance(body, list) and body else body  # Gemini wraps the error in a list
        error = body.get("error", body) if isinstance(body, dict) else body
        text = error if isinstance(error, str) else _as_text(error)
        fields = error if isinstance(error, dict) else {}
        message, param = fields.get("message") or fields.get("detail") or text, fields.get("param")
        line = " ".join((message if isinstance(message, str) else _as_text(message)).split())
        if self.key:
            line = line.replace(self.key, "***")
        line = _KEYS.sub(r"\1-***", line).rstrip(".")
        return text, line[:300] or "no reason given", param if isinstance(param, str) else ""

    def from_connection(self, error: BaseException) -> Exception:
        """Return our error for a connection that fails, breaks, or stays silent."""
        import ssl

        import httpx2

        chain = list(causes(error))
        cut_off = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError)
        if any(isinstance(cause, ssl.SSLError) and not isinstance(cause, cut_off) for cause in chain):
            return Insecure(f"no secure connection to {self.host}: {error}; check its certificate and the system's")
        if isinstance(error, httpx2.ConnectTimeout):
            reason = f"{self.host} did not accept a connection within {self.connect_timeout:g} s"
        elif isinstance(error, httpx2.TimeoutException):
            return Fault(f"{self.host} said nothing for {self.silence_timeout:g} s")
        elif any(isinstance(cause, socket.gaierror) for cause in chain):
            reason = f"the name {self.host} cannot be resolved; check OPENAI_BASE_URL and the network"
        elif any(isinstance(cause, ConnectionRefusedError) for cause in chain):
            reason = f"nothing answers at {self.base_url} (connection refused); is the server running?"
        elif isinstance(error, (httpx2.ConnectError, httpx2.ProxyError)):
            reason = f"no connection to {self.host}: {error}"
        else:
            return Fault(f"the connection to {self.host} broke: {error}")
        return Fault(reason, stage="unreached")


def _suggest(model: str, available: Sequence[str]) -> str:
    """Suggest models of the endpoint, nearest names first, or ''."""
    from difflib import get_close_matches

    names = [name for name in available if len(name) <= _MAX_NAME_CHARACTERS and len(name.split()) == 1]
    if not names or model in available:
        return ""
    matches = get_close_matches(model, names, _MAX_SUGGESTIONS)
    suggestions = [*matches, *(name for name in names if name not in matches)][:_MAX_SUGGESTIONS]
    suffix = f" and {len(available) - len(suggestions)} more" if len(available) > len(suggestions) else ""
    return f"set --model or SMART_LLM to one of: {', '.join(suggestions)}{suffix}"


def _as_text(error: Any) -> str:
    try:
        return json_text(error)
    except Broken:
        return "an error that cannot be read"
