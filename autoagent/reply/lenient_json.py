"""JSON as language models write it, read without guessing.

Everything taken beyond RFC 8259 has one meaning only: comments (`//`, `#`, `/* */`), trailing commas, a comma too many
or too few between two members, single, triple and typographic quotes, raw line breaks and tabs in strings, Python's
`True`, `False`, `None` and `\\xHH`, keys without quotes, exotic white space, one bracket too many just before
`"command"`. All else is an error at a position: what is never closed, expressions, unknown escapes, a key with two
values. Libraries that repair JSON salvage those too, and change file contents on the way without a word.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any

DEPTH = 64  # levels of nesting; no command needs more than a few


class UnreadableJson(ValueError):
    """The text at a position cannot be read. The message says why, where (from 1), and what is found there.

    `begun`: the outermost object had a first key and its colon, so that it is no prose in braces.
    """

    def __init__(self, reason: str, text: str, position: int, *, begun: bool) -> None:
        super().__init__(reason, text, position)
        self.begun = begun

    def __str__(self) -> str:
        reason, text, position = self.args  # put into words only when shown: most prose in braces is stepped over
        here = text[position:].lstrip()
        return f"{place(text, position)}: {reason}, found {excerpt(here)}" if here else f"the end: {reason}"


def place(text: str, position: int) -> str:
    """Render the place as `line 3, column 7`."""
    return f"line {text.count(chr(10), 0, position) + 1}, column {position - text.rfind(chr(10), 0, position)}"


def excerpt(text: str) -> str:
    """Quote the first few characters, with control and invisible ones escaped."""
    return repr(text[:24]) + ("…" if len(text) > 24 else "")


def same(one: Any, other: Any) -> bool:
    """Return whether two values are the same JSON. Unlike in Python, 1 is not true."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


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
    """A recursive descent over `text`. `position` is the next character to read."""

    def __init__(self, text: str, position: int) -> None:
        self.text = text
        self.position = position
        self.begun = False

    def object(self, depth: int) -> dict[str, Any]:
        opened = self.enter(depth)
        members: dict[str, Any] = {}
        while not self.take("}"):
            at = self.position
            key = self.key(opened)
            if not self.take(":"):
                raise self.error(f"expected ':' after the key {excerpt(key)}")
            self.begun = True
            value = self.value(depth + 1)
            if key in members and not same(members[key], value):
                raise self.error(f"the key {excerpt(key)} is given twice with different values", at)
            members[key] = value
            self.comma_between_members(depth)
        return members

    def array(self, depth: int) -> list[Any]:
        opened = self.enter(depth)
        items: list[Any] = []
        while not self.take("]"):
            self.still_open("list", opened)
            items.append(self.value(depth + 1))
            if not self.take(",") and self.next() != "]":
                self.still_open("list", opened)
                raise self.error("expected ',' or ']' after the list item")
        return items

    def comma_between_members(self, depth: int) -> None:
        """Step over what separates two members, up to the next key or the closing brace."""
        before = self.position
        following = self.next()
        if depth == 1 and _COMMAND_FOLLOWS.match(self.text, self.position):
            self.position += 1  # one bracket too many: it would close the reply before its command
        if self.take(","):
            while self.take(","):
                pass
        # Two strings without a space between them may be one with quotes in it: only a space makes them two members.
        elif following not in ("}", "") and not (
            self.position > before and _KEY_FOLLOWS.match(self.text, self.position)
        ):
            raise self.error("expected ',' or '}' after the value")

    def key(self, opened: int) -> str:
        self.still_open("object", opened)
        if self.next() in _CLOSING:
            return self.string()
        if found := _IDENTIFIER.match(self.text, self.position):
            self.position = found.end()
            return found.group()
        raise self.error("expected a key in double quotes")

    def value(self, depth: int) -> Any:
        first = self.next()
        if first == "{":
            return self.object(depth)
        if first == "[":
            return self.array(depth)
        if first in _CLOSING:
            return self.string()
        found = _WORD.match(self.text, self.position)
        word = found.group() if found else ""
        if word in _LITERALS:
            value: Any = _LITERALS[word]
        elif number := _NUMBER.fullmatch(word):
            value = self.number(word, whole=not any(number.groups()))
        else:
            raise self.error("expected a value")
        self.position += len(word)
        return value

    def number(self, word: str, *, whole: bool) -> int | float:
        try:
            value = int(word) if whole else float(word)
            if whole or math.isfinite(value):
                return value
        except ValueError:  # more digits than Python turns into a number
            pass
        raise self.error("the number is too large")

    def string(self) -> str:
        start, quote = self.position, self.text[self.position]
        if quote in "\"'" and self.text.startswith(quote * 3, start):
            return self.triple_quoted(quote * 3)
        found = _BODIES[quote].match(self.text, start + 1)
        if found is None:
            raise self.error("the string that begins here is never closed")
        self.position = found.end()
        body = found.group(1)
        return self.unescaped(body, start + 1) if "\\" in body else body

    def triple_quoted(self, quotes: str) -> str:
        start = self.position + 3
        end = self.text.find(quotes, start)
        if end < 0:
            raise self.error("the string that begins here is never closed")
        backslash = self.text.find("\\", start, end)
        if backslash >= 0:  # pasted code would mean it as it stands, a Python literal as an escape
            raise self.error("a backslash in triple quotes may mean two things; write a JSON string", backslash)
        self.position = end + 3
        return self.text[start:end]

    def unescaped(self, body: str, start: int) -> str:
        def character(escape: re.Match[str]) -> str:
            code = escape[1] or escape[2] or escape[3]
            if code:
                return chr(int(code, 16))
            if escape[4] not in _ESCAPED:
                raise self.error("unknown escape (a backslash itself is written \\\\)", start + escape.start())
            return _ESCAPED[escape[4]]

        # UTF-16 joins the two halves of a character that were escaped one by one.
        return _ESCAPE.sub(character, body).encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")

    def enter(self, depth: int) -> int:
        if depth > DEPTH:
            raise self.error(f"nested more than {DEPTH} levels deep")
        self.position += 1
        return self.position - 1

    def still_open(self, kind: str, opened: int) -> None:
        if not self.next():
            raise self.error(f"the {kind} that opens at {place(self.text, opened)} is never closed")

    def next(self) -> str:
        """Skip white space and comments. Return the next character, '' at the end."""
        found = _SPACE.match(self.text, self.position)
        assert found is not None  # the pattern matches the empty string too
        self.position = found.end()
        return self.text[self.position : self.position + 1]

    def take(self, mark: str) -> bool:
        """Step over `mark` if it comes next."""
        taken = self.next() == mark
        self.position += taken
        return taken

    def error(self, reason: str, position: int | None = None) -> UnreadableJson:
        return UnreadableJson(reason, self.text, self.position if position is None else position, begun=self.begun)
