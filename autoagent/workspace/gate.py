"""Define the workspace, the agent's working folder, and the gate for every path of a command.

A path is resolved to its physical place, so that links inside the workspace work, and the place is checked. Then it is
opened from the root without following any link: a swap in between makes opening fail instead of leading outside. The
kernel does that in one step if it has openat2 (Linux 5.6). Otherwise the folders are opened one by one. A file with
further hard links gets a new inode instead of being changed in place.

No library opens a path beneath a folder without following links. Python's pathlib follows them.

Not covered: hard links to outside or protected files can be read (the sandbox prevents making them), and so can file
systems mounted inside the workspace.
"""

from __future__ import annotations

import copy
import errno
import os
import re
import stat
import struct
import sys
import unicodedata
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Literal, Self

from autoagent.core.durable_files import DRAFT, is_draft, replace_in, write_whole
from autoagent.core.errors import CommandError, SettingsError
from autoagent.core.frozen import dataclass
from autoagent.workspace.guarded import GuardedFiles, path_in
from autoagent.workspace.syscalls import call

Gate = Callable[[int, str, int], int]
"""Open a relative path beneath a folder without following links: (folder descriptor, path, flags) -> descriptor.

Raises OSError: ELOOP, ENOTDIR or EXDEV for a link in the path.
"""

MAX_SYNCED_FILES = 1_000  # for more, all disks are synced

_WORKSPACE_NAMES = ("workspace", "auto_gpt_workspace")  # at the top of containers, so models look there
_FOLDER = os.O_RDONLY | os.O_DIRECTORY
_FIRST_READ_BYTES = 1 << 16  # most files are smaller
_MAX_PATH_BYTES = 4096  # PATH_MAX of Linux
_MAX_NAME_BYTES = 255  # NAME_MAX of Linux


@dataclass(frozen=True, slots=True)
class WorkspaceEntry:
    """An entry of the workspace. An unreadable folder appears twice: as `folder`, and as `unreadable`."""

    path: str  # relative to the root
    kind: Literal["file", "folder", "link", "special", "unreadable"]
    size: int = 0  # in bytes
    written_ns: int = 0  # from `find`, since the epoch: a folder may change without changing its size


# Large folders made by tools: one line in a list, and not searched unless named.
NOT_ENTERED = frozenset({".git", "__pycache__", "node_modules"})
MAX_COPIED_BYTES = 50_000_000  # of a workspace that is copied to try something out
CODE_FOLDER = "executed_code"  # AutoGPT's folder for generated code


Observer = Callable[[str, bool], None]
"""Receive each access before it happens: a path relative to the root, and whether the content of this file is read, or
else only the names in this folder and below.
"""


