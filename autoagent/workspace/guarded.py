"""Files of a workspace that later run as the user by themselves: git, editors, shells and package managers read them.

An agent that may write them has only to wait for the user's next `git status`. So commands write them only once the
user has allowed that very call, and a Watch reverts changes by programs: old content is restored, new files are kept
apart. A repository that the agent makes itself may have a configuration that runs nothing.

Decided by names, and for git by what makes a folder a repository. What a person starts himself (a Makefile, tests,
scripts, a virtual environment) is the agent's work, and is not guarded. The user's `protect` adds to the names.

Not covered: what is read while the program that wrote it still runs; programs in the workspace that a guarded file
names (`core.fsmonitor = ./tool`), but for hooks and included configuration; folders beyond MOST_LOOKED_AT entries.
"""

from __future__ import annotations

import errno
import os
import posixpath
import re
import stat
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from autoagent.core.durable_files import is_draft, replace_in

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
"""At the top of the workspace. The last line is the program's own, anywhere: what shapes later runs there."""

MOST_LOOKED_AT = 100_000  # entries of the workspace, those near its top first
_MOST_KEPT = 1 << 20  # bytes of a file that can be restored
_RACY_NS = 50_000_000  # a folder that changed more lately may change again and look the same
_MOST_READ_ONLY = 64  # places; each takes a twentieth of a millisecond at each start of a program
_OF_GIT = frozenset({"config", "config.worktree", "commondir"})
_REPOSITORY, _WORKTREE = {"HEAD", "objects", "refs"}, {"HEAD", "commondir"}  # what makes a folder one

Stamp = tuple[int, int, int, int, int]


class GuardedNames:
    """The names that are guarded: PATTERNS with the user's `changes`, of which `!NAME` takes one of them out.

    Raises ValueError for a change that could never mean anything.
    """

    def __init__(self, changes: Iterable[str] = ()) -> None:
        patterns = dict.fromkeys(PATTERNS)
        for change in changes:
            if change.startswith("!") and change[1:] not in patterns:
                raise ValueError(f"protect: {change!r} takes out nothing; docs/security.md has the names.")
            if change.startswith(("/", "~")) or ".." in change.split("/"):
                raise ValueError(f"protect: {change!r} is no path relative to the top of the workspace.")
            if change.startswith("!"):
                del patterns[change[1:]]
            else:
                patterns[change] = None
        self.anywhere = frozenset(found[1].casefold() for found in map(_ANYWHERE.fullmatch, patterns) if found)
        at_top = [pattern for pattern in patterns if not _ANYWHERE.fullmatch(pattern)]
        self._pattern = re.compile("|".join(map(_regex, at_top)) or r"(?!)", re.IGNORECASE)
        tops = {pattern.partition("/")[0].casefold() for pattern in at_top}
        self._tops = None if any(set(top) & set("*?") for top in tops) else tops

    def match(self, where: str) -> bool:
        """Return whether a place, relative to the root, is one of them or lies in one."""
        if self.anywhere.intersection(where.casefold().split("/")):
            return True
        return self.may_match_in(where) and bool(self._pattern.match(where))

    def may_match_in(self, where: str) -> bool:
        """Return whether some could be at or beneath a place but for those that are guarded `anywhere`."""
        return self._tops is None or where.partition("/")[0].casefold() in self._tops

    def runs_later(self, where: str) -> bool:
        """Return whether a place is one of them, or makes git run programs."""
        return self.match(where) or bool(_TELLS_GIT.match(where))


_ANYWHERE = re.compile(r"\*\*/([^*?/]+)")
_TELLS_GIT = re.compile(
    r"(?:.*/)?\.git(?:/(?:.*/)?(?:config|config\.worktree|commondir|hooks/.*|info/attributes))?\Z", re.IGNORECASE
)


def _regex(pattern: str) -> str:
    parts = re.split(r"(\*\*/|\*\*|\*|\?)", pattern.rstrip("/"))
    meant = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    return f"(?:{''.join(meant.get(part, re.escape(part)) for part in parts)})(?:/|\\Z)"


