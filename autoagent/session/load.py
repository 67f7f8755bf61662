"""Load the settings in effect from all layers, with the origin of each value.

Later layers win: defaults < user config < `.env` < environment < flags. The task itself (name, role, goals) is in
`task_file`.
"""

from __future__ import annotations

import dataclasses
import os
import re
import stat
import sys
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field
from functools import cache
from pathlib import Path
from typing import Any

from autoagent.core.declaration import Permission
from autoagent.core.errors import SettingsError
from autoagent.core.frozen import dataclass
from autoagent.registry.parts import UntrustedValue
from autoagent.session.autogpt import AutoGPTFolder, is_blank
from autoagent.session.dotenv import Variable, boolean, number
from autoagent.session.permissions import check_bounds, may_set
from autoagent.settings import DOTENV, REMOVED_KEYS, WORKSPACE, Settings, all_settings, user_config_path
from autoagent.text.sanitize import shorten
from autoagent.text.text_file import check_not_writable_by_others, is_there
from autoagent.text.yaml_file import read_mapping

_MAX_PATH_BYTES = 2048  # half the usual limit of the system
_MAX_NAME_BYTES = 255  # of a name in a path
_PROGRAM = re.compile(r"([\w.+@:/-]*/)?([\w.+@:-]*[\w+]|\[)")  # a name or a path without shell syntax


@dataclass(frozen=True, slots=True)
class Loaded:
    """The settings in effect and their origins by name, such as `.env:3`, `default` or `flag`.

    `untrusted` are values of the folder that do not apply yet. `withheld_keys` has a line for each key not sent, since
    only the folder names the address, `removed_settings` one for each setting that is set but no longer exists, and
    `notes` one for each AutoGPT setting that works differently here. `persistent_values` were not set by flags.
    """

    settings: Settings
    origins: Mapping[str, str]
    untrusted: tuple[UntrustedValue, ...] = ()
    withheld_keys: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    removed_settings: tuple[str, ...] = ()
    persistent_values: Mapping[str, Any] = field(default_factory=dict)


Raw = tuple[str, str, Any, str]
"""A value of a layer: the setting, its name in messages, the value (unparsed if it is text) and its origin."""

Layer = dict[str, tuple[Any, str]]
"""Parsed values by setting, with their origins."""


def load(
    flags: Mapping[str, Any],
    env: Mapping[str, str],
    cwd: Path,
    user_config: Path | None = None,
    *,
    trusts: Callable[[UntrustedValue], bool] = lambda untrusted: False,
) -> Loaded:
    """Load all layers into one record. Reads only `.env` in `cwd` and the user config, and creates nothing.

    `flags` holds settings by field name. None and () mean unset. Other names are ignored except `gpt3only`, `gpt4only`,
    AS_WISH, and LOGGED_SETTINGS: the settings of a resumed run, just below the flags. Empty variables count as unset.
    `trusts` decides on values that `.env` may not set by itself. Raises SettingsError for an invalid value, naming its
    variable or flag, or its file, line and key.
    """
    config = user_config if user_config is not None else user_config_path(env)
    environ = (
        (name, variable, env[variable], f"environment: {variable}") for name, variable in _setting_variables(env)
    )
    config_layer, environment_layer, flag_layer = map(_parse_layer, (_from_config(config), environ, _from_flags(flags)))
    upper_layers = {**environment_layer, **flag_layer}
    outer_layers = {**config_layer, **upper_layers}
    autogpt = AutoGPTFolder(cwd, env, outer_layers)
    dotenv_layer, untrusted = _read_dotenv_values(cwd, outer_layers, upper_layers, trusts, autogpt)
    usual_places = autogpt.usual_places()
    if flags.get(AS_WISH) and not autogpt.is_in_use() and is_project(cwd, WORKSPACE.name):
        usual_places["workspace"] = CURRENT_FOLDER, "default"
    usual_places |= _active_python(env)
    effective = {**usual_places, **config_layer, **dotenv_layer, **upper_layers}
    user_layers = {name: entry for name, entry in outer_layers.items() if entry[1] != RUN}
    withheld_keys = _withhold_keys(effective, dotenv_layer, user_layers, trusts)
    settings = all_settings()(**{name: value for name, (value, _) in effective.items()})
    origins = {name: effective[name][1] if name in effective else "default" for name in _kinds()}
    fast, smart = ("fast_llm", "fast_window"), ("smart_llm", "window")
    for flag, winners, losers in (("gpt3only", fast, smart), ("gpt4only", smart, fast)):
        for winner, loser in zip(winners, losers, strict=True):
            if flags.get(flag) and getattr(settings, winner):
                settings = dataclasses.replace(settings, **{loser: getattr(settings, winner)})
                origins[loser] = f"--{flag}"
    _check_consistency(settings)
    check_bounds(settings, origins, env, cwd)
    persistent = {name: value for name, (value, _) in {**config_layer, **dotenv_layer, **environment_layer}.items()}
    return Loaded(
        settings, origins, tuple(untrusted), tuple(withheld_keys), tuple(autogpt.notes(effective, settings.state_dir)),
        tuple(autogpt.removed()), persistent,
    )  # fmt: skip


