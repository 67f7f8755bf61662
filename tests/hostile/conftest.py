"""Who runs the program in the tests that do not say so themselves."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .driver import USERS, Room, room, usual


@pytest.fixture(scope="module", params=USERS)
def either(request: pytest.FixtureRequest) -> Iterator[None]:
    """Each user in turn."""
    usual.append(request.param)
    yield
    usual.pop()


@pytest.fixture
def made() -> Iterator[Room]:
    """A room of the user who runs the program in this test."""
    with room() as made:
        yield made


@pytest.fixture(params=USERS)
def there(request: pytest.FixtureRequest) -> Iterator[Room]:
    """A folder of each user's own, in which the program is started."""
    with room(request.param) as made:
        yield made
