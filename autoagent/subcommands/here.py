"""The settings that hold where the program was started."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from autoagent.settings import Settings, load


def settings_here(flags: Mapping[str, Any] | None, env: Mapping[str, str] | None = None) -> Settings:
    """All layers in this folder, under these flags; `env` goes before the environment. Raises SettingsError."""
    return load(flags or {}, {**os.environ, **(env or {})}, Path.cwd()).settings
