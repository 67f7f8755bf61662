"""The kind that rests on Landlock, seccomp and the loss of all capabilities, for where namespaces are not to be had.

A program can read the system's programs, a few files of /etc and the Python interpreter, and write to the workspace and
to a temporary folder of its own. It cannot make sockets, and there is no /proc for it.

Not covered: see Landlock.gaps; also bugs of the kernel.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from autoagent.core.errors import SetupError
from autoagent.sandbox import seccomp, supervisor
from autoagent.sandbox.environment import search_path, variables
from autoagent.sandbox.hard_links import shared_files
from autoagent.sandbox.landlock_rules import ABI_OF_SIGNALS, OLDEST_ABI, landlock_abi
from autoagent.sandbox.limits import ProcessLimits
from autoagent.sandbox.mounts import DEVICES, NETWORK, SETTINGS, SYSTEM, USERS, python_places
from autoagent.sandbox.process import Launch
from autoagent.workspace.gate import Workspace


class Landlock:
    """Satisfies program.Boundary. Raises SetupError where the kernel has no Landlock, or one that is too old."""

    name = "landlock"
    confines = True

    def __init__(self, workspace: Workspace, limits: ProcessLimits, python: str) -> None:
        self._abi = landlock_abi()
        if self._abi == 0:
            raise SetupError("the kernel has no Landlock, or it is switched off.")
        if self._abi < OLDEST_ABI:
            raise SetupError(f"the kernel's Landlock is too old: ABI {self._abi}, wanted {OLDEST_ABI} (Linux 6.2).")
        if not seccomp.is_known():
            raise SetupError("there is no filter of system calls for this kind of processor.")
        self._limits = limits
        self._links = shared_files(workspace).gaps(workspace.root)
        self._root = str(workspace.root)
        self._out_of_reach = [str(workspace.root / place) for place in sorted(workspace.protected)]
        self._visible = [*SYSTEM, *SETTINGS, *USERS, *python_places(python)]
        self._home = Path(tempfile.mkdtemp(prefix="autoagent-"))
        self.path: Sequence[str] = search_path(python)

    @property
    def gaps(self) -> tuple[str, ...]:
        """As protocols.Sandbox."""
        always = (
            "Programs can see the sizes and times of files outside the workspace, though not what is in them.",
            "Programs can change the mode and the times of files outside the workspace that are your user's.",
            "Programs that may use the network reach the sockets of services on this machine's disk as well.",
            "Programs can fill the disk and the temporary folder: the size of each file is limited, not their sum.",
            "Programs that need a session of their own (tmux, script, a terminal in it) do not work.",
        )
        signals = "Programs can send signals to your user's other programs: the kernel is older than Linux 6.12."
        own_files = (
            "Because the agent's own files lie in the workspace, programs can make no files at its top, and see the "
            "names of the agent's files."
        )
        return (
            *always,
            *((signals,) if self._abi < ABI_OF_SIGNALS else ()),
            *((own_files,) if self._out_of_reach else ()),
            *self._links,
        )

    def launch(self, argv: Sequence[str], folder: Path, env: Mapping[str, str], *, network: bool) -> Launch:
        """As Boundary."""
        confinement = {
            "visible": (*self._visible, *(NETWORK if network else ())),
            "writable": (self._root, str(self._home)),
            "devices": DEVICES,
            "out_of_reach": tuple(self._out_of_reach),
            "network": network,
        }
        command = supervisor.command(str(folder), self._limits.file, argv, confinement)
        return Launch(command, variables(self.path, str(self._home), env))

    def close(self) -> None:
        """Delete the programs' home."""
        shutil.rmtree(self._home, ignore_errors=True)
