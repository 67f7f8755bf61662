"""`autoagent undo`: the workspace as it was before a run's last change, or after one of its steps."""

from __future__ import annotations

from contextlib import ExitStack

import click

from autoagent.app import run_factory
from autoagent.app.current import trusted_here
from autoagent.app.earlier_runs import last_start
from autoagent.app.restoring import files, finish, history_of_run, open_snapshots, outcome_line, restore, workspace_of
from autoagent.core.errors import StateError
from autoagent.core.events import SystemNotice, Undone
from autoagent.runs.event_log import EventLog, find_run
from autoagent.runs.workspace_history import WorkspaceHistory
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
    """Take the workspace of RUN back to what it was before its last step that changed something.

    Once more goes one more change back. What is there now is kept first, so that --redo can bring it back. The agent
    is told when the run is resumed. Nothing outside the workspace is undone.
    """
    if to is not None and redo:
        raise click.UsageError("--to and --redo cannot be used together.")
    settings = trusted_here(ctx.obj).settings
    run = find_run(settings.state_dir, run)
    with ExitStack() as held:
        log = held.enter_context(EventLog.open(settings.state_dir, run, mask=run_factory.mask_of(settings)))
        history = history_of_run(settings.state_dir, run)
        workspace = workspace_of(last_start(settings.state_dir, run))
        held.enter_context(sole_writer(workspace.root, _tell))
        snapshots = open_snapshots(settings.state_dir, workspace, _tell)
        if history.unfinished:
            done = outcome_line(finish(log, snapshots, history))
            echo(f"An earlier restoration was cut off; now it is done. {done}")
            return
        back = _target(history, run, to, redo)
        description = _description(back, history)
        restored = restore(log, snapshots, history, back, force=force)
        if restored.changed:
            log.append(SystemNotice(step=history.step, text=_for_the_agent(back, files(restored.changed))))
    echo(f"{description} {outcome_line(restored)}")
    if not redo:
        echo(f"`autoagent undo {run} --redo` takes this back.")


def _tell(line: str) -> None:
    echo(line, err=True)


def _target(history: WorkspaceHistory, run: str, to: int | None, redo: bool) -> Undone:
    """Return where to take the workspace. Raises StateError if there is nothing to go back to."""
    if not history.first:
        raise StateError(f"Nothing in the run {run} can be undone: it has no snapshots.")
    if redo:
        if history.undone is None:
            raise StateError(f"There is no undo in the run {run} that could be taken back.")
        tree, level = history.undone
        return Undone(to=level, tree=tree, redo=True)
    if to is not None:
        if to > history.step:
            raise StateError(f"The run {run} has no step {to}; its last one is {history.step}.")
        return Undone(to=to, tree=history.after(to))
    if not history.in_effect:
        raise StateError(f"No change of the run {run} is left to undo.")
    turn = history.in_effect[-1]
    return Undone(to=turn.step - 1, tree=turn.before)


def _description(back: Undone, history: WorkspaceHistory) -> str:
    if back.redo:
        return "The last undo is taken back."
    undone = [turn for turn in history.in_effect if turn.step > back.to]
    if not undone:
        return f"The workspace is as it was after step {back.to}."
    return f"Undone: {', '.join(f'step {turn.step} ({turn.command})' for turn in undone)}."


def _for_the_agent(back: Undone, changed: str) -> str:
    if back.redo:
        return f"The user has taken the undo back. As they were before it are now: {changed}."
    return f"The user has undone what was changed after step {back.to}. As they were then are now: {changed}."
