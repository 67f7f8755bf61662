"""Declare commands, and check and run their calls.

A command is a plain typed function under `@command`. Its name, label, arguments, prompt line and JSON schema all come
from that declaration. Its first argument is the Context, and the model supplies the others.
"""

from __future__ import annotations

import difflib
import inspect
import json
import math
import types
import typing
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, Literal, get_args, get_origin

from autoagent.commands.context import Context
from autoagent.core.commands import (
    CODE,
    DETAIL,
    EXISTING,
    FILE_TEXT,
    PLAIN,
    Call,
    CommandSpec,
    Effects,
    LevelName,
    Meaning,
    Parameter,
    Proposal,
    Result,
    ResultMeta,
    Risk,
)
from autoagent.core.errors import CommandError, ReplyError
from autoagent.core.frozen import dataclass

Available = Callable[[Any], str]
"""Explains why a command is unavailable with these settings, or returns ''."""

Assess = Callable[..., Risk]
"""Rates the risk of one call from its arguments."""

Around = Callable[[Call, Callable[[], Result]], Result]
"""Wraps the execution of a call. The second argument runs it."""

# AutoGPT's older argument names, accepted if the command has no argument of that name.
ARGUMENT_ALIASES: Mapping[str, str] = {
    "file": "filename", "path": "filename", "input": "query", "repository_url": "url", "link": "url",
    "string": "text", "contents": "text", "content": "text", "dir": "directory", "folder": "directory",
    "basename": "name", "tip": "question",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class CommandOutput:
    """The text and metadata of a command's result."""

    text: str
    meta: ResultMeta = PLAIN


@dataclass(frozen=True, slots=True)
class Command:
    """A command: its declaration, function and preview, and tests of its availability, risk and interrupted calls."""

    spec: CommandSpec
    function: Callable[..., str | CommandOutput]
    preview: Callable[..., str] | None = None
    available: Available | None = None
    assess: Assess | None = None
    after_crash: Callable[..., CommandOutput | None] | None = None


def command(
    name: str,
    label: str,
    *,
    risk: Risk,
    aliases: Iterable[str] = (),
    available: Available | None = None,
    preview: Callable[..., str] | None = None,
    assess: Assess | None = None,
    after_crash: Callable[..., CommandOutput | None] | None = None,
    repeatable: bool = False,
    category: str = "",
    effects: Effects | None = None,
    always_offered: bool = False,
    rare: bool = False,
    distracts: bool = False,
    autogpt: Iterable[str] = (),
    meant_by: Iterable[str] = (),
    ignored: Iterable[str] = (),
    stand_in: str = "",
    levels: Iterable[LevelName] = ("executor",),
) -> Callable[[Callable[..., str | CommandOutput]], Command]:
    """Turn a typed function into a command. Its category defaults to the name of its module.

    With `risk` "read" the command changes nothing, so it is simply run again if a crash lost its result. `preview`
    takes the same arguments and returns the change that the call would make, as a diff or a note, or '' for none.
    `assess` takes the same arguments and returns the risk of this call, where `risk` is only the usual one.
    `after_crash` takes the Context and the same arguments, and returns the result of a call interrupted by a crash, or
    None if it cannot tell. It raises CommandError if the call did nothing. If `repeatable`, the same call may give
    another result although nothing changed here. Without declared `effects`, the user is asked about every call, and
    results count as untrusted and private. CommandSpec describes `always_offered`, `rare`, `distracts`, `autogpt`,
    `meant_by`, `ignored`, `stand_in` and `levels`.
    """

    def register(function: Callable[..., str | CommandOutput]) -> Command:
        hints = typing.get_type_hints(function, include_extras=True)
        signature = list(inspect.signature(function).parameters.values())[1:]  # without the Context
        spec = CommandSpec(
            name,
            label,
            category or function.__module__.rpartition(".")[2],
            risk,
            tuple(_parameter(p, hints[p.name]) for p in signature),
            tuple(aliases),
            repeatable,
            effects,
            always_offered,
            rare,
            distracts,
            autogpt=tuple(autogpt),
            meant_by=tuple(meant_by),
            ignored=tuple(ignored),
            stand_in=stand_in,
            levels=tuple(levels),
        )
        return Command(spec, function, preview, available, assess, after_crash)

    return register


_Kind = Literal["string", "integer", "number", "boolean", "array", "object"]
_TYPES: Mapping[_Kind, type] = {
    "string": str,
    "integer": int,
    "number": float,
    "boolean": bool,
    "array": list,
    "object": dict,
}
_KINDS = {type_: kind for kind, type_ in _TYPES.items()}


def _parameter(parameter: inspect.Parameter, hint: Any) -> Parameter:
    help_text, choices = "", ()
    meaning: Meaning = "exact"
    traits: Collection[str] = ()
    if hasattr(hint, "__metadata__"):  # Annotated[str, help text, Meaning, traits...]
        (help_text, *declared), hint = hint.__metadata__, get_args(hint)[0]
        meaning = declared[0] if declared else meaning
        traits = declared[1:]
    if meaning not in get_args(Meaning):
        raise TypeError(f"The argument {parameter.name!r} is declared as {meaning!r}, which is not a Meaning.")
    if get_origin(hint) in (typing.Union, types.UnionType):  # `float | None`: None stands for "not given"
        hint = next(part for part in get_args(hint) if part is not type(None))
    if get_origin(hint) is Literal:
        choices, hint = get_args(hint), str
    required = parameter.default is inspect.Parameter.empty
    return Parameter(
        parameter.name,
        _KINDS[get_origin(hint) or hint],
        required,
        None if required else parameter.default,
        help_text,
        tuple(choices),
        meaning,
        existing=EXISTING in traits,
        detail=DETAIL in traits,
        suffix=next((trait for trait in traits if trait.startswith(".")), ""),
        code=CODE if CODE in traits else FILE_TEXT if FILE_TEXT in traits else "",
        item="integer" if get_args(hint) == (int,) else "string",
    )


class Registry:
    """The commands of one run, in a fixed order.

    `switched_off` gives the reason why each unavailable command is off, and `stand_ins` a replacement for some of them.
    """

    def __init__(
        self,
        commands: Iterable[Command],
        switched_off: Mapping[str, str] | None = None,
        stand_ins: Mapping[str, str] | None = None,
        around: Around = lambda call, run: run(),
    ) -> None:
        self._commands = {c.spec.name: c for c in commands}
        self.switched_off = dict(switched_off or {})
        self.stand_ins = dict(stand_ins or {})
        self._around = around
        self._by_name: dict[str, Command] = {}
        registered = self._commands.values()
        entries = [(command.spec.name, command) for command in registered]
        entries += [(alias, command) for command in registered for alias in command.spec.aliases]
        entries += [(command.spec.label, command) for command in registered]
        for name, command in entries:  # names win over aliases, and these over labels
            self._by_name.setdefault(folded(name), command)

    @property
    def specs(self) -> tuple[CommandSpec, ...]:
        return tuple(c.spec for c in self._commands.values())

    @property
    def pages_results(self) -> str:
        """Return the name of the command that pages earlier results, or ''."""
        return next((spec.name for spec in self.specs if spec.effects and spec.effects.pages_results), "")

    def fingerprint(self, model: str) -> str:
        """Describe everything that shapes how a history of these commands is written for a model."""
        return repr((model, self.pages_results, self.specs))

    def only(self, names: Iterable[str], reason: str) -> Registry:
        """Return a registry of only these commands, in its own order. The reason explains why others are off."""
        allowed = set(names)
        commands = [c for name, c in self._commands.items() if name in allowed]
        if not any(c.spec.effects and c.spec.effects.loads_commands for c in commands):
            commands = [replace(c, spec=replace(c.spec, group="")) if c.spec.group else c for c in commands]
        other_specs = [c.spec for name, c in self._commands.items() if name not in allowed]
        reasons = {name: reason for spec in other_specs for name in (spec.name, *spec.aliases)}
        return Registry(commands, {**self.switched_off, **reasons}, self.stand_ins, self._around)

    def grouped(self, groups: Mapping[str, str], loader: Command) -> Registry:
        """Return a registry with commands assigned to `groups`, plus the command that loads a group."""
        commands = (replace(c, spec=replace(c.spec, group=groups.get(name, ""))) for name, c in self._commands.items())
        return Registry([*commands, loader], self.switched_off, self.stand_ins, self._around)

    def wrapped_by(self, hook: Around) -> Registry:
        """Return a registry with a hook around each execution, outside any earlier hook."""
        inner = self._around
        return Registry(
            self._commands.values(),
            self.switched_off,
            self.stand_ins,
            lambda call, run: hook(call, lambda: inner(call, run)),
        )

    def without(self, names: Collection[str], reason: str) -> Registry:
        """Return a registry with these commands switched off for a reason."""
        return self.only([name for name in self._commands if name not in names], reason)

    def check(self, call: Call) -> Call:
        """Return the call with current names, correctly typed arguments, and no others.

        Raises ReplyError for an unknown command, or an argument that is missing, unknown, mistyped, or given two
        values.
        """
        spec = self._find(call.name).spec
        parameters = {p.name: p for p in spec.parameters}
        values: dict[str, Any] = {}
        for key, value in call.args.items():
            alias_target = ARGUMENT_ALIASES.get(key, key)
            name = key if key in parameters or alias_target not in parameters else alias_target
            if name in spec.ignored:
                continue
            if name in values and values[name] != value:
                raise ReplyError(
                    f"The argument {name!r} of {spec.name} is given twice, as {values[name]!r} and as {value!r}; "
                    "give it once."
                )
            values[name] = value
        if unknown := [key for key in values if key not in parameters]:
            raise ReplyError(f"{spec.name} has no argument {unknown[0]!r}; it is {spec.signature()}.")
        args = {}
        for name, parameter in parameters.items():
            if name in values and not (values[name] is None and not parameter.required):
                args[name] = _convert(spec, parameter, values[name])
            elif parameter.required:
                raise ReplyError(f"The argument {name!r} is missing; the command is {spec.signature()}.")
        return Call(call.id, spec.name, args)

    def spec(self, name: str) -> CommandSpec:
        """Return the spec of a checked call's command."""
        return self._commands[name].spec

    def propose(self, call: Call, context: Context) -> Proposal:
        """Return a checked call with the preview of its command, if any."""
        command = self._commands[call.name]
        risk = command.assess(context, **call.args) if command.assess else command.spec.risk
        guarded = []  # places to write that need the user's permission
        for parameter in command.spec.parameters if risk != "read" else ():
            if parameter.meaning in ("path", "entry") and isinstance(path := call.args.get(parameter.name), str):
                with suppress(CommandError, OSError):  # the command meets the same error, and writes nothing
                    where = context.workspace.display(path, follow=parameter.meaning == "path")
                    if context.workspace.guarded_files.is_guarded(where):
                        guarded.append(where)
        proposal = Proposal(call, command.spec, risk=risk, guarded=tuple(guarded))
        if command.preview is None:
            return proposal
        try:
            preview = command.preview(context, **call.args)
        except (CommandError, OSError) as error:
            return replace(proposal, preview=f"This will fail: {_reason(error)}")
        return replace(proposal, preview=preview or "This changes nothing.", changes=bool(preview))

    def execute(self, call: Call, context: Context) -> Result:
        """Run a checked call. A CommandError or OSError becomes a failed Result, and anything else propagates."""

        def run() -> Result:
            try:
                output = self._commands[call.name].function(context, **call.args)
            except (CommandError, OSError) as error:
                return Result(call.id, False, _reason(error))
            if isinstance(output, CommandOutput):
                return Result(call.id, True, output.text, output.meta)
            return Result(call.id, True, output)

        return self._around(call, run)

    def after_crash(self, call: Call, context: Context) -> Result | None:
        """Return the result of a call interrupted by a crash, or None if its command cannot tell."""
        command = self._commands.get(call.name)
        if command is None or command.after_crash is None:
            return None
        try:
            output = command.after_crash(context, **self.check(call).args)
        except ReplyError:  # logged by another version
            return None
        except CommandError as error:
            return Result(call.id, False, str(error))
        return Result(call.id, True, output.text, output.meta) if output else None

    def _find(self, name: str) -> Command:
        """Find a command by name, alias or label in any spelling. Raises ReplyError with the closest match."""
        spelled, key = name.strip(), folded(name)
        command = self._by_name.get(key)
        if command is not None:
            return command
        names = ", ".join(self._commands)
        if reason := self.switched_off.get(key):
            if (stand_in := self.stand_ins.get(key, "")) in self._commands:
                return self._commands[stand_in]
            raise ReplyError(
                f"The command {spelled!r} cannot be used here: {reason}. The commands are: {names}.", off=True
            )
        by_meaning = next((command for command in self._commands.values() if key in command.spec.meant_by), None)
        similar = difflib.get_close_matches(key, self._by_name, n=1, cutoff=0.6)
        suggestion = by_meaning or (self._by_name[similar[0]] if similar else None)
        hint = f" Did you mean {suggestion.spec.signature()}?" if suggestion else ""
        raise ReplyError(f"There is no command {spelled!r}.{hint} The commands are: {names}.")


def folded(name: str) -> str:
    """Normalize the spelling of a name: `Read File` becomes read_file."""
    return name.strip().lower().replace(" ", "_").replace("-", "_")


def _convert(spec: CommandSpec, parameter: Parameter, value: Any) -> Any:
    """Convert the value to the parameter's type, including numbers and booleans written as strings."""
    kind, argument = parameter.kind, f"The argument {parameter.name!r} of {spec.name}"
    if kind == "any":
        return value
    if isinstance(value, str) and kind != "string":
        value = _from_text(kind, value)
    if kind == "number" and isinstance(value, int | float) and not isinstance(value, bool):
        try:
            value = float(value)
        except OverflowError:
            value = math.inf
        if not math.isfinite(value):  # Python's JSON parser accepts NaN and infinities
            raise ReplyError(f"{argument} is not a usable number.")
    if kind == "array" and parameter.item == "integer" and isinstance(value, int) and not isinstance(value, bool):
        value = [value]
    if kind == "integer" and isinstance(value, float) and value.is_integer():
        value = int(value)
    if not _has_type(kind, value):
        problem = f"must be of type {kind}, not {type(value).__name__}"
        raise ReplyError(f"{argument} {problem}; the command is {spec.signature()}.")
    if kind == "array" and parameter.schema is None:
        if parameter.item == "integer":
            value = [_from_text("integer", item) if isinstance(item, str) else item for item in value]
        for number, item in enumerate(value, 1):
            if not _has_type(parameter.item, item):
                problem = f"must be a list of {parameter.item}s"
                raise ReplyError(f"{argument} {problem}; item {number} is of type {type(item).__name__}.")
    if parameter.choices and value not in parameter.choices:
        raise ReplyError(f"{argument} must be one of {', '.join(parameter.choices)}.")
    return value


def _has_type(kind: _Kind, value: Any) -> bool:
    return isinstance(value, _TYPES[kind]) and (kind == "boolean" or not isinstance(value, bool))


def _from_text(kind: _Kind, text: str) -> Any:
    """Parse a text as another type, or return it unchanged. A plain text becomes a list of one item."""
    word = text.strip().lower()
    if kind == "array" and not word.startswith("["):
        return [text] if word else []
    if kind in ("array", "object"):
        with suppress(ValueError, RecursionError):
            return json.loads(text)
        return [text] if kind == "array" else text  # a single item that begins with a bracket
    if kind == "boolean":
        return {"true": True, "false": False}.get(word, text)
    try:
        return int(word) if kind == "integer" else float(word)
    except ValueError:
        return text


def _reason(error: CommandError | OSError) -> str:
    if isinstance(error, CommandError):
        return str(error)
    return f"{error.strerror or error}{f': {error.filename}' if error.filename else ''}"
