"""Plug-ins: what other distributions add by entry points, in
the groups `autoagent.models`, `autoagent.memory` and so on.

Looking for them reads the entry points of every installed distribution (some milliseconds) and imports none of them:
one is imported when it is asked for by its name, or when all are shown. Commands are, where a run's are put together.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # --help loads this and no more
    from importlib.metadata import EntryPoint

    from autoagent.core.errors import SetupError

PREFIX = "autoagent."


@dataclass(frozen=True, slots=True)
class Plugin:
    """One entry point: its group (`models`), the name it adds, the distribution it came with and its version."""

    group: str
    name: str
    distribution: str
    version: str
    entry: EntryPoint

    @property
    def called(self) -> str:
        """`acme of acme-agents 1.2`."""
        return f"{self.name} of {self.distribution} {self.version}"

    def load(self) -> Any:
        """Load what it adds. Raises SetupError, which names the distribution, for whatever its import raises."""
        try:
            return self.entry.load()
        except (Exception, SystemExit) as error:  # the code of others: whatever it raises, the line says whose it is
            raise self.refuse(f"cannot be loaded: {type(error).__name__}: {error}") from error

    def refuse(self, problem: str) -> SetupError:
        """Return the error that says what is wrong with it, and what to do."""
        from autoagent.core.errors import SetupError

        return SetupError(
            f"The plug-in {self.called} ({PREFIX}{self.group}) {problem}. "
            f"Update {self.distribution}, or remove it: pip uninstall {self.distribution}."
        )


def plugins(group: str) -> tuple[Plugin, ...]:
    """Return the plug-ins of a group, in the order in which they were found."""
    return tuple(plugin for plugin in _installed() if plugin.group == group)


def groups_but(known: tuple[str, ...]) -> list[Plugin]:
    """Return the plug-ins of unknown groups, as a misspelt one would otherwise be missed in silence."""
    return [plugin for plugin in _installed() if plugin.group not in known]


@cache
def _installed() -> tuple[Plugin, ...]:
    """Return all plug-ins. Nothing in the current folder is installed: whatever lies there may be a stranger's."""
    from importlib.metadata import distributions
    from pathlib import Path

    here = Path.cwd().resolve()
    places = [place for place in sys.path if Path(place).is_absolute() and Path(place).resolve() != here]
    found: dict[tuple[str, str, str], Plugin] = {}
    for distribution in distributions(path=places):
        for entry in distribution.entry_points:
            if entry.group.startswith(PREFIX):
                group = entry.group.removeprefix(PREFIX)
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
