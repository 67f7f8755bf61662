"""The kinds of sandbox for the programs that the agent starts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from autoagent.registry.plugins import imported_when_called
from autoagent.registry.table import Registered, Table

AUTO = "auto"
"""In place of a kind: the strongest of our own that works."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxKind(Registered):
    """All that is true of a kind of sandbox.

    Attributes:
        open: makes the sandbox.process.Boundary for a Workspace, ProcessLimits and the path of an interpreter. Raises
            SetupError if it does not work on this machine.
        confines: it holds programs back at all.
        remedy: how it comes to a machine that has it not, '' if nothing can be done.
    """

    open: Callable[..., Any]
    confines: bool = True
    remedy: str = ""


# The strongest first.
KINDS = Table(
    "sandbox",
    SandboxKind,
    (
        SandboxKind(
            name="bubblewrap",
            summary="namespaces of its own for everything",
            open=imported_when_called("autoagent.sandbox.bubblewrap:Bubblewrap"),
            remedy="install bubblewrap",
        ),
        SandboxKind(
            name="landlock",
            summary="Landlock, seccomp and no capabilities",
            open=imported_when_called("autoagent.sandbox.supervised:Landlock"),
        ),
        SandboxKind(
            name="none",
            summary="limits, and a clean environment",
            open=imported_when_called("autoagent.sandbox.supervised:Unconfined"),
            confines=False,
        ),
    ),
)


def parse_sandbox(text: str) -> str:
    """Parse `auto` or the name of a kind. Raises ValueError, which names all there are."""
    if text.lower() == AUTO:
        return AUTO
    try:
        return KINDS.canonical(text)
    except ValueError:
        raise ValueError(f"must be one of {', '.join((AUTO, *KINDS.names()))}, not {text!r}.") from None


def is_stronger(name: str, than: str) -> bool:
    """Return whether a kind is certainly stronger than another. Equal kinds are not.

    `auto` may turn out to be the weakest. The strength of plug-ins' kinds is unknown.
    """
    kinds = [kind.name for kind in KINDS.own]
    strength = {kind: -place for place, kind in enumerate(kinds)}
    if name not in (AUTO, *kinds) or than not in (AUTO, *kinds):
        return False
    if name == AUTO:
        return than == kinds[-1]
    return name == kinds[0] if than == AUTO else strength[name] > strength[than]
