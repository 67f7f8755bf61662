"""Build a request in a form that the endpoint accepts, and find out which part of a request it refused.

A chat template that cannot render the messages fails with an error about roles. The messages are then sent in a simpler
form. Parameters that the endpoint refuses are omitted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from autoagent.core.model import Message, cached_by_message, without_calls
from autoagent.models.openai.refusals import Refused
from autoagent.text.sanitize import valid_text

# Optional features of messages.
USER_AFTER_TOOL = "user after tool"  # Mistral's own models need an assistant message between the two
TOOL_MESSAGES = "tool messages"
SYSTEM = "system message"
IMAGES = "images"

_IMAGE_REFUSED = "(This model takes no images: you do not see the one above. Say so where it matters.)"
_BRIDGE = "[The results of the tools were read.]"

_USER_AFTER_TOOL = re.compile(r"role\W+user\W+after role\W+tool", re.I)
_ROLES = re.compile(r"\broles?\b|alternat|system[ _](prompt|instruction|message)", re.I)
_TOOL_MESSAGES = re.compile(  # the key `"message"` in every refusal does not count
    r"""\broles?\b|alternat|\bmessages?\b(?!"\s*:)|thought_?signature|tool_call|function[ _]call""", re.I
)
_IMAGES = re.compile(r"image|vision|visual|multi-?modal|mmproj|content\W+(part|type|must be a? ?string)", re.I)
_NO_SYSTEM = re.compile(r"(?<!optional )\b(system|developer)\b|only user and assistant", re.I)

# Optional parts of a request, and how servers without support name them in errors.
_OPTIONAL_PATTERNS: Mapping[str, re.Pattern[str]] = {
    name: re.compile(rf"(?<![\w-])({words})(?![\w-])", re.I)
    for name, words in {
        "strict": "strict",
        "parallel_tool_calls": "parallel[_ ]tool[_ ]calls",
        "tool_choice": "tool[_ ]choice",
        "stream_options": "stream[_ ]options|include_usage",
        "stream": "stream|streaming",
        "max_completion_tokens": "max_completion_tokens",
        "max_tokens": "max_tokens",
        "temperature": "temperature",
    }.items()
}


_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode


class Json(str):
    """A JSON text, which takes its place in a request as it is."""


def encode(body: Mapping[str, Any]) -> bytes:
    """Return a request's body as JSON."""
    fields = (f"{_encode(key)}:{value if isinstance(value, Json) else _encode(value)}" for key, value in body.items())
    return f"{{{','.join(fields)}}}".encode()


def encode_messages(messages: Sequence[Message], without: Collection[str]) -> Json:
    """Return the messages as JSON, without the features in `without`."""
    if IMAGES in without:
        messages = [
            replace(m, content=f"{m.content}\n\n{_IMAGE_REFUSED}", images=()) if m.images else m for m in messages
        ]
    if TOOL_MESSAGES in without:
        messages = without_calls(messages)
    elif USER_AFTER_TOOL in without:
        bridged: list[Message] = []
        for message in messages:
            if message.role == "user" and bridged and bridged[-1].role == "tool":
                bridged.append(Message("assistant", _BRIDGE))
            bridged.append(message)
        messages = bridged
    if SYSTEM in without and len(messages) > 1 and messages[0].role == "system":
        merged = replace(messages[1], content=f"{messages[0].content}\n\n{messages[1].content}")
        messages = [merged, *messages[2:]]
    return Json(f"[{','.join(map(_encode_message, messages))}]")


def refused_feature(error_text: str, messages: Sequence[Message], without: Collection[str]) -> str | None:
    """Return the feature of these messages that a refusal is about, or None."""
    if any(message.images for message in messages) and IMAGES not in without and _IMAGES.search(error_text):
        return IMAGES
    roles = {message.role for message in messages}
    has_tools = "tool" in roles and TOOL_MESSAGES not in without
    has_system = "system" in roles and len(messages) > 1 and SYSTEM not in without
    if has_tools and _USER_AFTER_TOOL.search(error_text) and USER_AFTER_TOOL not in without:
        return USER_AFTER_TOOL
    if has_system and _ROLES.search(error_text) and (not has_tools or _NO_SYSTEM.search(error_text)):
        return SYSTEM
    return TOOL_MESSAGES if has_tools and _TOOL_MESSAGES.search(error_text) else None


def refused_parameter(refusal: Refused, body: Mapping[str, Any]) -> str | None:
    """Return the optional parameter that a refusal blames, or mentions first."""
    present = {name for name in _OPTIONAL_PATTERNS if name in body}
    if "strict" in body.get("response_format", {}).get("json_schema", {}):
        present.add("strict")
    if refusal.param in present:
        return refusal.param
    mentions = {name: match.start() for name in present if (match := _OPTIONAL_PATTERNS[name].search(refusal.text))}
    return min(mentions, key=mentions.__getitem__) if mentions else None


@cached_by_message  # most messages repeat from the previous request
def _encode_message(message: Message) -> str:
    return _encode(_message_fields(message))


def _message_fields(message: Message) -> dict[str, Any]:
    content = valid_text(message.content)
    if message.role == "tool":
        return {"role": "tool", "tool_call_id": message.answers, "content": content}
    if message.images:
        images = [{"type": "image_url", "image_url": {"url": image}} for image in message.images]
        return {"role": message.role, "content": [{"type": "text", "text": content}, *images]}
    if not message.calls:
        return {"role": message.role, "content": content}
    calls = [
        {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": valid_text(call.arguments)}}
        for call in message.calls
    ]
    return {"role": message.role, "content": content or None, "tool_calls": calls}


def tool_parameters(tools: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the parameters that require a call of one of these tools."""
    return {"tools": tools, "tool_choice": "required", "parallel_tool_calls": False}


def schema_parameters(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters that require an answer matching this schema."""
    json_schema = {"name": name, "strict": True, "schema": schema}
    return {"response_format": {"type": "json_schema", "json_schema": json_schema}}


def strict_schema(node: Any) -> Any:
    """Return the schema for strict decoding: every property is required, and optional values may be null."""
    if isinstance(node, list):
        return [strict_schema(part) for part in node]
    if not isinstance(node, dict):
        return node
    schema = {key: strict_schema(value) for key, value in node.items()}
    if schema.get("type") == "object" and (properties := schema.get("properties")) is not None:
        for name in properties.keys() - set(schema.get("required", ())):
            properties[name] = {"anyOf": [properties[name], {"type": "null"}]}
        schema["required"] = list(properties)
    return schema
