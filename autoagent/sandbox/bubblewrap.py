"""The kind that rests on bubblewrap: namespaces of its own for everything, and in them only what a program needs.

A program sees the workspace, the system's programs, a few files of /etc, the Python interpreter, a /proc with itself
alone, and a private /tmp. The agent's own files in the workspace are covered.

Not covered: a hard link in the workspace to a file elsewhere that was there before is written through (none can be
made from inside); bugs of the kernel; full disks, since only the size of a single file is limited; System V shared
memory that is not attached counts for nothing; a program whose start an agent killed with SIGKILL is just about may
stay, if bubblewrap has not yet tied the two together. As root, programs have no rights over files of other users.
"""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from autoagent.errors import CommandError, SetupError
from autoagent.sandbox import seccomp
from autoagent.sandbox.environment import search_path, variables
from autoagent.sandbox.limits import Limits
from autoagent.sandbox.places import NETWORK, SETTINGS, SYSTEM, is_beneath, python_places
from autoagent.sandbox.program import Launch
from autoagent.workspace import Workspace

_HOME, _IN_MEMORY = "/tmp", ("/tmp", "/dev/shm")  # noqa: S108 - each program has its own
_BLOCK = 512  # bytes; the unit of `ulimit -f`

# The first process inside. It takes limits on that bubblewrap cannot set (of processes, which root is exempt from, in
# the two ways that shells name it) and adopts orphans. Its own words, such as that the program was killed, are not the
# program's output.
_FIRST = """
exec 9>&2 2>/dev/null
ulimit -c 0; ulimit -f "$1"; ulimit -u "$2" || ulimit -p "$2"
shift 2
(exec "$@" 2>&9 9>&-)
exit $?
"""


