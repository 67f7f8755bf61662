"""From the bytes of a chat completion to its parts, streamed or in one piece; nothing here knows a client or a key.

The format is OpenAI's, read as widely as its cousins write it: several usage blocks (the last counts), tool calls
without an index or all under the same one, content in parts, the older `function_call`, no `[DONE]`. What is never
accepted is a part: a stream counts as whole once it has said why it finished.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from autoagent.messages import ToolCall

LARGEST = 32 * 2**20  # bytes of an answer; a stream spends some 300 on each token
LONGEST = 8 * 10**6  # characters of what the model says; no model offers a reply of a fourth of it

_CUT_OFF = ("length", "max_tokens", "content_filter")


class Broken(Exception):
    """The answer is cut short or not readable; its text says how. Asking again may help."""


class TooLong(Exception):
    """The answer goes on past what any reply needs; its text names the limit."""


class ToldInStream(Exception):
    """The server put an error into a stream that began well; `error` is what it said."""

    def __init__(self, error: Any) -> None:
        super().__init__(str(error))
        self.error = error


@dataclass(slots=True)
class _Call:
    index: Any
    id: str
    name: str = ""
    pieces: list[str] = field(default_factory=list)  # of the arguments; joined once, or a long one takes minutes


@dataclass(slots=True)
class Answer:
    """The parts of a completion as they come in; `usage` is as the server wrote it, None where it wrote none."""

    finish: str = ""
    usage: Mapping[str, Any] | None = None
    _pieces: list[str] = field(default_factory=list)  # of the text
    _length: int = 0  # of all that the model said, in characters
    _calls: list[_Call] = field(default_factory=list)

    @property
    def text(self) -> str:
        return encodable("".join(self._pieces))

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        return tuple(ToolCall(call.name, encodable("".join(call.pieces))) for call in self._calls)

    @property
    def truncated(self) -> bool:
        return self.finish in _CUT_OFF

    def read(self, content_type: str, chunks: Iterable[bytes], heard: Callable[[str], None]) -> None:
        """Take in the body of a 200; `heard` gets each piece of text or of a call's arguments as it comes.

        Raises:
            Broken: it ends before it finished, or is no chat completion.
            TooLong: it has more than LARGEST bytes, or says more than LONGEST characters.
            ToldInStream: the server reports an error in it.
        """
        chunks = _within(chunks, LARGEST)
        if "json" in content_type:  # the server does not stream
            whole = _object(b"".join(chunks).decode("utf-8", "replace"))
            self._take(whole, heard)
            if not whole.get("choices"):
                raise Broken("the answer is no chat completion")
        else:
            for chunk in _events(chunks):
                self._take(chunk, heard)
            if not self.finish:
                raise Broken("the answer was cut short")

    def _take(self, chunk: Mapping[str, Any], heard: Callable[[str], None]) -> None:
        if error := chunk.get("error"):
            raise ToldInStream(error)
        if isinstance(chunk.get("usage"), dict):
            self.usage = chunk["usage"]
        for choice in chunk.get("choices") or ():
            if not isinstance(choice, dict):
                raise Broken("the answer is no chat completion")
            self._add(choice.get("delta") or choice.get("message") or {}, heard)
            self.finish = choice.get("finish_reason") or self.finish

    def _add(self, delta: Mapping[str, Any], heard: Callable[[str], None]) -> None:
        content = _text(delta.get("content")) or _text(delta.get("refusal"))
        if content:
            self._pieces.append(content)
            self._said(content, heard)
        for part in delta.get("tool_calls") or ():
            self._add_call(part.get("index"), part.get("id") or "", part.get("function") or {}, heard)
        if legacy := delta.get("function_call"):
            self._add_call("function_call", "", legacy, heard)

    def _add_call(self, index: Any, call_id: str, function: Mapping[str, Any], heard: Callable[[str], None]) -> None:
        """Append to the call that this part continues. A new id, or a name where one is complete, begins another."""
        call = next((c for c in reversed(self._calls) if c.index == index), None)
        name, arguments = function.get("name") or "", function.get("arguments") or ""
        if call is None or (call_id and call.id and call_id != call.id) or (index is None and name):
            call = _Call(index, call_id)
            self._calls.append(call)
        call.name = call.name or name
        piece = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
        if piece:
            call.pieces.append(piece)
            self._said(piece, heard)

    def _said(self, piece: str, heard: Callable[[str], None]) -> None:
        self._length += len(piece)
        if self._length > LONGEST:
            raise TooLong(f"the reply has more than {LONGEST:,} characters")
        heard(encodable(piece))


def encodable(text: str) -> str:
    """The text as UTF-8 can carry it: halves of a surrogate pair are joined, a lone one becomes U+FFFD."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def tokens_in(value: Any) -> int | None:
    """A number of tokens as a server wrote it; None for what is none: missing, negative, of another type."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _text(content: Any) -> str:
    if isinstance(content, list):
        return "".join(_text(part.get("text")) for part in content if isinstance(part, dict))
    return content if isinstance(content, str) else ""


def _events(chunks: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    """The JSON objects of a server-sent event stream (WHATWG HTML, 9.2), up to `[DONE]` or its end."""
    data: list[str] = []
    for line in _lines(chunks):
        name, _, value = line.partition(":")
        if name == "data":
            data.append(value.removeprefix(" "))
        elif not line and data:
            if data[0].startswith("[DONE]"):
                return
            yield _object("\n".join(data))
            data = []
    if data and not data[0].startswith("[DONE]"):
        yield _object("\n".join(data))  # some servers leave out the last blank line


def _within(chunks: Iterable[bytes], limit: int) -> Iterator[bytes]:
    size = 0
    for chunk in chunks:
        size += len(chunk)
        if size > limit:
            raise TooLong(f"the answer has more than {limit / 2**20:g} MB")
        yield chunk


def _lines(chunks: Iterable[bytes]) -> Iterator[str]:
    begun: list[bytes] = []  # pieces of a line; joined once, or a long one takes minutes
    for chunk in chunks:
        piece, *others = chunk.split(b"\n")
        begun.append(piece)
        for other in others:
            yield b"".join(begun).rstrip(b"\r").decode("utf-8", "replace")
            begun = [other]
    if rest := b"".join(begun):
        yield rest.decode("utf-8", "replace")


def _object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise Broken(f"the answer is not valid JSON ({error})") from error
    if not isinstance(value, dict):
        raise Broken("the answer is no JSON object")
    return value
