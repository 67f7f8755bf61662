"""Copy an AutoGPT folder into this one, and report each item taken, renamed or left behind, with the reason.

The folder may be a stranger's, so no link is followed, nothing here is overwritten and nothing becomes trusted.
"""

from __future__ import annotations

import dataclasses
import errno
import json
import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from autoagent.core.durable_files import replacing
from autoagent.core.errors import ModelError, SettingsError, StateError
from autoagent.session import autogpt
from autoagent.session.dotenv import Variable, read_dotenv, store_variables
from autoagent.session.load import parse
from autoagent.session.memories import open_memory_for_subcommand
from autoagent.session.session import Session
from autoagent.session.task_file import read_prompt_settings, read_task
from autoagent.settings import DOTENV, WORKSPACE, all_settings
from autoagent.text.figures import counted
from autoagent.text.sanitize import shorten
from autoagent.text.text_file import open_regular, read_text
from autoagent.text.yaml_file import read_mapping
from autoagent.workspace.guarded_names import GuardedNames
from autoagent.workspace.snapshots import MAX_BYTES, MAX_ENTRIES, MAX_FILE_BYTES

PLUGINS = Path("plugins")
MAX_TASK = 200  # characters
_PATHS = frozenset({"ai_settings_file", "prompt_settings_file", "plugins_config_file", "workspace", "state_dir"})
_GUARDED = GuardedNames()
_LOCAL = "EXECUTE_LOCAL_COMMANDS"

How = Literal["taken", "renamed", "not taken"]


@dataclass(frozen=True, slots=True)
class Row:
    """Describe an item in the folder: whether it was taken, its new name, and the reason."""

    item: str
    how: How
    to: str = ""
    why: str = ""


@dataclass(slots=True)
class MigrationPlan:
    """The plan of a migration: its report, variables to write, files to copy, and memories to add."""

    rows: list[Row] = field(default_factory=list)
    variables: dict[str, str] = field(default_factory=dict)
    copies: list[tuple[Path, Path]] = field(default_factory=list)
    memories: list[tuple[Path, list[str]]] = field(default_factory=list)
    size: int = 0  # bytes to copy

    def leave(self, item: str, why: str) -> None:
        self.rows.append(Row(item, "not taken", why=why))


def plan_migration(source: Path, target: Path) -> MigrationPlan:
    """Plan the migration of a folder; into itself, only its memories. Raises SettingsError if it is not AutoGPT's."""
    migration = MigrationPlan()
    if not _is_inside(source, Path(DOTENV)):
        migration.leave(DOTENV, "it is a link")
    variables = read_dotenv(source / DOTENV) if not migration.rows else {}
    values = {name: v.value for name, v in variables.items() if not (v.problem or autogpt.is_blank(v.value))}
    memories = _take_memories(migration, source, values.get("MEMORY_INDEX", ""))
    if source == target.resolve():
        return migration
    for name, usual in (("AI_SETTINGS_FILE", "ai_settings.yaml"), ("PROMPT_SETTINGS_FILE", "prompt_settings.yaml"),
                        ("PLUGINS_CONFIG_FILE", "plugins_config.yaml")):  # fmt: skip
        _take_file(migration, source, Path(values.get(name) or usual), target / usual)
    _take_folder(migration, source / PLUGINS, target / PLUGINS)
    workspaces = (source / path for path in autogpt.WORKSPACES if _is_inside(source, path) and (source / path).is_dir())
    workspace = next(workspaces, source)
    logs = frozenset(path for path in (workspace / "file_logger.txt", source / "logs") if path.exists())
    if workspace != source:
        _take_folder(migration, workspace, target / WORKSPACE, excluded=memories | logs)
    for path in sorted(logs):
        migration.leave(str(path.relative_to(source)), "AutoGPT's own log")
    for agent in autogpt.agents_in(source):
        label = str(agent.relative_to(source))
        _take_folder(migration, agent / "workspace", target / WORKSPACE / agent.name, label=f"{label}/workspace")
        migration.leave(f"{label}/state.json", _why_not_continued(agent / "state.json"))
        _list_permissions(migration, source, agent / "permissions.yaml")
    _list_permissions(migration, source, source / ".autogpt" / "autogpt.yaml")
    _take_variables(migration, source, target, variables, values)
    if not migration.rows:
        raise SettingsError(f"{source}: not an AutoGPT folder: it has no .env and no ai_settings.yaml.")
    return migration


