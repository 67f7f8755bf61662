"""Masking of secrets in whatever is stored or shown: the known ones by value, others by their shape.

Not covered: a secret that is encoded (base64, hex), split over several texts, or of a shape that is not listed here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import quote

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


class Redactor:
    """Replaces secrets by `[masked]`. `secrets` are known values; shorter ones than 8 characters are left alone."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        known = {form for secret in secrets if len(secret) >= SHORTEST for form in (secret, quote(secret, safe=""))}
        longest_first = sorted(known, key=len, reverse=True)
        self._pattern = re.compile("|".join([*map(re.escape, longest_first), *_SHAPES]))

    def mask(self, text: str) -> str:
        """The text without secrets; all else stays as it is."""
        return self._pattern.sub(MASK, text)

    def mask_json(self, value: Any) -> Any:
        """A JSON value with every text in it masked, keys too; tuples become lists."""
        if isinstance(value, str):
            return self.mask(value)
        if isinstance(value, Mapping):
            return {self.mask(str(key)): self.mask_json(item) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.mask_json(item) for item in value]
        return value
