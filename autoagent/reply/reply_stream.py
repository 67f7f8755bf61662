"""Show a growing reply on the screen: the value being written, and the text of the thoughts.

For the screen only: the command is parsed from the complete reply.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field

from autoagent.core.command_schema import THOUGHTS
from autoagent.text import code_block

TAIL = 2_000  # characters kept of the end of a value

_START = re.compile(r'"thoughts"\s*:\s*(?:\[\s*"|\{(?:[^{}]*?[,\s])??"text"\s*:\s*")')
_PIECE = re.compile(
    r'[^"\\]+'
    r"|\\u[dD][89aAbB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"  # a character beyond U+FFFF
    r"|\\u(?![dD][89aAbB])[0-9a-fA-F]{4}"
    r"|\\u[dD][89aAbB][0-9a-fA-F]{2}(?=[^\\]|\\[^u])"  # half of one, without the other half
    r'|\\["\\/bfnrt]'
)
_MAX_START_CHARACTERS = 4000  # a reply whose thoughts start later is shown once complete


@dataclass(slots=True)
class ReplyStream:
    """Track the values in a reply, fed piece by piece."""

    key: str = ""  # of the value being written, '' before the first
    text: str = ""  # the end of that value so far, if it is a string
    lines: int = 1  # of that value
    finished: dict[str, str] = field(default_factory=dict)  # the ends of complete strings by key
    pieces: int = 0  # about one per token
    _brackets: str = ""  # open braces and brackets
    _expects_key: bool = False  # whether the next string is a key
    _is_in_string: bool = False
    _escape: str = ""  # an unfinished escape
    _fence: str = ""  # the line before the code that follows the object
    _is_in_code: bool = False  # whether that line is complete

    @property
    def is_thinking(self) -> bool:
        """Return whether the value belongs to the thoughts, since an argument may share a thought's name."""
        if self.key == "text":
            return self.finished.keys().isdisjoint(("text", "thoughts", "name"))
        return self.key == "thoughts" or self.key in THOUGHTS

    def feed(self, delta: str) -> None:
        self.pieces += 1
        for char in delta:
            if not self.key:
                self.lines += char == "\n"
            if self._is_in_string:
                self._feed_string(char)
            elif not self._brackets and (self.key != "" and code_block.PLACEHOLDER in self.finished.values()):
                self._feed_code(char)
            elif char in "{[":
                self._brackets += char
                self._expects_key = char == "{"
            elif char in "}]":
                self._brackets, self._expects_key = self._brackets[:-1], False
            elif char == "," and self._brackets:
                self._expects_key = self._brackets[-1] == "{"
            elif char == '"' and self._brackets:
                self._is_in_string = True
                if self._expects_key:
                    self.key = ""
                else:
                    self.text, self.lines = "", 1

    def _feed_code(self, char: str) -> None:
        """Process a character after the object: the line that opens the code, then the code."""
        if self._is_in_code:
            self._add(char)
        else:
            self._fence += char
            self._is_in_code = char == "\n" and code_block.PLACEHOLDER in self._fence
            self.text, self.lines = "", 1

    def _feed_string(self, char: str) -> None:
        if self._escape:
            self._escape += char
            if len(self._escape) < (6 if self._escape[1] == "u" else 2):
                return
            try:
                char = json.loads(f'"{self._escape}"')
            except ValueError:  # no JSON escape: shown literally
                char = self._escape
            self._escape = ""
        elif char == "\\":
            self._escape = char
            return
        elif char == '"':
            self._is_in_string = False
            if self._expects_key:
                self._expects_key = False
                self.text = ""
            else:
                self.finished[self.key] = self.text
            return
        if self._expects_key:
            self.key += char
        else:
            self._add(char)

    def _add(self, char: str) -> None:
        """Add a character to the displayed value."""
        self.text += char
        self.lines += char == "\n"
        if len(self.text) > 2 * TAIL:
            self.text = self.text[-TAIL:]


class ThoughtsStream:
    """Extract the text of the thoughts from a reply, fed piece by piece. `ended` tells whether it is complete."""

    def __init__(self) -> None:
        self.ended = False
        self._raw = ""
        self._is_in_text = False
        self._is_done = False

    def feed(self, delta: str) -> str:
        """Process the next piece. Return the newly readable text, '' outside of the thoughts."""
        if self._is_done:
            return ""
        self._raw += delta
        if not self._is_in_text:
            match = _START.search(self._raw)
            if match is None:
                self._is_done = len(self._raw) > _MAX_START_CHARACTERS
                return ""
            self._is_in_text = True
            self._raw = self._raw[match.end() :]
        text, end = "", 0
        while piece := _PIECE.match(self._raw, end):
            text += json.loads(f'"{piece[0]}"', strict=False)
            end = piece.end()
        self._raw = self._raw[end:]
        # An escape takes at most 12 characters; a longer unreadable rest is not JSON.
        self.ended = self._is_done = self._raw.startswith('"') or len(self._raw) > 12
        return text
