"""The home of a user, and screens kept as golden text."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from driver import Home
from server import ScriptedServer

SCREENS = Path(__file__).parent.parent / "screens"


@pytest.fixture
def home() -> Iterator[Home]:
    """An empty folder whose path is short and always of the same length, as it is shown on screens."""
    with tempfile.TemporaryDirectory(prefix="user", dir="/tmp") as folder:
        yield Home(Path(folder).resolve(), warm=True)


@pytest.fixture
def served(home: Home, server: ScriptedServer) -> Home:
    """A home whose model is the scripted server."""
    home.point_at(server)
    return home


@pytest.fixture
def golden() -> Callable[[str, str], None]:
    """Compare a screen with the one kept under a name; WRITE_SCREENS=1 keeps the new one, to be looked at."""

    def compare(name: str, screen: str) -> None:
        path = SCREENS / f"{name}.txt"
        if os.environ.get("WRITE_SCREENS"):
            path.write_text(screen, encoding="utf-8")
        assert screen == path.read_text(encoding="utf-8")

    return compare
