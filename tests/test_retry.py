"""The retry policy, on a clock that is handed in: nothing here waits."""

from __future__ import annotations

from collections.abc import Callable
from email.utils import formatdate

import pytest

from autoagent.errors import ModelError
from autoagent.models.retry import Fault, Policy, deserves, persist, retry_after


class World:
    """Sleeps without waiting, remembers for how long; `chance` is what every draw gives."""

    def __init__(self, chance: float = 1.0, attempts: int = 5) -> None:
        self.slept: list[float] = []
        self.told: list[tuple[str, float]] = []
        self.policy = Policy(attempts=attempts, sleep=self.slept.append, clock=lambda: 1000.0, chance=lambda: chance)

    def waiting(self, reason: str, seconds: float) -> None:
        assert len(self.slept) == len(self.told), "said before the wait"
        self.told.append((reason, seconds))


def failing(*faults: Fault) -> Callable[[], str]:
    """An attempt that meets these faults and then succeeds."""
    left = list(faults)

    def attempt() -> str:
        if left:
            raise left.pop(0)
        return "done"

    return attempt


def test_success_needs_no_wait() -> None:
    world = World()
    assert persist(failing(), world.policy, world.waiting) == ("done", ())
    assert world.slept == []


def test_waits_double_and_are_said_with_their_reason() -> None:
    world = World()
    done, reasons = persist(failing(Fault("a"), Fault("b"), Fault("c")), world.policy, world.waiting)
    assert (done, reasons) == ("done", ("a", "b", "c"))
    assert world.slept == [1.0, 2.0, 4.0]
    assert world.told == [("a", 1.0), ("b", 2.0), ("c", 4.0)]


def test_the_jitter_is_full() -> None:
    world = World(chance=0.25)
    persist(failing(Fault("a"), Fault("b")), world.policy, world.waiting)
    assert world.slept == [0.25, 0.5]


def test_attempts_are_bounded_and_the_error_says_how_many() -> None:
    world = World(attempts=3)
    with pytest.raises(ModelError, match=r"^third \(tried 3 times"):
        persist(failing(Fault("first"), Fault("second"), Fault("third")), world.policy, world.waiting)
    assert len(world.slept) == 2


def test_no_wait_is_longer_than_the_longest() -> None:
    world = World(attempts=12)
    persist(failing(*[Fault("down")] * 10), world.policy, world.waiting)
    assert max(world.slept) == 60.0


@pytest.mark.parametrize("chance", [0.0, 0.5, 1.0])
def test_what_the_server_asks_for_is_the_least(chance: float) -> None:
    world = World(chance)
    persist(failing(Fault("busy", after=2.0)), world.policy, world.waiting)
    assert 2.0 <= world.slept[0] <= 3.0


def test_sixty_seconds_are_waited_and_more_are_not() -> None:
    world = World()
    persist(failing(Fault("busy", after=60.0)), world.policy, world.waiting)
    assert world.slept == [60.0]
    with pytest.raises(ModelError, match="asks to wait 61 s, the limit here is 60 s"):
        persist(failing(Fault("busy", after=61.0)), world.policy, world.waiting)
    assert world.slept == [60.0]


def test_other_errors_pass_at_once() -> None:
    world = World()

    def attempt() -> str:
        raise ModelError("no")

    with pytest.raises(ModelError, match=r"^no$"):
        persist(attempt, world.policy, world.waiting)
    assert world.slept == []


@pytest.mark.parametrize("status", [408, 409, 429, 500, 502, 503, 504, 529])
def test_statuses_that_may_pass(status: int) -> None:
    assert deserves(status, {})
    assert not deserves(status, {"x-should-retry": "false"})


@pytest.mark.parametrize("status", [400, 401, 403, 404, 422])
def test_statuses_that_will_not(status: int) -> None:
    assert not deserves(status, {})
    assert deserves(status, {"x-should-retry": "true"})


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "2"}, 2.0),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after-ms": "1500", "retry-after": "9"}, 1.5),
        ({"retry-after": formatdate(1030, usegmt=True)}, 30.0),
        ({"retry-after": formatdate(900, usegmt=True)}, 0.0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "-3"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after-ms": "x", "retry-after": "4"}, 4.0),
    ],
)
def test_retry_after(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after(headers, now=1000.0) == seconds
