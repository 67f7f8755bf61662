"""A reply that is still growing, as the screen shows it: the value that is being written, and the text of the thoughts.

For the screen only: what is run is parsed from the whole reply.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field

from autoagent.core.command_schema import THOUGHTS
from autoagent.text import code_block

TAIL = 2_000  # characters that are kept of the end of a value

_BEGINS = re.compile(r'"thoughts"\s*:\s*(?:\[\s*"|\{(?:[^{}]*?[,\s])??"text"\s*:\s*")')
_PIECE = re.compile(
    r'[^"\\]+'
    r"|\\u[dD][89aAbB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"  # one character beyond U+FFFF
    r"|\\u(?![dD][89aAbB])[0-9a-fA-F]{4}"
    r"|\\u[dD][89aAbB][0-9a-fA-F]{2}(?=[^\\]|\\[^u])"  # half of one, and the other half does not follow
    r'|\\["\\/bfnrt]'
)
_PATIENCE = 4000  # characters; a reply whose thoughts begin later is shown when it is whole


@dataclass(slots=True)
class ReplyStream:
    """Feed it the pieces of one reply. `key` names the value that is being written, '' before the first.

    `text` is the end of that value so far, where it is a string, and `lines` how many it has. `done` holds the end of
    the strings that are complete, by their keys.
    """

    key: str = ""
    text: str = ""
    lines: int = 1
    done: dict[str, str] = field(default_factory=dict)
    pieces: int = 0  # about one a token
    _open: str = ""  # the braces and brackets that are open
    _names: bool = False  # whether the next string names a value
    _inside: bool = False  # a string
    _escape: str = ""  # one that has begun
    _fence: str = ""  # the line before the code that follows the object
    _fenced: bool = False  # whether that is complete

    @property
    def thinks(self) -> bool:
        """Whether the value belongs to the thoughts: an argument may be named as one of them."""
        if self.key == "text":
            return self.done.keys().isdisjoint(("text", "thoughts", "name"))
        return self.key == "thoughts" or self.key in THOUGHTS

    def feed(self, delta: str) -> None:
        """Take the next piece."""
        self.pieces += 1
        for char in delta:
            if not self.key:
                self.lines += char == "\n"
            if self._inside:
                self._take(char)
            elif not self._open and self._begins_code():
                self._code(char)
            elif char in "{[":
                self._open += char
                self._names = char == "{"
            elif char in "}]":
                self._open, self._names = self._open[:-1], False
            elif char == "," and self._open:
                self._names = self._open[-1] == "{"
            elif char == '"' and self._open:
                self._inside = True
                if self._names:
                    self.key = ""
                else:
                    self.text, self.lines = "", 1

    def _begins_code(self) -> bool:
        """Whether the object is complete and code follows it, in whose place a mark stands."""
        return self.key != "" and code_block.PLACE in self.done.values()

    def _code(self, char: str) -> None:
        """Take a character after the object: the line that begins the code, then the code."""
        if not self._fenced:
            self._fence += char
            self._fenced = char == "\n" and code_block.PLACE in self._fence
            self.text, self.lines = "", 1
            return
        self._add(char)

    def _take(self, char: str) -> None:
        """Take a character of a string."""
        if self._escape:
            self._escape += char
            if len(self._escape) < (6 if self._escape[1] == "u" else 2):
                return
            try:
                char = json.loads(f'"{self._escape}"')
            except ValueError:  # no escape of JSON: shown as it stands
                char = self._escape
            self._escape = ""
        elif char == "\\":
            self._escape = char
            return
        elif char == '"':
            self._inside = False
            if self._names:
                self._names = False
                self.text = ""
            else:
                self.done[self.key] = self.text
            return
        if self._names:
            self.key += char
        else:
            self._add(char)

    def _add(self, char: str) -> None:
        """Add a character to the value that is shown."""
        self.text += char
        self.lines += char == "\n"
        if len(self.text) > 2 * TAIL:
            self.text = self.text[-TAIL:]


class ThoughtsStream:
    """Feed it the pieces of one reply. It gives the pieces of the text in its thoughts."""

    def __init__(self) -> None:
        self._raw = ""
        self._inside = False
        self._done = False

    @property
    def ended(self) -> bool:
        """Whether the text has come to its end."""
        return self._inside and self._done

    def feed(self, delta: str) -> str:
        """Take the next piece. Return what became readable, '' before the text begins and after it has ended."""
        if self._done:
            return ""
        self._raw += delta
        if not self._inside:
            begins = _BEGINS.search(self._raw)
            if begins is None:
                self._done = len(self._raw) > _PATIENCE
                return ""
            self._inside = True
            self._raw = self._raw[begins.end() :]
        return self._decoded()

    def _decoded(self) -> str:
        text, end = "", 0
        while piece := _PIECE.match(self._raw, end):
            text += json.loads(f'"{piece[0]}"', strict=False)
            end = piece.end()
        self._raw = self._raw[end:]
        # An escape takes at most 12 characters: what cannot be read by then is no JSON.
        self._done = self._raw.startswith('"') or len(self._raw) > 12
        return text
