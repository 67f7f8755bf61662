"""Parse the bytes of a chat completion, streamed or in one piece, without client or key.

The format is OpenAI's with the variations of other servers: several usage blocks (the last counts), tool calls without
an index or all under the same index, content in parts or as the whole delta, the older `function_call`, no `[DONE]`. A
stream is complete only with a finish reason. Any other form is Broken, so later code can rely on all types.

The bytes come from an untrusted endpoint, and are read within limits on memory and nesting. Compressed bodies are
decompressed in small pieces, so that a limit applies before memory is used.

httpx-sse is not used: it needs a client's response, and has neither these limits nor this tolerance for a missing
last line.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from autoagent.core.model import ToolCall
from autoagent.text.sanitize import valid_text

T = TypeVar("T")

MAX_BYTES = 32 * 2**20  # of an answer; a stream takes about 300 per token

_CHUNK_BYTES = 1 << 16
_ENCODINGS = ("gzip", "x-gzip", "deflate")

MAX_CHARACTERS = 8 * 10**6  # of a reply; no model offers a quarter of that
MAX_TOOL_CALLS = 1000  # tool calls per answer; far fewer are ever run
MAX_TOKENS = 10**9  # per call; a larger number is not a token count

_TRUNCATION_REASONS = ("length", "max_tokens", "content_filter")
_THINKING_START = re.compile(r"\s*(<(think|thinking|thought|reasoning)>|<\|channel\|>analysis)|[^{]*</think>", re.I)
_THOUGHT_KEYS = ("reasoning_content", "reasoning")  # DeepSeek, vLLM, llama.cpp, Mistral; OpenRouter, Ollama, newer vLLM


class Broken(Exception):
    """Report an incomplete or unreadable answer. The text says why. A retry may help."""


class TooLong(Exception):
    """Report an answer longer than any plausible reply. The text names the limit."""


class StreamError(Exception):
    """Report an error that the server sent inside a stream. `error` is its content."""

    def __init__(self, error: Any) -> None:
        super().__init__("the server reports an error")
        self.error = error


@dataclass(slots=True)
class _Call:
    id: str
    name: str = ""
    pieces: list[str] = field(default_factory=list)  # of the arguments; joined once, as repeated joining is quadratic

    def is_continued_by(self, call_id: str, name: str, arguments: str) -> bool:
        """Return whether a part with the same index continues this call.

        The same name again starts another call if this call looks complete and the part looks like a beginning.
        """
        if call_id and self.id:
            return call_id == self.id
        if not name or not self.name:
            return True
        is_complete = bool(self.pieces) and self.pieces[-1].rstrip().endswith("}")
        return name == self.name and not (is_complete and arguments[:1] in ("", "{"))


@dataclass(slots=True)
class ResponseParts:
    """Collect the parts of a completion. `usage` is as the server sent it, or None.

    `on_text` receives each piece of text or of a call's arguments.
    """

    on_text: Callable[[str], None] = lambda text: None
    finish: str = ""
    usage: Mapping[str, Any] | None = None
    _pieces: list[str] = field(default_factory=list)  # of the text
    _thoughts: list[str] = field(default_factory=list)
    _length: int = 0  # of everything received, in characters
    _calls: list[_Call] = field(default_factory=list)
    _call_by_index: dict[int | str | None, _Call] = field(default_factory=dict)  # the latest call by index

    @property
    def text(self) -> str:
        return valid_text("".join(self._pieces))

    @property
    def reasoning(self) -> str:
        """Return the model's thoughts before the answer, if the server separates them from the text."""
        return valid_text("".join(self._thoughts))

    @property
    def has_thought(self) -> bool:
        """Return whether the model thought before it answered, by the server's figures or the text."""
        details = self.usage.get("completion_tokens_details") if self.usage else None
        tokens = tokens_in(details.get("reasoning_tokens")) if isinstance(details, dict) else None
        return bool(self._thoughts or tokens or _THINKING_START.match(self.text))

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        return tuple(ToolCall(valid_text(call.name), valid_text("".join(call.pieces))) for call in self._calls)

    @property
    def truncated(self) -> bool:
        return self.finish in _TRUNCATION_REASONS

    def read(self, content_type: str, chunks: Iterable[bytes]) -> None:
        """Read the body of a 200. Raises Broken if it is cut short or no chat completion, TooLong or StreamError."""
        chunks = limit_bytes(chunks)
        if "json" in content_type:  # the server does not stream
            completion = json_object(b"".join(chunks).decode("utf-8", "replace"))
            self._add_chunk(completion)
            if not completion.get("choices"):
                raise Broken("the answer is not a chat completion")
        else:
            for chunk in _events(chunks):
                self._add_chunk(chunk)
            if not self.finish:
                raise Broken("the answer was cut short")

    def _add_chunk(self, chunk: Mapping[str, Any]) -> None:
        if error := chunk.get("error"):
            raise StreamError(error)
        if isinstance(chunk.get("usage"), dict):
            self.usage = chunk["usage"]
        for choice in _list(chunk.get("choices")):
            fields = _fields(choice)
            self._add_delta(fields.get("delta") or fields.get("message"))
            finish = _string(fields.get("finish_reason"))
            if finish == "error":
                raise StreamError(fields.get("error") or "an error without a reason")
            self.finish = finish or self.finish

    def _add_delta(self, delta_value: Any) -> None:
        delta = {"content": delta_value} if isinstance(delta_value, str) else _fields(delta_value or {})
        if thought := _thought(delta):
            self._append(thought, self._thoughts)
        if content := _text(delta.get("content")) or _text(delta.get("refusal")):
            self._append(content, self._pieces)
            self.on_text(valid_text(content))
        for part in _list(delta.get("tool_calls")):
            if part is not None:
                call = _fields(part)
                index = call.get("index")
                if not isinstance(index, (int, str, type(None))):
                    raise Broken("the answer is not a chat completion: a tool call's index is not a number")
                self._add_call(index, _string(call.get("id")), _fields(call.get("function") or {}))
        if legacy := delta.get("function_call"):
            self._add_call("function_call", "", _fields(legacy))

    def _add_call(self, index: int | str | None, call_id: str, function: Mapping[str, Any]) -> None:
        """Append to the call that this part continues, or start another call with it."""
        name, arguments = _string(function.get("name")), function.get("arguments")
        piece = arguments if isinstance(arguments, str) else "" if arguments is None else json_text(arguments)
        call = self._call_by_index.get(index)
        if call is None or (index is None and name) or not call.is_continued_by(call_id, name, piece):
            if len(self._calls) == MAX_TOOL_CALLS:
                raise TooLong(f"the reply has more than {MAX_TOOL_CALLS:,} tool calls")
            call = self._call_by_index[index] = _Call(call_id)
            self._calls.append(call)
        call.id, call.name = call.id or call_id, call.name or name
        if piece:
            self._append(piece, call.pieces)
            self.on_text(valid_text(piece))

    def _append(self, piece: str, pieces: list[str]) -> None:
        pieces.append(piece)
        self._length += len(piece)
        if self._length > MAX_CHARACTERS:
            raise TooLong(f"the reply has more than {MAX_CHARACTERS:,} characters")


