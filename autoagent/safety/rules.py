"""Let calls run without a question by rules: `COMMAND`, or `COMMAND:PATTERN` on the first argument.

docs/security.md defines patterns for each kind of argument, and what is not covered. Rules come from the user alone:
flags, the user's config, and a file beside it with the rules for each folder.
"""

from __future__ import annotations

import json
import os
import posixpath
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from urllib.parse import unquote, urlsplit

from autoagent.core.commands import SOURCED, Call, CommandSpec, nearest, source_in
from autoagent.core.durable_files import sole_writer_of
from autoagent.core.errors import CommandError, SettingsError, StateError
from autoagent.core.frozen import dataclass
from autoagent.text.sanitize import shorten
from autoagent.text.text_file import read_text, write_text

MAX_LISTED_CALLS = 20  # before a rule is saved
MAX_CALL_CHARACTERS = 160

_PLAIN_CHARACTER = r"[^;&|<>()$`\\\"'*?\[\]{}~#!^\x00-\x1f\x7f\x85\u2028\u2029]"  # of a shell line: stands for itself
_RULE = re.compile(rf"([A-Za-z_][A-Za-z0-9_]*|{SOURCED})(?::(.*))?", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule that allows calls of a command. A `pattern` of None matches all of them."""

    command: str
    pattern: str | None = None

    @classmethod
    def parse(cls, text: str) -> Rule:
        """Parse `COMMAND` or `COMMAND:PATTERN`. Raises SettingsError for anything else."""
        match = _RULE.fullmatch(text.strip())
        if match is None or (match[2] is not None and not match[2].strip()):
            raise SettingsError(
                f"{text!r} is not a rule: write COMMAND or COMMAND:PATTERN, such as write_to_file:notes/*."
            )
        return cls(match[1], None if match[2] is None else match[2].strip())

    def __str__(self) -> str:
        return self.command if self.pattern is None else f"{self.command}:{self.pattern}"


def resolve_without_disk(path: str, *, follow: bool = True) -> str:
    """Return the normalized path, whatever links there are. Raises CommandError outside the workspace."""
    place = posixpath.normpath(path)
    if place.startswith(("/", "../")) or place == "..":
        raise CommandError(f"{path} is outside the workspace.")
    return place


def _matches(pattern: str, value: str, star: str) -> bool:
    """Return whether the whole value fits a pattern whose `*` is any number of the expression `star`."""
    parts = (re.escape(part) for part in re.split(r"\*+", pattern))
    return re.fullmatch(f"(?:{star})*".join(parts), value, re.DOTALL) is not None


def _url_matches(pattern: str, url: str) -> bool:
    try:
        pattern_parts, parts = urlsplit(pattern), urlsplit(url)
        is_same_port = pattern_parts.port == parts.port
    except ValueError:
        return False
    path = unquote(unquote(parts.path))
    if "@" in parts.netloc or "\\" in unquote(url) or ".." in path.split("/"):
        return False
    return (
        is_same_port
        and pattern_parts.scheme == parts.scheme
        and _matches(pattern_parts.hostname or "", parts.hostname or "", "[^./]")
        and _matches(_after_host(pattern), _after_host(url), r"[^\s\x00-\x1f\x7f]")
    )


def _after_host(url: str) -> str:
    """Return the path of a URL and everything after it, or at least a slash."""
    path = re.sub(r"^[^/]*//[^/?#]*", "", url)
    return path if path.startswith("/") else f"/{path}"


def _single_spaced(line: str) -> str:
    """Replace runs of spaces and tabs with one space. Keep newlines, since they begin another command."""
    return re.sub(r"[ \t]+", " ", line.strip(" \t"))


# The saved rules -------------------------------------------------------------------------------------------------


class SavedRules:
    """Save the rules for one folder in a file that the user alone may write. All methods raise StateError."""

    def __init__(self, path: Path, folder: Path) -> None:
        self.path = path
        self._folder = str(folder)

    def load(self) -> list[Rule]:
        """Return the rules, oldest first, or none if there is no file."""
        return self._read()[1]

    def add(self, rule: Rule) -> bool:
        """Save a rule, or return False if it is already saved."""
        return self._change(rule, is_saved=True)

    def remove(self, rule: Rule) -> bool:
        """Revoke a rule, or return False if it is missing."""
        return self._change(rule, is_saved=False)

    def _read(self) -> tuple[dict[str, list[str]], list[Rule]]:
        """Return the rules of every folder as written, and those of this folder, oldest first."""
        try:
            status = self.path.stat()
        except FileNotFoundError:
            return {}, []
        except OSError as error:
            raise StateError(f"The rules {self.path} cannot be read: {error.strerror}.") from error
        if not status.st_size:  # an empty file has no rules
            return {}, []
        if status.st_mode & 0o022 or status.st_uid not in (os.geteuid(), 0):
            raise StateError(f"Others may have written the rules {self.path}: look at them, then chmod 600 it.")
        try:
            folders: dict[str, list[str]] = dict(json.loads(read_text(self.path))["folders"])
            return folders, [Rule.parse(text) for text in folders.get(self._folder, [])]
        except (ValueError, TypeError, KeyError, AttributeError, SettingsError) as error:
            raise StateError(f"The rules {self.path} are damaged ({error}); fix or delete the file.") from error

    def _change(self, rule: Rule, *, is_saved: bool) -> bool:
        """Save or revoke a rule while no other process does. Return False if nothing has to change."""
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with sole_writer_of(self.path.parent):
                folders, rules = self._read()
                if (rule in rules) == is_saved:
                    return False
                rules = [*rules, rule] if is_saved else [other for other in rules if other != rule]
                new_folders = {**folders, self._folder: [str(rule) for rule in rules]}
                text = json.dumps({"v": 2, "folders": new_folders}, ensure_ascii=False, indent=2)
                write_text(self.path, f"{text}\n", private=True)
        except OSError as error:
            raise StateError(f"The rules {self.path} cannot be written: {error.strerror}.") from error
        except SettingsError as error:
            raise StateError(f"The rules {self.path} cannot be written: {error}") from error
        return True


# The rules of a run ----------------------------------------------------------------------------------------------


class Rulebook:
    """The rules of a run, and the calls proposed in it.

    `specs` are those of all commands, `texts` the rules of flags and settings. `resolve` returns a workspace path
    relative to its root, raises CommandError outside the workspace, and without `follow=True` keeps a link as its last
    part. Raises SettingsError for an invalid text, and StateError if the saved rules cannot be used.
    """

    def __init__(
        self,
        specs: Iterable[CommandSpec],
        texts: Iterable[str] = (),
        saved: SavedRules | None = None,
        *,
        resolve: Callable[..., str] = resolve_without_disk,
    ) -> None:
        self._specs = {spec.name: spec for spec in specs}
        self._saved = saved
        self._resolve = resolve
        self._rules = [*map(self.parse, texts), *(saved.load() if saved else ())]
        self._newest_calls: dict[str, Call] = {}  # by agent, perhaps edited since they were logged
        self.logged_calls: Callable[[], Iterable[tuple[str, Call]]] = tuple  # of the run, with their agents' keys

    def note(self, call: Call, agent: str = "") -> None:
        self._newest_calls[agent] = call

    def parse(self, text: str) -> Rule:
        """Return the rule under its command's present name. Raises SettingsError if it is invalid or never matches."""
        rule = Rule.parse(text)
        names = {name: spec for spec in self._specs.values() for name in (spec.name, *spec.aliases)}
        spec = names.get(rule.command)
        if spec is None:
            similar = nearest(rule.command, names)
            if source_in(rule.command) and not similar:
                return rule  # for a server that may be running another time
            hint = f" Did you mean {similar}?" if similar else ""
            problem = f"there is no command {rule.command!r}.{hint} See `autoagent commands`."
            raise SettingsError(f"The rule {rule}: {problem}")
        if rule.pattern is not None:
            if not spec.parameters:
                raise SettingsError(f"The rule {rule}: {spec.name} has no argument; leave out the pattern.")
            if spec.parameters[0].meaning == "url" and not re.match(r"https?://[^/]", rule.pattern):
                raise SettingsError(f"The rule {rule}: the pattern must begin with https:// or http:// and a host.")
        return Rule(spec.name, rule.pattern)

    def matches(self, rule: Rule, call: Call) -> bool:
        spec = self._specs.get(call.name)
        if spec is None or rule.command != call.name:
            return False
        if rule.pattern is None:
            return True
        if not spec.parameters:
            return False
        parameter = spec.parameters[0]
        value = str(call.args.get(parameter.name, parameter.default))
        match parameter.meaning:
            case "path" | "entry":
                try:
                    place = self._resolve(value, follow=parameter.meaning == "path")
                except CommandError:
                    return False
                stars = {"**": ".*", "*": "[^/]*"}
                parts = re.split(r"(\*\*|\*)", posixpath.normpath(rule.pattern))
                expression = "".join(stars.get(part, re.escape(part)) for part in parts)
                return re.fullmatch(expression, place, re.DOTALL) is not None
            case "url":
                return _url_matches(rule.pattern, value)
            case "shell":
                return _matches(_single_spaced(rule.pattern), _single_spaced(value), _PLAIN_CHARACTER)
            case "exact":
                return rule.pattern == value.strip()
            case "text":
                return _matches(rule.pattern, value, ".")

    def find_rule(self, call: Call) -> Rule | None:
        """Return the first rule that allows the call, or None."""
        return next((rule for rule in self._rules if self.matches(rule, call)), None)

    def forecast(self, rule: Rule) -> str:
        """List the calls so far that the rule would have allowed, one per line."""
        by_id = {(agent, call.id): call for agent, call in self.logged_calls()}
        for agent, call in [*self._newest_calls.items()]:  # sub-agents propose calls meanwhile
            if call not in by_id.values():  # edited
                by_id[agent, call.id] = call
        calls = list(by_id.values())
        matching = [call for call in calls if self.matches(rule, call)]
        title = f"{rule} would have allowed {len(matching)} of the {len(calls)} calls of this run:"
        omitted = [f"  and {len(matching) - MAX_LISTED_CALLS} earlier ones"] if len(matching) > MAX_LISTED_CALLS else []
        lines = (f"  {shorten(str(call), MAX_CALL_CHARACTERS)}" for call in matching[-MAX_LISTED_CALLS:])
        return "\n".join([title, *lines, *omitted])

    def save(self, rule: Rule) -> None:
        """Save a rule for this and later runs. Raises StateError."""
        if self._saved is not None:
            self._saved.add(rule)
        self._rules.append(rule)
