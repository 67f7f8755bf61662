"""Define a team: its roles, its investment, its idea and its environment."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from autoagent.core.errors import SettingsError
from autoagent.teams.message import ALL, REQUIREMENT, Message
from autoagent.teams.role import Environment, Role

INVESTMENT = 10.0  # USD, by default
ROUNDS = 3  # by default


class Team:
    """Roles that work together on the user's idea.

    `investment` is the most that their models may cost, and `spent` their cost so far, both in USD. `definition` is
    the content of the team's file, from which a run can be resumed without a program.
    """

    def __init__(
        self,
        name: str = "Team",
        env: Environment | None = None,
        roles: Iterable[Role] = (),
        investment: float = INVESTMENT,
        idea: str = "",
        context: Any = None,
    ) -> None:
        self.name = name
        self.env = env or Environment()
        self.investment = investment
        self.idea = ""
        self.spent = 0.0  # USD in all runs
        self.spent_by_run: dict[str, float] = {}
        self.definition: dict[str, Any] = {}
        self.hire(roles)
        if idea:
            self.run_project(idea)

    def hire(self, roles: Iterable[Role]) -> None:
        """Add roles. Their messages are published in this order."""
        self.env.add_roles(roles)

    def invest(self, investment: float) -> None:
        """Set the budget in USD, a hard limit for all roles. With 0 no model is asked. Raises SettingsError."""
        if not 0 <= investment < float("inf"):
            raise SettingsError(f"The investment {investment} is not an amount of USD.")
        self.investment = investment

    def run_project(self, idea: str, send_to: Any = "") -> None:
        """Publish the user's idea to all roles, or to those in `send_to`."""
        self.idea = idea
        self.env.publish_message(Message(idea, "Human", REQUIREMENT, send_to=send_to or ALL))

    start_project = run_project

    def __repr__(self) -> str:
        return f"Team({self.name!r}, {', '.join(map(str, self.env.roles))})"
