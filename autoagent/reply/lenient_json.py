r"""Read JSON as language models write it, without guessing.

Every extension of RFC 8259 has a single meaning: comments (`//`, `#`, `/* */`), trailing commas, one comma too many or
too few between members, single, triple and typographic quotes, raw line breaks and tabs in strings, Python's `True`,
`False`, `None` and `\xHH`, unquoted keys, exotic white space, one bracket too many just before `"command"`. Anything
else is an error at a position: unclosed brackets, expressions, unknown escapes, a key with two values. JSON-repair
libraries accept these, too, and silently change the contents of files.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any

MAX_DEPTH = 64  # levels of nesting; no command needs more than a few


class UnreadableJson(ValueError):
    """Report unreadable text with the reason, the position (from 1), and an excerpt.

    With `has_key`, the outermost object had a first key and a colon, so it is not prose in braces.
    """

    def __init__(self, reason: str, text: str, position: int, *, has_key: bool) -> None:
        super().__init__(reason, text, position)
        self.has_key = has_key

    def __str__(self) -> str:
        reason, text, position = self.args  # built only when shown, since most prose in braces is skipped
        rest = text[position:].lstrip()
        return f"{format_position(text, position)}: {reason}, found {excerpt(rest)}" if rest else f"the end: {reason}"


def format_position(text: str, position: int) -> str:
    """Format the position as `line 3, column 7`."""
    return f"line {text.count(chr(10), 0, position) + 1}, column {position - text.rfind(chr(10), 0, position)}"


def excerpt(text: str) -> str:
    """Quote the first characters, with control and invisible ones escaped."""
    return repr(text[:24]) + ("…" if len(text) > 24 else "")


def is_same_json(first: Any, second: Any) -> bool:
    """Return whether two values are the same JSON. Unlike in Python, 1 is not true."""
    return json.dumps(first, sort_keys=True) == json.dumps(second, sort_keys=True)


def read_object(text: str, start: int = 0) -> tuple[dict[str, Any], int]:
    """Return the object whose `{` is at `start`, and the position after it. Raises UnreadableJson."""
    reader = _Reader(text, start)
    return reader.object(1), reader.position


_SPACE = re.compile(r"(?:[\s\ufeff\u200b\u2060]|//[^\n]*|#[^\n]*|/\*[^*]*+(?:\*(?!/)[^*]*+)*+\*/)*+")
_IDENTIFIER = re.compile(r"[A-Za-z_$][\w$]*")
_WORD = re.compile(r"[\w.+-]+")
_NUMBER = re.compile(r"[+-]?(?:(?:0|[1-9][0-9]*)(\.[0-9]*)?|(\.[0-9]+))([eE][+-]?[0-9]+)?")
_LITERALS = {"true": True, "false": False, "null": None, "True": True, "False": False, "None": None}

_CLOSING = {'"': '"', "'": "'", "\u201c": "\u201d", "\u2018": "\u2019"}  # straight, then typographic quotes
_BODIES = {
    quote: re.compile(rf"([^{end}\\]*+(?:\\.[^{end}\\]*+)*+){end}", re.DOTALL) for quote, end in _CLOSING.items()
}
_KEY_FOLLOWS = re.compile("(?:" + "|".join(rf"{quote}[^{end}\\\n]*{end}" for quote, end in _CLOSING.items()) + r")\s*:")
_COMMAND_FOLLOWS = re.compile("[\\]}]\\s*,\\s*(?:\"command\"|'command'|\u201ccommand\u201d)\\s*:")
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})|U(00(?:0[0-9a-fA-F]|10)[0-9a-fA-F]{4})|(.))", re.DOTALL)
_ESCAPED = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "/": "/", "\\": "\\"}
_ESCAPED |= {quote: quote for pair in _CLOSING.items() for quote in pair}


class _Reader:
    """Parse `text` by recursive descent."""

    def __init__(self, text: str, position: int) -> None:
        self.text = text
        self.position = position  # of the next character to read
        self.has_key = False

    def object(self, depth: int) -> dict[str, Any]:
        start = self.check_depth(depth)
        members: dict[str, Any] = {}
        while not self.accept("}"):
            key_position = self.position
            key = self.key(start)
            if not self.accept(":"):
                raise self.error(f"expected ':' after the key {excerpt(key)}")
            self.has_key = True
            value = self.value(depth + 1)
            if key in members and not is_same_json(members[key], value):
                raise self.error(f"the key {excerpt(key)} is given twice with different values", key_position)
            members[key] = value
            self.comma_between_members(depth)
        return members

    def array(self, depth: int) -> list[Any]:
        start = self.check_depth(depth)
        items: list[Any] = []
        while not self.accept("]"):
            self.check_open("list", start)
            items.append(self.value(depth + 1))
            if not self.accept(",") and self.peek() != "]":
                self.check_open("list", start)
                raise self.error("expected ',' or ']' after the list item")
        return items

    def comma_between_members(self, depth: int) -> None:
        """Skip the separator between two members, up to the next key or the closing brace."""
        start = self.position
        following = self.peek()
        if depth == 1 and _COMMAND_FOLLOWS.match(self.text, self.position):
            self.position += 1  # one bracket too many would close the reply before its command
        if self.accept(","):
            while self.accept(","):
                pass
        # Adjacent strings without a space may be one string with quotes in it, so only a space separates members.
        elif following not in ("}", "") and not (
            self.position > start and _KEY_FOLLOWS.match(self.text, self.position)
        ):
            raise self.error("expected ',' or '}' after the value")

    def key(self, start: int) -> str:
        self.check_open("object", start)
        if self.peek() in _CLOSING:
            return self.string()
        if match := _IDENTIFIER.match(self.text, self.position):
            self.position = match.end()
            return match.group()
        raise self.error("expected a key in double quotes")

    def value(self, depth: int) -> Any:
        first = self.peek()
        if first == "{":
            return self.object(depth)
        if first == "[":
            return self.array(depth)
        if first in _CLOSING:
            return self.string()
        match = _WORD.match(self.text, self.position)
        word = match.group() if match else ""
        if word in _LITERALS:
            value: Any = _LITERALS[word]
        elif number := _NUMBER.fullmatch(word):
            is_integer = not any(number.groups())
            try:
                value = int(word) if is_integer else float(word)
            except ValueError:  # more digits than Python converts
                value = math.inf
            if value in (math.inf, -math.inf):
                raise self.error("the number is too large")
        else:
            raise self.error("expected a value")
        self.position += len(word)
        return value

    def string(self) -> str:
        start, quote = self.position, self.text[self.position]
        if quote in "\"'" and self.text.startswith(quote * 3, start):
            return self.triple_quoted(quote * 3)
        match = _BODIES[quote].match(self.text, start + 1)
        if match is None:
            raise self.error("the string that begins here is never closed")
        self.position = match.end()
        body = match.group(1)
        return self.unescape(body, start + 1) if "\\" in body else body

    def triple_quoted(self, quotes: str) -> str:
        start = self.position + 3
        end = self.text.find(quotes, start)
        if end < 0:
            raise self.error("the string that begins here is never closed")
        backslash = self.text.find("\\", start, end)
        if backslash >= 0:  # pasted code would mean it literally, a Python literal as an escape
            raise self.error("a backslash in triple quotes may mean two things; write a JSON string", backslash)
        self.position = end + 3
        return self.text[start:end]

    def unescape(self, body: str, start: int) -> str:
        def character(escape: re.Match[str]) -> str:
            code = escape[1] or escape[2] or escape[3]
            if code:
                return chr(int(code, 16))
            if escape[4] not in _ESCAPED:
                raise self.error("unknown escape (a backslash itself is written \\\\)", start + escape.start())
            return _ESCAPED[escape[4]]

        # UTF-16 joins the separately escaped halves of a character.
        return _ESCAPE.sub(character, body).encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")

    def check_depth(self, depth: int) -> int:
        if depth > MAX_DEPTH:
            raise self.error(f"nested more than {MAX_DEPTH} levels deep")
        self.position += 1
        return self.position - 1

    def check_open(self, kind: str, start: int) -> None:
        if not self.peek():
            raise self.error(f"the {kind} that opens at {format_position(self.text, start)} is never closed")

    def peek(self) -> str:
        """Skip white space and comments. Return the next character, or '' at the end."""
        match = _SPACE.match(self.text, self.position)
        assert match is not None  # the pattern also matches the empty string
        self.position = match.end()
        return self.text[self.position : self.position + 1]

    def accept(self, mark: str) -> bool:
        is_next = self.peek() == mark
        self.position += is_next
        return is_next

    def error(self, reason: str, position: int | None = None) -> UnreadableJson:
        return UnreadableJson(reason, self.text, self.position if position is None else position, has_key=self.has_key)
