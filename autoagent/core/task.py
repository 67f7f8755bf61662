"""What the user wants: a task with its goals."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Goal:
    """One goal; `check` is a shell command of the user's that exits 0 once the goal is met."""

    text: str
    check: str | None = None

    def __str__(self) -> str:
        """Show the goal to a person; what is shown is never parsed again, as a text may hold ` :: ` too."""
        return f"{self.text} :: {self.check}" if self.check else self.text


@dataclass(frozen=True, slots=True)
class Task:
    """Who the agent is and what it is to reach: what `ai_settings.yaml` holds. `budget` is in USD, 0 for none.

    With a `file`, that is all it writes: each reply is the text of it, and the end is when its checks pass.
    """

    name: str
    role: str
    goals: tuple[Goal, ...]
    budget: float = 0.0
    file: str = ""
