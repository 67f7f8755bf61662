"""Confine programs with bubblewrap: in namespaces of every kind, with only the necessary parts of the machine.

A program sees the workspace, the system's programs, a few files of /etc, the Python interpreter, a /proc of its own,
and a private /tmp. The agent's own files in the workspace are covered. Not covered: `gaps`, and the limits that
docs/security.md lists. Even as root, programs have no rights over other users' files.
"""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from resource import RLIM_INFINITY, RLIMIT_CORE, RLIMIT_FSIZE, RLIMIT_NPROC, getrlimit

from autoagent.core.errors import SetupError
from autoagent.sandbox import mounts
from autoagent.sandbox.confinement import call_filter, has_call_filter
from autoagent.sandbox.process import GATED_SHELL, Launch, ProcessLimits, StartGate
from autoagent.text.text_file import is_inside
from autoagent.workspace.gate import Workspace

_HOME = "/tmp"  # noqa: S108 - each program has its own
_MEMORY_FOLDERS = ("/tmp", "/dev/shm")  # noqa: S108
_MAX_READ_ONLY_FILES = 64  # files with hard links outside; each delays every start by 0.05 ms
# Make `git add --all` skip the agent's own files, and keep the index's version of those already tracked.
_GIT = f"{_HOME}/.config/git"
_FILTER = """[filter "autoagent"]
	clean = "if [ -w %f ]; then cat; else git cat-file blob :%f; fi"
	smudge = cat
	required = true
"""
_EMPTY_FOLDER_BYTES = 512  # in memory


