"""The commands there are, those that this machine and these settings allow, and those that suit the goals."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from difflib import get_close_matches
from functools import cache
from importlib import import_module

from autoagent.commands.added import AddedCommands, added_commands
from autoagent.commands.context import Context
from autoagent.commands.registry import Command, Registry, command
from autoagent.core.commands import CommandSpec, Effects, prompt_line
from autoagent.core.errors import CommandError, SettingsError, SetupError
from autoagent.core.model import SMALL_WINDOW
from autoagent.core.tool_servers import PREFIX
from autoagent.settings import Settings

LOADER = "more_commands"
"""The command that loads a group of others."""

# Each is a module here with its commands.
_OWN = ("files", "code", "web", "git", "media", "agents", "levels", "memory", "system")

_AUTOGPT = "autogpt.commands."  # before the names of its modules, which its settings hold
_AUTOGPT_ALONE = ("times",)  # its modules without a counterpart among the commands here


def own_commands() -> tuple[Command, ...]:
    """Return the program's own commands, in the order of the prompt."""
    modules = [import_module(f"autoagent.commands.{category}") for category in _OWN]
    return tuple(command for module in modules for command in module.COMMANDS)


@cache
def added() -> tuple[AddedCommands, ...]:
    """Return the plug-ins' additions, with any problems."""
    specs = [command.spec for command in own_commands()]
    return tuple(added_commands({name for spec in specs for name in (spec.name, *spec.aliases)}))


def all_commands() -> tuple[Command, ...]:
    """Return every command, in the order of the prompt: those of plug-ins come last."""
    return (*own_commands(), *(command for one in added() for command in one.commands))


def categories() -> list[str]:
    """Return the categories of all commands."""
    return list(dict.fromkeys((*_OWN, *(spec.category for spec in all_specs()))))


def all_specs() -> tuple[CommandSpec, ...]:
    """Return the declaration of every command."""
    return tuple(command.spec for command in all_commands())


def all_names() -> frozenset[str]:
    """Return the names of all commands, those they had before among them."""
    return frozenset(name for spec in all_specs() for name in (spec.name, *spec.aliases))


def available(settings: Settings, more: Sequence[Command] = ()) -> Registry:
    """Return the commands usable with these settings. The others are known with the reason why they are not.

    `more` are those of MCP servers and plug-ins, which are there only while these run. Raises SettingsError for a
    category to switch off that there is not.
    """
    off: dict[str, str] = {}
    for category in settings.disabled_command_categories:
        reason = f"the category {category} is switched off (DISABLED_COMMAND_CATEGORIES)"
        named = {one.spec.name: reason for one in more if category in (one.spec.name, one.spec.category)}
        if not (named or category.startswith(PREFIX)):
            named = dict.fromkeys(_meant("DISABLED_COMMAND_CATEGORIES", category, all_specs()), reason)
        off.update(named)
    usable, reasons = [], {}
    stand_ins: dict[str, str] = {}
    for known in (*all_commands(), *more):
        spec = known.spec
        reason = off.get(spec.name) or _reason(known, settings)
        if reason:
            reasons.update(dict.fromkeys((spec.name, *spec.aliases), reason))
            if spec.stand_in and spec.name not in off:
                stand_ins.update(dict.fromkeys((spec.name, *spec.aliases), spec.stand_in))
        else:
            usable.append(known)
    return Registry(usable, reasons, stand_ins)


def _reason(command: Command, settings: Settings) -> str:
    """Explain why a command cannot be used with these settings, or '' if it can."""
    try:
        return command.available(settings) if command.available else ""
    except SetupError as error:  # a plug-in that they choose
        return str(error)


def choose(registry: Registry, wanted: Sequence[str], window: int, *, guided: bool = False) -> Registry:
    """Return the commands of a run: those the user names (names or categories, `all`), else all.

    If the user names none, rare commands are loaded by group on demand. So are commands that distract a `guided` model,
    and in a small window all but the most usual ones. The command that ends the run is always offered. Raises
    SettingsError for a wanted name that is neither a command nor a category, or cannot be used here.
    """
    names = {spec.name for spec in registry.specs}
    chosen: set[str] = set()
    for name in wanted:
        known = (*all_specs(), *registry.specs)
        chosen |= names if name == "all" else set(_meant("--commands (AUTOAGENT_COMMANDS)", name, known))
        if reason := registry.switched_off.get(name):
            raise SettingsError(f"--commands (AUTOAGENT_COMMANDS): {name}: {reason}.")
    if not wanted:
        return grouped(registry, guided=guided, small=window < SMALL_WINDOW)
    ending = {spec.name for spec in registry.specs if spec.effects is not None and spec.effects.ends_run}
    return registry.only(chosen | ending, "it is not offered in this run")


def grouped(registry: Registry, *, guided: bool, small: bool) -> Registry:
    """Return the registry with a command that loads the groups of those which are not offered from the start."""
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
    held = "; ".join(f"{group}: {', '.join(names)}" for group, names in groups.items())
    bound = replace(loader.spec, parameters=(replace(parameter, choices=tuple(groups), help=held),))
    by_name = {name: group for group, names in groups.items() for name in names}
    return registry.grouped(by_name, replace(loader, spec=bound))


def _meant(setting: str, name: str, specs: Iterable[CommandSpec]) -> list[str]:
    """Return those of the commands that a category, a command (or alias) or a module of AutoGPT stands for.

    Raises SettingsError if it is none of them. `setting` is where it was named.
    """
    known: dict[str, list[str]] = {_AUTOGPT + module: [] for module in _AUTOGPT_ALONE}
    for spec in specs:
        modules = (module if "." in module else _AUTOGPT + module for module in spec.autogpt)
        for called in (spec.category, spec.name, *spec.aliases, *modules):
            known.setdefault(called.lower(), []).append(spec.name)
    if name.lower() not in known:
        near = get_close_matches(name.lower(), known, n=1)
        hint = f" Did you mean {near[0]}?" if near else ""
        raise SettingsError(
            f"{setting}: there is neither a command nor a category {name!r}.{hint} The categories are "
            f"{', '.join(categories())}."
        )
    return known[name.lower()]
