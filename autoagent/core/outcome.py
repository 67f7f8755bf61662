"""The end of a run."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from autoagent.core.commands import Proof


class Status(StrEnum):
    """A way to end a run: its name in the log, the exit code, and the words on the screen. Exit code 2 is bad usage."""

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
        """Make a member that equals its name in the log."""
        status = str.__new__(cls, name)
        status._value_ = name
        status.code = code
        status.words = words
        return status

    @property
    def over(self) -> bool:
        """True if the agent ended the run itself, as it could do no more."""
        return self in (Status.FINISHED, Status.UNVERIFIED, Status.UNMET)

    @property
    def is_conclusion(self) -> bool:
        """True if the agent itself came to this end, and nothing from outside cut its work short."""
        return self not in _CUT_SHORT


_CUT_SHORT = frozenset({
    Status.FAILED, Status.SETUP, Status.LIMIT, Status.UNANSWERED, Status.STOPPED, Status.BUDGET, Status.INTERRUPTED,
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class Outcome:
    """The end of a run. `goals`: the status of each goal, if the agent ended the run itself."""

    status: Status
    reason: str
    goals: tuple[Proof, ...] = ()
