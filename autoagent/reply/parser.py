"""Parse a model's reply into its command, or the reason why there is none.

A reply is repaired only if the repair has a single meaning (see lenient_json), then checked against the command's
schema. It is never completed or guessed. Every refusal tells the model the problem and its position. Several commands
in one reply are accepted only as native tool calls, and only if each is usable.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from autoagent.core.command_schema import THOUGHTS
from autoagent.core.commands import Call
from autoagent.core.errors import ReplyError
from autoagent.core.model import Completion, Reply, Thoughts, ToolCall
from autoagent.reply.lenient_json import UnreadableJson, excerpt, read_object
from autoagent.reply.written_reply import find_command, plain_word, strip_decoration, template_word
from autoagent.text import code_block

# Words that stand for an argument in a template. HTML element names are excluded, since they may be real arguments.
_PLACEHOLDERS = {
    *("arg", "argument", "array", "boolean", "command", "command_line", "directory", "file", "file_name", "file_path"),
    *("filename", "folder", "integer", "list", "name", "number", "path", "question", "query", "reason", "string"),
    *("task", "text", "url", "value"),
}
_IN_BRACKETS = re.compile(r"<([A-Za-z][^<>=/\n]*)>")

MAX_CALLS = 16  # per reply, so that the model sees results before it continues

Check = Callable[[Call], Call]  # returns the call in runnable form; raises ReplyError for an invalid name or argument


def parse(completion: Completion, check: Check, call_id: str) -> Reply:
    """Return the thoughts and the checked command of a completion, the first of several tool calls.

    Raises ReplyError for no command, several written ones, a broken, truncated or ambiguous reply, or a template.
    """
    if completion.truncated:
        raise ReplyError(
            "The reply was cut off before its end, so nothing of it was used. Write a shorter one: fewer words in the "
            "thoughts, a long text in several parts."
        )
    if completion.calls:
        return _from_tool_calls(completion, check, call_id)
    return _checked_reply(_written_reply(completion.text), completion.text, check, call_id)


def _written_reply(text: str) -> Mapping[str, Any]:
    """Return the object with the command, with code that follows it inserted in its place (see text/code_block).

    Raises ReplyError, also for a place that cannot hold code.
    """
    block = code_block.split(text)
    members = find_command(block[0] if block and code_block.QUOTED in block[0] else text)
    command = members["command"]
    args = command.get("args") if isinstance(command, dict) else None
    if not isinstance(args, dict) or code_block.PLACEHOLDER not in args.values():
        return members
    places = [name for name, value in args.items() if value == code_block.PLACEHOLDER]
    if block is None:
        raise ReplyError(f"The code for {excerpt(places[0])} is missing; it follows the object, between ``` lines.")
    if len(places) > 1:
        raise ReplyError(f"One code block follows the object, and {' and '.join(places)} want one; send one at a time.")
    return {**members, "command": {**command, "args": {**args, places[0]: block[1].code}}}


def written(completion: Completion) -> str:
    """Render a completion as text even if unusable. A tool call takes the form of a written reply."""
    if not completion.calls:
        return completion.text
    replies: list[str] = []
    for call in dict.fromkeys(completion.calls):
        try:
            replies.append(json.dumps(_tool_call_as_reply(call, completion.text), ensure_ascii=False))
        except ReplyError:  # kept unchanged, so that it can be shown and is refused again
            unread_call = f'{{"command": {{"name": {json.dumps(call.name)}, "args": {call.arguments}}}}}'
            replies.append(f"{completion.text}\n{unread_call}".lstrip())
    return "\n".join(replies)


def _checked_reply(reply: Mapping[str, Any], text: str, check: Check, call_id: str) -> Reply:
    thoughts, (name, args) = _thoughts(reply.get("thoughts")), _command(reply)
    _refuse_template(thoughts, name, args)
    try:
        json.dumps(reply, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:  # half of a surrogate pair, which no file or log can hold
        half = ascii(error.object[error.start])[1:-1]
        raise ReplyError(f"The reply holds half a character ({half}); write the character itself.") from error
    return Reply(thoughts, check(Call(call_id, name, args)), text)


# Native tool calls -----------------------------------------------------------------------------------------------


def _from_tool_calls(completion: Completion, check: Check, call_id: str) -> Reply:
    calls = list(dict.fromkeys(completion.calls))
    if len(calls) > MAX_CALLS:
        raise ReplyError(f"The reply calls {len(calls)} commands; call at most {MAX_CALLS} at once.")
    replies: list[Reply] = []
    for call in calls:
        content = "" if replies else completion.text
        try:
            reply = _tool_call_as_reply(call, content)
            replies.append(_checked_reply(reply, json.dumps(reply, ensure_ascii=False), check, call_id))
        except ReplyError as error:
            if len(calls) == 1:
                raise
            text = f"None of the {len(calls)} commands of the reply was used, because of one of them. {error}"
            raise ReplyError(text, command=error.command, off=error.off) from error
    return replace(replies[0], more=tuple(reply.text for reply in replies[1:]))


def _tool_call_as_reply(call: ToolCall, text: str) -> dict[str, Any]:
    """Return the call in the form of a written reply. Text beside it replaces missing thoughts."""
    arguments = call.arguments.strip() or "{}"
    if not arguments.startswith("{"):
        raise ReplyError(f"The arguments of {excerpt(call.name)} must be one JSON object, not {excerpt(arguments)}.")
    try:
        args, end = read_object(arguments)
    except UnreadableJson as error:
        raise ReplyError(f"The arguments of {excerpt(call.name)} cannot be read at {error}.") from error
    if rest := arguments[end:].strip(" \n\r\t]}"):
        raise ReplyError(f"The arguments of {excerpt(call.name)} go on after their object: {excerpt(rest)}.")
    thoughts = args.pop("thoughts", None) or text.strip()
    return {"thoughts": thoughts, "command": {"name": strip_decoration(call.name), "args": args}}


# What a reply holds ----------------------------------------------------------------------------------------------

_TYPES = {type(None): "null", bool: "a boolean", int: "a number", float: "a number", str: "a string", list: "a list"}


def _command(reply: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    command = reply["command"]
    if not isinstance(command, dict):
        raise ReplyError(f"'command' must be one object with 'name' and 'args', not {_type(command)}.")
    name, args = command.get("name"), command.get("args")
    if not isinstance(name, str):
        problem = f"must be a string, not {_type(name)}" if "name" in command else "is missing"
        raise ReplyError(f"The 'name' of the command {problem}.")
    if not name.strip():
        raise ReplyError("The 'name' of the command is empty; name one of the commands.")
    if args is None:
        args = {}
    if not isinstance(args, dict):
        raise ReplyError(f"The 'args' of {excerpt(name)} must be one object, not {_type(args)}.")
    # A misplaced argument must not be dropped silently: the command could still run without it.
    if misplaced := [key for key in command if key not in ("name", "args")]:
        raise ReplyError(f"'command' holds {excerpt(misplaced[0])} beside 'name' and 'args'; arguments go into 'args'.")
    return name, args


def _type(value: Any) -> str:
    return _TYPES.get(type(value), "an object")


def _thoughts(value: Any) -> Thoughts:
    """Read the thoughts in any shape, since they are never a reason to refuse a command."""
    if isinstance(value, dict):
        return Thoughts(**{name: _prose(value.get(name)) for name in THOUGHTS})
    if isinstance(value, list) and len(value) <= len(THOUGHTS):
        return Thoughts(**dict(zip(THOUGHTS, map(_prose, value), strict=False)))
    return Thoughts(text=_prose(value))


def _prose(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        lines = (_prose(item) for item in value)
        return "\n".join(line if line.lstrip().startswith("- ") else f"- {line}" for line in lines)
    return json.dumps(value, ensure_ascii=False)


def _refuse_template(thoughts: Thoughts, name: str, args: Mapping[str, Any]) -> None:
    """Raise ReplyError if the response format was sent back unchanged, as small models do."""
    echo = template_word(name, args)
    if (thoughts.text.strip(), thoughts.reasoning.strip()) == ("thought", "reasoning"):
        echo = echo or "thought"
    for key, value in args.items():
        if isinstance(value, str) and (inside := _IN_BRACKETS.fullmatch(value.strip())):
            word = plain_word(inside[1])
            if word == plain_word(key) or word in _PLACEHOLDERS or "_" in word:  # several words are an argument's help
                echo = echo or value.strip()
    if echo:
        raise ReplyError(
            f"The reply repeats the template ({excerpt(echo)}); fill in a real command and real values. "
            "What you do not know yet, get first, with another command.",
            command=name,
        )
