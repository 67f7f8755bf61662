"""Read `plugins_config.yaml`: which plug-ins are enabled, with which configuration and environment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autoagent.core.errors import SettingsError
from autoagent.text.text_file import is_there
from autoagent.text.yaml_file import YamlEntry, read_mapping

if TYPE_CHECKING:
    from autoagent.extension import Place

SECONDS = 30.0  # that a plug-in may take for one request
_KEYS = ("enabled", "config", "env", "seconds", "requirements")
_BOOLEANS = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}


@dataclass(frozen=True, slots=True)
class PluginEntry:
    """Hold the entry of a plug-in in the file.

    `env`: its variables, each with a value, or None for the value in `.env` or the environment. `seconds`: the time
    limit of one call. `requirements`: those that its requirements.txt lacks.
    """

    name: str
    enabled: bool = False
    config: Mapping[str, Any] = field(default_factory=dict)
    env: Mapping[str, str | None] = field(default_factory=dict)
    seconds: float = SECONDS
    requirements: tuple[str, ...] = ()


def read_plugins_config(path: Path) -> dict[str, PluginEntry]:
    """Read the file by plug-in, or {} if there is none. Raises SettingsError, which names the line."""
    if not is_there(path):
        return {}
    return {name: _entry(name, entry) for name, entry in read_mapping(path, None).items()}


def configured(place: Place) -> dict[str, PluginEntry]:
    """Return the entries of plug-ins in the settings, by name. Raises SettingsError."""
    entries = read_plugins_config(place.folder / place.setting("plugins_config_file"))
    return with_lists(entries, place.setting("allowlisted_plugins"), place.setting("denylisted_plugins"))


def with_lists(
    entries: Mapping[str, PluginEntry], allowed: Sequence[str], denied: Sequence[str]
) -> dict[str, PluginEntry]:
    """Apply ALLOWLISTED_PLUGINS to plug-ins without an entry, and DENYLISTED_PLUGINS to all."""
    found = {name: PluginEntry(name, enabled=True) for name in allowed} | dict(entries)
    return found | {name: PluginEntry(name) for name in denied}


def _entry(name: str, entry: YamlEntry) -> PluginEntry:
    if entry.node.id != "mapping":
        return PluginEntry(name, enabled=_is_true(entry))
    members = entry.members(_KEYS)
    config = members["config"].value() if "config" in members else {}
    if not isinstance(config, dict | None):
        raise SettingsError(f"{members['config'].where}: must hold `key: value` lines.")
    return PluginEntry(
        name,
        enabled="enabled" in members and _is_true(members["enabled"]),
        config=config or {},
        env=_env(members["env"]) if "env" in members else {},
        seconds=_seconds(members["seconds"]) if "seconds" in members else SECONDS,
        requirements=tuple(members["requirements"].texts()) if "requirements" in members else (),
    )


def _env(entry: YamlEntry) -> dict[str, str | None]:
    """Read a list of names, or names with their values."""
    if entry.node.id == "mapping":
        return {name: member.text() or None for name, member in entry.members().items()}
    return dict.fromkeys(entry.texts())


def _is_true(entry: YamlEntry) -> bool:
    text = entry.text().lower()
    if text and text not in _BOOLEANS:
        raise SettingsError(f"{entry.where}: must be true or false, not {text!r}.")
    return _BOOLEANS.get(text, False)


def _seconds(entry: YamlEntry) -> float:
    try:
        seconds = float(entry.text())
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= 86_400:
        raise SettingsError(f"{entry.where}: must be a number of seconds, not {entry.text()!r}.")
    return seconds
