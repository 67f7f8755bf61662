"""Fixtures that every room's tests may use."""

from __future__ import annotations

from collections.abc import Iterator

import hypothesis
import pytest
from server import ScriptedServer

# A busy machine is no failure: neither a slow example nor slow generation of one is an error.
hypothesis.settings.register_profile(
    "shared machine", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("shared machine")


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    """A scripted OpenAI-compatible endpoint that takes everything; `server.add(...)` fills its script."""
    with ScriptedServer() as server:
        yield server
