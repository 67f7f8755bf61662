"""Lists of programs: applies SHELL_COMMAND_CONTROL, SHELL_ALLOWLIST and SHELL_DENYLIST to a shell line.

With a list set no shell is used: the line is one program and its arguments. The program is looked up as the sandbox
looks it up, links are followed, and what it comes to is checked; with a program that starts another one (`env`,
`xargs`, `sh -c`, `find -exec`) every argument that can be that other one is checked too.

A list is no boundary. The sandbox is. Not covered: a copy of a program under another name, what a script or an
interpreter starts (`python -c`, `awk`, `perl`, `make`, `git` with an alias), the Python commands.
"""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from autoagent.commands.context import in_a_shell
from autoagent.commands.support.shell_lines import MULTI_CALL, inner_lines, name_of, shell_syntax, starts_others
from autoagent.core.errors import CommandError, SettingsError
from autoagent.settings import Settings

ShellRule = Callable[[str], Sequence[str]]
"""The arguments with which a shell line is run. Raises CommandError if it is refused."""

DENIED_BY_DEFAULT = ("sudo", "su")  # a denylist without entries, as in AutoGPT

_WITHOUT_SHELL = "With a list of programs set there is no shell: give one program and its arguments."


def shell_rule(settings: Settings, root: Path, path: Sequence[str], commands: Collection[str] = ()) -> ShellRule:
    """Return the rule that the settings ask for: a shell, or lists in its place.

    A list that is set holds, even where SHELL_COMMAND_CONTROL does not say which. `root` is the workspace, `path` the
    folders in which the sandbox looks for programs. Raises SettingsError for an entry that names one of the agent's
    `commands`.
    """
    for entry in (*settings.shell_allowlist, *settings.shell_denylist):
        if "_" in entry and entry in commands:
            raise SettingsError(
                f"SHELL_ALLOWLIST and SHELL_DENYLIST name programs, and {entry} is a command of the agent; "
                f"DISABLED_COMMAND_CATEGORIES={entry} switches it off."
            )
    control = settings.shell_command_control
    allowed = settings.shell_allowlist if control != "denylist" else ()
    denied = settings.shell_denylist if control != "allowlist" else ()
    if control == "denylist" and not denied:
        denied = DENIED_BY_DEFAULT
    if not control and not allowed and not denied:
        return in_a_shell
    only = control == "allowlist" or bool(allowed)
    return _Lists(frozenset(allowed), frozenset(denied), only, root, os.pathsep.join(path))


@dataclass(frozen=True, slots=True)
class _Lists:
    """A rule. Entries are names or paths of programs. `only`: refuse programs that are not in `allowed`."""

    allowed: frozenset[str]
    denied: frozenset[str]
    only: bool
    root: Path
    search: str

    def __call__(self, line: str) -> Sequence[str]:
        words = self._checked(line)
        found = self._found(words[0])
        if found is None:
            raise CommandError(f"There is no program {words[0]!r}. {_WITHOUT_SHELL}")
        return (words[0] if "/" in words[0] else found, *words[1:])

    def _checked(self, line: str) -> list[str]:
        """Return the words of a line. Raises CommandError if one of them is refused."""
        if syntax := shell_syntax(line):
            raise CommandError(f"The line holds {syntax}. {_WITHOUT_SHELL}")
        try:
            words = shlex.split(line)
        except ValueError as error:
            raise CommandError(f"The line cannot be split into words: {error}.") from None
        if not words:
            raise CommandError("The line is empty; name a program.")
        self._check_program(words[0])
        called = [self._called(words[0]), *words[1:]]
        if starts_others(called):
            for word in words[1:]:
                self._check_argument(word)
        if called[0] == "find" and "-delete" in words:
            self._check_program("rm")
        for inner in inner_lines(called):
            self._checked(inner)
        return words

    def _check_argument(self, word: str) -> None:
        """Check an argument of a program that starts another one: it may be the other one, or hold its line."""
        for part in word.split():
            named = (part.rpartition("=")[2], part[2:]) if part.startswith("-") else (part,)  # `-u=x`, `-Sx`
            for name in filter(None, named):
                if self._found(name) or self._entry_denying(name):
                    self._check_program(name)

    def _check_program(self, word: str) -> None:
        if entry := self._entry_denying(word):
            named = "" if name_of(entry) == name_of(word) else f", as {entry} is"
            raise CommandError(f"{word} is on the list of programs that are refused (SHELL_DENYLIST){named}.")
        if self.only and not self._is_allowed(word):
            listed = ", ".join(sorted(self.allowed)) or "it is empty"
            raise CommandError(f"{word} is not on the list of programs that are run (SHELL_ALLOWLIST: {listed}).")

    def _entry_denying(self, word: str) -> str | None:
        """Return the entry of the denylist that the word names or leads to, or None."""
        found = self._found(word)
        names = {name_of(place).casefold() for place in (word, *((found, os.path.realpath(found)) if found else ()))}
        return next((e for e in self.denied if name_of(e).casefold() in names or self._is_same(e, found)), None)

    def _is_same(self, entry: str, found: str | None) -> bool:
        """Return whether an entry is this very file under another name."""
        other = self._found(entry)
        if found is None or other is None or name_of(os.path.realpath(found)) in MULTI_CALL:
            return False
        return Path(found).samefile(other)

    def _is_allowed(self, word: str) -> bool:
        """Return whether the word is called as an entry is, and
        leads to the same file: `./ls` is not the `ls` of the list.
        """
        found = self._found(word)
        if found is None:
            return word in self.allowed
        real = os.path.realpath(found)
        entries = (self._found(entry) for entry in self.allowed if name_of(entry) == name_of(word))
        return any(entry is not None and os.path.realpath(entry) == real for entry in entries)

    def _found(self, word: str) -> str | None:
        """Return where the program lies, or None if it does not exist."""
        if "/" in word:
            return shutil.which(str(self.root / word))
        return shutil.which(word, path=self.search)

    def _called(self, word: str) -> str:
        """Return the name of the program that a word leads to, through links."""
        name = name_of(os.path.realpath(self._found(word) or word))
        return name_of(word) if name in MULTI_CALL else name
