"""The registry: all commands, those usable here, and how a call is checked and run.

A command is a plain typed function under `@command`. Its name, label, arguments, prompt line and JSON schema all
come from that one place. The first argument is the Context. The model passes the others.
"""

from __future__ import annotations

import difflib
import inspect
import json
import math
import types
import typing
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin

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

if TYPE_CHECKING:
    from autoagent.settings import Settings

Available = Callable[["Settings"], str]
"""Why a command cannot be used with these settings; '' where it can."""

Assess = Callable[..., Risk]
"""The risk of one call, from the arguments of its command."""

Around = Callable[[Call, Callable[[], Result]], Result]
"""A hook around a command: the call, and how to run it."""

# AutoGPT's older names of arguments, taken where the command has no argument of that name itself.
ARGUMENT_ALIASES: Mapping[str, str] = {
    "file": "filename",
    "path": "filename",
    "input": "query",
    "repository_url": "url",
    "link": "url",
    "string": "text",
    "contents": "text",
    "content": "text",
    "dir": "directory",
    "folder": "directory",
    "basename": "name",
    "tip": "question",
}


@dataclass(frozen=True, slots=True)
class CommandOutput:
    """A command's answer where text alone is not enough."""

    text: str
    meta: ResultMeta = PLAIN


@dataclass(frozen=True, slots=True)
class Command:
    """A command: its spec, its function, its preview, its condition and the risk of its calls."""

    spec: CommandSpec
    function: Callable[..., str | CommandOutput]
    preview: Callable[..., str] | None = None
    available: Available | None = None
    assess: Assess | None = None


