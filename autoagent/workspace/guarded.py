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
import re
import stat
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, suppress
from pathlib import Path

from autoagent.core.durable_files import held, is_draft, replace_in
from autoagent.core.frozen import dataclass

PATTERNS = (
    ".gitmodules", ".gitconfig", ".envrc", ".husky/", ".pre-commit-config.yaml",
    ".vscode/", ".idea/", ".zed/", ".devcontainer/", ".vimrc", ".exrc", ".nvimrc", ".nvim.lua", ".dir-locals.el",
    ".emacs", ".emacs.d/", ".claude/", ".codex/", ".cursor/", ".gemini/", ".mcp.json",
    ".hg/hgrc", ".jj/repo/config.toml", ".helix/", ".fleet/", ".nova/", ".lvimrc", ".opencode/", "opencode.json",
    ".aider.conf.yml", ".mise.toml", "mise.toml", ".mvn/", ".bundle/config",
    ".npmrc", ".yarnrc", ".yarnrc.yml", ".pnpmfile.cjs", ".cargo/", ".bazelrc",
    ".mise/", "mise/", ".config/mise/", ".config/mise.toml", ".mise.local.toml", "mise.local.toml", "bunfig.toml",
    "uv.toml", "rust-toolchain", "rust-toolchain.toml", "tools/bazel", ".bazeliskrc", ".dir-locals-2.el",
    "lefthook.yml", "lefthook.yaml", "lefthook-local.yml", ".lefthook.yml", ".lefthook-local.yml", ".overcommit.yml",
    ".kiro/", ".windsurf/", ".roo/", ".continue/", ".amazonq/", ".qwen/", ".junie/", ".trae/", "crush.json",
    ".crush.json", "sitecustomize.py", "usercustomize.py", ".pdbrc", ".Rprofile", ".pryrc", ".irbrc", ".gdbinit",
    ".lldbinit", ".Renviron", ".ghci", ".ocamlinit", ".iex.exs", ".erlang", ".octaverc", "startup.m",
    "jupyter_config.py", "jupyter_server_config.py", "jupyter_lab_config.py", "jupyter_notebook_config.py",
    ".profile", ".bash_profile", ".bash_login", ".bash_logout", ".bash_aliases", ".bashrc", ".zshenv", ".zprofile",
    ".zshrc", ".zlogin", ".zlogout", ".kshrc", ".cshrc", ".tcshrc", ".login", ".inputrc", ".xprofile", ".xinitrc",
    ".xsession", ".xsessionrc", ".pam_environment", ".tmux.conf", ".screenrc", ".ssh/", ".local/bin/",
    ".local/share/applications/", ".local/share/systemd/", ".config/autostart/", ".config/fish/", ".config/git/",
    ".config/systemd/", ".config/environment.d/", ".hgrc", ".config/hg/", ".config/jj/", ".vim/", ".config/nvim/",
    ".config/emacs/", ".config/tmux/", ".config/zsh/", ".config/nushell/", ".bashrc.d/", ".bash_completion",
    ".local/share/bash-completion/", ".local/lib/", ".ipython/", ".gnupg/", ".docker/config.json", ".kube/config",
    ".config/Code/", ".docker/cli-plugins/", ".oh-my-zsh/", ".p10k.zsh", ".config/starship.toml", ".xonshrc",
    ".config/kitty/", ".config/alacritty/", ".config/wezterm/", ".wezterm.lua", ".lessfilter", ".mailcap",
    ".config/gh/", ".aws/config", ".config/i3/", ".config/sway/", ".config/hypr/", ".config/plasma-workspace/",
    ".config/direnv/", "**/ai_settings.yaml", "**/prompt_settings.yaml", "**/plugins_config.yaml", "**/azure.yaml",
)  # fmt: skip
"""At the top of the workspace. The last line holds the program's own files, at any depth: they shape later runs."""

