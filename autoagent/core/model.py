"""The records exchanged with a model: messages, completions, usage, thoughts, replies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from autoagent.core.commands import Call

Asking = Literal["tools", "schema", "brief", "text", "file"]
"""How a model is asked for a command: native tool calls, a bound JSON schema, the same for the command
alone (a small model writes down what it did as what is to do, and does it again), JSON in plain text, or for
the text of the one file that its task is to write."""


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
class Reply:
    """A completion understood: the thoughts and the command in it.

    `more`: the commands that it asks for after this one, each written down as a reply of its own.
    """

    thoughts: Thoughts
    call: Call
    text: str
    more: tuple[str, ...] = ()