def apply_plan(migration: MigrationPlan, here: Path, flags: Mapping[str, Any], say: Callable[[str], None]) -> None:
    """Write the variables, copy the files and add the memories. Raises ForUser if something cannot be written."""
    problems: list[str] = []
    for source, target in migration.copies:
        try:
            _copy(source, target)
        except SettingsError as error:  # such as an unreadable file; all others are taken
            problems.append(str(error))
    if migration.variables:
        store_variables(here / DOTENV, migration.variables, quote=True)
    texts = [(path, text) for path, memories in migration.memories for text in memories]
    try:
        if texts:
            with open_memory_for_subcommand(Session.load(flags).settings) as living:
                old_count = len(living)
                times = {path: path.stat().st_mtime for path, _ in migration.memories}
                for path, text in texts:  # untrusted, since anybody may have written them
                    living.store.put(text, t=times[path], kind="note", source="AutoGPT", trusted=False, run="", step=0)
                new = counted(len(living) - old_count, "new memory")
                say(f"{new}, counted as text from outside: runs that act outward need --memory all.")
    except (SettingsError, StateError, ModelError, OSError) as error:
        raise SettingsError(f"Not all memories were imported: {error} Fix this, then run the command again.") from error
    if problems:
        raise SettingsError(f"Everything was taken but {counted(len(problems), 'file')}: {problems[0]}")


def _take_variables(
    migration: MigrationPlan, source: Path, target: Path, variables: Mapping[str, Variable], values: Mapping[str, str]
) -> None:
    existing = read_dotenv(target / DOTENV)
    fields_by_variable = {name: f for f in dataclasses.fields(all_settings()) for name in f.metadata["env"]}
    overridden = _take_translated(migration, source, values, existing)
    for name, value in values.items():
        setting = fields_by_variable.get(name)
        if name in autogpt.UNUSED:
            migration.leave(f".env: {name}", autogpt.UNUSED[name].reason)
        elif name in autogpt.TRANSLATED:
            if all(row.item != f".env: {name}" for row in migration.rows):
                migration.leave(f".env: {name}", "it belongs to another variable, or is empty")
        elif setting is None and (source / PLUGINS).is_dir():  # a plug-in may need it
            _take_variable(migration, name, name, value, existing)
        elif setting is None:
            migration.leave(f".env: {name}", "unknown to this program and to AutoGPT")
        elif setting.name in _PATHS:
            place = Path(os.path.normpath(source / value))
            if any(place == path or place in path.parents for path, _ in migration.copies):
                migration.rows.append(Row(f".env: {name}", "taken", why="what it names is copied under its usual name"))
            else:
                migration.leave(f".env: {name}", f"nothing of {value} is taken")
        elif setting.name in overridden:
            migration.leave(f".env: {name}", f"{overridden[setting.name]} sets that")
        else:
            try:
                parse(setting.name, value, name)
            except SettingsError as error:
                migration.leave(f".env: {name}", str(error))
            else:
                _take_variable(migration, name, setting.metadata["env"][0], value, existing)
    for name, variable in variables.items():
        if variable.problem:
            migration.leave(f".env: {name}", variable.problem)
    if _LOCAL not in values and autogpt.is_from_autogpt(source / DOTENV, variables):
        _take_variable(migration, f"{_LOCAL}, which is not set", _LOCAL, "false", existing)
    if blank := sum(1 for v in variables.values() if autogpt.is_blank(v.value) and not v.problem):
        migration.leave(f".env: {counted(blank, 'other variable')}", "empty, or the template's placeholder")


