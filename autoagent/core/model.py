"""Define the records exchanged with a model: messages, completions, usage, replies, prompt style and window."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, TypeVar

from autoagent.core.commands import Call
from autoagent.core.frozen import dataclass

Asking = Literal["tools", "schema", "text"]  # how to request a command: native tool calls, an enforced schema, or text


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A native tool call as an endpoint writes it: `arguments` is still JSON. In a prompt it has an `id`."""

    name: str
    arguments: str
    id: str = ""


@dataclass(frozen=True, slots=True)
class Message:
    """A message of a prompt."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str
    calls: tuple[ToolCall, ...] = ()  # of the assistant
    answers: str = ""  # the id of the call that a tool message answers
    images: tuple[str, ...] = ()  # data URLs of images that the text names

    @property
    def size(self) -> int:
        """Return the number of characters in its texts and images."""
        return len(self.content) + sum(len(call.arguments) for call in self.calls) + sum(map(len, self.images))


_MAX_CACHED_CHARACTERS = 1_000_000  # more than a prompt of 128,000 tokens
Rendered = TypeVar("Rendered")


def cached_by_message(make: Callable[[Message], Rendered]) -> Callable[[Message], Rendered]:
    """Cache a function of a message, as most messages repeat from the previous prompt.

    Messages are told apart by identity: in a long prompt, comparing texts takes longer than anything else. The cache
    holds the newest one or two million characters, so that a long run does not hold everything it has written.
    """
    new: dict[int, tuple[Message, Rendered]] = {}  # by id; the entry holds the message, so that its id is not reused
    old: dict[int, tuple[Message, Rendered]] = {}
    characters = 0

    def cached(message: Message) -> Rendered:
        nonlocal new, old, characters
        entry = new.get(id(message))
        if entry is None:
            entry = old.get(id(message)) or (message, make(message))
            if characters > _MAX_CACHED_CHARACTERS:
                new, old, characters = {}, new, 0
            new[id(message)] = entry
            characters += message.size
        return entry[1]

    return cached


@dataclass(frozen=True, slots=True)
class Price:
    """Prices in USD per million tokens."""

    prompt: float
    completion: float
    cached: float

    @property
    def cached_part(self) -> float:
        """Return the price of a cached token relative to a new token, 0 if prompts are free."""
        return self.cached / self.prompt if self.prompt else 0.0


@dataclass(frozen=True, slots=True)
class Usage:
    """The tokens of one or more calls. `cost` is in USD, None if the price is unknown."""

    prompt: int = 0
    completion: int = 0
    cached: int = 0
    cost: float | None = 0.0

    def __add__(self, other: Usage) -> Usage:
        cost = None if self.cost is None or other.cost is None else self.cost + other.cost
        return Usage(self.prompt + other.prompt, self.completion + other.completion, self.cached + other.cached, cost)


@dataclass(frozen=True, slots=True)
class Completion:
    """A model's whole answer to one prompt."""

    text: str
    usage: Usage
    calls: tuple[ToolCall, ...] = ()
    truncated: bool = False  # it hit the token limit or was interrupted
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
class Reply:
    """A parsed completion: thoughts and command."""

    thoughts: Thoughts
    call: Call
    text: str
    more: tuple[str, ...] = ()  # further commands, each written as a separate reply


@dataclass(frozen=True, slots=True)
class PromptStyle:
    """A way to prompt a kind of model. The model's provider chooses the style."""

    name: Literal["full", "brief", "file"]  # in the setting and the log
    thinks: bool = True  # ask for thoughts before the command; small models would repeat the thoughts in the history
    guided: bool = False  # describe the workspace in each prompt and offer only fitting arguments and commands
    blocks: bool = False  # code follows the reply in a Markdown block, enforced by the provider's grammar
    reasons: bool = True  # ask the model to judge goals as a verifier, and to extract facts at the end of a run
    drafts: bool = False  # let the model do the whole work several times, in copies, and use what two agree on
    writes_file: bool = False  # each reply is the text of the one file that the task names


FULL = PromptStyle("full")
BRIEF = PromptStyle("brief", thinks=False, guided=True, reasons=False, drafts=True)
BRIEF_BLOCKS = replace(BRIEF, blocks=True)
FILE = PromptStyle("file", writes_file=True)

STYLES: dict[str, PromptStyle] = {style.name: style for style in (FULL, BRIEF, FILE)}

