"""The settings of tweets."""

from __future__ import annotations

from autoagent.core.declaration import free, setting
from autoagent.core.frozen import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class TwitterSettings:
    """Tweets."""

    twitter_url: str = setting(
        "https://api.x.com",
        "TW_URL",
        help="the address for tweets",
        keys=("twitter_consumer_key", "twitter_consumer_secret", "twitter_access_token", "twitter_access_secret"),
    )
    twitter_consumer_key: str = free("", "TW_CONSUMER_KEY", help="key of the X app", secret=True)
    twitter_consumer_secret: str = free("", "TW_CONSUMER_SECRET", help="secret of the X app", secret=True)
    twitter_access_token: str = free("", "TW_ACCESS_TOKEN", help="token of the X account", secret=True)
    twitter_access_secret: str = free("", "TW_ACCESS_TOKEN_SECRET", help="secret of that token", secret=True)
