"""MetaGPT's own names: a program written for MetaGPT runs here once its import lines name this module.

    from autoagent.teams.metagpt import Action, Environment, Message, Role, Team, UserRequirement, logger

docs/teams.md says what differs.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

from autoagent.core.errors import NoMoneyException
from autoagent.teams.action import Action, UserRequirement, model_in
from autoagent.teams.action import UserRequirement as BossRequirement
from autoagent.teams.environment import Environment as _Environment
from autoagent.teams.llm import WORKING, ActionNode, ActionOutput, Llm
from autoagent.teams.memory import Memory
from autoagent.teams.message import ALL as MESSAGE_ROUTE_TO_ALL
from autoagent.teams.message import NOBODY as MESSAGE_ROUTE_TO_NONE
from autoagent.teams.message import Message
from autoagent.teams.message import cause_of as any_to_str
from autoagent.teams.role import Role as _Role
from autoagent.teams.role import RoleContext, RoleReactMode
from autoagent.teams.team import INVESTMENT, Team, run_alone

__all__ = [
    "LLM", "MESSAGE_ROUTE_TO_ALL", "MESSAGE_ROUTE_TO_NONE", "Action", "ActionNode", "ActionOutput", "BossRequirement",
    "Config", "Context", "Environment", "Memory", "Message", "NoMoneyException", "Role", "RoleContext",
    "RoleReactMode", "Team", "UserRequirement", "any_to_str", "logger",
]  # fmt: skip

logger = logging.getLogger("autoagent.teams")


class Context:
    """The context that MetaGPT's programs hand to their roles. It has no effect."""

    def __init__(self, **given: Any) -> None:
        vars(self).update(given)


class Config(Context):
    """A configuration as MetaGPT's programs make it. Its `llm.model` counts for the role or action it is given to."""

    @classmethod
    def default(cls) -> Config:
        """Return one that names no model."""
        return cls(llm=SimpleNamespace(model=""))


class LLM(Llm):
    """The model of no role. In a turn it is that of the role at work. Elsewhere each question is a run of its own.

    All its questions together may cost what a team may.
    """

    def __init__(self, *_: Any, **__: Any) -> None:
        self._spent = 0.0

    async def _ask(self, prompt: str, system: str) -> str:
        if (turn := WORKING.get()) is not None:
            return await turn.aask(prompt, system, "LLM")

        class Ask(Action):
            async def run(self, *_: Any, **__: Any) -> str:
                return await self._hired.turn.aask(prompt, system, self.name)

        team = Team("LLM", roles=[_Role("LLM", actions=[Ask])], investment=max(0.0, INVESTMENT - self._spent))
        team.run_project(prompt)
        history = await team.run(1)
        self._spent += team.spent
        return history.get()[-1].content


class Environment(_Environment):
    """An environment that can also work without a team that was made of it."""

    def __init__(self, desc: str = "", roles: Iterable[_Role] = (), context: Any = None) -> None:
        super().__init__(desc, roles)
        self.context = context

    async def run(self, k: int = 1) -> None:
        """Let its roles work for k rounds, as a team. Raises as Team.run."""
        await Team(env=self).run(k)


class Role(_Role):
    """A role that can also work without a team, as the only one of a team of its own."""

    context: Any = None
    config: Any = None
    observe_all_msg_from_buffer: bool = False
    enable_memory: bool = True

    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        self.model = self.model or model_in(self.config)

    def put_message(self, message: Message | None) -> None:
        """Give it a message that nobody else reads."""
        if message is not None:
            message.send_to = {self.name}
            (self.rc.env or Environment(roles=[self])).publish_message(message)

    async def run(self, with_message: Any = None) -> Message | None:
        """Take a turn; with a message and no team, the one turn of a team of its own."""
        if self.is_at_work:
            return await super().run()
        return await run_alone(self, with_message)
