"""The home of a user, and the scripted model that it may have."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from driver import Home
from server import ScriptedServer


@pytest.fixture
def home() -> Iterator[Home]:
    """An empty folder whose path is short and always of the same length, as it is shown on screens."""
    with tempfile.TemporaryDirectory(prefix="user", dir="/tmp") as folder:
        yield Home(Path(folder).resolve(), warm=True)


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    """A scripted OpenAI-compatible endpoint that takes everything; `server.add(...)` fills its script."""
    with ScriptedServer() as server:
        yield server


@pytest.fixture
def served(home: Home, server: ScriptedServer) -> Home:
    """A home whose model is the scripted server."""
    home.point_at(server)
    return home