MAX_SCANNED_ENTRIES = 100_000  # entries of the workspace, level by level
_MAX_KEPT_BYTES = 1 << 20  # of one restorable file
_MAX_DIGEST_BYTES = 32 << 20  # of one file that undo restores; for this program's own files there is no limit
_RACY_NS = 50_000_000  # a folder changed more recently may change again without a new time
_MAX_READ_ONLY_PLACES = 64  # each delays every start of a program by 0.05 ms
_GIT_FILES = frozenset({"config", "config.worktree", "commondir"})
_REPOSITORY, _WORKTREE = {"HEAD", "objects", "refs"}, {"HEAD", "commondir"}  # their typical entries

Stamp = tuple[int, int, int, int, int]
"""Inode, mode, size and both times of a file: as long as they stay the same, so does the content."""


def stamp_of(status: os.stat_result) -> Stamp:
    """Return the stamp of a file with this status."""
    return status.st_ino, status.st_mode, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def place_in(folder: str, name: str) -> str:
    """Return the path of a name in a folder, '' being the root."""
    return f"{folder}/{name}" if folder else name


def program_in(root: Path) -> Iterator[str]:
    """Yield the parts of this program inside a workspace: its interpreter's folders, and the packages it has loaded.

    If the agent's programs changed these, they would run outside the sandbox as soon as another module is imported.
    """
    files = {getattr(module, "__file__", None) or "" for name, module in [*sys.modules.items()] if "." not in name}
    folder_of = functools.cache(os.path.realpath)  # hundreds of modules lie in a few folders
    places = {sys.prefix, sys.base_prefix, os.path.realpath(sys.prefix), os.path.realpath(sys.base_prefix)}
    for file in files - {""}:
        folder, name = os.path.split(file.removesuffix("/__init__.py"))
        place = f"{folder_of(folder)}/{name}"
        is_link = os.path.islink(place)  # noqa: PTH114 - a Path raises where the user may not look
        places.add(os.path.realpath(place) if is_link else place)
    top = f"{str(root).rstrip('/')}/"
    return (os.path.relpath(place, root) for place in sorted(places) if place.startswith(top) and place != top)


class GuardedNames:
    """Match PATTERNS with the user's `changes` (`!NAME` removes a name). Raises ValueError for a useless change."""

    def __init__(self, changes: Iterable[str] = ()) -> None:
        patterns = dict.fromkeys(PATTERNS)
        for change in changes:
            if change.startswith("!") and change[1:] not in patterns:
                raise ValueError(f"protect: {change!r} matches none of the usual names; docs/security.md lists them.")
            if change.startswith(("/", "~")) or ".." in change.split("/"):
                raise ValueError(f"protect: {change!r} is not a path relative to the top of the workspace.")
            if change.startswith("!"):
                del patterns[change[1:]]
            else:
                patterns[change] = None
        self.anywhere = frozenset(match[1].casefold() for match in map(_ANYWHERE.fullmatch, patterns) if match)
        self._at_top = [pattern for pattern in patterns if not _ANYWHERE.fullmatch(pattern)]
        tops = {pattern.partition("/")[0].casefold() for pattern in self._at_top}
        self._tops = None if any(set(top) & set("*?") for top in tops) else tops

    @functools.cached_property
    def _pattern(self) -> re.Pattern[str]:
        """Compile the names at the first place that may be one: it takes longer than all else here at the start."""
        return re.compile("|".join(map(_regex, self._at_top)) or r"(?!)", re.IGNORECASE)

    def match(self, where: str) -> bool:
        """Return whether a place, relative to the root, is guarded or in a guarded folder."""
        if self.anywhere.intersection(where.casefold().split("/")):
            return True
        return self.may_match_in(where) and bool(self._pattern.match(where))

    def may_match_in(self, where: str) -> bool:
        """Return whether a place may be or contain a guarded file, ignoring names guarded `anywhere`."""
        return self._tops is None or where.partition("/")[0].casefold() in self._tops

    def runs_later(self, where: str) -> bool:
        """Return whether a path is guarded, or makes git run programs."""
        return self.match(where) or bool(_GIT_CONFIG_FILE.match(where))


