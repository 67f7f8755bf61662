"""The output of subcommands. All of it passes here, so that nothing in a file, a log or a page steers the terminal."""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from autoagent.terminal.columns import Columns
from autoagent.text.sanitize import escape, escape_json

Item = TypeVar("Item")


def echo(text: str = "", *, err: bool = False) -> None:
    """Print lines, whatever a terminal would obey, reorder or hide in them as escapes. `err`: on standard error."""
    click.echo(escape(text), err=err)


def echo_over(text: str) -> None:
    """Write over the line that standard error is at: a bar that grows."""
    click.echo(f"\r{escape(text)}", err=True, nl=False)


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
    """Print a text whose colours are the program's own, in the user's pager if it is longer than the terminal."""
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
            echo_over(f"[{'#' * (percent // 5):<20}] {amount}")
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
