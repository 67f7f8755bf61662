"""The user's task and its goals."""

from __future__ import annotations

from dataclasses import dataclass

MOST_GOALS = 5  # of a task


@dataclass(frozen=True, slots=True)
class Goal:
    """One goal. `check` is the user's shell command that exits 0 once the goal is met."""

    text: str
    check: str | None = None

    def __str__(self) -> str:
        """Format the goal for a person. The text is never parsed again, as it may contain ` :: `."""
        return f"{self.text} :: {self.check}" if self.check else self.text


@dataclass(frozen=True, slots=True)
class Task:
    """The agent's name, role and goals, as in `ai_settings.yaml`. `budget` is in USD, 0 for none.

    With a `file`, the agent writes only that file: each reply is its text, and the run ends when its checks pass.
    `model` is the endpoint's model that is to do it, empty for the run's own.
    """

    name: str
    role: str
    goals: tuple[Goal, ...]
    budget: float = 0.0
    file: str = ""
    model: str = ""
