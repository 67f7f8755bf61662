"""Recognize the other forms in which models write a call, each with one meaning.

They are those of native tool calls, which some servers return as text (OpenAI, Hermes and Qwen, Llama, Mistral, Kimi,
DeepSeek, gpt-oss), and of agents in training data (AutoGPT, ReAct).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from autoagent.reply.lenient_json import UnreadableJson, is_same_json, read_object

_NAMES = ("name", "tool_name", "tool", "function", "action")
_ARGUMENTS = ("args", "arguments", "parameters", "tool_input", "action_input")
_WRAPPERS = ("function", "function_call", "tool_call", "tool_calls")
_OTHER_KEYS = {"thoughts", "id", "type", "index", "call_id", "tool_call_id"}

_PREFIX = re.compile(r"\A(?:functions?|tools?|default_api)[.:/](?=\w)", re.IGNORECASE)
_NUMBER = re.compile(r":\d+\Z")  # Kimi numbers its calls: `functions.read_file:0`

_NAME = r"[\w.:-]{1,80}"
_HEADERS = re.compile(
    "|".join(
        (
            rf"\[TOOL_CALLS\]\s*(?P<mistral>{_NAME})\s*\[ARGS\]",
            rf"<function=(?P<llama>{_NAME})>",
            rf"<\|tool_call_begin\|>\s*(?P<kimi>{_NAME})\s*<\|tool_call_argument_begin\|>",
            rf"<\|channel\|>\s*commentary\s+to=(?P<gpt_oss>{_NAME})\s*(?:<\|constrain\|>\s*json\s*)?<\|message\|>",
            "<\uff5ctool\u2581call\u2581begin\uff5c>(?:function<\uff5ctool\u2581sep\uff5c>)?"
            rf"(?P<deepseek>{_NAME})(?:<"
            "\uff5ctool\u2581sep\uff5c>)?"
            r"\s*(?:```json)?",
            rf"(?:^|\n)\s*Action:\s*(?P<react>{_NAME})[ \t]*\n\s*Action Input:\s*(?:```json)?",
        )
    )
    + r"\Z"
)
_MAX_HEADER = 250  # characters


def as_reply(members: Mapping[str, Any]) -> dict[str, Any] | None:
    """Convert an object that holds a command to the form of a reply, or return None."""
    command = _command(members)
    if command is None and "command" not in members:
        return None
    return {"thoughts": members.get("thoughts"), "command": command}


def header_before(text: str, start: int) -> tuple[str, int] | None:
    """Return the command named just before an object that holds only its arguments, and where it starts."""
    context = text[max(0, start - _MAX_HEADER) : start].rstrip()
    match = _HEADERS.search(context)
    if match is None:
        return None
    return str(match[str(match.lastgroup)]), start - len(text[max(0, start - _MAX_HEADER) : start]) + match.start()


def reply_from_header(name: str, members: Mapping[str, Any]) -> dict[str, Any]:
    """Build a reply from a command named before its arguments."""
    args = {key: value for key, value in members.items() if key != "thoughts"}
    return {"thoughts": members.get("thoughts"), "command": {"name": strip_decoration(name), "args": args}}


def strip_decoration(name: str) -> str:
    """Return the name of a command without the decoration of tool-call formats."""
    plain = _PREFIX.sub("", name.strip())
    return _NUMBER.sub("", plain) if plain != name.strip() else name


def template_word(name: str, args: Mapping[str, Any]) -> str:
    """Return the template's word if a command's name is one, or ''."""
    if plain_word(name) == "command_name":
        return name
    return next((key for key in args if plain_word(key) == "arg_name"), "")


def is_template(reply: Mapping[str, Any]) -> bool:
    """Return whether a reply is the response format sent back unchanged."""
    command = reply["command"]
    name, args = (command.get("name"), command.get("args")) if isinstance(command, dict) else (None, None)
    return isinstance(name, str) and bool(template_word(name, args if isinstance(args, dict) else {}))


def plain_word(text: str) -> str:
    """Return a word of a template without its brackets, in lower case: `arg_name` for `<Arg name>`."""
    return text.strip().lower().strip("<>").replace(" ", "_")


def _command(members: Mapping[str, Any]) -> Any:
    """Return the object for `command`, with `name` and `args` wherever they can be recognized."""
    if "command" in members:
        command = members["command"]
        if isinstance(command, dict):
            return _normalize_args(command)
        keys = [key for key in _ARGUMENTS if key in members]
        if isinstance(command, str) and keys:
            return _normalize_args({"name": command, **{key: members[key] for key in keys}})
        return command
    for wrapper in _WRAPPERS:
        inner = members.get(wrapper)
        if isinstance(inner, list) and len(inner) == 1:
            inner = inner[0]
        if isinstance(inner, dict) and members.keys() <= {wrapper, *_OTHER_KEYS}:
            return _command(inner)
    return _bare_command(members)


def _bare_command(members: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the command if the object is nothing but a name and arguments."""
    names = [key for key in _NAMES if isinstance(members.get(key), str)]
    keys = [key for key in _ARGUMENTS if key in members]
    if len(names) != 1 or not keys or not members.keys() <= {*names, *keys, *_OTHER_KEYS}:
        return None
    command = _normalize_args({"name": members[names[0]], **{key: members[key] for key in keys}})
    return command if isinstance(command.get("args"), dict) or command.get("args") is None else None


def _normalize_args(command: Mapping[str, Any]) -> dict[str, Any]:
    """Return the command with its arguments as an object under `args`. Leave anything else unchanged."""
    keys = [key for key in _ARGUMENTS if key in command]
    values = [_unpack(command[key]) for key in keys]
    plain = dict(command)
    if keys and all(is_same_json(value, values[0]) for value in values):
        plain = {key: value for key, value in command.items() if key not in keys}
        plain["args"] = values[0]
    if isinstance(plain.get("name"), str):
        plain["name"] = strip_decoration(plain["name"])
    return plain


def _unpack(value: Any) -> Any:
    """Return the object in a JSON string, and any other value unchanged."""
    if not isinstance(value, str) or not value.strip().startswith("{"):
        return None if value == "" else value
    text = value.strip()
    try:
        members, end = read_object(text)
    except UnreadableJson:
        return value
    return value if text[end:].strip() else members
