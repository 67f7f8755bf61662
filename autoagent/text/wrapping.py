"""Wrap text to a terminal's columns: prose arriving in pieces, and blocks with fixed lines.

Both escape their input. Continuation lines are indented, so a text cannot imitate a line of the program.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from autoagent.text.sanitize import escape, width

_WIDE = r"[\u2e80-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff00-\uff60\U0001f300-\U0001faff\U00020000-\U0003fffd]"
# A line may break after any wide character, and the marks and closing punctuation that follow it.
_STAYS = r"[\u0300-\u036f\ufe0e\ufe0f\u3001\u3002\uff01\uff09\uff0c\uff1a\uff1b\uff1f]"
_PART = re.compile(rf"\n|[ \t]+|{_WIDE}{_STAYS}*|(?:(?!{_WIDE})[^ \t\n])+")

MIN_COLUMNS = 20  # a narrower terminal wraps lines itself


class Flow:
    """Wrap prose arriving in pieces. The result does not depend on the pieces.

    `columns` is the width of a line, `at` the starting column, `indent` the indent of all further lines.
    """

    def __init__(self, columns: int, *, at: int = 0, indent: int = 2) -> None:
        self._columns = max(columns, MIN_COLUMNS)
        self._indent = " " * indent
        self.column = at  # columns written on this line
        self._space = ""  # pending before the next word, dropped at a line break
        self._word = ""  # not written yet, as the next piece may continue it

    def feed(self, piece: str) -> str:
        """Add a piece. Return the final output."""
        parts = _PART.findall(self._word + piece)
        self._word, written = "", ""
        for part in parts:
            written += self.flush()
            if part == "\n":
                written += "\n"
                self.column, self._space = 0, self._indent
            elif part[0] in " \t":
                self._space += part.replace("\t", "    ")
            else:
                self._word = part
        return written

    def flush(self) -> str:
        """Return the word that the next piece might have continued, without a newline after it."""
        if not self._word:
            return ""
        word, self._word = escape(self._word), ""
        space, self._space = self._space, ""
        if self.column + len(space) + width(word) <= self._columns:
            self.column += len(space) + width(word)
            return space + word
        written = ("\n" if self.column else "") + self._indent
        self.column = len(self._indent)
        for char in word:  # one by one, as the word may be longer than a line
            if self.column + width(char) > self._columns:
                written += "\n" + self._indent
                self.column = len(self._indent)
            written += char
            self.column += width(char)
        return written


def wrap(text: str, columns: int, *, at: int = 0, indent: int = 2) -> str:
    """Wrap prose into lines of at most `columns`; see Flow."""
    flow = Flow(columns, at=at, indent=indent)
    return flow.feed(text) + flow.flush()


def cut(line: str, columns: int, before: str = "", *, hanging: int = 4, at_spaces: bool = False) -> Iterator[str]:
    """Cut one escaped line into lines of at most `columns`, each starting with `before`.

    Further lines are indented by `hanging`, so that none passes for a line of its own. With `at_spaces`, cut at the
    last space instead of a full line, and drop the spaces there.
    """
    columns = max(columns, MIN_COLUMNS)
    further = before + " " * hanging
    piece, at = "", width(before)
    for char in escape(line.expandtabs(4)):
        piece += char
        at += width(char)
        if at > columns:
            words, _, rest = piece.rpartition(" ")
            if at_spaces and words.strip() and width(further + rest) <= columns:
                yield before + words.rstrip()
                piece = rest
            else:
                yield before + piece[:-1]
                piece = char
            before, at = further, width(further + piece)
    yield before + piece
