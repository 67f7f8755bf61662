"""The packages that only some settings ask for, and the extras of this program that bring them."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass

from autoagent.settings import Settings


@dataclass(frozen=True, slots=True)
class Extra:
    """An extra by its name, the package it is there for, what asks for it in words, and whether settings do."""

    name: str
    package: str
    asked_by: str
    is_asked_for: Callable[[Settings], bool]

    @property
    def problem(self) -> str:
        """The problem if it is missing."""
        return f"{self.package.replace('_', '-')} is not installed, which {self.asked_by} asks for"

    @property
    def remedy(self) -> str:
        """The remedy if it is missing."""
        return f"pip install 'autoagent[{self.name}]'"

    def is_missing(self, settings: Settings) -> bool:
        """Return whether the settings ask for it and it is not installed."""
        return self.is_asked_for(settings) and not is_installed(self)

    def reason(self, settings: Settings) -> str:
        """Explain why a command that needs it cannot be used with these settings, or '' if it can."""
        return f"{self.problem}; {self.remedy}" if self.is_missing(settings) else ""


def is_installed(extra: Extra) -> bool:
    """Return whether the package of an extra is there."""
    return importlib.util.find_spec(extra.package) is not None


BROWSER = Extra("browser", "playwright", "-b/USE_WEB_BROWSER", lambda settings: bool(settings.browser_name))
OFFLINE_AUDIO = Extra(
    "offline-audio",
    "faster_whisper",
    "AUDIO_TO_TEXT_PROVIDER=offline",
    lambda settings: settings.audio_provider == "offline",
)
MCP = Extra("mcp", "mcp", "a list of MCP servers", lambda settings: settings.mcp_servers_file.is_file())
EXTRAS = (BROWSER, OFFLINE_AUDIO, MCP)
