"""The files that a text names, such as a goal: `notes/a.txt`, neither a part of an address nor of a longer name."""

from __future__ import annotations

import re

FILE = (
    r"(?<![\w:/@.-])[\w-][\w./-]*"
    r"\.(?:py|txt|md|csv|json|yaml|yml|html|css|js|ts|sh|toml|xml|sql)(?![\w/-]|\.\w)"
)
_FILE = re.compile(FILE)


def named_files(text: str) -> tuple[str, ...]:
    """Return the files that the text names, each once, in its order."""
    return tuple(dict.fromkeys(_FILE.findall(text)))
