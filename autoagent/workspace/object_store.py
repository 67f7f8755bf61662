"""A store of blobs and trees named by the hash of their content: loose objects in git's own format.

The folder is a bare repository in git's SHA-256 format, so `git --git-dir FOLDER ls-tree ID` works on it. Objects are
never changed or deleted, and `preciousObjects` keeps git from doing so.

The tree of a folder with many names is split into parts by the hash of the names, so that a new file rewrites one part
and the index instead of the whole folder. git shows a part as a subfolder.

git itself may be missing, would cost a process per step, and reads the user's settings.

Not covered: objects are not synced. Damage by a power cut is detected by the hash when reading.
"""

from __future__ import annotations

import hashlib
import os
import zlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from autoagent.core.errors import StateError

_CONFIG = """[core]
\trepositoryformatversion = 1
\tbare = true
[extensions]
\tobjectFormat = sha256
\tpreciousObjects = true
"""
_COMPRESSED = 1 << 20  # bytes; larger objects are stored as they are, which takes a tenth of the time
_WHOLE = 64  # names in a folder that is kept as one tree
_FOLDER, _PART = 0o040000, 0o044000  # modes; the bit of the second (setuid) is kept of no folder
_HEAD = 1024  # bytes that surely unpack to the head of an object: `blob 12345` and a NUL


@dataclass(frozen=True, slots=True)
class Node:
    """An entry of a tree: the mode as git has it, type and permissions, and the object's id."""

    mode: int
    id: str


Tree = Mapping[str, Node]
"""The names in a folder. Bytes of a name that are no UTF-8 are surrogates, as everywhere in Python."""


@dataclass(frozen=True, slots=True)
class StoredTree:
    """A stored folder: the id of its tree, its entries, and the ids of its parts, if any."""

    id: str
    tree: Tree
    parts: Mapping[int, tuple[Tree, str]]


class ObjectStore:
    """The objects in `folder`, created (mode 0700) with the first object. All methods raise StateError."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def put(self, kind: str, data: bytes) -> str:
        """Store an object, a `blob` or a `tree`. Return its id."""
        head = f"{kind} {len(data)}\0".encode()
        digest = hashlib.sha256(head)
        digest.update(data)
        name = digest.hexdigest()
        path = self._path(name)
        if not _is_there(path, head):
            level = zlib.Z_BEST_SPEED if len(data) <= _COMPRESSED else zlib.Z_NO_COMPRESSION
            try:
                self._write(path, zlib.compress(head + data, level))
            except OSError as error:
                raise StateError(f"Cannot keep a snapshot in {self._folder}: {error.strerror}.") from error
        return name

    def read(self, kind: str, name: str) -> bytes:
        """Return the content of an object, verified against its name: anything else is an error that names it."""
        path = self._path(name)
        try:
            raw = zlib.decompress(path.read_bytes())
        except FileNotFoundError:
            raise StateError(f"The snapshot is not whole: {path} is missing.") from None
        except OSError as error:
            raise StateError(f"The snapshot cannot be read: {path}: {error.strerror}.") from error
        except zlib.error:
            raise StateError(f"The snapshot is damaged: {path} is not an object.") from None
        head, _, data = raw.partition(b"\0")
        if hashlib.sha256(raw).hexdigest() != name or head.partition(b" ")[0] != kind.encode():
            raise StateError(f"The snapshot is damaged: {path} is not the {kind} that its name says.")
        return data

    def put_tree(self, tree: Tree, like: StoredTree | None = None) -> StoredTree:
        """Store a folder. If it is `like` a stored folder, write only the parts that differ."""
        count = _parts(len(tree))
        if count == 1:
            return StoredTree(self._put_entries(tree), tree, {})
        parts = dict(like.parts) if like is not None and _parts(len(like.tree)) == count else {}
        changed: dict[int, dict[str, Node]] = {}
        for name in changed_names(like.tree if like is not None and parts else {}, tree):
            number = zlib.crc32(os.fsencode(name)) % count
            if number not in changed:
                changed[number] = dict(parts[number][0]) if number in parts else {}
            if name in tree:
                changed[number][name] = tree[name]
            else:
                del changed[number][name]
        parts |= {number: (part, self._put_entries(part)) for number, part in changed.items()}
        index = {f"{number:x}": Node(_PART, name) for number, (part, name) in parts.items() if part}
        return StoredTree(self._put_entries(index), tree, parts)

    def _put_entries(self, tree: Tree) -> str:
        """Store a tree. Return its id. Names are sorted as in git: folders as if their name ended with a slash."""
        lines = []
        for name, node in tree.items():
            raw = os.fsencode(name)
            key = raw + b"/" if node.mode & 0o170000 == _FOLDER else raw
            lines.append((key, b"%o %b\0%b" % (node.mode, raw, bytes.fromhex(node.id))))
        return self.put("tree", b"".join(line for _, line in sorted(lines)))

    def read_tree(self, name: str) -> dict[str, Node]:
        """Return the entries of a folder."""
        data, at = self.read("tree", name), 0
        found: dict[str, Node] = {}
        while at < len(data):
            space, end = data.index(b" ", at), data.index(b"\0", at)
            entry = os.fsdecode(data[space + 1 : end])
            if entry in ("", ".", "..") or "/" in entry:
                raise StateError(f"The snapshot is damaged: the tree {name} holds the name {entry!r}.")
            node = Node(int(data[at:space], 8), data[end + 1 : end + 33].hex())
            found |= self.read_tree(node.id) if node.mode == _PART else {entry: node}
            at = end + 33
        return found

    def _path(self, name: str) -> Path:
        return self._folder / "objects" / name[:2] / name[2:]

    def _write(self, path: Path, content: bytes) -> None:
        """Write beside it, then rename: an object is there whole or not at all, while the machine runs."""
        if not path.parent.is_dir():
            self._make_folders(path.parent)
        temporary = path.with_name(f"tmp_obj_{os.urandom(8).hex()}")  # git knows such a name for a leftover
        try:
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
            temporary.rename(path)
        except BaseException:  # a full disk, Ctrl-C: no part of an object stays
            with suppress(OSError):
                temporary.unlink()
            raise

    def _make_folders(self, parent: Path) -> None:
        for folder in (self._folder, self._folder / "refs", self._folder / "objects", parent):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for name, text in (("config", _CONFIG), ("HEAD", "ref: refs/heads/none\n")):
            if not (file := self._folder / name).exists():
                file.touch(mode=0o600)
                file.write_text(text)


def changed_names(before: Tree, after: Tree) -> Iterator[str]:
    """Yield the names in which two folders differ, in no order."""
    for name, node in after.items():
        was = before.get(name)
        if was is not node and was != node:
            yield name
    yield from before.keys() - after.keys()


def _parts(names: int) -> int:
    """Return in how many parts a folder of so many names is kept: about the root of that, so that all stay small."""
    return 1 if names <= _WHOLE else 1 << ((names - 1).bit_length() + 1) // 2


def _is_there(path: Path, head: bytes) -> bool:
    """Return whether the object is stored and begins correctly: a power cut can leave a file empty, or all zero."""
    try:
        with path.open("rb") as file:
            return zlib.decompressobj().decompress(file.read(_HEAD), len(head)) == head
    except (OSError, zlib.error):
        return False
