"""Select commands: all of them, those that the machine and the settings allow, and those offered to the model."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cache
from importlib import import_module

from autoagent.commands.context import Context
from autoagent.commands.registry import Command, Registry, command
from autoagent.core.commands import SOURCE, CommandSpec, Effects, nearest, prompt_line, source_in
from autoagent.core.errors import CommandError, SettingsError, SetupError
from autoagent.core.frozen import dataclass
from autoagent.core.model import SMALL_WINDOW
from autoagent.registry.plugins import Plugin, plugins
from autoagent.settings import Settings

LOADER = "more_commands"
"""The name of the command for loading a group of others."""

NAME_TAKEN = "the name is taken, or reserved for the tools of servers"

# Each module here declares COMMANDS.
_OWN_MODULES = ("files", "code", "web", "agents", "memory", "system")

_AUTOGPT_PREFIX = "autogpt.commands."  # of AutoGPT's module names in its settings
_AUTOGPT_ONLY_MODULES = ("times",)  # without a counterpart here


def own_commands() -> tuple[Command, ...]:
    """Return the program's own commands, in the order of the prompt."""
    modules = [import_module(f"autoagent.commands.{category}") for category in _OWN_MODULES]
    return tuple(command for module in modules for command in module.COMMANDS)


@dataclass(frozen=True, slots=True)
class PluginCommands:
    """The commands of one plug-in, and its problem in a line, or ''."""

    plugin: Plugin
    commands: tuple[Command, ...]
    problem: str = ""


@cache
def plugin_commands() -> tuple[PluginCommands, ...]:
    """Return the plug-ins' commands and problems. A name or alias that is already taken keeps its meaning."""
    taken = {name for command in own_commands() for name in (command.spec.name, *command.spec.aliases)}
    additions = []
    for plugin in plugins("commands"):
        try:
            commands = tuple(plugin.load().COMMANDS)
            invalid = next((item for item in commands if not isinstance(item, Command)), None)
            if invalid is not None:
                raise plugin.refuse(f"cannot be used: {invalid!r} in its COMMANDS is not made by @command")
        except SetupError as error:
            commands, problem = (), str(error)
        except (AttributeError, TypeError):
            commands, problem = (), str(plugin.refuse("cannot be used: it has no list of COMMANDS"))
        else:
            commands, left_out = with_free_names(commands, taken)
            refusal = plugin.refuse(f"adds {', '.join(left_out)}, which is left out: {NAME_TAKEN}")
            problem = str(refusal) if left_out else ""
        additions.append(PluginCommands(plugin, commands, problem))
    return tuple(additions)


def with_free_names(commands: Iterable[Command], taken: set[str]) -> tuple[tuple[Command, ...], list[str]]:
    """Return the commands with unused names, which are added to `taken`, and the names of the others."""
    free, left_out = [], []
    for candidate in commands:
        names = {candidate.spec.name, *candidate.spec.aliases}
        if taken.isdisjoint(names) and not any(source_in(name.lower()) for name in names):
            taken |= names
            free.append(candidate)
        else:
            left_out.append(candidate.spec.name)
    return tuple(free), left_out


def all_commands() -> tuple[Command, ...]:
    """Return every command, in the order of the prompt, with plug-ins last."""
    return (*own_commands(), *(command for addition in plugin_commands() for command in addition.commands))


def categories() -> list[str]:
    """Return the categories of all commands."""
    return list(dict.fromkeys(spec.category for spec in all_specs()))


def all_specs() -> tuple[CommandSpec, ...]:
    """Return the declaration of every command."""
    return tuple(command.spec for command in all_commands())


def all_names() -> frozenset[str]:
    """Return the names and aliases of all commands."""
    return frozenset(name for spec in all_specs() for name in (spec.name, *spec.aliases))


