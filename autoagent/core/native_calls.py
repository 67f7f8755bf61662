"""Native tool calls in a prompt: as calls for endpoints that take them, as text for other models.

A model that reads its own calls as text starts to answer in text. A model that cannot read calls needs them as text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from autoagent.core.model import Message, ToolCall

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")  # that an endpoint takes as a function's


def made(step: int, name: str, thoughts: Mapping[str, Any], args: Mapping[str, Any]) -> ToolCall:
    """Make the call of a step, with an id of nine letters and
    digits, as Mistral requires, as long as the steps allow.
    """
    return ToolCall(name, json.dumps({"thoughts": thoughts, **args}, ensure_ascii=False), f"call{step:05d}")


def read(text: str) -> tuple[str, Mapping[str, Any], Mapping[str, Any]] | None:
    """Return the name, thoughts and arguments of a call that was written down as this reply, or None if it is no such
    call.
    """
    try:
        reply = json.loads(text)
    except (ValueError, RecursionError):
        return None
    command = reply.get("command") if isinstance(reply, dict) else None
    name, args = (command.get("name"), command.get("args")) if isinstance(command, dict) else (None, None)
    if not isinstance(name, str) or not _NAME.fullmatch(name) or not isinstance(args, dict) or "thoughts" in args:
        return None
    thoughts = reply.get("thoughts")
    return name, thoughts if isinstance(thoughts, dict) else {}, args


def as_text(call: ToolCall) -> str:
    """Render the call in the form of a written reply."""
    args = json.loads(call.arguments)
    thoughts = args.pop("thoughts", {})
    return json.dumps({"thoughts": thoughts, "command": {"name": call.name, "args": args}}, ensure_ascii=False)


def flat(messages: Sequence[Message]) -> list[Message]:
    """Rewrite the messages without calls: tool results become user messages, and user and assistant alternate."""
    found: list[Message] = []
    for message in messages:
        content = (
            "\n".join([message.content, *map(as_text, message.calls)]).strip() if message.calls else message.content
        )
        role = "user" if message.role == "tool" else message.role
        if found and found[-1].role == role != "system":
            images = found[-1].images + message.images
            found[-1] = replace(found[-1], content=f"{found[-1].content}\n\n{content}", images=images)
        else:
            found.append(Message(role, content, images=message.images))
    return found
