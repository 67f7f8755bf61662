"""The verdict of a verifier on a goal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

VERIFICATION = "verification"
"""The purpose of a verifier's answer in the log."""

VERIFIER = "You check another agent's work."
"""The first words of the system message of a verifier, by which scripted servers know its request."""

Finding = Literal["met", "not met", "cannot tell"]


@dataclass(frozen=True, slots=True)
class GoalVerdict:
    """The verdict on one goal, counted from 0. `evidence` is a quote that was found in the verifier's prompt."""

    goal: int
    finding: Finding
    evidence: str = ""
    why: str = ""