class Workspace:
    """Access files beneath `root`, which is created if missing.

    Paths are relative to the root, or absolute inside it. Refusals and failures raise CommandError with the path and
    the reason. `protected` paths and everything beneath them, existing or not, are neither read, written nor listed.
    The attribute `protected` holds those inside the root, relative to it.

    `guarded_files` protects files that would later run as the user (see guarded). They can be read, and written if
    `granted`. `changes` are the user's changes to their names, and removed files are kept in the folder `quarantine`.
    """

    def __init__(
        self,
        root: Path,
        protected: Iterable[Path] = (),
        *,
        changes: Iterable[str] = (),
        quarantine: Path | None = None,
        gate: Gate | None = None,
    ) -> None:
        try:
            root.mkdir(parents=True, exist_ok=True)
            self.root = root.resolve(strict=True)
            self._gate = gate or _best_gate(self.root)
        except OSError as error:
            raise SettingsError(
                f"The workspace {root} cannot be used: {error.strerror}. Choose another with --workspace-directory."
            ) from error
        self._observer: Observer | None = None
        inside: set[str] = set()
        for path in protected:
            absolute = path.absolute()
            for place in (Path(os.path.realpath(absolute)), Path(os.path.realpath(absolute.parent), absolute.name)):
                if place == self.root:
                    raise SettingsError(f"{path} holds the agent's own files and cannot be the workspace as well.")
                if place.is_relative_to(self.root):
                    inside.add(str(place.relative_to(self.root)))
        self.protected = frozenset(inside)
        self._protected = frozenset(place.casefold() for place in self.protected)
        self._protected_prefixes = tuple(f"{place}/" for place in self._protected)
        self._granted: Collection[str] = ()
        self._copy_of: Path | None = None
        self._guard_arguments = tuple(changes), quarantine
        try:
            self.guarded_files = GuardedFiles(self.root, self.folder, self.protected, *self._guard_arguments)
        except ValueError as error:
            raise SettingsError(str(error)) from None

    def with_observer(self, observer: Observer, granted: Collection[str] = ()) -> Self:
        """Return the same workspace with an observer of all access."""
        view = copy.copy(self)
        view._observer, view._granted = observer, granted
        return view

    def for_copy(self, root: Path) -> Self:
        """Return the workspace for a copy in another folder. Absolute paths into the original lead to the copy."""
        view = copy.copy(self)
        view.root, view._copy_of = root.resolve(strict=True), self.root
        view.guarded_files = GuardedFiles(view.root, view.folder, view.protected, *self._guard_arguments)
        return view

    def display(self, path: str, *, of_file: bool = False, follow: bool = True) -> str:
        """Return the path as shown to the model and the user: relative to the root, links resolved.

        With `of_file`, refuse a path that can only name a folder. Without `follow`, keep a link at the end.
        """
        return self._locate(path, of_file=of_file, follow=follow)

    def find(self, path: str, *, follow: bool = True) -> WorkspaceEntry | None:
        """Return the entry at the path, or None. Without `follow`, a link itself."""
        where = self._locate(path, follow=follow)
        folder, _, name = where.rpartition("/")
        with _translated_errors(path), suppress(FileNotFoundError, NotADirectoryError):
            with self.folder(folder) as parent:
                status = os.stat(name, dir_fd=parent, follow_symlinks=False)
            return WorkspaceEntry(where, _kind(status.st_mode), status.st_size, status.st_mtime_ns)
        return None

    def size(self, path: str) -> int | None:
        """Return the size of a regular file in bytes without reading it, or None if it cannot be reached."""
        with suppress(CommandError):
            entry = self.find(path)
            return entry.size if entry is not None and entry.kind == "file" else None
        return None

    def read(self, path: str, limit: int) -> bytes:
        """Read the first `limit` bytes of a regular file."""
        with self._opened_file(path, os.O_RDONLY) as descriptor, os.fdopen(descriptor, "rb", closefd=False) as file:
            if self._observer is not None:
                self._observer(self._locate(path), True)
            start = file.read(min(limit, _FIRST_READ_BYTES))  # reading `limit` at once would allocate megabytes
            return start + file.read(limit - len(start)) if len(start) == _FIRST_READ_BYTES else start

    def write(self, path: str, data: bytes) -> None:
        """Create or replace a file atomically, keeping its mode. Create missing folders."""
        where = self._locate(path, of_file=True, to_write=True)
        folder, _, name = where.rpartition("/")
        with _translated_errors(path):
            self._make_folders(folder)
            with self.folder(folder) as parent:
                replace_in(parent, name, data, _mode_to_keep(parent, name, path))
                _sync_folder(parent)

    def append(self, path: str, data: bytes) -> None:
        """Append to an existing file. A file with further hard links is copied first."""
        with self._opened_file(path, os.O_WRONLY | os.O_APPEND) as descriptor:
            status = os.fstat(descriptor)
            if status.st_nlink == 1:
                try:
                    write_whole(descriptor, data)
                except BaseException:  # a full disk, Ctrl-C: append all or nothing
                    os.ftruncate(descriptor, status.st_size)
                    raise
                return
        self.write(path, self.read(path, status.st_size) + data)

    def open_output(self, path: str) -> int:
        """Create or empty a program's output file. Return a descriptor to append to, for the caller to close."""
        self.write(path, b"")
        with self._opened_file(path, os.O_WRONLY | os.O_APPEND) as descriptor:
            return os.dup(descriptor)

    @contextmanager
    def opened(self, path: str) -> Iterator[BinaryIO]:
        """Open a file to read and write in place, creating it and its folders if needed. Sync it when closed."""
        if self.find(path) is None:
            self.write(path, b"")
        elif self._observer is not None:
            self._observer(self._locate(path), True)
        with self._opened_file(path, os.O_RDWR) as descriptor:
            if os.fstat(descriptor).st_nlink > 1:
                raise CommandError(f"{shown(path)} has another hard link, and is not written through it.")
            with os.fdopen(descriptor, "r+b", buffering=0, closefd=False) as file:
                yield file
            os.fsync(descriptor)

    def rename(self, path: str, new_path: str) -> None:
        """Rename a file atomically, replacing an existing file and taking over its mode."""
        folder, _, name = self._locate(path, of_file=True, to_write=True).rpartition("/")
        new_folder, _, new_name = self._locate(new_path, of_file=True, to_write=True).rpartition("/")
        with self._opened_file(path, os.O_RDONLY) as descriptor, self.folder(folder) as parent:
            self._make_folders(new_folder)
            with self.folder(new_folder) as new_parent:
                if (mode := _mode_to_keep(new_parent, new_name, new_path)) is not None:
                    os.fchmod(descriptor, mode)
                os.rename(name, new_name, src_dir_fd=parent, dst_dir_fd=new_parent)
                _sync_folder(new_parent)
            if new_folder != folder:
                _sync_folder(parent)

    def delete(self, path: str) -> None:
        """Delete a file, or a symbolic link itself. Folders are refused."""
        where = self._locate(path, of_file=True, follow=False, to_write=True)
        folder, _, name = where.rpartition("/")
        with _translated_errors(path), self.folder(folder) as parent:
            if stat.S_ISDIR(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode):
                raise CommandError(f"{shown(path)} is a folder; only files can be deleted.")
            os.unlink(name, dir_fd=parent)
            _sync_folder(parent)

    def sync(self, places: Collection[str]) -> None:
        """Sync the existing files among these places (relative to the root), or all disks for very many places."""
        if len(places) > MAX_SYNCED_FILES:
            os.sync()
            return
        for where in {*places, *(place.rpartition("/")[0] for place in places)}:
            with suppress(OSError), self._opened(where, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY) as descriptor:
                os.fsync(descriptor)

    def walk(self, directory: str = ".", skip: Collection[str] = ()) -> Iterator[WorkspaceEntry]:
        """Yield everything beneath a folder, level by level, each folder's entries sorted by name.

        Links are listed but not followed. Folders whose name is in `skip` are listed but not entered.
        """
        start = self._locate(directory)
        if self._observer is not None:
            self._observer(start, False)
        pending = deque([start])
        while pending:
            folder = pending.popleft()
            try:
                entries = self._entries(folder)
            except OSError as error:
                if folder == start:
                    is_file = isinstance(error, NotADirectoryError)
                    reason = f"{shown(directory)} is not a folder." if is_file else _reason(error, directory)
                    raise CommandError(reason) from error
                yield WorkspaceEntry(folder, "unreadable")
                continue
            for entry in entries:
                yield entry
                if entry.kind == "folder" and entry.path.rpartition("/")[2] not in skip:
                    pending.append(entry.path)

    def delete_drafts(self) -> None:
        """Delete the drafts left by a killed process."""
        for folder in (folders := ["."]):  # grows during the loop
            with suppress(OSError), self.folder(folder) as descriptor, os.scandir(descriptor) as items:
                for item in items:
                    path = path_in("" if folder == "." else folder, item.name)
                    is_entered = item.name not in NOT_ENTERED and path.casefold() not in self._protected
                    if DRAFT.fullmatch(item.name):
                        os.unlink(item.name, dir_fd=descriptor)
                    elif is_entered and item.is_dir(follow_symlinks=False):
                        folders.append(path)

    def is_protected(self, where: str) -> bool:
        """Return whether a path (relative to the root) is protected, or the draft of a file.

        Case is ignored, as in many file systems.
        """
        folded = f"{where.casefold()}/"
        return folded.startswith(self._protected_prefixes) or is_draft(where)

    def folder(self, where: str) -> AbstractContextManager[int]:
        """Open the folder at a path (relative to the root, which is '' or '.') through the gate. Raises OSError."""
        return self._opened(where, _FOLDER)

    def _locate(self, path: str, *, of_file: bool = False, follow: bool = True, to_write: bool = False) -> str:
        """Return the resolved path, relative to the root, or '.' for the root. Raises CommandError."""
        if problem := _malformation(path):
            raise CommandError(f"{shown(path)} {problem}.")
        if of_file and path.endswith(("/", "/.", "/..")):
            raise CommandError(f"{shown(path)} names a folder, not a file.")
        top, _, inner_path = path.lstrip("/").partition("/")
        joined = self.root / path
        if path.startswith("/") and top in _WORKSPACE_NAMES and not Path(path).is_relative_to(self.root):
            joined = self.root / inner_path.lstrip("/")  # outside, but with a usual name of a workspace
        elif self._copy_of is not None and Path(path).is_relative_to(self._copy_of):
            joined = self.root / Path(path).relative_to(self._copy_of)
        try:
            real = _real_path(joined) if follow else f"{_real_path(joined.parent)}/{joined.name}"
        except OSError as error:  # realpath accepts missing files, but fails if a link changes meanwhile
            if error.errno == errno.ELOOP:
                raise CommandError(f"{shown(path)} leads through too many symbolic links.") from None
            raise CommandError(f"{shown(path)} was changed by something else just now; try again.") from None
        where = os.path.relpath(real, self.root)
        if where == ".." or where.startswith("../"):
            raise CommandError(
                f"{shown(path)} is outside the workspace. Use a path inside it, relative to its root, "
                f"such as {shown(Path(path).name or 'notes.txt')}."
            )
        if of_file and where == ".":
            raise CommandError(f"{shown(path)} is the workspace itself, not a file.")
        if problem := _malformation(where):  # the target of a link may be malformed too
            raise CommandError(f"{shown(path)} is a link to {shown(where)}, which {problem}.")
        if self.is_protected(where):
            raise CommandError(f"{shown(path)} belongs to the agent itself and can be neither read nor written.")
        if to_write and where not in self._granted and self.guarded_files.is_guarded(where):
            raise CommandError(
                f"{shown(path)} can only be read: it would run as the user later, who has not allowed it."
            )
        return where

    @contextmanager
    def _opened(self, where: str, flags: int) -> Iterator[int]:
        root = os.open(self.root, _FOLDER)
        try:
            descriptor = self._gate(root, where or ".", flags)
        finally:
            os.close(root)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    @contextmanager
    def _opened_file(self, path: str, flags: int) -> Iterator[int]:
        where = self._locate(path, of_file=True, to_write=bool(flags & (os.O_WRONLY | os.O_RDWR)))
        # O_NONBLOCK: to open a FIFO would wait for its other end
        with _translated_errors(path), self._opened(where, flags | os.O_NONBLOCK | os.O_NOCTTY) as descriptor:
            _require_file(os.fstat(descriptor).st_mode, path)
            yield descriptor

    def _make_folders(self, folder: str) -> None:
        parent_path = ""
        for name in folder.split("/") if folder else ():
            with self.folder(parent_path) as parent, suppress(FileExistsError):
                os.mkdir(name, dir_fd=parent)
            parent_path = path_in(parent_path, name)

    def _entries(self, folder: str) -> list[WorkspaceEntry]:
        entries = []
        with self.folder(folder) as descriptor, os.scandir(descriptor) as items:
            for item in items:
                path = path_in("" if folder == "." else folder, item.name)
                if path.casefold() in self._protected or is_draft(path):
                    continue
                with suppress(FileNotFoundError):  # gone since the folder was read
                    status = item.stat(follow_symlinks=False)
                    entries.append(WorkspaceEntry(path, _kind(status.st_mode), status.st_size))
        return sorted(entries, key=lambda entry: entry.path)


