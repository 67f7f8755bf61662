"""Bounds for scenarios of `autoagent test`: a scenario by somebody else may set nothing wider than the user's settings.

The runner passes the user's settings in an environment variable, and each process of the scenario is held to them after
loading its own. Each setting declares its permission for scenarios.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autoagent.config.folder import COMPARED, may_set
from autoagent.config.text_file import is_inside
from autoagent.core.errors import SettingsError

if TYPE_CHECKING:
    from autoagent.config.settings import Settings

HELD_TO = "AUTOAGENT_HELD_TO"
"""The variable: the settings of the user's that bound a scenario, by name, as JSON."""

WAY_OUT = "`autoagent test --trusted` plays it as it stands"


def bounds_of(settings: Settings) -> dict[str, Any]:
    """Return the settings that bound a scenario and differ from the defaults, as JSON values."""
    compared = [f for f in fields(settings) if f.metadata["scenario"] in COMPARED]
    values = {f.name: getattr(settings, f.name) for f in compared if getattr(settings, f.name) != f.default}
    return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}


def tighter_than_usual(bounds: Mapping[str, Any], usual: Settings) -> dict[str, Any]:
    """Return the bounds that a scenario starts from: those tighter than the defaults."""
    own = _held(usual, bounds)
    return {
        f.name: bounds[f.name]
        for f in fields(usual)
        if f.name in bounds
        and may_set(f.metadata["scenario"], getattr(own, f.name), getattr(usual, f.name), usual, Path())
    }


def hold(settings: Settings, origins: Mapping[str, str], env: Mapping[str, str], folder: Path) -> None:
    """Raise SettingsError for a setting that a scenario in this folder may not have. Do nothing outside a scenario."""
    if HELD_TO not in env:
        return
    given = json.loads(env[HELD_TO])
    own = _held(type(settings)(), given)
    for declared in fields(settings):
        name, permission = declared.name, declared.metadata["scenario"]
        value, now = getattr(settings, name), getattr(own, name)
        is_place = permission == "inside" and name not in given  # one that is named as ever can be a link meanwhile
        if value is None or (value == now and not is_place) or may_set(permission, value, now, own, folder):
            continue
        if is_place:
            reason = "leads out of the folder of the scenario"
        elif permission in COMPARED:
            reason = f"is wider than what holds where you play it, {_shown(now) or 'none'}"
        else:
            reason = "is nothing that a scenario may set"
        raise SettingsError(f"{name} = {_shown(value)} ({origins[name]}) {reason}; {WAY_OUT}.")


def hold_workspace(place: Path, env: Mapping[str, str], folder: Path) -> None:
    """Raise SettingsError for a workspace that a run of a scenario played in this folder may not have."""
    if HELD_TO in env and not is_inside(folder, place):
        raise SettingsError(f"The workspace {place} of the run leads out of the folder of the scenario; {WAY_OUT}.")


def _held(settings: Settings, bounds: Mapping[str, Any]) -> Settings:
    """Return the settings with the bounds applied."""
    read = {name: _read(value, getattr(settings, name)) for name, value in bounds.items()}
    return replace(settings, **read)


def _read(value: Any, usual: Any) -> Any:
    """Convert a JSON value to the setting's type."""
    return tuple(value) if isinstance(value, list) else Path(value) if isinstance(usual, Path) else value


def _shown(value: Any) -> str:
    if isinstance(value, tuple):
        return ",".join(value)
    return str(value).lower() if isinstance(value, bool) else str(value)
