"""Print the output of subcommands. All of it passes here, so that no file, log or page can control the terminal."""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Generic, TextIO, TypeVar

import click

from autoagent.core.frozen import dataclass
from autoagent.text.sanitize import escape, escape_json, shorten, width
from autoagent.text.wrapping import wrap

Item = TypeVar("Item")

MAX_TEXT_CHARACTERS = 300  # on a line


def echo(text: str = "", *, err: bool = False) -> None:
    """Print lines, escaping anything that a terminal would execute, reorder or hide. With `err`, to standard error."""
    click.echo(escape(text), err=err)


def say(text: str) -> None:
    """Tell the user something on standard error, wrapped at words if that is a terminal."""
    if sys.stderr.isatty():
        columns = shutil.get_terminal_size().columns
        text = "\n".join(wrap(line, columns) for line in text.split("\n"))
    echo(text, err=True)


def echo_json(value: Any) -> None:
    """Print a JSON value, with JSON escapes for the same characters."""
    click.echo(escape_json(json.dumps(value, ensure_ascii=False, indent=2)))


def echo_list(
    items: Sequence[Item],
    as_json: bool,
    fields: Callable[[Item], Any],
    line: Callable[[Item], str],
    empty: str,
    columns: Columns[Item] | None = None,
) -> None:
    """Print the items as a JSON list of their `fields`, or with a `line` for each.

    If there are none, say so on standard error. At a terminal they appear in `columns`, if given.
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


def on_one_line(text: str) -> str:
    """Return a text without line breaks, escaped, and cut in the middle if it is long."""
    return shorten(escape(" ".join(text.split())), MAX_TEXT_CHARACTERS)


def page_out(text: str) -> None:
    """Print a text in the program's own colours, in the user's pager if it is longer than the terminal."""
    if text.count("\n") < shutil.get_terminal_size().lines:
        click.echo(text, nl=False)
    else:
        turn_pages(text)


def turn_pages(text: str) -> None:
    """Show a text in the user's pager, with colours if that is less."""
    pager = (os.environ.get("PAGER", "").split() or ["less"])[0]
    options = os.environ.get("LESS", "")
    os.environ["LESS"] = f"-R {options}".strip()
    try:
        click.echo_via_pager(text, color=Path(pager).name == "less")
    finally:
        os.environ["LESS"] = options


def discard_buffer(stream: TextIO) -> None:
    """Discard what could not be written, so that Python's flush at exit does not fail again."""
    with suppress(OSError, ValueError):  # a stream without a descriptor has nothing to flush
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)


def minute(t: float) -> str:
    """Format a local time to the minute."""
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(t))


class ProgressBar:
    """Show a download's progress on stderr: one redrawn line, or without a terminal a line for every tenth."""

    def __init__(self) -> None:
        self._is_live = sys.stderr.isatty()
        self._percent = -1  # the percentage; the cursor of a live terminal is behind its bar

    def show(self, done: int, total: int) -> None:
        percent = 100 * done // total
        if percent == self._percent:
            return
        amount = f"{percent:3} %  {done / 1e6:.0f} of {total / 1e6:.0f} MB"
        if self._is_live:
            click.echo(f"\r[{'#' * (percent // 5):<20}] {amount}", err=True, nl=False)  # over the previous bar
        elif percent // 10 > self._percent // 10:
            echo(amount, err=True)
        self._percent = percent

    def note(self, line: str) -> None:
        """Print a note on its own line."""
        self.close()
        echo(line, err=True)

    def close(self) -> None:
        if self._is_live and self._percent >= 0:
            echo(err=True)
        self._percent = -1


GAP = "  "  # between two columns
MIN_LAST_COLUMN = 14  # characters; with less room, the last column goes on its own line below
_DOTS = "..."


@dataclass(frozen=True, slots=True)
class Column(Generic[Item]):
    """Define a column: its title, the text for an item, and how soon it is left out (`spare`, 0 for never)."""

    title: str
    text: Callable[[Item], str]
    spare: int = 0
    right: bool = False


@dataclass(frozen=True, slots=True)
class Columns(Generic[Item]):
    """Define the columns of a list. The last is cut to the remaining width."""

    columns: Sequence[Column[Item]]
    last: Column[Item]

    def lines(self, items: Sequence[Item], room: int) -> Iterator[str]:
        """Yield the titles and the items, each line at most `room` wide, or nothing for no items.

        Columns with only empty cells are left out. No cell can contain a line break.
        """
        if not items:
            return
        cells = {
            column.title: [column.title, *(escape(" ".join(column.text(item).split())) for item in items)]
            for column in (*self.columns, self.last)
        }
        widths = {title: max(map(width, texts)) for title, texts in cells.items() if any(texts[1:])}
        columns = [column for column in self.columns if column.title in widths]

        def used() -> int:
            return sum(widths[column.title] + len(GAP) for column in columns)

        while room - used() < MIN_LAST_COLUMN and (spare := max(columns, key=lambda column: column.spare)).spare:
            columns.remove(spare)
        left = room - used()
        is_below = left < MIN_LAST_COLUMN
        for number, rest in enumerate(cells[self.last.title]):
            texts = []
            for column in columns:
                text = cells[column.title][number]
                blanks = " " * (widths[column.title] - width(text))
                texts.append(blanks + text if column.right else text + blanks)
            line = GAP.join(texts)
            if is_below:
                yield cut_to(line.rstrip(), room)
                if number and rest:
                    yield GAP + cut_to(rest, room - len(GAP))
            else:
                yield f"{line}{GAP if columns else ''}{cut_to(rest, left)}".rstrip()


def cut_to(text: str, columns: int) -> str:
    """Cut an escaped line to this many columns, with dots for the missing part."""
    if width(text) <= columns:
        return text
    text = text[:columns]
    while text and width(text) > columns - len(_DOTS):
        text = text[:-1]
    return f"{text.rstrip()}{_DOTS}"[: max(columns, 0)]
