"""The output of subcommands. All of it passes here, so that nothing in a file, a log or a page steers the terminal."""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar

import click

from autoagent.core.frozen import dataclass
from autoagent.text.sanitize import escape, escape_json, width
from autoagent.text.wrapping import wrap

Item = TypeVar("Item")


def echo(text: str = "", *, err: bool = False) -> None:
    """Print lines, with anything that a terminal would obey, reorder or hide as escapes. `err`: on standard error."""
    click.echo(escape(text), err=err)


def say(text: str) -> None:
    """Tell the person something on standard error: wrapped at words where that is a terminal."""
    if sys.stderr.isatty():
        columns = shutil.get_terminal_size().columns
        text = "\n".join(wrap(line, columns) for line in text.split("\n"))
    echo(text, err=True)


def echo_json(value: Any) -> None:
    """Print a JSON value, in which the same stands as escapes of JSON."""
    click.echo(escape_json(json.dumps(value, ensure_ascii=False, indent=2)))


def echo_list(
    items: Sequence[Item],
    as_json: bool,
    fields: Callable[[Item], Any],
    line: Callable[[Item], str],
    empty: str,
    columns: Columns[Item] | None = None,
) -> None:
    """Print the items as a JSON list of their `fields`, or a `line` for each. On standard error that there are none.

    At a terminal they stand in `columns`, where there are such.
    """
    if as_json:
        echo_json([fields(item) for item in items])
        return
    if columns is not None and sys.stdout.isatty():
        lines = columns.lines(items, shutil.get_terminal_size().columns)
    else:
        lines = map(line, items)
    for text in lines:
        echo(text)
    if not items:
        echo(empty, err=True)


def page_out(text: str) -> None:
    """Print a text with the program's own colours, in the user's pager if it is longer than the terminal."""
    if text.count("\n") < shutil.get_terminal_size().lines:
        click.echo(text, nl=False)
    else:
        turn_pages(text)


def turn_pages(text: str) -> None:
    """Show a text in the user's pager: in colours if that is less, which is told to show them."""
    pager = (os.environ.get("PAGER") or "less").split()[0]
    options = os.environ.get("LESS", "")
    os.environ["LESS"] = f"-R {options}".strip()
    try:
        click.echo_via_pager(text, color=Path(pager).name == "less")
    finally:
        os.environ["LESS"] = options


def minute(t: float) -> str:
    """Render a local time to the minute."""
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(t))


class ProgressBar:
    """A fetch's progress on stderr: one line that is redrawn. Without a terminal, a line for every tenth."""

    def __init__(self) -> None:
        self._live = sys.stderr.isatty()
        self._shown = -1  # the percentage
        self._open = False  # whether the cursor stands behind a bar

    def show(self, done: int, total: int) -> None:
        percent = 100 * done // total
        if percent == self._shown:
            return
        amount = f"{percent:3} %  {done / 1e6:.0f} of {total / 1e6:.0f} MB"
        if self._live:
            click.echo(f"\r[{'#' * (percent // 5):<20}] {amount}", err=True, nl=False)  # over the bar so far
            self._open = True
        elif percent // 10 > self._shown // 10:
            echo(amount, err=True)
        self._shown = percent

    def note(self, line: str) -> None:
        """Print a note on a line of its own."""
        self.close()
        echo(line, err=True)
        self._shown = -1

    def close(self) -> None:
        if self._open:
            echo(err=True)
            self._open = False


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
        cells = {
            column.title: [column.title, *(escape(" ".join(column.text(item).split())) for item in items)]
            for column in (*self.columns, self.last)
        }
        widths = {title: max(map(width, texts)) for title, texts in cells.items() if any(texts[1:])}
        shown = [column for column in self.columns if column.title in widths]

        def taken() -> int:
            return sum(widths[column.title] + len(GAP) for column in shown)

        while room - taken() < LEAST and (spare := max(shown, key=lambda column: column.spare)).spare:
            shown.remove(spare)
        left, below = room - taken(), room - taken() < LEAST
        for number, rest in enumerate(cells[self.last.title]):
            padded = []
            for column in shown:
                text = cells[column.title][number]
                blanks = " " * (widths[column.title] - width(text))
                padded.append(blanks + text if column.right else text + blanks)
            line = GAP.join(padded)
            if below:
                yield cut_to(line.rstrip(), room)
                if number and rest:
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
