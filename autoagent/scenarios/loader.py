"""Read a scenario from its file as records. Errors name their lines. docs/scenarios.md describes the file."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path, PurePosixPath
from typing import Any

from autoagent.core.errors import SettingsError
from autoagent.core.events import EVENTS
from autoagent.session.load import parse
from autoagent.session.permissions import WAY_OUT
from autoagent.settings import REMOVED, REMOVED_KEYS, all_settings
from autoagent.text.yaml_file import YamlEntry, read_mapping

RUN = "{run}"  # in a session's arguments: the id of the run that earlier sessions last worked on
CONFIG = ".config/autoagent/config.yaml"  # the user's configuration in a scenario's home


@dataclass(frozen=True, slots=True)
class Part:
    """A part to find in a text, with its `source` in the scenario at `place` (`file:line`)."""

    place: str
    source: str
    pattern: re.Pattern[str]


@dataclass(frozen=True, slots=True)
class ExpectedFile:
    """A file to expect at `path`: with exactly this `content`, with a match of `pattern`, or `absent`."""

    place: str
    path: str
    content: str | None = None
    pattern: re.Pattern[str] | None = None
    absent: bool = False


@dataclass(frozen=True, slots=True)
class Expected:
    """The expected outcome of a session.

    The parts of the screen occur in order, those of the prompts anywhere. `commands` and `events` (by type) count this
    session only. None and missing values are not checked.
    """

    place: str
    code: int = 0
    screen: tuple[Part, ...] = ()
    not_on_screen: tuple[Part, ...] = ()
    prompt: tuple[Part, ...] = ()
    not_in_prompt: tuple[Part, ...] = ()
    files: tuple[ExpectedFile, ...] = ()
    commands: int | None = None
    events: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ScenarioSession:
    """One process of the program: its arguments, the model's replies and the typed answers."""

    arguments: tuple[str, ...]
    terminal: bool
    replies: tuple[str, ...]
    answers: tuple[str, ...]
    expected: Expected


@dataclass(frozen=True, slots=True)
class GivenFile:
    """A file to create at `path`: with this content, or copied from `source`, perhaps a folder."""

    path: str
    content: str = ""
    source: Path | None = None


@dataclass(frozen=True, slots=True)
class Scenario:
    """Sessions to play in one folder, one after another, within `seconds` in all.

    Paths are relative to that folder. `settings` become the user's configuration file.
    """

    path: Path
    about: str
    files: tuple[GivenFile, ...]
    settings: Mapping[str, str | list[str]]
    environment: Mapping[str, str]
    seconds: float
    sessions: tuple[ScenarioSession, ...]


DEFAULT_SECONDS = 60.0  # for a scenario
MAX_CHARACTERS = 1000  # of an answer: a terminal accepts only a few thousand at once

_SCREEN_VARIABLES = {"LANG", "LANGUAGE", "TZ", "TERM", "COLORTERM", "NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES"}

_SESSION_KEYS = ("arguments", "goals", "terminal", "replies", "answers", "expect")
_SCENARIO_KEYS = ("about", "files", "settings", "environment", "seconds", *_SESSION_KEYS, "then")
_TEXT_KEYS = ("screen", "not_on_screen", "prompt", "not_in_prompt")
_EXPECTED_KEYS = ("exit", *_TEXT_KEYS, "files", "commands", "events")


def read_scenario(path: Path, *, trusted: bool = False) -> Scenario:
    """Read the scenario in a file. Unless `trusted`, its files, variables and paths stay inside its folder.

    Raises SettingsError, naming the file and the line.
    """
    entries = read_mapping(path, _SCENARIO_KEYS, "key")
    first = {key: entry for key, entry in entries.items() if key in _SESSION_KEYS}
    later = [entry.members(_SESSION_KEYS) for entry in entries["then"].items()] if "then" in entries else []
    files = entries["files"].members() if "files" in entries else {}
    seconds = entries["seconds"].value() if "seconds" in entries else DEFAULT_SECONDS
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or seconds <= 0:
        raise SettingsError(f"{entries['seconds'].where}: must be a number of seconds above 0.")
    return Scenario(
        path=path,
        about=entries["about"].text() if "about" in entries else "",
        files=tuple(_given_file(name, entry, trusted=trusted) for name, entry in files.items()),
        settings=_settings(entries["settings"]) if "settings" in entries else {},
        environment=_environment(entries["environment"], trusted=trusted) if "environment" in entries else {},
        seconds=float(seconds),
        sessions=tuple(_session(path, session, trusted=trusted) for session in (first, *later)),
    )


