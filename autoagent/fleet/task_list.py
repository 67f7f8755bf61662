"""Read the tasks of a fleet: YAML, JSON lines, CSV or Python objects. docs/scale.md describes them.

Nothing starts before the whole file is read. Errors name the file, line and key. Values that run a program, use the
network or read outside of the file's folder need the user's trust, unless they are the user's own words.
"""

from __future__ import annotations

import csv
import json
import os
import re
import stat
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from autoagent.core.errors import SettingsError
from autoagent.core.task import MAX_GOALS, Goal
from autoagent.registry.parts import UntrustedValue
from autoagent.session.load import parse
from autoagent.session.permissions import may_set
from autoagent.settings import Settings
from autoagent.text.text_file import decode, open_regular
from autoagent.text.typed_goal import format_goal, parse_goal
from autoagent.text.yaml_file import YamlEntry, mapping_of

MAX_BYTES = 32_000_000  # of a task file
MAX_RUNS = 100_000  # of a fleet
MAX_REPEATS = 1_000
MAX_FILES, MAX_FILE_BYTES = 20_000, 1_000_000_000  # copied into one workspace
STDIN = Path("standard input")

ID = re.compile(r"(?!fleet\.)[A-Za-z0-9][\w.-]{0,99}", re.ASCII | re.IGNORECASE)  # not a name that a fleet uses itself
NUMBERS = {"budget": float, "max_tokens": int, "max_seconds": float, "steps": int}
TEXTS = {"model": "model", "name": "ai_name", "role": "ai_role"}
WORK = ("wish", "goal", "goals", "team")
TASK_KEYS = ("id", *WORK, "check", "idea", *TEXTS, *NUMBERS, "files", "repeat", "settings")
DEFAULT_KEYS = tuple(key for key in TASK_KEYS if key not in ("id", *WORK, "check", "idea"))
CHECK_REASON = "a program that checks a goal"


@dataclass(frozen=True, slots=True)
class Job:
    """A run of a fleet: its id, its task's id, its flags, and the files for its workspace.

    `team` is the path of a team file, or ''. All fields can be converted to JSON.
    """

    id: str
    task: str
    given: Mapping[str, Any]
    team: str = ""
    idea: str = ""
    files: tuple[str, ...] = ()


@dataclass(slots=True)
class TaskList:
    """The runs of a fleet, and the values in its file that need the user's trust."""

    jobs: list[Job] = field(default_factory=list)
    untrusted: list[UntrustedValue] = field(default_factory=list)


def read_tasks(path: Path, settings: Settings, piped: bytes | None = None) -> TaskList:
    """Read a task file, or `piped`, its bytes from standard input. Raises SettingsError."""
    is_piped = piped is not None
    if piped is not None:
        raw = piped
    else:
        try:
            with open_regular(path) as file:
                raw = file.read(MAX_BYTES + 1)
        except FileNotFoundError:
            raise SettingsError(f"{path}: no such file; docs/scale.md has an example.") from None
        except OSError as error:
            raise SettingsError(f"{path}: cannot be read: {error.strerror}.") from error
    if len(raw) > MAX_BYTES:
        raise SettingsError(f"{path}: is larger than {MAX_BYTES // 1_000_000} MB; split it.")
    text = decode(path, raw)
    defaults: Mapping[str, YamlEntry] = {}
    if path.suffix == ".csv":
        tasks = csv_tasks(path, text)
    elif path.suffix == ".jsonl" or (is_piped and text.lstrip().startswith("{")):
        defaults, tasks = json_tasks(path, text)
    else:
        mapping = mapping_of(text, path, ("defaults", "tasks"), "key of a task file")
        defaults = mapping["defaults"].members(DEFAULT_KEYS, "default of tasks") if "defaults" in mapping else {}
        tasks = mapping["tasks"].items() if "tasks" in mapping else []
    if not tasks:
        raise SettingsError(f"{path}: tasks: no task is given; list them under `tasks:`.")
    return jobs_of_entries(path, defaults, tasks, settings, is_users_own=is_piped)


def tasks_of(tasks: Iterable[Mapping[str, Any]], settings: Settings) -> TaskList:
    """Return the runs for tasks from a Python program. They have the keys of a task file. Raises SettingsError."""
    path = Path("tasks")
    entries = [entry_of(path, number, json.loads(json.dumps(task))) for number, task in enumerate(tasks, 1)]
    return jobs_of_entries(path, {}, entries, settings, is_users_own=True)


