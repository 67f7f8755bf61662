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
from autoagent.session.earlier_runs import named_run, newest_state, report_lost_events
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
@click.argument("run", required=False, shell_complete=run_ids_here)
@click.option(
    "--to", type=click.IntRange(min=0), metavar="STEP", help="Go back to the state after STEP; 0: before the first."
)
@click.option("--redo", is_flag=True, help="Revert the last undo.")
@click.option("--force", is_flag=True, help="Undo even if you have changed files since; a snapshot keeps them.")
@click.pass_context
def undo(ctx: click.Context, run: str | None, to: int | None, redo: bool, force: bool) -> None:
    """Restore the workspace of RUN to its state before the last step that changed something.

    RUN is the newest by default. Repeat it to go back one more change. The present state is saved first, so that --redo
    can restore it. The agent is told when the run is resumed. Nothing outside the workspace is undone.
    """
    if to is not None and redo:
        raise click.UsageError("--to and --redo cannot be used together.")
    session = Session.open(ctx.obj)
    settings = session.settings
    run = named_run(settings.state_dir, run)
    session.check_made_here(run)
    with ExitStack() as stack:
        log = stack.enter_context(EventLog.open(settings.state_dir, run, mask=build.mask_of(settings)))
        for event in report_lost_events(log, _warn):
            log.append(event)
        history = history_of_run(settings.state_dir, run)
        workspace = workspace_of(newest_state(settings.state_dir, run)[0])
        stack.enter_context(sole_writer(workspace.root, _warn))
        snapshots = open_snapshots(settings.state_dir, workspace, _warn)
        if history.unfinished:
            outcome = describe_outcome(finish(log, snapshots, history))
            echo(f"Completed an interrupted restoration. {outcome}")
            return
        outcome = undo_in(log, snapshots, history, to=to, redo=redo, force=force)
    echo(outcome)
    if not redo:
        echo(f"`autoagent undo {run} --redo` reverts this.")


_warn = partial(echo, err=True)
MAX_OUTPUT_CHARACTERS = 600  # from the end of a check's output


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
    run_start, _ = newest_state(settings.state_dir, run)
    turns = history_of_run(settings.state_dir, run).turns
    if not turns:
        raise StateError(f"According to its snapshots, no step of the run {run} changed anything.")
    exits: dict[int, ProcessExit] = {}

    def fails(number: int) -> bool:
        exit = exits[number] = _run_check(check, turns[number].after, settings, run_start)
        reason = (exit.limit and f"stopped at {exit.limit}") or exit.signal or f"exit status {exit.status}"
        outcome = "passes" if exit.status == 0 else f"fails ({shorten(reason, 80)})"
        echo(f"After step {turns[number].step} ({turns[number].command}): {outcome}.")
        return exit.status != 0

    first_failing = search(len(turns), fails)
    if first_failing == 0 and _run_check(check, turns[0].before, settings, run_start).status != 0:
        raise StateError(f"The check already fails before step {turns[0].step}, the first that changed anything.")
    steps = f"{counted(len(exits), 'check')} of {counted(len(turns), 'step')} that changed something"
    if first_failing is None:
        echo(f"The check does not fail after any step ({steps}).")
        ctx.exit(1)
    first = turns[first_failing]
    echo(f"First fails after step {first.step} ({first.command}); {steps}.")
    output = exits[first_failing].output.decode("utf-8", "replace").strip()  # the step found has been checked
    if output:
        echo(output if len(output) <= MAX_OUTPUT_CHARACTERS else f"…{output[-MAX_OUTPUT_CHARACTERS:]}")


def search(count: int, fails: Callable[[int], bool]) -> int | None:
    """Return the first of `count` (1 or more) that fails, or None, given that all after it fail too.

    This takes ceil(log2 count) checks. The last is assumed to fail, and checked only if none of the others fails.
    """
    last = count - 1
    first = bisect_left(range(last), True, key=fails)
    return first if first < last or fails(last) else None


def _run_check(check: str, tree: str, settings: Settings, run_start: RunStarted) -> ProcessExit:
    """Run the check with the files of a tree, in a new folder that is removed afterwards. Return how it ended."""
    with tempfile.TemporaryDirectory(prefix="autoagent-bisect-") as folder:
        workspace = workspace_of(run_start, Path(folder))
        restored = open_snapshots(settings.state_dir, workspace).restore(tree)
        if restored.skipped:
            echo(f"Without {', '.join(restored.skipped)}.", err=True)
        with closing(open_sandbox(settings, workspace)) as sandbox:
            return sandbox.run(["/bin/sh", "-c", check])
