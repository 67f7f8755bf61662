"""The files that a text names, such as a goal, and the endings of names.

`notes/a.txt` is a file, neither a part of an address nor of a longer name; `.tmp` and `*.tmp` are endings.
"""

from __future__ import annotations

import re

FILE = (
    r"(?<![\w:/@.-])[\w-][\w./-]*"
    r"\.(?:py|txt|md|csv|json|yaml|yml|html|css|js|ts|sh|toml|xml|sql)(?![\w/-]|\.\w)"
)
_FILE = re.compile(FILE)
_ENDING = re.compile(r"(?<![\w/.)\]])\*?(\.[A-Za-z]\w{0,9})(?![\w/(]|\.\w)")


def named_files(text: str) -> tuple[str, ...]:
    """Return the files that the text names, each once, in its order."""
    return tuple(dict.fromkeys(_FILE.findall(text)))


def named_endings(text: str) -> tuple[str, ...]:
    """Return the endings of names that the text speaks of, each once, in its order."""
    return tuple(dict.fromkeys(_ENDING.findall(text)))
