"""The kind that is left where no boundary works: limits and a clean environment, nothing held back."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from autoagent.core.errors import SetupError
from autoagent.sandbox import seccomp, supervisor
from autoagent.sandbox.environment import search_path, variables
from autoagent.sandbox.limits import ProcessLimits
from autoagent.sandbox.process import Launch
from autoagent.workspace.gate import Workspace


class Unconfined:
    """Satisfies program.Boundary. Programs see everything that the user of the agent does.

    Raises SetupError where not even what ends them can be had.
    """

    name = "none"
    confines = False
    gaps = (
        "Programs can read and change everything that your user can, also outside the workspace and by hard links.",
        "Programs can reach the network, and the services of this machine.",
        "Programs can read the agent's keys out of its memory and its environment.",
        "Programs can send signals to others, and free themselves of their limits that way.",
        "Programs can fill the disk, the temporary folder, and the memory by what they do not map.",
        "Programs that need a session of their own (tmux, script, a terminal in it) do not work.",
    )

    def __init__(self, workspace: Workspace, limits: ProcessLimits, python: str) -> None:
        if not seccomp.is_known():
            raise SetupError("there is no filter of system calls for this kind of processor.")
        self._limits = limits
        self._home = Path(tempfile.mkdtemp(prefix="autoagent-"))
        self.path: Sequence[str] = search_path(python)

    def launch(self, argv: Sequence[str], folder: Path, env: Mapping[str, str], *, network: bool) -> Launch:
        """As Boundary; the network is there in any case."""
        command = supervisor.command(str(folder), self._limits.file, argv, {})
        return Launch(command, variables(self.path, str(self._home), env))

    def close(self) -> None:
        """Delete the programs' home."""
        shutil.rmtree(self._home, ignore_errors=True)
