"""The environment of the programs: built from nothing, so that no key of the agent's is in it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

_USUAL_PATH = ("/usr/local/bin", "/usr/bin", "/bin", "/usr/local/sbin", "/usr/sbin", "/sbin")


def search_path(python: str) -> tuple[str, ...]:
    """The folders in which programs are looked for; that of the Python interpreter comes first."""
    return tuple(dict.fromkeys((str(Path(python).parent), *_USUAL_PATH)))


def variables(path: Sequence[str], home: str, more: Mapping[str, str]) -> dict[str, str]:
    """What a program finds in its environment. `home` is its own, and for temporary files too."""
    return {
        "PATH": os.pathsep.join(path),
        "HOME": home,
        "TMPDIR": home,
        "LANG": "C.UTF-8",
        "TERM": "dumb",
        "PAGER": "cat",
        "GIT_TERMINAL_PROMPT": "0",
        "PYTHONUNBUFFERED": "1",  # or what was printed is lost where a limit ends the program, and the order too
        **more,
    }
