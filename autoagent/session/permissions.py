"""Decide which settings a folder or scenario may set, since somebody else may have written it.

Each setting declares its permissions beside its default. Values that reach out, weaken a boundary or run a program
apply only once the user has trusted the folder with them. A scenario of `autoagent test` may only tighten the user's
own settings. The runner passes these to each of its processes in a variable.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from autoagent.core.declaration import Permission
from autoagent.core.errors import SettingsError
from autoagent.registry.embedders import EMBEDDERS, OPENAI
from autoagent.registry.memory import BACKENDS
from autoagent.registry.models import OPENAI as ENDPOINT
from autoagent.registry.models import PROVIDERS, parse_model
from autoagent.registry.sandbox import is_stronger
from autoagent.settings import Settings
from autoagent.text.text_file import is_inside


def may_set(permission: Permission, value: Any, now: Any, settings: Settings, folder: Path) -> bool:
    """Return whether an untrusted folder may replace the value `now` among these settings in effect."""
    if permission.startswith("with "):  # such as `with openai key`
        return not getattr(settings, f"{permission.split()[1]}_api_key")
    return permission in _ALLOWED and _ALLOWED[permission](value, now, settings, folder)


COMPARED: frozenset[Permission] = frozenset(
    {"limit", "less", "more", "fewer", "narrower", "shell", "denied", "allowed", "only true", "only false", "stronger"}
)
"""The permissions under which one value can be tighter than another."""


def _is_allowed_model(model: str, settings: Settings) -> bool:
    """Return whether a model is harmless, and sends texts only where the user's own choice sends them."""
    choice = parse_model(model)
    return choice.is_harmless and (choice.name != ENDPOINT.name or settings.model_choice.name == ENDPOINT.name)


def _is_own_embedder(name: str, settings: Settings) -> bool:
    return not EMBEDDERS.is_third_party(name) and (name != OPENAI.name or settings.model_choice.name == ENDPOINT.name)


def _has_no_lists(settings: Settings) -> bool:
    return not (settings.shell_command_control or settings.shell_allowlist or settings.shell_denylist)


# Whether a value may replace the one in effect (`now`). A missing permission allows nothing.
_ALLOWED: Mapping[str, Callable[[Any, Any, Settings, Path], bool]] = {
    "free": lambda value, now, settings, folder: True,
    "unset": lambda value, now, settings, folder: not now,
    "limit": lambda value, now, settings, folder: value > 0 and (now == 0 or value <= now),
    "less": lambda value, now, settings, folder: bool(value <= now),
    "more": lambda value, now, settings, folder: {*value} >= {*now} and not any(v[0] == "!" for v in {*value} - {*now}),
    "fewer": lambda value, now, settings, folder: set(value) <= set(now),
    "narrower": lambda value, now, settings, folder: not now or set(value) <= set(now),
    "shell": lambda value, now, settings, folder: _has_no_lists(settings),
    "denied": lambda value, now, settings, folder: _has_no_lists(settings) or (bool(now) and {*value} >= {*now}),
    "allowed": lambda value, now, settings, folder: _has_no_lists(settings) or (bool(now) and {*value} <= {*now}),
    "stronger": lambda value, now, settings, folder: is_stronger(value, now),
    "only true": lambda value, now, settings, folder: value is True,
    "only false": lambda value, now, settings, folder: value is False,
    "inside": lambda value, now, settings, folder: is_inside(folder, value),
    "model": lambda value, now, settings, folder: _is_allowed_model(value, settings),
    "own model": lambda value, now, settings, folder: not PROVIDERS.is_third_party(parse_model(value).name),
    "own memory": lambda value, now, settings, folder: not BACKENDS.is_third_party(value),
    "own embedder": lambda value, now, settings, folder: _is_own_embedder(value.partition(":")[0], settings),
}


BOUNDS_VARIABLE = "AUTOAGENT_HELD_TO"  # holds the user's settings that bound a scenario, by name, as JSON
WAY_OUT = "`autoagent test --trusted` allows it"


def bounds_of(settings: Settings) -> dict[str, Any]:
    """Return the non-default settings that bound a scenario, as JSON values."""
    comparable = [f for f in fields(settings) if f.metadata["scenario"] in COMPARED]
    values = {f.name: getattr(settings, f.name) for f in comparable if getattr(settings, f.name) != f.default}
    return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}


def tighter_bounds(bounds: Mapping[str, Any], usual: Settings) -> dict[str, Any]:
    """Return the bounds that are tighter than the defaults; a scenario starts with these."""
    user_settings = _bounded(usual, bounds)
    return {
        f.name: bounds[f.name]
        for f in fields(usual)
        if f.name in bounds
        and may_set(f.metadata["scenario"], getattr(user_settings, f.name), getattr(usual, f.name), usual, Path())
    }


def check_bounds(settings: Settings, origins: Mapping[str, str], env: Mapping[str, str], folder: Path) -> None:
    """Raise SettingsError for a setting that a scenario in this folder may not have."""
    if BOUNDS_VARIABLE not in env:
        return
    bounds = json.loads(env[BOUNDS_VARIABLE])
    user_settings = _bounded(type(settings)(), bounds)
    for setting in fields(settings):
        name, permission = setting.name, setting.metadata["scenario"]
        value, now = getattr(settings, name), getattr(user_settings, name)
        is_path = permission == "inside" and name not in bounds  # even the default path may be a link
        if value is None or (value == now and not is_path) or may_set(permission, value, now, user_settings, folder):
            continue
        if is_path:
            reason = "leads out of the folder of the scenario"
        elif permission in COMPARED:
            reason = f"is wider than your own setting, {_format_value(now) or 'none'}"
        else:
            reason = "cannot be set by a scenario"
        raise SettingsError(f"{name} = {_format_value(value)} ({origins[name]}) {reason}; {WAY_OUT}.")


def enforce_inside(path: Path | None, name: str = "") -> None:
    """Raise SettingsError for a path, called `name`, that a scenario in the current folder may not reach."""
    if path is not None and BOUNDS_VARIABLE in os.environ and not is_inside(Path.cwd(), path):
        raise SettingsError(f"{name or path} leads out of the folder of the scenario; {WAY_OUT}.")


def remove_from_path(workspace: Path, env: MutableMapping[str, str]) -> None:
    """Remove folders in a workspace from PATH, so that we never run programs that the agent puts there."""
    root = Path(os.path.realpath(workspace))  # a circular link is reported later
    entries = env.get("PATH", os.defpath).split(os.pathsep)
    kept = [e for e in entries if not any(Path(place).is_relative_to(root) for place in (e, os.path.realpath(e)))]
    env["PATH"] = os.pathsep.join(kept) or os.defpath


def _bounded(settings: Settings, bounds: Mapping[str, Any]) -> Settings:
    """Return the settings with the bounds, which are JSON values, applied."""
    values: dict[str, Any] = {}
    for name, value in bounds.items():
        is_path = isinstance(getattr(settings, name), Path)
        values[name] = Path(value) if is_path else tuple(value) if isinstance(value, list) else value
    return replace(settings, **values)


def _format_value(value: Any) -> str:
    if isinstance(value, tuple):
        return ",".join(value)
    return str(value).lower() if isinstance(value, bool) else str(value)
