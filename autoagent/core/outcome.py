"""How a run ended."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from autoagent.core.commands import Proof

Status = Literal["finished", "failed", "setup", "limit", "unanswered", "stopped", "budget", "stuck", "interrupted"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended. `goals`: of each goal of a finished run, how it is known that it is met."""

    status: Status
    reason: str
    goals: tuple[Proof, ...] = ()
