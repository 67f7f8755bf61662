"""Take and restore snapshots of the workspace.

A snapshot is a tree of git objects outside the workspace: files with permissions, symbolic links, and folders, even
empty ones. Workspace files are never run or interpreted. A repository inside is stored like any other files.

Not stored, and left alone by a restore: files over MAX_FILE_BYTES, everything beyond MAX_BYTES or MAX_ENTRIES, folders
deeper than MAX_DEPTH, unreadable entries of other users, devices, sockets and pipes. Owners, times, hard links,
extended attributes and setuid/setgid bits (they would lend the restoring user's rights) are not stored either.
A change within RACY_NS of a scan that keeps size and times is only seen by the next scan.

Around a command that runs no program, only the changes reported by the kernel are scanned (see changes).
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import field, replace
from functools import cache
from pathlib import Path, PurePosixPath
from typing import TypeGuard

from autoagent.core.durable_files import open_entry, replace_in
from autoagent.core.errors import StateError
from autoagent.core.frozen import dataclass
from autoagent.workspace.changes import ChangeTracker
from autoagent.workspace.gate import NOT_ENTERED, Workspace, shown
from autoagent.workspace.guarded import Stamp, path_in, restore_access, stamp_of
from autoagent.workspace.object_store import Node, ObjectStore, StoredTree, Tree, changed_names

MAX_FILE_BYTES = 32 << 20
MAX_BYTES = 512 << 20  # all files of one snapshot
MAX_ENTRIES = 20_000  # files, links and folders of one snapshot together
MANY_FILES = 3_000  # takes about a second to read
MAX_DEPTH = 100  # nested folders
RACY_NS = 50_000_000  # a file changed more recently may change again with the same time: the clock ticks every few ms

_FOLDER, _LINK, _PLACEHOLDER = 0o040000, 0o120000, 0o160000  # modes of git; the last is a submodule: a name, no content
_FOLDER_BITS = 0o3777  # with setgid and sticky, for shared folders; on a file, setgid lends rights
_TOO_MANY = f"the workspace has more than {MAX_ENTRIES:,} entries"
_CACHE_MARKS = ("CACHEDIR.TAG", "pyvenv.cfg")  # of a cache (bford.info/cachedir), of a virtual environment
_READ_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class Restored:
    """The result of a restoration: the changed or deleted files, and the skipped paths."""

    changed: tuple[str, ...]
    reasons: tuple[tuple[str, str], ...] = ()  # path and reason of each skipped path

    @property
    def skipped(self) -> tuple[str, ...]:
        """Return the skipped paths, each with the reason."""
        return tuple(f"{path} ({reason})" for path, reason in self.reasons)


@dataclass(slots=True)
class _Scan:
    """The result of a scan of the workspace: the trees of its folders, and the reason for each omission."""

    trees: dict[str, dict[str, Node]] = field(default_factory=dict)
    folders: dict[str, int] = field(default_factory=dict)  # with their modes, parents first
    stamps: dict[str, dict[str, tuple[Stamp, Node]]] = field(default_factory=dict)  # of files, by folder and name
    omitted: dict[str, str] = field(default_factory=dict)
    is_limited: bool = False  # whether a limit or an unreadable folder left something out
    entry_count: int = 0
    read_count: int = 0  # files read in this scan
    byte_count: int = 0


class Snapshots:
    """Take snapshots of one workspace in the folder `store`.

    Files with unchanged size, times and inode are not read again. `notify` reports each omission once, and long scans.
    """

    def __init__(self, store: Path, workspace: Workspace, notify: Callable[[str], None] | None = None) -> None:
        self._objects = ObjectStore(store)
        self._workspace = workspace
        self._notify = notify
        self._many_reported = False
        self._reported: set[str] = set()
        self._scan = _Scan(is_limited=True)
        self._changes = ChangeTracker()
        self._nodes: dict[str, Node] = {}  # of the folders, as last seen
        self._stored_trees: dict[str, StoredTree] = {}
        self._recent_trees: tuple[dict[str, Tree], dict[str, Tree]] = ({}, {})  # by id, of the last two scans

    def take(self, *, whole: bool = True) -> str:
        """Take a snapshot. Return the id of its tree, which depends on the content only. Raises StateError.

        Unless `whole`, scan only the changes reported by the kernel, if known (see changes).
        """
        try:
            with self._objects.batch():
                changed = None if whole or self._scan.is_limited else self._changes.take()
                scan = None if changed is None else self._scan_changes(changed)
                if scan is None:
                    scan, changed = self._scan_all(), None
                nodes = self._nodes_of(scan, changed)
        except BaseException:  # Ctrl-C too: the kernel's reports are consumed, and what is stored may not be written
            self._changes.forget()
            self._stored_trees.clear()
            raise
        self._recent_trees = ({nodes[where].id: tree for where, tree in scan.trees.items()}, self._recent_trees[0])
        self._scan, self._nodes = scan, nodes
        self._stored_trees = {where: tree for where, tree in self._stored_trees.items() if where in scan.trees}
        new_omissions = [path for path in scan.omitted if path not in self._reported]
        if new_omissions and self._notify is not None:
            self._reported.update(new_omissions)
            examples = "; ".join(f"{shown(path)}: {scan.omitted[path]}" for path in new_omissions[:3])
            suffix = f"; and {len(new_omissions) - 3} more" if len(new_omissions) > 3 else ""
            self._notify(f"A change of this cannot be undone, as it is not kept: {examples}{suffix}.")
        return nodes[""].id

    def changed(self, before: str, after: str) -> list[str]:
        """Return the workspace paths of the files that differ between two trees, sorted. Raises StateError."""
        return sorted(path for path, _, _ in self._differences(before, after))

    def byproducts(self, paths: Iterable[str]) -> tuple[str, ...]:
        """Return those paths that are git's own, compiled or installed files, or in a folder with a CACHEDIR.TAG."""
        root = self._workspace.root
        is_cache = cache(lambda folder: any(os.path.lexists(root / folder / mark) for mark in _CACHE_MARKS))
        return tuple(
            path
            for path in paths
            if not NOT_ENTERED.isdisjoint(path.split("/"))
            or any(is_cache(str(above)) for above in PurePosixPath(path).parents[:-1])
        )

    def read(self, tree: str, path: str) -> bytes | None:
        """Return the content of a file in this tree, or None if it did not exist or was not kept. Raises StateError."""
        node: Node | None = Node(_FOLDER, tree)
        for name in path.split("/"):
            node = self._tree(node.id).get(name) if _is_folder(node) else None
        if node is None or _is_folder(node) or node.mode == _PLACEHOLDER:
            return None
        return self._objects.read("blob", node.id)

    def restore(self, tree: str) -> Restored:
        """Restore the workspace to this tree after taking a snapshot. Touch nothing if the tree is incomplete.

        Entries that no snapshot stores and protected paths are left alone.

        Raises:
            StateError: part of the snapshot is missing or damaged, or a file cannot be written.
        """
        before = self.check(tree)
        restoration = _Restoration(self._workspace, self._objects, self._tree)
        restoration.run("", before, tree)
        self._workspace.guarded_files.accept(restoration.changed)
        return Restored(tuple(sorted(restoration.changed)), tuple(sorted(restoration.skipped.items())))

    def merge(self, base: str, source: str, target: str) -> tuple[str, list[str]]:
        """Return the tree `target` with the changes from `base` to `source`, and the paths of conflicting changes.

        Those stay as they are in `target`. A git repository counts as one path. Raises StateError.
        """
        conflicts: list[str] = []
        merged = self._merged("", Node(_FOLDER, base), Node(_FOLDER, source), Node(_FOLDER, target), conflicts)
        assert merged is not None
        return merged.id, conflicts

    def _merged(
        self, where: str, base: Node | None, source: Node | None, target: Node | None, conflicts: list[str]
    ) -> Node | None:
        if source in (base, target):
            return target
        if target == base:
            return source
        if not (_is_folder(source) and _is_folder(target)) or where.rpartition("/")[2] == ".git":
            conflicts.append(where)
            return target
        old, new = self._tree(base.id) if _is_folder(base) else {}, self._tree(source.id)
        tree = dict(self._tree(target.id))
        for name in sorted(changed_names(old, new)):
            path = path_in(where, name)
            node = self._merged(path, old.get(name), new.get(name), tree.pop(name, None), conflicts)
            if node is not None:
                tree[name] = node
        mode = target.mode if base is not None and source.mode == base.mode else source.mode
        return Node(mode, self._objects.put_tree(tree).id)

    def check(self, tree: str) -> str:
        """Return a snapshot of now. Raises StateError if a restoration of the tree would miss an object."""
        before = self.take()
        for _, _, node in self._differences(before, tree):
            if node is not None and node.mode != _PLACEHOLDER:
                self._objects.read("blob", node.id)
        return before

    # Taking ------------------------------------------------------------------------------------------------------

    def _scan_all(self) -> _Scan:
        scan = _Scan()
        pending, byproducts = deque([""]), deque[str]()
        self._changes.begin()
        while pending or byproducts:
            queue = pending or byproducts
            where = queue.popleft()
            try:
                with self._workspace.folder(where) as descriptor:
                    self._changes.add(where, descriptor)
                    folders = self._list(descriptor, where, scan)
                scan.folders |= folders
                later = set(self.byproducts(folders)) - {f"{where}/.git".lstrip("/")} if queue is pending else set()
                byproducts.extend(sorted(later))
                queue.extend(folder for folder in folders if folder not in later)
            except OSError as error:
                if isinstance(error, PermissionError) and where in self._scan.trees and self._restore_access(where):
                    queue.appendleft(where)
                    continue
                if not where:
                    raise StateError(f"Cannot keep a snapshot of the workspace: {error.strerror}.") from error
                scan.trees.pop(where, None)  # drop a partly scanned folder
                scan.stamps.pop(where, None)
                if isinstance(error, FileNotFoundError):  # deleted since its parent was listed
                    scan.folders.pop(where)
                else:
                    scan.omitted[where], scan.is_limited = error.strerror or str(error), True
        return scan

    def _restore_access(self, where: str) -> bool:
        """Restore the user's permissions on a folder that the last scan could read. Return whether they changed."""
        above, _, name = where.rpartition("/")
        with suppress(OSError), self._workspace.folder(above) as parent:
            return restore_access(parent, name)
        return False

    def _list(self, descriptor: int, where: str, scan: _Scan) -> dict[str, int]:
        """Scan the non-folders of a folder. Return its folders with their modes. Raises OSError.

        Beyond MAX_ENTRIES a folder is left out as a whole, but of the workspace itself only single entries.
        """
        scan.trees[where] = tree = {}
        scan.stamps[where] = stamps = {}
        folders: dict[str, int] = {}
        before = self._scan.stamps.get(where, {})
        with os.scandir(descriptor) as entries:
            for entry in entries:
                if (last := before.get(entry.name)) and scan.entry_count < MAX_ENTRIES:
                    stamp, node = last
                    size = stamp[2]
                    with suppress(OSError):
                        if scan.byte_count + size <= MAX_BYTES and stamp_of(entry.stat(follow_symlinks=False)) == stamp:
                            tree[entry.name], stamps[entry.name] = node, last
                            scan.entry_count += 1
                            scan.byte_count += size
                            continue
                path = path_in(where, entry.name)
                if self._workspace.is_protected(path):
                    continue
                scan.entry_count += 1
                if scan.entry_count > MAX_ENTRIES:
                    scan.is_limited = True
                    if where:
                        raise OSError(errno.E2BIG, _TOO_MANY)
                    scan.omitted[path] = _TOO_MANY
                    tree[entry.name] = _placeholder(_TOO_MANY)
                    continue
                with suppress(FileNotFoundError):  # deleted since the folder was listed
                    status = entry.stat(follow_symlinks=False)
                    if stat.S_ISDIR(status.st_mode) and path.count("/") < MAX_DEPTH:
                        folders[path] = _FOLDER | status.st_mode & _FOLDER_BITS
                    else:
                        self._add_entry(descriptor, entry.name, where, status, scan)
        return dict(sorted(folders.items()))

    def _add_entry(self, parent: int, name: str, where: str, status: os.stat_result, scan: _Scan) -> None:
        """Add an entry that is not a folder to scan. Raises FileNotFoundError."""
        path = path_in(where, name)
        if reason := _reason_to_skip(status, scan):
            scan.omitted[path] = reason
            scan.trees[where][name] = _placeholder(reason, status)
            return
        scan.read_count += 1
        if scan.read_count == MANY_FILES and self._notify is not None and not self._many_reported:
            self._many_reported = True
            self._notify(f"Saving {MANY_FILES:,} files or more, so that steps can be undone.")
        now, stamp = time.time_ns(), stamp_of(status)
        try:
            if stat.S_ISLNK(status.st_mode):
                data, mode = os.fsencode(os.readlink(name, dir_fd=parent)), _LINK
            else:
                data, mode = _content(parent, name)
        except FileNotFoundError:
            raise
        except OSError as error:
            scan.omitted[path] = reason = error.strerror or str(error)
            node, is_sure = _placeholder(reason, status), False
        else:
            scan.byte_count += len(data)
            node, is_sure = Node(mode, self._objects.put("blob", data)), now - status.st_ctime_ns > RACY_NS
        if not is_sure:  # it may still change unseen, so it is read again
            stamp = (*stamp[:4], -1)
        scan.trees[where][name], scan.stamps[where][name] = node, (stamp, node)

    def _scan_changes(self, changed: Mapping[str, Collection[str]]) -> _Scan | None:
        """Update the last scan by these changes, or return None if everything has to be scanned."""
        last = self._scan
        scan = replace(last, trees={**last.trees}, stamps={**last.stamps}, omitted={**last.omitted})
        for where, names in changed.items():
            if where not in last.trees:
                return None
            scan.trees[where], scan.stamps[where] = {**last.trees[where]}, {**last.stamps[where]}
            with suppress(OSError), self._workspace.folder(where) as descriptor:
                for name in names:
                    path = path_in(where, name)
                    if self._workspace.is_protected(path):
                        continue
                    scan.omitted.pop(path, None)
                    scan.entry_count -= scan.trees[where].pop(name, None) is not None
                    scan.byte_count -= entry[0][2] if (entry := scan.stamps[where].pop(name, None)) else 0
                    with suppress(FileNotFoundError):
                        status = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
                        if stat.S_ISDIR(status.st_mode) or scan.entry_count >= MAX_ENTRIES:
                            return None
                        scan.entry_count += 1
                        self._add_entry(descriptor, name, where, status, scan)
                continue
            return None
        return scan

    def _nodes_of(self, scan: _Scan, changed: Iterable[str] | None) -> dict[str, Node]:
        """Store the folders that differ from the last scan: any, or only `changed` folders and their parents."""
        nodes: dict[str, Node] = {} if changed is None else {**self._nodes}
        parts = [where.split("/") for where in changed or ()]
        parents = {"/".join(names[:end]) for names in parts for end in range(len(names) + 1)}
        selected = None if changed is None else parents | {""}
        for where, mode in reversed([("", _FOLDER), *scan.folders.items()]):  # children first
            if selected is None or where in selected:
                tree, node = scan.trees.get(where), self._nodes.get(where)
                if tree is None:
                    node = _placeholder(scan.omitted[where])
                elif node is None or node.mode != mode or tree != self._scan.trees.get(where):
                    self._stored_trees[where] = stored = self._objects.put_tree(tree, self._stored_trees.get(where))
                    node = Node(mode, stored.id)
                nodes[where] = node
                if where:
                    parent, _, name = where.rpartition("/")
                    if selected is not None and scan.trees[parent] is self._scan.trees.get(parent):
                        scan.trees[parent] = {**scan.trees[parent]}
                    scan.trees[parent][name] = node
        return nodes

    # Comparing ---------------------------------------------------------------------------------------------------

    def _tree(self, name: str) -> Tree:
        for trees in self._recent_trees:
            if name in trees:
                return trees[name]
        return self._objects.read_tree(name)

    def _differences(self, before: str, after: str, where: str = "") -> Iterator[tuple[str, Node | None, Node | None]]:
        """Yield path, old node and new node of each difference. Of folders, only their content counts."""
        if before == after:
            return
        old, new = self._tree(before) if before else {}, self._tree(after) if after else {}
        for name in sorted(changed_names(old, new)):
            old_node, new_node = old.get(name), new.get(name)
            path = path_in(where, name)
            folders = [node.id if _is_folder(node) else "" for node in (old_node, new_node)]
            if any(folders):
                yield from self._differences(folders[0], folders[1], path)
            old_node, new_node = (None if _is_folder(node) else node for node in (old_node, new_node))
            if old_node != new_node:
                yield path, old_node, new_node


