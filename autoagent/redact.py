"""Masking of secrets in whatever is stored or shown: the known ones by value, others by their shape.

Not covered: a secret that is encoded (base64, hex), split over several texts, or of a shape that is not listed here.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import quote, unquote

from autoagent.settings import Settings

MASK = "[masked]"
SHORTEST = 8  # a shorter known value would mask ordinary words

# A digit is asked for where the shape alone also fits ordinary hyphenated words.
_SHAPES = (
    r"(?<![A-Za-z0-9])sk-(?=[\w-]{0,200}?\d)[\w-]{20,}",  # OpenAI and those who copied its form
    r"(?<![A-Za-z0-9])gh[pousr]_[A-Za-z0-9]{36,}",  # GitHub
    r"(?<![A-Za-z0-9])github_pat_[A-Za-z0-9_]{22,}",
    r"(?<![A-Za-z0-9])A(?:KIA|SIA)[A-Z0-9]{16}(?![A-Za-z0-9])",  # AWS
    r"(?<![A-Za-z0-9])xox[abeprs]-(?=[\w-]{0,200}?\d)[\w-]{10,}",  # Slack
    r"(?<![A-Za-z0-9])hf_[A-Za-z0-9]{30,}",  # Hugging Face
    r"(?<![A-Za-z0-9])AIza[\w-]{35}",  # Google
    r"(?i:(?<=bearer ))(?=[\w.~+/=-]{0,200}?\d)[\w.~+/=-]{20,}",  # HTTP
    r"(?<=://)[^\s/:@]{1,100}:[^\s/@]{1,200}(?=@)",  # user:password in an address
    # A private key in PEM, also one whose end was cut off; `\n` may be written as two characters.
    r"-----BEGIN [A-Z ]{0,30}PRIVATE KEY(?: BLOCK)?-----"
    r"(?:(?:\s|\\[nr])*+[A-Za-z-]{3,20}: [^\n\\]{0,100})*+"
    r"(?:(?:\s|\\[nr])*+[A-Za-z0-9+/=]{16,})++"
    r"(?:(?:\s|\\[nr])*+[A-Za-z0-9+/=]{1,15})?+"
    r"(?:(?:\s|\\[nr])*+-----END [A-Z ]{0,30}PRIVATE KEY(?: BLOCK)?-----)?",
)

# Every text that a shape fits holds one of these, so that most texts need no closer look.
_SIGNS = (
    "sk-", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "AKIA", "ASIA", "xox", "hf_", "AIza", "://",
    "-----BEGIN",
)  # fmt: skip
_SIGN_IN_ANY_CASE = "bearer "

_PASSWORD = re.compile(r"(?:^|://)[^\s/:@]*:([^\s/@]+)(?:@|$)")  # of USER:PASSWORD, alone or in an address


def secrets_of(settings: Settings) -> list[str]:
    """Every secret that is set among the settings, and the password alone of those that hold one in them."""
    values = [str(getattr(settings, f.name)) for f in dataclasses.fields(settings) if f.metadata["secret"]]
    passwords = [found[1] for value in values if (found := _PASSWORD.search(value))]
    return list(dict.fromkeys(filter(None, (*values, *passwords, *map(unquote, passwords)))))


_written = json.JSONEncoder(ensure_ascii=False).encode


def _forms(secret: str) -> tuple[str, ...]:
    """The secret as it may stand in a text: as it is, in an address, in JSON that was not parsed."""
    return secret, quote(secret, safe=""), _written(secret)[1:-1]


class Redactor:
    """Replaces secrets by `[masked]`. `secrets` are known values; shorter ones than 8 characters are left alone."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        known = {form for secret in secrets if len(secret) >= SHORTEST for form in _forms(secret)}
        longest_first = sorted(known, key=len, reverse=True)
        self._pattern = re.compile("|".join([*map(re.escape, longest_first), *_SHAPES]))
        self._signs = (*_SIGNS, *longest_first, *(_written(secret)[1:-1] for secret in longest_first))

    def mask(self, text: str) -> str:
        """The text without secrets; all else stays as it is."""
        return self._pattern.sub(MASK, text) if self._may_hold_one(text) else text

    def mask_json(self, value: Any) -> Any:
        """A JSON value with every text in it masked, keys too; the value itself where there is nothing to mask."""
        if not self._may_hold_one(_written(value)):  # one look at all the texts is far quicker than one at each
            return value
        return self._masked(value)

    def _may_hold_one(self, text: str) -> bool:
        return any(sign in text for sign in self._signs) or _SIGN_IN_ANY_CASE in text.lower()

    def _masked(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.mask(value)
        if isinstance(value, Mapping):
            return {self.mask(str(key)): self._masked(item) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [self._masked(item) for item in value]
        return value
