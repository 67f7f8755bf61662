"""Read a shell line: its programs, its risk, and any syntax that needs a shell. Check it against lists of programs.

The approval prompt, the risk of a call and the lists use the results. Nothing is run. Programs that a variable, a
here-document, an alias, a script or an interpreter (`python -c`, `awk`, `make`) starts are not seen.

If a list is set (SHELL_COMMAND_CONTROL, SHELL_ALLOWLIST, SHELL_DENYLIST), no shell is used: the line is one program
and its arguments. The program is looked up as the sandbox does, links are followed, and the result is checked. For a
program that starts another one (`env`, `xargs`, `sh -c`, `find -exec`), every argument that may be that other one is
checked, too.

A list is not a boundary, but the sandbox is. Not covered: a copy of a program under another name, what a script or an
interpreter starts (`python -c`, `awk`, `perl`, `make`, `git` with an alias), and the agent's Python commands.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path, PurePosixPath

from autoagent.commands.context import in_a_shell
from autoagent.core.commands import Risk
from autoagent.core.errors import CommandError, SettingsError
from autoagent.core.frozen import dataclass
from autoagent.settings import Settings

_SHELLS = frozenset({"ash", "bash", "csh", "dash", "fish", "ksh", "mksh", "sh", "tcsh", "zsh"})
_MULTI_CALL = frozenset({"busybox", "coreutils", "toybox"})  # behave according to the name by which they are called

# Programs that start another one, which their arguments name.
_STARTERS = _MULTI_CALL | frozenset({
    *("bwrap", "catchsegv", "choom", "chroot", "chrt", "command", "cpulimit", "dbus-run-session", "doas", "env"),
    *("eval", "exec", "fakeroot", "firejail", "flock", "gdb", "i386", "ionice", "ld.so", "linux32", "linux64"),
    *("ltrace", "nice", "nohup", "nsenter", "parallel", "pkexec", "prlimit", "proxychains", "proxychains4"),
    *("rlwrap", "run-parts", "runuser", "script", "setarch", "setpriv", "setsid", "sshpass", "start-stop-daemon"),
    *("stdbuf", "strace", "su", "sudo", "systemd-run", "taskset", "time", "timeout", "torsocks", "unbuffer"),
    *("unshare", "valgrind", "watch", "x86_64", "xargs", "xvfb-run"),
})  # fmt: skip
_FIND_EXEC = frozenset({"-exec", "-execdir", "-ok", "-okdir"})

_IRREVERSIBLE = frozenset({"dd", "mkfs", "rm", "rmdir", "shred", "truncate", "unlink", "wipefs"})
_NETWORK = frozenset({
    "apt", "apt-get", "curl", "ftp", "mail", "nc", "ncat", "npm", "pip", "pip3", "pnpm", "rsync", "scp", "sendmail",
    "sftp", "socat", "ssh", "telnet", "wget", "yarn",
})  # fmt: skip
_GIT: dict[str, Risk] = {
    "clean": "irreversible", "push": "irreversible", "reset": "irreversible", "clone": "network", "fetch": "network",
    "ls-remote": "network", "pull": "network",
}  # fmt: skip

_SEPARATORS = "();|&\n"
_OPERATORS = _SEPARATORS + "<>"
# A possible prefix of a command: a keyword, a variable set for it, the number before a redirection.
_PREFIX = re.compile(r"(!|do|done|elif|else|fi|if|then|until|while|\{|\}|\d+)$|[A-Za-z_]\w*\+?=")
_OTHER_KEYWORDS = frozenset({"case", "esac", "for", "select"})
_SUBSTITUTION = re.compile(r"\$\(\([^()]*\)\)|[$<>]\(([^()]*)\)|`([^`]*)`")  # the first kind is arithmetic
_MAX_NESTING = 20  # of substitutions
_HERE_DOCUMENT = re.compile(r"<<-?[ \t]*(['\"]?)(\w+)\1")
_SHELL_OPTION_C = re.compile(r"-[A-Za-z]*c[A-Za-z]*")
_UNQUOTED = re.compile(r"\\.|'[^']*'|\"(?P<double>(?:\\.|[^\"\\])*)\"|(?P<mark>\$\(|[$`|&;<>()\n])", re.DOTALL)
_MARKS = {
    "$(": "a substitution, $(...)", "`": "a substitution, `...`", "$": "a variable, $",
    "|": "a pipe or an alternative, |", "&": "an &", ";": "a ;", "<": "a redirection, <", ">": "a redirection, >",
    "(": "a subshell, (...)", ")": "a subshell, (...)", "\n": "a second line",
}  # fmt: skip


def shell_syntax(line: str) -> str:
    """Name the first shell syntax in the line, such as `a pipe`, or return ''.

    Patterns (`*.py`) and `~` do not count: without a shell, the program gets them as written.
    """
    for match in _UNQUOTED.finditer(line):
        if match["mark"]:
            return _MARKS[match["mark"]]
        if match["double"] and (expansion := re.search(r"(?<!\\)(\$\(|[$`])", match["double"])):
            return _MARKS[expansion[1]]
    return ""


def program_name(word: str) -> str:
    """Return the name of a program without its folder."""
    return PurePosixPath(word).name


def starts_others(words: Sequence[str]) -> bool:
    """Return whether the first word is a program for starting another (`env`, `find -exec`)."""
    name = program_name(words[0])
    return name in _STARTERS or name.startswith("ld-linux") or (name == "find" and not _FIND_EXEC.isdisjoint(words))


def inner_lines(words: Sequence[str]) -> list[str]:
    """Return every word that a shell started by these words may run as a line (`sh -c LINE`)."""
    if program_name(words[0]) not in _SHELLS and not starts_others(words):
        return []
    shell = next((place for place, word in enumerate(words) if program_name(word) in _SHELLS), len(words))
    arguments = words[shell + 1 :]
    option = next((place for place, word in enumerate(arguments) if _SHELL_OPTION_C.fullmatch(word)), len(arguments))
    return [word for word in arguments[option + 1 :] if not word.startswith("-")]


def programs(line: str) -> list[str]:
    """Return the distinct programs at the start of each command in the line, in order."""
    return list(dict.fromkeys(words[0] for words in _commands(line)))


def risk_of(line: str) -> Risk:
    """Return `irreversible` for plain deleting, overwriting or publishing, `network` for network access.

    Everything else is `run`, even just looking: a program's name does not reveal its effects.
    """
    risks: set[Risk] = set()
    for words in _commands(line):
        names = {program_name(word) for word in (words if starts_others(words) else words[:1])}
        if names & _IRREVERSIBLE or ("find" in names and "-delete" in words):
            risks.add("irreversible")
        elif "git" in names:
            risks.add(next((_GIT[word] for word in words if word in _GIT), "run"))
        elif names & _NETWORK:
            risks.add("network")
    return next((risk for risk in ("irreversible", "network") if risk in risks), "run")


def _commands(line: str) -> Iterator[list[str]]:
    """Yield the words of each simple command without its prefixes, including the commands of inner shells."""
    line, inner_commands = _without_substitutions(_without_here_documents(line))
    words: list[str] = []
    tokens = iter([*_tokens(line), "\n"])
    for token in tokens:
        if token.strip(_OPERATORS):
            if words or not _PREFIX.match(token):
                words.append(token)
        elif token.strip(_SEPARATORS):
            next(tokens, "")  # the target of a redirection is not an argument
        elif words:
            if words[0] not in _OTHER_KEYWORDS:
                yield words
            inner_commands += inner_lines(words)
            words = []
    for inner in inner_commands:
        yield from _commands(inner)


def _without_substitutions(line: str) -> tuple[str, list[str]]:
    """Replace each substitution by `$...`. Return the line and the contents. Quotes are ignored."""
    contents: list[str] = []

    def take(match: re.Match[str]) -> str:
        contents.append(match[1] or match[2] or "")
        return "$..."

    for _ in range(_MAX_NESTING):  # from the innermost
        line, count = _SUBSTITUTION.subn(take, line)
        if not count:
            break
    return line, contents


def _without_here_documents(text: str) -> str:
    lines = []
    end: str | None = None
    for line in text.split("\n"):
        if end is None:
            lines.append(line)
            start = _HERE_DOCUMENT.search(line)
            end = start[2] if start else None
        elif line.strip("\t") == end:
            end = None
    return "\n".join(lines)


def _tokens(line: str) -> list[str]:
    """Split into words and runs of operators. With unbalanced quotes, split at blanks."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=_OPERATORS)
    lexer.whitespace, lexer.whitespace_split, lexer.commenters = " \t\r", True, ""
    try:
        return list(lexer)
    except ValueError:
        return re.findall(r"[();|&\n]|[<>]+|[^\s();|&<>]+", line)


