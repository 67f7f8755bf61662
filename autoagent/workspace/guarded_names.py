"""Recognize the files that later run as the user, and the entries of a git configuration that do or do not run any."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Iterable, Iterator, Mapping

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
    ".config/gh/", ".aws/config", ".config/i3/", ".config/sway/", ".config/hypr/", ".config/direnv/",
    ".config/plasma-workspace/",
    "**/ai_settings.yaml", "**/prompt_settings.yaml", "**/plugins_config.yaml", "**/azure.yaml",
)  # fmt: skip
"""At the top of the workspace. The last line holds the program's own files, at any depth: they shape later runs."""

# Files of a repository that make git run programs, and its folder itself.
GIT_FILE = re.compile(
    r"(?:.*/)?\.git(?:/(?:.*/)?(?:config|config\.worktree|commondir|hooks/.*|info/attributes))?\Z", re.IGNORECASE
)
_ANY_DEPTH = re.compile(r"\*\*/([^*?/]+)")


class GuardedNames:
    """Match PATTERNS with the user's `changes` (`!NAME` removes a name). Raises ValueError for a useless change."""

    def __init__(self, changes: Iterable[str] = ()) -> None:
        patterns = dict.fromkeys(PATTERNS)
        for change in changes:
            if change.startswith("!") and change[1:] not in patterns:
                raise ValueError(f"protect: {change!r} matches none of the usual names; docs/security.md lists them.")
            if change.startswith(("/", "~")) or ".." in change.split("/"):
                raise ValueError(f"protect: {change!r} is not a path relative to the top of the workspace.")
            if {".", ""} & set(change.rstrip("/").split("/")):
                raise ValueError(f"protect: {change!r} is not a plain path; write it without './' and '//'.")
            if change.startswith("!"):
                del patterns[change[1:]]
            else:
                patterns[change] = None
        self.anywhere = frozenset(match[1].casefold() for match in map(_ANY_DEPTH.fullmatch, patterns) if match)
        self._at_top = [pattern for pattern in patterns if not _ANY_DEPTH.fullmatch(pattern)]
        tops = {pattern.partition("/")[0].casefold() for pattern in self._at_top}
        self._tops = None if any(set(top) & set("*?") for top in tops) else tops

    @functools.cached_property
    def _pattern(self) -> re.Pattern[str]:
        """Compile the names once a path may match, as this takes longer than the rest of the start."""
        return re.compile("|".join(map(_regex, self._at_top)) or r"(?!)", re.IGNORECASE)

    def match(self, path: str) -> bool:
        """Return whether a path, relative to the root, is guarded or in a guarded folder."""
        if self.anywhere.intersection(path.casefold().split("/")):
            return True
        return self.may_match_in(path) and bool(self._pattern.match(path))

    def may_match_in(self, path: str) -> bool:
        """Return whether a path may be or contain a guarded file, ignoring names guarded `anywhere`."""
        return self._tops is None or path.partition("/")[0].casefold() in self._tops

    def runs_later(self, path: str) -> bool:
        """Return whether a path is guarded, or makes git run programs."""
        return self.match(path) or bool(GIT_FILE.match(path))


def _regex(pattern: str) -> str:
    parts = re.split(r"(\*\*/|\*\*|\*|\?)", pattern.rstrip("/"))
    wildcards = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    return f"(?:{''.join(wildcards.get(part, re.escape(part)) for part in parts)})(?:/|\\Z)"


# Git's configuration ---------------------------------------------------------------------------------------------

HOOKS = (
    "applypatch-msg", "commit-msg", "fsmonitor-watchman", "p4-changelist", "p4-post-changelist", "p4-pre-submit",
    "p4-prepare-changelist", "post-applypatch", "post-checkout", "post-commit", "post-index-change", "post-merge",
    "post-receive", "post-rewrite", "post-update", "pre-applypatch", "pre-auto-gc", "pre-commit", "pre-merge-commit",
    "pre-push", "pre-rebase", "pre-receive", "prepare-commit-msg", "proc-receive", "push-to-checkout",
    "reference-transaction", "sendemail-validate", "update",
)  # fmt: skip
"""The names of git's hooks."""

_LINE = re.compile(  # of a git configuration as git reads it: a section's header, an entry, or both
    rb"""[ \t]*(?:\[\s*(?P<section>[\w-]+)[^\]\n]*\])?[ \t]*
    (?:(?P<key>[\w-]+)[ \t]*=(?P<value>(?:\\\r?\n|\\[^\n]|[^\\\n])*))?[^\n]*\n?""",
    re.VERBOSE,
)
_VALUE_PART = re.compile(rb'"|\\\r?\n|\\.|[#;]|[^"\\#;]+', re.DOTALL)
_ESCAPES = {b"n": b"\n", b"t": b"\t", b"b": b"\b"}

# Entries that run no program and include no file, by section. Only unquoted lines in git's own format count.
_HARMLESS_ENTRIES = {
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
HARMLESS_IN_GITMODULES = {"submodule": "path|url|branch|ignore|shallow|fetchrecursesubmodules"}
_MINIMAL_CONFIG = b"[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = false\n"


def paths_in_config(data: bytes) -> Iterator[tuple[bool, str]]:
    """Yield the path of each folder of hooks and each included file (True) that a git configuration names."""
    section = b""
    for line in _LINE.finditer(data):
        section = (line["section"] or section).lower()
        key, value = (line["key"] or b"").lower(), _value(line["value"] or b"")
        is_included = section in (b"include", b"includeif") and key == b"path"
        if value and (is_included or (section == b"core" and key == b"hookspath")):
            yield is_included, os.fsdecode(value)


def _value(text: bytes) -> bytes:
    """Return a value as git reads it: quotes begin and end anywhere, and a backslash escapes or continues the line."""
    value, is_quoted = b"", False
    for part in _VALUE_PART.findall(text):
        if part == b'"':
            is_quoted = not is_quoted
        elif part.startswith(b"\\"):
            value += b"" if part.endswith(b"\n") else _ESCAPES.get(part[1:], part[1:])
        elif part in (b"#", b";") and not is_quoted:
            break
        else:
            value += part
    return value.strip()


def harmless_config(data: bytes, harmless: Mapping[str, str] = _HARMLESS_ENTRIES) -> bytes:
    """Return a repository's configuration without the lines that can run programs."""
    lines, section = [], ""
    for line in data.decode("utf-8", "replace").split("\n"):
        if section_match := _SECTION.fullmatch(line):
            section = section_match[1].lower()
        elif entry := _ENTRY.fullmatch(line):
            if not re.fullmatch(harmless.get(section, "(?!)"), entry[1].lower()) or "::" in entry[2]:
                continue
        elif line and not re.match(r"\s*[#;]", line):
            return _MINIMAL_CONFIG  # rather than guess how git reads it
        lines.append(line)
    return "\n".join(lines).encode("utf-8", "replace")