def available(settings: Settings, more: Sequence[Command] = ()) -> Registry:
    """Return the commands usable with these settings. The registry explains any other.

    `more` are commands of running extensions. Raises SettingsError for an unknown category to switch off.
    """
    switched_off: dict[str, str] = {}
    specs = (*all_specs(), *(extra.spec for extra in more))
    for category in settings.disabled_command_categories:
        reason = f"the category {category} is switched off (DISABLED_COMMAND_CATEGORIES)"
        is_added = any(category in (extra.spec.name, extra.spec.category) for extra in more)
        may_be_added_later = re.fullmatch(SOURCE, category) and not nearest(category, all_names())
        if is_added or not may_be_added_later:
            names = _command_names("DISABLED_COMMAND_CATEGORIES", category, specs)
            switched_off.update(dict.fromkeys(names, reason))
    usable, reasons = [], {}
    stand_ins: dict[str, str] = {}
    for candidate in (*all_commands(), *more):
        spec = candidate.spec
        reason = switched_off.get(spec.name, "")
        if not reason and candidate.available:
            try:
                reason = candidate.available(settings)
            except SetupError as error:  # raised by the plug-in chosen in the settings
                reason = str(error)
        if reason:
            reasons.update(dict.fromkeys((spec.name, *spec.aliases), reason))
            if spec.stand_in and spec.name not in switched_off:
                stand_ins.update(dict.fromkeys((spec.name, *spec.aliases), spec.stand_in))
        else:
            usable.append(candidate)
    return Registry(usable, reasons, stand_ins)


def choose(registry: Registry, names: Sequence[str], window: int, *, guided: bool = False) -> Registry:
    """Return the commands of a run: those with the user's names or categories (or `all`), or all by default.

    By default, rare commands are loaded by group on demand. So are commands that distract a `guided` model, and in a
    small window all but the usual commands. The command to end the run is always offered. Raises SettingsError for an
    unknown or unusable name.
    """
    all_usable = {spec.name for spec in registry.specs}
    chosen: set[str] = set()
    for name in names:
        specs = (*all_specs(), *registry.specs)
        chosen |= all_usable if name == "all" else set(_command_names("--commands (AUTOAGENT_COMMANDS)", name, specs))
        if reason := registry.switched_off.get(name):
            raise SettingsError(f"--commands (AUTOAGENT_COMMANDS): {name}: {reason}.")
    if not names:
        return grouped(registry, guided=guided, small=window < SMALL_WINDOW)
    ending = {spec.name for spec in registry.specs if spec.effects is not None and spec.effects.ends_run}
    return registry.only(chosen | ending, "it is not offered in this run")


def grouped(registry: Registry, *, guided: bool, small: bool) -> Registry:
    """Group the commands that are not offered from the start, and add a command that loads a group."""
    groups: dict[str, list[str]] = {}
    for spec in registry.specs:
        if spec.rare or (small and not spec.always_offered) or (guided and spec.distracts):
            groups.setdefault(spec.category, []).append(spec.name)
    if not groups:
        return registry

    def more_commands(context: Context, group: str) -> str:
        if group not in groups:
            raise CommandError(f"There is no group {group!r}; the groups are {', '.join(groups)}.")
        lines = (prompt_line(registry.spec(name)) for name in groups[group])
        return "\n".join(["You can now use:", *lines])

    loader = command(
        LOADER,
        "Load a group of further commands",
        risk="read",
        repeatable=True,
        category="system",
        effects=Effects(loads_commands=True),
        always_offered=True,
    )(more_commands)
    (parameter,) = loader.spec.parameters
    contents = "; ".join(f"{group}: {', '.join(names)}" for group, names in groups.items())
    loader_spec = replace(loader.spec, parameters=(replace(parameter, choices=tuple(groups), help=contents),))
    by_name = {name: group for group, names in groups.items() for name in names}
    return registry.grouped(by_name, replace(loader, spec=loader_spec))


def _command_names(setting: str, name: str, specs: Iterable[CommandSpec]) -> list[str]:
    """Return the commands of a category, a name, an alias or a module of AutoGPT. Raises SettingsError."""
    names_by_key: dict[str, list[str]] = {_AUTOGPT_PREFIX + module: [] for module in _AUTOGPT_ONLY_MODULES}
    for spec in specs:
        modules = (module if "." in module else _AUTOGPT_PREFIX + module for module in spec.autogpt)
        for key in (spec.category, spec.name, *spec.aliases, *modules):
            names_by_key.setdefault(key.lower(), []).append(spec.name)
    if name.lower() not in names_by_key:
        similar = nearest(name.lower(), names_by_key)
        hint = f" Did you mean {similar}?" if similar else ""
        raise SettingsError(
            f"{setting}: there is neither a command nor a category {name!r}.{hint} The categories are "
            f"{', '.join(categories())}."
        )
    return names_by_key[name.lower()]
