"""Define the events that make up a run. docs/events.md describes each for outside readers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any, ClassVar, Literal, TypeVar, dataclass_transform

from autoagent.core.commands import Call, Proof, ResultMeta, Risk
from autoagent.core.frozen import dataclass
from autoagent.core.memory import LeftOut, RetrievedMemory
from autoagent.core.model import FULL, STYLES, PromptStyle, Thoughts, Usage
from autoagent.core.task import GoalVerdict, Status, Task

VERSION = 1  # of the event schema; a log with a newer one is refused
CUT_SHORT = "replies that were cut short"  # the purpose of calls without a completion


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Hold the fields common to all events. `t` is in seconds since the epoch. `seq` counts from 0 without gaps.

    `agent` is the key of the recording sub-agent, '' for the run's own agent. Each agent counts its own steps. `worked`
    is the agent's working time in seconds over all processes of the run, or None if no agent was at work.

    `passing`: nothing acts on it until a later event is synced together with it. The end of a process loses none of
    these. A power cut may, and the step is then repeated.
    """

    type: ClassVar[str] = ""
    passing: ClassVar[bool] = False
    run: str = ""
    seq: int = -1
    step: int = 0
    t: float = 0.0
    agent: str = ""
    worked: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Labelled(Event):
    """An event with text for the model. `data` holds its labels as logged (see ResultMeta)."""

    data: Mapping[str, Any] = field(default_factory=dict)

    @property
    def meta(self) -> ResultMeta:
        """Return the labels of the text."""
        return ResultMeta.from_json(self.data)


Kind = TypeVar("Kind", bound=Event)
EVENTS: dict[str, type[Event]] = {}  # by their names in the log


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(field,))
def event(name: str, *, passing: bool = False) -> Callable[[type[Kind]], type[Kind]]:
    """Make a class the record of an event with this name in the log. `passing` is as in Event."""

    def recorded(kind: type[Kind]) -> type[Kind]:
        record = dataclass(frozen=True, slots=True, kw_only=True)(kind)
        record.type, record.passing = name, passing
        EVENTS[name] = record
        return record

    return recorded


@event("run_started")
class RunStarted(Event):
    """Start the run: everything that shapes its prompts, and the settings to restore on resume."""

    version: str
    task: Task
    model: str
    window: int
    reply_tokens: int
    system: str
    system_tokens: int  # of the system message, and of any tool definitions
    asking: str  # as in Asking; older logs may have a style here
    commands: tuple[str, ...]
    workspace: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    limits: Mapping[str, Any] = field(default_factory=dict)  # the ceilings of this process, as in RunLimits
    native: bool = False  # whether a native tool call stays one in the prompts
    context: int = 0  # history tokens per prompt, 0 for all that the window holds
    host: str = ""  # host and port that receive the prompts, or '' without an endpoint
    prompt_style: str = ""  # as in PromptStyle; older logs have it as `asking`
    cached_part: float = 0.0  # ratio of a cached prompt token's price to a new one's; 0 if unknown

    @property
    def style(self) -> PromptStyle:
        """Return the model's prompt style."""
        return STYLES.get(self.prompt_style or self.asking, FULL)


@event("resumed")
class Resumed(RunStarted):
    """A process resumed the run, with the settings that apply from here."""


@event("changed")
class Changed(RunStarted):
    """The user changed `what` at a question: the model, the goals or the budget. Its fields apply from here on."""

    what: str = ""


@event("recalled", passing=True)
class Recalled(Event):
    """Memories found for this step's prompt, which shows as many as fit.

    `lasting`: found by the goals and shown in all prompts until replaced. `core`: shown in all prompts, the most
    important first; `left_out` did not fit. `gate`: the evidence that each needed.
    """

    query: str
    memories: tuple[RetrievedMemory, ...]
    left_out: tuple[LeftOut, ...] = ()
    lasting: bool = False
    gate: float = 0.0
    core: bool = False


@event("tainted", passing=True)
class Tainted(Labelled):
    """A memory recalled for the first time brought labels into the run: `untrusted` text, `private` data."""

    memory: int


