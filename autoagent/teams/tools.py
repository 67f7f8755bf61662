"""Collect the commands of a team's roles, including the program's own functions."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from autoagent.commands import selection
from autoagent.commands.context import Context
from autoagent.commands.registry import Command, Registry, command
from autoagent.core.commands import CommandSpec
from autoagent.core.errors import CommandError, SettingsError
from autoagent.session.extension_hooks import hooked_registry
from autoagent.settings import Settings
from autoagent.teams.action import Tool, name_of
from autoagent.teams.role import Role

NO_WRITER = "no file can be written here; `autoagent commands` says why."


def command_of(tool: Command | Callable[..., Any]) -> Command:
    """Return a command for a function, with its name, the first line of its docstring and its typed arguments.

    The command declares no effects, so each call needs approval, and its result counts as private text from outside.
    Raises SettingsError for an argument whose type a model cannot provide.
    """
    if isinstance(tool, Command):
        return tool

    @functools.wraps(tool)
    def run(context: Context, **arguments: Any) -> str:
        try:
            result = tool(**arguments)
            return str(asyncio.run(result) if inspect.iscoroutine(result) else result)
        except Exception as error:  # the model is told, and may continue
            raise CommandError(f"{type(error).__name__}: {error}") from error

    signature = inspect.signature(tool)
    context_parameter = inspect.Parameter("context", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    vars(run)["__signature__"] = signature.replace(parameters=[context_parameter, *signature.parameters.values()])
    label = (inspect.getdoc(tool) or tool.__name__.replace("_", " ")).splitlines()[0].rstrip(".")
    try:
        return command(tool.__name__, label, risk="write", category="tools")(run)
    except (KeyError, NameError, TypeError, ValueError, StopIteration) as error:
        raise SettingsError(
            f"The tool {tool.__name__} has an argument that a model cannot give ({error}): "
            "annotate each as str, int, float, bool or list."
        ) from None


def commands_of(tools: Iterable[Tool], command_names: Iterable[str]) -> list[Command]:
    """Return the commands for the tools that are not mere names, each once.

    Raises SettingsError for two tools of the same name, or for a name in `command_names`.
    """
    functions = [tool for tool in tools if not isinstance(tool, str)]
    by_name = {name_of(tool): tool for tool in functions}
    duplicates = [name_of(tool) for tool in functions if by_name[name_of(tool)] is not tool]
    if duplicates := [*duplicates, *by_name.keys() & set(command_names)]:
        raise SettingsError(f"The tool {duplicates[0]!r} has the name of a command; rename it.")
    return [command_of(tool) for tool in by_name.values()]


def registry_of(roles: Sequence[Role], settings: Settings, added: Sequence[Command]) -> Registry:
    """Return the available commands that agents of these roles may use. `added` includes those of extensions.

    Raises SettingsError if a role names a command that is not among them.
    """
    registry = hooked_registry(selection.available(settings, added))
    asking_names = {spec.name for spec in registry.specs if spec.effects is not None and spec.effects.asks_user}
    agent_names = {spec.name for spec in registry.specs if spec.effects is not None and spec.effects.tells_agents}
    registry = registry.without(asking_names, "in a team a role with is_human asks the user")
    registry = registry.without(agent_names, "in a team the roles work together")
    for role in roles:
        for action in role.actions:
            specs_of(registry, tuple(map(name_of, action.commands)), f"{role}, {action}: ")
            if action.file and not any(map(writes_whole, registry.specs)):
                raise SettingsError(f"{role}, {action}: {NO_WRITER}")
    return registry


def writes_whole(spec: CommandSpec) -> bool:
    """Return whether a command writes a whole file."""
    return spec.effects is not None and spec.effects.writes_whole


def ends_run(spec: CommandSpec) -> bool:
    """Return whether a command ends the run of the agent that uses it."""
    return spec.effects is not None and spec.effects.ends_run


def specs_of(registry: Registry, names: Sequence[str], prefix: str = "") -> tuple[CommandSpec, ...]:
    """Return the specs of these commands and of those that end a run. Raises SettingsError for an unknown name."""
    full_names = {name: spec.name for spec in registry.specs for name in (spec.name, *spec.aliases)}
    if unknown := [name for name in names if name not in full_names]:
        raise SettingsError(f"{prefix}there is no command {unknown[0]!r} here; `autoagent commands` says why.")
    chosen_names = {full_names[name] for name in names}
    return tuple(spec for spec in registry.specs if spec.name in chosen_names or ends_run(spec))
