"""A command as records: its spec, a call, the proposal to run it, the verdict, the result."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final, Literal

LevelName = Literal["planner", "executor", "thinker"]
"""The levels of a hierarchical run (see levels)."""

Proof = Literal["checked", "shown", "claimed"]
"""How it is known that a goal is met: its check is green, evidence was found, or by nothing but the agent's word."""

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
    """One argument of a command; `kind` is a JSON type, `choices` the only values it takes.

    `schema`: its JSON schema, where the command is another program's and says more of it; a kind "any" says nothing.
    `existing`: it names a file that is in the workspace already. `detail`: a small model is better off without it.
    `suffix`: what the name of that file ends with.
    `code`: its value is the code of a program, or the text of the "file" that another argument names.
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
    """What a command's result holds and what its call does, beyond its risk; what is not set here, it does not.

    What it shows of the workspace's files is not declared: the workspace notes all that it hands out.

    Attributes:
        runs_programs: its result holds what programs print, and they may have read any file of the workspace.
        from_outside: its result, a failure too, may hold text from outside, and so may the files it writes.
        asks_user: its result holds an answer of the user; only the run's own agent can have it.
        tells_agents: what it is given, another agent reads, which may do anything that agent can.
        amends: the files that it changes stay whose they were: not all of their content is this run's.
        ends_run: the run ends with it, so that every agent has it.
        pages_results: it shows parts of an earlier step's result, which carry what that result does.
        writes_whole: it writes its second argument, a text, to the file that its first one names, as all of it.
    """

    runs_programs: bool = False
    from_outside: bool = False
    asks_user: bool = False
    tells_agents: bool = False
    amends: bool = False
    ends_run: bool = False
    pages_results: bool = False
    writes_whole: bool = False


@dataclass(frozen=True, slots=True)
class CommandSpec:
    """What the model, the screen and the checks know of a command; made from its function by `@command`.

    `effects` None: it declares none, which counts as the worst.
    """

    name: str
    label: str
    category: str
    risk: Risk
    parameters: tuple[Parameter, ...] = ()
    aliases: tuple[str, ...] = ()
    repeatable: bool = False  # the same call may give another result though nothing here changed: the time, a page
    effects: Effects | None = None
    keywords: tuple[str, ...] = ()  # offered in a small window if the goals contain a word that begins with one of them
    advice: str = ""  # what a small model is told in each prompt, while goals that contain one of them are not reached
    always_offered: bool = False  # offered whatever the goals say
    autogpt: tuple[str, ...] = ()  # the modules of AutoGPT that it stands for, without "autogpt.commands."
    meant_by: tuple[str, ...] = ()  # names that models make up for what it does: not taken, but it is named then
    ignored: tuple[str, ...] = ()  # arguments that models add, and that change nothing
    stand_in: str = ""  # the command that takes its calls where it cannot be used itself
    levels: tuple[LevelName, ...] = ("executor",)  # of a hierarchical run, whose agents may have it

    @property
    def outward(self) -> bool:
        """Whether it lets its user act outward or irreversibly; one that declares nothing is assumed to."""
        return self.effects is None or self.risk in OUTWARD

    def suits(self, text: str) -> bool:
        """Return whether a word of the goals, in lower case, begins with one of its keywords."""
        return any(re.search(rf"(?<!\w){re.escape(word)}", text) for word in self.keywords)

    def signature(self) -> str:
        """Render the signature: `web_search(query, num_results=8)`."""
        shown = (p.name if p.required else f"{p.name}={p.default!r}" for p in self.parameters)
        return f"{self.name}({', '.join(shown)})"

    def in_brief(self) -> CommandSpec:
        """Return the command without details: a small model gives whatever may be given, and then sees half a file."""
        kept = tuple(parameter for parameter in self.parameters if not parameter.detail)
        return self if len(kept) == len(self.parameters) else replace(self, parameters=kept)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultMeta:
    """What the program reads of a result beside its text.

    Attributes:
        changed: the workspace paths that it changed.
        finished: the reason for which the run may end; None if it may not.
        goals: of each goal of a run that may end, how it is known that it is met.
        untrusted: where text from outside came from, such as its URL; '' for none.
        quoted: the same, where the text has marks around it already.
        tainted_by: what the files that a crashed command changed may come from; the run has read none of it.
        private: it holds what is the user's.
        masked: a secret in the arguments or in the text is not shown.
        failed: what the command did failed, though the command itself did not.
        waits: it waited for something, or looked how it goes on: whether it still does; None for neither.
        page: the text is a part of a longer one: its first line, its last, and how many there are.
        review: the end was put off, as the work is to be looked at first.
        unmet: the end was put off, as a goal is not met.
        repeat: it shows nothing but the step that has shown the same.
        kept: the memory holds it already, so that it is not remembered as a step.
        details: JSON values for log and screen alone, such as an exit status.
    """

    changed: tuple[str, ...] = ()
    finished: str | None = None
    goals: tuple[Proof, ...] = ()
    untrusted: str = ""
    quoted: str = ""
    tainted_by: str = ""
    private: bool = False
    masked: bool = False
    failed: bool = False
    waits: bool | None = None
    page: tuple[int, int, int] | None = None
    review: bool = False
    unmet: bool = False
    repeat: bool = False
    kept: bool = False
    details: Mapping[str, Any] = field(default_factory=dict)

    @property
    def source(self) -> str:
        """Where its text from outside came from, in marks or not; '' if it has none."""
        return self.untrusted or self.quoted

    def to_json(self) -> dict[str, Any]:
        """Return it as the log has it: what is set, the details among the rest."""
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
        """Return what the log has, whose values are of the right types (see event_codec)."""
        known = {name: value for name, value in data.items() if name in _META}
        details = {name: value for name, value in data.items() if name not in _META}
        for name in ("changed", "goals", "page"):
            if known.get(name) is not None:
                known[name] = tuple(known[name])
        return cls(**known, details=details)


PLAIN = ResultMeta()
"""Of a result that is text for the model alone."""

_META = frozenset(each.name for each in fields(ResultMeta)) - {"details"}


@dataclass(frozen=True, slots=True)
class Result:
    """What a command gave: `text` for the model, `meta` for guard, log and screen."""

    call_id: str
    ok: bool
    text: str
    meta: ResultMeta = PLAIN


@dataclass(frozen=True, slots=True)
class Proposal:
    """A call that waits for authorization, with what it would do as far as that can be foretold: a diff, or a note.

    `changes`: the preview foretells a change; False if there is no preview at all. `risk` is that of this very call,
    from its arguments. `warning`: why only a fresh answer of a person may allow it; '' if nothing demands that.
    `agent` names the sub-agent that proposes it; '' for the run's own. `recalled` are the memories by which alone text
    from outside came into the run, where that is a part of the warning.
    """

    call: Call
    spec: CommandSpec
    preview: str = ""
    changes: bool = False
    risk: Risk = "read"
    warning: str = ""
    agent: str = ""
    recalled: tuple[int, ...] = ()

    @property
    def is_diff(self) -> bool:
        """Whether the preview shows a change of a file; else it is a note about the call."""
        return self.preview.startswith("--- ")


Change = Callable[[Callable[[Any], Any]], None]
"""Makes a change to the run; given what records an event of it, in the log and everywhere."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer to a proposal.

    Refused with a `reason`: the reason is feedback to the model. `args`: the user edited the arguments; nothing is
    decided yet, and the call is proposed again with them. `change`: the user changes the run first; the same then,
    unless there is a `reason`, with which it is refused after that. `elsewhere`: it was given from another terminal.
    """

    allowed: bool
    by: str
    reason: str = ""
    args: Mapping[str, Any] | None = None
    change: Change | None = None
    elsewhere: bool = False