# The configuration of a repository -------------------------------------------------------------------------------

# What names no program and leads nowhere else, by section; a line as git itself writes it, in which nothing is quoted.
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
_MODULES = {"submodule": "path|url|branch|ignore|shallow|fetchrecursesubmodules"}  # of these, in .gitmodules
_MINIMAL = b"[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = false\n"


def harmless_config(data: bytes, harmless: Mapping[str, str] = _HARMLESS) -> bytes:
    """Return the lines of a repository's configuration that run no program. All of them if none does."""
    kept, section = [], ""
    for line in data.decode("utf-8", "replace").split("\n"):
        if found := _SECTION.fullmatch(line):
            section = found[1].lower()
        elif entry := _ENTRY.fullmatch(line):
            if not re.fullmatch(harmless.get(section, "(?!)"), entry[1].lower()) or "::" in entry[2]:
                continue
        elif line and not re.match(r"\s*[#;]", line):
            return _MINIMAL  # what git reads in it is not for us to guess
        kept.append(line)
    return "\n".join(kept).encode("utf-8", "replace")


_NAMES_PLACE = re.compile(rb"^\s*(hookspath|path)\s*=\s*\"?([^\"\n]+)", re.IGNORECASE | re.MULTILINE)


# What becomes of them --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Kept:
    """A guarded file as it may be: its stamp, its permissions and its content (None: too much; a link's target)."""

    stamp: Stamp
    mode: int
    data: bytes | None


