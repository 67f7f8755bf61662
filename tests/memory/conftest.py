"""Fixtures of the memory's tests: the servers, started once for all tests that ask for them."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import databases
import pytest

from autoagent.core.protocols import MemoryStore
from autoagent.registry.memory import BACKENDS


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    with databases.postgres() as url:
        yield url


@pytest.fixture(scope="session")
def redis_url() -> Iterator[str]:
    """Of the server that TEST_REDIS_URL names, else of one started here."""
    if url := os.environ.get("TEST_REDIS_URL"):
        yield url
        return
    pytest.importorskip("redis")
    program = databases.redis_with_vectors()
    if program is None:
        pytest.skip("there is no redis-server with vector sets")
    with databases.redis(program, "--appendonly", "yes") as url:
        yield url


KINDS = [backend.name for backend in BACKENDS.own if backend.open is not None]


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
