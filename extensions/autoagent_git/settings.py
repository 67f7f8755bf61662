"""The settings of repositories."""

from __future__ import annotations

from autoagent.core.declaration import free, setting
from autoagent.core.frozen import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class GitSettings:
    """Repositories."""

    github_username: str = setting(
        "", "GITHUB_USERNAME", help="for cloning private repositories", folder="with github key", scenario="free"
    )
    github_api_key: str = free("", "GITHUB_API_KEY", help="the token that goes with it", secret=True)