def _active_python(env: Mapping[str, str]) -> Layer:
    """Return the interpreter of the user's active virtual environment as a setting, unless the program runs in it."""
    for variable in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        place = Path(env.get(variable) or sys.prefix)
        python = place / "bin" / "python"
        is_own = os.path.realpath(place) == os.path.realpath(sys.prefix)
        if place.is_absolute() and not is_own and os.access(python, os.X_OK):
            return {"python": (str(python), f"environment: {variable}")}
    return {}


def _parse_layer(values: Iterable[Raw]) -> Layer:
    return {
        name: (parse(name, value, label) if isinstance(value, str) else value, origin)
        for name, label, value, origin in values
    }


def _read_dotenv_values(
    cwd: Path, outer: Layer, upper: Layer, trusts: Callable[[UntrustedValue], bool], autogpt: AutoGPTFolder
) -> tuple[Layer, list[UntrustedValue]]:
    """Return the values that `.env` sets, and those that it would set if trusted. `outer` are all other layers."""
    settings = all_settings()(**{name: value for name, (value, _) in outer.items()})
    layer: Layer = {}
    untrusted_values: list[UntrustedValue] = []
    for name, label, text, origin in autogpt.translated(_from_dotenv(autogpt.variables)):
        value = parse(name, text, label)
        metadata = all_settings().__dataclass_fields__[name].metadata
        old = getattr(settings, name)
        permission: Permission = metadata["folder"]
        untrusted = UntrustedValue(
            file=DOTENV, line=int(origin.rpartition(":")[2]), name=label.rpartition(" ")[2], value=text, setting=name,
            about=metadata["help"].partition(";")[0], secret=metadata["secret"], never=permission == "never",
        )  # fmt: skip
        is_unchanged = value == old or (isinstance(value, str) and _as_localhost(value) == _as_localhost(str(old)))
        is_allowed = name in upper or is_unchanged or may_set(permission, value, old, settings, cwd)
        if is_allowed or (permission != "never" and trusts(untrusted)):
            layer[name] = value, origin
        else:
            untrusted_values.append(untrusted)
    return layer, untrusted_values


def _as_localhost(address: str) -> str:
    return re.sub(r"\A(\w+://)127\.0\.0\.1(?=[:/]|\Z)", r"\1localhost", address)


def _withhold_keys(
    effective: Layer, dotenv_layer: Layer, user_layers: Layer, trusts: Callable[[UntrustedValue], bool]
) -> list[str]:
    """Drop the user's keys for addresses that only the folder or a run names. The folder's own keys are used instead.

    Return a line for each key that is withheld.
    """
    notices = []
    fields = all_settings().__dataclass_fields__
    for name, address_field in fields.items():
        keys, default = address_field.metadata["keys"], address_field.default
        address, origin = effective.get(name, (default, "default"))
        if not keys or address == user_layers.get(name, (default,))[0]:
            continue
        is_from_folder = name in dotenv_layer and origin == dotenv_layer[name][1]
        if not is_from_folder and (origin != RUN or trusts(saved_address(name, address))):
            continue
        for key in keys:
            if key in dotenv_layer:
                effective[key] = dotenv_layer[key]
            elif key in effective:
                _, key_origin = effective.pop(key)
                notices.append(
                    f"{fields[key].metadata['env'][0]} ({key_origin}) is not sent to {address}, which only {origin} "
                    f"names: write the key for it into .env, or set {address_field.metadata['env'][0]} where you set "
                    "that key."
                )
    return notices


