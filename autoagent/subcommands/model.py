"""`autoagent model`: the embedded model on this machine."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from autoagent.models import weights
from autoagent.subcommands.output import echo, echo_json, echo_over


@click.group()
def model() -> None:
    """The embedded model: what is here, fetch it, remove it."""


@model.command("list")
@click.option("--json", "as_json", is_flag=True, help="One JSON list on stdout.")
def list_models(as_json: bool) -> None:
    """Show the models that need no key."""
    known = weights.EMBEDDED
    row = {
        "name": known.name,
        "size": known.size,
        "license": known.license,
        "installed": weights.installed(),
        "path": str(weights.path()),
        "sha256": known.sha256,
        "url": known.url,
    }
    if as_json:
        echo_json([row])
        return
    state = f"installed in {row['path']}" if row["installed"] else "not installed (autoagent model fetch)"
    echo(f"{known.name}  {known.size / 1e9:.1f} GB  {known.license}  {state}")


@model.command()
def fetch() -> None:
    """Fetch the embedded model into the user's cache, once. A fetch that was broken off goes on where it stopped."""
    if weights.installed():
        echo(f"Already there: {weights.path()}")
        return
    echo(f"Fetched and verified: {fetch_once()}")


@model.command()
def remove() -> None:
    """Delete the embedded model, and what a broken-off fetch left behind."""
    removed = weights.remove()
    echo(f"Removed {weights.EMBEDDED.name}." if removed else "There is nothing to remove.")


def fetch_once() -> Path:
    """The file of the embedded model; fetched with a progress bar where it is not there yet. Raises SetupError."""
    if weights.installed():
        return weights.path()
    from autoagent.models import download  # urllib and zipfile, which nobody needs who has the file

    echo(f"Fetching {weights.EMBEDDED.name} ({weights.EMBEDDED.size / 1e9:.1f} GB), once.", err=True)
    bar = Bar()
    try:
        return download.fetch(bar.show, notice=bar.note)
    finally:
        bar.close()


class Bar:
    """A fetch's progress on stderr: one line that is redrawn; without a terminal, a line for every tenth."""

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
        """A line of words, on a line of its own."""
        self.close()
        echo(line, err=True)
        self._shown = -1

    def close(self) -> None:
        if self._open:
            echo(err=True)
            self._open = False
