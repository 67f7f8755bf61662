"""Tweets through tweepy, to a server that checks the signature as the X API does."""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from typing import Any, cast
from urllib.parse import quote, unquote

import pytest
from autoagent_twitter.tweet import send_tweet
from provider_server import ProviderServer, Received, Sent

from autoagent.extension import CommandError, Context
from autoagent.settings import all_settings

pytest.importorskip("tweepy", reason="needs the extra `twitter`")

KEYS = {
    "twitter_consumer_key": "consumer-0123456789",
    "twitter_consumer_secret": "consumer-secret-0123456789",
    "twitter_access_token": "access-0123456789",
    "twitter_access_secret": "access-secret-0123456789",
}


def room(**settings: Any) -> Context:
    """The context of the command: with settings, without anything else."""
    chosen, absent = all_settings()(**settings), cast(Any, None)
    return Context(absent, absent, absent, setting=lambda name: getattr(chosen, name))


def tweet(url: str, **keys: Any) -> str:
    return str(send_tweet.function(room(twitter_url=url, **keys), text="Good morning: a café & 日本"))


def signature(url: str, parameters: dict[str, str]) -> str:
    """HMAC-SHA1 over the request as RFC 5849, section 3.4, has it (a JSON body is no part of it)."""
    pairs = "&".join(f"{quote(k, safe='')}={quote(v, safe='')}" for k, v in sorted(parameters.items()))
    base = "&".join(quote(part, safe="") for part in ("POST", url, pairs))
    key = f"{KEYS['twitter_consumer_secret']}&{KEYS['twitter_access_secret']}"
    return base64.b64encode(hmac.new(key.encode(), base.encode(), hashlib.sha1).digest()).decode()


def x_api(received: Received) -> Sent:
    """Takes a tweet whose signature is right."""
    scheme, _, rest = received.headers["authorization"].partition(" ")
    signed = {name: unquote(value) for name, value in re.findall(r'(\w+)="([^"]*)"', rest)}
    given = signed.pop("oauth_signature")
    url = f"http://{received.headers['host']}{received.path}"
    if scheme != "OAuth" or given != signature(url, signed):
        return Sent({"title": "Unauthorized", "type": "about:blank", "status": 401, "detail": "Unauthorized"}, 401)
    return Sent({"data": {"id": "1455953449422516226", "text": received.json["text"]}}, 201)


def test_a_tweet_is_sent_signed_and_its_place_told() -> None:
    with ProviderServer({"POST /2/tweets": x_api}) as server:
        assert tweet(server.url, **KEYS) == "Sent: https://x.com/i/web/status/1455953449422516226"
        assert server.received[0].json == {"text": "Good morning: a café & 日本"}
        assert 'oauth_consumer_key="consumer-0123456789"' in server.received[0].headers["authorization"]


@pytest.mark.parametrize("left_out", KEYS)
def test_without_all_four_keys_nothing_is_sent(left_out: str) -> None:
    keys = {name: key for name, key in KEYS.items() if name != left_out}
    with ProviderServer({"POST /2/tweets": x_api}) as server:
        said = tweet(server.url, **keys)
        assert server.received == []
    assert re.fullmatch(r"Tried out only, nothing was sent: TW_\w+ not set\.", said)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (Sent({"title": "Unauthorized", "status": 401, "detail": "Bad token"}, 401), "401: Bad token; check TW_CONS"),
        (Sent({"detail": "You are not permitted to do this."}, 403), "403: You are not permitted to do this; the app"),
        (Sent({"errors": [{"message": "text is too long"}], "title": "Invalid Request"}, 400), "400: text is too long"),
        (Sent({"title": "Too Many Requests"}, 429), "429: Too Many Requests; too many tweets: try again later."),
        (Sent([], 500), "500: no reason given."),
        (Sent(b"", 307, headers={"Location": "http://127.0.0.1:1/"}), "307: no reason given."),
        (Sent(b"taken", 201), "did not answer with JSON; look whether the tweet is there before you send it again."),
        (Sent({"data": {}}, 201), "did not say where the tweet is; look whether"),
        (Sent([], 201), "did not say where the tweet is; look whether"),
    ],
)
def test_a_refusal_is_said_in_a_line_and_without_keys(answer: Sent, said: str) -> None:
    with ProviderServer({"POST /2/tweets": answer}) as server, pytest.raises(CommandError) as raised:
        tweet(server.url, **KEYS)
    assert said in str(raised.value)
    assert not [key for key in KEYS.values() if key in str(raised.value)]


def test_where_nothing_answers_the_address_is_named() -> None:
    with ProviderServer({}) as server:
        url = server.url
    with pytest.raises(CommandError, match=r"nothing answers at 127\.0\.0\.1.*TW_URL"):
        tweet(url, **KEYS)


def test_a_tweet_is_shown_before_it_is_sent() -> None:
    assert (send_tweet.spec.risk, send_tweet.spec.category) == ("irreversible", "media")
    assert send_tweet.preview is not None
    shown = send_tweet.preview(room(twitter_url="http://127.0.0.1:1", **KEYS), text="Good morning.")
    assert shown == "Published through 127.0.0.1:1, for all to read (13 of 280 characters):\nGood morning."
    tried = send_tweet.preview(room(), text="Good morning.")
    assert tried == "Only tried out, nothing is sent (13 of 280 characters):\nGood morning."


@pytest.mark.parametrize(("text", "complaint"), [("", "is empty"), ("x" * 281, "has 281 characters; 280 are the most")])
def test_a_tweet_that_cannot_be_one_is_refused_before_the_question(text: str, complaint: str) -> None:
    assert send_tweet.preview is not None
    for ask in (send_tweet.preview, send_tweet.function):
        with pytest.raises(CommandError, match=complaint):
            ask(room(), text=text)
    assert str(send_tweet.function(room(), text="x" * 280)).startswith("Tried out only")