def jobs_of_entries(
    path: Path, defaults: Mapping[str, YamlEntry], tasks: Sequence[YamlEntry], settings: Settings, *, is_users_own: bool
) -> TaskList:
    """Return the runs of all tasks. `is_users_own` is whether they are the user's own words. Raises SettingsError."""
    task_list = TaskList()
    base = Path.cwd() if is_users_own else path.parent
    place_of_id: dict[str, str] = {}
    for entry in tasks:
        keys = {**defaults, **entry.members(TASK_KEYS, "key of a task")}
        if "id" not in keys or not keys["id"].text():
            raise SettingsError(f"{entry.place}: id: is missing; give each task an `id` of its own.")
        task, repeat = keys["id"].text(), 1
        if "repeat" in keys:
            repeat = int(number_of(keys["repeat"], int))
            if not 1 <= repeat <= MAX_REPEATS:
                raise SettingsError(f"{keys['repeat'].where}: must be from 1 to {MAX_REPEATS:,}, not {repeat}.")
        if not ID.fullmatch(task):
            rule = (
                "letters, digits, `.`, `_` and `-`, at most 100, the first a letter or digit, not beginning with fleet."
            )
            raise SettingsError(f"{keys['id'].where}: {task!r} cannot name a folder; use {rule}.")
        reader = TaskReader(path, base, keys, settings)
        flags, team, files = reader.flags(), reader.team(), reader.files()
        idea = reader.text_with_attachments(keys["idea"], keys["idea"].text()) if "idea" in keys else ""
        if not is_users_own:
            task_list.untrusted += reader.untrusted
        for number in range(1, repeat + 1):
            id = task if repeat == 1 else f"{task}.{number}"
            if id.lower() in place_of_id:
                raise SettingsError(
                    f"{keys['id'].where}: the id {id!r} is taken by {place_of_id[id.lower()]}; rename one of them."
                )
            place_of_id[id.lower()] = keys["id"].place
            task_list.jobs.append(Job(id, task, flags, team, idea, files))
        if len(task_list.jobs) > MAX_RUNS:
            raise SettingsError(f"{entry.place}: these are more than {MAX_RUNS:,} runs; split the file.")
    task_list.untrusted = list({value.mark: value for value in task_list.untrusted}.values())
    return task_list


