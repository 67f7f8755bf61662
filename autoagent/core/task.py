"""Define the user's task and its goals, the verdicts on them, and the ways to end a run."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Literal

from autoagent.core.frozen import dataclass

MAX_GOALS = 5  # per task

if TYPE_CHECKING:
    from autoagent.core.commands import Proof


@dataclass(frozen=True, slots=True)
class Goal:
    """A goal of a task."""

    text: str
    check: str | None = None  # the user's shell command that exits 0 once the goal is met

    def __str__(self) -> str:
        """Format the goal for a person. The text is never parsed again, as it may contain ` :: `."""
        return f"{self.text} :: {self.check}" if self.check else self.text


@dataclass(frozen=True, slots=True)
class Task:
    """The agent's name, role and goals, as in `ai_settings.yaml`.

    With a `file`, the agent writes only that file: each reply is its text, and the run ends when its checks pass.
    """

    name: str
    role: str
    goals: tuple[Goal, ...]
    budget: float = 0.0  # USD, 0 for none
    file: str = ""
    model: str = ""  # of the endpoint, or '' for the run's own

    @property
    def numbered(self) -> str:
        """Return the goals in one line, with their numbers."""
        return "; ".join(f"{number}. {goal}" for number, goal in enumerate(self.goals, 1))


class Status(StrEnum):
    """Enumerate the ways to end a run: name in the log, exit code, words on the screen. Exit code 2 is bad usage."""

    FINISHED = "finished", 0, "FINISHED"
    FAILED = "failed", 1, "FAILED"
    SETUP = "setup", 3, "NOT SET UP"
    LIMIT = "limit", 4, "LIMIT REACHED"
    UNANSWERED = "unanswered", 5, "NOBODY ANSWERED"
    STOPPED = "stopped", 6, "STOPPED"
    BUDGET = "budget", 7, "BUDGET USED UP"
    STUCK = "stuck", 8, "STUCK"
    UNVERIFIED = "unverified", 9, "NOT VERIFIED"
    UNMET = "unmet", 10, "NOT MET"
    INTERRUPTED = "interrupted", 130, "INTERRUPTED"

    code: int
    words: str

    def __new__(cls, name: str, code: int, words: str) -> Status:
        status = str.__new__(cls, name)
        status._value_ = name
        status.code = code
        status.words = words
        return status

    @property
    def ended_by_agent(self) -> bool:
        """Return whether the agent ended the run itself, as there was nothing more that it could do."""
        return self in (Status.FINISHED, Status.UNVERIFIED, Status.UNMET)

    @property
    def is_conclusion(self) -> bool:
        """Return whether nothing from outside ended the run: the agent ended it, or got stuck."""
        return self.ended_by_agent or self is Status.STUCK


@dataclass(frozen=True, slots=True)
class Outcome:
    """The end of a run."""

    status: Status
    reason: str
    goals: tuple[Proof, ...] = ()  # the status of each goal, if the agent ended the run itself


VERIFICATION = "verification"  # the purpose of a verifier's answer in the log
VERIFIER = "You check another agent's work."  # begins a verifier's system message, as scripted servers recognize it


@dataclass(frozen=True, slots=True)
class GoalVerdict:
    """The verdict on a goal."""

    goal: int  # from 0
    finding: Literal["met", "not met", "cannot tell"]
    evidence: str = ""  # a quote found in the verifier's prompt
    why: str = ""
