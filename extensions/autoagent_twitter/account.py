"""Send tweets through the X API v2 (`POST /2/tweets`), signed with OAuth 1.0a by `tweepy`.

Not covered: the size of the API's answer, which tweepy reads whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from autoagent.core.errors import causes
from autoagent.extension import CommandError, host_of, reason_of, unreachable
from autoagent_twitter.tweet import KEYS

if TYPE_CHECKING:
    import requests

SECONDS = 30.0  # for the API to take the connection, and without a byte of its answer
TWEEPY_HOST = "https://api.twitter.com"  # written into tweepy


def tweet(url: str, keys: Sequence[str], text: str) -> str:
    """Publish a tweet at the API's address, with the four keys. Return where it can be seen.

    Raises CommandError with the API's reason for not taking it.
    """
    import requests
    import tweepy

    host, no_bearer = host_of(url), None  # that token could only read
    client = tweepy.Client(no_bearer, *keys, return_type=requests.Response)
    try:
        with _session_to(url) as client.session:
            answer = client.create_tweet(text=text).json()
        return f"Sent: https://x.com/i/web/status/{answer['data']['id']}"
    except requests.JSONDecodeError as error:
        raise CommandError(f"{host} did not answer with JSON; {_LOOK_FIRST}.") from error
    except (requests.RequestException, ValueError) as error:  # the second: a redirect to what is no address
        was_sent = not isinstance(error, (requests.ConnectTimeout, requests.exceptions.InvalidURL)) and not any(
            isinstance(cause, ConnectionRefusedError) for cause in causes(error)
        )
        problem = unreachable("X", host, "TW_URL", error)
        raise CommandError(f"{problem} ({_LOOK_FIRST})" if was_sent else problem) from error
    except (KeyError, TypeError, RecursionError) as error:
        raise CommandError(f"{host} did not say where the tweet is; {_LOOK_FIRST}.") from error


_LOOK_FIRST = "look whether the tweet is there before you send it again"


def _session_to(url: str) -> requests.Session:
    """Return a session whose requests go to the address in the settings (signed after that), within SECONDS a read.

    It raises CommandError for a status that says no.
    """
    import requests

    class _Session(requests.Session):
        def prepare_request(self, request: requests.Request) -> requests.PreparedRequest:
            request.url = url.rstrip("/") + str(request.url).removeprefix(TWEEPY_HOST)
            return super().prepare_request(request)

        def send(self, request: requests.PreparedRequest, **options: Any) -> requests.Response:
            answer = super().send(request, **{**options, "timeout": SECONDS, "allow_redirects": False})
            if not answer.ok or answer.is_redirect:
                raise _refusal(answer.status_code, answer.content)
            return answer

    session = _Session()
    session.trust_env = False
    return session


def _refusal(status: int, body: bytes) -> CommandError:
    todo = {
        401: f"; check {', '.join(KEYS)}",
        403: "; the app may lack the right to write, or the tweet was sent before",
        429: "; too many tweets: try again later",
    }.get(status, "")
    return CommandError(f"X answered {status}: {reason_of(body)}{todo}.")