_ANYWHERE = re.compile(r"\*\*/([^*?/]+)")
_GIT_CONFIG_FILE = re.compile(
    r"(?:.*/)?\.git(?:/(?:.*/)?(?:config|config\.worktree|commondir|hooks/.*|info/attributes))?\Z", re.IGNORECASE
)


def _regex(pattern: str) -> str:
    parts = re.split(r"(\*\*/|\*\*|\*|\?)", pattern.rstrip("/"))
    wildcards = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    return f"(?:{''.join(wildcards.get(part, re.escape(part)) for part in parts)})(?:/|\\Z)"


# The configuration of a repository -------------------------------------------------------------------------------

# Entries that name neither a program nor another path, by section. Only unquoted lines in git's own format count.
_HARMLESS = {
    "core": "repositoryformatversion|filemode|bare|logallrefupdates|ignorecase|precomposeunicode|symlinks|autocrlf|eol",
    "user": "name|email",
    "init": "defaultbranch",
    "extensions": "objectformat|refstorage",
    "remote": "url|pushurl|fetch|tagopt",
    "branch": "remote|merge|rebase",
    "submodule": "url|active",
}
_SECTION = re.compile(r'\[([a-z]+)(?: "(?!.*\.\.)[^"\\\]\n]*")?\]', re.IGNORECASE)
_ENTRY = re.compile(r"\s*([a-z]+) = (?!-)([^\"\\#;\x00-\x1f\x7f]*)", re.IGNORECASE)
_UNWRITABLE = tuple(os.strerror(number).encode() for number in (errno.EROFS, errno.EBUSY))
_MODULES = {"submodule": "path|url|branch|ignore|shallow|fetchrecursesubmodules"}  # the same for .gitmodules
_MINIMAL = b"[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = false\n"


def harmless_config(data: bytes, harmless: Mapping[str, str] = _HARMLESS) -> bytes:
    """Return a repository's configuration without the lines that can run programs."""
    kept, section = [], ""
    for line in data.decode("utf-8", "replace").split("\n"):
        if section_match := _SECTION.fullmatch(line):
            section = section_match[1].lower()
        elif entry := _ENTRY.fullmatch(line):
            if not re.fullmatch(harmless.get(section, "(?!)"), entry[1].lower()) or "::" in entry[2]:
                continue
        elif line and not re.match(r"\s*[#;]", line):
            return _MINIMAL  # rather than guess how git reads it
        kept.append(line)
    return "\n".join(kept).encode("utf-8", "replace")


_PATH_ENTRY = re.compile(rb"^\s*(hookspath|path)\s*=\s*\"?([^\"\n]+)", re.IGNORECASE | re.MULTILINE)


# Watching the files --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Kept:
    """Hold an accepted state of a guarded file: stamp, permissions, and content (a link's target, None if too large).

    For anything but a file, `mode` is its type. A file that is too large has a `digest` instead of content.
    """

    stamp: Stamp
    mode: int
    data: bytes | None
    digest: bytes = b""


