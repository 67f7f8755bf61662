"""Snapshots of the workspace that can be restored.

A snapshot is a tree of git objects outside the workspace: files with permissions, symbolic links, and folders, even
empty ones. Workspace files are never run or interpreted. A repository inside is stored like any other files.

Not stored, and left alone by a restore: files over LARGEST_FILE, everything beyond MOST_BYTES or MOST_ENTRIES, folders
deeper than DEEPEST, unreadable entries, devices, sockets and pipes. Owners, times, extended attributes, hard links and
setuid/setgid bits are not stored either. The latter would lend the restoring user's rights. A change within RACY_NS of
a scan that keeps size and times is only seen by the next scan.

Around a command that runs no program only that is looked at which the kernel says has changed (see changes).
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
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path, PurePosixPath
from typing import TypeGuard

from autoagent.core.durable_files import replace_in
from autoagent.core.errors import StateError
from autoagent.workspace.changes import Changes
from autoagent.workspace.gate import NOT_ENTERED, Workspace, shown
from autoagent.workspace.object_store import Node, ObjectStore, StoredTree, Tree, changed_names

LARGEST_FILE = 32 << 20  # bytes
MOST_BYTES = 512 << 20  # bytes of all files of one snapshot
MOST_ENTRIES = 20_000  # files, links and folders of one snapshot
MANY = 3_000  # files to read in one look, which takes about a second
DEEPEST = 100  # folders within one another
RACY_NS = 50_000_000  # a file changed more lately may change once more and look the same: its clock ticks every few ms

_FOLDER, _LINK, _ABSENT = 0o040000, 0o120000, 0o160000  # modes of git; the last is a submodule: a name, no content
_FOLDER_BITS = 0o3777  # with those of the group's inheritance and of shared folders; a file's are rights of its owner
_TOO_MANY = f"the workspace has more than {MOST_ENTRIES:,} entries"
_MARKS = ("CACHEDIR.TAG", "pyvenv.cfg")  # a cache as of bford.info/cachedir; a virtual environment
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC

Stamp = tuple[int, int, int, int, int]
"""Inode, mode, size and both times of a file: as long as they stay the same, so does the content."""


@dataclass(frozen=True, slots=True)
class Restored:
    """The result of a restoration: the files brought back, changed or deleted, and those left as they are."""

    changed: tuple[str, ...]
    reasons: tuple[tuple[str, str], ...] = ()  # why, of each that was left

    @property
    def left(self) -> tuple[str, ...]:
        """Those left as they are, each with the reason."""
        return tuple(f"{path} ({reason})" for path, reason in self.reasons)


@dataclass(slots=True)
class _Look:
    """The result of one scan of the workspace: the trees of its folders, and the reasons for everything left out."""

    trees: dict[str, dict[str, Node]] = field(default_factory=dict)
    folders: dict[str, int] = field(default_factory=dict)  # and their modes, parents before what is in them
    stamps: dict[str, dict[str, tuple[Stamp, Node]]] = field(default_factory=dict)  # of files, by folder and name
    left_out: dict[str, str] = field(default_factory=dict)
    limited: bool = False  # whether something is left out because there is too much, or a folder cannot be looked into
    entries: int = 0
    files: int = 0  # that were read
    bytes: int = 0


class Snapshots:
    """The snapshots of one workspace in the folder `store`. Satisfies the protocol of that name.

    Files with unchanged size, times and inode are not read again. `tell` hears once per path what is left out and why,
    and of a look that takes long.
    """

    def __init__(self, store: Path, workspace: Workspace, tell: Callable[[str], None] | None = None) -> None:
        self._objects = ObjectStore(store)
        self._workspace = workspace
        self._tell = tell
        self._many_told = False
        self._reported: set[str] = set()
        self._look = _Look(limited=True)
        self._changes = Changes()
        self._nodes: dict[str, Node] = {}  # of the folders, as last seen
        self._stored: dict[str, StoredTree] = {}
        self._recent: tuple[dict[str, Tree], dict[str, Tree]] = ({}, {})  # trees by id, of the last two looks

    def take(self, *, whole: bool = True) -> str:
        """Take a snapshot. Return the id of its tree, which depends on the content only. Raises StateError.

        Unless `whole`, look only at what has changed by word of the kernel, as far as it has one (see changes).
        """
        try:
            with self._objects.together():
                changed = None if whole or self._look.limited else self._changes.taken()
                look = None if changed is None else self._look_at(changed)
                if look is None:
                    look, changed = self._look_at_all(), None
                nodes = self._nodes_of(look, changed)
        except BaseException:  # Ctrl-C too: what the kernel has told is lost
            self._changes.forget()
            raise
        self._recent = ({nodes[where].id: tree for where, tree in look.trees.items()}, self._recent[0])
        self._look, self._nodes = look, nodes
        self._stored = {where: tree for where, tree in self._stored.items() if where in look.trees}
        new = [path for path in look.left_out if path not in self._reported]
        if new and self._tell is not None:
            self._reported.update(new)
            some = "; ".join(f"{shown(path)}: {look.left_out[path]}" for path in new[:3])
            more = f"; and {len(new) - 3} more" if len(new) > 3 else ""
            self._tell(f"A change of this cannot be undone, as it is not kept: {some}{more}.")
        return nodes[""].id

    def changed(self, before: str, after: str) -> list[str]:
        """Return the workspace paths of the files that differ between two trees, sorted. Raises StateError."""
        return sorted(path for path, _, _ in self._differing(before, after))

    def byproducts(self, paths: Iterable[str]) -> tuple[str, ...]:
        """Return the paths that are git's own, compiled or installed, or in a folder that a CACHEDIR.TAG marks."""
        root = self._workspace.root
        is_cache = cache(lambda folder: any(os.path.lexists(root / folder / mark) for mark in _MARKS))
        return tuple(
            path
            for path in paths
            if not NOT_ENTERED.isdisjoint(path.split("/"))
            or any(is_cache(str(above)) for above in PurePosixPath(path).parents[:-1])
        )

    def read(self, tree: str, path: str) -> bytes | None:
        """Return what a file held when this tree was taken, or None if there was no such file, or it was not kept.

        Raises StateError if the snapshot is missing or damaged.
        """
        *folders, name = path.split("/")
        for folder in folders:
            node = self._tree(tree).get(folder)
            if not _is_folder(node):
                return None
            tree = node.id
        node = self._tree(tree).get(name)
        if node is None or _is_folder(node) or node.mode == _ABSENT:
            return None
        return self._objects.read("blob", node.id)

    def restore(self, tree: str) -> Restored:
        """Restore the workspace to this tree after taking a snapshot. Touch nothing if the tree is incomplete.

        Entries that no snapshot stores and protected paths are left alone.

        Raises:
            StateError: part of the snapshot is missing or damaged, or a file cannot be written.
        """
        before = self.take()
        self._check(before, tree)
        restoration = _Restoration(self._workspace, self._objects, self._tree)
        restoration.run("", before, tree)
        self._workspace.watch.accept(restoration.changed)
        return Restored(tuple(sorted(restoration.changed)), tuple(sorted(restoration.left.items())))

    def merge(self, base: str, own: str, into: str) -> tuple[str, list[str]]:
        """Return the tree `into` with the changes from `base` to `own`, and the paths where both differ from `base`.

        Those stay as they are in `into`. A git repository counts as one path. Raises StateError.
        """
        conflicts: list[str] = []
        merged = self._merged("", Node(_FOLDER, base), Node(_FOLDER, own), Node(_FOLDER, into), conflicts)
        assert merged is not None
        return merged.id, conflicts

    def _merged(
        self, where: str, base: Node | None, own: Node | None, into: Node | None, conflicts: list[str]
    ) -> Node | None:
        if own in (base, into):
            return into
        if into == base:
            return own
        if not (_is_folder(own) and _is_folder(into)) or where.rpartition("/")[2] == ".git":
            conflicts.append(where)
            return into
        old, new, found = self._tree(base.id) if _is_folder(base) else {}, self._tree(own.id), dict(self._tree(into.id))
        for name in sorted(changed_names(old, new)):
            path = f"{where}/{name}" if where else name
            node = self._merged(path, old.get(name), new.get(name), found.pop(name, None), conflicts)
            if node is not None:
                found[name] = node
        mode = into.mode if base is not None and own.mode == base.mode else own.mode
        return Node(mode, self._objects.put_tree(found).id)

    def check(self, tree: str) -> None:
        """Raise StateError if something that a restoration from now would need is missing or damaged."""
        self._check(self.take(), tree)

    # Taking ------------------------------------------------------------------------------------------------------

    def _look_at_all(self) -> _Look:
        look, pending, last = _Look(), deque([""]), deque[str]()  # what a program keeps for itself comes last
        self._changes.begin()
        while pending or last:
            queue = pending or last
            where = queue.popleft()
            try:
                with self._workspace.folder(where or ".") as descriptor:
                    self._changes.add(where, descriptor)
                    folders = self._list(descriptor, where, look)
                look.folders |= folders
                aside = set(self.byproducts(folders)) - {f"{where}/.git".lstrip("/")} if queue is pending else set()
                last.extend(sorted(aside))
                queue.extend(folder for folder in folders if folder not in aside)
            except OSError as error:
                if not where:
                    raise StateError(f"Cannot keep a snapshot of the workspace: {error.strerror}.") from error
                look.trees.pop(where, None)  # a part of a folder is none of it
                look.stamps.pop(where, None)
                if isinstance(error, FileNotFoundError):  # gone since its parent was listed
                    look.folders.pop(where)
                else:
                    look.left_out[where], look.limited = error.strerror or str(error), True
        return look

    def _list(self, descriptor: int, where: str, look: _Look) -> dict[str, int]:
        """Look at the non-folders of a folder. Return its folders with their modes. Raises OSError.

        Beyond MOST_ENTRIES a folder is left out as a whole, except the workspace itself, where single entries are.
        """
        look.trees[where] = found = {}
        look.stamps[where] = stamps = {}
        folders: dict[str, int] = {}
        before = self._look.stamps.get(where, {})
        with os.scandir(descriptor) as entries:
            for entry in entries:
                if (known := before.get(entry.name)) and look.entries < MOST_ENTRIES:
                    with suppress(OSError):
                        fits = look.bytes + known[0][2] <= MOST_BYTES
                        if fits and _stamp(entry.stat(follow_symlinks=False)) == known[0]:
                            found[entry.name], stamps[entry.name] = known[1], known
                            look.entries += 1
                            look.bytes += known[0][2]
                            continue
                path = f"{where}/{entry.name}" if where else entry.name
                if self._workspace.is_protected(path):
                    continue
                look.entries += 1
                if look.entries > MOST_ENTRIES:
                    look.limited = True
                    if where:
                        raise OSError(errno.E2BIG, _TOO_MANY)
                    look.left_out[path] = _TOO_MANY
                    found[entry.name] = _ABSENCE
                    continue
                with suppress(FileNotFoundError):  # gone since the folder was read
                    status = entry.stat(follow_symlinks=False)
                    if stat.S_ISDIR(status.st_mode) and path.count("/") < DEEPEST:
                        folders[path] = _FOLDER | status.st_mode & _FOLDER_BITS
                    else:
                        self._note(descriptor, entry.name, where, status, look)
        return dict(sorted(folders.items()))

    def _note(self, parent: int, name: str, where: str, status: os.stat_result, look: _Look) -> None:
        """Note a name in a folder that is no folder to look into. Raises FileNotFoundError."""
        path = f"{where}/{name}" if where else name
        if reason := _too_much(status, look):
            look.left_out[path] = reason
            look.trees[where][name] = _absent(reason, status)
            return
        look.files += 1
        if look.files == MANY and self._tell is not None and not self._many_told:
            self._many_told = True
            self._tell(f"Keeping {MANY:,} files or more, so that steps can be undone.")
        node, stamp = self._file(parent, name, path, status, look)
        look.trees[where][name], look.stamps[where][name] = node, (stamp, node)

    def _look_at(self, changed: Mapping[str, Collection[str]]) -> _Look | None:
        """Return the last look with what has changed since, or None where all has to be looked at."""
        last = self._look
        look = replace(last, trees={**last.trees}, stamps={**last.stamps}, left_out={**last.left_out})
        for where, names in changed.items():
            if where not in last.trees:
                return None
            look.trees[where], look.stamps[where] = {**last.trees[where]}, {**last.stamps[where]}
            with suppress(OSError), self._workspace.folder(where or ".") as descriptor:
                for name in names:
                    path = f"{where}/{name}" if where else name
                    if self._workspace.is_protected(path):
                        continue
                    look.left_out.pop(path, None)
                    look.entries -= look.trees[where].pop(name, None) is not None
                    look.bytes -= known[0][2] if (known := look.stamps[where].pop(name, None)) else 0
                    with suppress(FileNotFoundError):
                        status = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
                        if stat.S_ISDIR(status.st_mode) or look.entries >= MOST_ENTRIES:
                            return None
                        look.entries += 1
                        self._note(descriptor, name, where, status, look)
                continue
            return None
        return look

    def _nodes_of(self, look: _Look, changed: Iterable[str] | None) -> dict[str, Node]:
        """Store the folders that are not as in the last look: any, or of `changed` and what they lie in."""
        nodes: dict[str, Node] = {} if changed is None else {**self._nodes}
        parts = [where.split("/") for where in changed or ()]
        above = {"/".join(names[:end]) for names in parts for end in range(len(names) + 1)}
        wanted = None if changed is None else above | {""}
        for where, mode in reversed([("", _FOLDER), *look.folders.items()]):  # what is within a folder comes before it
            if wanted is None or where in wanted:
                nodes[where] = self._kept(where, mode, look)
                if where:
                    parent, _, name = where.rpartition("/")
                    if wanted is not None and look.trees[parent] is self._look.trees.get(parent):
                        look.trees[parent] = {**look.trees[parent]}
                    look.trees[parent][name] = nodes[where]
        return nodes

    def _file(self, parent: int, name: str, path: str, status: os.stat_result, look: _Look) -> tuple[Node, Stamp]:
        """Read a file or a link. Return its node and its stamp, with no time in it if it may still change unseen."""
        now, stamp = time.time_ns(), _stamp(status)
        try:
            if stat.S_ISLNK(status.st_mode):
                data, mode = os.fsencode(os.readlink(name, dir_fd=parent)), _LINK
            else:
                data, mode = _content(parent, name)
        except FileNotFoundError:
            raise
        except OSError as error:
            look.left_out[path] = reason = error.strerror or str(error)
            return _absent(reason, status), (*stamp[:4], -1)
        look.bytes += len(data)
        node = Node(mode, self._objects.put("blob", data))
        return node, stamp if now - status.st_ctime_ns > RACY_NS else (*stamp[:4], -1)

    def _kept(self, where: str, mode: int, look: _Look) -> Node:
        """Return the node of a folder whose subfolders are all in its tree."""
        tree = look.trees.get(where)
        if tree is None:
            return _absent(look.left_out[where])
        node = self._nodes.get(where)
        if node is not None and node.mode == mode and tree == self._look.trees.get(where):
            return node
        self._stored[where] = stored = self._objects.put_tree(tree, self._stored.get(where))
        return Node(mode, stored.id)

    # Comparing ---------------------------------------------------------------------------------------------------

    def _tree(self, name: str) -> Tree:
        for trees in self._recent:
            if name in trees:
                return trees[name]
        return self._objects.read_tree(name)

    def _check(self, before: str, after: str) -> None:
        for _, _, node in self._differing(before, after):
            if node is not None and node.mode != _ABSENT:
                self._objects.read("blob", node.id)

    def _differing(self, before: str, after: str, where: str = "") -> Iterator[tuple[str, Node | None, Node | None]]:
        """Yield the path and the nodes before and after for each difference. For folders, only for their content."""
        if before == after:
            return
        old, new = self._tree(before) if before else {}, self._tree(after) if after else {}
        for name in sorted(changed_names(old, new)):
            was, now = old.get(name), new.get(name)
            path = f"{where}/{name}" if where else name
            folders = [node.id if _is_folder(node) else "" for node in (was, now)]
            if any(folders):
                yield from self._differing(folders[0], folders[1], path)
            was, now = (None if _is_folder(node) else node for node in (was, now))
            if was != now:
                yield path, was, now


