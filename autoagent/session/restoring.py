"""Restore a workspace to an earlier or later state, for undo, resume --from, fork and bisect."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

from autoagent.core.errors import StateError
from autoagent.core.events import Event, Rewound, RunStarted, Snapshot, SystemNotice, Undone
from autoagent.core.frozen import dataclass
from autoagent.log.event_log import EventLog
from autoagent.log.reader import read
from autoagent.log.workspace_history import WorkspaceHistory
from autoagent.session.permissions import enforce_inside
from autoagent.text.sanitize import escape, shorten
from autoagent.workspace.gate import Workspace
from autoagent.workspace.snapshots import Restored, Snapshots

MAX_LISTED_FILES = 10  # in a message


@dataclass(frozen=True, slots=True)
class RunWriter:
    """Write events of a running run through its own folds."""

    run: str
    append: Callable[[Event], Event]


def workspace_of(start: RunStarted, folder: Path | None = None) -> Workspace:
    """Return the workspace of a run, or another folder in its place, with its protected paths. Raises SettingsError."""
    if folder is None:
        enforce_inside(Path(start.workspace), f"The workspace {start.workspace} of the run")
    return Workspace(folder or Path(start.workspace), [Path(path) for path in start.settings.get("protected", ())])


def open_snapshots(state_dir: Path, workspace: Workspace, notify: Callable[[str], None] | None = None) -> Snapshots:
    """Open the snapshots of a workspace, in the state folder."""
    return Snapshots(state_dir / "snapshots", workspace, notify)


def history_of(events: Iterable[Event]) -> WorkspaceHistory:
    """Return the history of the workspace in these events."""
    history = WorkspaceHistory()
    for event in events:
        history.add(event)
    return history


def history_of_run(state_dir: Path, run: str, until: int | None = None) -> WorkspaceHistory:
    """Return the history of the workspace in a run, up to the end of a step if given, reading only part of its log."""
    return history_of(read(state_dir, run, WorkspaceHistory.KINDS, until=until))


def has_unfinished_restoration(state_dir: Path, run: str) -> bool:
    """Return whether a restoration was begun and not recorded as complete."""
    if not any(read(state_dir, run, (Undone, Rewound))):  # known from an earlier scan of the log
        return False
    return bool(history_of(read(state_dir, run, (Snapshot, Undone, Rewound))).unfinished)


def restore(
    log: EventLog | RunWriter, snapshots: Snapshots, history: WorkspaceHistory, back: Undone | Rewound, *, force: bool
) -> str:
    """Save the present state, record the target `back`, and restore it but for changes by hand. Return the outcome.

    Raises StateError if files were changed since the newest snapshot of the run, or were changed both by hand and by
    the run (unless `force`), or if the snapshot is incomplete. Then nothing is recorded or touched.
    """
    tree = snapshots.take()
    if not force and (changed := snapshots.changed(history.tree, tree)):
        raise StateError(
            f"Changed since the last snapshot of the run {log.run}, by hand or by an interrupted command: "
            f"{files(changed)}. Nothing is touched; --force restores these too, and keeps them in a snapshot."
        )
    snapshots.check(back.tree)
    target, both = _with_changes_by_hand(snapshots, history, back)
    lost = [path for path in snapshots.changed(target, tree) if any(f"{path}/".startswith(f"{at}/") for at in both)]
    if lost and not force:
        raise StateError(
            f"Changed by hand since step {back.to}, and by the run too: {files(lost)}. Nothing is touched; --force "
            "restores these too, and keeps them in a snapshot."
        )
    changes_by_hand = snapshots.changed(back.tree, target)
    if tree != history.tree:
        _record(log, history, Snapshot(tree=tree))
    _record(log, history, replace(back, tree=target))
    outcome = describe_outcome(finish(log, snapshots, history))
    return f"{outcome} Kept as you changed them: {files(changes_by_hand)}." if changes_by_hand else outcome


def _with_changes_by_hand(
    snapshots: Snapshots, history: WorkspaceHistory, back: Undone | Rewound
) -> tuple[str, set[str]]:
    """Return the tree of `back` with later changes by hand, and the paths that the run has changed too.

    Those paths are as in `back`. Reverting an undo restores exactly the tree before it.
    """
    tree, both = back.tree, set[str]()
    if isinstance(back, Undone) and back.redo:
        return tree, both
    for step, before, after in history.by_hand:
        if step > back.to:
            tree, conflicts = snapshots.merge(before, after, tree)
            both.update(conflicts)
    return tree, both


def finish(log: EventLog | RunWriter, snapshots: Snapshots, history: WorkspaceHistory) -> Restored:
    """Complete a restoration that the log has recorded, and have the agent told of an undo. Raises StateError."""
    back = history.last_restoration
    restored = snapshots.restore(history.unfinished)
    _record(log, history, Snapshot(tree=snapshots.take()))
    if isinstance(back, Undone) and restored.changed:
        text = f"The user has undone what was changed after step {back.to}. As they were then are now: "
        if back.redo:
            text = "The user has taken the undo back. As they were before it are now: "
        log.append(SystemNotice(step=history.step, text=f"{text}{files(restored.changed)}."))
    return restored


def files(paths: Iterable[str]) -> str:
    """List the first few files for a message: `a.txt, b.txt`."""
    names = [escape(shorten(path, 120)).replace("\n", " ") for path in paths]
    suffix = f" and {len(names) - MAX_LISTED_FILES:,} more" if len(names) > MAX_LISTED_FILES else ""
    return f"{', '.join(names[:MAX_LISTED_FILES])}{suffix}"


def describe_outcome(restored: Restored) -> str:
    """Describe the outcome of a restoration in one line."""
    text = f"Restored: {files(restored.changed)}." if restored.changed else "No file had to change."
    return f"{text} Not restored: {files(restored.skipped)}." if restored.skipped else text


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
    """Undo one change, all changes after a step, or an undo. Return the outcome in one line.

    Raises StateError if there is nothing to undo, and like `restore`. Then nothing is recorded or touched.
    """
    back = _target(history, log.run, to, redo)
    if back.redo:
        description = "The last undo is reverted."
    elif undone := [turn for turn in history.applied if turn.step > back.to]:
        description = f"Undone: {', '.join(f'step {turn.step} ({turn.command})' for turn in undone)}."
    else:
        description = f"The workspace is as it was after step {back.to}."
    return f"{description} {restore(log, snapshots, history, back, force=force)}"


def _target(history: WorkspaceHistory, run: str, to: int | None, redo: bool) -> Undone:
    if not history.first:
        raise StateError(f"Nothing in the run {run} can be undone: it has no snapshots.")
    if redo:
        if history.undone is None:
            raise StateError(f"The run {run} has no undo to revert.")
        tree, level = history.undone
        return Undone(to=level, tree=tree, redo=True)
    if to is not None:
        if to > history.step:
            raise StateError(f"The run {run} has no step {to}; its last is {history.step}.")
        return Undone(to=to, tree=history.after(to))
    if not history.applied:
        raise StateError(f"The run {run} has no change left to undo.")
    turn = history.applied[-1]
    return Undone(to=turn.step - 1, tree=turn.before)
