"""Apply SHELL_COMMAND_CONTROL, SHELL_ALLOWLIST and SHELL_DENYLIST to a shell line.

If a list is set, no shell is used: the line is one program and its arguments. The program is looked up as the sandbox
does, links are followed, and the result is checked. For a program that starts another one (`env`, `xargs`, `sh -c`,
`find -exec`), every argument that may be that other one is checked, too.

A list is not a boundary. The sandbox is. Not covered: a copy of a program under another name, what a script or an
interpreter starts (`python -c`, `awk`, `perl`, `make`, `git` with an alias), the Python commands.
"""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from autoagent.commands.context import in_a_shell
from autoagent.commands.support.shell_lines import MULTI_CALL, inner_lines, name_of, shell_syntax, starts_others
from autoagent.core.errors import CommandError, SettingsError
from autoagent.core.frozen import dataclass
from autoagent.settings import Settings

ShellRule = Callable[[str], Sequence[str]]
"""Returns the argument vector for a shell line. Raises CommandError if it is refused."""

DENIED_BY_DEFAULT = ("sudo", "su")  # a denylist without entries, as in AutoGPT

_WITHOUT_SHELL = "With a list of programs set there is no shell: give one program and its arguments."


def shell_rule(settings: Settings, root: Path, path: Sequence[str], commands: Collection[str] = ()) -> ShellRule:
    """Return the rule in the settings: a shell, or lists instead.

    A list that is set applies even if SHELL_COMMAND_CONTROL does not select it. `root` is the workspace, `path` the
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
    only_allowed = control == "allowlist" or bool(allowed)
    return _Lists(frozenset(allowed), frozenset(denied), only_allowed, root, os.pathsep.join(path))


@dataclass(frozen=True, slots=True)
class _Lists:
    """Apply lists of program names or paths. With `only`, refuse programs that are not in `allowed`."""

    allowed: frozenset[str]
    denied: frozenset[str]
    only: bool
    root: Path
    search: str

    def __call__(self, line: str) -> Sequence[str]:
        words = self._checked_words(line)
        program = self._locate(words[0])
        if program is None:
            raise CommandError(f"There is no program {words[0]!r}. {_WITHOUT_SHELL}")
        return (words[0] if "/" in words[0] else program, *words[1:])

    def _checked_words(self, line: str) -> list[str]:
        if syntax := shell_syntax(line):
            raise CommandError(f"The line holds {syntax}. {_WITHOUT_SHELL}")
        try:
            words = shlex.split(line)
        except ValueError as error:
            raise CommandError(f"The line cannot be split into words: {error}.") from None
        if not words:
            raise CommandError("The line is empty; name a program.")
        self._check_program(words[0])
        name = name_of(os.path.realpath(self._locate(words[0]) or words[0]))
        resolved = [name_of(words[0]) if name in MULTI_CALL else name, *words[1:]]
        if starts_others(resolved):  # an argument may name the other program, or contain its line
            for part in " ".join(words[1:]).split():
                candidates = (part.rpartition("=")[2], part[2:]) if part.startswith("-") else (part,)  # `-u=x`, `-Sx`
                for candidate in filter(None, candidates):
                    if self._locate(candidate) or self._denying_entry(candidate):
                        self._check_program(candidate)
        if resolved[0] == "find" and "-delete" in words:
            self._check_program("rm")
        for inner in inner_lines(resolved):
            self._checked_words(inner)
        return words

    def _check_program(self, word: str) -> None:
        if entry := self._denying_entry(word):
            note = "" if name_of(entry) == name_of(word) else f", as {entry} is"
            raise CommandError(f"{word} is on the list of programs that are refused (SHELL_DENYLIST){note}.")
        if self.only and not self._is_allowed(word):
            allowed = ", ".join(sorted(self.allowed)) or "it is empty"
            raise CommandError(f"{word} is not on the list of programs that are run (SHELL_ALLOWLIST: {allowed}).")

    def _denying_entry(self, word: str) -> str | None:
        """Return the entry of the denylist with the name of the word or of its program, or for the same file."""
        program = self._locate(word) or ""
        real = os.path.realpath(program) if program else word
        names = {name_of(place).casefold() for place in (word, program or word, real)}
        for entry in self.denied:
            if name_of(entry).casefold() in names:
                return entry
            other = self._locate(entry)
            if program and other and name_of(real) not in MULTI_CALL and Path(program).samefile(other):
                return entry
        return None

    def _is_allowed(self, word: str) -> bool:
        """Return whether an entry has the word's name and the same file: `./ls` is not the `ls` of the list."""
        program = self._locate(word)
        if program is None:
            return word in self.allowed
        real = os.path.realpath(program)
        entries = (self._locate(entry) for entry in self.allowed if name_of(entry) == name_of(word))
        return any(entry is not None and os.path.realpath(entry) == real for entry in entries)

    def _locate(self, word: str) -> str | None:
        if "/" in word:
            return shutil.which(str(self.root / word))
        return shutil.which(word, path=self.search)
