"""Mask secrets in everything stored or shown: known secrets by their value, others by their shape.

Arguments of commands and contents of files are never masked, only reports about them.

Not covered: encoded secrets (base64, hex), secrets split over several texts, unlisted shapes, and keys of up to three
plain words (see is_placeholder).

detect-secrets is not used: it scans files for a report, while every shown or stored text passes here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import quote, unquote

MASK = "[masked]"
MASK_NOTE = f"{MASK} stands for a secret that is shown nowhere; files and programs have it as it was written."

MIN_CHARACTERS = 8  # a shorter value would mask ordinary words
_MAX_WORD_LETTERS = 14  # a longer run may be random
_MAX_PLAIN_WORDS = 3  # more of them may be a passphrase
_PLACEHOLDER_WORDS = frozenset({
    "your", "my", "key", "keys", "token", "secret", "password", "pass", "api", "auth", "not", "none", "no", "required",
    "needed", "dummy", "fake", "sample", "example", "test", "placeholder", "change", "changeme", "insert", "replace",
    "here", "empty", "unused",
})  # fmt: skip

_UNMASKED = frozenset({"changed", "byproducts"})  # never masked in JSON: names of files, which the program acts on

# Between the lines of a private key: also as the lines of a diff, or quoted. `\n` may be written as two characters.
_BREAK = r"(?:(?:\s|\\[nr])++(?:[-+>](?!-{4}E))?)*+"

# Shapes that also fit ordinary hyphenated words require a digit.
_SHAPES = (
    r"(?<![A-Za-z0-9])sk-(?=[\w-]{0,200}?\d)[\w-]{20,}",  # OpenAI, and imitations of its form
    r"(?<![A-Za-z0-9])gh[pousr]_[A-Za-z0-9]{36,}",  # GitHub
    r"(?<![A-Za-z0-9])github_pat_[A-Za-z0-9_]{22,}",
    r"(?<![A-Za-z0-9])A(?:KIA|SIA)[A-Z0-9]{16}(?![A-Za-z0-9])",  # AWS
    r"(?<![A-Za-z0-9])xox[abeprs]-(?=[\w-]{0,200}?\d)[\w-]{10,}",  # Slack
    r"(?<![A-Za-z0-9])hf_[A-Za-z0-9]{30,}",  # Hugging Face
    r"(?<![A-Za-z0-9])AIza[\w-]{35}",  # Google
    r"(?i:(?<=bearer ))(?=[\w.~+/=-]{0,200}?\d)[\w.~+/=-]{20,}",  # HTTP
    r"(?<=://)(?P<user>[^\s/:@]{0,100}):(?P<password>[^\s/@]{1,200})(?=@)",  # in an address
    r"(?<=[?&])(?i:api[-_]?key|access[-_]?token|client[-_]?secret|passw(?:or)?d)=(?P<parameter>[^\s&#\"'<>\\]{8,200})",
    # A private key in PEM, even with its end cut off.
    r"-----BEGIN [A-Z ]{0,30}PRIVATE KEY(?: BLOCK)?-----"
    rf"(?:{_BREAK}[A-Za-z-]{{3,20}}: [^\n\\]{{0,100}})*+"
    rf"(?:{_BREAK}[A-Za-z0-9+/=]{{16,}})++"
    rf"(?:{_BREAK}[A-Za-z0-9+/=]{{1,15}})?+"
    rf"(?:{_BREAK}-----END [A-Z ]{{0,30}}PRIVATE KEY(?: BLOCK)?-----)?",
)

# Every text that fits a shape contains one of these, so most texts need no closer look.
_SIGNS = (
    "sk-", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "AKIA", "ASIA", "xox", "hf_", "AIza", "://",
    "-----BEGIN",
)  # fmt: skip
_SIGNS_IN_ANY_CASE = ("bearer ", "key=", "token=", "secret=", "passwd=", "password=")

_VARIABLE = re.compile(r"\$[A-Z_][A-Z0-9_]*|[$%]?\{+[\w.: -]*\}+|<[\w.: -]*>|%\(\w+\)s|%s")  # to be filled in


def is_placeholder(value: str) -> bool:
    """Return whether a value is a placeholder, not a secret: `lm-studio`, `EMPTY`, `your-api-key`, `xxxxxxxx`.

    Placeholders are short or consist of few plain words without a digit. More words need a telling word among them.
    """
    return len(value) < MIN_CHARACTERS or _is_made_of_placeholders(value)


def _is_made_of_placeholders(value: str) -> bool:
    """Return whether a value of any length consists of placeholder words."""
    words = re.findall(r"[^\W_]+", value)
    plain = all(_is_plain_word(word) for word in words)
    return plain and (
        len(words) <= _MAX_PLAIN_WORDS or not _PLACEHOLDER_WORDS.isdisjoint(word.lower() for word in words)
    )


def _is_plain_word(word: str) -> bool:
    """Return whether it looks like a word in a usual case, or repeats one character as `xxxx` does."""
    if len(word) > 3 and len(set(word)) == 1:
        return True
    return word.isalpha() and len(word) <= _MAX_WORD_LETTERS and (word.islower() or word.isupper() or word.istitle())


def holds_mask(value: Any) -> bool:
    """Return whether `[masked]` stands anywhere in a JSON value."""
    return MASK in _to_json(value)


_to_json = json.JSONEncoder(ensure_ascii=False).encode


class Redactor:
    """Replace secrets by `[masked]`. `secrets` are known values. Placeholders among them are ignored."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        values = [secret for secret in secrets if not is_placeholder(secret)]
        # Each as it is, in addresses, and in JSON strings.
        forms = {form for value in values for form in (value, quote(value, safe=""), _to_json(value)[1:-1])}
        longest_first = sorted(forms, key=len, reverse=True)
        self._pattern = re.compile("|".join([*map(re.escape, longest_first), *_SHAPES]))
        self._signs = (*_SIGNS, *longest_first, *(_to_json(secret)[1:-1] for secret in longest_first))

    def mask(self, text: str) -> str:
        return self._pattern.sub(_mask_of, text) if self._may_contain_secret(text) else text

    def mask_json(self, value: Any) -> Any:
        """Mask every text in a JSON value, including keys. Return the same object if nothing changes.

        Names of changed files are kept.
        """
        # One search over all texts is far quicker than one for each.
        return self._masked(value) if self._may_contain_secret(_to_json(value)) else value

    def _may_contain_secret(self, text: str) -> bool:
        if any(sign in text for sign in self._signs):
            return True
        lowered = text.lower()
        return any(sign in lowered for sign in _SIGNS_IN_ANY_CASE)

    def _masked(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.mask(value)
        if isinstance(value, Mapping):
            return {
                self.mask(str(key)): item if key in _UNMASKED else self._masked(item) for key, item in value.items()
            }
        if isinstance(value, (list, tuple)):
            return [self._masked(item) for item in value]
        return value


def _mask_of(found: re.Match[str]) -> str:
    if found["password"]:
        return found[0] if _is_placeholder_password(found["user"], unquote(found["password"])) else MASK
    return found[0] if found["parameter"] and _is_made_of_placeholders(unquote(found["parameter"])) else MASK


def _is_placeholder_password(user: str, password: str) -> bool:
    """Return whether the password in an address is a placeholder: `postgres:postgres`, `me:${DB_PASSWORD}`.

    Stricter than for a key: a password that a person chose is often a word or two.
    """
    words = re.findall(r"[^\W_]+", password.lower())
    if password == user or len(set("".join(words) or password)) == 1:  # the second: `xxxx`, `***`
        return True
    return bool(_VARIABLE.fullmatch(password) or (words and _PLACEHOLDER_WORDS.issuperset(words)))
