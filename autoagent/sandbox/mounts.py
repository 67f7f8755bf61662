"""The parts of the machine that a program sees, and its environment: built from nothing, so without keys of ours."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from autoagent.core.errors import SetupError

SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store")
SETTINGS = tuple(f"/etc/{name}" for name in ("alternatives", "fonts", "ld.so.cache", "localtime"))
USERS = ("/etc/group", "/etc/passwd")
NETWORK = tuple(
    f"/etc/{name}"
    for name in (
        *("ca-certificates", "gai.conf", "hosts", "nsswitch.conf", "pki", "resolv.conf", "services"),
        *("ssl/certs", "ssl/openssl.cnf"),
    )
)
DEVICES = tuple(f"/dev/{name}" for name in ("null", "zero", "full", "random", "urandom"))
_USUAL_PATH = ("/usr/local/bin", "/usr/bin", "/bin", "/usr/local/sbin", "/usr/sbin", "/sbin")

# Not the whole of a prefix where there is more in it: that may be a project or a home, or a pip.conf with credentials.
_OF_VENV = ("bin", "lib", "lib64", "pyvenv.cfg")
_OF_PYTHON = ("bin", "include", "lib", "lib64")
_HARMLESS = frozenset({*_OF_VENV, *_OF_PYTHON, "share", ".gitignore", ".lock", "CACHEDIR.TAG"})


def python_places(python: str) -> tuple[str, ...]:
    """Return the places of a Python interpreter outside the system's own. Raises SetupError."""
    prefix, base = (sys.prefix, sys.base_prefix) if python == sys.executable else _prefixes(python)
    parts = {prefix: _OF_VENV, base: _OF_PYTHON, str(Path(base).resolve()): _OF_PYTHON}
    outside = {place: names for place, names in parts.items() if not is_beneath(place, SYSTEM)}
    places = (path for place, names in outside.items() for path in _shown(place, names))
    return tuple(place for place in places if not is_beneath(place, SYSTEM) and Path(place).exists())


def _shown(prefix: str, parts: Sequence[str]) -> Sequence[str]:
    """Return a prefix as a whole if nothing else is in it, as each place takes time at each start; else its parts."""
    try:
        if _HARMLESS.issuperset(path.name for path in Path(prefix).iterdir()):
            return (prefix,)
    except OSError:  # not there, or not to be listed
        pass
    return [f"{prefix}/{part}" for part in parts]


def is_beneath(place: str, places: Sequence[str]) -> bool:
    """Return whether a path is one of the places or lies in one."""
    return any(Path(place).is_relative_to(other) for other in places)


@functools.cache
def _prefixes(python: str) -> tuple[str, str]:
    """Return the prefixes of another interpreter, asked once. Raises SetupError."""
    code = "import sys; print(sys.prefix); print(sys.base_prefix)"
    try:
        done = subprocess.run(  # noqa: S603 - the user's own choice of an interpreter
            [python, "-I", "-c", code], env={}, capture_output=True, text=True, timeout=30, check=True
        )
        prefix, base = done.stdout.splitlines()
    except (OSError, subprocess.SubprocessError, ValueError) as error:  # ValueError: it printed something else
        reason = f": {error.strerror}" if isinstance(error, OSError) else ""
        raise SetupError(f"{python} is no Python interpreter that works here{reason}.") from error
    return prefix, base


def search_path(python: str) -> tuple[str, ...]:
    """Return the folders in which programs are looked for. That of the Python interpreter comes first."""
    return tuple(dict.fromkeys((str(Path(python).parent), *_USUAL_PATH)))


def variables(path: Sequence[str], home: str, more: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a program. `home` is its own, and for temporary files too."""
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
