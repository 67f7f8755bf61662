"""Moves an AutoGPT folder into this one, once: what is taken, under which name, and what is not, with the reason.

The folder may be a stranger's: no link is followed, nothing here is written over, nothing is trusted by being moved.
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
from autoagent.session.autogpt import (
    PROMPT_SETTINGS,
    REDIS,
    TRANSLATED,
    UNUSED,
    WORKSPACES,
    azure_file,
    is_autogpts,
    is_blank,
    meanings,
)
from autoagent.session.dotenv import Variable, read_dotenv, store_variables
from autoagent.session.load import parse
from autoagent.session.memories import memory_of_user
from autoagent.session.session import Session
from autoagent.session.task_file import read_prompt_settings, read_task
from autoagent.settings import DOTENV, WORKSPACE, Settings
from autoagent.text.text_file import open_regular, read_text
from autoagent.workspace.snapshots import LARGEST_FILE, MOST_BYTES, MOST_ENTRIES

PLUGINS = Path("plugins")
MEMORY_LIMIT = 256_000_000  # bytes of a JSON memory
_PATHS = frozenset({"ai_settings_file", "prompt_settings_file", "plugins_config_file", "workspace", "state_dir"})
_LOCAL = "EXECUTE_LOCAL_COMMANDS"

How = Literal["taken", "renamed", "not taken"]


@dataclass(frozen=True, slots=True)
class Row:
    """A thing in the folder, what becomes of it, its new name, and why."""

    item: str
    how: How
    to: str = ""
    why: str = ""


@dataclass(slots=True)
class Migration:
    """The plan: the table of it, the variables to write, the files to copy, the memories to add.

    `plugins`: there are some, which may ask for variables of their own.
    """

    rows: list[Row] = field(default_factory=list)
    variables: dict[str, str] = field(default_factory=dict)
    copies: list[tuple[Path, Path]] = field(default_factory=list)
    memories: list[tuple[Path, list[str]]] = field(default_factory=list)
    plugins: bool = False
    size: int = 0  # bytes of what is copied


def plan(source: Path, here: Path) -> Migration:
    """Plan the move of an AutoGPT folder. Raises SettingsError if it holds nothing of AutoGPT's."""
    found = Migration()
    variables = read_dotenv(source / DOTENV)
    values = {name: one.value for name, one in variables.items() if not is_blank(one.value) and not one.problem}
    for name, usual in (("AI_SETTINGS_FILE", "ai_settings.yaml"), ("PROMPT_SETTINGS_FILE", str(PROMPT_SETTINGS)),
                        ("PLUGINS_CONFIG_FILE", "plugins_config.yaml")):  # fmt: skip
        _file(found, source, Path(values.get(name) or usual), here / usual)
    _folder(found, source / PLUGINS, here / PLUGINS)
    found.plugins = (source / PLUGINS).is_dir()
    memories = _memories(found, source, values.get("MEMORY_INDEX", ""))
    workspace = next((source / one for one in WORKSPACES if (source / one).is_dir()), None)
    if workspace is not None:
        _folder(found, workspace, here / WORKSPACE, but=memories)
    _variables(found, source, here, variables, values)
    if not found.rows:
        raise SettingsError(f"{source}: there is nothing of AutoGPT's in it: no .env, no ai_settings.yaml.")
    return found


def carry_out(migration: Migration, here: Path, say: Callable[[str], None]) -> None:
    """Write the variables, copy the files and add the memories. Raises ForUser for what cannot be written."""
    for source, target in migration.copies:
        _copy(source, target)
    if migration.variables:
        store_variables(here / DOTENV, migration.variables, quote=True)
    texts = [(path, text) for path, found in migration.memories for text in found]
    if not texts:
        return
    settings = Session.load({}).settings
    try:
        with memory_of_user(settings) as living:
            before = len(living)
            for path, text in texts:  # anybody could have written them
                living.store.put(
                    text, t=path.stat().st_mtime, kind="note", source="AutoGPT", trusted=False, run="", step=0
                )
            say(f"{len(living) - before} memories were new here; they count as text from outside.")
    except (SettingsError, StateError, ModelError) as error:
        say(f"The memories are not taken: {error} Run it again once that is mended.")


# The variables ---------------------------------------------------------------------------------------------------


