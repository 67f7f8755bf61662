"""Tweets through the X API v2 (`POST /2/tweets`), signed with OAuth 1.0a by `tweepy`.

Not covered: the size of the API's answer, which tweepy reads whole.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from autoagent.core.errors import CommandError
from autoagent.services.api_client import host_of, reason_of, unreachable

if TYPE_CHECKING:
    import requests

SECONDS = 30.0  # for the API to take the connection, and without a byte of its answer
TWEEPY_HOST = "https://api.twitter.com"  # written into tweepy

# In the order that tweepy takes them.
TW_KEYS = ("TW_CONSUMER_KEY", "TW_CONSUMER_SECRET", "TW_ACCESS_TOKEN", "TW_ACCESS_TOKEN_SECRET")


@dataclass(frozen=True, slots=True)
class Twitter:
    """One account. `keys` are the four of TW_KEYS. Unless all are set, nothing is ever sent."""

    url: str
    keys: Mapping[str, str] = field(repr=False)

    @property
    def missing(self) -> tuple[str, ...]:
        """The keys that are not set."""
        return tuple(name for name in TW_KEYS if not self.keys.get(name))

    @property
    def host(self) -> str:
        """The host that tweets go to, or '' if they are only tried out."""
        return "" if self.missing else host_of(self.url)

    def send(self, text: str) -> str:
        """Publish a tweet. Return where it can be seen, or that nothing was sent.

        Raises:
            CommandError: tweepy is not installed, or the API's reason for not taking it.
        """
        if self.missing:
            return f"Tried out only, nothing was sent: {', '.join(self.missing)} not set."
        if importlib.util.find_spec("tweepy") is None:
            raise CommandError("Nothing was sent: tweepy is missing; pip install 'autoagent[twitter]'.")
        tweet = self._create(text)
        return f"Sent: https://x.com/i/web/status/{tweet}"

    def _create(self, text: str) -> str:
        """Create the tweet and return its id."""
        import requests
        import tweepy

        no_bearer = None  # that token could only read
        client = tweepy.Client(no_bearer, *(self.keys[name] for name in TW_KEYS), return_type=requests.Response)
        try:
            with _session_to(self.url) as client.session:
                answer = client.create_tweet(text=text).json()
            return str(answer["data"]["id"])
        except requests.JSONDecodeError as error:
            raise CommandError(f"{self.host} did not answer with JSON; {_LOOK_FIRST}.") from error
        except (requests.RequestException, ValueError) as error:  # the second: a redirect to what is no address
            raise CommandError(f"{unreachable('X', self.host, 'TW_URL', error)} ({_LOOK_FIRST})") from error
        except (KeyError, TypeError, RecursionError) as error:
            raise CommandError(f"{self.host} did not say where the tweet is; {_LOOK_FIRST}.") from error


_LOOK_FIRST = "look whether the tweet is there before you send it again"


def _session_to(url: str) -> requests.Session:
    """Return a session whose requests go, in bounded time, to the address in the settings (signed after that).

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
        401: f"; check {', '.join(TW_KEYS)}",
        403: "; the app may lack the right to write, or the tweet was sent before",
        429: "; too many tweets: try again later",
    }.get(status, "")
    return CommandError(f"X answered {status}: {reason_of(body)}{todo}.")