class Bubblewrap:
    """Satisfies program.Boundary. Raises SetupError where bubblewrap is not there."""

    name = "bubblewrap"

    def __init__(self, workspace: Workspace, limits: Limits, python: str) -> None:
        found = shutil.which("bwrap")
        if not found:
            raise SetupError("bubblewrap is not installed; get it with your package manager (apt install bubblewrap).")
        self._program = str(Path(found).resolve())
        self._cover = Cover(workspace)
        self._limits = limits
        self._root = str(workspace.root)
        self._files = {"/etc/passwd": _passwd(), "/etc/group": _group()}
        self._filter = seccomp.guard(sockets=True, groups=True) if seccomp.is_known() else b""
        self._world = [*_read_only(SYSTEM), *_own_mounts(limits.memory // 2)]
        self._world += _read_only((*SETTINGS, *python_places(python)))
        self.path: Sequence[str] = search_path(python)

    @property
    def gaps(self) -> tuple[str, ...]:
        """As protocols.Sandbox."""
        no_filter = "System calls are not filtered: there is no filter for this kind of processor."
        return (*(() if self._filter else (no_filter,)), *self._cover.gaps())

    def launch(self, argv: Sequence[str], folder: Path, env: Mapping[str, str], *, network: bool) -> Launch:
        """As Boundary. bubblewrap's own environment is empty: what is in it can be read from inside."""
        world = [*self._world, *(("--share-net", *_read_only(NETWORK)) if network else ())]
        world += ["--bind", self._root, self._root, *self._cover.mounts()]
        for name, value in variables(self.path, _HOME, env).items():
            world += ["--setenv", name, value]
        given = []
        for place, content in self._files.items():
            given.append(_readable(content))
            world += ["--file", str(given[-1]), place]
        if self._filter:
            given.append(_readable(self._filter))
            world += ["--seccomp", str(given[-1])]
        options = ["--unshare-all", "--as-pid-1", "--die-with-parent", "--cap-drop", "ALL", "--chdir", str(folder)]
        limits = [str(self._limits.file // _BLOCK), str(self._limits.threads)]
        first = ["/bin/sh", "-c", _FIRST, "sh", *limits]
        command = [self._program, *options, *world, "--remount-ro", "/", "--", *first, *argv]
        return Launch(command, {}, given, ending=signal.SIGKILL, folded=True)

    def close(self) -> None:
        """Remove the placeholders of files that are not there."""
        self._cover.close()


class Cover:
    """Hides the agent's own files in a workspace, also those that are not there yet.

    To mount over what is not there, an empty file has to be put in its place, or in that of the first folder missing on
    the way; it is taken away in the end. It stays where the agent is killed. Another agent in the same workspace that
    ends uncovers what it had put there, for the programs that run at that time.
    """

    def __init__(self, workspace: Workspace) -> None:
        self._root = workspace.root
        self._places = [self._root / place for place in sorted(workspace.protected)]
        self._placeholders: list[Path] = []

    def mounts(self) -> Iterator[str]:
        """The options for bubblewrap. What holds such a file cannot be renamed: it is a mount of its own."""
        for above in sorted({above for place in self._places for above in place.parents if self._is_inside(above)}):
            if above.is_dir() and not above.is_symlink():
                yield from ("--bind", str(above), str(above))
        for place in dict.fromkeys(map(self._reachable, self._places)):
            if place.is_symlink():
                continue
            if place.is_dir():
                yield from ("--size", str(_BLOCK), "--tmpfs", str(place), "--remount-ro", str(place))
            else:
                self._hold(place)
                yield from ("--ro-bind", "/dev/null", str(place))  # a device, which cannot be opened in there

    def gaps(self) -> tuple[str, ...]:
        """What cannot be hidden."""
        links = [place for place in self._places if place.is_symlink()]
        return tuple(f"Programs can replace {link}: it is a symbolic link, which cannot be covered." for link in links)

    def close(self) -> None:
        """Take the placeholders away, as far as they are empty still."""
        for place in self._placeholders:
            with suppress(OSError):
                if place.stat().st_size == 0:
                    place.unlink()
        self._placeholders.clear()

    def _reachable(self, place: Path) -> Path:
        """The place itself, or the first on the way to it that is not there or no folder."""
        above = [folder for folder in reversed(place.parents) if self._is_inside(folder)]
        return next((folder for folder in above if not folder.is_dir()), place)

    def _is_inside(self, folder: Path) -> bool:
        return folder != self._root and folder.is_relative_to(self._root)

    def _hold(self, place: Path) -> None:
        """See to it that there is something to mount over. Raises CommandError."""
        try:
            with place.open("xb"):
                self._placeholders.append(place)
        except FileExistsError:
            pass
        except OSError as error:
            raise CommandError(f"{place} cannot be kept out of reach of programs: {error.strerror}.") from error


def _read_only(places: Sequence[str]) -> Iterator[str]:
    """What there is of these places. A link stays one where what it leads to is shown too: each mount takes time."""
    for place in map(Path, places):
        if place.is_symlink() and is_beneath(str(place.resolve()), (*SYSTEM, *places)):
            yield from ("--symlink", str(place.readlink()), str(place))
        else:
            yield from ("--ro-bind-try", str(place), str(place))


def _passwd() -> bytes:
    """The user, and the one that stands for all others."""
    uid, gid = os.getuid(), os.getgid()
    name = "root" if uid == 0 else "user"
    return f"{name}:x:{uid}:{gid}::{_HOME}:/bin/sh\nnobody:x:65534:65534::/:/bin/false\n".encode()


def _group() -> bytes:
    gid = os.getgid()
    name = "root" if gid == 0 else "user"
    return f"{name}:x:{gid}:\nnogroup:x:65534:\n".encode()


def _own_mounts(size: int) -> Iterator[str]:
    """/proc, /dev, /tmp and /dev/shm, the last two of `size` bytes at most: they are memory."""
    yield from ("--proc", "/proc", "--dev", "/dev")
    for place in _IN_MEMORY:
        yield from ("--size", str(size), "--tmpfs", place)
    # What sets the kernel up lies in /proc/sys, and root may write there without any capability.
    yield from ("--remount-ro", "/proc", "--remount-ro", "/dev", "--symlink", "../tmp", "/var/tmp")  # noqa: S108


def _readable(content: bytes) -> int:
    """A descriptor to read the bytes from; a pipe takes them at once, as they are few."""
    read, write = os.pipe()
    os.write(write, content)
    os.close(write)
    return read
