"""The home of a user whose runs are looked at."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "cli"))

import tempfile
from collections.abc import Iterator

import pytest
from driver import Home
from server import ScriptedServer


@pytest.fixture
def home() -> Iterator[Home]:
    with tempfile.TemporaryDirectory(prefix="user", dir="/tmp") as folder:
        yield Home(Path(folder).resolve(), warm=True)


@pytest.fixture
def served(home: Home, server: ScriptedServer) -> Home:
    home.point_at(server)
    return home
