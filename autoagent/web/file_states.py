"""Read the files of a run's workspace at each step from its snapshots: made, changed or deleted, and their text.

Not covered: files that no snapshot holds, and runs without snapshots.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from autoagent.core.errors import StateError
from autoagent.text.sanitize import escape
from autoagent.workspace.object_store import Node, ObjectStore, Tree, changed_names

MAX_TREES = 2_000  # folders cached, as successive snapshots share most of theirs
_FOLDER, _FILE = 0o040000, 0o100000  # git's modes


class FileStates:
    """Read the snapshots of a state folder. This needs no workspace and writes nothing."""

    def __init__(self, state_dir: Path) -> None:
        self._objects = ObjectStore(state_dir / "snapshots")
        self._trees: dict[str, Tree] = {"": {}}
        self._parts: dict[str, Tree] = {}

    def changes(self, first: str, steps: Iterable[Mapping[str, Any]]) -> Iterator[tuple[int, list[list[str]]]]:
        """Yield the index of each step that changed files, with `[path, state, id]` for each file.

        The state is made, changed or deleted, and the id that of the content, or ''. `first` is the tree before the
        steps. Stops at a missing or damaged snapshot.
        """
        tree = first
        for place, step in enumerate(steps):
            new_tree = step.get("tree", tree)
            if new_tree != tree:
                files = []
                try:
                    for path, old, new in self._differences(tree, new_tree):
                        state = "deleted" if new is None else "made" if old is None else "changed"
                        files.append([escape(path), state, new.id if new and new.mode & 0o170000 == _FILE else ""])
                except StateError:
                    return
                tree = new_tree
                if files:
                    yield place, files

    def text(self, id: str, max_characters: int) -> str | None:
        """Return the beginning of a file's content, escaped, or None if it is missing or not text."""
        try:
            data = self._objects.read("blob", id)
        except StateError:
            return None
        if b"\0" in data[:8_000]:
            return None
        text = data[: 4 * max_characters].decode("utf-8", "replace")
        more = len(data) - len(text[:max_characters].encode())
        return escape(text[:max_characters]) + (f"\n… {more:,} more bytes are in the snapshot." if more > 0 else "")

    def _differences(self, before: str, after: str, where: str = "") -> Iterator[tuple[str, Node | None, Node | None]]:
        old_tree, new_tree = self._tree(before), self._tree(after)
        for name in sorted(changed_names(old_tree, new_tree)):
            old, new = old_tree.get(name), new_tree.get(name)
            folders = [node.id if node and node.mode & 0o170000 == _FOLDER else "" for node in (old, new)]
            if any(folders):
                yield from self._differences(folders[0], folders[1], f"{where}{name}/")
            files = [node if node and node.mode & 0o170000 != _FOLDER else None for node in (old, new)]
            if files[0] != files[1]:
                yield f"{where}{name}", files[0], files[1]

    def _tree(self, id: str) -> Tree:
        if id not in self._trees:
            if len(self._trees) > MAX_TREES:
                self._trees, self._parts = {"": {}}, {}
            self._trees[id] = self._objects.read_tree(id, self._parts)
        return self._trees[id]