class _Restoration:
    """Change folders from one tree to another. `skipped` maps the paths left alone to the reasons."""

    def __init__(self, workspace: Workspace, objects: ObjectStore, tree: Callable[[str], Tree]) -> None:
        self._workspace = workspace
        self._objects = objects
        self._tree = tree
        self.changed: list[str] = []  # files and links
        self.skipped: dict[str, str] = {}

    def run(self, where: str, before: str, after: str, mode: int | None = None) -> None:
        """Change the folder at `where` from the tree `before` to `after`, '' for an empty tree. Raises StateError.

        One folder is open at a time, each opened through the gate.
        """
        old, new = self._tree(before) if before else {}, self._tree(after) if after else {}
        names = sorted(changed_names(old, new))
        entries = ((name, path_in(where, name), old.get(name), new.get(name)) for name in names)
        differing = [entry for entry in entries if not self._is_skipped(*entry[1:])]
        try:
            for _, path, old_node, new_node in differing:
                if _is_folder(old_node) and not _is_folder(new_node):
                    self.run(path, old_node.id, "")
            with self._workspace.folder(where) as descriptor:
                old_mode = stat.S_IMODE(os.fstat(descriptor).st_mode)
                if old_mode & 0o300 != 0o300:
                    os.fchmod(descriptor, old_mode | 0o300)
                for name, path, old_node, new_node in differing:
                    self._replace_entry(descriptor, name, path, old_node, new_node)
            for _, path, old_node, new_node in differing:
                if _is_folder(new_node) and path not in self.skipped:
                    old_id = old_node.id if _is_folder(old_node) else ""
                    self.run(path, old_id, new_node.id, new_node.mode & _FOLDER_BITS)
            new_mode = old_mode if mode is None else mode
            if new_mode != old_mode or old_mode & 0o300 != 0o300:
                with self._workspace.folder(where) as descriptor:
                    os.fchmod(descriptor, new_mode)
        except OSError as error:
            raise StateError(f"{shown(where or '.')} in the workspace cannot be restored: {error.strerror}.") from error

    def _is_skipped(self, path: str, old_node: Node | None, new_node: Node | None) -> bool:
        if self._workspace.is_protected(path):
            self.skipped[path] = "it belongs to the agent itself"
        elif old_node is not None and old_node.mode == _PLACEHOLDER:
            self.skipped[path] = "as it is now, no snapshot keeps it"
        elif new_node is not None and new_node.mode == _PLACEHOLDER:
            self.skipped[path] = "the snapshot does not hold it"
        return path in self.skipped

    def _replace_entry(self, parent: int, name: str, path: str, old_node: Node | None, new_node: Node | None) -> None:
        """Replace a name in an open folder. The content of a folder follows later."""
        if _is_folder(old_node) and not _is_folder(new_node):
            try:
                os.rmdir(name, dir_fd=parent)
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise
                if new_node is not None:
                    self.skipped[path] = "a folder is there that holds what no snapshot keeps"
                return
        if any(node is not None and not _is_folder(node) for node in (old_node, new_node)):
            self.changed.append(path)
        if new_node is None or (_is_folder(new_node) and not _is_folder(old_node)):
            with suppress(FileNotFoundError, IsADirectoryError):
                os.unlink(name, dir_fd=parent)
        if _is_folder(new_node):
            with suppress(FileExistsError):
                os.mkdir(name, 0o700, dir_fd=parent)
        elif new_node is not None:
            mode = stat.S_IFLNK if new_node.mode == _LINK else new_node.mode & 0o777
            replace_in(parent, name, self._objects.read("blob", new_node.id), mode)


