"""Define `autoagent undo` and `bisect`: restore the workspace, and find the first step after which a check fails."""

from __future__ import annotations

import tempfile
from bisect import bisect_left
from collections.abc import Callable
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path

import click

from autoagent.core.errors import StateError
from autoagent.core.events import RunStarted
from autoagent.core.services import ProcessExit
from autoagent.log.event_log import EventLog
from autoagent.log.reader import find_run
from autoagent.session import build
from autoagent.session.earlier_runs import last_start, report_lost_events
from autoagent.session.restoring import describe_outcome, finish, history_of_run, open_snapshots, workspace_of
from autoagent.session.restoring import undo as undo_in
from autoagent.session.services import open_sandbox
from autoagent.session.session import Session
from autoagent.settings import Settings
from autoagent.subcommands.flags import run_ids_here
from autoagent.terminal.output import echo
from autoagent.text.figures import counted
from autoagent.text.sanitize import shorten
from autoagent.workspace.lock import sole_writer


@click.command("undo")
@click.argument("run", shell_complete=run_ids_here)
@click.option("--to", type=click.IntRange(min=0), metavar="STEP", help="To the state after STEP; 0: before the first.")
@click.option("--redo", is_flag=True, help="Revert the last undo.")
@click.option("--force", is_flag=True, help="Even if you have changed files since; a snapshot keeps them.")
@click.pass_context
def undo(ctx: click.Context, run: str, to: int | None, redo: bool, force: bool) -> None:
    """Restore the workspace of RUN to its state before the last step that changed something.

    Repeat it to go back one more change. The present state is saved first, so that --redo can restore it. The agent is
    told when the run is resumed. Nothing outside the workspace is undone.
    """
    if to is not None and redo:
        raise click.UsageError("--to and --redo cannot be used together.")
    here = Session.open(ctx.obj)
    settings = here.settings
    run = find_run(settings.state_dir, run)
    here.check_made_here(run)
    with ExitStack() as held:
        log = held.enter_context(EventLog.open(settings.state_dir, run, mask=build.mask_of(settings)))
        for event in report_lost_events(log, _tell):
            log.append(event)
        history = history_of_run(settings.state_dir, run)
        workspace = workspace_of(last_start(settings.state_dir, run))
        held.enter_context(sole_writer(workspace.root, _tell))
        snapshots = open_snapshots(settings.state_dir, workspace, _tell)
        if history.unfinished:
            done = describe_outcome(finish(log, snapshots, history))
            echo(f"Completed an interrupted restoration. {done}")
            return
        done = undo_in(log, snapshots, history, to=to, redo=redo, force=force)
    echo(done)
    if not redo:
        echo(f"`autoagent undo {run} --redo` reverts this.")


_tell = partial(echo, err=True)
SHOWN = 600  # last characters of a check's output


@click.command("bisect")
@click.argument("run", shell_complete=run_ids_here)
@click.option("--check", required=True, metavar="CMD", help="A shell command that exits 0 if all is well.")
@click.pass_context
def bisect(ctx: click.Context, run: str, check: str) -> None:
    """Find the first step of RUN after which CMD fails.

    CMD is assumed to pass up to that step and to fail from then on, so each check halves the steps. It runs in the
    sandbox, in a temporary folder with the files of a step. The workspace is not touched. Exit 1 if no step makes it
    fail.
    """
    settings = Session.open(ctx.obj).settings
    run = find_run(settings.state_dir, run)
    began = last_start(settings.state_dir, run)
    turns = history_of_run(settings.state_dir, run).turns
    if not turns:
        raise StateError(f"By its snapshots, no step of the run {run} has changed anything.")
    ends: dict[int, ProcessExit] = {}

    def fails(number: int) -> bool:
        end = ends[number] = _run(check, turns[number].after, settings, began)
        echo(f"After step {turns[number].step} ({turns[number].command}): {_outcome(end)}.")
        return end.status != 0

    found = search(len(turns), fails)
    if found == 0 and _run(check, turns[0].before, settings, began).status != 0:
        raise StateError(f"The check already fails before step {turns[0].step}, the first that changed anything.")
    steps = f"{counted(len(ends), 'check')} of {counted(len(turns), 'step')} that changed something"
    if found is None:
        echo(f"The check does not fail after any step ({steps}).")
        ctx.exit(1)
    first = turns[found]
    echo(f"First fails after step {first.step} ({first.command}); {steps}.")
    printed = ends[found].output.decode("utf-8", "replace").strip()  # the step found has been checked
    if printed:
        echo(printed if len(printed) <= SHOWN else f"…{printed[-SHOWN:]}")


def search(count: int, fails: Callable[[int], bool]) -> int | None:
    """Return the first of `count` (1 or more) that fails, or None, given that all after it fail too.

    It takes ceil(log2 count) checks, assuming that the last fails. Only if none of them fails is the last checked as
    well.
    """
    last = count - 1
    first = bisect_left(range(last), True, key=fails)
    return first if first < last or fails(last) else None


def _run(check: str, tree: str, settings: Settings, began: RunStarted) -> ProcessExit:
    """Run the check with the files of a tree, in a new folder that is removed afterwards. Return how it ended."""
    with tempfile.TemporaryDirectory(prefix="autoagent-bisect-") as folder:
        workspace = workspace_of(began, Path(folder))
        restored = open_snapshots(settings.state_dir, workspace).restore(tree)
        if restored.left:
            echo(f"Without {', '.join(restored.left)}.", err=True)
        with closing(open_sandbox(settings, workspace)) as sandbox:
            return sandbox.run(["/bin/sh", "-c", check])


def _outcome(end: ProcessExit) -> str:
    if end.status == 0:
        return "passes"
    how = (end.limit and f"stopped at {end.limit}") or end.signal or f"exit status {end.status}"
    return f"fails ({shorten(how, 80)})"