@dataclass(frozen=True, slots=True)
class TaskReader:
    """Read a task whose `keys` include the defaults, and collect its values that need trust."""

    path: Path
    base: Path
    keys: Mapping[str, YamlEntry]
    settings: Settings
    untrusted: list[UntrustedValue] = field(default_factory=list)

    def flags(self) -> dict[str, Any]:
        """Return the task as flags of `autoagent run`. Raises SettingsError."""
        keys = self.keys
        flags: dict[str, Any] = {flag: keys[key].text() for key, flag in TEXTS.items() if key in keys}
        for key, kind in NUMBERS.items():
            if key in keys:
                name = "continuous_limit" if key == "steps" else key
                flags[name] = number_of(keys[key], kind)
                self.take_setting(name, keys[key])
        if "model" in flags:
            self.take_setting("model", keys["model"])
        if "settings" in keys:
            for name, entry in keys["settings"].members(Settings.__dataclass_fields__, "setting").items():
                flags[name] = self.take_setting(name, entry)
        work = [key for key in WORK if key in keys]
        if len(work) != 1:
            where = keys[work[1]].where if work else keys["id"].place
            raise SettingsError(f"{where}: a task has one of `wish`, `goal`, `goals` and `team`.")
        if "check" in keys and work != ["goal"]:
            raise SettingsError(f"{keys['check'].where}: goes with `goal`; each of `goals` has its own.")
        if work == ["wish"]:
            flags["wish"] = self.words(keys["wish"])
        elif work == ["goal"]:
            flags["ai_goals"] = [self.goal(keys["goal"], keys.get("check"))]
        elif work == ["goals"]:
            items = keys["goals"].items()
            if not 1 <= len(items) <= MAX_GOALS:
                raise SettingsError(f"{keys['goals'].where}: holds {len(items)} goals; a run has 1 to {MAX_GOALS}.")
            for item in items:
                has_keys = item.node.id == "mapping" and any(key.value == "text" for key, _ in item.node.value)
                parts = item.members(("text", "check"), "key of a goal") if has_keys else {"text": item}
                flags.setdefault("ai_goals", []).append(self.goal(parts["text"], parts.get("check")))
        return flags

    def team(self) -> str:
        """Return the path of the team file, or '' if there is none. Raises SettingsError if it is not valid."""
        if "team" not in self.keys:
            return ""
        from autoagent.session.session import checks_of_team
        from autoagent.teams.team_file import read_team

        path = Path(os.path.normpath(self.base.absolute() / self.keys["team"].text()))
        definition = read_team(path)
        if not definition["idea"] and "idea" not in self.keys:
            raise SettingsError(f"{self.keys['team'].where}: neither this task nor {path} has an `idea`.")
        self.untrusted.extend(checks_of_team(Path.cwd(), path, definition))
        return str(path)

    def files(self) -> tuple[str, ...]:
        """Return the absolute paths to copy into the workspace. Raises SettingsError for unusable paths."""
        if "files" not in self.keys:
            return ()
        from autoagent.session.build import protected_paths

        entry, paths = self.keys["files"], []
        protected = {Path(path).resolve() for path in protected_paths(self.settings)}
        for name in entry.texts():
            path = Path(os.path.normpath(self.base.absolute() / name))
            if Path(os.path.realpath(path)) in protected:
                raise SettingsError(f"{entry.where}: {name!r} belongs to the agent itself, which must not read it.")
            if not path.exists():
                raise SettingsError(f"{entry.where}: {name!r} is not there ({path}).")
            count = size = 0
            content = (Path(folder) / file for folder, _, files in os.walk(path) for file in files)  # follows no links
            for file in content if path.is_dir() else [path]:
                status = file.lstat()
                if not (stat.S_ISREG(status.st_mode) or stat.S_ISLNK(status.st_mode)):
                    raise SettingsError(f"{entry.where}: {file} is neither a file nor a folder.")
                count, size = count + 1, size + status.st_size
                if count > MAX_FILES or size > MAX_FILE_BYTES:
                    limit = f"{MAX_FILES:,} files or {MAX_FILE_BYTES // 1_000_000:,} MB"
                    raise SettingsError(f"{entry.where}: {name!r} is more than {limit}.")
            if not path.resolve().is_relative_to(self.base.resolve()):
                self.need_trust(entry, "files", name, "copied into the workspace, where the model reads it")
            paths.append(str(path))
        return tuple(paths)

    def take_setting(self, name: str, entry: YamlEntry) -> str:
        """Validate a setting and return its text. Raises SettingsError if a task may not set it."""
        metadata = Settings.__dataclass_fields__[name].metadata
        text = ", ".join(entry.texts()) if entry.is_list else entry.text()
        if metadata["secret"]:
            raise SettingsError(f"{entry.where}: is a secret; workers take it from the environment.")
        if name in ("workspace", "state_dir") or metadata["folder"] == "never":
            raise SettingsError(f"{entry.where}: cannot be set by a task.")
        value, current = parse(name, text, entry.where), getattr(self.settings, name)
        if value != current and not may_set(metadata["folder"], value, current, self.settings, Path.cwd()):
            self.need_trust(entry, name, text, metadata["help"].partition(";")[0])
        return text

    def words(self, entry: YamlEntry) -> str:
        """Return a wish or goal. Raises SettingsError if it is empty or contains a check."""
        text = self.text_with_attachments(entry, " ".join(entry.text().split()))
        if not text:
            raise SettingsError(f"{entry.where}: is empty.")
        if parse_goal(text).check:
            raise SettingsError(f"{entry.where}: ` :: ` makes no check here; write `goal:` and `check:`.")
        return text

    def text_with_attachments(self, entry: YamlEntry, text: str) -> str:
        """Return the text of an entry. Any files that it attaches with `@path` need trust."""
        from autoagent.session.attachments import FILE_REFERENCE

        for name in (match[1] or match[2] for match in FILE_REFERENCE.finditer(text)):
            self.need_trust(entry, "@", name, "attached, so that the model reads it")
        return text

    def goal(self, entry: YamlEntry, check: YamlEntry | None) -> str:
        """Return a goal as a user would type it. Raises SettingsError for a check that the shell cannot run."""
        text = self.words(entry)
        if check is None or not check.text():
            return format_goal(Goal(text))
        goal = Goal(text, " ".join(check.text().split("\n")))
        if parse_goal(format_goal(goal)) != goal:
            raise SettingsError(f"{check.where}: {goal.check!r} is not a command that a shell can run here.")
        self.need_trust(check, "check", str(goal.check), CHECK_REASON)
        return format_goal(goal)

    def need_trust(self, entry: YamlEntry, name: str, value: str, reason: str) -> None:
        """Add a value that needs trust, with its file's path relative to the current folder."""
        place = Path(os.path.normpath(Path.cwd() / self.path))
        file = place.relative_to(Path.cwd()) if place.is_relative_to(Path.cwd()) else place
        line = entry.node.start_mark.line + 1
        self.untrusted.append(UntrustedValue(file=str(file), line=line, name=name, value=value, about=reason))


