"""Define a message between roles, and the keys to find it by: the causing action and the receivers."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from autoagent.core.errors import SettingsError, StateError
from autoagent.core.memory import Origin

ALL = "<all>"  # the receiver of a message to everybody
NOBODY = "<none>"  # the receiver of a message for the history alone
END = "end"  # the receiver of a message that ends the work of the team
REQUIREMENT = "UserRequirement"  # the cause of the user's requirement
CONFLICT = "Conflict"  # the cause of the notice that roles of a round have changed the same file

_NAMED = ("id", "content", "role", "cause_by", "sent_from", "send_to")  # the fields that the log holds unchanged


class Addresses(set[str]):
    """Hold a set of addresses. A single address also equals its text, as programs for MetaGPT 0.4 expect."""

    def __eq__(self, other: object) -> bool:
        return super().__eq__({other} if isinstance(other, str) else other)

    def __ne__(self, other: object) -> bool:
        return not self == other


class Message:
    """Hold a message of a role or of the user.

    Two are equal if they share an `id`, or, without ids, are the same object. `role` is the writer's profile and
    `sent_from` the name. `cause_by` names the causing action, and `send_to` the receivers. `instruct_content` is
    further content from the writer: JSON, or a pydantic model, restored in a resumed run. `metadata` is for the
    program's own notes, in JSON. `origin` is the origin of all that the writer has read. Raises SettingsError for
    contents that the log cannot keep.
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
        metadata: Mapping[str, Any] | None = None,
    ) -> None:
        self.content = str(content)
        self.role = role
        self.cause_by: str = cause_by
        self.sent_from: str = sent_from
        self.send_to: set[str] = send_to
        self.id = id
        self.instruct_content = instruct_content
        self.metadata = dict(metadata or {})
        self.origin = Origin()

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute. Accept actions and roles themselves in place of their names. Raises SettingsError."""
        if name == "cause_by":
            value = cause_of(value or REQUIREMENT)
        elif name == "sent_from":
            value = address_of(value) if value else ""
        elif name == "send_to":
            value = Addresses(addresses_of(value or ALL))
        elif name in ("instruct_content", "metadata"):
            _packed(name, value)
        super().__setattr__(name, value)

    def is_for(self, addresses: Iterable[str]) -> bool:
        """Return whether it is for everybody, or for one of these addresses."""
        return ALL in self.send_to or not self.send_to.isdisjoint(addresses)

    @property
    def extra(self) -> dict[str, Any]:
        """Return its content besides the text, in the form of the log."""
        found = {"instruct_content": self.instruct_content, "metadata": self.metadata}
        return {name: _packed(name, value) for name, value in found.items() if value not in (None, {})}

    def restore(self, extra: Mapping[str, Any]) -> None:
        """Restore the content besides the text from the log. Raises StateError for a class no longer defined."""
        if "instruct_content" in extra:
            self.instruct_content = _unpacked(extra["instruct_content"])
        self.metadata = dict(extra.get("metadata", {}).get("value", {}))

    def to_json(self) -> dict[str, Any]:
        """Return it in the form of the log."""
        named = {name: getattr(self, name) for name in _NAMED} | {"send_to": sorted(self.send_to)}
        return {**named, "source": self.origin.source, "trusted": self.origin.trusted, "extra": self.extra}

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Message:
        """Return the message of its form in the log."""
        message = cls(**{name: found[name] for name in _NAMED})
        message.origin = Origin(str(found.get("source", "")), bool(found.get("trusted", True)))
        message.restore(found.get("extra", {}))
        return message

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Message) and self.id != "" and self.id == other.id)

    __hash__ = None  # type: ignore[assignment]  # the id may come later

    def __str__(self) -> str:
        return f"{self.role}: {self.content}"

    __repr__ = __str__


def cause_of(action: Any) -> str:
    """Return the name by which messages of an action are found: the name of its class, or its own if it has no class.

    The name of a user's class includes its module, to tell classes of the same name apart.
    """
    if isinstance(action, str):
        return action
    if cause := getattr(action, "cause", ""):
        return str(cause)
    kind = action if isinstance(action, type) else type(action)
    return kind.__name__ if kind.__module__.startswith("autoagent.") else f"{kind.__module__}.{kind.__name__}"


def address_of(receiver: Any) -> str:
    """Return the address of a role: its name, or the name of its class."""
    if isinstance(receiver, str):
        return receiver
    if isinstance(receiver, type):
        return cause_of(receiver)
    return str(getattr(receiver, "name", "") or cause_of(receiver))


def addresses_of(receivers: Any) -> set[str]:
    """Return the addresses of a receiver, or of several."""
    if isinstance(receivers, (set, frozenset, list, tuple)):
        return {address_of(receiver) for receiver in receivers}
    return {address_of(receivers)}


def _packed(name: str, value: Any) -> dict[str, Any]:
    """Return a value as JSON, with the class of a pydantic model. Raises SettingsError for any other value."""
    kind = type(value)
    try:
        if not hasattr(kind, "model_validate"):
            if json.loads(json.dumps(value, allow_nan=False)) != value:
                raise ValueError("JSON has no tuples, and only texts as keys")
            return {"value": value}
        plain = value.model_dump(mode="json")
        kind.model_validate(plain)
    except (TypeError, ValueError, RecursionError) as error:
        reason = str(error).splitlines()[0]
        raise SettingsError(
            f"{name} holds a {kind.__name__} that a resumed run could not have: {reason}. Use JSON or a pydantic model."
        ) from None
    return {"class": f"{kind.__module__}:{kind.__qualname__}", "value": plain}


def _unpacked(found: Mapping[str, Any]) -> Any:
    """Return a value from its form in the log. Import no class: use only the program's own. Raises StateError."""
    if "class" not in found:
        return found["value"]
    pydantic = sys.modules.get("pydantic")
    kinds = _subclasses(pydantic.BaseModel) if pydantic else ()
    kind = next((kind for kind in kinds if f"{kind.__module__}:{kind.__qualname__}" == found["class"]), None)
    if kind is None:
        raise StateError(f"A message holds a {found['class']}, which is not defined: define it before you resume.")
    try:
        return kind.model_validate(found["value"])
    except ValueError as error:
        raise StateError(f"A message holds a {found['class']} that does not fit its class any more: {error}") from None


def _subclasses(kind: type[Any]) -> Iterator[type[Any]]:
    for each in kind.__subclasses__()[::-1]:
        yield each
        yield from _subclasses(each)