SMALL_MODEL_PARAMETERS = 4e9  # models with fewer get the brief style


def style_for(parameters: float | None, name: str = "", *, blocks: bool = False) -> PromptStyle:
    """Return the style for a model. `parameters` is None if unknown, and `name` is the user's setting."""
    if name == "brief" or (not name and parameters is not None and parameters < SMALL_MODEL_PARAMETERS):
        return BRIEF_BLOCKS if blocks else BRIEF
    return FULL


SMALL_WINDOW = 16_000  # tokens; below this, every offered command costs history

MAX_CORE_TOKENS = 300  # of core memories in each prompt

_CLOSING_TOKENS = 100  # for the rest of the last message: clock, question, titles, message marks


@dataclass(frozen=True, slots=True)
class Shares:
    """The number of tokens for each part of a prompt other than the system message."""

    history: int
    step_memories: int
    reminders: int  # what was done, and what is left of the limits
    goal_memories: int = 0
    core: int = 0  # memories of the user, in every prompt


def reply_tokens(window: int) -> int:
    """Return the tokens reserved for the reply."""
    return min(window // 5, 4096)


def share_out(window: int, reply: int, system: int, goals: int) -> Shares:
    """Divide the window. All arguments are in tokens. `history` may come out negative; the caller checks."""
    memories = max(96, min(window // 32, 1200))
    reminders = max(96, min(window // 40, 600))
    core = min(MAX_CORE_TOKENS, max(96, window // 32))
    history = window - reply - system - goals - memories - core - reminders - _CLOSING_TOKENS
    return Shares(history, memories // 2, reminders, memories // 2, core)


_compact = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode  # as models write their calls
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")  # valid as a function name at endpoints


def make_call(step: int, name: str, thoughts: Mapping[str, Any], args: Mapping[str, Any]) -> ToolCall:
    """Make the call of a step, with an id of nine letters and digits, as Mistral requires."""
    return ToolCall(name, _compact({"thoughts": list(thoughts.values()), **args}), f"call{step:05d}")


def parse_written_call(text: str) -> tuple[str, Mapping[str, Any], Mapping[str, Any]] | None:
    """Return the name, thoughts and arguments of a call written as this reply, or None if it is not a call."""
    try:
        reply = json.loads(text)
    except (ValueError, RecursionError):
        return None
    command = reply.get("command") if isinstance(reply, dict) else None
    name, args = (command.get("name"), command.get("args")) if isinstance(command, dict) else (None, None)
    if not isinstance(name, str) or not _NAME.fullmatch(name) or not isinstance(args, dict) or "thoughts" in args:
        return None
    thoughts, names = reply.get("thoughts"), list(Thoughts.__dataclass_fields__)
    if isinstance(thoughts, dict):  # a call lists them by position
        count = max((number for number, name in enumerate(names, 1) if name in thoughts), default=0)
        thoughts = [thoughts.get(name, "") for name in names[:count]]
    return name, dict(zip(names, thoughts, strict=False)) if isinstance(thoughts, list) else {}, args


def call_as_text(call: ToolCall) -> str:
    """Render the call in the form of a written reply."""
    args = json.loads(call.arguments)
    thoughts = dict(zip(Thoughts.__dataclass_fields__, args.pop("thoughts", ()), strict=False))
    return json.dumps({"thoughts": thoughts, "command": {"name": call.name, "args": args}}, ensure_ascii=False)


def without_calls(messages: Sequence[Message]) -> list[Message]:
    """Rewrite the messages without calls: tool results become user messages, and user and assistant alternate."""
    rewritten: list[Message] = []
    names: dict[str, str] = {}
    for message in messages:
        names |= {call.id: call.name for call in message.calls}
        content = "\n".join(filter(None, (message.content, *map(call_as_text, message.calls))))
        role = "user" if message.role == "tool" else message.role
        if message.role == "tool" and not content.startswith(name := names.get(message.answers, "The command")):
            content = f"{name}: {content}"  # the name of the command is only in the call (see History)
        if rewritten and rewritten[-1].role == role != "system":
            images = rewritten[-1].images + message.images
            rewritten[-1] = replace(rewritten[-1], content=f"{rewritten[-1].content}\n\n{content}", images=images)
        else:
            rewritten.append(Message(role, content, images=message.images))
    return rewritten