@event("dropped")
class Dropped(Event):
    """The user removed a recalled memory from the run: no later prompt shows it, and its labels are dropped.

    `ends_reply`: further commands of the reply are not run. Older logs lack it and did run them. With an `attachment`
    it is that which no later prompt shows, and `memory` is -1. Its labels stay.
    """

    memory: int
    ends_reply: bool = False
    attachment: str = ""


@event("prompted", passing=True)
class Prompted(Event):
    """A prompt is about to be sent: its sha256, size, displayed time and estimated cost in USD.

    `left` describes the remaining limits, without the spending of sub-agents, which their own events record. `zone` is
    the offset of its local time from UTC in seconds, missing in older logs. `files` describes the workspace, if it
    does.
    """

    sha256: str
    tokens: int
    messages: int
    at: float
    estimate: float | None
    left: str = ""
    zone: int | None = None
    files: str = ""


@event("retried", passing=True)
class Retried(Event):
    """A failure and its reason: the model had to be asked again, or the memory could not be used.

    `shortened`: the model was asked with a shorter history, as the prompt did not fit.
    """

    reason: str
    shortened: bool = False


@event("thought", passing=True)
class Thought(Event):
    """A usable reply: thoughts and a command. Each call in `more` becomes a separate step."""

    thoughts: Thoughts
    call: Call
    text: str
    usage: Usage
    more: tuple[str, ...] = ()


@event("rejected", passing=True)
class Rejected(Event):
    """An unusable reply, its problem and its cost. `off`: it requests a command that this agent does not have."""

    problem: str
    text: str
    usage: Usage
    truncated: bool = False
    command: str = ""
    off: bool = False


@event("spent")
class Spent(Event):
    """A call to a model or an embedder outside a step: its purpose and cost."""

    purpose: str
    usage: Usage


@event("proposed", passing=True)
class Proposed(Event):
    """A call before the authorizer, with the displayed preview and warning.

    `masked`: a secret in the arguments is not logged. `risk` is computed from the arguments. Older logs lack it.
    """

    call: Call
    preview: str = ""
    warning: str = ""
    masked: bool = False
    risk: Risk | Literal[""] = ""

    @property
    def is_diff(self) -> bool:
        """Return whether the preview shows a file's changes, as of Proposal."""
        return self.preview.startswith("--- ")


@event("decided", passing=True)
class Decided(Event):
    """A decision on a call, and who made it. `elsewhere`: from another terminal."""

    call_id: str
    allowed: bool
    by: str
    reason: str = ""
    args: Mapping[str, Any] | None = None
    elsewhere: bool = False


@event("feedback")
class Feedback(Event):
    """A message from the user to the agent."""

    text: str


@event("noticed", passing=True)
class SystemNotice(Event):
    """A message from the program to the agent, for example about a standstill."""

    text: str


@event("told", passing=True)
class AgentMessage(Labelled):
    """A message from another agent of the run, with the labels of its text.

    It may be `untrusted` and `private`. `changed` lists files that the sender changed. `attached`: the sender is a file
    or standard input that the user attached. `image` is the data URL of one that the text names.
    """

    sender: str
    text: str
    attached: bool = False
    image: str = ""

    @property
    def heading(self) -> str:
        """Return the line that introduces the speaker."""
        return f"{self.sender}, attached by the user:" if self.attached else f"From {self.sender}:"


@event("started")
class Started(Event):
    """A command is about to run. On disk before it does."""

    call: Call


@event("returned")
class Returned(Labelled):
    """The command's result. `known` is False if a crash hid it: the command may have run."""

    call_id: str
    ok: bool
    text: str
    seconds: float = 0.0
    known: bool = True

    @property
    def put_off(self) -> bool:
        """Return whether the command was to end the run but a goal is not met."""
        return self.meta.put_off

    @property
    def needs_review(self) -> bool:
        """Return whether the model must see this before more of its reply is done."""
        return not self.known or self.put_off

    @property
    def outcome(self) -> str:
        """Return the outcome of the command, worded to follow its name."""
        if self.put_off:
            return "is put off"
        return "returned" if self.ok else "failed" if self.known else "may have run"