class _Restoration:
    """Changes folders from one tree to another. `left` has the untouched paths and the reasons."""

    def __init__(self, workspace: Workspace, objects: ObjectStore, tree: Callable[[str], Tree]) -> None:
        self._workspace = workspace
        self._objects = objects
        self._tree = tree
        self.changed: list[str] = []  # files and links
        self.left: dict[str, str] = {}

    def run(self, where: str, before: str, after: str, mode: int | None = None) -> None:
        """Change the folder at `where` from the tree `before` to `after`; '' is an empty tree. Raises StateError.

        One folder is open at a time, each opened through the gate.
        """
        old, new = self._tree(before) if before else {}, self._tree(after) if after else {}
        differing = []
        for name in sorted(changed_names(old, new)):
            path = f"{where}/{name}" if where else name
            if not self._is_left(path, old.get(name), new.get(name)):
                differing.append((name, path, old.get(name), new.get(name)))
        try:
            for _, path, was, now in differing:
                if _is_folder(was) and not _is_folder(now):
                    self.run(path, was.id, "")
            with self._workspace.folder(where or ".") as descriptor:
                kept = stat.S_IMODE(os.fstat(descriptor).st_mode)
                if kept & 0o300 != 0o300:
                    os.fchmod(descriptor, kept | 0o300)
                for name, path, was, now in differing:
                    self._exchange(descriptor, name, path, was, now)
            for _, path, was, now in differing:
                if _is_folder(now) and path not in self.left:
                    self.run(path, was.id if _is_folder(was) else "", now.id, now.mode & _FOLDER_BITS)
            wanted = kept if mode is None else mode
            if wanted != kept or kept & 0o300 != 0o300:
                with self._workspace.folder(where or ".") as descriptor:
                    os.fchmod(descriptor, wanted)
        except OSError as error:
            raise StateError(f"{shown(where or '.')} in the workspace cannot be restored: {error.strerror}.") from error

    def _is_left(self, path: str, was: Node | None, now: Node | None) -> bool:
        if self._workspace.is_protected(path):
            self.left[path] = "it belongs to the agent itself"
        elif was is not None and was.mode == _ABSENT:
            self.left[path] = "as it is now, no snapshot keeps it"
        elif now is not None and now.mode == _ABSENT:
            self.left[path] = "the snapshot does not hold it"
        return path in self.left

    def _exchange(self, parent: int, name: str, path: str, was: Node | None, now: Node | None) -> None:
        """Replace one name in an open folder. The content of a folder follows later."""
        if _is_folder(was) and not _is_folder(now):
            try:
                os.rmdir(name, dir_fd=parent)
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise
                if now is not None:
                    self.left[path] = "a folder is there that holds what no snapshot keeps"
                return
        if any(node is not None and not _is_folder(node) for node in (was, now)):
            self.changed.append(path)
        if now is None or (_is_folder(now) and not _is_folder(was)):
            with suppress(FileNotFoundError, IsADirectoryError):
                os.unlink(name, dir_fd=parent)
        if _is_folder(now):
            with suppress(FileExistsError):
                os.mkdir(name, 0o700, dir_fd=parent)
        elif now is not None:
            mode = stat.S_IFLNK if now.mode == _LINK else now.mode & 0o777
            replace_in(parent, name, self._objects.read("blob", now.id), mode)


