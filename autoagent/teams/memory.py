"""The messages that a role has read and written, in order, with the operations of MetaGPT's memory.

The changes that a role makes to its memory in a turn are logged, as they cannot be derived from the published
messages. What it reads from the environment can.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, Literal

from autoagent.core.memory import Origin
from autoagent.teams.message import Message, cause_of

Change = tuple[Literal["add", "delete", "clear"], Message | None]


class Memory:
    """Messages, oldest first, each once. `origin` is the joint origin of all messages it has ever held."""

    def __init__(self) -> None:
        self._messages: dict[int, Message] = {}  # by the identity of the object, as its id may be set later
        self._ids: dict[str, Message] = {}
        self._cleared: list[tuple[dict[int, Message], dict[str, Message]]] = []
        self.changes: list[Change] = []
        self.origin = Origin()

    def add(self, message: Message) -> None:
        """Add a message. Ignore a known message."""
        if message not in self:
            self.read(message)
            self.changes.append(("add", message))

    def add_batch(self, messages: Iterable[Message]) -> None:
        for message in messages:
            self.add(message)

    def delete(self, message: Message) -> None:
        """Delete a message, if the memory holds it."""
        if message in self:
            self._forget(message)
            self.changes.append(("delete", message))

    def delete_newest(self) -> Message | None:
        """Delete the newest message and return it, or None if there is none."""
        newest = next(reversed(self._messages.values()), None)
        if newest is not None:
            self.delete(newest)
        return newest

    def clear(self) -> None:
        self._cleared.append((self._messages, self._ids))
        self._messages, self._ids = {}, {}
        self.changes.append(("clear", None))

    def read(self, message: Message) -> None:
        """Add a published message without recording a change. Ignore a known message."""
        if message in self:
            return
        self._messages[id(message)] = message
        if message.origin != Origin():
            both = (self.origin, message.origin)
            sources = dict.fromkeys(source for origin in both for source in origin.source.split(", ") if source)
            self.origin = Origin(", ".join(sources), all(origin.trusted for origin in both))
        if message.id:
            self._ids[message.id] = message

    def get(self, k: int = 0) -> list[Message]:
        """Return the newest k messages, or all if k is 0, oldest first."""
        return list(islice(reversed(self._messages.values()), k or None))[::-1]

    def get_by_role(self, role: str) -> list[Message]:
        """Return the messages of a profile."""
        return [message for message in self if message.role == role]

    def get_by_content(self, content: str) -> list[Message]:
        return [message for message in self if content in message.content]

    def get_by_action(self, action: Any) -> list[Message]:
        return [message for message in self if message.cause_by == cause_of(action)]

    def get_by_actions(self, actions: Iterable[Any]) -> list[Message]:
        """Return the messages caused by any of these actions, grouped by action."""
        return [message for action in dict.fromkeys(map(cause_of, actions)) for message in self.get_by_action(action)]

    def find_news(self, observed: Iterable[Message], k: int = 0) -> list[Message]:
        """Return the observed messages that are not among the newest k, or, if k is 0, among any of these."""
        old_messages = self.get(k) if k else self
        return [message for message in observed if message not in old_messages]

    def try_remember(self, keyword: str) -> list[Message]:
        return self.get_by_content(keyword)

    def count(self) -> int:
        return len(self)

    @property
    def index(self) -> dict[str, list[Message]]:
        """Return the messages by the action that caused them."""
        return defaultdict(list, {message.cause_by: self.get_by_action(message.cause_by) for message in self})

    @property
    def storage(self) -> list[Message]:
        return self.get()

    def __len__(self) -> int:
        return len(self._messages)

    def __iter__(self) -> Iterator[Message]:
        return iter(list(self._messages.values()))

    def __contains__(self, message: Message) -> bool:
        return id(message) in self._messages or (message.id != "" and message.id in self._ids)

    def __bool__(self) -> bool:
        return True  # even if empty

    def name(self, message: Message, id_: str) -> None:
        """Give a message its id, whether or not the memory already holds it."""
        message.id = id_
        if id(message) in self._messages:
            self._ids[id_] = message

    def keep(self) -> None:
        """Make the changes of a turn permanent."""
        self.changes.clear()
        self._cleared.clear()

    def undo(self) -> None:
        """Undo the changes of an interrupted turn. Deleted messages return as the newest."""
        for kind, message in reversed(self.changes):
            if kind == "clear" or message is None:
                self._messages, self._ids = self._cleared.pop()
            elif kind == "add":
                self._forget(message)
            else:
                self.read(message)
        self.keep()

    def _forget(self, message: Message) -> None:
        stored = message if id(message) in self._messages else self._ids[message.id]
        del self._messages[id(stored)]
        self._ids.pop(stored.id, None)
