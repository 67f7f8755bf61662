"""Read a shell line: its programs, its risk, and any syntax that needs a shell.

The results serve the approval prompt, the risk of the call and the lists of programs. Nothing is run.
Not seen: what a variable, a here-document, an alias, a script or an interpreter (`python -c`, `awk`, `make`) starts.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath

from autoagent.core.commands import Risk

SHELLS = frozenset({"ash", "bash", "csh", "dash", "fish", "ksh", "mksh", "sh", "tcsh", "zsh"})

MULTI_CALL = frozenset({"busybox", "coreutils", "toybox"})
"""Programs that behave according to the name by which they are called."""

# Programs that start another one, which their arguments name.
_STARTERS = MULTI_CALL | frozenset({
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
_NO_PROGRAMS = frozenset({"case", "esac", "for", "select"})
_SUBSTITUTION = re.compile(r"\$\(\([^()]*\)\)|[$<>]\(([^()]*)\)|`([^`]*)`")  # the first kind is arithmetic
_MAX_DEPTH = 20  # nesting of substitutions that is followed
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


def name_of(word: str) -> str:
    """Return the name of a program without its folder."""
    return PurePosixPath(word).name


def starts_others(words: Sequence[str]) -> bool:
    """Return whether the first word is a program for starting another (`env`, `find -exec`)."""
    name = name_of(words[0])
    return name in _STARTERS or name.startswith("ld-linux") or (name == "find" and not _FIND_EXEC.isdisjoint(words))


def inner_lines(words: Sequence[str]) -> list[str]:
    """Return every word that a shell started by these words may run as a line (`sh -c LINE`)."""
    if name_of(words[0]) not in SHELLS and not starts_others(words):
        return []
    shell = next((place for place, word in enumerate(words) if name_of(word) in SHELLS), len(words))
    rest = words[shell + 1 :]
    option = next((place for place, word in enumerate(rest) if _SHELL_OPTION_C.fullmatch(word)), len(rest))
    return [word for word in rest[option + 1 :] if not word.startswith("-")]


def programs(line: str) -> list[str]:
    """Return the distinct programs at the start of each command in the line, in order."""
    return list(dict.fromkeys(words[0] for words in _commands(line)))


def risk_of(line: str) -> Risk:
    """Return `irreversible` for plain deleting, overwriting or publishing, `network` for network access.

    Everything else is `run`, even just looking: a program's name does not reveal its effects.
    """
    risks: set[Risk] = set()
    for words in _commands(line):
        names = {name_of(word) for word in (words if starts_others(words) else words[:1])}
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
            if words[0] not in _NO_PROGRAMS:
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

    for _ in range(_MAX_DEPTH):  # from the innermost
        line, count = _SUBSTITUTION.subn(take, line)
        if not count:
            break
    return line, contents


def _without_here_documents(text: str) -> str:
    kept = []
    end: str | None = None
    for line in text.split("\n"):
        if end is None:
            kept.append(line)
            start = _HERE_DOCUMENT.search(line)
            end = start[2] if start else None
        elif line.strip("\t") == end:
            end = None
    return "\n".join(kept)


def _tokens(line: str) -> list[str]:
    """Split into words and runs of operators. With unbalanced quotes, split at blanks."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=_OPERATORS)
    lexer.whitespace, lexer.whitespace_split, lexer.commenters = " \t\r", True, ""
    try:
        return list(lexer)
    except ValueError:
        return re.findall(r"[();|&\n]|[<>]+|[^\s();|&<>]+", line)
