"""Fixtures that every room's tests may use."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from server import ScriptedServer


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    """A scripted OpenAI-compatible endpoint that takes everything; `server.add(...)` fills its script."""
    with ScriptedServer() as server:
        yield server