def _given_file(name: str, entry: YamlEntry, *, trusted: bool) -> GivenFile:
    path = _inside(name, entry)
    if path == CONFIG:
        raise SettingsError(f"{entry.where}: put its content under `settings`.")
    if entry.node.id == "scalar":
        return GivenFile(path, content=_exact_text(entry))
    source = entry.members(("from",)).get("from")
    if source is None:
        raise SettingsError(f"{entry.where}: needs a text or `from: FILE`.")
    original = entry.path.parent / source.text()
    if not source.text() or not original.exists():
        raise SettingsError(f"{source.where}: there is no {original}; put it next to the scenario.")
    folder = entry.path.parent.resolve()
    for file in () if trusted else (original, *(original.rglob("*") if original.is_dir() else ())):
        if not Path(os.path.realpath(file)).is_relative_to(folder):
            raise SettingsError(f"{source.where}: {file} leads out of the folder {folder}; {WAY_OUT}.")
    return GivenFile(path, source=original)


def _settings(entry: YamlEntry) -> dict[str, str | list[str]]:
    settings: dict[str, str | list[str]] = {}
    for name, setting in entry.members([f.name for f in fields(all_settings())], "setting", REMOVED_KEYS).items():
        settings[name] = setting.texts() if setting.is_list else setting.text()
        if setting.texts():  # an empty variable is not set
            parse(name, ",".join(setting.texts()), setting.where)
    return settings


def _environment(entry: YamlEntry, *, trusted: bool) -> dict[str, str]:
    variables = {}
    # Other variables can load programs.
    harmless_names = _SCREEN_VARIABLES.union(*(field.metadata["env"] for field in fields(all_settings())))
    for name, variable in entry.members().items():
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            raise SettingsError(f"{variable.where}: is not the name of a variable.")
        if name in REMOVED:
            raise SettingsError(f"{variable.where}: is no longer a setting: {REMOVED[name]}.")
        if not (trusted or name in harmless_names or name.startswith("LC_")):
            raise SettingsError(f"{variable.where}: is not a variable that a scenario may set; {WAY_OUT}.")
        variables[name] = _exact_text(variable)
    return variables


def _session(path: Path, entries: Mapping[str, YamlEntry], *, trusted: bool) -> ScenarioSession:
    if "expect" not in entries:
        place = next(iter(entries.values())).place if entries else str(path)
        raise SettingsError(f"{place}: expect: is missing; add what you expect of this session.")
    goals = entries["goals"].texts() if "goals" in entries else []
    arguments = _arguments(entries["arguments"], trusted=trusted) if "arguments" in entries else []
    return ScenarioSession(
        arguments=(*arguments, *(word for goal in goals for word in ("--ai-goal", goal))),
        terminal=_boolean(entries["terminal"]) if "terminal" in entries else True,
        replies=tuple(_reply(entry) for entry in entries["replies"].items()) if "replies" in entries else (),
        answers=tuple(_answer(entry) for entry in entries["answers"].items()) if "answers" in entries else (),
        expected=_parse_expected(entries["expect"]),
    )


def _arguments(entry: YamlEntry, *, trusted: bool) -> list[str]:
    """Return the words. Unless `trusted`, none may be a path out of the folder. Flags are checked elsewhere."""
    try:
        words = shlex.split(entry.text())
    except ValueError as error:
        raise SettingsError(f"{entry.where}: cannot be split into words: {error}.") from None
    for word in () if trusted else words:
        attached = word[2:] if re.match(r"-\w", word) else ""  # as in -oFILE
        for path in map(PurePosixPath, (word, word.partition("=")[2], attached)):
            if path.is_absolute() or ".." in path.parts:
                raise SettingsError(f"{entry.where}: {word} leads out of the folder of the scenario; {WAY_OUT}.")
    return words


