"""Finds what other distributions add by entry points.

An entry point of the group `autoagent` leads to a function, `register(host)`, which registers an extension. Groups such
as `autoagent.models` and `autoagent.memory` lead to a single record.

The search reads the entry points of every installed distribution by hand, in a millisecond or two: the first question
waits for it, and `importlib.metadata` takes seventy. Single records are imported when asked for by name or listed,
parts of folders when the settings are loaded, commands when a run starts, and extensions with the first of these.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # --help loads this and no more
    from autoagent.core.errors import SetupError
    from autoagent.registry.registrations import Registrations

PREFIX = "autoagent."
OURS = "autoagent"  # the distribution


@dataclass(frozen=True, slots=True)
class Plugin:
    """A thing added by a distribution: its group (`models`, '' for a whole extension), name, distribution and version.

    It is loaded from `place` (`module` or `module:name`), or was registered as `record`.
    """

    group: str
    name: str
    distribution: str
    version: str
    place: str
    record: Any = None

    @property
    def is_ours(self) -> bool:
        """Whether it comes with the program itself."""
        return self.distribution == OURS

    @property
    def called(self) -> str:
        """`acme of acme-agents 1.2`."""
        return f"{self.name} of {self.distribution} {self.version}"

    def load(self) -> Any:
        """Load it. Raises SetupError with the distribution's name for anything its import raises."""
        if self.record is not None:
            return self.record
        try:
            return _imported(self.place)
        except (Exception, SystemExit) as error:  # the code of others: whatever it raises, the line says whose it is
            raise self.refuse(f"cannot be loaded: {type(error).__name__}: {error}") from error

    def refuse(self, problem: str) -> SetupError:
        """Return an error with the problem and the remedy."""
        from autoagent.core.errors import SetupError

        return SetupError(
            f"The plug-in {self.called} ({f'{PREFIX}{self.group}'.rstrip('.')}) {problem}. "
            f"Update {self.distribution}, or remove it: pip uninstall {self.distribution}."
        )


def plugins(group: str) -> tuple[Plugin, ...]:
    """Return the plug-ins of a group in the order of discovery, with records of extensions last."""
    alone = [plugin for plugin in _installed() if plugin.group == group]
    registered = [
        replace(one.plugin, group=group, name=name or one.plugin.name, record=record)
        for one in extensions()
        for name, record in one.added.of(group)
    ]
    return (*alone, *registered)


@dataclass(frozen=True, slots=True)
class Extension:
    """An extension: its registrations, or its problem in a line ('' for none)."""

    plugin: Plugin
    added: Registrations
    problem: str = ""


@cache
def extensions() -> tuple[Extension, ...]:
    """Return all extensions, registered. A failing extension has registered nothing."""
    return tuple(_registered(plugin) for plugin in _installed() if plugin.group == "")


def _registered(plugin: Plugin) -> Extension:
    from autoagent.core.errors import SetupError
    from autoagent.registry.registrations import Registrations

    added = Registrations()
    try:
        plugin.load()(added)
    except SetupError as error:
        return Extension(plugin, Registrations(), str(error))
    except (Exception, SystemExit) as error:  # the code of others: whatever it raises, the line says whose it is
        problem = f"cannot be used: its register raises {type(error).__name__}: {error}"
        return Extension(plugin, Registrations(), str(plugin.refuse(problem)))
    return Extension(plugin, added)


def groups_but(known: tuple[str, ...]) -> list[Plugin]:
    """Return the plug-ins of unknown groups, to report misspelled groups."""
    return [plugin for plugin in _installed() if plugin.group and plugin.group not in known]


@cache
def _installed() -> tuple[Plugin, ...]:
    """Return all plug-ins of installed distributions, ignoring the current folder, whose files may be a stranger's."""
    here = os.path.realpath(os.getcwd())  # noqa: PTH109 - pathlib is not loaded yet
    found: dict[tuple[str, str, str], Plugin] = {}
    for place in sys.path:
        if os.path.isabs(place) and os.path.realpath(place) != here:  # noqa: PTH117
            for plugin in _in_place(place):
                key = plugin.distribution, plugin.group, plugin.name
                found.setdefault(key, plugin)  # an older one is behind it
    return tuple(found.values())


def _in_place(place: str) -> Iterator[Plugin]:
    """Yield the plug-ins of the distributions in a folder of `sys.path`."""
    try:
        names = sorted(name for name in os.listdir(place) if name.endswith((".dist-info", ".egg-info")))  # noqa: PTH208
    except OSError:
        return
    for name in names:
        folder = os.path.join(place, name)  # noqa: PTH118
        if OURS in (points := _read(os.path.join(folder, "entry_points.txt"))):  # noqa: PTH118
            metadata = _read(os.path.join(folder, "METADATA")) or _read(os.path.join(folder, "PKG-INFO"))  # noqa: PTH118
            about = dict(line.split(": ", 1) for line in metadata.partition("\n\n")[0].splitlines() if ": " in line)
            for group, entry, value in _entry_points(points):
                yield Plugin(group, entry, about.get("Name", name), about.get("Version", ""), value)


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:  # noqa: PTH123
            return file.read()
    except OSError:
        return ""


def _entry_points(text: str) -> Iterator[tuple[str, str, str]]:
    """Yield our entry points of a distribution: the group without our prefix, the name, the place."""
    group: str | None = None
    for line in map(str.strip, text.splitlines()):
        if line.startswith("["):
            called = f"{line[1:].rstrip(']')}."
            group = called.removeprefix(PREFIX).removesuffix(".") if called.startswith(PREFIX) else None
        elif group is not None and "=" in line and line[0] not in "#;":
            name, _, place = line.partition("=")
            yield group, name.strip(), place.partition("[")[0].strip()  # without the extras that it names


def _imported(place: str) -> Any:
    """Import what lies at `module` or `module:name`."""
    from importlib import import_module

    module, _, names = place.partition(":")
    found: Any = import_module(module)
    for name in filter(None, names.split(".")):
        found = getattr(found, name)
    return found


def imported_when_called(place: str) -> Callable[..., Any]:
    """Return the function at `package.module:name`, imported when it is first called."""

    def call(*args: Any, **kwargs: Any) -> Any:
        return _imported(place)(*args, **kwargs)

    return call
