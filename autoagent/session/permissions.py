"""Permissions of a folder's and a scenario's settings, as somebody else may have written them.

Each setting declares its permissions beside its default. Values that reach out, weaken a boundary or run a program
count only once the user has trusted the folder with them. A scenario of `autoagent test` may set nothing wider than the
user's own settings, which the runner passes to each of its processes in a variable.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autoagent.core.errors import SettingsError
from autoagent.registry.embedders import EMBEDDERS, OPENAI
from autoagent.registry.memory import BACKENDS
from autoagent.registry.models import OPENAI as ENDPOINT
from autoagent.registry.models import PROVIDERS, parse_model
from autoagent.registry.sandbox import is_stronger
from autoagent.text.text_file import is_inside

if TYPE_CHECKING:
    from autoagent.settings import Permission, Settings


LIMITED: Mapping[str, str] = {
    **dict.fromkeys(("limit", "less", "more", "fewer", "narrower", "shell", "denied", "allowed"), "only tighter"),
    **dict.fromkeys(("only true", "only false"), "only tighter"),
    "inside": "within the folder",
    "model": "no file, no run, no plug-in",
    **dict.fromkeys(("own model", "own memory", "own embedder"), "no plug-in"),
    "unset": "where you have none",
    "trust": "once trusted",
    "never": "never",
}
"""What a `.env` may do with a setting of each permission but "free", in words."""


def may_set(permission: Permission, value: Any, now: Any, held: Settings, folder: Path) -> bool:
    """Return whether an untrusted folder may set a value where `now` holds without it, among the settings `held`."""
    return permission in _ALLOWED and _ALLOWED[permission](value, now, held, folder)


COMPARED: frozenset[Permission] = frozenset(
    {"limit", "less", "more", "fewer", "narrower", "shell", "denied", "allowed", "only true", "only false", "stronger"}
)
"""The permissions that let a value be tighter than another."""


def _stays_here(model: str, held: Settings) -> bool:
    """Return whether a model sends texts only where the user's own choice sends them."""
    return parse_model(model).name != ENDPOINT.name or held.model_choice.name == ENDPOINT.name


def _is_own_embedder(name: str, held: Settings) -> bool:
    return not EMBEDDERS.is_added(name) and (name != OPENAI.name or held.model_choice.name == ENDPOINT.name)


def _has_no_lists(held: Settings) -> bool:
    return not (held.shell_command_control or held.shell_allowlist or held.shell_denylist)


# Whether the value is allowed, given the one in effect without it. A permission that is not here allows nothing.
_ALLOWED: Mapping[str, Callable[[Any, Any, Settings, Path], bool]] = {
    "free": lambda value, now, held, folder: True,
    "unset": lambda value, now, held, folder: not now,
    "limit": lambda value, now, held, folder: value > 0 and (now == 0 or value <= now),
    "less": lambda value, now, held, folder: bool(value <= now),
    "more": lambda value, now, held, folder: {*value} >= {*now} and not any(one[0] == "!" for one in {*value} - {*now}),
    "fewer": lambda value, now, held, folder: set(value) <= set(now),
    "narrower": lambda value, now, held, folder: not now or set(value) <= set(now),
    "shell": lambda value, now, held, folder: _has_no_lists(held),
    "denied": lambda value, now, held, folder: _has_no_lists(held) or (bool(now) and set(value) >= set(now)),
    "allowed": lambda value, now, held, folder: _has_no_lists(held) or (bool(now) and set(value) <= set(now)),
    "stronger": lambda value, now, held, folder: is_stronger(value, now),
    "only true": lambda value, now, held, folder: value is True,
    "only false": lambda value, now, held, folder: value is False,
    "inside": lambda value, now, held, folder: is_inside(folder, value),
    "model": lambda value, now, held, folder: parse_model(value).is_harmless and _stays_here(value, held),
    "own model": lambda value, now, held, folder: not PROVIDERS.is_added(parse_model(value).name),
    "own memory": lambda value, now, held, folder: not BACKENDS.is_added(value),
    "own embedder": lambda value, now, held, folder: _is_own_embedder(value.partition(":")[0], held),
}


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