def command(
    name: str,
    label: str,
    *,
    risk: Risk,
    aliases: Iterable[str] = (),
    available: Available | None = None,
    preview: Callable[..., str] | None = None,
    assess: Assess | None = None,
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
    """Make a typed function a command. Its category is the name of its module where none is given.

    `risk` "read" declares that it changes nothing: if a crash lost its result, it is simply run again. `preview` takes
    the same arguments and returns the change that the call would make, as a diff or a note, '' for none. `assess`, with
    the same arguments, returns its risk if that depends on them (`risk` is the usual one). `repeatable`: the same call
    may give another result although nothing changed here. A command without declared `effects` is asked about at every
    call, and its results count as untrusted and private.
    `always_offered`, `rare`, `distracts`, `autogpt`, `meant_by`, `ignored`, `stand_in` and `levels`: see CommandSpec.
    """

    def register(function: Callable[..., str | CommandOutput]) -> Command:
        belongs_to = category or function.__module__.rpartition(".")[2]
        spec = CommandSpec(
            name,
            label,
            belongs_to,
            risk,
            _parameters(function),
            tuple(aliases),
            repeatable,
            effects,
            always_offered,
            rare,
            distracts,
            "",
            tuple(autogpt),
            tuple(meant_by),
            tuple(ignored),
            stand_in,
            tuple(levels),
        )
        return Command(spec, function, preview, available, assess)

    return register


def _parameters(function: Callable[..., Any]) -> tuple[Parameter, ...]:
    hints = typing.get_type_hints(function, include_extras=True)
    signature = list(inspect.signature(function).parameters.values())[1:]  # without the Context
    return tuple(_parameter(p, hints[p.name]) for p in signature)


_KINDS: Mapping[Any, Literal["string", "integer", "number", "boolean", "array"]] = {
    str: "string",
    int: "integer",
    float: "number",
    bool: "boolean",
    list: "array",
}


def _parameter(parameter: inspect.Parameter, hint: Any) -> Parameter:
    help_text, choices = "", ()
    meaning: Meaning = "exact"
    traits: Collection[str] = ()
    if hasattr(hint, "__metadata__"):  # Annotated[str, "what it is"], with a Meaning after that, and then its traits
        (help_text, *declared), hint = hint.__metadata__, get_args(hint)[0]
        meaning = declared[0] if declared else meaning
        traits = declared[1:]
    if meaning not in get_args(Meaning):
        raise TypeError(f"The argument {parameter.name!r} is declared as {meaning!r}, which no rule knows.")
    if get_origin(hint) in (typing.Union, types.UnionType):  # `float | None`: None stands for "not given"
        hint = next(part for part in get_args(hint) if part is not type(None))
    if get_origin(hint) is Literal:
        choices, hint = get_args(hint), str
    required = parameter.default is inspect.Parameter.empty
    default = None if required else parameter.default
    kind = _KINDS[get_origin(hint) or hint]
    return Parameter(
        parameter.name,
        kind,
        required,
        default,
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

    `switched_off` maps names of known commands that cannot be used here to the reason, `stand_ins` some of them to the
    command that takes their calls.
    """

    def __init__(
        self,
        commands: Iterable[Command],
        switched_off: Mapping[str, str] | None = None,
        stand_ins: Mapping[str, str] | None = None,
        around: Around | None = None,
    ) -> None:
        self._commands = {c.spec.name: c for c in commands}
        self.switched_off = dict(switched_off or {})
        self.stand_ins = dict(stand_ins or {})
        self._around = around
        self._named: dict[str, Command] = {}
        for names in (lambda spec: (spec.name,), lambda spec: spec.aliases, lambda spec: (spec.label,)):
            for one in self._commands.values():
                for name in names(one.spec):
                    self._named.setdefault(folded(name), one)

    @property
    def specs(self) -> tuple[CommandSpec, ...]:
        return tuple(c.spec for c in self._commands.values())

    @property
    def pages_results(self) -> str:
        """The name of the command that shows parts of an earlier result, or '' if there is none."""
        return next((spec.name for spec in self.specs if spec.effects and spec.effects.pages_results), "")

    def only(self, names: Iterable[str], reason: str) -> Registry:
        """Return the registry with only these commands, in its
        own order. The others are switched off for the reason.
        """
        wanted = set(names)
        kept = [c for name, c in self._commands.items() if name in wanted]
        if not any(c.spec.effects and c.spec.effects.loads_commands for c in kept):
            kept = [replace(c, spec=replace(c.spec, group="")) if c.spec.group else c for c in kept]
        left_out = [c.spec for name, c in self._commands.items() if name not in wanted]
        off = {name: reason for spec in left_out for name in (spec.name, *spec.aliases)}
        return Registry(kept, {**self.switched_off, **off}, self.stand_ins, self._around)

    def grouped(self, groups: Mapping[str, str], loader: Command) -> Registry:
        """Return the registry with the commands named in `groups` in these groups, and the command that loads one."""
        made = (replace(c, spec=replace(c.spec, group=groups.get(name, ""))) for name, c in self._commands.items())
        return Registry([*made, loader], self.switched_off, self.stand_ins, self._around)

    def around(self, hook: Around) -> Registry:
        """Return the registry with a hook around each command that runs, outside of those that are there."""
        inner = self._around

        def both(call: Call, run: Callable[[], Result]) -> Result:
            return hook(call, run if inner is None else lambda: inner(call, run))

        return Registry(self._commands.values(), self.switched_off, self.stand_ins, both)

    def without(self, names: Collection[str], reason: str) -> Registry:
        """Return the registry with these commands switched off for a reason."""
        return self.only([known for known in self._commands if known not in names], reason)

    def check(self, call: Call) -> Call:
        """Return the call under its present name, with its arguments under theirs, of the right types and no extras.

        Raises:
            ReplyError: an unknown name (the nearest is named), a missing, unknown or mistyped argument, or one that is
                given under two of its names with two values.
        """
        spec = self._find(call.name).spec
        known = {p.name: p for p in spec.parameters}
        given: dict[str, Any] = {}
        for key, value in call.args.items():
            renamed = ARGUMENT_ALIASES.get(key, key)
            name = key if key in known or renamed not in known else renamed
            if name in spec.ignored:
                continue
            if name in given and given[name] != value:
                raise ReplyError(
                    f"The argument {name!r} of {spec.name} is given twice, as {given[name]!r} and as {value!r}; "
                    "give it once."
                )
            given[name] = value
        if unknown := [key for key in given if key not in known]:
            raise ReplyError(f"{spec.name} has no argument {unknown[0]!r}; it is {spec.signature()}.")
        args = {}
        for name, parameter in known.items():
            if name in given and not (given[name] is None and not parameter.required):
                args[name] = _checked(spec, parameter, given[name])
            elif parameter.required:
                raise ReplyError(f"The argument {name!r} is missing; the command is {spec.signature()}.")
        return Call(call.id, spec.name, args)

    def spec(self, name: str) -> CommandSpec:
        """Return the spec of a checked call's command."""
        return self._commands[name].spec

    def propose(self, call: Call, context: Context) -> Proposal:
        """Return a checked call with its preview, if its command has one."""
        command = self._commands[call.name]
        risk = command.assess(context, **call.args) if command.assess else command.spec.risk
        guarded = tuple(_guarded(call, command.spec, context)) if risk != "read" else ()
        proposal = Proposal(call, command.spec, risk=risk, guarded=guarded)
        if command.preview is None:
            return proposal
        try:
            preview = command.preview(context, **call.args)
        except CommandError as error:
            return replace(proposal, preview=f"This will fail: {error}")
        return replace(proposal, preview=preview or "This changes nothing.", changes=bool(preview))

    def execute(self, call: Call, context: Context) -> Result:
        """Run a checked call. A CommandError and an OSError become a failed Result. Anything else propagates."""
        if self._around is None:
            return self._executed(call, context)
        return self._around(call, lambda: self._executed(call, context))

    def _executed(self, call: Call, context: Context) -> Result:
        try:
            output = self._commands[call.name].function(context, **call.args)
        except CommandError as error:
            return Result(call.id, False, str(error))
        except OSError as error:
            named = f": {error.filename}" if error.filename else ""
            return Result(call.id, False, f"{error.strerror or error}{named}")
        if isinstance(output, CommandOutput):
            return Result(call.id, True, output.text, output.meta)
        return Result(call.id, True, output)

    def _find(self, name: str) -> Command:
        """Return the command of a name, an alias or a label, in any case.

        Raises ReplyError, which names the nearest.
        """
        wanted, spelled = name.strip(), folded(name)
        found = self._named.get(spelled)
        if found is not None:
            return found
        offered = ", ".join(self._commands)
        if reason := self.switched_off.get(spelled):
            if (stand_in := self.stand_ins.get(spelled, "")) in self._commands:
                return self._commands[stand_in]
            raise ReplyError(
                f"The command {wanted!r} cannot be used here: {reason}. The commands are: {offered}.", off=True
            )
        meant = next((one for one in self._commands.values() if spelled in one.spec.meant_by), None)
        near = difflib.get_close_matches(spelled, self._named, n=1, cutoff=0.6)
        meant = meant or (self._named[near[0]] if near else None)
        hint = f" Did you mean {meant.spec.signature()}?" if meant else ""
        raise ReplyError(f"There is no command {wanted!r}.{hint} The commands are: {offered}.")


def _guarded(call: Call, spec: CommandSpec, context: Context) -> Iterator[str]:
    """Yield the places that a call names and that only the user may allow to be written."""
    for parameter in spec.parameters:
        if parameter.meaning in ("path", "entry") and isinstance(path := call.args.get(parameter.name), str):
            with suppress(CommandError):
                where = context.workspace.display(path, follow=parameter.meaning == "path")
                if context.workspace.watch.is_guarded(where):
                    yield where


def folded(name: str) -> str:
    """Return the name as all spellings of it have it: `Read File` is read_file."""
    return name.strip().lower().replace(" ", "_").replace("-", "_")


def _checked(spec: CommandSpec, parameter: Parameter, value: Any) -> Any:
    """Convert the value to the parameter's type, also a number or boolean written as a string."""
    kind = parameter.kind
    if kind == "any":
        return value
    if isinstance(value, str) and kind != "string":
        value = _from_text(kind, value)
    if kind == "number" and isinstance(value, int | float) and not isinstance(value, bool):
        value = _finite(spec, parameter, value)
    if kind == "array" and parameter.item == "integer" and isinstance(value, int) and not isinstance(value, bool):
        value = [value]
    if kind == "integer" and isinstance(value, float) and value.is_integer():
        value = int(value)
    types_of_kind = {"string": str, "integer": int, "number": float, "boolean": bool, "array": list, "object": dict}
    right = isinstance(value, types_of_kind[kind]) and (kind == "boolean" or not isinstance(value, bool))
    if not right:
        raise ReplyError(
            f"The argument {parameter.name!r} of {spec.name} must be of type {kind}, not {type(value).__name__}; "
            f"the command is {spec.signature()}."
        )
    if kind == "array" and parameter.schema is None:
        wanted = types_of_kind[parameter.item]
        if wanted is int:
            value = [_from_text(parameter.item, item) if isinstance(item, str) else item for item in value]
        for number, item in enumerate(value, 1):
            if not isinstance(item, wanted) or isinstance(item, bool):
                raise ReplyError(
                    f"The argument {parameter.name!r} of {spec.name} must be a list of {parameter.item}s; item "
                    f"{number} of it is of type {type(item).__name__}."
                )
    if parameter.choices and value not in parameter.choices:
        choices = ", ".join(parameter.choices)
        raise ReplyError(f"The argument {parameter.name!r} of {spec.name} must be one of {choices}.")
    return value


def _finite(spec: CommandSpec, parameter: Parameter, value: float) -> float:
    """Refuse NaN, infinities and integers beyond every float, which Python's JSON reads but no command can use."""
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise ReplyError(f"The argument {parameter.name!r} of {spec.name} is no number that can be used.")
    return number


def _from_text(kind: str, text: str) -> Any:
    """Parse a text as another type, else return the text. One text becomes a list of one."""
    word = text.strip().lower()
    if kind == "array":
        return _list_from_text(text)
    if kind == "object":
        with suppress(ValueError, RecursionError):
            return json.loads(text)
        return text
    if kind == "boolean":
        return {"true": True, "false": False}.get(word, text)
    try:
        return int(word) if kind == "integer" else float(word)
    except ValueError:
        return text


def _list_from_text(text: str) -> list[Any]:
    if text.strip().startswith("["):
        with suppress(ValueError, RecursionError):  # not JSON: one item that begins with a bracket
            items = json.loads(text)
            return items if isinstance(items, list) else [text]
    return [text] if text.strip() else []
