"""Lists in columns that fit the terminal: if it is narrow, the least important columns are left out first."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from autoagent.text.sanitize import escape, width

Item = TypeVar("Item")

GAP = "  "  # between two columns
LEAST = 14  # columns of the terminal for the last one; with less it goes below, in a line of its own
_CUT = "..."


@dataclass(frozen=True, slots=True)
class Column(Generic[Item]):
    """A column: its title, the text of an item in it, and how soon it is left out. 0: never."""

    title: str
    text: Callable[[Item], str]
    spare: int = 0
    right: bool = False


@dataclass(frozen=True, slots=True)
class Columns(Generic[Item]):
    """The columns of a list. The last one is cut to the remaining width."""

    columns: Sequence[Column[Item]]
    last: Column[Item]

    def lines(self, items: Sequence[Item], room: int) -> Iterator[str]:
        """Yield the titles and the items, each line at most `room` wide, or nothing for no items.

        A column in which every item is empty is left out. Nothing in them stands for the end of a line.
        """
        if not items:
            return
        cells = {column.title: [_plain(column.text(item)) for item in items] for column in self.columns}
        widths = {title: max(map(width, [title, *texts])) for title, texts in cells.items() if any(texts)}
        shown = [column for column in self.columns if column.title in widths]

        def taken() -> int:
            return sum(widths[column.title] + len(GAP) for column in shown)

        while room - taken() < LEAST and (spare := max(shown, key=lambda column: column.spare)).spare:
            shown.remove(spare)
        left, below = room - taken(), room - taken() < LEAST
        last = [_plain(self.last.text(item)) for item in items]
        for number in range(-1, len(items)):
            texts = [column.title if number < 0 else cells[column.title][number] for column in shown]
            padded = (
                _padded(text, widths[column.title], column.right) for text, column in zip(texts, shown, strict=True)
            )
            line = GAP.join(padded)
            rest = self.last.title if number < 0 else last[number]
            if below:
                yield cut_to(line.rstrip(), room)
                if number >= 0 and rest:
                    yield GAP + cut_to(rest, room - len(GAP))
            else:
                yield f"{line}{GAP if shown else ''}{cut_to(rest, left)}".rstrip()


def cut_to(text: str, columns: int) -> str:
    """Cut an escaped text of one line to so many columns, with dots where something is missing."""
    if width(text) <= columns:
        return text
    text = text[:columns]
    while text and width(text) > columns - len(_CUT):
        text = text[:-1]
    return f"{text.rstrip()}{_CUT}"[: max(columns, 0)]


def _plain(text: str) -> str:
    return escape(" ".join(text.split()))


def _padded(text: str, columns: int, right: bool) -> str:
    blanks = " " * (columns - width(text))
    return blanks + text if right else text + blanks