def json_tasks(path: Path, text: str) -> tuple[Mapping[str, YamlEntry], list[YamlEntry]]:
    """Read JSON lines: one task each. The first may be `{"defaults": {...}}`. Raises SettingsError."""
    defaults: Mapping[str, YamlEntry] = {}
    tasks: list[YamlEntry] = []
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            value = json.loads(line, object_pairs_hook=unique_keys)
            entry = entry_of(path, number, value)
        except (ValueError, RecursionError) as error:
            raise SettingsError(f"{path}:{number}: is not a JSON object: {error}.") from None
        if not isinstance(value, dict):
            raise SettingsError(f"{path}:{number}: is not a JSON object; write a task on each line.")
        if not tasks and not defaults and value.keys() == {"defaults"}:
            entry = entry_of(path, number, value["defaults"], "defaults")
            defaults = entry.members(DEFAULT_KEYS, "default of tasks")
        else:
            tasks.append(entry)
    return defaults, tasks


def unique_keys(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object as a dict. Raises ValueError if a key occurs twice."""
    if len(members := dict(pairs)) < len(pairs):
        raise ValueError("a key occurs twice")
    return members


def csv_tasks(path: Path, text: str) -> list[YamlEntry]:
    """Read CSV, with keys in the first row. Empty cells are ignored. Raises SettingsError."""
    rows = csv.reader(StringIO(text), strict=True)
    tasks: list[YamlEntry] = []
    try:
        keys = [key.strip() for key in next(rows, [])]
        known_keys = [key for key in TASK_KEYS if key not in ("goals", "settings")]
        for key in keys:
            if key not in known_keys or keys.count(key) > 1:
                problem = "occurs twice" if key in known_keys else "is not a key of a task"
                raise SettingsError(f"{path}:1: the column {key!r} {problem}. Known keys: {', '.join(known_keys)}.")
        for row in rows:
            if len(row) > len(keys):
                raise SettingsError(f"{path}:{rows.line_num}: has {len(row)} cells; there are {len(keys)} columns.")
            cells = {key: cell.strip() for key, cell in zip(keys, row, strict=False) if cell.strip()}
            if cells:
                tasks.append(entry_of(path, rows.line_num, cells))
    except csv.Error as error:
        raise SettingsError(f"{path}:{rows.line_num}: is not CSV: {error}.") from None
    return tasks


def entry_of(path: Path, line: int, value: Any, key: str = "") -> YamlEntry:
    """Return a JSON value from a line of a file as an entry, so that it is read and validated like YAML."""

    def node(value: Any) -> SimpleNamespace:
        style = '"' if isinstance(value, str) else None
        fields = {"start_mark": SimpleNamespace(line=line - 1), "tag": ":null" if value is None else "", "style": style}
        if isinstance(value, dict):
            pairs = [(node(str(key)), node(member)) for key, member in value.items()]
            return SimpleNamespace(id="mapping", value=pairs, **fields)
        if isinstance(value, list):
            return SimpleNamespace(id="sequence", value=[node(item) for item in value], **fields)
        return SimpleNamespace(id="scalar", value=value if isinstance(value, str) else json.dumps(value), **fields)

    return YamlEntry(path, key, node(value))


def number_of(entry: YamlEntry, kind: type[int] | type[float]) -> float:
    """Return a positive number. Raises SettingsError for anything else."""
    try:
        number = kind(entry.text())
    except ValueError:
        number = 0
    if not 0 < number <= sys.float_info.max:
        noun = "a whole number" if kind is int else "a number"
        raise SettingsError(f"{entry.where}: must be {noun} above 0, not {entry.text()!r}.")
    return number
