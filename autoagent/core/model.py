"""The records exchanged with a model: messages, completions, usage, thoughts, replies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from autoagent.core.commands import Call

Asking = Literal["tools", "schema", "text"]
"""How a model is asked for a command: native tool calls, a bound JSON schema, or JSON in plain text."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A native tool call as an endpoint writes it: `arguments` is still JSON. In a prompt it has an `id`."""

    name: str
    arguments: str
    id: str = ""


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a prompt. `calls` are the assistant's tool calls. `answers`: the id of the one a tool answers.

    `images` are data URLs of images that the text names.
    """

    role: Literal["system", "user", "assistant", "tool"]
    content: str
    calls: tuple[ToolCall, ...] = ()
    answers: str = ""
    images: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Price:
    """USD per million tokens."""

    prompt: float
    completion: float
    cached: float


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one or more calls. `cost` in USD, None if the price is unknown."""

    prompt: int = 0
    completion: int = 0
    cached: int = 0
    cost: float | None = 0.0

    def __add__(self, other: Usage) -> Usage:
        cost = None if self.cost is None or other.cost is None else self.cost + other.cost
        return Usage(self.prompt + other.prompt, self.completion + other.completion, self.cached + other.cached, cost)


@dataclass(frozen=True, slots=True)
class Completion:
    """A model's whole answer to one prompt. `truncated`: it hit the token limit or was cut off."""

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
    """A parsed completion: its thoughts and its command.

    `more`: the further commands it asks for, each written as a reply of its own.
    """

    thoughts: Thoughts
    call: Call
    text: str
    more: tuple[str, ...] = ()
