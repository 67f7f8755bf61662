"""A team: whom it hires, what is invested, what it is to do, and the environment of its work."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from autoagent.core.errors import SettingsError
from autoagent.teams.action import UserRequirement
from autoagent.teams.environment import Environment
from autoagent.teams.memory import Memory
from autoagent.teams.message import ALL, REQUIREMENT, Message
from autoagent.teams.role import Role

INVESTMENT = 10.0  # USD, where nobody says another
ROUNDS = 3


class Team:
    """Roles that work together on an idea of the user's.

    `investment` is what their models may cost in USD. `spent` what they have cost. `definition` is what the team was
    read from, for a run that is to be taken up without the program that made it.
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
        self.spent = 0.0
        self.definition: dict[str, Any] = {}
        self.hire(roles)
        if idea:
            self.run_project(idea)

    def hire(self, roles: Iterable[Role]) -> None:
        """Add roles, in whose order messages are published."""
        self.env.add_roles(roles)

    def invest(self, investment: float) -> None:
        """Set what the team may spend, in USD: a hard limit for all roles together. With 0 no model is asked."""
        if not 0 <= investment < float("inf"):
            raise SettingsError(f"The investment {investment} is no amount of USD.")
        self.investment = investment

    def run_project(self, idea: str, send_to: Any = "") -> None:
        """Say what is wanted, to all roles or to some."""
        self.idea = idea
        self.env.publish_message(Message(idea, "Human", REQUIREMENT, send_to=send_to or ALL))

    start_project = run_project

    async def run(
        self, n_round: int = ROUNDS, idea: str = "", send_to: Any = "", *, resume: str = "", **flags: Any
    ) -> Memory:
        """Work for so many rounds, or until nobody has news. Return all messages.

        Args:
            resume: a run of this same team, or the beginning of its id, to go on with.
            flags: as `autoagent team` takes them: model="local", continuous=True, workspace="folder" …

        Raises:
            NoMoneyException: the investment is used up. The run is saved.
            StopRun: the user, a limit or a failure has ended it, and it is saved; but the end of the rounds is none.
            ForUser: it cannot begin.
        """
        from autoagent.teams.opening import run_in_program

        if idea:
            self.run_project(idea, send_to)
        run_in_program(self, n_round, resume, flags)
        return self.env.history

    def __repr__(self) -> str:
        return f"Team({self.name!r}, {', '.join(map(str, self.env.roles))})"


async def run_alone(role: Role, given: str | Message | Iterable[str] | None) -> Message | None:
    """Let a role take one turn as a team of its own. Return what it has said."""
    team = Team(role.name, role.rc.env, () if role.rc.env else [role])
    if given is not None:
        if not isinstance(given, Message):
            given = Message(given if isinstance(given, str) else "\n".join(given), "Human", UserRequirement)
        given.send_to |= {role.name}
        team.idea = given.content
        team.env.publish_message(given)
    before = set(map(id, role.rc.memory))
    await team.run(1)
    said = [message for message in team.env.history if message.sent_from == role.name and id(message) not in before]
    return said[-1] if said else None
