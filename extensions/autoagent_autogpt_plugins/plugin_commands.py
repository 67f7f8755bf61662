"""Offer the commands that plug-ins add. They declare no effects, so the worst is assumed."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast

from autoagent.core.commands import CommandSpec, Parameter, ResultMeta
from autoagent.extension import Command, CommandError, CommandOutput, Context
from autoagent.text.quoting import defuse
from autoagent.text.sanitize import escape, shorten
from autoagent_autogpt_plugins.process import PluginError, PluginProcess

CATEGORY = "plugins"
MAX_COMMANDS = 100  # of one plug-in
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_RESERVED = "thoughts"  # an argument of every native tool call


def plugin_commands(
    process: PluginProcess, offered: Iterable[Mapping[str, Any]], taken: set[str], warn: Callable[[str], None]
) -> list[Command]:
    """Return the commands of a plug-in, and add their names to the `taken` ones. `warn` hears what is left out."""
    commands: list[Command] = []
    for one in list(offered)[:MAX_COMMANDS]:
        name = str(one["name"]).strip()
        names = [str(parameter["name"]) for parameter in one["parameters"]]
        problem = ""
        if not _NAME.fullmatch(name) or not all(_NAME.fullmatch(each) for each in names):
            problem = "its name, or that of an argument, is made of other characters than letters, digits and '_'"
        elif _RESERVED in names:
            problem = f"an argument of it is called {_RESERVED!r}"
        elif name.lower() in taken:
            problem = "a command of that name is there already, which stays"
        if problem:
            warn(f"The command {escape(name)} of the plug-in {process.name} is left out: {problem}.")
        else:
            taken.add(name.lower())
            commands.append(_command(process, name, one))
    return commands


def _command(process: PluginProcess, name: str, found: Mapping[str, Any]) -> Command:
    def run(context: Context, /, **args: Any) -> CommandOutput:
        try:
            text = process.ask("command", name=name, args=args)
        except PluginError as error:
            raise CommandError(f"The plug-in {process.name} could not do it: {error}.") from error
        return CommandOutput(str(text) or "(nothing)", ResultMeta(untrusted=f"the plug-in {process.name}"))

    spec = CommandSpec(
        name=name,
        label=_line(str(found["label"]) or name, 200),
        category=CATEGORY,
        risk="irreversible",
        parameters=tuple(_parameter(one) for one in found["parameters"]),
        repeatable=True,
        always_offered=True,
    )
    return Command(spec, run)


def _parameter(found: Mapping[str, Any]) -> Parameter:
    kind = found["kind"] if found["kind"] in ("string", "integer", "number", "boolean", "array") else "any"
    return Parameter(str(found["name"]), cast(Any, kind), bool(found["required"]), None, _line(str(found["help"]), 200))


def _line(text: str, limit: int) -> str:
    """Return a plug-in's words in one line that hides nothing and cannot pass for marks."""
    return shorten(" ".join(escape(defuse(text)).split()), limit)
