"""Define the command `send_tweet`, for the account whose four `TW_` keys are set."""

from __future__ import annotations

from typing import Annotated

from autoagent.extension import Command, CommandError, Context, Effects, Extra, Setting, command, host_of

TWEET_LIMIT = 280
# In the order that tweepy takes them, each with the name of its setting.
KEYS = {
    "TW_CONSUMER_KEY": "twitter_consumer_key",
    "TW_CONSUMER_SECRET": "twitter_consumer_secret",
    "TW_ACCESS_TOKEN": "twitter_access_token",
    "TW_ACCESS_TOKEN_SECRET": "twitter_access_secret",
}


def _missing(setting: Setting) -> list[str]:
    """Return the keys that are not set. Unless all are, nothing is ever sent."""
    return [key for key, name in KEYS.items() if not setting(name)]


EXTRA = Extra(
    "twitter",
    "tweepy",
    "a tweet with all four TW_ keys",
    lambda settings: not _missing(lambda name: getattr(settings, name)),
)


def _preview(context: Context, text: str) -> str:
    _check(text)
    said = "Only tried out, nothing is sent"
    if not _missing(context.setting):
        said = f"Published through {host_of(context.setting('twitter_url'))}, for all to read"
    return f"{said} ({len(text)} of {TWEET_LIMIT} characters):\n{text}"


@command(
    "send_tweet",
    "Send a tweet",
    risk="irreversible",
    rare=True,
    category="media",
    available=EXTRA.reason,
    preview=_preview,
    effects=Effects(),
    autogpt=["twitter"],
)
def send_tweet(context: Context, text: Annotated[str, f"at most {TWEET_LIMIT} characters", "text"]) -> str:
    _check(text)
    if missing := _missing(context.setting):
        return f"Tried out only, nothing was sent: {', '.join(missing)} not set."
    from autoagent_twitter.account import tweet

    return tweet(context.setting("twitter_url"), [context.setting(name) for name in KEYS.values()], text)


def _check(text: str) -> None:
    """Refuse what X would refuse. It counts a URL as 23 characters and most of Asia's as two; here each counts one."""
    if not text.strip():
        raise CommandError("The tweet is empty.")
    if len(text) > TWEET_LIMIT:
        raise CommandError(f"The tweet has {len(text)} characters; {TWEET_LIMIT} are the most.")


COMMANDS: tuple[Command, ...] = (send_tweet,)