class Watch:
    """Looks after the guarded files of a workspace while programs run in it. Any thread may use it.

    `opened` opens a folder in it without following links. `is_hidden` tells what belongs to the agent itself: what is
    there is out of reach of programs, and what they put at the top in the place of something missing is taken away.
    What is taken away is kept in the folder `apart`. Without that it is deleted. With `holds`, programs find the
    `read_only` places as the user has them, so that only the user can have changed these.
    """

    def __init__(
        self,
        root: Path,
        opened: Callable[[str], AbstractContextManager[int]],
        is_hidden: Callable[[str], bool],
        changes: Iterable[str] = (),
        apart: Path | None = None,
    ) -> None:
        self.names = GuardedNames(changes := tuple(changes))
        self._made_with = root, opened, is_hidden, changes, apart
        self.holds = False
        self.read_only: tuple[str, ...] = ()
        self._root = root
        self._opened = opened
        self._is_hidden = is_hidden
        self._apart = apart
        self._lock = threading.Lock()
        self._running = 0
        self._known: dict[str, _Kept] = {}
        self._covered: set[str] = set()  # the agent's own at the top that was there when the programs began
        self._gitdirs: set[str] = set()
        self._own: set[str] = set()  # repositories that programs have made, and files that lead to one
        self._closed: dict[str, Stamp] = {}  # what nobody could read before a program ran
        self._mends = False  # whether what a program has closed is opened again
        self._named: set[str] = set()  # places that the configuration of the user's repositories names
        self._listed: dict[str, tuple[Stamp, Mapping[str, bool]]] = {}
        self._folders: dict[str, list[str]] = {}  # in each, with files to be noted wherever they are
        self._told: list[str] = []

    def __reduce__(self) -> tuple[object, ...]:
        """Travel to another process as new."""
        return Watch, self._made_with

    @contextmanager
    def during(self) -> Iterator[None]:
        """Look after them while a program runs."""
        self.begin()
        try:
            yield
        finally:
            self.end()

    def begin(self) -> None:
        """Take the present files as the user's, unless another program runs already."""
        with self._lock:
            if not self._running:
                self._accept()
            self._running += 1

    def end(self) -> None:
        """Revert the changes of a program that ends now."""
        with self._lock:
            self._running -= 1
            self._put_back()

    def look_again(self) -> None:
        """Revert the changes of programs that still run."""
        with self._lock:
            self._put_back()

    def refused(self, output: bytes) -> list[str]:
        """Return a line for each read-only place of which a program says that it could not be written."""
        lines = [line for line in output.splitlines() if line.rstrip().endswith(_UNWRITABLE)]
        return [
            f"{place} could not be written."
            for place in self.read_only
            if any(os.fsencode(place) in line for line in lines)
        ]

    def accept(self, places: Iterable[str]) -> None:
        """Take the files at these places as the user's: a change of them was allowed."""
        with self._lock:
            for where in filter(self.names.runs_later, places):
                self._known.pop(where, None)
                with suppress(OSError):
                    if kept := self._as_it_is(where, (self._root / where).lstat()):
                        self._known[where] = kept

    def taken(self) -> list[str]:
        """Return a line for each file that was put back since this was last asked."""
        with self._lock:
            lines, self._told = self._told, []
        return lines

    def is_guarded(self, where: str) -> bool:
        """Return whether a command needs the user's word to write to a place. A HEAD makes a folder a repository."""
        parts = where.split("/")
        if self.names.runs_later(where) or where in self._named:
            return True
        if parts[-1] == "HEAD" and ".git" not in parts:
            return True
        above = (self._root.joinpath(*parts[:end]) for end in range(len(parts)))
        return any(os.path.isdir(folder / "objects") and os.path.isdir(folder / "refs") for folder in above)  # noqa: PTH112 - Path's raise where nobody may look

    # Looking -----------------------------------------------------------------------------------------------------

    def _accept(self) -> None:
        self._closed, self._mends = {}, False
        self._covered = set(filter(self._is_hidden, self._entries("")))
        found = self._look()
        self._known = {where: kept for where, status in found.items() if (kept := self._as_it_is(where, status))}
        self._closed |= {where: _stamp(status) for where, status in found.items() if where not in self._known}
        users = self._gitdirs - self._own
        configs = [(gitdir, self._known.get(_join(gitdir, "config"))) for gitdir in users]
        self._named = {
            posixpath.normpath(posixpath.join(base, os.fsdecode(path).strip()))
            for gitdir, kept in configs if kept
            for _, path in _NAMES_PLACE.findall(kept.data or b"")
            for base in (gitdir, posixpath.dirname(gitdir))  # of files that are included, and of hooks
        }  # fmt: skip
        hooks = (_join(gitdir, "hooks") for gitdir in users)
        places = {*filter(None, map(self._top, found)), *(place for place in hooks if (self._root / place).is_dir())}
        self.read_only = tuple(sorted(places, key=lambda place: (place.count("/"), place))[:_MOST_READ_ONLY])

    def _top(self, where: str) -> str:
        """Return the place to be read-only for a guarded file, or '' for none, as a program has made its repository."""
        gitdir = self._gitdir_of(where)
        if gitdir is not None:
            hooks = _join(gitdir, "hooks")
            return "" if gitdir in self._own else hooks if where.startswith(f"{hooks}/") else where
        parts = where.split("/")
        tops = ("/".join(parts[:end]) for end in range(1, len(parts) + 1))
        top = next((top for top in tops if self.names.match(top) or top in self._named), where)
        return "" if top in self._own else top

    def _gitdir_of(self, where: str) -> str | None:
        """Return the innermost repository that a file is in, or None if it is in none, nor in its hooks or info."""
        within = (gitdir for gitdir in self._gitdirs if where.startswith(f"{gitdir}/") or not gitdir)
        found = max(within, key=len, default=None)
        rest = where[len(found) + bool(found) :] if found is not None else ""
        return found if rest in _OF_GIT or rest.startswith(("hooks/", "info/")) or rest == "hooks" else None

    def _look(self) -> dict[str, os.stat_result]:
        """Return the guarded files that are there, and note the repositories."""
        found: dict[str, os.stat_result] = {}
        self._gitdirs = set()
        pending, looked_at = deque([("", False)]), 0
        while pending and looked_at < MOST_LOOKED_AT:
            where, guarded = pending.popleft()
            entries = self._entries(where)
            looked_at += len(entries)
            is_dot_git = where.rpartition("/")[2].casefold() == ".git"
            if is_dot_git or entries.keys() >= _REPOSITORY or entries.keys() >= _WORKTREE:
                self._gitdirs.add(where)
                self._look_in_git(where, entries, found)
            near = guarded or not where or bool(self._named) or self.names.may_match_in(where)
            for name in entries if near else self._folders[where]:
                path = _join(where, name)
                inner = guarded or name.casefold() in self.names.anywhere
                inner = inner or (near and (self.names.match(path) or path in self._named))
                if self._is_hidden(path):
                    top = path.partition("/")[0]
                    if is_draft(path) or top in self._covered or not self._is_hidden(top):
                        continue
                    inner = True
                if not entries[name]:
                    if inner or name.casefold() == ".git":
                        self._note(path, found)
                elif not is_dot_git or name in ("modules", "worktrees"):
                    pending.append((path, inner))
        return found

    def _look_in_git(self, gitdir: str, entries: Mapping[str, bool], found: dict[str, os.stat_result]) -> None:
        """Add the files of a repository that make git run programs."""
        for name, is_folder in entries.items():
            if name in _OF_GIT or (name == "hooks" and not is_folder):
                self._note(_join(gitdir, name), found)
            elif name == "hooks":
                for hook in self._entries(_join(gitdir, name)):
                    if not hook.endswith(".sample"):
                        self._note(_join(gitdir, f"{name}/{hook}"), found)
        self._note(_join(gitdir, "info/attributes"), found)
        for name in (*entries, "logs/HEAD"):  # git writes through a link: the user's next commit would, to elsewhere
            if (self._root / gitdir / name).is_symlink():
                self._note(_join(gitdir, name), found)

    def _note(self, where: str, found: dict[str, os.stat_result]) -> None:
        with suppress(OSError):
            found[where] = (self._root / where).lstat()

    def _entries(self, where: str) -> Mapping[str, bool]:
        """Return the names in a folder, and whether each is a folder, or none where it cannot be listed."""
        try:
            stamp = _stamp((self._root / where).lstat())
            if (known := self._listed.get(where)) and known[0] == stamp:
                return known[1]
            if not os.access(self._root / where, os.R_OK | os.X_OK):
                self._mend(where, stamp)
            with self._opened(where or ".") as folder, os.scandir(folder) as entries:
                names = {entry.name: entry.is_dir(follow_symlinks=False) for entry in entries}
        except OSError:
            names, stamp = {}, (0, 0, 0, 0, time.time_ns())
        noted = {".git", *self.names.anywhere}
        self._folders[where] = [name for name, is_folder in names.items() if is_folder or name.casefold() in noted]
        if time.time_ns() - stamp[4] > _RACY_NS:
            self._listed[where] = stamp, names
        return names

    def _mend(self, where: str, stamp: Stamp) -> None:
        """Give the user his rights to a place back, which a program has taken away: they hide what it has written."""
        if not self._mends:
            self._closed[where] = stamp
        elif self._closed.get(where) != stamp:
            place = os.open(self._root / where, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                os.chmod(f"/proc/self/fd/{place}", stat.S_IMODE(os.fstat(place).st_mode) | stat.S_IRWXU)  # noqa: PTH101 - a descriptor
            finally:
                os.close(place)

    def _as_it_is(self, where: str, status: os.stat_result) -> _Kept | None:
        """Return the file to remember, or None if it is not a file or gone."""
        known = self._known.get(where)
        if known and known.stamp == _stamp(status):
            return known
        folder, _, name = where.rpartition("/")
        with suppress(OSError), self._opened(folder or ".") as parent:
            if stat.S_ISLNK(status.st_mode):
                return _Kept(_stamp(status), stat.S_IFLNK, os.fsencode(os.readlink(name, dir_fd=parent)))
            if stat.S_ISREG(status.st_mode):
                flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
                with os.fdopen(os.open(name, flags, dir_fd=parent), "rb") as file:
                    data = file.read(_MOST_KEPT + 1)
                return _Kept(_stamp(status), status.st_mode & 0o777, data if len(data) <= _MOST_KEPT else None)
        return None

    # Putting back ------------------------------------------------------------------------------------------------

    def _put_back(self) -> None:
        before, self._mends = self._gitdirs, True
        found = self._look()
        self._own = (self._own | (self._gitdirs - before)) & {*self._gitdirs, *found}
        for where in sorted(found.keys() | self._known.keys()):
            known, now = self._known.get(where), None
            if where in found and (now := self._as_it_is(where, found[where])) is None:
                if stat.S_ISREG(found[where].st_mode):
                    with suppress(OSError):
                        self._mend(where, _stamp(found[where]))
                        now = self._as_it_is(where, (self._root / where).lstat())
                if now is None:
                    continue  # a folder or a pipe: nobody reads it
            if now and known and (known.data, known.mode) == (now.data, now.mode):
                continue
            by_user = self.holds and self._top(where) in self.read_only
            wanted = (
                now if by_user or (not now and self._gitdir_of(where) in self._own) else self._wanted(where, now, known)
            )
            if wanted is not now:
                self._replace(where, now, wanted)
            elif now:
                self._known[where] = now
            else:
                self._known.pop(where, None)
        for top in [top for top in self._entries("") if self._is_hidden(top) and top not in self._covered]:
            for folder, _, _ in os.walk(self._root / top, topdown=False):
                above, _, name = os.path.relpath(folder, self._root).rpartition("/")
                with suppress(OSError), self._opened(above or ".") as parent:
                    os.rmdir(name, dir_fd=parent)  # of what was put in the place of a missing file

    def _wanted(self, where: str, now: _Kept | None, known: _Kept | None) -> _Kept | None:
        """Return the content allowed at a place in place of `now`: the same, another, or none."""
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
        return now if is_own and name == "attributes" else known  # which name drivers that the configuration must have

    def _replace(self, where: str, now: _Kept | None, wanted: _Kept | None) -> None:
        folder, _, name = where.rpartition("/")
        known, kept = self._known.pop(where, None), ""
        for again in (True, False):
            try:
                with self._opened(folder or ".") as parent:
                    kept = kept or (self._kept_apart(name, now) if now else "")
                    if wanted and wanted.data is not None:
                        replace_in(parent, name, wanted.data, wanted.mode)
                        if fresh := self._as_it_is(where, os.stat(name, dir_fd=parent, follow_symlinks=False)):
                            self._known[where] = fresh
                    elif now:
                        os.unlink(name, dir_fd=parent)
                break
            except OSError as error:
                if again and isinstance(error, PermissionError):
                    with suppress(OSError):
                        self._mend(folder, (0, 0, 0, 0, 0))
                elif now:
                    self._told.append(f"{where} would run as the user later, and stays: {error.strerror}.")
                if not again:
                    return
        done = "taken away" if not wanted else "put back" if wanted is known else "reduced to what runs nothing"
        self._told.append(f"{where} was {done}{kept}.")

    def _kept_apart(self, name: str, now: _Kept) -> str:
        """Keep a copy of a file that is taken away, and return where. Raises OSError."""
        if self._apart is None:
            return ""
        self._apart.mkdir(mode=0o700, parents=True, exist_ok=True)
        target = self._apart / f"{time.strftime('%Y%m%d-%H%M%S')}-{os.urandom(2).hex()}-{name}"
        with os.fdopen(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600), "wb") as copy:
            copy.write(now.data if now.data is not None else b"(more than can be kept)\n")
        return f"; what the program wrote is in {target}"


def _join(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder else name


def _stamp(status: os.stat_result) -> Stamp:
    return status.st_ino, status.st_mode, status.st_size, status.st_mtime_ns, status.st_ctime_ns
