"""Define a command's records: its spec, a call, the proposal to run it, the question, the verdict, the result."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field, fields, replace
from typing import Any, Final, Literal

from autoagent.core.frozen import dataclass

LevelName = Literal["planner", "executor", "thinker"]  # of a hierarchical run (see levels)

# A goal's status at the end: its check passed, a verifier confirmed it with evidence, the user accepted it, the agent
# claims it, or the agent says that it cannot be met.
Proof = Literal["checked", "shown", "accepted", "claimed", "unmet"]

Risk = Literal["read", "write", "run", "network", "irreversible"]
OUTWARD: frozenset[Risk] = frozenset({"network", "run", "irreversible"})  # acts outside, or cannot be undone

# The category of commands that a source outside the program offers, such as `mcp__shop`, and their names, such as
# `mcp__shop__add`. No other command has such a name.
SOURCE = r"[a-z]+__[A-Za-z0-9_-]+"
SOURCED = rf"{SOURCE}__[A-Za-z0-9_-]+"


def source_in(name: str) -> str:
    """Return `mcp__shop` for `mcp__shop__add`, and '' for the name of a command that no source offers."""
    return "__".join(name.split("__")[:2]) if re.fullmatch(SOURCED, name) else ""


def nearest(name: str, known: Iterable[str]) -> str:
    """Return the known name that is most likely meant, '' for none.

    For a name that a source may offer at another time, only a very similar one counts.
    """
    from difflib import get_close_matches

    cutoff = 0.9 if re.fullmatch(SOURCE, name) else 0.6
    return next(iter(get_close_matches(re.sub("__+", "_", name), known, n=1, cutoff=cutoff)), "")


def fingerprint(text: str) -> int:
    """Return 64 bits of the text's digest, stable across processes."""
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big")


@dataclass(frozen=True, slots=True)
class Call:
    """A command requested by the model: a known name with arguments that fit its schema."""

    id: str
    name: str
    args: Mapping[str, Any]

    def __str__(self) -> str:
        return f"{self.name}({', '.join(f'{key}={value!r}' for key, value in self.args.items())})"

    @property
    def key(self) -> int:
        """Return a key of 64 bits that is equal for equal calls."""
        return fingerprint(self.name + json.dumps(self.args, sort_keys=True, ensure_ascii=False))


# The meaning of an argument's value, by which rules match it; "exact" matches only the same text. An "entry" is a path
# whose command acts on the name itself, even if it is a link.
Meaning = Literal["exact", "path", "entry", "url", "shell", "text"]


@dataclass(frozen=True, slots=True)
class Parameter:
    """An argument of a command."""

    name: str
    kind: Literal["string", "integer", "number", "boolean", "array", "object", "any"]  # in JSON; any: no constraint
    required: bool = True
    default: Any = None
    help: str = ""
    choices: tuple[str, ...] = ()  # the allowed values
    meaning: Meaning = "exact"
    schema: Mapping[str, Any] | None = None  # the JSON schema from another program
    existing: bool = False  # names an existing workspace file
    detail: bool = False  # not offered to small models
    suffix: str = ""  # of that file's name
    code: Literal["", "code", "file"] = ""  # program code, or the text of the file that another argument names
    item: Literal["string", "integer"] = "string"  # the type of a list's items


# Traits that may follow an argument's Meaning. A trait that begins with a dot, such as ".py", is a suffix.
EXISTING = "existing"  # names an existing workspace file
DETAIL = "detail"  # optional, and omitted for small models
CODE: Final = "code"  # program code; a small model writes it in a separate block
FILE_TEXT: Final = "file"  # the text of the file in the "path" argument


