"""A message of a role to the others, and by what a message is found: the action that caused it, whom it is for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from autoagent.core.memory import Origin

ALL = "<all>"
"""Whom a message is for that is for everybody."""

REQUIREMENT = "UserRequirement"
"""The cause of what the user wants."""


class Message:
    """What a role, or the user, says. Two are the same if they have the same `id`, or are the same object before.

    `role` is the profile of the writer and `sent_from` the name; `cause_by` names the action it came of, and `send_to`
    whom it is for. `instruct_content` is whatever the writer wants to hand on besides, within one process. `origin` is
    what the writer had read.
    """

    def __init__(
        self,
        content: str = "",
        role: str = "user",
        cause_by: Any = "",
        sent_from: Any = "",
        send_to: Any = ALL,
        *,
        id: str = "",
        instruct_content: Any = None,
        origin: Origin | None = None,
    ) -> None:
        self.content = str(content)
        self.role = role
        self.cause_by = cause_of(cause_by or REQUIREMENT)
        self.sent_from = address_of(sent_from) if sent_from else ""
        self.send_to = addresses_of(send_to or ALL)
        self.id = id
        self.instruct_content = instruct_content
        self.origin = origin or Origin()

    def is_for(self, addresses: Iterable[str]) -> bool:
        """Return whether it is for everybody, or for one of these addresses."""
        return ALL in self.send_to or not self.send_to.isdisjoint(addresses)

    def to_json(self) -> dict[str, Any]:
        """Return it as the log has it."""
        return {
            "id": self.id,
            "content": self.content,
            "role": self.role,
            "cause_by": self.cause_by,
            "sent_from": self.sent_from,
            "send_to": sorted(self.send_to),
            "source": self.origin.source,
            "trusted": self.origin.trusted,
        }

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Message:
        """Return the message of what the log has."""
        named = {name: found[name] for name in ("content", "role", "cause_by", "sent_from", "send_to", "id")}
        return cls(**named, origin=Origin(str(found.get("source", "")), bool(found.get("trusted", True))))

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Message) and self.id != "" and self.id == other.id)

    __hash__ = None  # type: ignore[assignment]  # the id may come later

    def __str__(self) -> str:
        return f"{self.role}: {self.content}"

    def __repr__(self) -> str:
        return f"Message({self.content!r}, role={self.role!r}, cause_by={self.cause_by!r})"


def cause_of(action: Any) -> str:
    """Return the name by which messages of an action are found: of its class, or of one that has a name alone.

    A class of one's own is named with its module, so that two of one name are told apart.
    """
    if isinstance(action, str):
        return action
    if cause := getattr(action, "cause", ""):
        return str(cause)
    kind = action if isinstance(action, type) else type(action)
    return kind.__name__ if kind.__module__.startswith("autoagent.") else f"{kind.__module__}.{kind.__name__}"


def short(cause: str) -> str:
    """Return the name of an action as it is shown."""
    return cause.rpartition(".")[2]


def address_of(receiver: Any) -> str:
    """Return the address of a role: its name, or that of its class."""
    if isinstance(receiver, str):
        return receiver
    if isinstance(receiver, type):
        return cause_of(receiver)
    return str(getattr(receiver, "name", "") or cause_of(receiver))


def addresses_of(receivers: Any) -> set[str]:
    """Return the addresses of one receiver or several."""
    if isinstance(receivers, (set, frozenset, list, tuple)):
        return {address_of(receiver) for receiver in receivers}
    return {address_of(receivers)}