def _take_translated(
    migration: MigrationPlan, source: Path, values: Mapping[str, str], existing: Mapping[str, Variable]
) -> dict[str, str]:
    """Take variables that have another name here. Return the settings they override, each with its variable."""
    overridden: dict[str, str] = {}
    azure_file = autogpt.azure_file(values)
    if not _is_inside(source, azure_file):
        migration.leave(str(azure_file), "it leads out of the folder, or is a link")
        return overridden
    redis = values.get("MEMORY_BACKEND", "").strip().lower() == autogpt.REDIS
    try:
        for meaning in autogpt.meanings(values, source, redis=redis):
            variable = all_settings().__dataclass_fields__[meaning.setting].metadata["env"][0]
            where = ".env" if meaning.variable in values else str(azure_file)
            _take_variable(migration, meaning.variable, variable, meaning.value, existing, where)
            if meaning.overrides:
                overridden[meaning.setting] = meaning.variable
        if (source / azure_file).is_file() and not autogpt.is_true(values, "USE_AZURE"):
            migration.leave(str(azure_file), "USE_AZURE is not set")
    except SettingsError as error:
        migration.leave(".env", str(error))
    return overridden


def _take_variable(
    migration: MigrationPlan, name: str, to: str, value: str, existing: Mapping[str, Variable], where: str = DOTENV
) -> None:
    item, fields = f"{where}: {name}", all_settings().__dataclass_fields__
    keys = {key for f in fields.values() if to in f.metadata["env"] for key in f.metadata["keys"]}
    if to in existing or to in migration.variables:
        migration.leave(item, f"{to} is set here already")
    elif any(variable in existing for key in keys for variable in fields[key].metadata["env"]):
        migration.leave(item, f"your key in .env would be sent there: write {to} into it yourself")
    elif re.search(r"['\\\n\r]", value):
        migration.leave(item, f"it holds a quote, a backslash or a line end: write {to} into .env yourself")
    else:
        migration.variables[to] = value
        migration.rows.append(Row(item, "taken" if name.partition(",")[0] == to else "renamed", f".env: {to}"))


def _is_inside(folder: Path, path: Path) -> bool:
    """Return whether a path is inside the folder and reached through no link. It may be missing."""
    place = folder
    for part in path.parts:
        place = place / part
        if part == ".." or place.is_symlink():
            return False
    return not path.is_absolute()


def _take_file(migration: MigrationPlan, source: Path, name: Path, target: Path) -> None:
    if not _is_inside(source, name):
        return migration.leave(str(name), "it leads out of the folder, or is a link")
    if not (source / name).exists():
        return
    readers: dict[str, Any] = {"ai_settings.yaml": read_task, "prompt_settings.yaml": read_prompt_settings}
    try:
        readers.get(target.name, read_text)(source / name)
    except SettingsError as error:
        return migration.leave(str(name), str(error))
    if target.exists():
        return migration.leave(str(name), f"there is a {target.name} here already")
    migration.copies.append((source / name, target))
    migration.rows.append(Row(str(name), "taken" if target.name == str(name) else "renamed", target.name))


def _take_folder(
    migration: MigrationPlan, source: Path, target: Path, excluded: frozenset[Path] = frozenset(), label: str = ""
) -> None:
    """Take the files below a folder that the target lacks and nothing would run later, within a snapshot's limits.

    A sparse file counts with its nominal size, as for its copy. `label` is the path of a renamed folder.
    """
    if not source.is_dir() or source.is_symlink():
        return
    omitted = "a link, or there already"
    unsafe = "git, an editor or a later run would act on it: copy it yourself"
    large = f"more than {MAX_FILE_BYTES >> 20} MB, or {MAX_BYTES >> 20} MB and {MAX_ENTRIES:,} files in all"
    counts = {omitted: 0, unsafe: 0, large: 0}
    copies: list[tuple[Path, Path]] = []
    for path in _files(source):
        if path in excluded:
            continue
        to, status = target / path.relative_to(source), path.lstat()
        is_full = len(migration.copies) + len(copies) >= MAX_ENTRIES
        where = to.relative_to(target.parent if label else target)
        if ".git" in where.parts or _GUARDED.runs_later(str(where)):
            counts[unsafe] += 1
        elif os.path.lexists(to) or not stat.S_ISREG(status.st_mode):
            counts[omitted] += 1
        elif is_full or status.st_size > min(MAX_FILE_BYTES, MAX_BYTES - migration.size):
            counts[large] += 1
        else:
            copies.append((path, to))
            migration.size += status.st_size
    migration.copies += copies
    name = f"{target.parent.name}/{target.name}" if label else target.name
    label = label or source.name
    if copies:
        how: How = "taken" if label == name else "renamed"
        migration.rows.append(Row(f"{label}/", how, f"{name}/ ({counted(len(copies), 'file')})"))
    for why, number in counts.items():
        if number:
            migration.leave(f"{label}/: {counted(number, 'other file')}", why)


