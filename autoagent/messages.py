"""The records that travel between the rooms, and the events that make up a run.

All of them are frozen. An event is stamped (run, seq, t) by the log that stores it. docs/events.md describes each type
for readers outside the program.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

VERSION = 1  # of the event schema; a log with a newer one is refused

Asking = Literal["tools", "schema", "text"]
"""How a model is asked for a command: native tool calls, a bound JSON schema, or JSON in plain text."""

Risk = Literal["read", "write", "run", "network", "irreversible"]

Status = Literal["finished", "failed", "setup", "limit", "unanswered", "stopped", "budget", "stuck", "interrupted"]


# What the user wants ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Goal:
    """One goal; `check` is a shell command of the user's that exits 0 once the goal is met."""

    text: str
    check: str | None = None

    def __str__(self) -> str:
        """Show the goal to a person; what is shown is never parsed again, as a text may hold ` :: ` too."""
        return f"{self.text} :: {self.check}" if self.check else self.text


@dataclass(frozen=True, slots=True)
class Task:
    """Who the agent is and what it is to reach: what `ai_settings.yaml` holds. `budget` is in USD, 0 for none."""

    name: str
    role: str
    goals: tuple[Goal, ...]
    budget: float = 0.0


# What goes to the model and comes back ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A native tool call as an endpoint writes it: `arguments` is still JSON. In a prompt it has an `id`."""

    name: str
    arguments: str
    id: str = ""


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a prompt. `calls` are the tool calls of the assistant; `answers` is the id of a tool's own."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str
    calls: tuple[ToolCall, ...] = ()
    answers: str = ""


@dataclass(frozen=True, slots=True)
class Price:
    """USD per million tokens."""

    prompt: float
    completion: float
    cached: float


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one or more calls; `cost` in USD, None where the price is not known."""

    prompt: int = 0
    completion: int = 0
    cached: int = 0
    cost: float | None = 0.0

    def __add__(self, other: Usage) -> Usage:
        cost = None if self.cost is None or other.cost is None else self.cost + other.cost
        return Usage(self.prompt + other.prompt, self.completion + other.completion, self.cached + other.cached, cost)


@dataclass(frozen=True, slots=True)
class Completion:
    """All that a model said to one prompt. `truncated`: it ran into the token limit or was cut off."""

    text: str
    usage: Usage
    calls: tuple[ToolCall, ...] = ()
    truncated: bool = False
    retries: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Thoughts:
    """The five thoughts of AutoGPT's reply format."""

    text: str = ""
    reasoning: str = ""
    plan: str = ""
    criticism: str = ""
    speak: str = ""


@dataclass(frozen=True, slots=True)
class Call:
    """A command the model asks for: a known name, arguments that fit its schema."""

    id: str
    name: str
    args: Mapping[str, Any]

    def __str__(self) -> str:
        return f"{self.name}({', '.join(f'{key}={value!r}' for key, value in self.args.items())})"


@dataclass(frozen=True, slots=True)
class Reply:
    """A completion understood: the thoughts and the command in it.

    `more`: the commands that it asks for after this one, each written down as a reply of its own.
    """

    thoughts: Thoughts
    call: Call
    text: str
    more: tuple[str, ...] = ()


# Commands --------------------------------------------------------------------------------------------------------


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


@dataclass(frozen=True, slots=True)
class Exit:
    """How a program ended: both its streams in order, head and tail of `total` bytes where there were more.

    One of the three says how: its exit `status`, the `signal` that ended it (`SIGKILL`), or the `limit` of ours that
    did (`120 s`, `2,048 MB of memory`); the others are None and ''.
    """

    output: bytes
    total: int
    status: int | None = None
    signal: str = ""
    limit: str = ""


@dataclass(frozen=True, slots=True)
class Background:
    """A program that runs on: its pid as the agent's machine counts, what it is, and where its output goes.

    `output` is a path in the workspace; `exit` is None while it runs.
    """

    pid: int
    command: str
    output: str
    exit: Exit | None = None


@dataclass(frozen=True, slots=True)
class Page:
    """What was fetched: from which `url` in the end, its media type without parameters, and its bytes.

    `cut`: there was more than the limit. `charset` as the server or the document says, '' where neither does.
    """

    url: str
    media_type: str
    body: bytes
    charset: str = ""
    cut: bool = False


@dataclass(frozen=True, slots=True)
class Hit:
    """One result of a web search."""

    title: str
    url: str
    text: str


@dataclass(frozen=True, slots=True)
class Found:
    """The results of a web search, best first, and the engine that gave them."""

    engine: str
    hits: tuple[Hit, ...]


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended."""

    status: Status
    reason: str


# Memory ----------------------------------------------------------------------------------------------------------


PRIVATE = "private"
"""What the source of a memory names, beside others, where it may hold what is the user's own."""

