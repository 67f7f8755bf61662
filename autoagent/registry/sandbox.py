"""Register the kinds of sandbox for the agent's programs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from autoagent.core.frozen import dataclass
from autoagent.registry.plugins import Registered, Table, join_with_or, lazy_function

AUTO = "auto"  # the strongest built-in kind that works here


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxKind(Registered):
    """Declare the properties of a sandbox kind.

    `open` makes the sandbox.process.Boundary for a Workspace, ProcessLimits and the path of an interpreter. It raises
    SetupError if this kind does not work on this machine.
    """

    open: Callable[..., Any]
    confines: bool = True  # whether it restricts programs at all
    remedy: str = ""  # how to install it, or '' if it cannot be installed


# strongest first
KINDS = Table(
    "sandbox",
    SandboxKind,
    (
        SandboxKind(
            name="bubblewrap",
            summary="namespaces of its own for everything",
            open=lazy_function("autoagent.sandbox.bubblewrap:Bubblewrap"),
            remedy="install bubblewrap",
        ),
        SandboxKind(
            name="landlock",
            summary="Landlock, seccomp and no capabilities",
            open=lazy_function("autoagent.sandbox.supervised:Landlock"),
        ),
        SandboxKind(
            name="none",
            summary="limits, and a clean environment",
            open=lazy_function("autoagent.sandbox.supervised:Unconfined"),
            confines=False,
        ),
    ),
)


def sandbox_names() -> str:
    """List the choices of a sandbox, the strongest kind first."""
    return join_with_or((AUTO, *(kind.name for kind in KINDS.builtin)))


def parse_sandbox(text: str) -> str:
    """Parse `auto` or the name of a kind. Raises ValueError, which lists the valid names."""
    if text.lower() == AUTO:
        return AUTO
    try:
        return KINDS.canonical(text)
    except ValueError:
        raise ValueError(f"must be one of {', '.join((AUTO, *KINDS.names()))}, not {text!r}.") from None


def is_stronger(name: str, reference: str) -> bool:
    """Return whether a kind is certainly stronger than another. Equal kinds are not.

    `auto` may turn out to be the weakest. The strength of plug-ins' kinds is unknown.
    """
    strongest, *others = kinds = [kind.name for kind in KINDS.builtin]
    if AUTO in (name, reference):  # then only the strongest and the weakest kind are certain
        return (name, reference) in ((strongest, AUTO), (AUTO, others[-1]))
    return name in kinds and reference in kinds and kinds.index(name) < kinds.index(reference)
