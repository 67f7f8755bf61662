"""Who runs the program in the tests that do not say so themselves."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .driver import USERS, usual


@pytest.fixture(scope="module", params=USERS)
def either(request: pytest.FixtureRequest) -> Iterator[None]:
    """Each user in turn."""
    usual.append(request.param)
    yield
    usual.pop()
