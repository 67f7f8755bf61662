"""`autoagent undo`: the workspace as it was before a run's last change, or after one of its steps."""

from __future__ import annotations

from contextlib import ExitStack

import click

from autoagent.log.event_log import EventLog
from autoagent.log.reader import find_run
from autoagent.session import build
from autoagent.session.earlier_runs import last_start, tell_lost
from autoagent.session.restoring import finish, history_of_run, open_snapshots, outcome_line, workspace_of
from autoagent.session.restoring import undo as undo_in
from autoagent.session.session import Session
from autoagent.subcommands.flags import run_ids_here
from autoagent.terminal.output import echo
from autoagent.workspace.lock import sole_writer


@click.command("undo")
@click.argument("run", shell_complete=run_ids_here)
@click.option("--to", type=click.IntRange(min=0), metavar="STEP", help="As it was after STEP; 0: before the first.")
@click.option("--redo", is_flag=True, help="Take the last undo back.")
@click.option("--force", is_flag=True, help="Even if files were changed by hand since; a snapshot keeps them.")
@click.pass_context
def undo(ctx: click.Context, run: str, to: int | None, redo: bool, force: bool) -> None:
    """Restore the workspace of RUN to its state before the last step that changed something.

    Repeated, it goes back one more change. The present state is saved first, so that --redo can restore it. The agent
    is told when the run is resumed. Nothing outside the workspace is undone.
    """
    if to is not None and redo:
        raise click.UsageError("--to and --redo cannot be used together.")
    settings = Session.open(ctx.obj).settings
    run = find_run(settings.state_dir, run)
    with ExitStack() as held:
        log = held.enter_context(EventLog.open(settings.state_dir, run, mask=build.mask_of(settings)))
        for event in tell_lost(log, _tell):
            log.append(event)
        history = history_of_run(settings.state_dir, run)
        workspace = workspace_of(last_start(settings.state_dir, run))
        held.enter_context(sole_writer(workspace.root, _tell))
        snapshots = open_snapshots(settings.state_dir, workspace, _tell)
        if history.unfinished:
            done = outcome_line(finish(log, snapshots, history))
            echo(f"An earlier restoration was cut off; now it is done. {done}")
            return
        done = undo_in(log, snapshots, history, to=to, redo=redo, force=force)
    echo(done)
    if not redo:
        echo(f"`autoagent undo {run} --redo` takes this back.")


def _tell(line: str) -> None:
    echo(line, err=True)