def _files(folder: Path) -> Iterator[Path]:
    for place, folders, names in os.walk(folder):  # follows no links
        if {"HEAD", "objects", "refs"} <= {*folders, *names}:  # a bare repository, whose configuration may run programs
            folders[:], names = [], []
        folders[:] = sorted(name for name in folders if name not in ("__pycache__", ".git"))
        yield from (Path(place) / name for name in sorted(names))


def _copy(source: Path, target: Path) -> None:
    """Copy a file atomically. Raises SettingsError if that fails or the file has meanwhile grown too large."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        if os.path.lexists(target):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
        with open_regular(source) as file, replacing(target, 0o666) as copy:
            copy.write(file.read(MAX_FILE_BYTES))
            if file.read(1):
                raise SettingsError(f"{source}: has grown over {MAX_FILE_BYTES >> 20} MB and is not copied.")
    except OSError as error:
        raise SettingsError(f"{source}: cannot be copied to {target}: {error.strerror}.") from error


def _why_not_continued(state: Path) -> str:
    try:
        data = _json(state)
    except (OSError, ValueError, RecursionError, SettingsError) as error:
        return f"it cannot be read: {error}"
    task = data.get("task") if isinstance(data, dict) else None
    task_note = f" with the task {shorten(' '.join(task.split()), MAX_TASK)!r}" if isinstance(task, str) else ""
    return f"its steps cannot be continued: start again{task_note}"


def _list_permissions(migration: MigrationPlan, source: Path, path: Path) -> None:
    """List the permissions of AutoGPT's later versions, each with the equivalent rule here."""
    label = str(path.relative_to(source))
    if not path.is_file() or not _is_inside(source, Path(label)):
        return
    try:
        permissions = [(key, text) for key, entry in read_mapping(path, None).items() for text in entry.texts()]
    except SettingsError as error:
        return migration.leave(label, str(error))
    for key, text in permissions:
        rule = re.sub(r"(\w+)\((.*)\)", r"\1:\2", text.replace("{workspace}/", "").replace(":**", " *"))
        allow = f"a folder cannot allow calls here, but you can: --allow '{rule}'"
        deny = "the user is asked, or the guard refuses; DISABLED_COMMANDS switches a command off"
        migration.leave(f"{label}: {key} {text}", deny if key == "deny" else allow)


def _take_memories(migration: MigrationPlan, source: Path, index: str) -> frozenset[Path]:
    """Take the texts of JSON memories in AutoGPT's older or newer form. Return their files."""
    existing = [path for path in autogpt.memories_in(source, index) if _is_inside(source, path.relative_to(source))]
    for path in existing:
        label = str(path.relative_to(source))
        try:
            texts = _texts(path)
        except (OSError, ValueError, RecursionError) as error:
            migration.leave(label, f"it cannot be read: {error}")
            continue
        migration.memories.append((path, texts))
        taken = Row(label, "taken", f"the memory: {counted(len(texts), 'text')}")
        migration.rows.append(taken if texts else Row(label, "not taken", why="empty"))
    return frozenset(existing)


def _json(path: Path) -> Any:
    """Read a JSON file (it may need twenty times its size in memory). Raises OSError and ValueError."""
    with open_regular(path) as file:
        raw = file.read(MAX_FILE_BYTES + 1)
    if len(raw) > MAX_FILE_BYTES:
        raise ValueError(f"it is larger than {MAX_FILE_BYTES >> 20} MB")
    return json.loads(raw or b"[]")


def _texts(path: Path) -> list[str]:
    data = _json(path)
    items: list[Any] = []
    if isinstance(data, dict):
        items = list(data.get("texts") or ())
    elif isinstance(data, list):
        items = [item.get("raw_content") or item.get("summary") for item in data if isinstance(item, dict)]
    texts = []
    for text in items:
        if isinstance(text, str) and text.strip():
            with suppress(UnicodeEncodeError):  # a lone surrogate cannot be stored
                text.encode()
                texts.append(text)
    return list(dict.fromkeys(texts))