def tokens_in(value: Any) -> int | None:
    """Return a server's token count, or None if it is missing, invalid or implausible."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_TOKENS else None


def _text(content: Any) -> str:
    """Return the text of a content, or of its parts. Other content, such as an image, has none."""
    if isinstance(content, list):
        return "".join(_string(part.get("text")) for part in content if isinstance(part, dict))
    return _string(content)


def _thought(delta: Mapping[str, Any]) -> str:
    """Return the thinking in a delta, which some servers give under both names. Ignore other forms."""
    thought = next((value for name in _THOUGHT_KEYS if isinstance(value := delta.get(name), str) and value), "")
    content = delta.get("content")
    if thought or not isinstance(content, list):
        return thought
    thinking = (part["thinking"] for part in content if isinstance(part, dict) and "thinking" in part)  # Mistral
    return "".join(_text(thought) for thought in thinking)


def _check_kind(value: Any, kind: type[T], noun: str) -> T:
    if not isinstance(value, kind):
        raise Broken(f"the answer is not a chat completion: {noun} is missing")
    return value


def _list(value: Any) -> list[Any]:
    return [] if value is None else _check_kind(value, list, "a list")


def _fields(value: Any) -> dict[str, Any]:
    return _check_kind(value, dict, "an object")


def _string(value: Any) -> str:
    return "" if value is None else _check_kind(value, str, "a text")


def _events(chunks: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    """Yield the JSON objects of a server-sent event stream (WHATWG HTML, 9.2), up to `[DONE]` or its end."""
    data: list[str] = []
    for line in _lines(chunks):
        name, _, value = line.partition(":")
        if name == "data":
            data.append(value.removeprefix(" "))
        elif name == "error":  # older llama.cpp
            raise StreamError(value.strip())
        elif not line and data:
            if data[0].startswith("[DONE]"):
                return
            yield json_object("\n".join(data))
            data = []
    if data and not data[0].startswith("[DONE]"):
        yield json_object("\n".join(data))  # some servers omit the last blank line


def _lines(chunks: Iterable[bytes]) -> Iterator[str]:
    pieces: list[bytes] = []  # pieces of a line; joined once, as repeated joining is quadratic
    for chunk in chunks:
        piece, *others = chunk.split(b"\n")
        pieces.append(piece)
        for line in others:
            yield b"".join(pieces).rstrip(b"\r").decode("utf-8", "replace")
            pieces = [line]
    if rest := b"".join(pieces):
        yield rest.decode("utf-8", "replace")


def limit_bytes(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the chunks, up to MAX_BYTES. Raises TooLong."""
    size = 0
    for chunk in chunks:
        size += len(chunk)
        if size > MAX_BYTES:
            raise TooLong(f"the answer has more than {MAX_BYTES / 2**20:g} MB")
        yield chunk