@dataclass(frozen=True, slots=True, kw_only=True)
class Effects:
    """The effects of a command beyond its risk. By default none.

    Reads of workspace files are not declared: the workspace records every access.
    """

    runs_programs: bool = False  # its result holds the output of programs, which may have read any file
    from_outside: bool = False  # its result, even a failure, may hold outside text, and so may the files it writes
    asks_user: bool = False  # its result holds an answer of the user; only the run's own agent can have it
    tells_agents: bool = False  # another agent reads its arguments, and may act on them
    amends: bool = False  # it changes a part of a file, so the rest may still come from elsewhere
    ends_run: bool = False  # it ends the run, so every agent has it
    loads_commands: bool = False  # it makes the group of commands that its argument names available
    pages_results: bool = False  # it shows parts of an earlier step's result, with the labels of that result
    writes_whole: bool = False  # it writes its second argument, a text, as the whole of the file in its first


@dataclass(frozen=True, slots=True)
class CommandSpec:
    """A command as the model, the screen and the checks see it. Built from its function by `@command`.

    With `effects` None, the command counts as having every effect.
    """

    name: str
    label: str
    category: str
    risk: Risk
    parameters: tuple[Parameter, ...] = ()
    aliases: tuple[str, ...] = ()
    repeatable: bool = False  # the same call may give another result though nothing here changed: the time, a page
    effects: Effects | None = None
    always_offered: bool = False  # offered even in a small window; others are loaded by group
    rare: bool = False  # rarely needed: loaded by group in any window
    distracts: bool = False  # distracts a small model from its work; loaded by group there as well
    group: str = ""  # the group that loads it in this run, or '' if offered from the start
    autogpt: tuple[str, ...] = ()  # the AutoGPT modules that it replaces, without "autogpt.commands."
    meant_by: tuple[str, ...] = ()  # names that models invent for it: rejected with a hint
    ignored: tuple[str, ...] = ()  # arguments that models add without effect
    stand_in: str = ""  # the command that handles its calls where it is unavailable
    levels: tuple[LevelName, ...] = ("executor",)  # levels of a hierarchical run that may have it

    @property
    def outward(self) -> bool:
        """Return whether the command may act outward or irreversibly, as a command without declared effects may."""
        return self.effects is None or self.risk in OUTWARD

    def signature(self) -> str:
        """Render the signature: `web_search(query, num_results=8)`."""
        parts = (p.name if p.required else f"{p.name}={p.default!r}" for p in self.parameters)
        return f"{self.name}({', '.join(parts)})"

    def brief(self) -> CommandSpec:
        """Return the command without its `detail` parameters, which small models fill in for no reason."""
        parameters = tuple(parameter for parameter in self.parameters if not parameter.detail)
        return self if len(parameters) == len(self.parameters) else replace(self, parameters=parameters)


def command_list(specs: Sequence[CommandSpec]) -> str:
    """Return the commands as numbered lines for a model without native tools."""
    return "\n".join(["Commands:", *(f"{number}. {prompt_line(spec)}" for number, spec in enumerate(specs, 1))])


