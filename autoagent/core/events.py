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
    """The fields common to all events.

    No event is lost when a process ends. A power cut may lose a `passing` event, and the step is then repeated.
    """

    type: ClassVar[str] = ""
    passing: ClassVar[bool] = False  # nothing acts on it until a later event is synced together with it
    run: str = ""
    seq: int = -1  # counts from 0 without gaps
    step: int = 0  # of this agent: each counts its own
    t: float = 0.0  # seconds since the epoch
    agent: str = ""  # the key of the recording sub-agent, '' for the run's own agent
    worked: float | None = None  # seconds of the agent over all processes of the run, or None if none was at work


@dataclass(frozen=True, slots=True, kw_only=True)
class Labelled(Event):
    """An event with text for the model."""

    data: Mapping[str, Any] = field(default_factory=dict)  # the labels of the text as logged (see ResultMeta)

    @property
    def meta(self) -> ResultMeta:
        return ResultMeta.from_json(self.data)


Kind = TypeVar("Kind", bound=Event)
EVENTS: dict[str, type[Event]] = {}  # by their names in the log


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(field,))
def event(name: str, *, passing: bool = False) -> Callable[[type[Kind]], type[Kind]]:
    """Make a class the record of an event with this name in the log. `passing` is as in Event."""

    def register(kind: type[Kind]) -> type[Kind]:
        record = dataclass(frozen=True, slots=True, kw_only=True)(kind)
        record.type, record.passing = name, passing
        EVENTS[name] = record
        return record

    return register


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
        return STYLES.get(self.prompt_style or self.asking, FULL)


@event("resumed")
class Resumed(RunStarted):
    """A process resumed the run, with the settings that apply from here.

    `edited` are the files that the run had made and that have changed since its last snapshot.
    """

    edited: tuple[str, ...] = ()


@event("changed")
class Changed(RunStarted):
    """The user changed `what` at a question: the model, the goals or the budget. Its fields apply from here on."""

    what: str = ""


@event("recalled", passing=True)
class Recalled(Event):
    """Memories found for this step's prompt, which shows as many as fit."""

    query: str
    memories: tuple[RetrievedMemory, ...]
    left_out: tuple[LeftOut, ...] = ()  # rejected, or no room in the prompt
    lasting: bool = False  # found by the goals and shown in all prompts until replaced
    gate: float = 0.0  # the evidence that each needed
    core: bool = False  # shown in all prompts, the most important first


@event("tainted", passing=True)
class Tainted(Labelled):
    """A memory recalled for the first time brought labels into the run: `untrusted` text, `private` data."""

    memory: int


@event("dropped")
class Dropped(Event):
    """The user removed a recalled memory from the run: no later prompt shows it, and its labels are dropped."""

    memory: int
    ends_reply: bool = False  # further commands of the reply are not run; older logs lack it and did run them
    attachment: str = ""  # no later prompt shows it; `memory` is then -1, and its labels stay


@event("prompted", passing=True)
class Prompted(Event):
    """A prompt is about to be sent."""

    sha256: str
    tokens: int
    messages: int
    at: float  # the displayed time
    estimate: float | None  # cost in USD
    left: str = ""  # the remaining limits, without the spending of sub-agents, which their own events record
    zone: int | None = None  # the offset of its local time from UTC in seconds, missing in older logs
    files: str = ""  # how it describes the workspace, if it does


@event("retried", passing=True)
class Retried(Event):
    """A failure and its reason: the model had to be asked again, or the memory could not be used."""

    reason: str
    shortened: bool = False  # the model was asked with a shorter history, as the prompt did not fit


@event("thought", passing=True)
class Thought(Event):
    """A usable reply: thoughts and a command."""

    thoughts: Thoughts
    call: Call
    text: str
    usage: Usage
    more: tuple[str, ...] = ()  # further calls, each of which becomes a separate step


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
    """A call before the authorizer, with the displayed preview and warning."""

    call: Call
    preview: str = ""
    warning: str = ""
    masked: bool = False  # a secret in the arguments is not logged
    risk: Risk | Literal[""] = ""  # computed from the arguments; older logs lack it

    @property
    def is_diff(self) -> bool:
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
    """A message from another agent of the run. Its labels may name files that the sender changed."""

    sender: str
    text: str
    attached: bool = False  # the sender is a file or standard input that the user attached
    image: str = ""  # the data URL of one that the text names

    @property
    def heading(self) -> str:
        return f"{self.sender}, attached by the user:" if self.attached else f"From {self.sender}:"


@event("started")
class Started(Event):
    """A command is about to run. On disk before it does."""

    call: Call


@event("returned")
class Returned(Labelled):
    """The command's result."""

    call_id: str
    ok: bool
    text: str
    seconds: float = 0.0
    known: bool = True  # False if a crash hid it: the command may have run

    @property
    def put_off(self) -> bool:
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
    """The workspace at this point of the step."""

    tree: str  # its id in the snapshot store
    apart: bool = False  # a role's own copy, until the round ends
    by_hand: bool = False  # neither the agent nor one of its programs has run since the previous snapshot


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
    """The user returns to the end of step `to`. Later steps no longer count, except for their cost."""

    to: int
    tree: str  # the workspace to restore, or '' if no snapshot has it


@event("forked")
class Forked(Event):
    """The end of the history shared with the run `origin`, whose steps up to `at` precede it unchanged."""

    origin: str
    at: int


@event("checked")
class Checked(Labelled):
    """The check of a goal ran. It is `untrusted` and `private` as far as the agent sees its output."""

    goal: int  # from 0
    met: bool
    output: str = ""  # the end of it


@event("remembered", passing=True)
class Remembered(Event):
    """The step was stored in the long-term memory under this id."""

    memory: int
    store: str = ""  # identifies the memory; '' in old logs


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
    """A round of the team began. Its number is the step. Every role reads all earlier messages."""

    acts: tuple[str, ...]  # the keys of the roles with news
    waits: Mapping[str, Any] = field(default_factory=dict)  # the actions that the other roles wait for


@event("verified")
class Verified(Event):
    """A verifier judged goals at the end of the run. `model` is its name. Its answers precede this event."""

    model: str
    verdicts: tuple[GoalVerdict, ...]


@event("drafted")
class Drafted(Event):
    """A model has done the whole work several times, in copies of the workspace.

    No draft is proposed if no two leave the same files, and none passes failed tests.
    """

    drafts: int  # how many times
    agree: int = 0  # how many leave the same files as the proposed draft, 0 without one
    shown: tuple[str, ...] = ()  # the paths of the files that the model has seen
    failed: tuple[str, ...] = ()  # the paths of the tests and programs that failed before


@event("asked", passing=True)
class Asked(Event):
    """A question outside a step is about to be sent to a model. Fields as in Answered and Prompted."""

    purpose: str
    sha256: str
    tokens: int
    estimate: float | None


@event("answered", passing=True)
class Answered(Event):
    """A model, or a person in its place, answered a role's question."""

    purpose: str  # the action that asked
    sha256: str  # of the question
    text: str
    usage: Usage
    human: bool = False
    truncated: bool = False


@event("published", passing=True)
class Published(Labelled):
    """A message of a role, readable by all once the round has ended, or of the user, readable at once.

    Its labels are those of everything the writer had read. `extra` holds the `instruct_content` and `metadata` of a
    Python program, each with its `value` and `class`.
    """

    id: str
    content: str
    role: str  # the writer's profile
    sent_from: str = ""  # the writer's name
    cause_by: str = ""  # the action
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
