"""Let programs written for MetaGPT ask a role's model, or their own, for text or for fields that fit a schema."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from autoagent.core.command_schema import object_schema
from autoagent.core.errors import ModelError

if TYPE_CHECKING:
    from autoagent.core.task import Goal
    from autoagent.teams.message import Message


@dataclass(frozen=True, slots=True)
class Turn:
    """The abilities of a role in its turn. Each function raises StopRun if the team is to end.

    Attributes:
        aask: takes a prompt, a system message, a purpose and a model ('' for the role's), and returns the answer of
            the model or of the person in its place. Simultaneous questions (asyncio.gather) are answered in parallel,
            each with an equal share of the remaining money.
        use_commands: takes a goal, commands, a purpose, a file ('' for none) and a model. Works on the goal as an
            agent, and returns its last answer or the text of the file.
        publish: publishes a message for all to read once the round has ended.
    """

    aask: Callable[[str, str, str, str], Awaitable[str]]
    use_commands: Callable[[Goal, Sequence[str], str, str, str], str]
    publish: Callable[[Message], None]


CURRENT_TURN: ContextVar[Turn | None] = ContextVar("CURRENT_TURN", default=None)
"""The turn in which the calling function runs."""

MAX_TRIES = 3  # for an answer that fits a schema


class Llm:
    """Ask a role's model for its actions. Raises StopRun if the team is to end, ForUser if the model cannot answer."""

    def __init__(self, ask: Callable[[str, str], Awaitable[str]]) -> None:
        self._ask = ask  # takes a prompt and a system message, '' for the role's

    async def aask(self, msg: str, system_msgs: Sequence[str] | None = None, **_: Any) -> str:
        return await self._ask(str(msg), "\n".join(system_msgs or ()))

    async def aask_batch(self, msgs: Sequence[str], **_: Any) -> str:
        """Return the answers to several prompts, each asked after the previous prompts and answers."""
        messages: list[dict[str, str]] = []
        for msg in msgs:
            messages.append({"role": "user", "content": msg})
            messages.append({"role": "assistant", "content": await self.acompletion_text(messages)})
        return "\n".join(message["content"] for message in messages[1::2])

    async def acompletion_text(self, messages: Sequence[Mapping[str, str]], **_: Any) -> str:
        """Return the answer to the messages of a chat."""
        system = [message["content"] for message in messages if message["role"] == "system"]
        chat = [message for message in messages if message["role"] != "system"]
        turns = [each["content"] if len(chat) == 1 else f"{each['role']}: {each['content']}" for each in chat]
        return await self.aask("\n\n".join(turns), system)

    async def acompletion(self, messages: Sequence[Mapping[str, str]], **_: Any) -> Any:
        """Return the answer to the messages of a chat, in OpenAI's format."""
        reply = SimpleNamespace(role="assistant", content=await self.acompletion_text(messages))
        return SimpleNamespace(choices=[SimpleNamespace(message=reply)])


@dataclass(slots=True)
class ActionOutput:
    """The output of an action: a text, and the same content as JSON or a pydantic model."""

    content: str
    instruct_content: Any = None


class ActionNode:
    """Let a model fill in the fields of a pydantic class. Afterwards it has `content` and `instruct_content`."""

    def __init__(self, model: Any, key: str | None = None) -> None:
        self.key = key or model.__name__
        self.content = ""
        self.instruct_content: Any = None
        self._model = model

    @classmethod
    def from_pydantic(cls, model: Any, key: str | None = None) -> ActionNode:
        return cls(model, key)

    async def fill(self, *, req: str, llm: Llm, **_: Any) -> ActionNode:
        """Ask a model for the fields, several times if need be. Raises ModelError if no answer fits."""
        output = await fill_fields(llm, req, self._model, self.key)
        self.content, self.instruct_content = output.content, output.instruct_content
        return self


KINDS: Mapping[str, tuple[str, type[Any] | tuple[type[Any], ...]]] = {
    "text": ("string", str), "integer": ("integer", int), "number": ("number", (int, float)),
    "boolean": ("boolean", bool), "list": ("array", list),
}  # fmt: skip
"""The kinds of a field, with their names in JSON Schema and their types."""


async def fill_fields(llm: Llm, req: str, output: Any, owner: str) -> ActionOutput:
    """Have a model fill in the fields of a pydantic class, or of a mapping of names to kinds or lists of choices.

    Ask again if an answer does not fit. Raises ModelError with the name of the `owner` if none fits.
    """
    if hasattr(output, "model_validate"):
        schema, fit = output.model_json_schema(), output.model_validate
    else:
        kinds = {
            name: {"type": KINDS[kind][0]} if isinstance(kind, str) else {"enum": [*kind]}
            for name, kind in output.items()
        }
        schema = object_schema(kinds)

        def fit(fields: Any) -> Any:
            if not isinstance(fields, dict) or fields.keys() != kinds.keys():
                raise ValueError(f"it must be an object with {', '.join(kinds)}, and nothing else")
            for name, kind in output.items():
                value = fields[name]
                fits = isinstance(value, KINDS[kind][1]) if isinstance(kind, str) else value in [*kind]
                if not fits or (isinstance(value, bool) and kind in ("integer", "number")):
                    raise ValueError(f"{name} does not fit {json.dumps(kinds[name], ensure_ascii=False)}")
            return fields

    schema_text = json.dumps(schema, ensure_ascii=False)
    prompt, problem = f"{req}\n\nAnswer with one JSON object alone, which fits this JSON Schema:\n{schema_text}", ""
    for _attempt in range(MAX_TRIES):
        answer = await llm.aask(f"{prompt}{problem}")
        try:
            fields = json.loads(answer[answer.find("{") : answer.rfind("}") + 1], strict=False)
            return ActionOutput(json.dumps(fields, ensure_ascii=False), fit(fields))
        except ValueError as error:  # from json and from pydantic
            problem = f"\n\nYour last answer does not fit: {error}"
    raise ModelError(f"{owner}: the model gave no answer that fits in {MAX_TRIES} tries.{problem}")