def _variables(
    found: Migration, source: Path, here: Path, variables: Mapping[str, Variable], values: Mapping[str, str]
) -> None:
    there = read_dotenv(here / DOTENV)
    declared = {name: one for one in dataclasses.fields(Settings) for name in one.metadata["env"]}
    over = _translated(found, source, values, there)
    for name, value in values.items():
        setting = declared.get(name)
        if setting is None:
            _other(found, name, value, there)
        elif setting.name in _PATHS:
            place = Path(os.path.normpath(source / value))
            if any(place == taken or place in taken.parents for taken, _ in found.copies):
                found.rows.append(Row(f".env: {name}", "taken", why="the file or folder is copied to its usual name"))
            else:
                found.rows.append(Row(f".env: {name}", "not taken", why=f"nothing of {value} is taken"))
        elif setting.name in over:
            found.rows.append(Row(f".env: {name}", "not taken", why=f"{over[setting.name]} sets that"))
        else:
            try:
                parse(setting.name, value, name)
            except SettingsError as error:
                found.rows.append(Row(f".env: {name}", "not taken", why=str(error)))
            else:
                _variable(found, name, setting.metadata["env"][0], value, there)
    for name, one in variables.items():
        if one.problem:
            found.rows.append(Row(f".env: {name}", "not taken", why=one.problem))
    text = read_text(source / DOTENV) if variables else ""
    if _LOCAL not in values and is_autogpts(text, list(variables)):
        _variable(found, f"{_LOCAL}, which is not set", _LOCAL, "false", there)
    if blank := sum(1 for one in variables.values() if is_blank(one.value) and not one.problem):
        found.rows.append(Row(f".env: {blank} others", "not taken", why="empty, or the template's words"))


def _translated(
    found: Migration, source: Path, values: Mapping[str, str], there: Mapping[str, Variable]
) -> dict[str, str]:
    """Take variables with other names here. Return the settings that they override, each with the variable."""
    over: dict[str, str] = {}
    if not _is_in(source, azure_file(values)):
        found.rows.append(Row(f"{azure_file(values)}", "not taken", why="it leads out of the folder, or is a link"))
        return over
    redis = values.get("MEMORY_BACKEND", "").strip().lower() == REDIS
    try:
        for meaning in meanings(values, source, redis=redis):
            variable = Settings.__dataclass_fields__[meaning.setting].metadata["env"][0]
            where = ".env" if meaning.variable in values else str(azure_file(values))
            _variable(found, meaning.variable, variable, meaning.value, there, where)
            if meaning.over:
                over[meaning.setting] = meaning.variable
    except SettingsError as error:
        found.rows.append(Row(".env", "not taken", why=str(error)))
    return over


def _variable(
    found: Migration, name: str, to: str, value: str, there: Mapping[str, Variable], where: str = DOTENV
) -> None:
    item = f"{where}: {name}"
    if to in there or to in found.variables:
        found.rows.append(Row(item, "not taken", why=f"{to} is set here already"))
    elif any(variable in there for variable in _keys_of(to)):
        found.rows.append(Row(item, "not taken", why=f"your key in .env would go there: write {to} into it yourself"))
    elif re.search(r"['\\\n\r]", value):
        found.rows.append(
            Row(item, "not taken", why=f"a quote, a backslash or a line end in it: write {to} into .env yourself")
        )
    else:
        found.variables[to] = value
        found.rows.append(Row(item, "taken" if name.partition(",")[0] == to else "renamed", f".env: {to}"))


def _keys_of(variable: str) -> list[str]:
    """Return the variables that set the keys which go to the address that this one names, or none if it names none."""
    fields = Settings.__dataclass_fields__
    keys = [key for one in fields.values() if variable in one.metadata["env"] for key in one.metadata["keys"]]
    return [name for key in keys for name in fields[key].metadata["env"]]


def _other(found: Migration, name: str, value: str, there: Mapping[str, Variable]) -> None:
    """Take an unknown variable if plug-ins may ask for it. Say why a variable of AutoGPT's has no effect."""
    if name in UNUSED:
        found.rows.append(Row(f".env: {name}", "not taken", why=UNUSED[name].reason))
    elif name in TRANSLATED:
        if all(row.item != f".env: {name}" for row in found.rows):
            found.rows.append(Row(f".env: {name}", "not taken", why="it is part of another one, or sets nothing"))
    elif found.plugins:
        _variable(found, name, name, value, there)
    else:
        found.rows.append(Row(f".env: {name}", "not taken", why="neither this program nor AutoGPT knows it"))


# Files -----------------------------------------------------------------------------------------------------------


def _is_in(folder: Path, path: Path) -> bool:
    """Return whether a path lies in the folder with no link on its way. It may be missing."""
    place = folder
    for part in path.parts:
        place = place / part
        if part == ".." or place.is_symlink():
            return False
    return not path.is_absolute()


