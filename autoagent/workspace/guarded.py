"""Guard files that later run as the user on their own: git, editors, shells and package managers read them.

An agent with write access would only have to wait for the next `git status`. So commands write these files only after
the user has allowed that very call, and GuardedFiles reverts changes made by programs: it restores old content and
moves new files aside. A repository made by the agent may have a configuration that runs nothing.

Files are recognized by name, and git repositories by their contents. Whatever a person starts deliberately (a Makefile,
tests, scripts, another virtual environment) is the agent's work, and is not guarded. The user's `protect` adds names.

Not covered: files read while the program that wrote them still runs; programs in the workspace that a guarded file
names (`core.fsmonitor = ./tool`), except hooks and included configuration; folders beyond MAX_SCANNED_ENTRIES.
"""

from __future__ import annotations

import errno
import functools
import hashlib
import os
import posixpath
import stat
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from pathlib import Path

from autoagent.core.durable_files import is_draft, open_entry, replace_in
from autoagent.core.frozen import dataclass
from autoagent.workspace import guarded_names
from autoagent.workspace.guarded_names import GuardedNames

MAX_SCANNED_ENTRIES = 100_000  # entries of the workspace, level by level
_MAX_RESTORABLE_BYTES = 1 << 20  # of one file
_MAX_COPY_NAME_BYTES = 200  # of a file's name in the name of its copy
_MAX_DIGEST_BYTES = 32 << 20  # of one file, as of undo; this program's own files have no limit
_RACY_NS = 50_000_000  # a folder changed more recently may change again without a new time
_MAX_READ_ONLY_PATHS = 64  # each delays every start of a program by 0.05 ms
_GIT_FILES = frozenset({"config", "config.worktree", "commondir"})
_WRITE_ERRORS = tuple(os.strerror(number).encode() for number in (errno.EROFS, errno.EBUSY))
_REPOSITORY, _WORKTREE = {"HEAD", "objects", "refs"}, {"HEAD", "commondir"}  # their typical entries

Stamp = tuple[int, int, int, int, int]
"""Inode, mode, size and both times of a file: as long as they stay the same, so does the content."""


def stamp_of(status: os.stat_result) -> Stamp:
    """Return the stamp of a file with this status."""
    return status.st_ino, status.st_mode, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def path_in(folder: str, name: str) -> str:
    """Return the path of a name in a folder, '' being the root."""
    return f"{folder}/{name}" if folder else name


def restore_access(parent: int | None, name: str | Path) -> bool:
    """Give the user back all permissions on an entry of an open folder. Return whether any was missing. Raises OSError.

    A program may have removed them to hide its changes.
    """
    with open_entry(parent, name) as (place, status):
        mode = stat.S_IMODE(status.st_mode)
        if mode & stat.S_IRWXU == stat.S_IRWXU:
            return False
        os.chmod(place, mode | stat.S_IRWXU)  # noqa: PTH101 - no path of Python's
        return True


