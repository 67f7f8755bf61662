"""Plain Python functions as commands of a team's roles."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any

from autoagent.commands.context import Context
from autoagent.commands.registry import Command, command
from autoagent.core.errors import CommandError, SettingsError
from autoagent.teams.action import Tool, name_of


def command_of(tool: Command | Callable[..., Any]) -> Command:
    """Return the command of a function: its name, the first line of its docstring, its typed arguments.

    It declares no effects, so each call needs approval, and its result counts as text from outside and as private.
    Raises SettingsError for an argument without a type that a model can give.
    """
    if isinstance(tool, Command):
        return tool

    @functools.wraps(tool)
    def run(context: Context, **given: Any) -> str:
        try:
            found = tool(**given)
            return str(asyncio.run(found) if inspect.iscoroutine(found) else found)
        except Exception as error:  # the model is told, and may go on
            raise CommandError(f"{type(error).__name__}: {error}") from error

    signature = inspect.signature(tool)
    first = inspect.Parameter("context", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    vars(run)["__signature__"] = signature.replace(parameters=[first, *signature.parameters.values()])
    label = (inspect.getdoc(tool) or tool.__name__.replace("_", " ")).splitlines()[0].rstrip(".")
    try:
        return command(tool.__name__, label, risk="write", category="tools")(run)
    except (KeyError, NameError, TypeError, ValueError, StopIteration) as error:
        raise SettingsError(
            f"The tool {tool.__name__} has an argument that a model cannot give ({error}): "
            "annotate each as str, int, float, bool or list."
        ) from None


def commands_of(tools: Iterable[Tool], known: Iterable[str]) -> list[Command]:
    """Return the commands of the tools not given by name, each once.

    Raises SettingsError for two tools of the same name, or for a name in `known`.
    """
    own = [tool for tool in tools if not isinstance(tool, str)]
    found = {name_of(tool): tool for tool in own}
    taken = [name_of(tool) for tool in own if found[name_of(tool)] is not tool]
    if taken := [*taken, *found.keys() & set(known)]:
        raise SettingsError(f"The tool {taken[0]!r} has the name of a command; rename it.")
    return [command_of(tool) for tool in found.values()]