def _file(found: Migration, source: Path, name: Path, target: Path) -> None:
    if not _is_in(source, name):
        found.rows.append(Row(str(name), "not taken", why="it leads out of the folder, or is a link"))
        return
    if not (source / name).exists():
        return
    readers: dict[str, Callable[[Path], Any]] = {
        "ai_settings.yaml": read_task,
        str(PROMPT_SETTINGS): read_prompt_settings,
    }
    try:
        readers.get(target.name, read_text)(source / name)
    except SettingsError as error:
        found.rows.append(Row(str(name), "not taken", why=str(error)))
        return
    if target.exists():
        found.rows.append(Row(str(name), "not taken", why=f"there is a {target.name} here already"))
        return
    found.copies.append((source / name, target))
    found.rows.append(Row(str(name), "taken" if target.name == str(name) else "renamed", target.name))


def _folder(found: Migration, source: Path, target: Path, but: frozenset[Path] = frozenset()) -> None:
    """Take the files of a folder and below that are not there in the target yet, as many as a snapshot keeps.

    A sparse file counts with the size that it says, as its copy would have it.
    """
    if not source.is_dir() or source.is_symlink():
        return
    copies: list[tuple[Path, Path]] = []
    left = large = 0
    for path in _files(source):
        if path in but:
            continue
        to, status = target / path.relative_to(source), path.lstat()
        if os.path.lexists(to) or not stat.S_ISREG(status.st_mode):
            left += 1
        elif (
            status.st_size > min(LARGEST_FILE, MOST_BYTES - found.size)
            or len(found.copies) + len(copies) >= MOST_ENTRIES
        ):
            large += 1
        else:
            copies.append((path, to))
            found.size += status.st_size
    found.copies += copies
    shown = f"{target.name}/" + (f" ({len(copies)} files)" if copies else "")
    if copies:
        found.rows.append(Row(f"{source.name}/", "taken" if source.name == target.name else "renamed", shown))
    if left:
        found.rows.append(Row(f"{source.name}/: {left} others", "not taken", why="a link, or there already"))
    if large:
        why = f"more than {LARGEST_FILE >> 20} MB, or {MOST_BYTES >> 20} MB and {MOST_ENTRIES:,} files in all"
        found.rows.append(Row(f"{source.name}/: {large} others", "not taken", why=why))


def _files(folder: Path) -> Iterator[Path]:
    for place, folders, names in os.walk(folder):  # which follows no links
        folders[:] = sorted(name for name in folders if name not in ("__pycache__", ".git"))
        yield from (Path(place) / name for name in sorted(names))


def _copy(source: Path, target: Path) -> None:
    """Copy a file, whole or not at all, even if killed.

    Raises SettingsError if it cannot be read or written, or has grown too large meanwhile.
    """
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        if os.path.lexists(target):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
        with open_regular(source) as file, replacing(target, 0o666) as copy:
            copy.write(file.read(LARGEST_FILE))
            if file.read(1):
                raise SettingsError(f"{source}: has grown beyond {LARGEST_FILE >> 20} MB and is not copied.")
    except OSError as error:
        raise SettingsError(f"{source}: cannot be copied to {target}: {error.strerror}.") from error


# The memory ------------------------------------------------------------------------------------------------------


def _memories(found: Migration, source: Path, index: str) -> frozenset[Path]:
    """Take the texts of the JSON memories, of the older form or of the newer. Return their files."""
    names = dict.fromkeys(f"{name}.json" for name in (index, "auto-gpt", "AutoGpt") if name and "/" not in name)
    paths = [source / folder / name for folder in (Path(), *WORKSPACES) for name in names]
    there = [path for path in paths if path.is_file() and _is_in(source, path.relative_to(source))]
    for path in there:
        shown = str(path.relative_to(source))
        try:
            texts = _texts(path)
        except (OSError, ValueError, RecursionError) as error:
            found.rows.append(Row(shown, "not taken", why=f"it cannot be read: {error}"))
            continue
        found.memories.append((path, texts))
        how: How = "taken" if texts else "not taken"
        found.rows.append(Row(shown, how, f"the memory: {len(texts)} texts" if texts else "", "" if texts else "empty"))
    return frozenset(there)


def _texts(path: Path) -> list[str]:
    """Read the texts. Raises OSError and ValueError for anything else."""
    with open_regular(path) as file:
        raw = file.read(MEMORY_LIMIT + 1)
    if len(raw) > MEMORY_LIMIT:
        raise ValueError("it is too large")
    data = json.loads(raw or b"[]")
    found: list[Any] = []
    if isinstance(data, dict):
        found = list(data.get("texts") or ())
    elif isinstance(data, list):
        found = [item.get("raw_content") or item.get("summary") for item in data if isinstance(item, dict)]
    texts = []
    for text in found:
        if isinstance(text, str) and text.strip():
            with suppress(UnicodeEncodeError):  # half a character, which no memory holds
                text.encode()
                texts.append(text)
    return list(dict.fromkeys(texts))
