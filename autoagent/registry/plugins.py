"""Finds what other distributions add by entry points.

An entry point of the group `autoagent` leads to a function, `register(host)`, which registers an extension. Groups such
as `autoagent.models` and `autoagent.memory` lead to a single record.

The search reads the entry points of every installed distribution (some milliseconds). Single records are imported when
asked for by name or listed, commands when a run starts, and extensions at the first lookup of a foreign name.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # --help loads this and no more
    from importlib.metadata import EntryPoint

    from autoagent.core.errors import SetupError
    from autoagent.registry.registrations import Registrations

PREFIX = "autoagent."
OURS = "autoagent"  # the distribution


@dataclass(frozen=True, slots=True)
class Plugin:
    """A thing added by a distribution: its group (`models`, '' for a whole extension), name, distribution and version.

    It is loaded from `entry`, or was registered as `record`.
    """

    group: str
    name: str
    distribution: str
    version: str
    entry: EntryPoint
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
            return self.entry.load()
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
        replace(one.plugin, group=group, name=one.plugin.name if group == "commands" else name, record=record)
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
    from importlib.metadata import distributions
    from pathlib import Path

    here = Path.cwd().resolve()
    places = [place for place in sys.path if Path(place).is_absolute() and Path(place).resolve() != here]
    found: dict[tuple[str, str, str], Plugin] = {}
    for distribution in distributions(path=places):
        for entry in distribution.entry_points:
            if f"{entry.group}.".startswith(PREFIX):
                group = entry.group.removeprefix(PREFIX.rstrip(".")).removeprefix(".")
                plugin = Plugin(group, entry.name, distribution.name, distribution.version, entry)
                found.setdefault((distribution.name, group, entry.name), plugin)  # an older one is behind it
    return tuple(found.values())


def imported_when_called(place: str) -> Callable[..., Any]:
    """Return the function at `package.module:name`, imported when it is first called."""

    def call(*args: Any, **kwargs: Any) -> Any:
        from importlib import import_module

        module, _, name = place.partition(":")
        return getattr(import_module(module), name)(*args, **kwargs)

    return call