# Lists of programs ------------------------------------------------------------------------------------------------

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
    is_exclusive = control == "allowlist" or bool(allowed)
    return _ProgramLists(frozenset(allowed), frozenset(denied), is_exclusive, root, os.pathsep.join(path))


@dataclass(frozen=True, slots=True)
class _ProgramLists:
    """Apply lists of program names or paths. With `is_exclusive`, refuse programs that are not in `allowed`."""

    allowed: frozenset[str]
    denied: frozenset[str]
    is_exclusive: bool
    root: Path
    search_path: str

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
        name = program_name(os.path.realpath(self._locate(words[0]) or words[0]))
        resolved = [program_name(words[0]) if name in _MULTI_CALL else name, *words[1:]]
        parts, started = words[1:], resolved[:1]
        if starts_others(resolved):  # an argument may name the other program, or contain its line
            parts = " ".join(parts).split()
            for part in parts:
                candidates = [part]
                if part.startswith("-") and part not in _FIND_EXEC:  # `-u=x`, `-Sx`, `-iSx`
                    letters = () if part.startswith("--") else re.finditer("[Scx]", part[:20])
                    candidates = [part.rpartition("=")[2], part[2:], *(part[letter.end() :] for letter in letters)]
                for candidate in filter(None, candidates):
                    if self._locate(candidate) or self._denying_entry(candidate):
                        self._check_program(candidate)
                started += candidates
        if "-delete" in parts and "find" in map(program_name, started):
            self._check_program("rm")
        for inner in inner_lines(resolved):
            self._checked_words(inner)
        return words

    def _check_program(self, word: str) -> None:
        if entry := self._denying_entry(word):
            note = "" if program_name(entry) == program_name(word) else f", as {entry} is"
            raise CommandError(f"{word} is on the list of programs that are refused (SHELL_DENYLIST){note}.")
        if self.is_exclusive and not self._is_allowed(word):
            allowed = ", ".join(sorted(self.allowed)) or "it is empty"
            raise CommandError(f"{word} is not on the list of programs that are run (SHELL_ALLOWLIST: {allowed}).")

    def _denying_entry(self, word: str) -> str | None:
        """Return the entry of the denylist with the name of the word or of its program, or for the same file."""
        program = self._locate(word) or ""
        real = os.path.realpath(program) if program else word
        names = {program_name(place).casefold() for place in (word, program or word, real)}
        for entry in self.denied:
            if program_name(entry).casefold() in names:
                return entry
            other = self._locate(entry)
            if program and other and program_name(real) not in _MULTI_CALL and Path(program).samefile(other):
                return entry
        return None

    def _is_allowed(self, word: str) -> bool:
        """Return whether an entry has the word's name and the same file: `./ls` is not the `ls` of the list."""
        program = self._locate(word)
        if program is None:
            return word in self.allowed
        real = os.path.realpath(program)
        entries = (self._locate(entry) for entry in self.allowed if program_name(entry) == program_name(word))
        return any(entry is not None and os.path.realpath(entry) == real for entry in entries)

    def _locate(self, word: str) -> str | None:
        if "/" in word:
            return shutil.which(str(self.root / word))
        return shutil.which(word, path=self.search_path)
