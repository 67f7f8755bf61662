"""The retry policy, on a clock that is handed in: nothing here waits."""

from __future__ import annotations

from collections.abc import Callable
from email.utils import formatdate

import pytest

from autoagent.core.errors import ModelError, StopRun, Unreachable
from autoagent.core.task import Outcome, Status
from autoagent.models.openai.retry import Fault, RetryPolicy, is_retryable, retry_after, with_retries


class World:
    """Sleeps without waiting, remembers for how long; `chance` is what every draw gives."""

    def __init__(self, chance: float = 1.0, attempts: int = 5, patience: float = 60.0) -> None:
        self.slept: list[float] = []
        self.told: list[tuple[str, float]] = []
        self.until: list[float] = []
        self.policy = RetryPolicy(
            patience=patience,
            first_patience=patience / 4,
            attempts=attempts,
            sleep=self.slept.append,
            clock=lambda: 1000.0 + sum(self.slept),
            timer=lambda: 5.0 + sum(self.slept),
            chance=lambda: chance,
        )

    def retry(self, *faults: Fault, has_answered: bool = True) -> tuple[str, tuple[str, ...]]:
        return with_retries(failing(*faults), self.policy, self.waiting, has_answered=has_answered)

    def waiting(self, reason: str, seconds: float, until: float) -> None:
        assert len(self.slept) == len(self.told), "said before the wait"
        self.told.append((reason, seconds))
        self.until.append(until)


def down(count: int) -> list[Fault]:
    return [Fault("down", stage="unreached") for _ in range(count)]


def failing(*faults: Fault) -> Callable[[], str]:
    """An attempt that meets these faults and then succeeds."""
    left = list(faults)

    def attempt() -> str:
        if left:
            raise left.pop(0)
        return "done"

    return attempt


@pytest.mark.parametrize(
    ("chance", "waits"), [(1.0, {}), (1.0, {"a": 1.0, "b": 2.0, "c": 4.0}), (0.25, {"a": 0.25, "b": 0.5})]
)
def test_waits_double_with_full_jitter_and_are_said_with_their_reason(chance: float, waits: dict[str, float]) -> None:
    world = World(chance)
    assert world.retry(*map(Fault, waits)) == ("done", tuple(waits))
    assert world.slept == list(waits.values())
    assert world.told == list(waits.items())


def test_an_outage_is_waited_out_for_as_long_as_there_is_patience() -> None:
    world = World(patience=600.0)
    assert world.retry(*down(20))[0] == "done"
    assert sum(world.slept) < 600
    assert max(world.slept) == 30.0
    assert set(world.until) == {1600.0}


def test_the_patience_is_used_up_and_not_passed() -> None:
    world = World(patience=60.0)
    with pytest.raises(Unreachable, match=r"^down \(tried 7 times in 60 s; try again later, or set --patience\)"):
        world.retry(*down(99))
    assert world.slept == [1.0, 2.0, 4.0, 8.0, 16.0, 29.0]


def test_an_address_where_nothing_ever_answered_gets_less() -> None:
    world = World(patience=60.0)
    with pytest.raises(Unreachable, match=r"^down"):
        world.retry(*down(99), has_answered=False)
    assert sum(world.slept) == 15.0
    world = World(patience=60.0)
    loading = [Fault("loading the model", stage="refused")] * 5
    assert world.retry(*loading, has_answered=False)[0] == "done", "it is there"


def test_what_may_have_to_be_paid_is_tried_a_few_times_only() -> None:
    world = World(attempts=3)
    with pytest.raises(Unreachable, match=r"^third \(tried 5 times in \d+ s; try again later\)$"):
        world.retry(*down(2), Fault("first"), Fault("second"), Fault("third"))
    assert len(world.slept) == 4


def test_two_failures_at_the_same_request_are_a_refusal() -> None:
    world = World()
    refusal = ModelError("it fails at tools")
    with pytest.raises(ModelError, match="it fails at tools"):
        world.retry(*[Fault("500", stage="refused", refusal=refusal)] * 2)
    assert len(world.slept) == 1


def test_who_heeds_ends_the_wait_in_the_midst_of_it() -> None:
    world = World()
    left = [100.0, 100.0, 0.05]

    def check_time_left() -> float:
        if not left:
            raise StopRun(Outcome(Status.LIMIT, "time is up"))
        return left.pop(0)

    with pytest.raises(StopRun):
        with_retries(failing(Fault("busy", after=50.0)), world.policy, lambda *_: None, check_time_left)
    assert world.slept == [0.2, 0.2, 0.05]


@pytest.mark.parametrize("chance", [0.0, 0.5, 1.0])
def test_what_the_server_asks_for_is_the_least(chance: float) -> None:
    world = World(chance)
    world.retry(Fault("busy", after=2.0))
    assert 2.0 <= world.slept[0] <= 3.0


def test_what_the_server_asks_for_is_waited_where_there_is_patience_for_it() -> None:
    world = World(patience=600.0)
    world.retry(Fault("busy", after=500.0))
    assert world.slept == [501.0]
    with pytest.raises(Unreachable, match=r"it asks to wait 601 s, the patience left is 600 s; .* --patience"):
        world.retry(Fault("busy", after=601.0))
    assert world.slept == [501.0]


def test_other_errors_pass_at_once() -> None:
    world = World()

    def attempt() -> str:
        raise ModelError("no")

    with pytest.raises(ModelError, match=r"^no$"):
        with_retries(attempt, world.policy, world.waiting)
    assert world.slept == []


def test_statuses_that_may_pass_and_that_will_not() -> None:
    statuses = (408, 409, 429, 500, 502, 503, 504, 529, 400, 401, 403, 404, 422)
    assert [status for status in statuses if is_retryable(status, {})] == list(statuses[:8])
    assert not [status for status in statuses if is_retryable(status, {"x-should-retry": "false"})]
    assert all(is_retryable(status, {"x-should-retry": "true"}) for status in statuses)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None), ({"retry-after": "2"}, 2.0), ({"retry-after": "0.5"}, 0.5),
        ({"retry-after-ms": "1500", "retry-after": "9"}, 1.5),
        ({"retry-after": formatdate(1030, usegmt=True)}, 30.0), ({"retry-after": formatdate(900, usegmt=True)}, 0.0),
        ({"retry-after": "soon"}, None), ({"retry-after": "-3"}, None), ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None), ({"retry-after-ms": "x", "retry-after": "4"}, 4.0),
    ],
)  # fmt: skip
def test_retry_after(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after(headers, now=1000.0) == seconds