def folder_or_root(path: str) -> str:
    """Normalize a model's name for a folder: '' and '/' mean the workspace's root, like '.'."""
    return path if path.strip().strip("/") else "."


def shown(path: str) -> str:
    """Format a path for a message: quoted, escaped, and shortened in the middle."""
    return repr(path if len(path) <= 120 else f"{path[:80]}...{path[-30:]}")


# The two gates ---------------------------------------------------------------------------------------------------

_OPENAT2 = 437  # the number of the system call on all architectures
_RESOLVE_NO_MAGICLINKS, _RESOLVE_NO_SYMLINKS, _RESOLVE_BENEATH = 0x02, 0x04, 0x08


def openat2_gate(folder: int, path: str, flags: int) -> int:
    """Open through the gate by the system call openat2(2). Raises OSError ENOSYS or EPERM if it is unavailable."""
    resolve = _RESOLVE_BENEATH | _RESOLVE_NO_SYMLINKS | _RESOLVE_NO_MAGICLINKS
    open_how = struct.pack("=QQQ", flags | os.O_CLOEXEC, 0, resolve)  # flags, mode, resolve
    while True:
        with suppress(InterruptedError):
            return call("syscall", _OPENAT2, folder, os.fsencode(path), open_how, len(open_how))


def walk_gate(folder: int, path: str, flags: int) -> int:
    """Open through the gate folder by folder, following no link."""
    *folders, base_name = path.split("/")
    current = os.dup(folder)
    try:
        for name in folders:
            child = os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=current)
            os.close(current)
            current = child
        return os.open(base_name, flags | os.O_NOFOLLOW, dir_fd=current)
    finally:
        os.close(current)