class OwnProgram:
    """The parts of this program inside a workspace: its interpreter's folders, and the packages it has loaded.

    If the agent's programs changed these, they would run outside the sandbox as soon as another module is imported.
    `paths` are relative to the root.
    """

    def __init__(self, root: Path) -> None:
        files = {getattr(module, "__file__", None) or "" for name, module in [*sys.modules.items()] if "." not in name}
        folder_of = functools.cache(os.path.realpath)  # hundreds of modules lie in a few folders
        places = {sys.prefix, sys.base_prefix, os.path.realpath(sys.prefix), os.path.realpath(sys.base_prefix)}
        for file in files - {""}:
            folder, name = os.path.split(file.removesuffix("/__init__.py"))
            place = f"{folder_of(folder)}/{name}"
            is_link = os.path.islink(place)  # noqa: PTH114 - a Path raises where the user may not look
            places.add(os.path.realpath(place) if is_link else place)
        top = f"{str(root).rstrip('/')}/"
        inside = (place for place in sorted(places) if place.startswith(top) and place != top)
        self.paths = tuple(os.path.relpath(place, root) for place in inside)
        self._root = root
        self._folders: dict[str, int] = {}  # descriptors of the program's folders, and of those above

    def open_folders(self) -> None:
        """Open the program's folders, so that `restore` finds them wherever they are moved."""
        for path in [*self._folders]:
            os.close(self._folders.pop(path))
        folders = {str(folder) for path in self.paths for folder in (Path(path), *Path(path).parents)}
        for folder in sorted(folders - {"."}):
            with suppress(OSError):
                self._folders[folder] = os.open(self._root / folder, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)

    def restore(self) -> Iterator[str]:
        """Move the program's folders back, and anything in their place aside. Yield a line for each."""
        for place, descriptor in self._folders.items():  # parents come first
            path = self._root / place
            with suppress(OSError):
                if os.path.samestat(os.fstat(descriptor), path.lstat()):
                    continue
            moved_path, spare_path = Path(f"/proc/self/fd/{descriptor}").readlink(), f"{path}.{os.urandom(3).hex()}"
            try:
                for folder in (*reversed(moved_path.parents), moved_path, *reversed(path.parents)):
                    if folder.is_relative_to(self._root) and not os.access(folder, os.W_OK | os.X_OK):
                        restore_access(None, folder)
                path.parent.mkdir(parents=True, exist_ok=True)
                own_path = Path(f"{spare_path}.own")
                for source, target in (moved_path, own_path), (path, spare_path), (own_path, path):
                    with suppress(FileNotFoundError):  # deleted meanwhile
                        source.rename(target)
                yield f"{place} was restored; its replacement was moved to {spare_path}."
            except OSError as error:
                yield f"{place} would run as the user later; it cannot be removed: {error.strerror}."


@dataclass(frozen=True, slots=True)
class _FileState:
    """The state of a guarded file: its stamp, permissions, and content or link target.

    For anything but a file, `mode` is its type. A file too large to keep has a `digest` in place of its content.
    """

    stamp: Stamp
    mode: int
    data: bytes | None
    digest: bytes = b""

    def is_same(self, other: _FileState) -> bool:
        return (self.mode, self.data, self.digest) == (other.mode, other.data, other.digest)


@dataclass(frozen=True, slots=True)
class _Listing:
    """The names in a folder with this stamp, and whether each is a folder."""

    stamp: Stamp | None
    names: Mapping[str, bool]
    relevant: Sequence[str]  # its folders, `.git`, and names guarded anywhere


