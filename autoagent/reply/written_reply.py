"""Find the one object of a written reply that holds a command.

The structure of the reply decides, never its words. Thinking is ignored wherever it is, along with any drafts in it.
The contents of an object's strings are never searched. An object that is cited (in quotation marks, a block quote,
unknown markup, or a sentence) is not the reply's own. If only one command is in objects that are not cited, it is
accepted, whatever surrounds it. A reply with several different commands is refused, with a reason for the model.
The authorizers decide later whether the command may run.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from autoagent.core.errors import ReplyError
from autoagent.reply.lenient_json import UnreadableJson, excerpt, format_position, is_same_json, read_object

MAX_BRACES = 100  # that begin no object, as the reply may be scanned to its end for each

# Marks around the thinking of common reasoning models: <think> (DeepSeek, Qwen), [THINK] (Mistral), <seed:think>,
# ◁think▷ (Kimi), <|START_THINKING|> (Cohere), <|begin_of_thought|>, and the channels of gpt-oss and of Gemma.
_THINKING = r"(?:\w+:)?(?:think(?:ing)?|thoughts?|reasoning|reflection|analysis|scratchpad)"
_MARK = re.compile(
    rf"(?P<brace>\{{)|<(?P<tag>{_THINKING})(?:\s[^<>]*)?>|</(?P<end_tag>{_THINKING})\s*>"
    r"|\[(?P<bracket>think)\]|\[/(?P<end_bracket>think)\]|◁(?P<triangle>think)▷|◁/(?P<end_triangle>think)▷"
    rf"|<\|(?:begin_of|start)_(?P<token>{_THINKING})\|>|<\|end(?:_of)?_(?P<end_token>{_THINKING})\|>"
    r"|<\|(?P<end_channel>channel)\|>\s*(?:final\b|commentary\s+to=)[^<{]*(?:<\|constrain\|>[^<{]*)?<\|message\|>"
    r"|<(?P<end_channel_>channel)\|>"
    r"|<\|(?P<channel>channel)\|?>",
    re.IGNORECASE,
)
_DECORATION = re.compile(  # fences, addresses, control tokens, and marks that prompts request around an answer
    r"```[\w+-]*|\w+://[!-~]+|<\|[^|<>\s]{1,40}\|>|<\uff5c[^\uff5c<>\s]{1,40}\uff5c>"
    r"|[<\[]/?(?:content|answer|final_answer|response|reply|output|result|json|s"
    r"|tools?|tool_calls?|tool_code|function_calls?|function|commands?|actions?)[>\]]",
    re.IGNORECASE,
)
_CITATION_RANGE = 400  # characters on each side of an object searched for a citation
_OPEN_TAG = re.compile(r"<([A-Za-z][\w:.-]*)(?:\s[^<>]*)?>\s*\Z")
_CLOSE_TAG = re.compile(r"\s*</([A-Za-z][\w:.-]*)\s*>")
_QUOTES = {
    '"': '"', "'": "'", "`": "`", "\u201c": "\u201d", "\u201e": "\u201c", "\u2018": "\u2019", "\u00ab": "\u00bb",
    "\u300c": "\u300d",
}  # fmt: skip


def find_command(text: str) -> dict[str, Any]:
    """Find the object with the command.

    Raises ReplyError for no, several different or only cited commands, an unreadable object, or unfinished thinking.
    """
    if not text.strip():
        raise ReplyError("The reply is empty; answer with one JSON object that holds a command.")
    reading = _Reading(text)
    position = 0
    while mark := _MARK.search(text, position):
        ends_thinking = str(mark.lastgroup).startswith("end_")
        if reading.problem and not ends_thinking:
            position = mark.end()
            continue
        reading.words.append(text[position : mark.start()])
        if ends_thinking:
            position = mark.end()
            reading = _Reading(text, thought=reading)
        elif mark["brace"]:
            position = reading.take_object(mark.start())
        else:
            position = _end_of_thinking(text, mark)
    reading.words.append(text[position:])
    return reading.result()


def _end_of_thinking(text: str, opening: re.Match[str]) -> int:
    name = str(opening.group(str(opening.lastgroup))).lower()
    for mark in _MARK.finditer(text, opening.end()):
        kind = str(mark.lastgroup)
        if kind.startswith("end_") and mark.group(kind).lower() == name:
            return mark.end()
    raise ReplyError(f"The reply ends inside {excerpt(opening[0])}; close it and answer with one JSON object.")


class _Reading:
    """Collect the objects and words of a reply.

    An end mark without a start mark (some chat templates strip it) begins a new reading: all before it was a `thought`.
    """

    def __init__(self, text: str, thought: _Reading | None = None) -> None:
        self.words: list[str] = []  # the words outside of objects since the last command
        self.problem: ReplyError | None = None  # why the reply cannot be used, unless it was thinking
        self._text = text
        self._reply: dict[str, Any] | None = None
        self._other_object: Mapping[str, Any] | None = None
        self._template_reply: dict[str, Any] | None = None
        self._earlier_words: list[str] = []  # the words before the last command
        self._cited_reply: dict[str, Any] | None = None
        self._brace_count: int = thought._brace_count if thought else 0
        self._thinking_problem: ReplyError | None = (thought.problem or thought._thinking_problem) if thought else None

    def take_object(self, start: int) -> int:
        """Process the object at the brace at `start` and return the position after it."""
        try:
            members, end = read_object(self._text, start)
        except UnreadableJson as error:
            return self._skip_braces(start, error)
        header_start = start
        if header := _header_before(self._text, start):
            name, header_start = header
            before = self.words.pop()
            self.words.append(before[: max(0, len(before) - (start - header_start))])
            args = {key: value for key, value in members.items() if key != "thoughts"}
            members = {"thoughts": members.get("thoughts"), "command": {"name": name, "args": args}}
        command = _command_in(members)
        reply = {"thoughts": members.get("thoughts"), "command": command}
        if command is None and "command" not in members:
            self._other_object = members
        elif _is_template(reply):  # the template, shown before the answer
            self._template_reply = reply
        elif _is_cited(self._text, header_start, end):
            self._cited_reply = reply
        elif self._reply is None or is_same_json(self._reply["command"], reply["command"]):
            self._reply = self._reply or reply
            self._earlier_words += self.words
            self.words = []
        else:
            location = format_position(self._text, start)
            problem = ReplyError(f"The reply holds a second, different command at {location}; send only one.")
            self._refuse_unless_thinking(problem)
        return end

    def _skip_braces(self, start: int, error: UnreadableJson) -> int:
        """Return the end of a `{word}` in prose. Anything else unreadable may be the reply, or is code."""
        self._brace_count += 1
        if self._brace_count > MAX_BRACES:
            raise ReplyError(f"The reply holds over {MAX_BRACES} braces around no JSON; answer with the object alone.")
        end = self._text.find("}", start)
        if error.has_key or end < 0 or self._text.find("{", start + 1, end) >= 0:
            self._refuse_unless_thinking(ReplyError(f"The reply is not valid JSON at {error}."), error)
            return start + 1
        self.words.append(self._text[start:end])
        return end

    def _refuse_unless_thinking(self, problem: ReplyError, cause: Exception | None = None) -> None:
        """Record a problem, which may concern a draft in the thinking. Raises ReplyError outside of thinking."""
        self.problem = problem
        if not _is_prose("".join(self._earlier_words + self.words)):
            raise problem from cause

    def result(self) -> dict[str, Any]:
        """Return the object with the command. Raises ReplyError if it may not be intended."""
        if self.problem:
            raise self.problem
        if self._reply is None and self._cited_reply is not None:
            if _is_prose("".join(self.words)):
                raise ReplyError(
                    "The only command of the reply is cited; to run it, answer with the JSON object alone."
                )
            return self._cited_reply
        if self._reply is None and self._template_reply is not None:
            return self._template_reply
        if self._reply is None:
            request = 'answer with one JSON object {"thoughts": {...}, "command": {"name": ..., "args": {...}}}'
            if self._other_object is None:
                raise ReplyError(f"The reply holds no JSON object; {request}.")
            keys = ", ".join(excerpt(key) for key in list(self._other_object)[:5]) or "an empty object"
            raise ReplyError(f"The reply has no 'command', only {keys}; {request}.")
        if (
            self._thinking_problem and _DECORATION.sub(" ", "".join(self.words)).strip()
        ):  # the end mark may have been part of a text
            raise self._thinking_problem
        return self._reply


def _is_cited(text: str, start: int, end: int) -> bool:
    """Return whether an object is in quotation marks, a block quote, markup, or a sentence."""
    above, below = text[max(0, start - _CITATION_RANGE) : start], text[end : end + _CITATION_RANGE]
    line = above.rpartition("\n")[2].lstrip()
    before, after = _DECORATION.sub(" ", line).rstrip(), _DECORATION.sub(" ", below.partition("\n")[0]).lstrip()
    if line.startswith(">") or (before and after and _QUOTES.get(before[-1]) == after[0]):
        return True
    open_tag = _OPEN_TAG.search(_DECORATION.sub(" ", above))
    close_tag = _CLOSE_TAG.match(_DECORATION.sub(" ", below))
    if open_tag and close_tag and open_tag[1] == close_tag[1]:
        return True
    return before[-1:].isalnum() and _is_prose(after)


def _is_prose(text: str) -> bool:
    return re.search(r"[^\W\d_]", _DECORATION.sub(" ", text)) is not None


# The forms in which models write a call ---------------------------------------------------------------------------
# Each has one meaning. They are those of native tool calls, which some servers return as text (OpenAI, Hermes and Qwen,
# Llama, Mistral, Kimi, DeepSeek, gpt-oss), and of agents in training data (AutoGPT, ReAct).

_NAMES = ("name", "tool_name", "tool", "function", "action")
_ARGUMENTS = ("args", "arguments", "parameters", "tool_input", "action_input")
_WRAPPERS = ("function", "function_call", "tool_call", "tool_calls")
_OTHER_KEYS = {"thoughts", "id", "type", "index", "call_id", "tool_call_id"}

_PREFIX = re.compile(r"\A(?:functions?|tools?|default_api)[.:/](?=\w)", re.IGNORECASE)
_NUMBER = re.compile(r":\d+\Z")  # Kimi numbers its calls: `functions.read_file:0`

_NAME = r"[\w.:-]{1,80}"
_HEADERS = re.compile(
    rf"(?:\[TOOL_CALLS\]\s*(?P<mistral>{_NAME})\s*\[ARGS\]"
    rf"|<function=(?P<llama>{_NAME})>"
    rf"|<\|tool_call_begin\|>\s*(?P<kimi>{_NAME})\s*<\|tool_call_argument_begin\|>"
    rf"|<\|channel\|>\s*commentary\s+to=(?P<gpt_oss>{_NAME})\s*(?:<\|constrain\|>\s*json\s*)?<\|message\|>"
    rf"|<\uff5ctool\u2581call\u2581begin\uff5c>(?:function<\uff5ctool\u2581sep\uff5c>)?(?P<deepseek>{_NAME})"
    r"(?:<\uff5ctool\u2581sep\uff5c>)?\s*(?:```json)?"
    rf"|(?:^|\n)\s*Action:\s*(?P<react>{_NAME})[ \t]*\n\s*Action Input:\s*(?:```json)?)\Z"
)
_MAX_HEADER_CHARACTERS = 250


def _header_before(text: str, start: int) -> tuple[str, int] | None:
    """Return the command named just before an object that holds only its arguments, and where it starts."""
    offset = max(0, start - _MAX_HEADER_CHARACTERS)
    match = _HEADERS.search(text[offset:start].rstrip())
    return (str(match[str(match.lastgroup)]), offset + match.start()) if match else None


def strip_decoration(name: str) -> str:
    """Return the name of a command without the decoration of tool-call formats."""
    plain = _PREFIX.sub("", name.strip())
    return _NUMBER.sub("", plain) if plain != name.strip() else name


def template_word(name: str, args: Mapping[str, Any]) -> str:
    """Return the template's word if a command's name is one, or ''."""
    if plain_word(name) == "command_name":
        return name
    return next((key for key in args if plain_word(key) == "arg_name"), "")


def _is_template(reply: Mapping[str, Any]) -> bool:
    command = reply["command"]
    name, args = (command.get("name"), command.get("args")) if isinstance(command, dict) else (None, None)
    return isinstance(name, str) and bool(template_word(name, args if isinstance(args, dict) else {}))


def plain_word(text: str) -> str:
    """Return a word of a template without its brackets, in lower case: `arg_name` for `<Arg name>`."""
    return text.strip().lower().strip("<>").replace(" ", "_")


def _command_in(members: Mapping[str, Any]) -> Any:
    """Return the object for `command`, with `name` and `args` wherever they can be recognized."""
    keys = [key for key in _ARGUMENTS if key in members]
    if "command" in members:
        command = members["command"]
        if isinstance(command, dict):
            return _normalize_args(command)
        if isinstance(command, str) and keys:
            return _normalize_args({"name": command, **{key: members[key] for key in keys}})
        return command
    for wrapper in _WRAPPERS:
        inner = members.get(wrapper)
        if isinstance(inner, list) and len(inner) == 1:
            inner = inner[0]
        if isinstance(inner, dict) and members.keys() <= {wrapper, *_OTHER_KEYS}:
            return _command_in(inner)
    # Without any of these, the object has to be nothing but a name and arguments.
    names = [key for key in _NAMES if isinstance(members.get(key), str)]
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
