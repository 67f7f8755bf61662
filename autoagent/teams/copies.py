"""Give each role of a round its own copy of the workspace, and merge the copies once the round ends.

A role that works in parallel with others sees the workspace as it was when the round began, plus its own changes. The
copies are merged in hiring order, as git merges files. If two roles, or a role and the user, have changed the same
file, the first change wins. Until then, copies are kept next to the log, so that a killed run can continue in them.

Not covered: roles share a workspace of more than MAX_BYTES or MAX_FILES. Files that no snapshot keeps (see
workspace/snapshots) stay in the copy, and the roles are told.
"""

from __future__ import annotations

import difflib
import os
import shutil
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from autoagent.core.errors import CommandError, StateError
from autoagent.session.restoring import open_snapshots
from autoagent.workspace.gate import Workspace

if TYPE_CHECKING:
    from autoagent.session.drive import OpenedRun

MAX_BYTES = 1 << 30  # in the workspace
MAX_FILES = 50_000
MAX_DIFF_CHARACTERS = 4_000  # shown of a rejected change


@dataclass(frozen=True, slots=True)
class MergeResult:
    """The result of a merge: the paths changed, those in conflict (left as others changed them), and those refused."""

    root: Path
    changed: Sequence[str]
    conflicts: Sequence[str]
    refusals: Sequence[tuple[str, str]]  # path and reason
    diff_of: Callable[[str], str]


class Copies:
    """Manage the copies of one run's workspace."""

    def __init__(self, run: OpenedRun) -> None:
        self.workspace = run.tools.context.workspace
        self._folder = run.log.path.parent / "copies"
        self._snapshots = partial(open_snapshots, run.plan.settings.state_dir)
        self._warn = run.plan.console.warn
        self._lock = threading.Lock()  # roles request copies from their own threads
        self._was_warned = False

    def open(self, name: str) -> Workspace | None:
        """Return the copy of this name, making it if necessary, or None if the workspace is too large to copy.

        Raises CommandError if the copy cannot be made.
        """
        folder = self._folder / name
        with self._lock:
            if self.has(name):
                return self.workspace.for_copy(folder / "files")
            if self._is_too_large():
                return None
            try:
                shutil.rmtree(folder, ignore_errors=True)
                folder.mkdir(mode=0o700, parents=True)
                root = self.workspace.root
                shutil.copytree(root, folder / "files", symlinks=True, ignore=self._ignored_names)
                copy = self.workspace.for_copy(folder / "files")
                (folder / "new").write_text(self._snapshots(copy).take())
                (folder / "new").rename(folder / "base")
            except (OSError, shutil.Error, StateError) as error:
                raise CommandError(f"the workspace cannot be copied for it ({error})") from error
            return copy

    def has(self, name: str) -> bool:
        return (self._folder / name / "base").is_file()

    def merge(self, name: str) -> MergeResult:
        """Merge the copy of this name into the workspace. A repeated merge changes nothing. Raises StateError."""
        folder = self._folder / name
        copy, base = self.workspace.for_copy(folder / "files"), self.base(name)
        snapshots = self._snapshots(self.workspace)
        copy.delete_drafts()  # remove unfinished writes of a killed process
        changed_tree = self._snapshots(copy).take()
        merged, conflicts = snapshots.merge(base, changed_tree, snapshots.take())
        refusals = snapshots.restore(merged).reasons

        def diff_of(path: str) -> str:
            texts = [(snapshots.read(tree, path) or b"") for tree in (base, changed_tree)]
            if any(b"\0" in text for text in texts):
                return ""
            old, new = (text.decode("utf-8", "replace").splitlines() for text in texts)
            return "\n".join(difflib.unified_diff(old, new, path, path, n=1, lineterm=""))[:MAX_DIFF_CHARACTERS]

        return MergeResult(copy.root, snapshots.changed(base, changed_tree), conflicts, refusals, diff_of)

    def base(self, name: str) -> str:
        """Return the tree from which a copy was made."""
        return (self._folder / name / "base").read_text()

    def tree(self) -> str:
        """Take a snapshot of the original workspace, and return its tree."""
        return self._snapshots(self.workspace).take()

    def clear(self, keep: str = " ") -> None:
        """Delete all copies except those whose name begins with `keep`."""
        for copy in self._folder.glob("*") if self._folder.is_dir() else ():
            if not copy.name.startswith(keep):
                shutil.rmtree(copy, ignore_errors=True)

    def _ignored_names(self, folder: str, names: list[str]) -> list[str]:
        relative = os.path.relpath(folder, self.workspace.root)
        return [
            name
            for name in names
            if self.workspace.is_protected(name if relative == "." else f"{relative}/{name}")
            or not ((path := Path(folder, name)).is_symlink() or path.is_file() or path.is_dir())
            or not (path.is_symlink() or os.access(path, os.R_OK))
        ]

    def _is_too_large(self) -> bool:
        size = count = 0
        for entry in self.workspace.walk():
            size, count = size + entry.size, count + 1
            if size > MAX_BYTES or count > MAX_FILES:
                if not self._was_warned:
                    self._warn("The workspace is too large to copy for each role, so the roles of a round share it.")
                self._was_warned = True
                return True
        return False


def paths_conflict(first: str, second: str) -> bool:
    """Return whether two paths are the same, or one is inside the other."""
    return first == second or first.startswith(f"{second}/") or second.startswith(f"{first}/")