def saved_address(name: str, address: str) -> UntrustedValue:
    """Return a run's saved address, trusted if the user has named it in this folder."""
    return UntrustedValue(file="", name=f"{name} of runs", value=address, about="where your prompts go", setting=name)


def _from_config(path: Path) -> Iterator[Raw]:
    if not is_there(path):
        return
    check_not_writable_by_others(path)
    kinds = _kinds()
    for key, entry in read_mapping(path, {**kinds, **_RENAMED}, removed=REMOVED_KEYS).items():
        name = _RENAMED.get(key, key)
        value = tuple(entry.texts()) if entry.is_list and kinds[name] is tuple else entry.text()
        if value:
            yield name, entry.where, value, entry.place


def _from_dotenv(variables: Mapping[str, Variable]) -> Iterator[Raw]:
    names = {name for f in dataclasses.fields(all_settings()) for name in f.metadata["env"]}
    values = {}
    for name, variable in variables.items():
        if name in names and variable.problem:
            raise SettingsError(f".env:{variable.line}: {name}: {variable.problem}")
        if name in names:
            values[name] = variable.value
    for setting_name, name in _setting_variables(values):
        line = variables[name].line
        yield setting_name, f".env:{line}: {name}", values[name], f".env:{line}"


_RENAMED = {"outage": "patience"}  # former names of settings in the user's configuration

_FLAGS = {  # flags whose names differ from their settings
    "memory_backend": "use-memory", "memory_trust": "memory", "memory_distil": "distil",
    "workspace": "workspace-directory", "openai_base_url": "base-url", "ai_settings_file": "ai-settings",
    "prompt_settings_file": "prompt-settings", "plain_output": "plain",
}  # fmt: skip

CURRENT_FOLDER = Path()  # the workspace of a wish in a project folder
AS_WISH = "as_wish"  # the flag for a task given as a wish, not by AutoGPT's flags or files
RUN = "the run"  # the origin of the settings in a resumed run's log
LOGGED_SETTINGS = "kept"  # the flag that holds these settings by name


def _from_flags(flags: Mapping[str, Any]) -> Iterator[Raw]:
    logged = flags.get(LOGGED_SETTINGS, {})
    for name in _kinds():
        value = flags.get(name)
        if value not in (None, ()):
            yield name, f"--{_FLAGS.get(name, name).replace('_', '-')}", value, "flag"
        elif name in logged:
            yield name, f"{name} in the log of the run", logged[name], RUN


