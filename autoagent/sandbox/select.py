"""Chooses the kind of sandbox."""

from __future__ import annotations

import sys

from autoagent.core.errors import CommandError, SetupError
from autoagent.core.protocols import Sandbox
from autoagent.registry.sandbox import AUTO, KINDS, SandboxKind
from autoagent.sandbox.mounts import python_places
from autoagent.sandbox.process import Boundary, ProcessLimits
from autoagent.sandbox.programs import Programs
from autoagent.workspace.gate import Workspace

_PATIENCE = 30.0  # seconds that the trial of a kind may take


def open_sandbox(
    workspace: Workspace,
    limits: ProcessLimits,
    *,
    kind: str = AUTO,
    required: bool = False,
    network: bool = False,
    python: str = "",
) -> Sandbox:
    """Open the sandbox of a kind (see registry.sandbox), or with `auto` the strongest of our own that works here.

    Each is tried by running a program. `python` is the interpreter that programs find, by default the agent's own.
    Why a stronger kind was not taken is among the `gaps`.

    Raises:
        SetupError: the kind asked for does not work here; or `required`, and nothing holds programs back; or `python`
            is no interpreter that works.
    """
    kinds = KINDS.own if kind == AUTO else (KINDS.find(kind),)
    if required and not any(tried.confines for tried in kinds):
        raise SetupError(f"A sandbox is required, and --sandbox {kind} is none: leave out one of the two.")
    python = python or sys.executable
    python_places(python)  # its failure must not lead to a weaker kind
    reasons: list[str] = []
    for tried in kinds:
        if required and not tried.confines:
            break
        try:
            boundary = _working(tried, workspace, limits, python)
        except SetupError as error:
            reasons.append(f"No {tried.name}: {error}")
        else:
            return Programs(workspace, boundary, limits, network=network, reasons=reasons)
    raise SetupError(" ".join(["No sandbox works here.", *reasons]))


def _working(kind: SandboxKind, workspace: Workspace, limits: ProcessLimits, python: str) -> Boundary:
    """Return the boundary, once a program has run in it. Raises SetupError with the reason if none does."""
    if not sys.platform.startswith("linux"):
        raise SetupError("programs are run on Linux only.")
    boundary: Boundary = kind.open(workspace, limits, python)
    try:
        done = Programs(workspace, boundary, limits).run(["true"], seconds=_PATIENCE)
        how = f"a program in it ended by {done.signal or done.limit or f'status {done.status}'}."
        lines = done.output.decode(errors="replace").strip().splitlines() or [how]
        problem = "" if done.status == 0 else lines[-1]
    except CommandError as error:
        problem = str(error)
    if problem:
        boundary.close()
        raise SetupError(problem)
    return boundary