class GuardedFiles:
    """Watch the guarded files of a workspace while programs run in it. Any thread may use it.

    `open_folder` opens a folder ('' is the root) without following links. The agent's own files are `hidden`: programs
    cannot reach them, and a file put in the place of a missing one is removed. Removed files are moved to the folder
    `quarantine`, or deleted if it is None. With `enforced`, the sandbox makes the `read_only` paths read-only for
    programs, so that only the user can have changed them.
    """

    def __init__(
        self,
        root: Path,
        open_folder: Callable[[str], AbstractContextManager[int]],
        hidden: Collection[str],
        changes: Iterable[str] = (),
        quarantine: Path | None = None,
    ) -> None:
        self._program = OwnProgram(root)
        self.names = GuardedNames((*self._program.paths, *changes))
        self.enforced = False
        self.read_only: tuple[str, ...] = ()
        self._root = root
        self._open_folder = open_folder
        self._hidden = {path.casefold(): path for path in hidden}
        self._quarantine = quarantine
        self._lock = threading.Lock()
        self._running = 0  # number of running programs
        self._has_scanned = False
        self._report: list[str] = []
        # Found before the programs began:
        self._accepted: dict[str, _FileState] = {}
        self._unreadable: dict[str, Stamp] = {}
        self._existing_hidden: set[str] = set()
        self._configured: set[str] = set()  # paths named by the configuration of the user's repositories, folded
        self._included: set[str] = set()  # files included by it
        # Found by the scans:
        self._git_dirs: set[str] = set()
        self._made_paths: set[str] = set()  # repositories made by programs, and files leading to them
        self._listings: dict[str, _Listing] = {}
        self._restores_permissions = False  # whether to undo a program's change of permissions

    def begin(self) -> None:
        """Accept the present files as the user's, unless another program is already running."""
        with self._lock:
            if not self._running:
                self._accept_all()
            self._running += 1

    def end(self) -> None:
        """Revert the changes of a program that has ended."""
        with self._lock:
            self._running -= 1
            self._revert()

    def recheck(self) -> None:
        """Revert changes of programs that are still running."""
        with self._lock:
            self._revert()

    def refused(self, output: bytes) -> list[str]:
        """Return a line for each read-only path named in a program's write errors."""
        lines = [line for line in output.splitlines() if line.rstrip().endswith(_WRITE_ERRORS)]
        return [
            f"{path} could not be written."
            for path in self.read_only
            if any(os.fsencode(path) in line for line in lines)
        ]

    def accept(self, paths: Iterable[str]) -> None:
        """Accept these files as the user's, after an allowed change."""
        with self._lock:
            for path in filter(self._may_run_later, paths):
                self._has_scanned = self._has_scanned and bool(self._running)  # a configuration may name other files
                self._accepted.pop(path, None)
                with suppress(OSError):
                    if state := self._state_of(path, (self._root / path).lstat()):
                        self._accepted[path] = state

    def take_report(self) -> list[str]:
        """Return a line for each file reverted since the last call."""
        with self._lock:
            lines, self._report = self._report, []
        return lines

    def is_guarded(self, path: str) -> bool:
        """Return whether writing to a path needs the user's permission. A HEAD makes a folder a repository."""
        parts = path.split("/")
        if self.runs_later(path) or (parts[-1] == "HEAD" and ".git" not in parts):
            return True
        above = (self._root.joinpath(*parts[:end]) for end in range(len(parts)))
        return any(os.path.isdir(folder / "objects") and os.path.isdir(folder / "refs") for folder in above)  # noqa: PTH112 - Path's raise where nobody may look

    def runs_later(self, path: str) -> bool:
        """Return whether a path, or a folder above it, is guarded or named in a repository's configuration."""
        if not self._has_scanned:  # no program has run yet
            with self._lock:
                if not self._has_scanned:  # nor meanwhile
                    self._accept_all()
        return self._may_run_later(path)

    def _may_run_later(self, path: str) -> bool:
        parts = path.casefold().split("/")
        tops = ("/".join(parts[:end]) for end in range(1, len(parts) + 1))
        return self.names.runs_later(path) or not self._configured.isdisjoint(tops)

    # Scanning ----------------------------------------------------------------------------------------------------

    def _accept_all(self) -> None:
        """Accept every guarded file as it is, and determine what programs may only read."""
        self._unreadable, self._restores_permissions = {}, False
        if not self.enforced:
            self._program.open_folders()
        self._existing_hidden = {path for path in self._hidden.values() if os.path.lexists(self._root / path)}
        found = self._accept_found()
        configured = {path.casefold() for path in self._configured_paths(found)}
        if configured != self._configured:  # these files are guarded, too
            self._configured = configured
            found = self._accept_found()
        hooks = [path_in(git_dir, "hooks") for git_dir in self._git_dirs - self._made_paths]
        paths = {*filter(None, map(self._read_only_path, found)), *(p for p in hooks if os.path.isdir(self._root / p))}  # noqa: PTH112 - as above
        self.read_only = tuple(sorted(paths, key=lambda path: (path.count("/"), path))[:_MAX_READ_ONLY_PATHS])
        self._has_scanned = True

    def _accept_found(self) -> dict[str, os.stat_result]:
        """Accept the guarded files that a scan finds, and return them."""
        found = self._scan()
        states = {path: self._state_of(path, status) for path, status in found.items()}
        self._accepted = {path: state for path, state in states.items() if state}
        self._unreadable |= {path: stamp_of(found[path]) for path, state in states.items() if not state}
        return found

    def _configured_paths(self, found: Iterable[str]) -> Iterator[str]:
        """Yield the paths that the configuration of the user's repositories names: included files, and hooks."""
        git_dirs = self._git_dirs - self._made_paths
        # Hooks are relative to the top of the work tree, also to that of a submodule or another work tree.
        tops = {posixpath.dirname(path) for path in (*git_dirs, *found) if posixpath.basename(path) == ".git"}
        files = [path_in(git_dir, name) for git_dir in git_dirs for name in _GIT_FILES]
        self._included = set()
        for file in files:
            config = None
            with suppress(OSError, ValueError):  # missing, or no file can have this name
                config = self._state_of(file, (self._root / file).lstat())
            for is_included, value in guarded_names.paths_in_config((config and config.data) or b""):
                for base in [posixpath.dirname(file)] if is_included else tops | git_dirs:
                    path = os.path.relpath(self._root / base / os.path.expanduser(value), self._root)  # noqa: PTH111 - as text
                    if path.split("/")[0] == "..":
                        continue
                    if is_included and path not in self._included:
                        self._included.add(path)
                        files.append(path)  # read later in this loop
                    if path == "." or any(f"{git_dir}/".startswith(f"{path}/") for git_dir in git_dirs):
                        # If this whole folder were guarded, git could write nothing there.
                        yield from (posixpath.normpath(path_in(path, hook)) for hook in guarded_names.HOOKS)
                    else:
                        yield path

    def _read_only_path(self, path: str) -> str:
        """Return the path to make read-only for a guarded file, or '' in a repository made by a program."""
        git_dir = self._git_dir_of(path)
        if git_dir is not None:
            if git_dir in self._made_paths:
                return ""
            hooks = path_in(git_dir, "hooks")
            return hooks if path.startswith(f"{hooks}/") else path
        parts = path.split("/")
        tops = ("/".join(parts[:end]) for end in range(1, len(parts) + 1))
        top = next((top for top in tops if self.names.match(top) or top.casefold() in self._configured), path)
        return "" if top in self._made_paths else top

    def _git_dir_of(self, path: str) -> str | None:
        """Return the innermost repository that has this file as its configuration, hook or info."""
        outer = (git_dir for git_dir in self._git_dirs if path.startswith(f"{git_dir}/") or not git_dir)
        git_dir = max(outer, key=len, default=None)
        inner_path = path[len(git_dir) + bool(git_dir) :] if git_dir is not None else ""
        is_of_git = inner_path in _GIT_FILES or inner_path.startswith(("hooks/", "info/")) or inner_path == "hooks"
        return git_dir if is_of_git else None

    def _scan(self) -> dict[str, os.stat_result]:
        """Return the existing guarded files. Also record the repositories."""
        found: dict[str, os.stat_result] = {}
        self._git_dirs = set()
        pending, scanned = deque([("", False)]), 0  # folders, and whether all in them is guarded
        while pending and scanned < MAX_SCANNED_ENTRIES:
            folder, all_guarded = pending.popleft()
            listing = self._listing(folder)
            entries = listing.names
            scanned += len(entries)
            is_dot_git = folder.rpartition("/")[2].casefold() == ".git"
            if is_dot_git or entries.keys() >= _REPOSITORY or entries.keys() >= _WORKTREE:
                self._git_dirs.add(folder)
                self._scan_git(folder, entries, found)
            may_match = all_guarded or not folder or bool(self._configured) or self.names.may_match_in(folder)
            may_match = may_match or any(path.rpartition("/")[0] == folder.casefold() for path in self._hidden)
            for name in entries if may_match else listing.relevant:
                path = path_in(folder, name)
                if is_draft(path) or path in self._existing_hidden:
                    continue
                is_guarded = (
                    all_guarded
                    or name.casefold() in self.names.anywhere
                    or (may_match and (self.names.match(path) or path.casefold() in self._configured))
                    or path.casefold() in self._hidden
                )
                if not entries[name] or (self.enforced and path in self._program.paths):  # large, and already read-only
                    if is_guarded or name.casefold() == ".git":
                        self._add(path, found)
                elif not is_dot_git or name in ("modules", "worktrees"):
                    pending.append((path, is_guarded))
        for path in self._included:  # maybe in a part of a repository that holds nothing else of interest
            self._add(path, found)
        return found

    def _scan_git(self, git_dir: str, entries: Mapping[str, bool], found: dict[str, os.stat_result]) -> None:
        """Add the files of a repository that make git run programs."""
        for name, is_folder in entries.items():
            if name == "hooks" and is_folder:
                for hook in self._listing(path_in(git_dir, name)).names:
                    if not hook.endswith(".sample"):
                        self._add(path_in(git_dir, f"{name}/{hook}"), found)
            elif name in _GIT_FILES or name == "hooks":
                self._add(path_in(git_dir, name), found)
        self._add(path_in(git_dir, "info/attributes"), found)
        logs = self._listing(path_in(git_dir, "logs")).names if entries.get("logs") else {}  # even if unreadable
        for name in (*entries, *(f"logs/{name}" for name in logs if name == "HEAD")):
            # through a link, the user's next commit would write elsewhere
            if os.path.islink(self._root / git_dir / name):  # noqa: PTH114 - Path's raise where nobody may look
                self._add(path_in(git_dir, name), found)

    def _add(self, path: str, found: dict[str, os.stat_result]) -> None:
        with suppress(OSError):
            found[path] = (self._root / path).lstat()

    def _listing(self, folder: str) -> _Listing:
        """List a folder, or return an empty listing if it is unreadable."""
        try:
            stamp = stamp_of((self._root / folder).lstat())
            if (last := self._listings.get(folder)) and last.stamp == stamp:
                return last
            if not os.access(self._root / folder, os.R_OK | os.X_OK):
                self._make_readable(folder, stamp)
            with self._open_folder(folder) as descriptor, os.scandir(descriptor) as entries:
                names = {entry.name: entry.is_dir(follow_symlinks=False) for entry in entries}
        except OSError:
            return _Listing(None, {}, ())
        relevant = {".git", *self.names.anywhere}
        listing = _Listing(stamp, names, [n for n, is_dir in names.items() if is_dir or n.casefold() in relevant])
        if time.time_ns() - stamp[4] > _RACY_NS:
            self._listings[folder] = listing
        return listing

    def _make_readable(self, path: str, stamp: Stamp) -> None:
        """Restore access to an unreadable path with this stamp. Raises OSError.

        Before programs run, record its stamp instead: a path that the user made unreadable stays so.
        """
        if not self._restores_permissions:
            self._unreadable[path] = stamp
        elif self._unreadable.get(path) != stamp:
            restore_access(None, self._root / path)

    def _state_of(self, path: str, status: os.stat_result) -> _FileState | None:
        """Return the state of a path with this status, or None for a folder, or a missing or unreadable file."""
        stamp, kind = stamp_of(status), stat.S_IFMT(status.st_mode)
        accepted = self._accepted.get(path)
        if accepted and accepted.stamp == stamp:
            return accepted
        folder, _, name = path.rpartition("/")
        if kind == stat.S_IFDIR:
            return None
        with suppress(OSError), self._open_folder(folder) as parent:
            if kind == stat.S_IFLNK:
                return _FileState(stamp, kind, os.fsencode(os.readlink(name, dir_fd=parent)))
            if kind != stat.S_IFREG:  # a pipe: a program at its other end would answer
                return _FileState(stamp, kind, None)
            flags, mode = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, status.st_mode & 0o777
            with os.fdopen(os.open(name, flags, dir_fd=parent), "rb") as file:
                data = file.read(_MAX_RESTORABLE_BYTES + 1)
                if len(data) <= _MAX_RESTORABLE_BYTES:
                    return _FileState(stamp, mode, data)
                # A digest tells apart files of the same size. If there is nothing to compare, the size will do.
                may_compare = accepted.stamp[2] == status.st_size if accepted else not self._restores_permissions
                of_program = any(Path(path).is_relative_to(place) for place in self._program.paths)
                if self.enforced or not may_compare or not (of_program or status.st_size <= _MAX_DIGEST_BYTES):
                    return _FileState(stamp, mode, None, str(status.st_size).encode())
                file.seek(0)
                return _FileState(stamp, mode, None, hashlib.file_digest(file, "sha256").digest())
        return None

    # Restoring --------------------------------------------------------------------------------------------------

    def _revert(self) -> None:
        """Bring everything that programs have changed back to its allowed state."""
        git_dirs_before, self._restores_permissions = self._git_dirs, True
        if not self.enforced:
            self._report += self._program.restore()
        found = self._scan()
        self._made_paths = (self._made_paths | (self._git_dirs - git_dirs_before)) & {*self._git_dirs, *found}
        for path in sorted(found.keys() | self._accepted.keys()):
            self._revert_file(path, found.get(path))
        for path in {*self._hidden.values()} - self._existing_hidden:  # folders made in the place of a missing file
            for folder, _, _ in os.walk(self._root / path, topdown=False):
                above, _, name = os.path.relpath(folder, self._root).rpartition("/")
                with suppress(OSError), self._open_folder(above) as parent:
                    os.rmdir(name, dir_fd=parent)

    def _revert_file(self, path: str, status: os.stat_result | None) -> None:
        """Bring a path with this status, or a missing path, back to its allowed state."""
        accepted, present = self._accepted.get(path), None
        if status is not None:
            present = self._state_of(path, status)
            if present is None and stat.S_ISREG(status.st_mode):
                with suppress(OSError):
                    self._make_readable(path, stamp_of(status))
                    present = self._state_of(path, (self._root / path).lstat())
            if present is None:
                return
        if present and accepted and present.is_same(accepted):
            return
        by_user = self.enforced and self._read_only_path(path) in self.read_only
        is_removed_by_maker = not present and self._git_dir_of(path) in self._made_paths
        allowed = present if by_user or is_removed_by_maker else self._allowed_state(path, present, accepted)
        if allowed is not present:
            self._replace(path, present, allowed)
        elif present:
            self._accepted[path] = present
        else:
            self._accepted.pop(path, None)

    def _allowed_state(self, path: str, present: _FileState | None, accepted: _FileState | None) -> _FileState | None:
        """Return the allowed state of a path whose state is `present`: the same, another, or none."""
        if present is None:
            return accepted
        folder, _, name = path.rpartition("/")
        data = present.data if present.data is not None and present.mode != stat.S_IFLNK else b"\0"
        is_made = self._git_dir_of(path) in self._made_paths
        if name.casefold() == ".git" or (is_made and name == "commondir"):
            target = os.fsdecode(data).removeprefix("gitdir:").strip()
            if "\0" in target or os.path.relpath(self._root / folder / target, self._root) not in self._git_dirs:
                return accepted
            if not accepted:
                self._made_paths.add(path)
            return present
        if is_made and name == "config":
            reduced = guarded_names.harmless_config(data)
            return present if reduced == data else _FileState(present.stamp, 0o644, reduced)
        if (
            path == ".gitmodules"
            and not accepted
            and guarded_names.harmless_config(data, guarded_names.HARMLESS_IN_GITMODULES) == data
        ):
            return present
        # harmless without drivers in the configuration
        return present if is_made and name == "attributes" else accepted

    def _replace(self, path: str, present: _FileState | None, allowed: _FileState | None) -> None:
        """Restore or remove a file, and report it. Removed folder permissions are restored before a second attempt."""
        folder, _, name = path.rpartition("/")
        accepted = self._accepted.pop(path, None)
        copy_note = self._copy_to_quarantine(name, present) if present else ""
        try:
            try:
                self._put(path, present, allowed)
            except PermissionError:
                with suppress(OSError):
                    restore_access(None, self._root / folder)
                self._put(path, present, allowed)
        except OSError as error:
            if present:
                self._report.append(f"{path} would run as the user later; it cannot be put back: {error.strerror}.")
            if accepted:  # its folder may come back, as while a program moves it
                self._accepted[path] = accepted
            return
        outcome = "restored" if allowed is accepted else "reduced to harmless entries"
        if allowed is None or allowed.data is None:
            outcome = "removed" if present else "deleted by a program, and is too large to be restored"
        self._report.append(f"{path} was {outcome}{copy_note}.")

    def _put(self, path: str, present: _FileState | None, allowed: _FileState | None) -> None:
        """Write the allowed state of a file, or remove the present file. Raises OSError."""
        folder, _, name = path.rpartition("/")
        with self._open_folder(folder) as parent:
            if allowed and allowed.data is not None:
                replace_in(parent, name, allowed.data, allowed.mode)
                if state := self._state_of(path, os.stat(name, dir_fd=parent, follow_symlinks=False)):
                    self._accepted[path] = state
            elif present:
                os.unlink(name, dir_fd=parent)

    def _copy_to_quarantine(self, name: str, state: _FileState) -> str:
        """Copy a file that is to be removed. Return a note on the path of the copy, or on why there is none."""
        if self._quarantine is None:
            return ""
        name_end = os.fsdecode(os.fsencode(name)[-_MAX_COPY_NAME_BYTES:])
        target = self._quarantine / f"{time.strftime('%Y%m%d-%H%M%S')}-{os.urandom(2).hex()}-{name_end}"
        try:
            self._quarantine.mkdir(mode=0o700, parents=True, exist_ok=True)
            with os.fdopen(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600), "wb") as copy:
                copy.write(state.data if state.data is not None else b"(more than can be kept)\n")
        except OSError as error:  # the removal protects the user; the copy is a courtesy
            return f"; the program's version could not be kept: {error.strerror}"
        return f"; the program's version is in {target}"
