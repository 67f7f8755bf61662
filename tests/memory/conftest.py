"""Fixtures of the memory's tests: the servers, started once for all tests that ask for them."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import databases
import pytest
from databases import postgres_url, redis_url

from autoagent.core.protocols import MemoryStore
from autoagent.registry.memory import BACKENDS
from autoagent.registry.plugins import plugins

__all__ = ["postgres_url", "redis_url"]


OURS = {plugin.name for plugin in plugins(BACKENDS.group) if plugin.is_ours}  # those of extensions/
KINDS = [backend.name for backend in BACKENDS.builtin if backend.open is not None] + sorted(OURS)


@pytest.fixture(params=KINDS)
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[databases.Backend]:
    """A memory of its own in each backend; what was opened of it is closed in the end."""
    yield from opened(request.param, request, tmp_path)


@pytest.fixture(params=KINDS)
def other_backend(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[databases.Backend]:
    """A second memory, so that a test sees each backend beside each."""
    yield from opened(request.param, request, tmp_path)


def opened(kind: str, request: pytest.FixtureRequest, folder: Path) -> Iterator[databases.Backend]:
    place = request.getfixturevalue(f"{kind}_url") if BACKENDS.find(kind).needs_url else str(folder)
    with databases.Backend(kind, place, f"test-{uuid.uuid4().hex}") as backend:
        yield backend


@pytest.fixture
def store(backend: databases.Backend) -> MemoryStore:
    return backend.open()
