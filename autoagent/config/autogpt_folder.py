"""An AutoGPT folder: its `.env`, and the files beside it at their usual places."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from autoagent.config.autogpt_env import (
    PROMPT_SETTINGS,
    REDIS,
    WORKSPACES,
    azure_file,
    is_autogpts,
    is_blank,
    meanings,
    notes,
)
from autoagent.config.dotenv import read_dotenv
from autoagent.config.text_file import is_inside, read_text
from autoagent.core.errors import SettingsError

DOTENV = ".env"


class AutoGPTFolder:
    """The `.env` of a folder and AutoGPT's files beside it. `held` are the settings that hold without the folder."""

    def __init__(self, folder: Path, env: Mapping[str, str], held: Mapping[str, tuple[Any, str]]) -> None:
        self.variables = read_dotenv(folder / DOTENV)
        self._folder = folder
        self._env = env
        self._held = held
        text = read_text(folder / DOTENV) if self.variables else ""
        self._is_autogpts = is_autogpts(text, list(self.variables))

    def translated(self, written: Iterable[tuple[str, str, str, str]]) -> Iterator[tuple[str, str, str, str]]:
        """Yield the values of `.env`, with those that AutoGPT's variables set under other names (see settings.Raw)."""
        own = {name: (called, value, origin) for name, called, value, origin in written}
        values = {name: found.value for name, found in self.variables.items() if not is_blank(found.value)}
        values |= {"USE_AZURE": self._env["USE_AZURE"]} if self._env.get("USE_AZURE") else {}
        if not is_inside(self._folder, azure_file(values)):
            raise SettingsError(f"AZURE_CONFIG_FILE: {azure_file(values)} leads out of this folder.")
        backend = (
            self._held["memory_backend"][0] if "memory_backend" in self._held else own.get("memory_backend", "  ")[1]
        )
        redis = backend.lower() == REDIS
        for meaning in meanings(values, self._folder, redis=redis):
            if meaning.over or meaning.setting not in own:
                line = self._line(meaning.variable) or self._line("USE_AZURE")
                own[meaning.setting] = (f".env:{line}: {meaning.variable}", meaning.value, f".env:{line}")
        local = "execute_local_commands"
        if self._is_autogpts and local not in own and local not in self._held:
            own[local] = (".env:1: EXECUTE_LOCAL_COMMANDS", "false", ".env:1")
        for name, (called, value, origin) in own.items():
            yield name, called, value, origin

    def _line(self, variable: str) -> int:
        return self.variables[variable].line if variable in self.variables else 0

    def usual_places(self, workspace: Path) -> dict[str, tuple[Path, str]]:
        """Return AutoGPT's usual files and folders that exist here, for settings that name no others.

        `workspace` is our own default, which has precedence.
        """
        places = {"prompt_settings_file": (PROMPT_SETTINGS,), "workspace": (workspace, *WORKSPACES)}
        found: dict[str, tuple[Path, str]] = {}
        for name, paths in places.items():
            there = [path for path in paths if (self._folder / path).exists() and is_inside(self._folder, path)]
            if there and there[0] != workspace:
                found[name] = there[0], "default"
        return found

    def is_in_use(self, workspace: Path) -> bool:
        """Return whether AutoGPT, or a task of its kind, has a home here: its settings, its `.env`, a workspace."""
        ai_settings = self._env.get("AI_SETTINGS_FILE") or "ai_settings.yaml"
        names = (ai_settings, PROMPT_SETTINGS, workspace, *WORKSPACES)
        return self._is_autogpts or any(os.path.lexists(self._folder / name) for name in names)

    def notes(self, taken: Mapping[str, tuple[Any, str]]) -> list[str]:
        """Return a line for each thing the user might miss. `taken` are the settings in effect."""
        lines = notes({name: found.value for name, found in self.variables.items()})
        local = "EXECUTE_LOCAL_COMMANDS"
        if taken.get(local.lower()) == (False, ".env:1") and local not in self.variables:
            lines.append(
                f"Shell commands are off, as AutoGPT has it: {local}=true in .env switches them on, in the sandbox."
            )
        return lines
