"""A reply that is still growing, as the screen shows it: which value is being written, and its text so far.

For the screen only: what is run is parsed from the whole reply.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from autoagent.text import code_block

TAIL = 2_000  # characters that are kept of the end of a value


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
