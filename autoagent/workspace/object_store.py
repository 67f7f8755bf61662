"""Store blobs and trees by the hash of their content, as objects in git's own format.

The folder is a bare repository in git's SHA-256 format, so `git --git-dir FOLDER ls-tree ID` works on it. Objects are
never changed or deleted. The tree of a folder with many names is split into parts by the hash of the names, so that a
new file rewrites one part. Git shows a part as a subfolder. Many new objects at once become a pack, in a fifth of the
time. git itself is not used: it may be missing, would cost a process per step, and reads the user's settings.

Not covered: only packs are synced, not single objects. Damage by a power cut is detected by the hash when reading.
"""

from __future__ import annotations

import hashlib
import os
import struct
import zlib
from collections.abc import Callable, Container, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from itertools import accumulate
from pathlib import Path
from typing import BinaryIO

from autoagent.core.errors import SettingsError, StateError
from autoagent.core.frozen import dataclass
from autoagent.text.text_file import open_regular

_CONFIG = """[core]
\trepositoryformatversion = 1
\tbare = true
[extensions]
\tobjectFormat = sha256
\tpreciousObjects = true
"""
_MAX_COMPRESSED_BYTES = 1 << 20  # larger objects are stored uncompressed, ten times as fast
_MAX_SMALL_BYTES = (
    4096  # smaller objects are compressed with small tables: clearing the usual ones takes ten times as long
)
_MAX_OBJECT_BYTES = 33 << 20  # unpacked: the largest file of a snapshot, and its head
_MAX_TREE_NAMES = 64  # a larger folder is split into parts
_FOLDER, _PART = 0o040000, 0o044000  # modes; no folder is stored with the setuid bit of the second
_MIN_PACK_OBJECTS = 200  # new objects at once
_MAX_PACK_BYTES = 16 << 20  # held in memory until the pack is written
_KIND_NUMBERS = {"tree": 2, "blob": 3}  # in a pack
_PACK_MAGIC, _INDEX_MAGIC = b"PACK\0\0\0\2", b"\377tOc\0\0\0\2"  # of version 2
_HEAD_BYTES = 1024  # enough to unpack the head of an object: `blob 12345` and a NUL


@dataclass(frozen=True, slots=True)
class Node:
    """An entry of a tree: git's mode (type and permissions), and the object's id."""

    mode: int
    id: str


Tree = Mapping[str, Node]
"""The names in a folder. Bytes outside UTF-8 are surrogates, as everywhere in Python."""


@dataclass(frozen=True, slots=True)
class StoredTree:
    """A stored folder: the id of its tree, its entries, and any parts."""

    id: str
    tree: Tree
    parts: Mapping[int, tuple[Tree, str]]


