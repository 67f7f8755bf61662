"""MetaGPT's own names: a program written for MetaGPT runs here once its import lines name this module.

    from autoagent.teams.metagpt import Action, Environment, Message, Role, Team, UserRequirement, logger

docs/teams.md lists the differences.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

from autoagent.core.errors import NoMoneyException, RunEnded
from autoagent.teams.action import Action, UserRequirement, model_in
from autoagent.teams.action import UserRequirement as BossRequirement
from autoagent.teams.llm import CURRENT_TURN, ActionNode, ActionOutput, Llm
from autoagent.teams.memory import Memory
from autoagent.teams.message import ALL as MESSAGE_ROUTE_TO_ALL
from autoagent.teams.message import NOBODY as MESSAGE_ROUTE_TO_NONE
from autoagent.teams.message import Message
from autoagent.teams.message import cause_of as any_to_str
from autoagent.teams.role import Environment as _Environment
from autoagent.teams.role import Role as _Role
from autoagent.teams.role import RoleContext, RoleReactMode
from autoagent.teams.team import INVESTMENT, ROUNDS
from autoagent.teams.team import Team as _Team

__all__ = [
    "LLM", "MESSAGE_ROUTE_TO_ALL", "MESSAGE_ROUTE_TO_NONE", "Action", "ActionNode", "ActionOutput", "BossRequirement",
    "Config", "Context", "Environment", "Memory", "Message", "NoMoneyException", "Role", "RoleContext",
    "RoleReactMode", "RunEnded", "Team", "UserRequirement", "any_to_str", "logger",
]  # fmt: skip

logger = logging.getLogger("autoagent.teams")


class Context:
    """Accept a context that a program passes to its roles. It has no effect."""

    def __init__(self, **attributes: Any) -> None:
        vars(self).update(attributes)


class Config(Context):
    """A configuration in MetaGPT's form. Its `llm.model` sets the model of a role or action."""

    @classmethod
    def default(cls) -> Config:
        """Return a configuration that sets no model."""
        return cls(llm=SimpleNamespace(model=""))


class LLM(Llm):
    """Ask a model without a role. In a turn, use the working role's model. Elsewhere, start a run for each question.

    A team's default investment limits the total cost of its questions.
    """

    def __init__(self, *_: Any, **__: Any) -> None:
        super().__init__(self._ask_anywhere)
        self._spent = 0.0

    async def _ask_anywhere(self, prompt: str, system: str) -> str:
        if (turn := CURRENT_TURN.get()) is not None:
            return await turn.aask(prompt, system, "LLM", "")

        class Ask(Action):
            async def run(self, *_: Any, **__: Any) -> str:
                return str(await self.role.turn.aask(prompt, system, self.name, ""))

        team = Team("LLM", roles=[_Role("LLM", actions=[Ask])], investment=max(0.0, INVESTMENT - self._spent))
        team.run_project(prompt)
        history = await team.run(1)
        self._spent += team.spent
        return history.get()[-1].content


class Team(_Team):
    """Run a team from a program."""

    async def run(
        self, n_round: int = ROUNDS, idea: str = "", send_to: Any = "", *, resume: str = "", **flags: Any
    ) -> Memory:
        """Work for `n_round` rounds, or until nobody has news. Return all messages.

        Args:
            resume: the id of an earlier run of this team to continue, or the beginning of the id.
            flags: the flags of `autoagent team`, such as model="local", continuous=True, workspace="folder".

        Raises:
            NoMoneyException: the investment is used up. The run is saved.
            RunEnded: the user, a failure or a limit other than `n_round` ended the run. It is saved.
            ForUser: the run cannot begin.
        """
        from autoagent.teams.launch import run_in_program

        if idea:
            self.run_project(idea, send_to)
        run_in_program(self, n_round, resume, flags)
        return self.env.history


class Environment(_Environment):
    """An environment that runs its roles even without a team."""

    def __init__(self, desc: str = "", roles: Iterable[_Role] = (), context: Any = None) -> None:
        super().__init__(desc, roles)
        self.context = context

    async def run(self, k: int = 1) -> None:
        """Run its roles as a team, for k rounds. Raises the same errors as Team.run."""
        await Team(env=self).run(k)


class Role(_Role):
    """Act as a role, even outside of a team."""

    context: Any = None
    config: Any = None
    observe_all_msg_from_buffer: bool = False
    enable_memory: bool = True

    def __init__(self, *args: Any, **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self.model = self.model or model_in(self.config)

    def put_message(self, message: Message | None) -> None:
        """Send it a message that no other role reads."""
        if message is not None:
            message.send_to = {self.name}
            (self.rc.env or Environment(roles=[self])).publish_message(message)

    async def run(self, with_message: Any = None) -> Message | None:
        """Take a turn, in a team of its own if no team is running. Return its last message."""
        if self.active_turn:
            return await super().run()
        team = Team(self.name, self.rc.env, () if self.rc.env else [self])
        if with_message is not None:
            if not isinstance(with_message, Message):
                text = with_message if isinstance(with_message, str) else "\n".join(with_message)
                with_message = Message(text, "Human", UserRequirement)
            with_message.send_to |= {self.name}
            team.idea = with_message.content
            team.env.publish_message(with_message)
        old_ids = set(map(id, self.rc.memory))
        await team.run(1)
        messages = [each for each in team.env.history if each.sent_from == self.name and id(each) not in old_ids]
        return messages[-1] if messages else None