@event("snapshot")
class Snapshot(Event):
    """The workspace at this point of the step: the id of its tree in the snapshot store.

    `apart`: a role's own copy, until the round ends.
    """

    tree: str
    apart: bool = False


@event("undone")
class Undone(Event):
    """The user restores the workspace to `tree`, the state after step `to`. With `redo`, the last undo is reverted.

    A `Snapshot` follows once the workspace is restored.
    """

    to: int
    tree: str
    redo: bool = False


@event("rewound")
class Rewound(Event):
    """The user returns to the end of step `to`. Later steps no longer count, except for their cost.

    `tree` is the workspace to restore, or '' if no snapshot has it.
    """

    to: int
    tree: str


@event("forked")
class Forked(Event):
    """The end of the history shared with the run `origin`, whose steps up to `at` precede it unchanged."""

    origin: str
    at: int


@event("checked")
class Checked(Labelled):
    """The check of a goal ran: the goal's index, whether it is met, and the end of its output.

    It is `untrusted` and `private` as far as the agent sees that output.
    """

    goal: int
    met: bool
    output: str = ""


@event("remembered", passing=True)
class Remembered(Event):
    """The step was stored in the long-term memory under this id. `store` identifies the memory; '' in old logs."""

    memory: int
    store: str = ""


@event("ended")
class Ended(Event):
    """The process left the run. An unfinished run can be resumed. `goals` are those of the Outcome."""

    status: Status
    reason: str
    goals: tuple[Proof, ...] = ()


@event("hired", passing=True)
class Hired(Event):
    """A role joined the team under the key `agent`: its name, its actions, and the messages it watches for."""

    name: str
    profile: str
    prefix: str
    actions: tuple[str, ...] = ()
    watch: tuple[str, ...] = ()
    human: bool = False


@event("round_began", passing=True)
class RoundBegan(Event):
    """A round of the team began. Its number is the step. Every role reads all earlier messages.

    `acts` are the keys of the roles with news. `waits` maps the others to the actions they wait for.
    """

    acts: tuple[str, ...]
    waits: Mapping[str, Any] = field(default_factory=dict)


@event("verified")
class Verified(Event):
    """A verifier judged goals at the end of the run. `model` is its name. Its answers precede this event."""

    model: str
    verdicts: tuple[GoalVerdict, ...]


@event("drafted")
class Drafted(Event):
    """A model has done the whole work several times, in copies of the workspace.

    Attributes:
        drafts: how many times.
        agree: how many leave the same files as the one proposed, 0 if none is: no two do, and none passes failed tests.
        shown: the paths of the files that the model has seen.
        failed: the paths of the tests and programs that failed before.
    """

    drafts: int
    agree: int = 0
    shown: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()


@event("answered", passing=True)
class Answered(Event):
    """A model, or a person in its place, answered a role's question, of which the log has the `sha256`.

    `purpose` names the action that asked.
    """

    purpose: str
    sha256: str
    text: str
    usage: Usage
    human: bool = False
    truncated: bool = False


@event("published", passing=True)
class Published(Labelled):
    """A message of a role, readable by all once the round has ended. One of the user, at once.

    `id` is the message's own id, `role` the writer's profile, `sent_from` the writer's name, `cause_by` the action, and
    `send_to` the recipients. `data` holds the labels of everything the writer had read: `untrusted`, `private`. `extra`
    holds the `instruct_content` and `metadata` of a Python program, each with its `value` and `class`.
    """

    id: str
    content: str
    role: str
    sent_from: str = ""
    cause_by: str = ""
    send_to: tuple[str, ...] = ()
    extra: Mapping[str, Any] = field(default_factory=dict)


@event("acted", passing=True)
class Acted(Event):
    """A role's turn in a round is over. `memory` lists its changes to its own memory, beside reading messages.

    Each change is `add` with a message or the id of a published message, `delete` with an id, or `clear`.
    """

    memory: tuple[Mapping[str, Any], ...] = ()


@event("round_ended")
class RoundEnded(Event):
    """The round is over. Its messages are published in the order in which the roles were hired."""
