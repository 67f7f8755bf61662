"""Places for sandboxes, which an ordinary user can enter too, and the ways to hold one."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from agent import NOBODY, Agent, Hold, python_for


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder outside of every workspace that belongs to whoever holds the sandbox."""
    with tempfile.TemporaryDirectory(prefix="sandbox-") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.fixture
def root(place: Path) -> Path:
    """The workspace of the sandboxes, still empty."""
    (place / "ws").mkdir()
    return place / "ws"


@pytest.fixture(params=["self", "ordinary"])
def user(request: pytest.FixtureRequest) -> int | None:
    """Who holds the sandbox: whoever runs the tests, or, where that is root, an ordinary user."""
    return user_called(request.param)


@pytest.fixture(params=["self", pytest.param("ordinary", marks=pytest.mark.slow)])
def either_user(request: pytest.FixtureRequest) -> int | None:
    """The same, for what hardly depends on the user."""
    return user_called(request.param)


def user_called(name: str) -> int | None:
    if name == "self":
        return None
    if os.geteuid() != 0:
        pytest.skip("the tests run as an ordinary user already")
    if not python_for(NOBODY):
        pytest.skip("another user cannot read the interpreter or the program")
    return NOBODY


@pytest.fixture
def hold(place: Path) -> Iterator[Hold]:
    """Makes agents with a sandbox each, over place/ws; skips where the kind does not work here."""
    agents: list[Agent] = []

    def make(kind: str, user: int | None = None, **options: Any) -> Agent:
        root = place / "ws"
        root.mkdir(exist_ok=True)
        if user is not None:
            for path in (place, *place.rglob("*")):
                os.chown(path, user, user, follow_symlinks=False)
        agents.append(Agent(kind, root, user=user, **options))
        if agents[-1].problem and kind != "auto":
            pytest.skip(agents[-1].problem)
        return agents[-1]

    yield make
    for agent in agents:
        agent.close()
