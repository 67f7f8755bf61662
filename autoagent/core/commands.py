"""A command as records: its spec, a call, the proposal to run it, the question about it, the verdict, the result."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, fields, replace
from typing import Any, Final, Literal

from autoagent.core.frozen import dataclass

LevelName = Literal["planner", "executor", "thinker"]
"""The levels of a hierarchical run (see levels)."""

Proof = Literal["checked", "shown", "accepted", "claimed", "unmet"]
"""How a goal stands at the end: its check passed, a verifier and the evidence agree, the user accepted it, the agent
claims it, or the agent says that it cannot be met."""

Risk = Literal["read", "write", "run", "network", "irreversible"]

OUTWARD: frozenset[Risk] = frozenset({"network", "run", "irreversible"})
"""The risks of what acts outward or cannot be undone."""


@dataclass(frozen=True, slots=True)
class Call:
    """A command the model asks for: a known name, arguments that fit its schema."""

    id: str
    name: str
    args: Mapping[str, Any]

    def __str__(self) -> str:
        return f"{self.name}({', '.join(f'{key}={value!r}' for key, value in self.args.items())})"

    @property
    def key(self) -> str:
        """The command and its arguments, equal for equal calls."""
        return self.name + json.dumps(self.args, sort_keys=True, ensure_ascii=False)


Meaning = Literal["exact", "path", "entry", "url", "shell", "text"]
"""What the value of an argument is, for a pattern to fit it (see rules); "exact": nothing but the very text does.

An "entry" is a path whose command does something to what is called so itself, be it a link: it leads nowhere else.
"""


@dataclass(frozen=True, slots=True)
class Parameter:
    """One argument of a command. `kind` is a JSON type ("any" for no constraint), `choices` the allowed values.

    `schema`: its JSON schema, if another program provides the command. `existing`: it names an existing file of the
    workspace. `detail`: small models are not offered it. `suffix`: the ending of that file's name.
    `code`: its value is the code of a program, or the text of the "file" that another argument names.
    `item`: the type of the items of a list.
    """

    name: str
    kind: Literal["string", "integer", "number", "boolean", "array", "object", "any"]
    required: bool = True
    default: Any = None
    help: str = ""
    choices: tuple[str, ...] = ()
    meaning: Meaning = "exact"
    schema: Mapping[str, Any] | None = None
    existing: bool = False
    detail: bool = False
    suffix: str = ""
    code: Literal["", "code", "file"] = ""
    item: Literal["string", "integer"] = "string"


EXISTING = "existing"
"""Declares, after the Meaning of an argument, that it names a file which is in the workspace already.

A trait that begins with a dot, such as ".py", says what the name of that file ends with.
"""

DETAIL = "detail"
"""Declares the same way of an optional argument that it is left out for a model that is asked in brief."""

CODE: Final = "code"
"""Declares the same way that an argument is the code of a program; a small model writes it in a block of its own."""

FILE_TEXT: Final = "file"
"""Declares the same way that it is the text of the file that the argument with the meaning "path" names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Effects:
    """The effects of a command beyond its risk. An unset field means no such effect.

    Reads of workspace files are not declared: the workspace records every access.

    Attributes:
        runs_programs: its result holds the output of programs, which may have read any file of the workspace.
        from_outside: its result, a failure too, may hold text from outside, and so may the files it writes.
        asks_user: its result holds an answer of the user; only the run's own agent can have it.
        tells_agents: another agent reads its arguments, and may act on them.
        amends: it changes a part of a file, so the rest may still come from elsewhere.
        ends_run: it ends the run, so every agent has it.
        loads_commands: it makes the group of commands that its argument names available.
        pages_results: it shows parts of an earlier step's result, with the labels of that result.
        writes_whole: it writes its second argument, a text, to the file that its first one names, as all of it.
    """

    runs_programs: bool = False
    from_outside: bool = False
    asks_user: bool = False
    tells_agents: bool = False
    amends: bool = False
    ends_run: bool = False
    loads_commands: bool = False
    pages_results: bool = False
    writes_whole: bool = False