def _best_gate(root: Path) -> Gate:
    if not sys.platform.startswith("linux"):
        return walk_gate
    descriptor = os.open(root, _FOLDER)
    try:
        os.close(openat2_gate(descriptor, ".", _FOLDER))
    except (OSError, ImportError):  # an older kernel, a filter of system calls, a Python built without ctypes
        return walk_gate
    finally:
        os.close(descriptor)
    return openat2_gate


# Single steps ----------------------------------------------------------------------------------------------------


def _malformation(path: str) -> str:
    if not path.strip():
        return "is no file name: it is blank"
    if any("\ud800" <= character <= "\udfff" for character in path):
        return "is not valid Unicode"
    if control := next((c for c in path if unicodedata.category(c) == "Cc"), None):
        return f"holds the control character {control!r}; use a plain name"
    if re.match(r"file:|[a-zA-Z][a-zA-Z0-9+.-]*://", path, re.IGNORECASE):
        return "is a URL, not a path in the workspace"
    if path == "~" or re.match(r"~[^/]*/", path):
        return "is in a home folder, which is outside the workspace; use a path relative to the workspace"
    if len(os.fsencode(path)) > _MAX_PATH_BYTES or any(
        len(os.fsencode(name)) > _MAX_NAME_BYTES for name in path.split("/")
    ):
        return f"is too long: a name may have {_MAX_NAME_BYTES} bytes, a path {_MAX_PATH_BYTES}"
    return ""


