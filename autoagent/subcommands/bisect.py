"""`autoagent bisect`: the first step after which a check fails in the workspace as it was then."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import click

from autoagent.core.errors import StateError
from autoagent.core.events import RunStarted
from autoagent.core.services import ProcessExit
from autoagent.log.reader import find_run
from autoagent.session.earlier_runs import last_start
from autoagent.session.restoring import history_of_run, open_snapshots, workspace_of
from autoagent.session.services import open_sandbox
from autoagent.session.session import Session
from autoagent.settings import Settings
from autoagent.subcommands.flags import run_ids_here
from autoagent.terminal.output import echo
from autoagent.terminal.rendering import counted
from autoagent.text.sanitize import escape, shorten

SHOWN = 600  # characters of what a check printed, its end


@dataclass(frozen=True, slots=True)
class FirstFailure:
    """The index of the first failure in a row, None if there is none, and the number of checks made."""

    first: int | None
    checks: int


@click.command("bisect")
@click.argument("run", shell_complete=run_ids_here)
@click.option("--check", required=True, metavar="CMD", help="A shell command that exits 0 if all is well.")
@click.pass_context
def bisect(ctx: click.Context, run: str, check: str) -> None:
    """Find the first step of RUN after which CMD fails in the workspace as it was then.

    It is taken that CMD passed before and fails ever since, so that half of the steps fall away with each check. Each
    runs under the sandbox, in a folder of its own with the files of that step; the workspace is not touched. Exit 1
    where no step makes it fail.
    """
    settings = Session.open(ctx.obj).settings
    run = find_run(settings.state_dir, run)
    began = last_start(settings.state_dir, run)
    turns = history_of_run(settings.state_dir, run).turns
    if not turns:
        raise StateError(f"No step of the run {run} has changed anything, as far as its snapshots say.")
    ends: dict[int, ProcessExit] = {}

    def fails(number: int) -> bool:
        end = ends[number] = _run(check, turns[number].after, settings, began)
        echo(f"After step {turns[number].step} ({turns[number].command}): {_outcome(end)}.")
        return end.status != 0

    found = search(len(turns), fails)
    if found.first == 0 and _run(check, turns[0].before, settings, began).status != 0:
        raise StateError(f"The check fails already before step {turns[0].step}, the first that changed anything.")
    steps = f"{counted(found.checks, 'check')} of {counted(len(turns), 'step')} that changed something"
    if found.first is None:
        echo(f"The check does not fail after any step ({steps}).")
        ctx.exit(1)
    first = turns[found.first]
    echo(f"First fails after step {first.step} ({first.command}); {steps}.")
    if printed := _printed(ends[found.first]):  # what is found has been checked
        echo(printed)


def search(count: int, fails: Callable[[int], bool]) -> FirstFailure:
    """Return the first of `count` (1 or more) that fails, given that all after the first failing one fail too.

    It takes ceil(log2 count) checks that the last one fails; only where none of them failed is that checked as well.
    """
    low, high, checks, seen = 0, count - 1, 0, False
    while low < high:
        middle = (low + high) // 2
        checks += 1
        if fails(middle):
            high, seen = middle, True
        else:
            low = middle + 1
    if not seen:
        checks += 1
        seen = fails(low)
    return FirstFailure(low if seen else None, checks)


def _run(check: str, tree: str, settings: Settings, began: RunStarted) -> ProcessExit:
    """Run the check with the files of a tree, in a new folder that is removed afterwards. Return how it ended.

    Raises StateError, SetupError, CommandError.
    """
    with tempfile.TemporaryDirectory(prefix="autoagent-bisect-") as folder:
        workspace = workspace_of(began, Path(folder))
        restored = open_snapshots(settings.state_dir, workspace).restore(tree)
        if restored.left:
            echo(f"Without {', '.join(map(escape, restored.left))}.", err=True)
        with closing(open_sandbox(settings, workspace)) as sandbox:
            return sandbox.run(["/bin/sh", "-c", check])


def _printed(end: ProcessExit) -> str:
    """Return the end of what a check printed."""
    text = end.output.decode("utf-8", "replace").strip()
    return escape(text if len(text) <= SHOWN else f"…{text[-SHOWN:]}")


def _outcome(end: ProcessExit) -> str:
    if end.status == 0:
        return "passes"
    how = (end.limit and f"stopped at {end.limit}") or end.signal or f"exit status {end.status}"
    return f"fails ({shorten(how, 80)})"
