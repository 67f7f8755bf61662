"""Undoes what the steps of a run have changed in its workspace, and tells its agent."""

from __future__ import annotations

from autoagent.core.errors import StateError
from autoagent.core.events import SystemNotice, Undone
from autoagent.runs.event_log import EventLog
from autoagent.runs.workspace_history import WorkspaceHistory
from autoagent.session.restoring import RunWriter, files, outcome_line, restore
from autoagent.workspace.snapshots import Snapshots


def undo(
    log: EventLog | RunWriter,
    snapshots: Snapshots,
    history: WorkspaceHistory,
    *,
    to: int | None = None,
    redo: bool = False,
    force: bool = False,
) -> str:
    """Take the workspace back by one change, to the end of a step, or an undo back. Return in a line what was done.

    Raises StateError where there is nothing to go back to, and as `restore`; then nothing is recorded or touched.
    """
    back = _target(history, log.run, to, redo)
    description = _description(back, history)
    restored = restore(log, snapshots, history, back, force=force)
    if restored.changed:
        log.append(SystemNotice(step=history.step, text=_for_the_agent(back, files(restored.changed))))
    return f"{description} {outcome_line(restored)}"


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