def _reason_to_skip(status: os.stat_result, scan: _Scan) -> str:
    if stat.S_ISDIR(status.st_mode):
        return f"it is more than {MAX_DEPTH} folders deep"
    if stat.S_ISLNK(status.st_mode):
        return ""
    if not stat.S_ISREG(status.st_mode):
        return "it is not a file"
    if status.st_size > MAX_FILE_BYTES:
        return f"it is larger than {MAX_FILE_BYTES >> 20} MB"
    if scan.byte_count + status.st_size > MAX_BYTES:
        scan.is_limited = True
        return f"the files are more than {MAX_BYTES >> 20} MB together"
    return ""


def _placeholder(reason: str, status: os.stat_result | None = None) -> Node:
    """Return a placeholder for an omitted entry. Its id changes with a file's size and time."""
    is_file = status is not None and stat.S_ISREG(status.st_mode)
    state = f"{reason} {status.st_size} {status.st_mtime_ns}" if status is not None and is_file else reason
    return Node(_PLACEHOLDER, hashlib.sha256(state.encode()).hexdigest())


def _is_folder(node: Node | None) -> TypeGuard[Node]:
    return node is not None and stat.S_IFMT(node.mode) == _FOLDER


def _content(parent: int, name: str) -> tuple[bytes, int]:
    """Return the content and mode of a regular file. Raises OSError, also for other kinds or if it is too large.

    A file of the user is read even without permission, as a program may remove that to hide its changes.
    """
    try:
        descriptor = os.open(name, _READ_FLAGS, dir_fd=parent)
    except PermissionError:
        with open_entry(parent, name) as (place, status):
            if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
                raise
            os.chmod(place, stat.S_IMODE(status.st_mode) | stat.S_IRUSR)  # noqa: PTH101 - no path of Python's
            try:
                descriptor = os.open(place, _READ_FLAGS & ~os.O_NOFOLLOW)
            finally:
                os.chmod(place, stat.S_IMODE(status.st_mode))  # noqa: PTH101
    try:
        status = os.fstat(descriptor)
        if stat.S_ISREG(status.st_mode) and status.st_size <= MAX_FILE_BYTES:
            data = os.read(descriptor, status.st_size + 1)
            if len(data) == status.st_size:
                return data, stat.S_IFREG | status.st_mode & 0o777
    finally:
        os.close(descriptor)
    raise OSError(errno.EBUSY, "something else changes it")
