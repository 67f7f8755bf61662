"""The settings that hold where the program was started."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from autoagent.errors import SettingsError
from autoagent.settings import Loaded, Settings, load


def settings_here(flags: Mapping[str, Any] | None, env: Mapping[str, str] | None = None) -> Settings:
    """All layers in this folder, under these flags; `env` goes before the environment.

    Raises SettingsError, also where the state folder is no folder: it would look like one without runs.
    """
    settings = _loaded(flags, env).settings
    state = settings.state_dir
    if os.path.exists(state) and not os.path.isdir(state):  # noqa: PTH110, PTH112 - Path's raise where nobody may look
        raise SettingsError(f"The state folder {state} is a file; name a folder with --state-dir.")
    return settings


def said_here(names: Iterable[str]) -> dict[str, Any]:
    """What environment, `.env` and user config say of these settings; those they do not speak of are left out."""
    loaded = _loaded(None, None)
    return {name: getattr(loaded.settings, name) for name in names if loaded.origins[name] != "default"}


def _loaded(flags: Mapping[str, Any] | None, env: Mapping[str, str] | None) -> Loaded:
    return load(flags or {}, {**os.environ, **(env or {})}, Path.cwd())