PRIVATE_SOURCES = frozenset({PRIVATE, "user"})
"""The sources that make a memory private: a run that held such data, or the user's own words."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a memory comes from: sources with commas between; `trusted`: none of them is outside."""

    source: str = ""
    trusted: bool = True

    @property
    def labels(self) -> dict[str, Any]:
        """`untrusted` and `private`, as far as they hold, as Result.data has them."""
        parts = self.source.split(", ")
        labels: dict[str, Any] = {}
        if not self.trusted:
            labels["untrusted"] = ", ".join(part for part in parts if part and part != PRIVATE) or "outside"
        if PRIVATE in parts:
            labels["private"] = True
        return labels


@dataclass(frozen=True, slots=True)
class SubAgent:
    """An agent that another one has started, as it stands. `commands` are those it may use.

    `status` is `running`, `asking` (it waits until the user has answered a question of it) or as in Outcome, and
    `reason` then why it ended. `said` is what it said last, and `origin` what that comes from, after all it has read.
    """

    key: str
    name: str
    task: str
    commands: tuple[str, ...] = ()
    status: str = "running"
    reason: str = ""
    steps: int = 0
    seconds: float = 0.0
    said: str = ""
    origin: Origin = Origin()


@dataclass(frozen=True, slots=True)
class Recollection:
    """A memory that came back: `score` says how well it fits the query, as whoever found it counts that.

    `t` is when it was stored or last came back (seconds since the epoch), `level` how firmly it is kept.
    """

    id: int
    text: str
    score: float
    kind: str = "step"
    source: str = ""
    trusted: bool = True
    t: float = 0.0
    run: str = ""
    step: int = 0
    level: int = 0

    @property
    def private(self) -> bool:
        """Whether it may hold what is the user's own."""
        return not PRIVATE_SOURCES.isdisjoint(self.source.split(", "))


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A candidate that a recall did not return, and why: too far, too like another, beyond the number or the room."""

    id: int
    score: float
    reason: str


@dataclass(frozen=True, slots=True)
class Recall:
    """What a recall came to: the memories returned, best first, and the candidates it left out.

    `problem`: why nothing could be found by its meaning, so that words alone decided; '' where it could.
    """

    memories: tuple[Recollection, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Change:
    """What is to become of a memory, if its time and level are still as they were `seen`.

    `level` None: it is forgotten, and goes to the trash. `source` None: it stays as it is.
    """

    id: int
    seen: tuple[float, int]
    t: float
    level: int | None
    source: str | None = None


@dataclass(frozen=True, slots=True)
class Dream:
    """What a sleep came to: the memories that fell a level, those forgotten (ids), and the dream made of the latter.

    `text` is '' where nothing was forgotten, or where no dream could be made of it: `problem` then says why.
    `trusted` is False once a fragment came from an untrusted source, `private` True once one was the user's own.
    """

    text: str = ""
    forgotten: tuple[int, ...] = ()
    fallen: tuple[int, ...] = ()
    t: float = 0.0
    trusted: bool = True
    problem: str = ""
    private: bool = False


@dataclass(frozen=True, slots=True)
class Stats:
    """What a store holds: how many texts, its bytes, the newest embedder ('' for none), its dimension, and where."""

    count: int
    bytes: int
    embedder: str
    dim: int
    place: str


# Events ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """The envelope of every event. `t` is in seconds since the epoch; `seq` counts from 0 without a gap.

    `agent` is the key of the sub-agent whose event it is, '' for the run's own; each counts its steps by itself.
    `worked` is the seconds that this agent had worked by then, over all processes of the run; None where no agent was
    at work.
    """

    type: ClassVar[str] = ""
    run: str = ""
    seq: int = -1
    step: int = 0
    t: float = 0.0
    agent: str = ""
    worked: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStarted(Event):
    """The run begins: everything that shapes its prompts, and the settings to take up again on resume."""

    type: ClassVar[str] = "run_started"
    version: str
    task: Task
    model: str
    window: int
    reply_tokens: int
    system: str
    system_tokens: int  # of the system message, and of the tool definitions where they are sent
    asking: Asking
    commands: tuple[str, ...]
    workspace: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    limits: Mapping[str, Any] = field(default_factory=dict)  # the ceilings of this process, as Limits has them
    native: bool = False  # whether a command that was a tool call is one in the prompts, too


@dataclass(frozen=True, slots=True, kw_only=True)
class Resumed(RunStarted):
    """A process took the run up again, with the settings that hold from here."""

    type: ClassVar[str] = "resumed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Recalled(Event):
    """Memories found for this step's prompt, which shows as many of them as fit."""

    type: ClassVar[str] = "recalled"
    query: str
    memories: tuple[Recollection, ...]
    left_out: tuple[LeftOut, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Tainted(Event):
    """A recalled memory has brought into the run what it did not carry before: `data` is `untrusted`, `private`, as in
    Returned."""

    type: ClassVar[str] = "tainted"
    memory: int
    data: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompted(Event):
    """A prompt is about to be sent: its sha256, its size, the time it names, the estimated cost of the call in USD.

    `left` is its line of what is left of the limits: what sub-agents have spent by then, their own events alone say.
    `zone` are the seconds by which its local time is ahead of UTC; older logs do not say.
    """

    type: ClassVar[str] = "prompted"
    sha256: str
    tokens: int
    messages: int
    at: float
    estimate: float | None
    left: str = ""
    zone: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Retried(Event):
    """Something did not work at once, and why: the model had to be asked again, or the memory could not be used.

    `shortened`: the model was asked with a shorter history, as the prompt did not fit.
    """

    type: ClassVar[str] = "retried"
    reason: str
    shortened: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Thought(Event):
    """A usable reply: thoughts and the command asked for; `more` as in Reply. Each of those is a step of its own."""

    type: ClassVar[str] = "thought"
    thoughts: Thoughts
    call: Call
    text: str
    usage: Usage
    more: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejected(Event):
    """An unusable reply, what is wrong with it, and what it cost."""

    type: ClassVar[str] = "rejected"
    problem: str
    text: str
    usage: Usage
    truncated: bool = False
    command: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent(Event):
    """A call to a model or an embedder that was no step: what for, and what it cost."""

    type: ClassVar[str] = "spent"
    purpose: str
    usage: Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposed(Event):
    """A call is put to whoever decides on it, with its preview and the warning, as the screen shows them.

    `masked`: a secret in the arguments is not in the log.
    """

    type: ClassVar[str] = "proposed"
    call: Call
    preview: str = ""
    warning: str = ""
    masked: bool = False

    @property
    def is_diff(self) -> bool:
        """Whether the preview shows a change of a file, as of Proposal."""
        return self.preview.startswith("--- ")


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided(Event):
    """Whether a call may run, and who said so."""

    type: ClassVar[str] = "decided"
    call_id: str
    allowed: bool
    by: str
    reason: str = ""
    args: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Feedback(Event):
    """Words of the user to the agent."""

    type: ClassVar[str] = "feedback"
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Noticed(Event):
    """Words of the program to the agent: that it goes round in circles."""

    type: ClassVar[str] = "noticed"
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Told(Event):
    """Words of another agent of the run to this one: which agent, and what the words carry.

    Keys of `data` are `untrusted`, `private` and `changed` (what the other one has changed), as in Result.
    """

    type: ClassVar[str] = "told"
    sender: str
    text: str
    data: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Started(Event):
    """On disk before the command runs."""

    type: ClassVar[str] = "started"
    call: Call


@dataclass(frozen=True, slots=True, kw_only=True)
class Returned(Event):
    """The command's result. `known` is False where a crash hid it: the command may have run."""

    type: ClassVar[str] = "returned"
    call_id: str
    ok: bool
    text: str
    data: Mapping[str, Any] = field(default_factory=dict)
    seconds: float = 0.0
    known: bool = True

    @property
    def put_off(self) -> bool:
        """Whether the command was to end the run and did not: the work is to be looked at first, or a goal is unmet."""
        return not self.data.keys().isdisjoint(("review", "unmet"))

    @property
    def wants_a_look(self) -> bool:
        """Whether the model must see this before anything else of its reply is done: it may have run, or the end of
        the run was put off."""
        return not self.known or self.put_off

    @property
    def outcome(self) -> str:
        """What became of the command, in words that follow its name."""
        if self.put_off:
            return "is put off"
        return "returned" if self.ok else "failed" if self.known else "may have run"


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot(Event):
    """The workspace as it is at this point of the step: the id of its tree in the snapshot store."""

    type: ClassVar[str] = "snapshot"
    tree: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Undone(Event):
    """The user takes the workspace to `tree`, as it was after step `to`; with `redo` that takes the last undo back.

    A `Snapshot` follows once it is there.
    """

    type: ClassVar[str] = "undone"
    to: int
    tree: str
    redo: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewound(Event):
    """The user goes back to the end of step `to`: what came after it does not count any more, but for what it cost.

    `tree` is what the workspace is taken to, '' where no snapshot says what it was.
    """

    type: ClassVar[str] = "rewound"
    to: int
    tree: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Forked(Event):
    """The end of what this run shares with the run `origin`, whose steps up to `at` stand before it as they were."""

    type: ClassVar[str] = "forked"
    origin: str
    at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked(Event):
    """The check of a goal was run: which goal (from 0), whether it is met, and the end of what it printed.

    `data` is `untrusted`, `private`, as in Returned, where the agent is told what it printed.
    """

    type: ClassVar[str] = "checked"
    goal: int
    met: bool
    output: str = ""
    data: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Remembered(Event):
    """The step went into the long-term memory under this id."""

    type: ClassVar[str] = "remembered"
    memory: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended(Event):
    """The process left the run; an unfinished one can be resumed."""

    type: ClassVar[str] = "ended"
    status: Status
    reason: str


EVENTS: Mapping[str, type[Event]] = {
    kind.type: kind
    for kind in (
        RunStarted, Resumed, Recalled, Tainted, Prompted, Retried, Thought, Rejected, Spent, Proposed, Decided,
        Feedback, Noticed, Told, Started, Returned, Snapshot, Undone, Rewound, Forked, Checked, Remembered, Ended,
    )
}  # fmt: skip
