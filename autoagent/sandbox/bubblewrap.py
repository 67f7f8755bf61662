"""The sandbox by bubblewrap: separate namespaces of every kind, with only the things that a program needs.

A program sees the workspace, the system's programs, a few files of /etc, the Python interpreter, a /proc with itself
alone, and a private /tmp. The agent's own files in the workspace are covered.

Not covered: the gaps, and what docs/security.md names. As root, programs have no rights over files of other users.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from resource import RLIM_INFINITY, RLIMIT_CORE, RLIMIT_FSIZE, RLIMIT_NPROC, getrlimit

from autoagent.core.errors import CommandError, SetupError
from autoagent.sandbox import seccomp
from autoagent.sandbox.mounts import (
    NETWORK,
    SETTINGS,
    SYSTEM,
    is_beneath,
    python_places,
    search_path,
    shared_files,
    variables,
)
from autoagent.sandbox.process import HeldStart, Launch, ProcessLimits
from autoagent.workspace.gate import Workspace

_HOME, _IN_MEMORY = "/tmp", ("/tmp", "/dev/shm")  # noqa: S108 - each program has its own
_MOST_READ_ONLY = 64  # files with hard links outside; each takes a twentieth of a millisecond at each start
_IGNORED = f"{_HOME}/.config/git/ignore"  # a device in the place of a file is none that `git add --all` could add
_PAGE = 512  # bytes that an empty folder in memory may have


class Bubblewrap:
    """Satisfies process.Boundary. Raises SetupError if bubblewrap is missing."""

    name = "bubblewrap"
    confines = True
    holds_guarded = True

    def __init__(self, workspace: Workspace, limits: ProcessLimits, python: str) -> None:
        found = shutil.which("bwrap")
        if not found:
            raise SetupError("bubblewrap is not installed; get it with your package manager (apt install bubblewrap).")
        self._program = str(Path(found).resolve())
        self._cover = Cover(workspace)
        self._workspace = workspace
        self._shared = shared_files(workspace)
        # Of processes there is a limit for an ordinary user alone; the kernel lets root have any number.
        wanted = {RLIMIT_CORE: 0, RLIMIT_FSIZE: limits.file, RLIMIT_NPROC: limits.threads}
        most = {which: getrlimit(which)[1] for which in wanted}  # which this process is under itself
        self._own_limits = {
            which: limit if most[which] == RLIM_INFINITY else min(limit, most[which]) for which, limit in wanted.items()
        }
        self._root = str(workspace.root)
        uid, gid = os.getuid(), os.getgid()
        user, group = ("root" if id == 0 else "user" for id in (uid, gid))
        users = f"{user}:x:{uid}:{gid}::{_HOME}:/bin/sh\nnobody:x:65534:65534::/:/bin/false\n"
        ignored = "".join(f"/{place}\n" for place in sorted(workspace.protected))
        self._files = {
            "/etc/passwd": users, "/etc/group": f"{group}:x:{gid}:\nnogroup:x:65534:\n", _IGNORED: ignored
        }  # fmt: skip
        self._filter = seccomp.guard(sockets=True, groups=True) if seccomp.is_known() else b""
        self._mounts = [*_read_only(SYSTEM), "--proc", "/proc", "--dev", "/dev"]
        for place in _IN_MEMORY:
            self._mounts += ("--size", str(limits.memory // 2), "--tmpfs", place)
        # What sets the kernel up lies in /proc/sys, and root may write there without any capability.
        self._mounts += ("--remount-ro", "/proc", "--remount-ro", "/dev", "--symlink", "../tmp", "/var/tmp")  # noqa: S108
        self._mounts += _read_only((*SETTINGS, *python_places(python)))
        self.path: Sequence[str] = search_path(python)

    @property
    def gaps(self) -> tuple[str, ...]:
        """Its gaps, as in protocols.Sandbox."""
        no_filter = "System calls are not filtered: there is no filter for this kind of processor."
        links = self._shared.gaps(self._workspace.root, held=_MOST_READ_ONLY)
        return (*(() if self._filter else (no_filter,)), *self._cover.gaps(), *links)

    def launch(self, argv: Sequence[str], folder: Path, env: Mapping[str, str], *, network: bool) -> Launch:
        """Launch as Boundary does. bubblewrap's own environment is empty, as it can be read from inside."""
        setup = [*self._mounts, *(("--share-net", *_read_only(NETWORK)) if network else ())]
        setup += ["--bind", self._root, self._root, *self._cover.mounts(self._workspace.watch.read_only)]
        if self._shared.have_moved():
            self._shared = shared_files(self._workspace)
        for path in islice(self._shared.identities, _MOST_READ_ONLY):
            setup += ["--ro-bind", path, path]
        for name, value in variables(self.path, _HOME, env).items():
            setup += ["--setenv", name, value]
        given = []
        for place, content in self._files.items():
            given.append(_readable(content.encode()))
            setup += ["--file", str(given[-1]), place]
        if self._filter:
            given.append(_readable(self._filter))
            setup += ["--seccomp", str(given[-1])]
        held = HeldStart(self._own_limits)
        options = ["--unshare-all", "--die-with-parent", "--cap-drop", "ALL", "--chdir", str(folder)]
        command = [self._program, *options, *setup, "--remount-ro", "/", "--", *held.command(argv)]
        return Launch(command, {}, given, held, ending=signal.SIGKILL, folded=True)

    def close(self) -> None:
        """Remove the placeholders of files that are not there."""
        self._cover.close()