def _reply(entry: YamlEntry) -> str:
    """Return the reply as the model writes it: a text unchanged, a command in the response format."""
    if entry.node.id == "scalar":
        return _exact_text(entry)
    parts = entry.members(("thoughts", "command", "args"))
    if "command" not in parts:
        raise SettingsError(f"{entry.where}: the reply has no `command`; a reply without one is a text.")
    args = parts["args"].value() if "args" in parts else {}
    if not isinstance(args, dict):
        raise SettingsError(f"{parts['args'].where}: must hold `key: value` lines.")
    thoughts = parts["thoughts"].text() if "thoughts" in parts else ""
    reply = {"thoughts": {"text": thoughts}, "command": {"name": parts["command"].text(), "args": args}}
    return json.dumps(reply, ensure_ascii=False)


def _answer(entry: YamlEntry) -> str:
    if entry.node.id == "scalar" and entry.node.tag.endswith(":null"):
        raise SettingsError(f'{entry.where}: holds an empty item; write "" for Enter alone.')
    answer = entry.text()
    if not answer.isprintable() or len(answer) > MAX_CHARACTERS:
        raise SettingsError(f"{entry.where}: an answer is one line of at most {MAX_CHARACTERS} characters to type.")
    return answer


def _parse_expected(entry: YamlEntry) -> Expected:
    entries = entry.members(_EXPECTED_KEYS)
    texts = {name: entries[name] for name in _TEXT_KEYS if name in entries}
    parts = {name: tuple(map(_part, text.items() if text.is_list else [text])) for name, text in texts.items()}
    files = entries["files"].members() if "files" in entries else {}
    events = entries["events"].members(EVENTS, "type of event") if "events" in entries else {}
    return Expected(
        place=entry.place,
        code=_count(entries["exit"]) if "exit" in entries else 0,
        files=tuple(_parse_expected_file(name, file) for name, file in files.items()),
        commands=_count(entries["commands"]) if "commands" in entries else None,
        events={kind: _count(number) for kind, number in events.items()},
        **parts,
    )


def _part(entry: YamlEntry) -> Part:
    """Read a text, with any white space between its words, or `regex: ...`."""
    if entry.node.id == "mapping" and [key.value for key, _ in entry.node.value] == ["regex"]:
        expression = entry.members()["regex"]
        return Part(entry.place, _exact_text(expression), _pattern(expression))
    text = entry.text()
    if not text:
        raise SettingsError(f"{entry.where}: holds an empty item; write out what to look for.")
    return Part(entry.place, text, re.compile(r"\s+".join(re.escape(word) for word in text.split())))


def _pattern(entry: YamlEntry) -> re.Pattern[str]:
    try:
        return re.compile(_exact_text(entry), re.MULTILINE)
    except re.error as error:
        raise SettingsError(f"{entry.where}: is not a regular expression: {error}.") from None


def _parse_expected_file(name: str, entry: YamlEntry) -> ExpectedFile:
    path = _inside(name, entry)
    if entry.node.id == "scalar":
        return ExpectedFile(entry.place, path, content=_exact_text(entry))
    entries = entry.members(("regex", "absent"))
    if len(entries) != 1:
        raise SettingsError(f"{entry.where}: holds one of a text, `regex: ...` and `absent: true`.")
    if "regex" in entries:
        return ExpectedFile(entry.place, path, pattern=_pattern(entries["regex"]))
    if not _boolean(entries["absent"]):
        raise SettingsError(f"{entries['absent'].where}: can only be true; `regex: ''` is any file.")
    return ExpectedFile(entry.place, path, absent=True)


def _exact_text(entry: YamlEntry) -> str:
    """Return the text with its spaces and line ends."""
    entry.text()  # raises unless this is text
    return "" if entry.node.tag.endswith(":null") else str(entry.node.value)


def _inside(name: str, entry: YamlEntry) -> str:
    """Return the path of a file in the scenario's folder."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or not path.parts or not name.isprintable():
        raise SettingsError(f"{entry.where}: must be a path in the folder of the scenario, such as a/b.txt.")
    return str(path)


def _count(entry: YamlEntry) -> int:
    number: Any = entry.value()
    if isinstance(number, bool) or not isinstance(number, int) or number < 0:
        raise SettingsError(f"{entry.where}: must be a whole number of 0 or more.")
    return number


def _boolean(entry: YamlEntry) -> bool:
    value = entry.value()
    if not isinstance(value, bool):
        raise SettingsError(f"{entry.where}: must be true or false.")
    return value
