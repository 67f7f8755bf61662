"""The home of a user, and screens kept as golden text."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from homes import home, served

__all__ = ["home", "served"]

SCREENS = Path(__file__).parent.parent / "screens"


@pytest.fixture
def golden() -> Callable[[str, str], None]:
    """Compare a screen with the one kept under a name; WRITE_SCREENS=1 keeps the new one, to be looked at."""

    def compare(name: str, screen: str) -> None:
        path = SCREENS / f"{name}.txt"
        if os.environ.get("WRITE_SCREENS"):
            path.write_text(screen, encoding="utf-8")
        assert screen == path.read_text(encoding="utf-8")

    return compare
