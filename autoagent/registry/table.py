"""Look up named records: the program's own, and those of plug-ins."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Generic, TypeVar

from autoagent.core.frozen import dataclass
from autoagent.registry.plugins import Plugin, plugins

if TYPE_CHECKING:
    from autoagent.core.errors import SetupError


def join_with_or(words: Iterable[str]) -> str:
    """Join as `a, b or c`."""
    *first, last = words
    return f"{', '.join(first)} or {last}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Registered:
    """Hold a named record of a table: its name, one line of help, and its aliases."""

    name: str
    summary: str
    aliases: tuple[str, ...] = ()


Record = TypeVar("Record", bound=Registered)


class Table(Generic[Record]):
    """Hold our own records in order, followed by the plug-ins of a group. Our own names take precedence."""

    def __init__(self, group: str, kind: type[Record], own: Sequence[Record]) -> None:
        self.group = group
        self.own = tuple(own)
        self._kind = kind
        self._own = {name: record for record in own for name in (record.name, *record.aliases)}

    def names(self) -> list[str]:
        """Return all names, including aliases."""
        return [*self._own, *self._added()]

    def knows(self, name: str) -> bool:
        """Return whether the name exists, without importing plug-ins."""
        return name in self._own or name in self._added()

    def is_added(self, name: str) -> bool:
        """Return whether another distribution adds it. Our own extensions count as built in."""
        return name not in self._own and name in self._added() and not self._added()[name].is_ours

    def find(self, name: str) -> Record:
        """Return the record of a known name. Raises SetupError for an unusable plug-in."""
        return self._own[name] if name in self._own else self._load(self._added()[name])

    def canonical(self, text: str) -> str:
        """Return the record's name for a user's input. Raises ValueError, which lists the valid names."""
        name = text if self.knows(text) else text.lower()
        if not self.knows(name):
            raise ValueError(f"must be one of {', '.join(self.names())}, not {text!r}.")
        return self._own[name].name if name in self._own else name

    def added(self) -> Iterator[tuple[Plugin, Record | SetupError]]:
        """Yield each plug-in with its record, or the error."""
        from autoagent.core.errors import SetupError

        for plugin in plugins(self.group):
            try:
                yield plugin, self._load(plugin)
            except SetupError as error:
                yield plugin, error

    def _added(self) -> dict[str, Plugin]:
        """Return the plug-ins by name. The first plug-in with a name wins."""
        found: dict[str, Plugin] = {}
        for plugin in plugins(self.group):
            if plugin.name not in self._own:
                found.setdefault(plugin.name, plugin)
        return found

    def _load(self, plugin: Plugin) -> Record:
        if plugin.name in self._own:
            raise plugin.refuse("cannot be used: autoagent itself has this name")
        if plugin != (first := self._added()[plugin.name]):
            raise plugin.refuse(f"cannot be used: {first.description} already has this name")
        record = plugin.load()
        if not isinstance(record, self._kind):
            raise plugin.refuse(f"cannot be used: it is not a {self._kind.__name__}")
        if record.name != plugin.name or record.aliases:
            raise plugin.refuse(f"cannot be used: its record is named {', '.join((record.name, *record.aliases))}")
        return record