class Cover:
    """Hides the agent's own files in a workspace, including those in its folders that do not exist yet.

    The workspace's Watch takes away what programs put in the place of a missing one at the top, where a placeholder
    would be in the way of git. To mount over another, an empty file has to be put in its place, or in that of the first
    missing folder on the way. Each Cover that needs it holds a lock on it (a sub-agent has one of its own), and the
    last one removes it. If an agent was killed it stays. The next one recognises it by its time of change, the earliest
    possible.
    """

    def __init__(self, workspace: Workspace) -> None:
        self._root = workspace.root
        self._places = [self._root / place for place in sorted(workspace.protected)]
        self._placeholders: dict[Path, int] = {}  # with the descriptor that has the lock

    def mounts(self, read_only: Iterable[str] = ()) -> Iterator[str]:
        """Yield the options for bubblewrap. Folders that hold such a file, or a `read_only` one, cannot be renamed."""
        guarded = [self._root / place for place in read_only]
        held = (above for place in (*self._places, *guarded) for above in place.parents)
        for above in sorted({above for above in held if self._is_inside(above)}):
            if above.is_dir() and not above.is_symlink():
                yield from ("--bind", str(above), str(above))
        for place in guarded:
            if not place.is_symlink():
                yield from ("--ro-bind-try", str(place), str(place))
        for place in dict.fromkeys(map(self._reachable, self._places)):
            if place.is_symlink() or (place.parent == self._root and place in self._places and not place.exists()):
                continue
            if place.is_dir():
                yield from ("--size", str(_PAGE), "--tmpfs", str(place), "--remount-ro", str(place))
            else:
                self._hold(place)
                yield from ("--ro-bind", "/dev/null", str(place))  # a device, which cannot be opened in there

    def gaps(self) -> tuple[str, ...]:
        """Return the files that cannot be hidden."""
        links = [place for place in self._places if place.is_symlink()]
        return tuple(f"Programs can replace {link}: it is a symbolic link, which cannot be covered." for link in links)

    def close(self) -> None:
        """Take the placeholders away, as far as they are empty still and nobody else needs them."""
        for place, descriptor in self._placeholders.items():
            alone = True  # also where the file system has no locks
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                alone = not isinstance(error, BlockingIOError)
            with suppress(OSError):
                if alone and _is_placeholder(place):
                    place.unlink()
            os.close(descriptor)
        self._placeholders.clear()

    def _reachable(self, place: Path) -> Path:
        """Return the place itself, or the first on the way to it that is missing or no folder."""
        above = [folder for folder in reversed(place.parents) if self._is_inside(folder)]
        return next((folder for folder in above if not folder.is_dir()), place)

    def _is_inside(self, folder: Path) -> bool:
        return folder != self._root and folder.is_relative_to(self._root)

    def _hold(self, place: Path) -> None:
        """See to it that there is something to mount over. Raises CommandError."""
        try:
            with suppress(FileExistsError), place.open("xb") as file:
                os.utime(file.fileno(), (0, 0))
            if place not in self._placeholders and _is_placeholder(place):
                self._placeholders[place] = os.open(place, os.O_RDONLY)
                with suppress(OSError):  # a file system without locks, or another agent is just about to take it away
                    fcntl.flock(self._placeholders[place], fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError as error:
            raise CommandError(f"{place} cannot be kept out of reach of programs: {error.strerror}.") from error


def _is_placeholder(place: Path) -> bool:
    """Return whether a Cover has put it there, and nobody has written to it since."""
    try:
        status = place.lstat()
    except OSError:  # taken away meanwhile
        return False
    return stat.S_ISREG(status.st_mode) and (status.st_size, status.st_mtime) == (0, 0)


def _read_only(places: Sequence[str]) -> Iterator[str]:
    """Yield the options for those that exist. A link to what is shown too stays one: each mount takes time."""
    for place in map(Path, places):
        if place.is_symlink() and is_beneath(str(place.resolve()), (*SYSTEM, *places)):
            yield from ("--symlink", str(place.readlink()), str(place))
        else:
            yield from ("--ro-bind-try", str(place), str(place))


def _readable(content: bytes) -> int:
    """Return a descriptor to read the bytes from. A pipe takes them at once, as they are few."""
    read, write = os.pipe()
    os.write(write, content)
    os.close(write)
    return read
