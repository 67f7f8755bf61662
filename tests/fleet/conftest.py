"""Fleets in a home of their own, whose tasks a scripted server does."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "cli"))

from collections.abc import Iterator

import pytest
from databases import redis_url
from driver import Home
from fleets import Copying, worked
from raylets import Raylets
from server import ScriptedServer

__all__ = ["redis_url"]


@pytest.fixture
def cluster(home: Home) -> Iterator[Raylets]:
    """A cluster of Ray, as yet without a node for workers."""
    with Raylets(home) as cluster:
        yield cluster


@pytest.fixture
def copying(tmp_path: Path) -> Copying:
    return Copying(tmp_path)


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with ScriptedServer(worked) as server:
        yield server


@pytest.fixture
def home(tmp_path: Path, server: ScriptedServer) -> Home:
    """A user's folder, whose model has a price: $2 a million tokens in, $8 out."""
    home = Home(tmp_path, warm=True)
    home.point_at(server, "gpt-4.1")
    home.env |= {"MEMORY_BACKEND": "no_memory", "AUTOAGENT_SANDBOX": "none", "AUTOAGENT_ASKING": "tools"}
    return home