class ObjectStore:
    """Read and write objects in `folder`, created (mode 0700) with the first object. All methods raise StateError."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._pending: dict[str, tuple[str, bytes]] | None = None  # objects to write together
        self._pending_bytes = 0  # of their content
        self._loose: Callable[[str], Container[str]]  # names by their first two letters: many objects, few folders
        self._packed: dict[str, tuple[Path, int]] | None = None  # the pack and the offset

    @contextmanager
    def batch(self) -> Iterator[None]:
        """Collect the objects put meanwhile and write them at the end. They cannot be read before then."""
        self._pending, self._pending_bytes = {}, 0
        place = f"{self._folder}/objects"
        self._loose = cache(lambda start: os.listdir(f"{place}/{start}") if os.path.isdir(f"{place}/{start}") else ())  # noqa: PTH208, PTH112
        try:
            yield
            self._write_pending()
        finally:
            self._pending = None

    def put(self, kind: str, data: bytes) -> str:
        """Store an object, a `blob` or a `tree`. Return its id."""
        head = f"{kind} {len(data)}\0".encode()
        digest = hashlib.sha256(head)
        digest.update(data)
        name = digest.hexdigest()
        if self._pending is None or len(data) > _MAX_COMPRESSED_BYTES:
            self._write_missing(name, head, data)
        elif name not in self._pending and not self._has(name, head):
            self._pending[name] = kind, data
            self._pending_bytes += len(data)
            if self._pending_bytes > _MAX_PACK_BYTES:
                self._write_pending()
        return name

    def read(self, kind: str, name: str) -> bytes:
        """Return the content of an object, verified against its name."""
        path = Path(self._path(name))
        try:
            if len(name) != 64 or not name.isalnum():  # a forged name is a path
                raise zlib.error
            with open_regular(path) as file:
                raw = _decompress(file)
        except FileNotFoundError:
            path, raw = self._read_packed(name)
        except OSError as error:
            raise StateError(f"The snapshot cannot be read: {path}: {error.strerror}.") from error
        except (zlib.error, SettingsError):
            raise StateError(f"The snapshot is damaged: {path} is not an object.") from None
        head, _, data = raw.partition(b"\0")
        if hashlib.sha256(raw).hexdigest() != name or head.partition(b" ")[0] != kind.encode():
            raise StateError(f"The snapshot is damaged: {path} does not hold the {kind} that its name promises.")
        return data

    def put_tree(self, tree: Tree, previous: StoredTree | None = None) -> StoredTree:
        """Store a folder. Write only the parts that differ from those of the stored folder `previous`."""
        count = _part_count(len(tree))
        if count == 1:
            return StoredTree(self._put_entries(tree), tree, {})
        parts = {}
        if previous is not None and _part_count(len(previous.tree)) == count:
            parts = dict(previous.parts)
        changed_parts: dict[int, dict[str, Node]] = {}
        for name in changed_names(previous.tree if previous is not None and parts else {}, tree):
            number = zlib.crc32(os.fsencode(name)) % count
            if number not in changed_parts:
                changed_parts[number] = dict(parts[number][0]) if number in parts else {}
            if name in tree:
                changed_parts[number][name] = tree[name]
            else:
                del changed_parts[number][name]
        parts |= {number: (part, self._put_entries(part)) for number, part in changed_parts.items()}
        index = {f"{number:x}": Node(_PART, name) for number, (part, name) in parts.items() if part}
        return StoredTree(self._put_entries(index), tree, parts)

    def _put_entries(self, tree: Tree) -> str:
        """Store a tree. Return its id. Names are sorted as in git: folders as if with a final slash."""
        lines = []
        for name, node in tree.items():
            raw = os.fsencode(name)
            key = raw + b"/" if node.mode & 0o170000 == _FOLDER else raw
            lines.append((key, b"%o %b\0%b" % (node.mode, raw, bytes.fromhex(node.id))))
        return self.put("tree", b"".join(line for _, line in sorted(lines)))

    def read_tree(self, name: str, parts: dict[str, Tree] | None = None) -> dict[str, Node]:
        """Return the entries of a folder. `parts` caches the entries of its parts, shared by most trees."""
        data, position = self.read("tree", name), 0
        entries: dict[str, Node] = {}
        while position < len(data):
            space, end = data.index(b" ", position), data.index(b"\0", position)
            entry = os.fsdecode(data[space + 1 : end])
            if entry in ("", ".", "..") or "/" in entry:
                raise StateError(f"The snapshot is damaged: the tree {name} holds the name {entry!r}.")
            node = Node(int(data[position:space], 8), data[end + 1 : end + 33].hex())
            if node.mode != _PART:
                entries[entry] = node
            elif parts is None:
                entries |= self.read_tree(node.id)
            else:
                entries |= parts.get(node.id) or parts.setdefault(node.id, self.read_tree(node.id))
            position = end + 33
        return entries

    def _path(self, name: str) -> str:
        return f"{self._folder}/objects/{name[:2]}/{name[2:]}"

    def _has(self, name: str, head: bytes) -> bool:
        """Return whether the object exists with a valid head: a power cut can leave an empty or zeroed file."""
        if name in self._packs():
            return True
        if self._pending is not None and name[2:] not in self._loose(name[:2]):
            return False
        with suppress(OSError, zlib.error):
            descriptor = os.open(self._path(name), os.O_RDONLY | os.O_CLOEXEC)
            try:
                return zlib.decompressobj().decompress(os.read(descriptor, _HEAD_BYTES), len(head)) == head
            finally:
                os.close(descriptor)
        return False

    def _write_missing(self, name: str, head: bytes, data: bytes) -> None:
        if not self._has(name, head):
            self._write(self._path(name), _compress(head + data))

    def _write(self, path: str, content: bytes | bytearray, *, synced: bool = False) -> None:
        """Write a temporary file and rename it, so that an object is never partial while the machine runs."""
        parent = os.path.dirname(path)  # noqa: PTH120 - for each object
        temporary = f"{parent}/tmp_obj_{os.urandom(8).hex()}"  # noqa: S108 - git treats such a name as a leftover
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
            except BaseException:  # a full disk, Ctrl-C: leave no partial object
                with suppress(OSError):
                    os.unlink(temporary)  # noqa: PTH108
                raise
        except OSError as error:
            raise StateError(f"Cannot keep a snapshot in {self._folder}: {error.strerror}.") from error

    # Packs -------------------------------------------------------------------------------------------------------

    def _write_pending(self) -> None:
        objects, self._pending, self._pending_bytes = self._pending or {}, {}, 0
        if len(objects) >= _MIN_PACK_OBJECTS:
            self._write_pack(objects)
            return
        for name, (kind, data) in objects.items():
            self._write_missing(name, b"%b %d\0" % (kind.encode(), len(data)), data)

    def _write_pack(self, objects: Mapping[str, tuple[str, bytes]]) -> None:
        """Write a pack and then its index, as in gitformat-pack(5). A pack without an index is ignored."""
        pack = bytearray(_PACK_MAGIC + len(objects).to_bytes(4))
        places = {}  # offset and checksum
        for name, (kind, data) in objects.items():
            head, size = bytearray((_KIND_NUMBERS[kind] << 4 | len(data) & 15,)), len(data) >> 4
            while size:  # written seven bits at a time
                head[-1] |= 0x80
                head.append(size & 0x7F)
                size >>= 7
            entry = bytes(head) + _compress(data)
            places[name] = len(pack), zlib.crc32(entry)
            pack += entry
        digest = hashlib.sha256(pack)
        names = sorted(places)
        counts = [0] * 256  # of names, by their first byte
        for name in names:
            counts[int(name[:2], 16)] += 1
        index = b"".join((
            _INDEX_MAGIC, *(total.to_bytes(4) for total in accumulate(counts)), *map(bytes.fromhex, names),
            *(places[name][1].to_bytes(4) for name in names), *(places[name][0].to_bytes(4) for name in names),
            digest.digest(),
        ))  # fmt: skip
        path = f"{self._folder}/objects/pack/pack-{digest.hexdigest()}"
        self._write(f"{path}.pack", pack + digest.digest(), synced=True)
        self._write(f"{path}.idx", index + hashlib.sha256(index).digest(), synced=True)
        self._packed = None

    def _packs(self) -> dict[str, tuple[Path, int]]:
        """Return the packed objects with their pack and offset."""
        if self._packed is None:
            self._packed = {}
            for path in sorted((self._folder / "objects/pack").glob("*.idx")):
                pack = path.with_suffix(".pack")
                with suppress(OSError, SettingsError), open_regular(pack) as file, open_regular(path) as index:
                    data = index.read(_MAX_OBJECT_BYTES)
                    file.seek(-32, os.SEEK_END)
                    count = int.from_bytes(data[1028:1032])
                    is_valid = data.startswith(_INDEX_MAGIC) and hashlib.sha256(data[:-32]).digest() == data[-32:]
                    if is_valid and len(data) == 1096 + 40 * count and file.read() == data[-64:-32]:
                        names = (data[place : place + 32].hex() for place in range(1032, 1032 + 32 * count, 32))
                        offsets = struct.iter_unpack(">I", data[1032 + 36 * count : 1032 + 40 * count])
                        self._packed |= {name: (pack, offset) for name, (offset,) in zip(names, offsets, strict=True)}
        return self._packed

    def _read_packed(self, name: str) -> tuple[Path, bytes]:
        """Return an object's pack, and the object with its head."""
        if name not in self._packs():
            self._packed = None  # another process may have written a pack
        path, offset = self._packs().get(name, (None, 0))
        if path is None:
            raise StateError(f"The snapshot is incomplete: {self._path(name)} is missing.")
        try:
            with path.open("rb") as file:
                file.seek(offset)
                data = file.read(_HEAD_BYTES)
                kind = next(kind for kind, number in _KIND_NUMBERS.items() if number == data[0] >> 4 & 7)
                head_bytes = next(number for number, byte in enumerate(data, 1) if byte < 0x80)
                raw = _decompress(file, data[head_bytes:])
        except OSError as error:
            raise StateError(f"The snapshot cannot be read: {path}: {error.strerror}.") from error
        except (zlib.error, StopIteration, IndexError):
            raise StateError(f"The snapshot is damaged: {path} does not hold {name}.") from None
        return path, b"%b %d\0" % (kind.encode(), len(raw)) + raw


