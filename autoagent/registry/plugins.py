"""Look up named records: the program's own, and additions by other distributions through entry points.

An entry point of the group `autoagent` names a function, `register(host)`, which registers an extension. Groups such as
`autoagent.models` and `autoagent.memory` name a single record.

The entry points of every installed distribution are read directly, in a millisecond or two, because the first question
waits for it and `importlib.metadata` takes seventy. Single records are imported when requested or listed, parts of
folders when the settings are loaded, commands when a run starts, and extensions with the first of these.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from autoagent.core.frozen import dataclass

if TYPE_CHECKING:  # keep --help fast
    from autoagent.core.errors import SetupError
    from autoagent.registry.registrations import Registrations

PREFIX = "autoagent."
_OWN_DISTRIBUTION = "autoagent"


@dataclass(frozen=True, slots=True)
class Plugin:
    """An addition by a distribution."""

    group: str  # such as `models`, '' for a whole extension
    name: str
    distribution: str
    version: str
    place: str  # where to load the record from: `module` or `module:name`
    record: Any = None  # as registered by an extension

    @property
    def is_ours(self) -> bool:
        return self.distribution == _OWN_DISTRIBUTION

    @property
    def description(self) -> str:
        """Describe the plug-in: `acme of acme-agents 1.2`."""
        return f"{self.name} of {self.distribution} {self.version}"

    def load(self) -> Any:
        """Load the record. Raises SetupError with the distribution's name for any import error."""
        if self.record is not None:
            return self.record
        try:
            return _import(self.place)
        except (Exception, SystemExit) as error:  # foreign code may raise anything; name its distribution
            raise self.refuse(f"cannot be loaded: {type(error).__name__}: {error}") from error

    def refuse(self, problem: str) -> SetupError:
        from autoagent.core.errors import SetupError

        return SetupError(
            f"The plug-in {self.description} ({f'{PREFIX}{self.group}'.rstrip('.')}) {problem}. "
            f"Update {self.distribution}, or remove it: pip uninstall {self.distribution}."
        )


def plugins(group: str) -> tuple[Plugin, ...]:
    """Return the plug-ins of a group in the order of discovery, with records of extensions last."""
    single_records = [plugin for plugin in _find_installed() if plugin.group == group]
    extension_records = [
        replace(entry.plugin, group=group, name=name or entry.plugin.name, record=record)
        for entry in extensions()
        for name, record in entry.registrations.of(group)
    ]
    return (*single_records, *extension_records)


@dataclass(frozen=True, slots=True)
class Extension:
    """An extension with its registrations, or its problem in one line."""

    plugin: Plugin
    registrations: Registrations
    problem: str = ""


@cache
def extensions() -> tuple[Extension, ...]:
    """Return all extensions, registered. A failing extension registers nothing."""
    from autoagent.core.errors import SetupError
    from autoagent.registry.registrations import Registrations

    found = []
    for plugin in (plugin for plugin in _find_installed() if plugin.group == ""):
        registrations, problem = Registrations(), ""
        try:
            plugin.load()(registrations)
        except SetupError as error:
            registrations, problem = Registrations(), str(error)
        except (Exception, SystemExit) as error:  # foreign code may raise anything; name its distribution
            failure = plugin.refuse(f"cannot be used: its register raises {type(error).__name__}: {error}")
            registrations, problem = Registrations(), str(failure)
        found.append(Extension(plugin, registrations, problem))
    return tuple(found)


def plugins_of_other_groups(known_groups: tuple[str, ...]) -> list[Plugin]:
    """Return the plug-ins of unknown groups, to report misspelled groups."""
    return [plugin for plugin in _find_installed() if plugin.group and plugin.group not in known_groups]


@cache
def _find_installed() -> tuple[Plugin, ...]:
    """Return all plug-ins of installed distributions, ignoring the current folder, which is untrusted."""
    current_folder = os.path.realpath(os.getcwd())  # noqa: PTH109 - pathlib is not loaded yet
    plugins: dict[tuple[str, str, str], Plugin] = {}
    for folder in sys.path:
        if os.path.isabs(folder) and os.path.realpath(folder) != current_folder:  # noqa: PTH117
            for plugin in _find_in(folder):
                key = plugin.distribution, plugin.group, plugin.name
                plugins.setdefault(key, plugin)  # an older version is shadowed
    return tuple(plugins.values())


