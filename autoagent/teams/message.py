"""Define a message between roles, and the keys that select its readers: the causing action and the receivers."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from autoagent.core.errors import SettingsError, StateError
from autoagent.core.memory import Origin

ALL = "<all>"  # the receiver of a message to everyone
NOBODY = "<none>"  # the receiver of a message that only the history keeps
END = "end"  # the receiver of a message that ends the work of the team
REQUIREMENT = "UserRequirement"  # the cause of the user's requirement
CONFLICT = "Conflict"  # the cause of a notice that several roles changed the same file in a round

_LOGGED_FIELDS = ("id", "content", "role", "cause_by", "sent_from", "send_to")  # logged as they are


class Addresses(set[str]):
    """A set of addresses. A single address also equals its text, as programs for MetaGPT 0.4 expect."""

    def __eq__(self, other: object) -> bool:
        return super().__eq__({other} if isinstance(other, str) else other)

    def __ne__(self, other: object) -> bool:
        return not self == other


class Message:
    """A message of a role or of the user.

    Two messages are equal if they share an `id`, or are the same object. `role` is the writer's profile, and
    `sent_from` is its name. `cause_by` names the causing action, and `send_to` the receivers. `instruct_content` holds
    structured content: JSON, or a pydantic model, which a resumed run restores. `metadata` holds the program's own
    notes as JSON. `origin` is the joint origin of everything that the writer has read. Raises SettingsError for
    content that the log cannot hold.
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
        """Set an attribute. Accept an action or role in place of its name. Raises SettingsError."""
        if name == "cause_by":
            value = cause_of(value or REQUIREMENT)
        elif name == "sent_from":
            value = address_of(value) if value else ""
        elif name == "send_to":
            value = Addresses(addresses_of(value or ALL))
        elif name in ("instruct_content", "metadata"):
            _to_json(name, value)
        super().__setattr__(name, value)

    def is_for(self, addresses: Iterable[str]) -> bool:
        """Return whether the message is for everyone, or for one of these addresses."""
        return ALL in self.send_to or not self.send_to.isdisjoint(addresses)

    @property
    def extra(self) -> dict[str, Any]:
        """Return the content other than the text, in the form of the log."""
        attributes = {"instruct_content": self.instruct_content, "metadata": self.metadata}
        return {name: _to_json(name, value) for name, value in attributes.items() if value not in (None, {})}

    def restore(self, extra: Mapping[str, Any]) -> None:
        """Restore the content other than the text from the log. Raises StateError for a class that is not defined."""
        if "instruct_content" in extra:
            self.instruct_content = _from_json(extra["instruct_content"])
        self.metadata = dict(extra.get("metadata", {}).get("value", {}))

    def to_json(self) -> dict[str, Any]:
        """Return the message in the form of the log."""
        fields = {name: getattr(self, name) for name in _LOGGED_FIELDS} | {"send_to": sorted(self.send_to)}
        return {**fields, "source": self.origin.source, "trusted": self.origin.trusted, "extra": self.extra}

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Message:
        message = cls(**{name: record[name] for name in _LOGGED_FIELDS})
        message.origin = Origin(str(record.get("source", "")), bool(record.get("trusted", True)))
        message.restore(record.get("extra", {}))
        return message

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Message) and self.id != "" and self.id == other.id)

    __hash__ = None  # type: ignore[assignment]  # the id may be set later

    def __str__(self) -> str:
        return f"{self.role}: {self.content}"

    __repr__ = __str__


def cause_of(action: Any) -> str:
    """Return the name that identifies an action's messages: the name of its class, or its own if it has no class.

    For a user's class it includes the module, to distinguish classes of the same name.
    """
    if isinstance(action, str):
        return action
    if cause := getattr(action, "cause", ""):
        return str(cause)
    cls = action if isinstance(action, type) else type(action)
    return cls.__name__ if cls.__module__.startswith("autoagent.") else f"{cls.__module__}.{cls.__name__}"


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


def _to_json(name: str, value: Any) -> dict[str, Any]:
    """Return a value as JSON, with the class of a pydantic model. Raises SettingsError for any other value."""
    cls = type(value)
    try:
        if not hasattr(cls, "model_validate"):
            if json.loads(json.dumps(value, allow_nan=False)) != value:
                raise ValueError("JSON has no tuples, and only strings as keys")
            return {"value": value}
        fields = value.model_dump(mode="json")
        cls.model_validate(fields)
    except (TypeError, ValueError, RecursionError) as error:
        reason = str(error).splitlines()[0]
        raise SettingsError(
            f"{name} holds a {cls.__name__} that a resumed run could not have: {reason}. Use JSON or a pydantic model."
        ) from None
    return {"class": f"{cls.__module__}:{cls.__qualname__}", "value": fields}


def _from_json(record: Mapping[str, Any]) -> Any:
    """Restore a value from the log. Import nothing: use only classes that the program defines. Raises StateError."""
    if "class" not in record:
        return record["value"]
    pydantic = sys.modules.get("pydantic")
    models = _subclasses(pydantic.BaseModel) if pydantic else ()
    model = next((model for model in models if f"{model.__module__}:{model.__qualname__}" == record["class"]), None)
    if model is None:
        raise StateError(f"A message holds a {record['class']}, which is not defined: define it before you resume.")
    try:
        return model.model_validate(record["value"])
    except ValueError as error:
        raise StateError(f"A message holds a {record['class']} that does not fit its class any more: {error}") from None


def _subclasses(cls: type[Any]) -> Iterator[type[Any]]:
    for subclass in cls.__subclasses__()[::-1]:
        yield subclass
        yield from _subclasses(subclass)
