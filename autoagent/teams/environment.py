"""The environment of a team: its roles, and the messages that are published."""

from __future__ import annotations

import threading
from collections.abc import Iterable

from autoagent.core.errors import SettingsError
from autoagent.teams.memory import Memory
from autoagent.teams.message import Message
from autoagent.teams.role import Role, Turn


class Environment:
    """Roles in the order in which they were hired, and what they have published, in order.

    `round` is the number of the last round. `turns` are those under way, by the thread that each is in.
    """

    def __init__(self, desc: str = "", roles: Iterable[Role] = ()) -> None:
        self.desc = desc
        self.roles: list[Role] = []
        self.history = Memory()
        self.turns: dict[int, Turn] = {}
        self.round = 0
        self.add_roles(roles)

    def add_role(self, role: Role) -> None:
        """Add a role. Several may have one profile, or one name."""
        if role in self.roles:
            raise SettingsError(f"{role.name} is hired already.")
        role.rc.env = self
        self.roles.append(role)

    def add_roles(self, roles: Iterable[Role]) -> None:
        """Add several roles."""
        for role in roles:
            self.add_role(role)

    def get_role(self, name: str) -> Role | None:
        """Return the role of this name, else of this profile, or None if there is none."""
        return next(
            (role for found in ("name", "profile") for role in self.roles if getattr(role, found) == name), None
        )

    def role_names(self) -> list[str]:
        """Return the names of the roles."""
        return [role.name for role in self.roles]

    @property
    def is_idle(self) -> bool:
        """Whether no role has news to act on."""
        return all(role.is_idle for role in self.roles)

    def publish_message(self, message: Message, peekable: bool = True) -> bool:
        """Publish a message: for all to read once the round has ended.

        One that was published before is ignored, and so is `peekable`, as in MetaGPT.
        """
        turn = self.turns.get(threading.get_ident())
        if turn is not None:
            turn.publish(message)
        else:
            self.history.add(message)
        return True

    def __repr__(self) -> str:
        return f"Environment({', '.join(map(str, self.roles))})"
