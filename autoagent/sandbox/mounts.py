"""The parts of the machine that a program sees, and its environment: built from nothing, so without keys of ours.

So is what a program must not write to: files of a workspace that have hard links elsewhere. They are looked for when a
sandbox is opened, since none can be made from inside it. Not covered: links that the user makes while it is open, and
files beyond those looked at.
"""

from __future__ import annotations

import functools
import os
import stat
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from autoagent.core.errors import SetupError
from autoagent.workspace.gate import Workspace, shown

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


# Hard links ---------------------------------------------------------------------------------------------------------

MOST_LOOKED_AT = 50_000  # files and folders; half a second
_MOST_NAMED = 3

_Identity = tuple[int, int]  # of a file system, and of a file in it


@dataclass(frozen=True, slots=True)
class SharedFiles:
    """The files with links outside, by their path. `whole`: the workspace was looked through to its end."""

    identities: Mapping[str, _Identity]
    whole: bool

    def have_moved(self) -> bool:
        """Return whether one of them has moved: a program can rename its folder, or put a link there."""
        folders = {os.path.dirname(path) for path in self.identities}  # noqa: PTH120 - at the start of each program
        return any(os.path.realpath(folder) != folder for folder in folders) or any(
            _identity(path) != identity for path, identity in self.identities.items()
        )

    def gaps(self, root: Path, held: int = 0) -> tuple[str, ...]:
        """Return the gaps to report, given that the first `held` of them are read-only."""
        paths = [os.path.relpath(path, root) for path in self.identities][held:]
        more = f" and {len(paths) - _MOST_NAMED:,} more" if len(paths) > _MOST_NAMED else ""
        named = ", ".join(map(shown, paths[:_MOST_NAMED])) + more
        through = f"Programs can write to files outside the workspace through their hard links in it: {named}."
        unseen = (
            f"Only the first {MOST_LOOKED_AT:,} files of the workspace were searched for hard links to files outside, "
            "which programs could write through."
        )
        return (*((through,) if paths else ()), *(() if self.whole else (unseen,)))


def shared_files(workspace: Workspace) -> SharedFiles:
    """Return the regular files with hard links outside the workspace, without those protected there."""
    links: dict[_Identity, list[str]] = {}
    counts: dict[_Identity, int] = {}
    looked_at = 0
    for entry in _beneath(workspace):
        looked_at += 1
        if looked_at > MOST_LOOKED_AT:
            break
        with suppress(OSError):  # gone meanwhile
            status = entry.stat(follow_symlinks=False)
            if status.st_nlink > 1 and stat.S_ISREG(status.st_mode):
                identity = (status.st_dev, status.st_ino)
                counts[identity] = status.st_nlink
                links.setdefault(identity, []).append(entry.path)
    shared = {path: identity for identity, paths in links.items() if len(paths) < counts[identity] for path in paths}
    return SharedFiles(dict(sorted(shared.items())), looked_at <= MOST_LOOKED_AT)


def _beneath(workspace: Workspace) -> Iterator[os.DirEntry[str]]:
    for folder in (folders := [str(workspace.root)]):  # grows while it is walked
        with suppress(OSError), os.scandir(folder) as entries:  # one that is not to be read, or gone meanwhile
            for entry in entries:
                if not workspace.protected or not workspace.is_protected(os.path.relpath(entry.path, folders[0])):
                    yield entry
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.path)


def _identity(path: str) -> _Identity | None:
    try:
        status = os.lstat(path)
    except OSError:
        return None
    return (status.st_dev, status.st_ino)