def _stamp(status: os.stat_result) -> Stamp:
    return status.st_ino, status.st_mode, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _too_much(status: os.stat_result, look: _Look) -> str:
    """Explain why an entry is left out, or '' if it is stored."""
    mode = status.st_mode
    if stat.S_ISDIR(mode):
        return f"it is more than {DEEPEST} folders deep"
    if stat.S_ISLNK(mode):
        return ""
    if not stat.S_ISREG(mode):
        return "it is no file"
    if status.st_size > LARGEST_FILE:
        return f"it is larger than {LARGEST_FILE >> 20} MB"
    if look.bytes + status.st_size > MOST_BYTES:
        look.limited = True
        return f"the files are more than {MOST_BYTES >> 20} MB together"
    return ""


def _absent(reason: str, status: os.stat_result | None = None) -> Node:
    """Return a placeholder for an entry that is left out. Its id changes with a file's size and time."""
    is_file = status is not None and stat.S_ISREG(status.st_mode)
    told = f"{reason} {status.st_size} {status.st_mtime_ns}" if status is not None and is_file else reason
    return Node(_ABSENT, hashlib.sha256(told.encode()).hexdigest())


_ABSENCE = _absent(_TOO_MANY)


def _is_folder(node: Node | None) -> TypeGuard[Node]:
    return node is not None and stat.S_IFMT(node.mode) == _FOLDER


def _content(parent: int, name: str) -> tuple[bytes, int]:
    """Return the content and mode of a regular file. Raises OSError, also for other kinds or if it is too large."""
    descriptor = os.open(name, _READ, dir_fd=parent)
    try:
        status = os.fstat(descriptor)
        if stat.S_ISREG(status.st_mode) and status.st_size <= LARGEST_FILE:
            data = os.read(descriptor, status.st_size + 1)
            if len(data) == status.st_size:
                return data, stat.S_IFREG | status.st_mode & 0o777
    finally:
        os.close(descriptor)
    raise OSError(errno.EBUSY, "something else changes it")