def prompt_line(spec: CommandSpec) -> str:
    """Render `Write to file: "write_to_file", args: "filename": (string), ...`. Nothing in it looks like a value."""
    args = ", ".join(
        f'"{p.name}": ({p.help or p.kind})' + ("" if p.required else f" (optional, default {json.dumps(p.default)})")
        for p in spec.parameters
    )
    return f'{spec.label}: "{spec.name}"' + (f", args: {args}" if args else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultMeta:
    """Facts about a result for the program, besides its text for the model."""

    changed: tuple[str, ...] = ()  # the workspace paths that it changed
    byproducts: tuple[str, ...] = ()  # those that a program keeps for itself, such as a cache
    finished: str | None = None  # the reason for which the run may end, or None if it may not
    goals: tuple[Proof, ...] = ()  # the status of each goal, if the run may end
    given_up: tuple[int, ...] = ()  # the goals, from 1, that the agent says cannot be met
    untrusted: str = ""  # the source of outside text, such as its URL, or ''
    quoted: str = ""  # the same for text that already has marks around it
    tainted_by: str = ""  # possible sources of files changed by a crashed command, which the run has not read
    private: bool = False  # it holds the user's own data
    masked: bool = False  # a secret in the arguments or in the text is not shown
    failed: bool = False  # the program that the command ran failed, though the command itself did not
    waits: bool | None = None  # for a command that waits or polls: whether it is still waiting
    page: tuple[int, int, int] | None = None  # the text is a part of a longer one: its first line, last, and the total
    put_off: bool = False  # the command was to end the run, but a goal is not met
    repeat: bool = False  # it only refers to the step that showed the same
    kept: bool = False  # the memory already holds it, so it is not remembered as a step
    details: Mapping[str, Any] = field(default_factory=dict)  # JSON values for log and screen, such as an exit status

    @property
    def products(self) -> tuple[str, ...]:
        return tuple(path for path in self.changed if path not in self.byproducts) if self.byproducts else self.changed

    @property
    def source(self) -> str:
        """Return the source of its outside text, marked or not, or ''."""
        return self.untrusted or self.quoted

    def to_json(self) -> dict[str, Any]:
        """Return the non-default fields as JSON values, with the details merged in."""
        values: dict[str, Any] = {}
        for entry in fields(self):
            value = getattr(self, entry.name)
            if entry.name == "details":
                values.update(value)
            elif value != entry.default:
                values[entry.name] = list(value) if isinstance(value, tuple) else value
        return values

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> ResultMeta:
        """Build the record from type-checked JSON values of the log (see codec)."""
        if not data:
            return PLAIN
        values = {name: value for name, value in data.items() if name in _META_NAMES}
        details = {name: value for name, value in data.items() if name not in _META_NAMES}
        if data.get("review") is True or data.get("unmet") is True:  # as in older logs
            values["put_off"] = True
        for name in ("changed", "byproducts", "goals", "given_up", "page"):
            if values.get(name) is not None:
                values[name] = tuple(values[name])
        return cls(**values, details=details)


PLAIN = ResultMeta()  # of a result that is text for the model alone
_META_NAMES = frozenset(entry.name for entry in fields(ResultMeta)) - {"details"}


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a command: `text` for the model, `meta` for the guard, the log and the screen."""

    call_id: str
    ok: bool
    text: str
    meta: ResultMeta = PLAIN


@dataclass(frozen=True, slots=True)
class Proposal:
    """A call waiting for authorization, with a preview of its effect: a diff or a note."""

    call: Call
    spec: CommandSpec
    preview: str = ""
    changes: bool = False  # the preview shows a change
    risk: Risk = "read"  # computed from the arguments
    warning: str = ""  # why only a new answer of a person may allow it
    agent: str = ""  # the proposing sub-agent, or '' for the run's own agent
    recalled: tuple[int, ...] = ()  # the memories that brought outside text into the run, if the warning names them
    guarded: tuple[str, ...] = ()  # the places it would write to that only the user may allow

    @property
    def is_diff(self) -> bool:
        """Return whether the preview is a diff of a file instead of a note about the call."""
        return self.preview.startswith("--- ")


Change = Callable[[Callable[[Any], Any]], None]  # the argument records an event of it in the log and everywhere


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer to a proposal.

    With a `change`, apply it first, then propose the call again, or refuse it if there is a `reason`.
    """

    allowed: bool
    by: str
    reason: str = ""  # of a refusal: feedback for the model
    args: Mapping[str, Any] | None = None  # as the user edited them: propose the call again with these
    change: Change | None = None
    elsewhere: bool = False  # the answer came from another terminal


# The form of an answer: a decision on a command; feedback, or Enter to go on; Enter to go on; or any text.
QuestionKind = Literal["decision", "remark", "going on", "text"]


@dataclass(frozen=True, slots=True)
class Question:
    """The properties of a question besides its displayed text."""

    kind: QuestionKind = "text"
    yes: str = "y"  # the key to run
    no: str = "n"  # the key to stop
    warned: bool = False  # only a new answer allows this very proposal
    proposal: Proposal | None = None
    text: str = ""  # the question without surrounding output
    stays_open: bool = False  # it can be answered after the run has gone on
    words: tuple[str, ...] = ()  # the commands that begin with a slash


ANY_TEXT = Question()  # accepts any text