def _real_path(path: Path) -> str:
    """Resolve the path's links, keeping a circular link. Raises OSError (ELOOP) for too long a chain."""
    try:
        real = os.path.realpath(path)
    except RecursionError:  # before Python 3.13 realpath recurses for each link
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP)) from None
    if _too_many_links(path) and not _too_many_links(Path(real)):
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
    return real


def _too_many_links(path: Path) -> bool:
    try:
        path.stat()
    except OSError as error:
        return error.errno == errno.ELOOP
    return False


def _kind(mode: int) -> Literal["file", "folder", "link", "special"]:
    if stat.S_ISREG(mode):
        return "file"
    if stat.S_ISDIR(mode):
        return "folder"
    return "link" if stat.S_ISLNK(mode) else "special"


def _require_file(mode: int, path: str) -> None:
    if not stat.S_ISREG(mode):
        kind = "a folder, not a file" if stat.S_ISDIR(mode) else "not a regular file"
        raise CommandError(f"{shown(path)} is {kind}.")


def _mode_to_keep(parent: int, name: str, path: str) -> int | None:
    """Return the permissions of the file to replace, or None if it does not exist."""
    try:
        mode = os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return None
    _require_file(mode, path)
    if not os.access(name, os.W_OK, dir_fd=parent):  # a rename would ignore it
        raise CommandError(f"{shown(path)} is read-only.")
    return mode & 0o777


def _sync_folder(descriptor: int) -> None:
    with suppress(OSError):  # unsupported by some file systems: a power cut could undo the change
        os.fsync(descriptor)


@contextmanager
def _translated_errors(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise CommandError(_reason(error, path)) from error


def _reason(error: OSError, path: str) -> str:
    match error.errno:
        case errno.ENOENT:
            return f"There is no {shown(path)} in the workspace."
        case errno.ENOTDIR:
            other = shown(path.rstrip("/").rpartition("/")[2])
            return f"{shown(path)} leads through a file as if it were a folder. Take another path, such as {other}."
        case errno.EISDIR:
            return f"{shown(path)} is a folder, not a file."
        case errno.ENXIO:
            return f"{shown(path)} is not a regular file."
        case errno.ELOOP | errno.EXDEV:
            return f"{shown(path)} leads through a symbolic link that goes round in a circle or was just changed."
        case _:
            return f"{shown(path)} cannot be used: {error.strerror}."
