"""Restores a workspace to an earlier or later state: shared by undo, resume --from, fork and bisect."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from autoagent.core.errors import StateError
from autoagent.core.events import (
    Ended,
    Event,
    Rejected,
    Returned,
    Rewound,
    RoundBegan,
    RoundEnded,
    RunStarted,
    Snapshot,
    Started,
    SystemNotice,
    Thought,
    Undone,
)
from autoagent.log.event_log import EventLog
from autoagent.log.reader import read
from autoagent.log.workspace_history import WorkspaceHistory
from autoagent.session.permissions import hold_workspace
from autoagent.text.sanitize import escape, shorten
from autoagent.workspace.gate import Workspace
from autoagent.workspace.snapshots import Restored, Snapshots

NAMED = 10  # files named in a message
# What a WorkspaceHistory goes by.
_KINDS = (Thought, Rejected, Started, Returned, Snapshot, Undone, Rewound, RoundBegan, RoundEnded, Ended)


@dataclass(frozen=True, slots=True)
class RunWriter:
    """Writes events of a run that goes on, by way of its own folds."""

    run: str
    append: Callable[[Event], Event]


def workspace_of(began: RunStarted, folder: Path | None = None) -> Workspace:
    """Return the workspace of a run, or another folder in its place, with its protected paths. Raises SettingsError."""
    if folder is None:
        hold_workspace(Path(began.workspace), os.environ, Path.cwd())
    return Workspace(folder or Path(began.workspace), [Path(path) for path in began.settings.get("protected", ())])


def open_snapshots(state_dir: Path, workspace: Workspace, tell: Callable[[str], None] | None = None) -> Snapshots:
    """Open the snapshots of a workspace, in the state folder."""
    return Snapshots(state_dir / "snapshots", workspace, tell)


def history_of(events: Iterable[Event]) -> WorkspaceHistory:
    """Return the history of the workspace through these events."""
    history = WorkspaceHistory()
    for event in events:
        history.add(event)
    return history


def history_of_run(state_dir: Path, run: str) -> WorkspaceHistory:
    """Return the history of the workspace through a run, without reading all of its log."""
    return history_of(read(state_dir, run, _KINDS))


def history_until(state_dir: Path, run: str, step: int) -> WorkspaceHistory:
    """Return that history up to the end of a step."""
    events = read(state_dir, run, _KINDS)
    return history_of(itertools.takewhile(lambda event: event.agent or event.step <= step, events))


def cut_off(state_dir: Path, run: str) -> bool:
    """Return whether a restoration was begun and never recorded as done."""
    if not any(True for _ in read(state_dir, run, (Undone, Rewound))):
        return False
    return bool(history_of(read(state_dir, run, (Snapshot, Undone, Rewound))).unfinished)


def restore(
    log: EventLog | RunWriter, snapshots: Snapshots, history: WorkspaceHistory, back: Undone | Rewound, *, force: bool
) -> Restored:
    """Save the present state, record where the workspace is taken `back` to, and restore that.

    Raises:
        StateError: files were changed since the newest snapshot of the run, unless `force`; or the snapshot is not
            whole. Nothing is recorded or touched then.
    """
    now = snapshots.take()
    if not force and (changed := snapshots.changed(history.tree, now)):
        raise StateError(
            f"Changed since the last snapshot of the run {log.run}, by hand or by a command that was cut off: "
            f"{files(changed)}. Nothing is touched; --force takes them back as well, and keeps them in a snapshot."
        )
    snapshots.check(back.tree)
    if now != history.tree:
        _record(log, history, Snapshot(tree=now))
    _record(log, history, back)
    return finish(log, snapshots, history)


def finish(log: EventLog | RunWriter, snapshots: Snapshots, history: WorkspaceHistory) -> Restored:
    """Complete a restoration that the log has recorded. Raises StateError."""
    restored = snapshots.restore(history.unfinished)
    _record(log, history, Snapshot(tree=snapshots.take()))
    return restored


def files(paths: Iterable[str]) -> str:
    """List the first few of them for a message: `a.txt, b.txt`."""
    names = [escape(shorten(path, 120)).replace("\n", " ") for path in paths]
    more = f" and {len(names) - NAMED:,} more" if len(names) > NAMED else ""
    return f"{', '.join(names[:NAMED])}{more}"


def outcome_line(restored: Restored) -> str:
    """Describe the outcome of a restoration in a line."""
    text = f"Taken back: {files(restored.changed)}." if restored.changed else "No file had to be changed."
    return f"{text} Left as they are: {files(restored.left)}." if restored.left else text


def _record(log: EventLog | RunWriter, history: WorkspaceHistory, event: Event) -> None:
    history.add(log.append(replace(event, step=history.step)))


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
