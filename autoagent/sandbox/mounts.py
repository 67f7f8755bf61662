"""Build a program's view of the machine and its environment from scratch, so that neither holds the agent's keys.

Also find the files that a program must not write to: files of a workspace with hard links elsewhere. They are searched
for when a sandbox is opened, since none can be made from inside it. Not covered: links that the user makes while it is
open, and files beyond the search limit.
"""

from __future__ import annotations

import os
import re
import stat
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path

from autoagent.core.errors import SettingsError, SetupError
from autoagent.core.frozen import dataclass
from autoagent.text.text_file import is_inside, read_text
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

# Not the whole prefix if it holds more: it may be a project, a home, or hold a pip.conf with credentials.
_VENV_PARTS = ("bin", "lib", "lib64", "pyvenv.cfg")
_PYTHON_PARTS = ("bin", "include", "lib", "lib64")
_HARMLESS = frozenset({*_VENV_PARTS, *_PYTHON_PARTS, "share", ".gitignore", ".lock", "CACHEDIR.TAG"})


def python_paths(python: str) -> tuple[str, ...]:
    """Return the places of a Python interpreter outside the system's own. Raises SetupError.

    The interpreter is not run to find them: an agent that may change it could run code outside the sandbox.
    """
    prefix, base = (sys.prefix, sys.base_prefix) if python == sys.executable else _prefixes(python)
    parts = {prefix: _VENV_PARTS, base: _PYTHON_PARTS, str(Path(base).resolve()): _PYTHON_PARTS}
    outside = {place: names for place, names in parts.items() if not is_beneath(place, SYSTEM)}
    # An agent may replace a part with a link to elsewhere.
    places = (path for place, names in outside.items() for path in _parts(place, names) if is_inside(Path(place), path))
    return tuple(str(path) for path in places if not is_beneath(str(path), SYSTEM) and path.exists())


def _parts(prefix: str, names: Sequence[str]) -> Sequence[Path]:
    """Return the prefix if it holds only harmless names, as each place delays every start, or else its parts."""
    try:
        if _HARMLESS.issuperset(path.name for path in Path(prefix).iterdir()):
            return (Path(prefix),)
    except OSError:  # missing, or not listable
        pass
    return [Path(prefix, name) for name in names]


def is_beneath(place: str, places: Sequence[str]) -> bool:
    """Return whether a path is one of the places or inside one."""
    return any(Path(place).is_relative_to(other) for other in places)


def _prefixes(python: str) -> tuple[str, str]:
    prefix = Path(python).absolute().parent.parent
    try:
        home = re.search(r"^home *= *(.+)$", read_text(prefix / "pyvenv.cfg"), re.MULTILINE)
    except SettingsError:  # not a virtual environment
        home = None
    base = Path(home[1]).parent if home else Path(python).resolve().parent.parent
    if not os.access(python, os.X_OK) or not any(base.glob("lib*/python3*/os.py")):  # an agent may name any folder
        raise SetupError(f"{python} is not a working Python interpreter.")
    return str(prefix if home else base), str(base)


def search_path(python: str) -> tuple[str, ...]:
    """Return the search path for programs, with the Python interpreter's folder first."""
    return tuple(dict.fromkeys((str(Path(python).parent), *_USUAL_PATH)))


def environment(path: Sequence[str], home: str, extra: Mapping[str, str]) -> dict[str, str]:
    """Return a program's environment, with `extra` variables. Its folder `home` also holds its temporary files."""
    return {
        "PATH": os.pathsep.join(path),
        "HOME": home,
        "TMPDIR": home,
        "LANG": "C.UTF-8",
        "TERM": "dumb",
        "PAGER": "cat",
        "GIT_TERMINAL_PROMPT": "0",
        "PYTHONUNBUFFERED": "1",  # otherwise output is lost or reordered when a limit ends the program
        **extra,
    }


# Hard links ---------------------------------------------------------------------------------------------------------

MAX_SEARCHED_ENTRIES = 50_000  # files and folders, searched in half a second
_MAX_NAMED_FILES = 3  # in the description of a gap

_Identity = tuple[int, int]  # device and inode


@dataclass(frozen=True, slots=True)
class SharedFiles:
    """The files of a workspace with links outside, by path. `whole` is whether the entire workspace was searched."""

    identities: Mapping[str, _Identity]
    whole: bool

    def have_moved(self) -> bool:
        """Return whether any of the files has moved, as a program can rename or replace its folder."""
        folders = {os.path.dirname(path) for path in self.identities}  # noqa: PTH120 - at the start of each program
        return any(os.path.realpath(folder) != folder for folder in folders) or any(
            _identity(path) != identity for path, identity in self.identities.items()
        )

    def gaps(self, root: Path, read_only: int = 0) -> tuple[str, ...]:
        """Return the gaps to report, given that the first `read_only` files cannot be written."""
        paths = [os.path.relpath(path, root) for path in self.identities][read_only:]
        suffix = f" and {len(paths) - _MAX_NAMED_FILES:,} more" if len(paths) > _MAX_NAMED_FILES else ""
        names = ", ".join(map(shown, paths[:_MAX_NAMED_FILES])) + suffix
        hard_links = f"Programs can write to files outside the workspace through their hard links in it: {names}."
        search_limit = (
            f"Only the first {MAX_SEARCHED_ENTRIES:,} files of the workspace were searched for hard links to files "
            "outside, which programs could write through."
        )
        return (*((hard_links,) if paths else ()), *(() if self.whole else (search_limit,)))


def shared_files(workspace: Workspace) -> SharedFiles:
    """Return the unprotected regular files with hard links outside the workspace."""
    links: dict[_Identity, list[str]] = {}
    counts: dict[_Identity, int] = {}
    entries = _walk(workspace)
    for entry in islice(entries, MAX_SEARCHED_ENTRIES):
        with suppress(OSError):  # deleted meanwhile
            status = entry.stat(follow_symlinks=False)
            if status.st_nlink > 1 and stat.S_ISREG(status.st_mode):
                identity = (status.st_dev, status.st_ino)
                counts[identity] = status.st_nlink
                links.setdefault(identity, []).append(entry.path)
    shared = {path: identity for identity, paths in links.items() if len(paths) < counts[identity] for path in paths}
    return SharedFiles(dict(sorted(shared.items())), whole=next(entries, None) is None)


def _walk(workspace: Workspace) -> Iterator[os.DirEntry[str]]:
    prefix = f"{str(workspace.root).rstrip('/')}/"
    for folder in (folders := [str(workspace.root)]):  # grows during the loop
        with suppress(OSError), os.scandir(folder) as entries:  # unreadable, or deleted meanwhile
            for entry in entries:
                if not workspace.protected or not workspace.is_protected(entry.path.removeprefix(prefix)):
                    yield entry
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.path)


def _identity(path: str) -> _Identity | None:
    try:
        status = os.lstat(path)
    except OSError:
        return None
    return (status.st_dev, status.st_ino)
