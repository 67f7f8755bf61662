"""Cut long texts to a page of lines, or to both ends, with a note on the missing rest and how to read on.

Lines and columns count from 1. A line longer than a page is continued at a column.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from typing import Annotated

from autoagent.core.commands import DETAIL
from autoagent.core.errors import CommandError
from autoagent.core.frozen import dataclass
from autoagent.text.tokens import Count, fits

FirstLine = Annotated[int, "the line to begin with"]
Lines = Annotated[int | None, "how many lines", "exact", DETAIL]
Column = Annotated[int, "where to begin in that line", "exact", DETAIL]

Fits = Callable[[str], bool]  # whether a text fits, and so does every prefix of it

NOTE_TOKENS = 60  # of a page's note, or of one between two ends
_MAX_SNAP = 0.5  # the part of an end that may be dropped to cut at a line end


@dataclass(frozen=True, slots=True)
class Page:
    """A part of a text: from `column` of line `first` to line `last` of `total`."""

    text: str
    first: int
    column: int
    last: int
    total: int
    next_position: tuple[int, int] | None  # the line and column where the rest begins, or None at the end of the text

    @property
    def is_complete(self) -> bool:
        return self.first == self.column == 1 and self.next_position is None

    def note(self, command: str) -> str:
        """Say which part it is and how to go on with `command`, given up to its arguments, or '' if it is complete."""
        if self.is_complete:
            return ""
        if self.total < self.first:
            return f"[there is no line {self.first:,}: the last one is {self.total:,}]"
        lines = f"lines {self.first:,} to {self.last:,}" if self.last > self.first else f"line {self.first:,}"
        begins = f" from column {self.column:,}" if self.column > 1 else ""
        if self.next_position is None:
            return f"[{lines}{begins} of {self.total:,}: the end]"
        ends = f" up to column {self.next_position[1] - 1:,}" if self.next_position[1] > 1 else ""
        return f"[{lines}{begins}{ends} of {self.total:,}; go on with {command}{_arguments(*self.next_position)})]"


def fill_page(text: str, room: Fits, *, first: int = 1, lines: int | None = None, column: int = 1) -> Page:
    """Return as many of `lines` (None: all) from line `first` as fit, whole lines if at least one fits.

    Past the end of the text the page is empty. Raises CommandError for a number below 1.
    """
    if min(first, column, 1 if lines is None else lines) < 1:
        raise CommandError("first_line, lines and column count from 1.")
    begins = [0, *(match.end() for match in re.finditer("\n", text))]
    if begins[-1] == len(text) and len(begins) > 1:
        begins.pop()  # a final newline does not begin another line
    total = len(begins) if text else 0
    if first > total:
        return Page("", first, column, first, total, None)
    ends = [*begins[1:], len(text)]
    line_end = ends[first - 1] - text.endswith("\n", begins[first - 1], ends[first - 1])
    start = min(begins[first - 1] + column - 1, line_end)
    last = total if lines is None else min(total, first + lines - 1)
    if room(text[start : ends[last - 1]]):
        end = ends[last - 1]
    elif fitting := _largest(last - first, lambda count: room(text[start : ends[first + count - 2]])):
        end = ends[first + fitting - 2]
    else:  # not even one line fits
        end = start + max(1, _largest(ends[first - 1] - start, lambda count: room(text[start : start + count])))
    if end == len(text):
        return Page(text[start:], first, column, total, total, None)
    end_line = bisect_right(begins, end)
    end_column = end - begins[end_line - 1] + 1
    last = end_line if end_column > 1 else end_line - 1
    return Page(text[start:end], first, column, last, total, (end_line, end_column))


def _largest(limit: int, is_good: Callable[[int], bool]) -> int:
    """Return the largest good number up to `limit`, or 0. All numbers below a good number must be good."""
    return bisect_left(range(1, limit + 1), True, key=lambda number: not is_good(number))


def keep_ends(text: str, limit: int, count: Count, command: str = "") -> str:
    """Return the text within `limit` tokens: unchanged, or both ends with a note on the omission.

    `command`, given up to the arguments, shows the omitted part. Ends are whole lines if lines are short.
    """
    if fits(text, limit, count):
        return text
    keep = min(len(text) // 2, (limit - NOTE_TOKENS) * 2)
    while keep > 0:
        head = text[:keep]  # up to a line end if enough remains, without the newline
        head = head[:at] if (at := head.rfind("\n")) >= len(head) * _MAX_SNAP else head
        tail = text[len(text) - keep :]
        tail = tail[at + 1 :] if 0 <= (at := tail.find("\n")) < len(tail) * _MAX_SNAP else tail
        cut = f"{head}\n{_omission_note(text, len(head), len(tail), command)}\n{tail}"
        if count(cut) <= limit:
            return cut
        keep = keep * 3 // 4
    return _omission_note(text, 0, 0, command)


def _omission_note(text: str, head: int, tail: int, command: str) -> str:
    before, total = text.count("\n", 0, head), text.count("\n") + (not text.endswith("\n"))
    behind = text.count("\n", len(text) - tail) + (not text.endswith("\n")) if tail else 0
    whole_lines = text[head : head + 1] == "\n" and text[len(text) - tail - 1 : len(text) - tail] == "\n"
    if whole_lines and total - behind >= before + 2:
        first, last = before + 2, total - behind
        what = f"lines {first:,} to {last:,}" if last > first else f"line {first:,}"
        what, place = f"{what} of {total:,}", (first, 1)
    else:
        what = f"{len(text) - head - tail:,} of {len(text):,} characters"
        place = (before + 1, head - (text.rfind("\n", 0, head) + 1) + 1)
    how = f"; {command}{_arguments(*place)}) shows them" if command else ""
    return f"[… {what} left out{how} …]"


def _arguments(line: int, column: int) -> str:
    return f"first_line={line}" + (f", column={column}" if column > 1 else "")
