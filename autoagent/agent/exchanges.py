"""Render the steps of a run as messages of a prompt: replies, cut to a number of tokens, and their results.

With native tool calls, a step is a call and its tool message, and one reply may hold several. Feedback and notices
remain user messages.

A result from outside is shown between unforgeable marks. However much is cut, the marks and the heading before them
stay whole.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, field, replace
from typing import Any

from autoagent.core.command_schema import THOUGHTS
from autoagent.core.commands import Call
from autoagent.core.events import Rejected, RunStarted, Thought
from autoagent.core.frozen import dataclass
from autoagent.core.model import Message, ToolCall, make_call, parse_written_call
from autoagent.text import code_block
from autoagent.text.code_block import CodeBlock
from autoagent.text.paging import keep_ends
from autoagent.text.quoting import Marks, split, unquoted
from autoagent.text.tokens import TOKENS_PER_CALL, TOKENS_PER_MESSAGE, Count, fits, shorten

_NO_RESULT = "(no result)"
_MIN_QUOTE_TOKENS = 24  # a quote that has to be cut shorter is omitted


@dataclass(slots=True)
class Exchange:
    """One step as two messages. `tokens` counts both; `unmarked_texts` are the results without marks.

    `run` is the run of its events, which differs for the first steps of a fork. If `reply` is a native tool call,
    `parts` make up the tool message, and `extras` are the other texts. `continues_reply` marks a step of the same
    reply as the previous step.
    """

    run: str
    step: int
    reply: str | ToolCall
    parts: list[str] = field(default_factory=list)
    extras: list[str] = field(default_factory=list)
    unmarked_texts: list[str] = field(default_factory=list)
    continues_reply: bool = False
    tokens: int = 0
    call: Call | None = None
    summary: str = "an unusable reply"
    is_memorable: bool = False
    is_outcome_known: bool = True
    rendered: tuple[Message, ...] = field(default=(), repr=False)  # for all steps of a reply, once complete


@dataclass(frozen=True, slots=True)
class ResultText:
    """A result of the newest reply, or an extra text.

    Its limit is larger if its command has already paged it (`is_paged`). The `marks` around it and the `heading` before
    them stay whole. `read_on` is the beginning of the command that shows the omitted part. `attachment` is the name of
    the attachment that it holds, if any.
    """

    text: str
    marks: Marks | None = None
    heading: str = ""
    _: KW_ONLY
    is_extra: bool = False
    is_paged: bool = False
    read_on: str = ""
    attachment: str = ""


def render(event: Thought | Rejected, start: RunStarted, limit: int, count: Count) -> str | ToolCall:
    """Render a reply within `limit` tokens. Only the beginning and end of an unusable reply are kept."""
    if isinstance(event, Thought):
        if start.native:
            thoughts = {THOUGHTS[0]: event.thoughts.text}
            return _render_call(event.step, event.call.name, thoughts, event.call.args, limit, count)
        if start.style.writes_file:
            return shorten(event.text, limit, count)
        return _render_thought(event, start, limit, count)
    limit //= 4
    if start.native and (written_call := parse_written_call(event.text)):
        return _render_call(event.step, *written_call, limit, count)
    return shorten(event.text, limit, count) or "(no text)"


def _render_call(
    step: int, name: str, thoughts: Mapping[str, Any], args: Mapping[str, Any], limit: int, count: Count
) -> ToolCall:
    """Render a native tool call as valid JSON within `limit` tokens. Long arguments keep head and tail."""

    def render_if_fits(thoughts: Mapping[str, Any], args: Mapping[str, Any]) -> ToolCall | None:
        call = make_call(step, name, thoughts, args)
        return call if fits(call.arguments, limit, count) else None

    if call := render_if_fits(thoughts, args):
        return call
    for part in (1, 2, 4, 8):  # JSON escapes add tokens
        room = max(16, limit // (len(args) + len(thoughts) + 1) // part)
        shortened = [
            {key: shorten(v, room, count) if isinstance(v, str) else v for key, v in values.items()}
            for values in (thoughts, args)
        ]
        if call := render_if_fits(*shortened):
            return call
    return render_if_fits(shortened[0], {}) or make_call(step, name, {}, {})


def _render_thought(event: Thought, start: RunStarted, limit: int, count: Count) -> str:
    """Render a reply in the response format, with code after the object if it was written there.

    Long arguments keep head and tail. If a schema enforces the format, the first thought suffices. A small model sees
    no thoughts, since it would repeat both thought and action.
    """
    names = () if not start.style.thinks else THOUGHTS if start.asking == "text" else THOUGHTS[:1]
    thoughts = {"thoughts": {name: getattr(event.thoughts, name) for name in names}} if names else {}
    parts = code_block.split(event.text)
    block = parts[1] if parts else None
    code_argument = next((name for name, value in event.call.args.items() if block and value == block.code), "")

    def render(args: Mapping[str, Any]) -> str:
        place = {code_argument: code_block.PLACEHOLDER} if code_argument in args else {}
        command = {"name": event.call.name, "args": {**args, **place}}
        text = json.dumps({**thoughts, "command": command}, ensure_ascii=False)
        return code_block.join(text, CodeBlock(block.language, args[code_argument])) if block and place else text

    full_text = render(event.call.args)
    if fits(full_text, limit, count):
        return full_text
    room = max(16, (limit - count(render({}))) // max(1, len(event.call.args)))
    args = {key: shorten(v, room, count) if isinstance(v, str) else v for key, v in event.call.args.items()}
    return shorten(render(args), limit, count)


def elide_code(event: Thought, text: str, block: CodeBlock) -> Thought:
    """Replace the code after the object with an ellipsis."""
    ellipsis = CodeBlock(block.language, f"{code_block.OMITTED}\n")
    args = {name: ellipsis.code if value == block.code else value for name, value in event.call.args.items()}
    return replace(event, text=code_block.join(text, ellipsis), call=replace(event.call, args=args))


def tokens_of(reply: str | ToolCall, count: Count) -> int:
    """Count the tokens of a rendered reply, and of the frame of its result."""
    if isinstance(reply, str):
        return count(reply) + 2 * TOKENS_PER_MESSAGE
    return count(reply.name) + count(reply.arguments) + TOKENS_PER_CALL + 2 * TOKENS_PER_MESSAGE


def fit_result(result: ResultText, limit: int, count: Count) -> tuple[str, str]:
    """Cut a result to its limit, its quotes within their marks or altogether. Return the text and its rendering."""
    limit = max(32, limit - count(result.heading + (result.marks.quote("") if result.marks else "")))
    text, parts = result.text, split(result.text)
    frames = [count(marks.quote("")) for _, marks in parts if marks]
    if not frames or fits(text, limit, count):
        text = keep_ends(text, limit, count, result.read_on)
    else:
        plain = unquoted(text)
        room = (limit - count(plain) - sum(frames)) // len(frames)
        if room < _MIN_QUOTE_TOKENS:
            text = shorten(plain, limit, count)
        else:
            text = "".join(marks.quote(shorten(part, room, count)) if marks else part for part, marks in parts)
    return text, f"{result.heading}\n{result.marks.quote(text)}" if result.marks else result.heading + text


def group_by_reply(exchanges: Iterable[Exchange]) -> list[list[Exchange]]:
    """Group the steps by reply, so that native tool calls of one reply stay together."""
    replies: list[list[Exchange]] = []
    for exchange in exchanges:
        are_calls = replies and isinstance(replies[-1][0].reply, ToolCall) and isinstance(exchange.reply, ToolCall)
        if are_calls and exchange.continues_reply:
            replies[-1].append(exchange)
        else:
            replies.append([exchange])
    return replies


def messages_of(reply: Sequence[Exchange]) -> Iterator[Message]:
    """Yield the messages of one reply: call and result, or calls, tool messages and other texts."""
    if isinstance(reply[0].reply, str):
        yield Message("assistant", reply[0].reply)
        yield Message("user", "\n\n".join(reply[0].parts) or _NO_RESULT)
        return
    calls = [exchange.reply for exchange in reply if isinstance(exchange.reply, ToolCall)]
    yield Message("assistant", "", tuple(calls))
    for call, exchange in zip(calls, reply, strict=True):
        yield Message("tool", "\n\n".join(exchange.parts) or _NO_RESULT, answers=call.id)
    if extras := [text for exchange in reply for text in exchange.extras]:
        yield Message("user", "\n\n".join(extras))
