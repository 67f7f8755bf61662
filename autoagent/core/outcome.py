"""How a run ended."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Status = Literal["finished", "failed", "setup", "limit", "unanswered", "stopped", "budget", "stuck", "interrupted"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended."""

    status: Status
    reason: str
