"""Name the optional packages and the extras that install them."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any

from autoagent.core.frozen import dataclass


@dataclass(frozen=True, slots=True)
class Extra:
    """An extra: its name, its package, the name of the setting that needs it, and a test of the settings."""

    name: str
    package: str
    asked_by: str
    is_asked_for: Callable[[Any], bool] = lambda settings: True

    @property
    def problem(self) -> str:
        return f"{self.package.replace('_', '-')} is not installed, which {self.asked_by} asks for"

    @property
    def remedy(self) -> str:
        return f"pip install 'autoagent[{self.name}]'"

    def is_missing(self, settings: Any) -> bool:
        """Return whether the settings need the package and it is not installed."""
        return self.is_asked_for(settings) and not is_installed(self)

    def reason(self, settings: Any) -> str:
        """Explain why a command cannot be used without the package, or return ''."""
        return f"{self.problem}; {self.remedy}" if self.is_missing(settings) else ""


def is_installed(extra: Extra) -> bool:
    """Return whether the package of an extra is installed."""
    return importlib.util.find_spec(extra.package) is not None


BROWSER = Extra("browser", "playwright", "-b/USE_WEB_BROWSER", lambda settings: bool(settings.browser_name))