class Bubblewrap:
    """Confine programs with namespaces. Satisfies process.Boundary. Raises SetupError if bubblewrap is missing."""

    name = "bubblewrap"
    confines = True
    holds_guarded = True

    def __init__(self, workspace: Workspace, limits: ProcessLimits, python: str) -> None:
        program = shutil.which("bwrap")
        if not program:
            raise SetupError("bubblewrap is not installed; get it with your package manager (apt install bubblewrap).")
        self._program = str(Path(program).resolve())
        self._workspace = workspace
        self._hidden = [workspace.root / place for place in sorted(workspace.protected)]
        self._shared = mounts.shared_files(workspace)
        # The kernel limits the number of processes only for ordinary users, not for root.
        limits_by_id = {RLIMIT_CORE: 0, RLIMIT_FSIZE: limits.file_bytes, RLIMIT_NPROC: limits.threads}
        hard_limits = {id: getrlimit(id)[1] for id in limits_by_id}  # those of this process itself
        self._resource_limits = {
            id: limit if hard_limits[id] == RLIM_INFINITY else min(limit, hard_limits[id])
            for id, limit in limits_by_id.items()
        }
        uid, gid = os.getuid(), os.getgid()
        user, group = ("root" if id == 0 else "user" for id in (uid, gid))
        users = f"{user}:x:{uid}:{gid}::{_HOME}:/bin/sh\nnobody:x:65534:65534::/:/bin/false\n"
        hidden_paths = [f"/{place}" for place in sorted(workspace.protected)]
        self._files = {
            "/etc/passwd": users,
            "/etc/group": f"{group}:x:{gid}:\nnogroup:x:65534:\n",
            f"{_GIT}/ignore": "".join(f"{place}\n" for place in hidden_paths),
            f"{_GIT}/attributes": "".join(f"{place} filter=autoagent\n" for place in hidden_paths),
            f"{_GIT}/config": _FILTER,
        }
        self._filter = call_filter(sockets=True, groups=True) if has_call_filter() else b""
        self._mounts = [*_read_only_options(mounts.SYSTEM), "--proc", "/proc", "--dev", "/dev"]
        for place in _MEMORY_FOLDERS:
            self._mounts += ("--size", str(limits.memory_bytes // 2), "--tmpfs", place)
        # /proc/sys configures the kernel, and root may write there without any capability.
        self._mounts += ("--remount-ro", "/proc", "--remount-ro", "/dev", "--symlink", "../tmp", "/var/tmp")  # noqa: S108
        self._mounts += _read_only_options((*mounts.SETTINGS, *mounts.python_paths(python)), workspace.root)
        self.path: Sequence[str] = mounts.search_path(python)

    @property
    def gaps(self) -> tuple[str, ...]:
        no_filter = "System calls are not filtered: there is no filter for this kind of processor."
        links = [place for place in self._hidden if place.is_symlink()]
        return (
            *(() if self._filter else (no_filter,)),
            *(f"Programs can replace {link}: it is a symbolic link, which cannot be covered." for link in links),
            *self._shared.gaps(self._workspace.root, read_only=_MAX_READ_ONLY_FILES),
        )

    def launch(
        self, argv: Sequence[str], folder: Path, env: Mapping[str, str], *, network: bool, read_only: bool
    ) -> Launch:
        """Launch as Boundary does. bubblewrap's own environment is empty, since programs can read it."""
        setup = [*self._mounts, *(("--share-net", *_read_only_options(mounts.NETWORK)) if network else ())]
        descriptors: list[int] = []
        root = str(self._workspace.root)
        setup += ["--ro-bind" if read_only else "--bind", root, root, *self._hiding_options(descriptors)]
        if self._shared.have_moved():
            self._shared = mounts.shared_files(self._workspace)
        for path in islice(self._shared.identities, _MAX_READ_ONLY_FILES):
            setup += ["--ro-bind", path, path]
        for name, value in mounts.environment(self.path, _HOME, env).items():
            setup += ["--setenv", name, value]
        for place, content in self._files.items():
            descriptors.append(_pipe_holding(content.encode()))
            setup += ["--file", str(descriptors[-1]), place]
        if self._filter:
            descriptors.append(_pipe_holding(self._filter))
            setup += ["--seccomp", str(descriptors[-1])]
        options = ["--unshare-all", "--die-with-parent", "--cap-drop", "ALL", "--chdir", str(folder)]
        command = [self._program, *options, *setup, "--remount-ro", "/", "--", *GATED_SHELL, *argv]
        start_gate = StartGate(self._resource_limits)
        return Launch(command, {}, descriptors, start_gate, end_signal=signal.SIGKILL, shell_status=True)

    def close(self) -> None:
        """Leave nothing behind."""

    def _hiding_options(self, descriptors: list[int]) -> Iterator[str]:
        """Yield the options that hide the agent's own files. Add the descriptors they use to `descriptors`.

        Folders that contain such a file, or a read-only one, cannot be renamed. If a file is missing, GuardedFiles
        removes anything put in its place, as a placeholder to mount over would confuse git and the user.
        """
        root = self._workspace.root
        guarded = [root / place for place in self._workspace.guarded_files.read_only]
        parents = {parent for place in (*self._hidden, *guarded) for parent in place.parents}
        for parent in sorted(parent for parent in parents if parent != root and parent.is_relative_to(root)):
            if parent.is_dir() and not parent.is_symlink():
                yield from ("--bind", str(parent), str(parent))
        for place in guarded:
            if not place.is_symlink():
                yield from ("--ro-bind-try", str(place), str(place))
        for place in self._hidden:
            if place.is_symlink():
                continue
            if place.is_dir():
                yield from ("--size", str(_EMPTY_FOLDER_BYTES), "--tmpfs", str(place), "--remount-ro", str(place))
            elif place.exists():
                # Empty, so that the user's git reads the file instead of trusting its size.
                descriptors.append(_pipe_holding(b""))
                yield from ("--ro-bind-data", str(descriptors[-1]), str(place))


def _read_only_options(places: Sequence[str], root: Path | None = None) -> Iterator[str]:
    """Yield the options for existing paths. A link to a visible path stays a link, as each mount takes time.

    A link into the workspace `root` stays one too, since a program may put a link to elsewhere in place of its target.
    """
    for place in map(Path, places):
        if place.is_symlink() and mounts.is_beneath(str(place.resolve()), (*mounts.SYSTEM, *places)):
            yield from ("--symlink", str(place.readlink()), str(place))
        elif root and is_inside(root, place):
            yield from ("--symlink", str(place.resolve()), str(place)) if not place.is_relative_to(root) else ()
        else:
            yield from ("--ro-bind-try", str(place), str(place))


def _pipe_holding(content: bytes) -> int:
    """Return a descriptor for reading the bytes. They are few enough to fit into a pipe."""
    read_end, write_end = os.pipe()
    os.write(write_end, content)
    os.close(write_end)
    return read_end