def decompress(chunks: Iterable[bytes], encoding: str) -> Iterator[bytes]:
    """Yield the chunks decompressed (Content-Encoding), in pieces of at most 64 KiB. Raises Broken."""
    encoding = encoding.strip().lower()
    if encoding in ("", "identity"):
        for chunk in chunks:  # not `yield from`, which would close an iterator that may still be read
            yield chunk
        return
    if encoding not in _ENCODINGS:
        raise Broken("the answer is compressed in a way that was not requested")
    decompressor = zlib.decompressobj(zlib.MAX_WBITS | 32)  # gzip or zlib, by the first bytes
    try:
        for chunk in chunks:
            while chunk and not decompressor.eof:
                yield decompressor.decompress(chunk, _CHUNK_BYTES)
                chunk = decompressor.unconsumed_tail
        yield decompressor.flush()  # less than a piece: all input was consumed
    except zlib.error as error:
        raise Broken("the answer is compressed and cannot be decompressed") from error


def json_value(text: str | bytes) -> Any:
    """Parse a JSON value. Raises Broken for invalid JSON, deep nesting, or a number with thousands of digits."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Broken(f"the answer is not valid JSON ({error})") from error


def json_object(text: str | bytes) -> dict[str, Any]:
    """Parse a JSON object. Raises Broken like `json_value`, and for any other value."""
    value = json_value(text)
    if not isinstance(value, dict):
        raise Broken("the answer is not a JSON object")
    return value


def read_object(content_type: str, chunks: Iterable[bytes]) -> dict[str, Any]:
    """Read the body as a JSON object, whatever its declared type. Raises Broken and TooLong."""
    return json_object(b"".join(limit_bytes(chunks)))


def json_text(value: Any) -> str:
    """Serialize a JSON value. Raises Broken if it is nested too deeply."""
    try:
        return json.dumps(value, ensure_ascii=False)
    except RecursionError as error:
        raise Broken("the answer is nested too deeply") from error
