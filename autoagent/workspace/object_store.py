"""A store of blobs and trees named by the hash of their content: objects in git's own format.

The folder is a bare repository in git's SHA-256 format, so `git --git-dir FOLDER ls-tree ID` works on it. Objects are
never changed or deleted. The tree of a folder with many names is split into parts by the hash of the names, so that a
new file rewrites one part; git shows a part as a subfolder. Many objects that come at once become a pack, in a fifth of
the time. git itself may be missing, would cost a process per step, and reads the user's settings.

Not covered: objects are not synced, but for packs. Damage by a power cut is detected by the hash when reading.
"""

from __future__ import annotations

import hashlib
import os
import struct
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import accumulate
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
_PACKED = 200  # new objects at once become a pack
_PACK_BYTES = 16 << 20  # bytes of objects, of which there is a copy in memory until they are a pack
_KINDS = {"tree": 2, "blob": 3}  # as numbered in a pack
_PACK, _INDEX = b"PACK\0\0\0\2", b"\377tOc\0\0\0\2"  # how version 2 of the two begins
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
        self._waiting: dict[str, tuple[str, bytes]] | None = None  # objects to be kept together
        self._bytes = 0  # of them
        self._packed: dict[str, tuple[Path, int]] | None = None  # where in which pack

    @contextmanager
    def together(self) -> Iterator[None]:
        """Keep the objects that are put meanwhile at once, at the end: they cannot be read before."""
        self._waiting, self._bytes = {}, 0
        try:
            yield
            self._keep_waiting()
        finally:
            self._waiting = None

    def put(self, kind: str, data: bytes) -> str:
        """Store an object, a `blob` or a `tree`. Return its id."""
        head = f"{kind} {len(data)}\0".encode()
        digest = hashlib.sha256(head)
        digest.update(data)
        name = digest.hexdigest()
        if self._waiting is None or len(data) > _COMPRESSED:
            self._keep(name, head, data)
        elif name not in self._waiting and not self._holds(name, head):
            self._waiting[name] = kind, data
            self._bytes += len(data)
            if self._bytes > _PACK_BYTES:
                self._keep_waiting()
        return name

    def read(self, kind: str, name: str) -> bytes:
        """Return the content of an object, verified against its name: anything else is an error that names it."""
        path = Path(self._path(name))
        try:
            raw = zlib.decompress(path.read_bytes())
        except FileNotFoundError:
            path, raw = self._in_pack(name)
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

    def _path(self, name: str) -> str:
        return f"{self._folder}/objects/{name[:2]}/{name[2:]}"

    def _holds(self, name: str, head: bytes) -> bool:
        """Return whether the object is there and begins correctly: a power cut can leave a file empty, or all zero."""
        if name in self._packs():
            return True
        try:
            descriptor = os.open(self._path(name), os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            return zlib.decompressobj().decompress(os.read(descriptor, _HEAD), len(head)) == head
        except (OSError, zlib.error):
            return False
        finally:
            os.close(descriptor)

    def _keep(self, name: str, head: bytes, data: bytes) -> None:
        """Store an object that begins with `head` in a file of its own."""
        if not self._holds(name, head):
            level = zlib.Z_BEST_SPEED if len(data) <= _COMPRESSED else zlib.Z_NO_COMPRESSION
            self._write(self._path(name), zlib.compress(head + data, level))

    def _write(self, path: str, content: bytes, *, synced: bool = False) -> None:
        """Write beside it, then rename: an object is there whole or not at all, while the machine runs."""
        parent = os.path.dirname(path)  # noqa: PTH120 - for each object
        temporary = f"{parent}/tmp_obj_{os.urandom(8).hex()}"  # noqa: S108 - git knows such a name for a leftover
        try:
            if not os.path.isdir(parent):  # noqa: PTH112
                for folder in (self._folder, self._folder / "refs", self._folder / "objects", Path(parent)):
                    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                for name, text in (("config", _CONFIG), ("HEAD", "ref: refs/heads/none\n")):
                    if not (place := self._folder / name).exists():
                        place.touch(mode=0o600)
                        place.write_text(text)
            try:
                descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
                with os.fdopen(descriptor, "wb") as file:
                    file.write(content)
                    file.flush()
                    if synced:
                        os.fsync(descriptor)
                os.rename(temporary, path)  # noqa: PTH104
            except BaseException:  # a full disk, Ctrl-C: no part of an object stays
                with suppress(OSError):
                    os.unlink(temporary)  # noqa: PTH108
                raise
        except OSError as error:
            raise StateError(f"Cannot keep a snapshot in {self._folder}: {error.strerror}.") from error

    # Packs -------------------------------------------------------------------------------------------------------

    def _keep_waiting(self) -> None:
        waiting, self._waiting, self._bytes = self._waiting or {}, {}, 0
        if len(waiting) >= _PACKED:
            self._write_pack(waiting)
            return
        for name, (kind, data) in waiting.items():
            self._keep(name, b"%b %d\0" % (kind.encode(), len(data)), data)

    def _write_pack(self, objects: Mapping[str, tuple[str, bytes]]) -> None:
        """Write a pack and its index, as in gitformat-pack(5). Without its index a pack is none."""
        pieces, at, places = [_PACK + len(objects).to_bytes(4)], 12, {}
        for name, (kind, data) in objects.items():
            head, rest = bytearray((_KINDS[kind] << 4 | len(data) & 15,)), len(data) >> 4
            while rest:  # the size in pieces of seven bits
                head[-1] |= 0x80
                head.append(rest & 0x7F)
                rest >>= 7
            entry = bytes(head) + zlib.compress(data, zlib.Z_BEST_SPEED)
            places[name] = at, zlib.crc32(entry)
            pieces.append(entry)
            at += len(entry)
        pack = b"".join(pieces)
        digest = hashlib.sha256(pack)
        names = sorted(places)
        fans = [0] * 256
        for name in names:
            fans[int(name[:2], 16)] += 1
        index = b"".join((
            _INDEX, *(total.to_bytes(4) for total in accumulate(fans)), *map(bytes.fromhex, names),
            *(places[name][1].to_bytes(4) for name in names), *(places[name][0].to_bytes(4) for name in names),
            digest.digest(),
        ))  # fmt: skip
        path = f"{self._folder}/objects/pack/pack-{digest.hexdigest()}"
        self._write(f"{path}.pack", pack + digest.digest(), synced=True)
        self._write(f"{path}.idx", index + hashlib.sha256(index).digest(), synced=True)
        self._packed = None

    def _packs(self) -> dict[str, tuple[Path, int]]:
        """Return the packed objects: their pack, and where in it they begin."""
        if self._packed is None:
            self._packed = {}
            for path in sorted((self._folder / "objects/pack").glob("*.idx")):
                with suppress(OSError), (pack := path.with_suffix(".pack")).open("rb") as file:
                    data = path.read_bytes()
                    file.seek(-32, os.SEEK_END)
                    count = int.from_bytes(data[1028:1032])
                    whole = data.startswith(_INDEX) and hashlib.sha256(data[:-32]).digest() == data[-32:]
                    if whole and len(data) == 1096 + 40 * count and file.read() == data[-64:-32]:
                        names = (data[at : at + 32].hex() for at in range(1032, 1032 + 32 * count, 32))
                        starts = struct.iter_unpack(">I", data[1032 + 36 * count : 1032 + 40 * count])
                        self._packed |= {name: (pack, at) for name, (at,) in zip(names, starts, strict=True)}
        return self._packed

    def _in_pack(self, name: str) -> tuple[Path, bytes]:
        """Return the pack that holds an object, and the object with its head."""
        if name not in self._packs():
            self._packed = None  # another process may have written one
        path, at = self._packs().get(name, (None, 0))
        if path is None:
            raise StateError(f"The snapshot is not whole: {self._path(name)} is missing.")
        try:
            with path.open("rb") as file:
                file.seek(at)
                data = file.read(_HEAD)
                kind = next(kind for kind, number in _KINDS.items() if number == data[0] >> 4 & 7)
                begin = next(at for at, byte in enumerate(data) if byte < 0x80) + 1
                unpacked = zlib.decompressobj()
                raw = unpacked.decompress(data[begin:])
                while not unpacked.eof and (data := file.read(_COMPRESSED)):
                    raw += unpacked.decompress(data)
        except OSError as error:
            raise StateError(f"The snapshot cannot be read: {path}: {error.strerror}.") from error
        except (zlib.error, StopIteration, IndexError):
            raise StateError(f"The snapshot is damaged: {path} does not hold {name}.") from None
        return path, b"%b %d\0" % (kind.encode(), len(raw)) + raw


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
