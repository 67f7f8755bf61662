"""The forms in which models write a call besides the one they are asked for: each has one meaning.

They are those of native tool calls, which some servers hand over as text (OpenAI, Hermes and Qwen, Llama, Mistral,
Kimi, DeepSeek, gpt-oss), and of agents that models were trained on (AutoGPT, ReAct).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from autoagent.reply.lenient_json import UnreadableJson, read_object, same

_NAMES = ("name", "tool_name", "tool", "function", "action")
_ARGUMENTS = ("args", "arguments", "parameters", "tool_input", "action_input")
_WRAPPERS = ("function", "function_call", "tool_call", "tool_calls")
_BESIDE = {"thoughts", "id", "type", "index", "call_id", "tool_call_id"}

_PREFIX = re.compile(r"\A(?:functions?|tools?|default_api)[.:/](?=\w)", re.IGNORECASE)
_NUMBER = re.compile(r":\d+\Z")  # Kimi counts the calls: `functions.read_file:0`

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
_LONGEST_HEADER = 250  # characters


def as_reply(members: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the object in the form of a reply, if it holds a command in one of the forms; else None."""
    command = _command(members)
    if command is None and "command" not in members:
        return None
    return {"thoughts": members.get("thoughts"), "command": command}


def header_before(text: str, start: int) -> tuple[str, int] | None:
    """Return the command that is named just before an object that holds its arguments alone, and where that begins."""
    before = text[max(0, start - _LONGEST_HEADER) : start].rstrip()
    found = _HEADERS.search(before)
    if found is None:
        return None
    return str(found[str(found.lastgroup)]), start - len(text[max(0, start - _LONGEST_HEADER) : start]) + found.start()


def headed_reply(name: str, members: Mapping[str, Any]) -> dict[str, Any]:
    """Return a command that is named before its arguments in the form of a reply."""
    args = {key: value for key, value in members.items() if key != "thoughts"}
    return {"thoughts": members.get("thoughts"), "command": {"name": plain_name(name), "args": args}}


def plain_name(name: str) -> str:
    """Return the name of a command without what formats of tool calls put around it."""
    plain = _PREFIX.sub("", name.strip())
    return _NUMBER.sub("", plain) if plain != name.strip() else name


def echo_of_template(name: str, args: Mapping[str, Any]) -> str:
    """Return the word that only the template of a reply holds, where a command names it, or '' if there is none."""
    if _word(name) == "command_name":
        return name
    return next((key for key in args if _word(key) == "arg_name"), "")


def is_template(reply: Mapping[str, Any]) -> bool:
    """Return whether it is the response format, sent back as it came."""
    command = reply["command"]
    name, args = (command.get("name"), command.get("args")) if isinstance(command, dict) else (None, None)
    return isinstance(name, str) and bool(echo_of_template(name, args if isinstance(args, dict) else {}))


def _word(text: str) -> str:
    return text.strip().lower().strip("<>").replace(" ", "_")


def _command(members: Mapping[str, Any]) -> Any:
    """Return what stands for `command`: an object with `name` and `args` wherever it can be understood as one."""
    if "command" in members:
        command = members["command"]
        if isinstance(command, dict):
            return _with_args(command)
        given = [key for key in _ARGUMENTS if key in members]
        if isinstance(command, str) and given:
            return _with_args({"name": command, **{key: members[key] for key in given}})
        return command
    for wrapper in _WRAPPERS:
        inner = members.get(wrapper)
        if isinstance(inner, list) and len(inner) == 1:
            inner = inner[0]
        if isinstance(inner, dict) and members.keys() <= {wrapper, *_BESIDE}:
            return _command(inner)
    return _bare(members)


def _bare(members: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the command of an object that is nothing but a name and arguments."""
    names = [key for key in _NAMES if isinstance(members.get(key), str)]
    given = [key for key in _ARGUMENTS if key in members]
    if len(names) != 1 or not given or not members.keys() <= {*names, *given, *_BESIDE}:
        return None
    command = _with_args({"name": members[names[0]], **{key: members[key] for key in given}})
    return command if isinstance(command.get("args"), dict) or command.get("args") is None else None


def _with_args(command: Mapping[str, Any]) -> dict[str, Any]:
    """Return the command with its arguments under `args`, as an object. What cannot be understood stays as it is."""
    given = [key for key in _ARGUMENTS if key in command]
    values = [_unpacked(command[key]) for key in given]
    plain = dict(command)
    if given and all(same(value, values[0]) for value in values):
        plain = {key: value for key, value in command.items() if key not in given}
        plain["args"] = values[0]
    if isinstance(plain.get("name"), str):
        plain["name"] = plain_name(plain["name"])
    return plain


def _unpacked(value: Any) -> Any:
    """Return the object that a string holds, and anything else as it is."""
    if not isinstance(value, str) or not value.strip().startswith("{"):
        return None if value == "" else value
    text = value.strip()
    try:
        members, end = read_object(text)
    except UnreadableJson:
        return value
    return value if text[end:].strip() else members