def _compress(data: bytes) -> bytes:
    if len(data) > _MAX_SMALL_BYTES:
        return zlib.compress(data, zlib.Z_BEST_SPEED if len(data) <= _MAX_COMPRESSED_BYTES else zlib.Z_NO_COMPRESSION)
    packer = zlib.compressobj(zlib.Z_BEST_SPEED, zlib.DEFLATED, 12, 5)  # a window of 4096 bytes
    return packer.compress(data) + packer.flush()


def _decompress(file: BinaryIO, data: bytes = b"") -> bytes:
    """Unpack `data` and the rest of the file. Raises zlib.error for a truncated or implausibly large object."""
    raw, unpacker = bytearray(), zlib.decompressobj()
    while not unpacker.eof and len(raw) <= _MAX_OBJECT_BYTES and (data := data or file.read(_MAX_COMPRESSED_BYTES)):
        raw += unpacker.decompress(data, _MAX_OBJECT_BYTES)
        data = unpacker.unconsumed_tail
    if not unpacker.eof:
        raise zlib.error
    return bytes(raw)


def changed_names(before: Tree, after: Tree) -> Iterator[str]:
    """Yield the names that differ between two folders, in no order."""
    for name, node in after.items():
        before_node = before.get(name)
        if before_node is not node and before_node != node:
            yield name
    yield from before.keys() - after.keys()


def _part_count(names: int) -> int:
    """Return the number of parts for a folder of so many names: about its square root, so that all parts stay small."""
    return 1 if names <= _MAX_TREE_NAMES else 1 << ((names - 1).bit_length() + 1) // 2
