"""A command as records: its spec, a call, the proposal to run it, the verdict, the result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Risk = Literal["read", "write", "run", "network", "irreversible"]


@dataclass(frozen=True, slots=True)
class Call:
    """A command the model asks for: a known name, arguments that fit its schema."""

    id: str
    name: str
    args: Mapping[str, Any]

    def __str__(self) -> str:
        return f"{self.name}({', '.join(f'{key}={value!r}' for key, value in self.args.items())})"


Meaning = Literal["exact", "path", "entry", "url", "shell", "text"]
"""What the value of an argument is, for a pattern to fit it (see rules); "exact": nothing but the very text does.

An "entry" is a path whose command does something to what is called so itself, be it a link: it leads nowhere else.
"""


@dataclass(frozen=True, slots=True)
class Parameter:
    """One argument of a command; `kind` is a JSON type, `choices` the only values it takes."""

    name: str
    kind: Literal["string", "integer", "number", "boolean", "array"]
    required: bool = True
    default: Any = None
    help: str = ""
    choices: tuple[str, ...] = ()
    meaning: Meaning = "exact"


@dataclass(frozen=True, slots=True, kw_only=True)
class Effects:
    """What a command's result holds and what its call does, beyond its risk; what is not set here, it does not.

    What it shows of the workspace's files is not declared: the workspace notes all that it hands out.

    Attributes:
        runs_programs: its result holds what programs print, and they may have read any file of the workspace.
        from_outside: its result, a failure too, may hold text from outside, and so may the files it writes.
        asks_user: its result holds an answer of the user; only the run's own agent can have it.
        tells_agents: what it is given, another agent reads, which may do anything that agent can.
        amends: the files that it changes stay whose they were, as it does not write them anew.
        ends_run: the run ends with it, so that every agent has it.
        pages_results: it shows parts of an earlier step's result, which carry what that result does.
    """

    runs_programs: bool = False
    from_outside: bool = False
    asks_user: bool = False
    tells_agents: bool = False
    amends: bool = False
    ends_run: bool = False
    pages_results: bool = False


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
    keywords: tuple[str, ...] = ()  # it is offered in a small window where the goals hold one of them
    always_offered: bool = False  # whatever the goals hold
    autogpt: tuple[str, ...] = ()  # the modules of AutoGPT that it stands for, without "autogpt.commands."

    def signature(self) -> str:
        """`web_search(query, num_results=8)`."""
        shown = (p.name if p.required else f"{p.name}={p.default!r}" for p in self.parameters)
        return f"{self.name}({', '.join(shown)})"


@dataclass(frozen=True, slots=True)
class Result:
    """What a command gave: `text` for the model, `data` (JSON values) for log and screen.

    Keys of `data` that the program reads: `changed` (workspace paths), `finished` (the reason the run may end),
    `untrusted` (where a text from outside came from, such as its URL), `quoted` (the same, where the text has marks
    around it already), `private` (true: it holds what is the user's), `masked` (true: a secret in the arguments or in
    the text is not shown), `failed` (true: what the command did failed, though the command itself did not), `waits` (it
    waited for something, or looked how it goes on; true while it still does), `page` (the text is a part of a longer
    one, cut to its room: its first line, its last, and how many there are).
    """

    call_id: str
    ok: bool
    text: str
    data: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Proposal:
    """A call that waits for authorization, with what it would do as far as that can be foretold: a diff, or a note.

    `changes`: the preview foretells a change; False where there is no preview at all. `risk` is that of this very call,
    from its arguments. `warning`: why only a fresh answer of a person may allow it; '' where nothing demands that.
    `agent` names the sub-agent that proposes it; '' for the run's own.
    """

    call: Call
    spec: CommandSpec
    preview: str = ""
    changes: bool = False
    risk: Risk = "read"
    warning: str = ""
    agent: str = ""

    @property
    def is_diff(self) -> bool:
        """Whether the preview shows a change of a file; else it is a note about the call."""
        return self.preview.startswith("--- ")


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer to a proposal.

    Refused with a `reason`: the reason is feedback to the model. `args`: the user edited the arguments; nothing is
    decided yet, and the call is proposed again with them.
    """

    allowed: bool
    by: str
    reason: str = ""
    args: Mapping[str, Any] | None = None