class GuardedFiles:
    """Watch the guarded files of a workspace while programs run in it. Any thread may use it.

    `opened` opens a folder without following links. The agent's own files are `hidden`: programs cannot reach them, and
    a file put in the place of a missing one is removed. Removed files are moved to the folder `apart`, or deleted if it
    is None. With `enforced`, the sandbox makes the `read_only` places read-only for programs, so that only the user can
    have changed them.
    """

    def __init__(
        self,
        root: Path,
        opened: Callable[[str], AbstractContextManager[int]],
        hidden: Collection[str],
        changes: Iterable[str] = (),
        apart: Path | None = None,
    ) -> None:
        self._program = tuple(program_in(root))
        self.names = GuardedNames((*self._program, *changes))
        self.enforced = False
        self.read_only: tuple[str, ...] = ()
        self._root = root
        self._opened = opened
        self._hidden = {place.casefold(): place for place in hidden}
        self._apart = apart
        self._lock = threading.Lock()
        self._running = 0
        self._known: dict[str, _Kept] = {}
        self._covered: set[str] = set()  # the agent's own places that existed when the programs began
        self._gitdirs: set[str] = set()
        self._own: set[str] = set()  # repositories made by programs, and files leading to them
        self._closed: dict[str, Stamp] = {}  # unreadable before a program ran
        self._restores_permissions = False  # whether to undo a program's change of permissions
        self._named: set[str] = set()  # places in the configuration of the user's repositories
        self._listed: dict[str, tuple[Stamp, Mapping[str, bool]]] = {}
        self._folders: dict[str, list[str]] = {}  # subfolders, and names guarded anywhere
        self._report: list[str] = []
        self._places: dict[str, int] = {}  # open folders of this program, and those above

    def begin(self) -> None:
        """Accept the present files as the user's, unless another program is already running."""
        with self._lock:
            if not self._running:
                self._accept()
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
        """Return a line for each read-only place named in a program's write errors."""
        lines = [line for line in output.splitlines() if line.rstrip().endswith(_UNWRITABLE)]
        return [
            f"{place} could not be written."
            for place in self.read_only
            if any(os.fsencode(place) in line for line in lines)
        ]

    def accept(self, places: Iterable[str]) -> None:
        """Accept the files at these places as the user's, after an allowed change."""
        with self._lock:
            for where in filter(self.names.runs_later, places):
                self._known.pop(where, None)
                with suppress(OSError):
                    if current := self._snapshot(where, (self._root / where).lstat()):
                        self._known[where] = current

    def take_report(self) -> list[str]:
        """Return a line for each file reverted since the last call."""
        with self._lock:
            lines, self._report = self._report, []
        return lines

    def is_guarded(self, where: str) -> bool:
        """Return whether writing to a place needs the user's permission. A HEAD makes a folder a repository."""
        parts = where.split("/")
        if self.names.runs_later(where) or where in self._named:
            return True
        if parts[-1] == "HEAD" and ".git" not in parts:
            return True
        above = (self._root.joinpath(*parts[:end]) for end in range(len(parts)))
        return any(os.path.isdir(folder / "objects") and os.path.isdir(folder / "refs") for folder in above)  # noqa: PTH112 - Path's raise where nobody may look

    # Scanning ----------------------------------------------------------------------------------------------------

    def _accept(self) -> None:
        self._closed, self._restores_permissions = {}, False
        for place in [*self._places]:
            os.close(self._places.pop(place))
        if not self.enforced:
            above = {str(above) for place in self._program for above in (Path(place), *Path(place).parents)}
            for place in sorted(above - {"."}):
                with suppress(OSError):
                    self._places[place] = os.open(self._root / place, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
        self._covered = {place for place in self._hidden.values() if os.path.lexists(self._root / place)}
        found = self._scan()
        self._known = {where: kept for where, status in found.items() if (kept := self._snapshot(where, status))}
        self._closed |= {where: stamp_of(status) for where, status in found.items() if where not in self._known}
        users = self._gitdirs - self._own
        configs = [(gitdir, self._known.get(place_in(gitdir, "config"))) for gitdir in users]
        self._named = {
            posixpath.normpath(posixpath.join(base, os.fsdecode(path).strip()))
            for gitdir, kept in configs if kept
            for _, path in _PATH_ENTRY.findall(kept.data or b"")
            for base in (gitdir, posixpath.dirname(gitdir))  # of included files, and of hooks
        }  # fmt: skip
        hooks = [place_in(gitdir, "hooks") for gitdir in users]
        places = {*filter(None, map(self._read_only_place, found)), *(p for p in hooks if (self._root / p).is_dir())}
        self.read_only = tuple(sorted(places, key=lambda place: (place.count("/"), place))[:_MAX_READ_ONLY_PLACES])

    def _read_only_place(self, where: str) -> str:
        """Return the path to make read-only for a guarded file, or '' in a repository made by a program."""
        gitdir = self._gitdir_of(where)
        if gitdir is not None:
            hooks = place_in(gitdir, "hooks")
            return "" if gitdir in self._own else hooks if where.startswith(f"{hooks}/") else where
        parts = where.split("/")
        tops = ("/".join(parts[:end]) for end in range(1, len(parts) + 1))
        top = next((top for top in tops if self.names.match(top) or top in self._named), where)
        return "" if top in self._own else top

    def _gitdir_of(self, where: str) -> str | None:
        """Return the innermost repository that has this file as its configuration, hook or info."""
        within = (gitdir for gitdir in self._gitdirs if where.startswith(f"{gitdir}/") or not gitdir)
        found = max(within, key=len, default=None)
        rest = where[len(found) + bool(found) :] if found is not None else ""
        return found if rest in _GIT_FILES or rest.startswith(("hooks/", "info/")) or rest == "hooks" else None

    def _scan(self) -> dict[str, os.stat_result]:
        """Return the existing guarded files. Also record the repositories."""
        found: dict[str, os.stat_result] = {}
        self._gitdirs = set()
        queue, scanned = deque([("", False)]), 0
        while queue and scanned < MAX_SCANNED_ENTRIES:
            where, guarded = queue.popleft()
            entries = self._entries(where)
            scanned += len(entries)
            is_dot_git = where.rpartition("/")[2].casefold() == ".git"
            if is_dot_git or entries.keys() >= _REPOSITORY or entries.keys() >= _WORKTREE:
                self._gitdirs.add(where)
                self._scan_git(where, entries, found)
            may_match = guarded or not where or bool(self._named) or self.names.may_match_in(where)
            may_match = may_match or any(place.rpartition("/")[0] == where.casefold() for place in self._hidden)
            for name in entries if may_match else self._folders[where]:
                path = place_in(where, name)
                inner = guarded or name.casefold() in self.names.anywhere
                inner = inner or (may_match and (self.names.match(path) or path in self._named))
                if is_draft(path) or path in self._covered:
                    continue
                inner = inner or path.casefold() in self._hidden
                if not entries[name] or (self.enforced and path in self._program):  # large, and already read-only
                    if inner or name.casefold() == ".git":
                        self._note(path, found)
                elif not is_dot_git or name in ("modules", "worktrees"):
                    queue.append((path, inner))
        return found

    def _scan_git(self, gitdir: str, entries: Mapping[str, bool], found: dict[str, os.stat_result]) -> None:
        """Add the files of a repository that make git run programs."""
        for name, is_folder in entries.items():
            if name in _GIT_FILES or (name == "hooks" and not is_folder):
                self._note(place_in(gitdir, name), found)
            elif name == "hooks":
                for hook in self._entries(place_in(gitdir, name)):
                    if not hook.endswith(".sample"):
                        self._note(place_in(gitdir, f"{name}/{hook}"), found)
        self._note(place_in(gitdir, "info/attributes"), found)
        for name in (*entries, "logs/HEAD"):  # through a link, the user's next commit would write elsewhere
            if (self._root / gitdir / name).is_symlink():
                self._note(place_in(gitdir, name), found)

    def _note(self, where: str, found: dict[str, os.stat_result]) -> None:
        with suppress(OSError):
            found[where] = (self._root / where).lstat()

    def _entries(self, where: str) -> Mapping[str, bool]:
        """Return the names in a folder, and whether each is a folder. Return nothing for an unreadable folder."""
        try:
            stamp = stamp_of((self._root / where).lstat())
            if (known := self._listed.get(where)) and known[0] == stamp:
                return known[1]
            if not os.access(self._root / where, os.R_OK | os.X_OK):
                self._restore_permissions(where, stamp)
            with self._opened(where or ".") as folder, os.scandir(folder) as entries:
                names = {entry.name: entry.is_dir(follow_symlinks=False) for entry in entries}
        except OSError:
            names, stamp = {}, (0, 0, 0, 0, time.time_ns())
        noted = {".git", *self.names.anywhere}
        self._folders[where] = [name for name, is_folder in names.items() if is_folder or name.casefold() in noted]
        if time.time_ns() - stamp[4] > _RACY_NS:
            self._listed[where] = stamp, names
        return names

    def _restore_permissions(self, where: str, stamp: Stamp) -> None:
        """Restore the user's permissions on a path, as a program may remove them to hide its changes."""
        if not self._restores_permissions:
            self._closed[where] = stamp
        elif self._closed.get(where) != stamp:
            with held(None, self._root / where) as (place, status):
                os.chmod(place, stat.S_IMODE(status.st_mode) | stat.S_IRWXU)  # noqa: PTH101 - no path of Python's

    def _snapshot(self, where: str, status: os.stat_result) -> _Kept | None:
        """Return the present state of a file, or None for a folder or a missing file."""
        known = self._known.get(where)
        if known and known.stamp == stamp_of(status):
            return known
        folder, _, name = where.rpartition("/")
        with suppress(OSError), self._opened(folder or ".") as parent:
            if stat.S_ISLNK(status.st_mode):
                return _Kept(stamp_of(status), stat.S_IFLNK, os.fsencode(os.readlink(name, dir_fd=parent)))
            if stat.S_ISREG(status.st_mode):
                flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
                with os.fdopen(os.open(name, flags, dir_fd=parent), "rb") as file:
                    data = file.read(_MAX_KEPT_BYTES + 1)
                    if len(data) <= _MAX_KEPT_BYTES:
                        return _Kept(stamp_of(status), status.st_mode & 0o777, data)
                    digest = str(status.st_size).encode()
                    if not self.enforced and (
                        known.stamp[2] == status.st_size if known else not self._restores_permissions
                    ):
                        of_program = any(Path(where).is_relative_to(place) for place in self._program)
                        if of_program or status.st_size <= _MAX_DIGEST_BYTES:
                            file.seek(0)
                            digest = hashlib.file_digest(file, "sha256").digest()
                return _Kept(stamp_of(status), status.st_mode & 0o777, None, digest)
            if not stat.S_ISDIR(status.st_mode):  # a pipe: a program at its other end would answer
                return _Kept(stamp_of(status), stat.S_IFMT(status.st_mode), None)
        return None

    # Restoring --------------------------------------------------------------------------------------------------

    def _restore_program(self) -> None:
        """Move this program's own folders back, and move anything in their place aside."""
        for place, descriptor in self._places.items():  # parents come first
            path = self._root / place
            with suppress(OSError):
                if os.path.samestat(os.fstat(descriptor), path.lstat()):
                    continue
            there, spare = Path(f"/proc/self/fd/{descriptor}").readlink(), f"{path}.{os.urandom(3).hex()}"
            try:
                for folder in (*reversed(there.parents), there, *reversed(path.parents)):
                    if folder.is_relative_to(self._root) and not os.access(folder, os.W_OK | os.X_OK):
                        self._restore_permissions(os.path.relpath(folder, self._root), (0, 0, 0, 0, 0))
                path.parent.mkdir(parents=True, exist_ok=True)
                with suppress(FileNotFoundError):  # deleted meanwhile
                    there.rename(f"{spare}.own")
                with suppress(FileNotFoundError):
                    path.rename(spare)
                with suppress(FileNotFoundError):
                    Path(f"{spare}.own").rename(path)
                self._report.append(f"{place} was restored; its replacement was moved to {spare}.")
            except OSError as error:
                self._report.append(f"{place} would run as the user later; it cannot be removed: {error.strerror}.")

    def _revert(self) -> None:
        before, self._restores_permissions = self._gitdirs, True
        self._restore_program()
        found = self._scan()
        self._own = (self._own | (self._gitdirs - before)) & {*self._gitdirs, *found}
        for where in sorted(found.keys() | self._known.keys()):
            known, now = self._known.get(where), None
            if where in found and (now := self._snapshot(where, found[where])) is None:
                if stat.S_ISREG(found[where].st_mode):
                    with suppress(OSError):
                        self._restore_permissions(where, stamp_of(found[where]))
                        now = self._snapshot(where, (self._root / where).lstat())
                if now is None:
                    continue
            if now and known and (known.mode, known.data, known.digest) == (now.mode, now.data, now.digest):
                continue
            by_user = self.enforced and self._read_only_place(where) in self.read_only
            stays = by_user or (not now and self._gitdir_of(where) in self._own)
            target = now if stays else self._target(where, now, known)
            if target is not now:
                self._replace(where, now, target)
            elif now:
                self._known[where] = now
            else:
                self._known.pop(where, None)
        for place in self._hidden.values():
            for folder, _, _ in os.walk(self._root / place, topdown=False) if place not in self._covered else ():
                above, _, name = os.path.relpath(folder, self._root).rpartition("/")
                with suppress(OSError), self._opened(above or ".") as parent:
                    os.rmdir(name, dir_fd=parent)  # made in the place of a missing file

    def _target(self, where: str, now: _Kept | None, known: _Kept | None) -> _Kept | None:
        """Return the allowed state of a path now in state `now`: the same, another, or none."""
        if now is None:
            return known
        folder, _, name = where.rpartition("/")
        data = now.data if now.data is not None and now.mode != stat.S_IFLNK else b"\0"
        is_own = self._gitdir_of(where) in self._own
        if name.casefold() == ".git" or (is_own and name == "commondir"):
            target = os.fsdecode(data).removeprefix("gitdir:").strip()
            if "\0" in target or os.path.relpath(self._root / folder / target, self._root) not in self._gitdirs:
                return known
            self._own |= set() if known else {where}
            return now
        if is_own and name == "config":
            reduced = harmless_config(data)
            return now if reduced == data else _Kept(now.stamp, 0o644, reduced)
        if where == ".gitmodules" and not known and harmless_config(data, _MODULES) == data:
            return now
        return now if is_own and name == "attributes" else known  # harmless without drivers in the configuration

    def _replace(self, where: str, now: _Kept | None, target: _Kept | None) -> None:
        folder, _, name = where.rpartition("/")
        known, copy_note = self._known.pop(where, None), ""
        for may_retry in (True, False):
            try:
                with self._opened(folder or ".") as parent:
                    copy_note = copy_note or (self._keep_copy(name, now) if now else "")
                    if target and target.data is not None:
                        replace_in(parent, name, target.data, target.mode)
                        if fresh := self._snapshot(where, os.stat(name, dir_fd=parent, follow_symlinks=False)):
                            self._known[where] = fresh
                    elif now:
                        os.unlink(name, dir_fd=parent)
                break
            except OSError as error:
                if may_retry and isinstance(error, PermissionError):
                    with suppress(OSError):
                        self._restore_permissions(folder, (0, 0, 0, 0, 0))
                elif now:
                    self._report.append(f"{where} would run as the user later; it cannot be removed: {error.strerror}.")
                if not may_retry:
                    return
        gone = not target or target.data is None
        outcome = "removed" if gone else "restored" if target is known else "reduced to harmless entries"
        self._report.append(f"{where} was {outcome}{copy_note}.")

    def _keep_copy(self, name: str, now: _Kept) -> str:
        """Keep a copy of a file to be removed. Return a note on its path. Raises OSError."""
        if self._apart is None:
            return ""
        self._apart.mkdir(mode=0o700, parents=True, exist_ok=True)
        target = self._apart / f"{time.strftime('%Y%m%d-%H%M%S')}-{os.urandom(2).hex()}-{name}"
        with os.fdopen(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600), "wb") as copy:
            copy.write(now.data if now.data is not None else b"(more than can be kept)\n")
        return f"; the program's version is in {target}"
