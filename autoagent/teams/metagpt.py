"""MetaGPT's own names: a program written for MetaGPT runs here once its import lines name this module.

    from autoagent.teams.metagpt import Action, Environment, Message, Role, Team, UserRequirement, logger

docs/teams.md says what differs.
"""

from __future__ import annotations

import logging
from typing import Any

from autoagent.core.errors import NoMoneyException
from autoagent.teams.action import Action, UserRequirement
from autoagent.teams.environment import Environment as _Environment
from autoagent.teams.memory import Memory
from autoagent.teams.message import ALL as MESSAGE_ROUTE_TO_ALL
from autoagent.teams.message import Message
from autoagent.teams.message import cause_of as any_to_str
from autoagent.teams.role import Role as _Role
from autoagent.teams.role import RoleContext, RoleReactMode
from autoagent.teams.team import Team, run_alone

__all__ = [
    "MESSAGE_ROUTE_TO_ALL",
    "Action",
    "Context",
    "Environment",
    "Memory",
    "Message",
    "NoMoneyException",
    "Role",
    "RoleContext",
    "RoleReactMode",
    "Team",
    "UserRequirement",
    "any_to_str",
    "logger",
]

logger = logging.getLogger("autoagent.teams")


class Context:
    """What MetaGPT's programs hand to their roles; nothing here counts, as model, key and money are autoagent's."""

    def __init__(self, **given: Any) -> None:
        vars(self).update(given)


class Environment(_Environment):
    """An environment that can also work without a team that was made of it."""

    async def run(self, k: int = 1) -> None:
        """Let its roles work for k rounds, as a team. Raises as Team.run."""
        await Team(env=self).run(k)


class Role(_Role):
    """A role that can also work without a team, as the only one of a team of its own."""

    context: Context | None = None

    async def run(self, with_message: Any = None) -> Message | None:
        """Take a turn; with a message and no team, the one turn of a team of its own."""
        if self.is_at_work:
            return await super().run()
        return await run_alone(self, with_message)