def _find_in(folder: str) -> Iterator[Plugin]:
    """Yield the plug-ins of the distributions in a folder of `sys.path`."""
    try:
        names = sorted(name for name in os.listdir(folder) if name.endswith((".dist-info", ".egg-info")))  # noqa: PTH208
    except OSError:
        return
    for name in names:
        path = os.path.join(folder, name)  # noqa: PTH118
        if _OWN_DISTRIBUTION in (text := _read(os.path.join(path, "entry_points.txt"))):  # noqa: PTH118
            metadata = _read(os.path.join(path, "METADATA")) or _read(os.path.join(path, "PKG-INFO"))  # noqa: PTH118
            headers = dict(line.split(": ", 1) for line in metadata.partition("\n\n")[0].splitlines() if ": " in line)
            for group, entry, value in _entry_points(text):
                yield Plugin(group, entry, headers.get("Name", name), headers.get("Version", ""), value)


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:  # noqa: PTH123
            return file.read()
    except OSError:
        return ""


def _entry_points(text: str) -> Iterator[tuple[str, str, str]]:
    """Yield our entry points of a distribution: group without our prefix, name, place."""
    group: str | None = None
    for line in map(str.strip, text.splitlines()):
        if line.startswith("["):
            prefix = f"{line[1:].rstrip(']')}."
            group = prefix.removeprefix(PREFIX).removesuffix(".") if prefix.startswith(PREFIX) else None
        elif group is not None and "=" in line and line[0] not in "#;":
            name, _, place = line.partition("=")
            yield group, name.strip(), place.partition("[")[0].strip()  # without its extras


def _import(place: str) -> Any:
    """Import the object at `module` or `module:name`."""
    from importlib import import_module

    module, _, attributes = place.partition(":")
    target: Any = import_module(module)
    for name in filter(None, attributes.split(".")):
        target = getattr(target, name)
    return target


def lazy_function(place: str) -> Callable[..., Any]:
    """Return the function at `package.module:name`, imported on its first call."""

    def call(*args: Any, **kwargs: Any) -> Any:
        return _import(place)(*args, **kwargs)

    return call


def join_with_or(words: Iterable[str]) -> str:
    """Join as `a, b or c`."""
    *first, last = words
    return f"{', '.join(first)} or {last}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Registered:
    """A record of a table, with its name, one line of help, and its aliases."""

    name: str
    summary: str
    aliases: tuple[str, ...] = ()


Record = TypeVar("Record", bound=Registered)


class Table(Generic[Record]):
    """Our own records in order, followed by the plug-ins of a group. Our own names take precedence."""

    def __init__(self, group: str, kind: type[Record], builtin: Sequence[Record]) -> None:
        self.group = group
        self.builtin = tuple(builtin)
        self._kind = kind
        self._builtin = {name: record for record in builtin for name in (record.name, *record.aliases)}

    def names(self) -> list[str]:
        """Return all names, including aliases."""
        return [*self._builtin, *self._plugins()]

    def knows(self, name: str) -> bool:
        """Return whether the name exists, without importing plug-ins."""
        return name in self._builtin or name in self._plugins()

    def is_third_party(self, name: str) -> bool:
        """Return whether another distribution adds the name. Our own extensions count as built in."""
        return name not in self._builtin and name in self._plugins() and not self._plugins()[name].is_ours

    def find(self, name: str) -> Record:
        """Return the record of a known name. Raises SetupError for an unusable plug-in."""
        return self._builtin[name] if name in self._builtin else self._load(self._plugins()[name])

    def canonical(self, text: str) -> str:
        """Return the record's name for a user's input. Raises ValueError, which lists the valid names."""
        name = text if self.knows(text) else text.lower()
        if not self.knows(name):
            raise ValueError(f"must be one of {', '.join(self.names())}, not {text!r}.")
        return self._builtin[name].name if name in self._builtin else name

    def plugins_with_records(self) -> Iterator[tuple[Plugin, Record | SetupError]]:
        """Yield each plug-in with its record, or the error."""
        from autoagent.core.errors import SetupError

        for plugin in plugins(self.group):
            try:
                yield plugin, self._load(plugin)
            except SetupError as error:
                yield plugin, error

    def _plugins(self) -> dict[str, Plugin]:
        """Return the plug-ins by name. The first plug-in with a name wins."""
        by_name: dict[str, Plugin] = {}
        for plugin in plugins(self.group):
            if plugin.name not in self._builtin:
                by_name.setdefault(plugin.name, plugin)
        return by_name

    def _load(self, plugin: Plugin) -> Record:
        if plugin.name in self._builtin:
            raise plugin.refuse("cannot be used: autoagent itself has this name")
        if plugin != (first := self._plugins()[plugin.name]):
            raise plugin.refuse(f"cannot be used: {first.description} already has this name")
        record = plugin.load()
        if not isinstance(record, self._kind):
            raise plugin.refuse(f"cannot be used: it is not a {self._kind.__name__}")
        if record.name != plugin.name or record.aliases:
            raise plugin.refuse(f"cannot be used: its record is named {', '.join((record.name, *record.aliases))}")
        return record
