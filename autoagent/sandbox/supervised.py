"""Confine programs without usable namespaces, by the supervisor and Landlock, or not at all.

Under Landlock, seccomp and the loss of all capabilities, a program can read the system's programs, a few files of /etc
and the Python interpreter, and write to the workspace and a temporary folder. Not covered: see the `gaps` of each.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from autoagent.core.errors import SetupError
from autoagent.sandbox import mounts, supervisor
from autoagent.sandbox.confinement import ABI_OF_SIGNALS, OLDEST_ABI, has_call_filter, landlock_abi
from autoagent.sandbox.process import Launch, ProcessLimits
from autoagent.text.text_file import is_inside
from autoagent.workspace.gate import Workspace

_GIT_SETTINGS = ("/etc/gitconfig",)  # git fails if it finds but cannot read this
_GUARD_GAP = "Programs can change files that later run as your user (.git/config, .envrc); when they end, it is undone."


class _Supervised:
    """The base of both kinds. Raises SetupError if programs could not even be ended."""

    def __init__(self, workspace: Workspace, limits: ProcessLimits, python: str) -> None:
        if not has_call_filter():
            raise SetupError("there is no filter of system calls for this kind of processor.")
        self._limits = limits
        self._home = Path(tempfile.mkdtemp(prefix="autoagent-"))
        self.path: Sequence[str] = mounts.search_path(python)

    def launch(
        self, argv: Sequence[str], folder: Path, env: Mapping[str, str], *, network: bool, read_only: bool
    ) -> Launch:
        """Launch as Boundary does. Without confinement, programs always have the network."""
        command = supervisor.command(str(folder), self._limits.file_bytes, argv, self._confinement(network, read_only))
        return Launch(command, mounts.environment(self.path, str(self._home), env))

    def close(self) -> None:
        """Delete the programs' home."""
        shutil.rmtree(self._home, ignore_errors=True)

    def _confinement(self, network: bool, read_only: bool) -> dict[str, Any]:
        """Return the arguments of confinement.confine, or nothing for no confinement."""
        return {}


class Unconfined(_Supervised):
    """Run programs with all rights of the agent's user. Satisfies process.Boundary."""

    name = "none"
    confines = False
    gaps: tuple[str, ...] = (
        "Programs can read and change everything that your user can, also outside the workspace and by hard links.",
        "Programs can reach the network, and the services of this machine.",
        "Programs can read the agent's keys out of its memory and its environment.",
        "Programs can send signals to others, and free themselves of their limits that way.",
        "Programs can fill the disk, the temporary folder, and the memory with unmapped files.",
        "Programs that need a session of their own (tmux, script, a terminal in it) do not work.",
        _GUARD_GAP,
    )


class Landlock(_Supervised):
    """Confine programs by Landlock. Satisfies process.Boundary. Raises SetupError if Landlock is missing or too old."""

    name = "landlock"
    confines = True

    def __init__(self, workspace: Workspace, limits: ProcessLimits, python: str) -> None:
        self._abi = landlock_abi()
        if self._abi == 0:
            raise SetupError("the kernel has no Landlock, or it is switched off.")
        if self._abi < OLDEST_ABI:
            raise SetupError(f"the kernel's Landlock is too old: ABI {self._abi}, wanted {OLDEST_ABI} (Linux 6.2).")
        self._root = str(workspace.root)
        self._out_of_reach = tuple(str(workspace.root / place) for place in sorted(workspace.protected))
        # A program may replace anything in the workspace with a link, and may read the workspace anyway.
        python_outside = (place for place in mounts.python_paths(python) if not is_inside(workspace.root, Path(place)))
        self._visible = (*mounts.SYSTEM, *mounts.SETTINGS, *mounts.USERS, *_GIT_SETTINGS, *python_outside)
        self.gaps: tuple[str, ...] = (
            "Programs can see the sizes and times of files outside the workspace, though not what is in them.",
            "Programs can change the mode and the times of files outside the workspace that are your user's.",
            "Programs that may use the network reach the sockets of services on this machine's disk as well.",
            "Programs can fill the disk and the temporary folder: the size of each file is limited, not their sum.",
            "Programs that need a session of their own (tmux, script, a terminal in it) do not work.",
            _GUARD_GAP,
        )
        if self._abi < ABI_OF_SIGNALS:
            self.gaps += (
                "Programs can send signals to your user's other programs: the kernel is older than Linux 6.12.",
            )
        if self._out_of_reach:
            self.gaps += (
                "Because the agent's own files lie in the workspace, programs can make no files at its top, and see "
                "the names of the agent's files.",
            )
        self.gaps += mounts.shared_files(workspace).gaps(workspace.root)
        super().__init__(workspace, limits, python)

    def _confinement(self, network: bool, read_only: bool) -> dict[str, Any]:
        return {
            "visible": (*self._visible, *(mounts.NETWORK if network else ()), *((self._root,) if read_only else ())),
            "writable": (str(self._home), *(() if read_only else (self._root,))),
            "devices": mounts.DEVICES,
            "out_of_reach": self._out_of_reach,
            "network": network,
        }
