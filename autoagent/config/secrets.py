"""The secrets among the settings."""

from __future__ import annotations

import dataclasses
import re
from urllib.parse import unquote

from autoagent.config.settings import Settings
from autoagent.text.redaction import is_placeholder

_PASSWORD = re.compile(r"(?:^|://)[^\s/:@]*:([^\s/@]+)(?:@|$)")  # of USER:PASSWORD, alone or in an address


def secrets_of(settings: Settings) -> list[str]:
    """Return all secrets among the settings. For a value with a password, only the password."""
    values = [str(getattr(settings, f.name)) for f in dataclasses.fields(settings) if f.metadata["secret"]]
    secrets: list[str] = []
    for value in values:
        password = _PASSWORD.search(value)
        if password and is_placeholder(unquote(password[1])):
            continue
        if "://" in value and not re.search("[@?]", value):  # an address without a password
            continue
        secrets += [value, password[1], unquote(password[1])] if password else [value]
    return [secret for secret in dict.fromkeys(secrets) if not is_placeholder(secret)]