@dataclass(frozen=True, slots=True)
class CommandSpec:
    """The description of a command for the model, the screen and the checks. Built from its function by `@command`.

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
    always_offered: bool = False  # offered in a small window, too; the others are loaded by group
    rare: bool = False  # few runs need it: loaded by group in any window
    distracts: bool = False  # a small model uses it instead of doing its work; there it is loaded by group as well
    group: str = ""  # with which it is loaded in this run; '' if it is offered from the start
    autogpt: tuple[str, ...] = ()  # the modules of AutoGPT that it stands for, without "autogpt.commands."
    meant_by: tuple[str, ...] = ()  # names that models make up for what it does: not taken, but it is named then
    ignored: tuple[str, ...] = ()  # arguments that models add, and that change nothing
    stand_in: str = ""  # the command that takes its calls where it cannot be used itself
    levels: tuple[LevelName, ...] = ("executor",)  # of a hierarchical run, whose agents may have it

    @property
    def outward(self) -> bool:
        """Whether it can act outward or irreversibly. Assumed of a command that declares no effects."""
        return self.effects is None or self.risk in OUTWARD

    def signature(self) -> str:
        """Render the signature: `web_search(query, num_results=8)`."""
        shown = (p.name if p.required else f"{p.name}={p.default!r}" for p in self.parameters)
        return f"{self.name}({', '.join(shown)})"

    def in_brief(self) -> CommandSpec:
        """Return the command without its `detail` parameters, which small models tend to fill in for no reason."""
        kept = tuple(parameter for parameter in self.parameters if not parameter.detail)
        return self if len(kept) == len(self.parameters) else replace(self, parameters=kept)


def command_list(specs: Sequence[CommandSpec]) -> str:
    """Return the commands, a numbered line each, for a model that is given no tools."""
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
    """Facts about a result for the program, beside its text for the model.

    Attributes:
        changed: the workspace paths that it changed.
        byproducts: those of them that a program keeps for itself, such as a cache.
        finished: the reason for which the run may end, or None if it may not.
        goals: how each goal stands, if the run may end.
        given_up: the goals, counted from 1, that the agent says cannot be met.
        untrusted: where text from outside came from, such as its URL, or '' for none.
        quoted: the same, where the text has marks around it already.
        tainted_by: where the content of files changed by a crashed command may come from. The run has read none of it.
        private: it holds the user's own data.
        masked: a secret in the arguments or in the text is not shown.
        failed: the program that the command ran failed, though the command itself did not.
        waits: for a command that waits or polls: whether it is still waiting, or None for any other.
        page: the text is a part of a longer one: its first line, its last, and how many there are.
        put_off: the command was to end the run, but a goal is not met.
        repeat: it shows nothing but the step that has shown the same.
        kept: the memory holds it already, so that it is not remembered as a step.
        details: JSON values for log and screen alone, such as an exit status.
    """

    changed: tuple[str, ...] = ()
    byproducts: tuple[str, ...] = ()
    finished: str | None = None
    goals: tuple[Proof, ...] = ()
    given_up: tuple[int, ...] = ()
    untrusted: str = ""
    quoted: str = ""
    tainted_by: str = ""
    private: bool = False
    masked: bool = False
    failed: bool = False
    waits: bool | None = None
    page: tuple[int, int, int] | None = None
    put_off: bool = False
    repeat: bool = False
    kept: bool = False
    details: Mapping[str, Any] = field(default_factory=dict)

    @property
    def products(self) -> tuple[str, ...]:
        """The changed paths without the byproducts."""
        return tuple(path for path in self.changed if path not in self.byproducts) if self.byproducts else self.changed

    @property
    def source(self) -> str:
        """The source of its text from outside, marked or not, or '' for none."""
        return self.untrusted or self.quoted

    def to_json(self) -> dict[str, Any]:
        """Return the non-default fields as JSON values, with the details merged in."""
        found: dict[str, Any] = {}
        for each in fields(self):
            value = getattr(self, each.name)
            if each.name == "details":
                found.update(value)
            elif value != each.default:
                found[each.name] = list(value) if isinstance(value, tuple) else value
        return found

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> ResultMeta:
        """Build it from JSON values of the log whose types were checked (see event_codec)."""
        if not data:
            return PLAIN
        known = {name: value for name, value in data.items() if name in _META}
        details = {name: value for name, value in data.items() if name not in _META}
        if data.get("review") is True or data.get("unmet") is True:  # as older logs have it
            known["put_off"] = True
        for name in ("changed", "byproducts", "goals", "given_up", "page"):
            if known.get(name) is not None:
                known[name] = tuple(known[name])
        return cls(**known, details=details)


PLAIN = ResultMeta()
"""Of a result that is text for the model alone."""

_META = frozenset(each.name for each in fields(ResultMeta)) - {"details"}


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a command: `text` for the model, `meta` for the guard, the log and the screen."""

    call_id: str
    ok: bool
    text: str
    meta: ResultMeta = PLAIN


@dataclass(frozen=True, slots=True)
class Proposal:
    """A call waiting for authorization, with a preview of its effect: a diff or a note.

    `changes`: the preview shows a change, or False without a preview. `risk` is computed from the arguments. `warning`:
    the reason why only a new answer of a person may allow it, or '' for none. `agent` names the proposing sub-agent; ''
    for the run's own agent. `recalled` lists the memories that brought text from outside into the run, if the warning
    names them. `guarded` lists the places it would write to that only the user may allow.
    """

    call: Call
    spec: CommandSpec
    preview: str = ""
    changes: bool = False
    risk: Risk = "read"
    warning: str = ""
    agent: str = ""
    recalled: tuple[int, ...] = ()
    guarded: tuple[str, ...] = ()

    @property
    def is_diff(self) -> bool:
        """Whether the preview is a diff of a file and not a note about the call."""
        return self.preview.startswith("--- ")


Change = Callable[[Callable[[Any], Any]], None]
"""Makes a change to the run; given what records an event of it, in the log and everywhere."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer to a proposal.

    A refusal's `reason` is feedback for the model. `args`: the user edited the arguments. Propose the call again with
    them. `change`: apply the user's change to the run first, then propose the call again, or refuse it if there is a
    `reason`. `elsewhere`: the answer came from another terminal.
    """

    allowed: bool
    by: str
    reason: str = ""
    args: Mapping[str, Any] | None = None
    change: Change | None = None
    elsewhere: bool = False


QuestionKind = Literal["decision", "remark", "going on", "text"]
"""How an answer is read: it decides on a command; Enter goes on, and text is feedback; Enter goes on; or any text."""


@dataclass(frozen=True, slots=True)
class Question:
    """The parts of a question beside its text.

    `yes` and `no` are the keys to run and to stop. `warned`: only a new answer allows this very `proposal`. `text` is
    the question without surrounding output. If it `stays_open`, it can still be answered after the run has gone on.
    `words` are the commands that begin with a slash.
    """

    kind: QuestionKind = "text"
    yes: str = "y"
    no: str = "n"
    warned: bool = False
    proposal: Proposal | None = None
    text: str = ""
    stays_open: bool = False
    words: tuple[str, ...] = ()


ANY_TEXT = Question()
"""A question to which every text is an answer."""