def _setting_variables(variables: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield each setting that one of these variables sets, with that variable."""
    for setting_field in dataclasses.fields(all_settings()):
        for variable in setting_field.metadata["env"]:
            if not is_blank(variables.get(variable)):
                yield setting_field.name, variable
                break


@cache
def _kinds() -> dict[str, type]:
    """Return the type of every setting, without `None`. Lists are tuples of str."""
    kinds: dict[str, type] = {}
    for name, hint in typing.get_type_hints(all_settings()).items():
        if isinstance(hint, types.UnionType):
            hint = next(part for part in typing.get_args(hint) if part is not types.NoneType)
        kinds[name] = typing.get_origin(hint) or hint
    return kinds


_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


def one_line(text: str, label: str) -> str:
    """Return the stripped text. Raises SettingsError for a control character in it."""
    if _CONTROL.search(text := text.strip()):
        raise SettingsError(f"{label}: contains a line break or another control character; write it on one line.")
    return text


def parse(name: str, text: str, label: str) -> Any:
    """Convert the text to the setting's type. Raises SettingsError with the prefix `label`."""
    text = text.strip()
    kind, metadata = _kinds()[name], all_settings().__dataclass_fields__[name].metadata
    choices: Mapping[str, str] | None = metadata["choices"]
    if metadata["secret"] and not re.fullmatch(r"[!-~]*", text):
        raise SettingsError(f"{label}: holds a space or a character that no key has; copy the key again.")
    if kind is str:
        text = one_line(text, label)
    if choices is not None:
        if text.lower() not in choices:
            raise SettingsError(f"{label}: must be one of {', '.join(filter(None, choices))}, not {text!r}.")
        return choices[text.lower()]
    if metadata["parse"] is not None:
        try:
            parsed = metadata["parse"](text)
        except ValueError as error:
            raise SettingsError(f"{label}: {error}") from None
        return parsed if isinstance(parsed, str) else text
    if kind is bool:
        return boolean(text, label)
    if kind is int or kind is float:
        return number(text, label, "a whole number of 0 or more" if kind is int else "a number of 0 or more", kind)
    if kind is tuple:
        parts = tuple(part.strip() for part in text.split(",") if part.strip())
        if text and not parts:
            raise SettingsError(f"{label}: {text!r} names nothing; separate names with commas, or leave it out.")
        return parts
    return _path(text, label) if kind is Path else text


def _path(text: str, label: str) -> Path:
    if not text:
        raise SettingsError(f"{label}: is empty; name a file or a folder.")
    try:
        path = Path(text).expanduser()
    except RuntimeError:
        raise SettingsError(f"{label}: no such user's home: {shorten(repr(text), 100)}.") from None
    name_sizes = [len(os.fsencode(part)) for part in path.parts]
    is_long = len(os.fsencode(path)) > _MAX_PATH_BYTES or any(size > _MAX_NAME_BYTES for size in name_sizes)
    if "\0" in text or is_long:
        raise SettingsError(f"{label}: not a valid name: {shorten(repr(text), 100)}.")
    return path


def _check_consistency(settings: Settings) -> None:
    if settings.memory_growth < 1:
        raise SettingsError(f"MEMORY_GROWTH: must be 1 or more, not {settings.memory_growth:g}.")
    if settings.authorise_command_key.lower() == settings.exit_key.lower():
        raise SettingsError(f"AUTHORISE_COMMAND_KEY and EXIT_KEY are both {settings.exit_key!r}; they must differ.")
    for name in ("shell_denylist", "shell_allowlist"):
        for entry in getattr(settings, name):
            if not _PROGRAM.fullmatch(entry):
                raise SettingsError(
                    f"{name.upper()}: {entry!r} is not the name or path of a program; write the program alone, such "
                    "as git or /usr/bin/git, without arguments or patterns."
                )
    for name, last_code in (("openai_organization", 0x7F), ("user_agent", 0xFF)):  # characters valid in a header
        if any(ord(letter) > last_code for letter in getattr(settings, name)):
            raise SettingsError(f"{name.upper()}: {getattr(settings, name)!r} holds a character that cannot be sent.")
    examples = {
        "search_url": "a SearXNG server of this machine is usually http://127.0.0.1:8888",
        "openai_base_url": "a local server is usually http://127.0.0.1:PORT/v1",
    }
    for name, example in examples.items():
        if (url := getattr(settings, name)) and not url.startswith(("http://", "https://")):
            variable = settings.__dataclass_fields__[name].metadata["env"][0]
            raise SettingsError(f"{variable}: must begin with http:// or https://, not {url!r}; {example}.")
    if os.path.realpath(settings.workspace) == "/":
        raise SettingsError("AUTOAGENT_WORKSPACE: / is the whole system; name a folder of its own with -w.")


_PROJECT_FILES = (".git", "pyproject.toml", "package.json")


def is_project(folder: Path, workspace: str) -> bool:
    """Return whether the folder is a project of the user: it contains a project file such as .git, or any visible file.

    The root, the home folder and those above it never count. A world-writable folder, or one directly under the root,
    needs such a file, since /tmp and /etc are nobody's project. The `workspace` is ignored, as it comes from earlier
    runs. Only a few entries are read.
    """
    try:
        place, home = folder.resolve(strict=True), Path.home().resolve()
        if place == home or place in home.parents or not os.access(place, os.W_OK):
            return False
        if any(os.path.lexists(place / name) for name in _PROJECT_FILES):
            return True
        if place.stat().st_mode & stat.S_IWOTH or len(place.parts) <= 2:
            return False
        with os.scandir(place) as entries:
            return any(not entry.name.startswith(".") and entry.name != workspace for entry in entries)
    except (OSError, RuntimeError):  # missing or unreadable, or the home is unknown
        return False
