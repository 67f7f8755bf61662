"""The commands that plug-ins add: entry points of the group `autoagent.commands`, each with its COMMANDS."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from autoagent.commands.registry import Command
from autoagent.core.errors import SetupError
from autoagent.registry.plugins import Plugin, plugins


@dataclass(frozen=True, slots=True)
class AddedCommands:
    """The commands of one plug-in, and its problem in a line, '' for none."""

    plugin: Plugin
    commands: tuple[Command, ...]
    problem: str = ""


def added_commands(own: Collection[str]) -> Iterator[AddedCommands]:
    """Yield the additions of each plug-in. A name or alias already taken (`own` at first) keeps its meaning."""
    taken = set(own)
    for plugin in plugins("commands"):
        try:
            offered = tuple(plugin.load().COMMANDS)
            wrong = next((one for one in offered if not isinstance(one, Command)), None)
            if wrong is not None:
                raise plugin.refuse(f"cannot be used: {wrong!r} in its COMMANDS is not made by @command")
        except SetupError as error:
            yield AddedCommands(plugin, (), str(error))
        except (AttributeError, TypeError):
            yield AddedCommands(plugin, (), str(plugin.refuse("cannot be used: it has no list of COMMANDS")))
        else:
            free = tuple(one for one in offered if taken.isdisjoint((one.spec.name, *one.spec.aliases)))
            left_out = [one.spec.name for one in offered if one not in free]
            taken |= {name for one in free for name in (one.spec.name, *one.spec.aliases)}
            said = f"adds {', '.join(left_out)}, which is left out: a command or alias of that name is there already"
            yield AddedCommands(plugin, free, str(plugin.refuse(said)) if left_out else "")
