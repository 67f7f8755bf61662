"""Translate errors of requests, urllib3 and ssl into errors of this program.

No message repeats the server's words, which are untrusted.
"""

from __future__ import annotations

import http.client
import ssl
from collections.abc import Iterator
from contextlib import contextmanager

from autoagent.core.errors import CommandError, causes
from autoagent.network.connections import Deadline

# X509_V_ERR_... of OpenSSL
_CERTIFICATE = {
    9: "it is not valid yet",
    10: "it has expired",
    18: "it is self-signed",
    19: "it is signed by an authority that is not trusted",
    20: "its authority is not known",
    21: "its authority is not known",
    62: "it is for another host",
    64: "it is for another host",
}


@contextmanager
def named(url: str, deadline: Deadline) -> Iterator[None]:
    """Turn every failure, including the deadline, into a CommandError with the URL and the reason."""
    from requests import RequestException
    from urllib3.exceptions import HTTPError

    try:
        yield
    except (RequestException, HTTPError, http.client.HTTPException, OSError, ValueError) as error:
        raise CommandError(f"{url} cannot be fetched: {_too_long(deadline) or reason(error)}.") from error
    if deadline.passed:  # a connection shut down by it looks like the end of the page
        raise CommandError(f"{url} cannot be fetched: {_too_long(deadline)}.")


def _too_long(deadline: Deadline) -> str:
    return f"it took longer than {deadline.seconds:,g} s" if deadline.passed else ""


def reason(error: BaseException) -> str:
    """Explain a failed request by its innermost known cause."""
    reasons = [text for cause in causes(error) if (text := _reason(cause))]
    return reasons[-1] if reasons else f"the server's answer cannot be used ({type(error).__name__})"


def _reason(error: BaseException) -> str:
    from urllib3 import exceptions as urllib3

    match error:
        case ssl.SSLCertVerificationError():
            problem = _CERTIFICATE.get(error.verify_code, error.verify_message)
            return f"the certificate of the server is not accepted: {problem}"
        case ssl.SSLEOFError() | ssl.SSLZeroReturnError():
            return "the server broke off the encrypted connection"
        case ssl.SSLError():
            return f"no encrypted connection could be made ({error.reason or 'TLS failed'})"
        case ConnectionRefusedError():
            return "the server refuses the connection"
        case http.client.RemoteDisconnected():
            return "the server closed the connection without an answer"
        case ConnectionResetError() | BrokenPipeError():
            return "the server broke off the connection"
        case urllib3.InvalidChunkLength():
            return "the server's answer is broken (chunks)"
        case urllib3.DecodeError():
            return "the server's answer is broken (compression)"
        case urllib3.IncompleteRead() | http.client.IncompleteRead():
            return "the server broke off its answer before the end"
        case urllib3.InvalidHeader():  # two lengths
            return "the headers of the answer contradict each other"
        case http.client.LineTooLong():
            return "the headers of the answer are too long"
        case http.client.BadStatusLine() | http.client.UnknownProtocol():
            return "the server does not speak HTTP"
        case http.client.HTTPException() if "headers" in str(error):  # "got more than 100 headers"
            return "the answer has too many headers"
        case TimeoutError() | urllib3.ReadTimeoutError():
            return "the server was silent for too long"
        case OSError() if error.strerror:
            return str(error.strerror)
        case _:
            return ""
