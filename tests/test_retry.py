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


def test_success_needs_no_wait() -> None:
    world = World()
    assert with_retries(failing(), world.policy, world.waiting) == ("done", ())
    assert world.slept == []


def test_waits_double_and_are_said_with_their_reason() -> None:
    world = World()
    done, reasons = with_retries(failing(Fault("a"), Fault("b"), Fault("c")), world.policy, world.waiting)
    assert (done, reasons) == ("done", ("a", "b", "c"))
    assert world.slept == [1.0, 2.0, 4.0]
    assert world.told == [("a", 1.0), ("b", 2.0), ("c", 4.0)]


def test_the_jitter_is_full() -> None:
    world = World(chance=0.25)
    with_retries(failing(Fault("a"), Fault("b")), world.policy, world.waiting)
    assert world.slept == [0.25, 0.5]


def test_an_outage_is_waited_out_for_as_long_as_there_is_patience() -> None:
    world = World(patience=600.0)
    assert with_retries(failing(*down(20)), world.policy, world.waiting)[0] == "done"
    assert sum(world.slept) < 600
    assert max(world.slept) == 30.0
    assert set(world.until) == {1600.0}


def test_the_patience_is_used_up_and_not_passed() -> None:
    world = World(patience=60.0)
    with pytest.raises(Unreachable, match=r"^down \(tried 7 times in 60 s; try again later, or set --patience\)"):
        with_retries(failing(*down(99)), world.policy, world.waiting)
    assert world.slept == [1.0, 2.0, 4.0, 8.0, 16.0, 29.0]


def test_an_address_where_nothing_ever_answered_gets_less() -> None:
    world = World(patience=60.0)
    with pytest.raises(Unreachable, match=r"^down"):
        with_retries(failing(*down(99)), world.policy, world.waiting, has_answered=False)
    assert sum(world.slept) == 15.0
    world = World(patience=60.0)
    loading = [Fault("loading the model", stage="refused")] * 5
    assert with_retries(failing(*loading), world.policy, world.waiting, has_answered=False)[0] == "done", "it is there"


def test_what_may_have_to_be_paid_is_tried_a_few_times_only() -> None:
    world = World(attempts=3)
    with pytest.raises(Unreachable, match=r"^third \(tried 5 times in \d+ s; try again later\)$"):
        with_retries(failing(*down(2), Fault("first"), Fault("second"), Fault("third")), world.policy, world.waiting)
    assert len(world.slept) == 4


def test_two_failures_at_the_same_request_are_a_refusal() -> None:
    world = World()
    refusal = ModelError("it fails at tools")
    with pytest.raises(ModelError, match="it fails at tools"):
        with_retries(failing(*[Fault("500", stage="refused", refusal=refusal)] * 2), world.policy, world.waiting)
    assert len(world.slept) == 1


def test_who_heeds_ends_the_wait_in_the_midst_of_it() -> None:
    world = World()
    left = [100.0, 100.0, 0.05]

    def heed() -> float:
        if not left:
            raise StopRun(Outcome(Status.LIMIT, "time is up"))
        return left.pop(0)

    with pytest.raises(StopRun):
        with_retries(failing(Fault("busy", after=50.0)), world.policy, lambda *_: None, heed)
    assert world.slept == [0.2, 0.2, 0.05]


@pytest.mark.parametrize("chance", [0.0, 0.5, 1.0])
def test_what_the_server_asks_for_is_the_least(chance: float) -> None:
    world = World(chance)
    with_retries(failing(Fault("busy", after=2.0)), world.policy, world.waiting)
    assert 2.0 <= world.slept[0] <= 3.0


def test_what_the_server_asks_for_is_waited_where_there_is_patience_for_it() -> None:
    world = World(patience=600.0)
    with_retries(failing(Fault("busy", after=500.0)), world.policy, world.waiting)
    assert world.slept == [501.0]
    with pytest.raises(Unreachable, match=r"it asks to wait 601 s, the patience left is 600 s; .* --patience"):
        with_retries(failing(Fault("busy", after=601.0)), world.policy, world.waiting)
    assert world.slept == [501.0]


def test_other_errors_pass_at_once() -> None:
    world = World()

    def attempt() -> str:
        raise ModelError("no")

    with pytest.raises(ModelError, match=r"^no$"):
        with_retries(attempt, world.policy, world.waiting)
    assert world.slept == []


@pytest.mark.parametrize("status", [408, 409, 429, 500, 502, 503, 504, 529])
def test_statuses_that_may_pass(status: int) -> None:
    assert is_retryable(status, {})
    assert not is_retryable(status, {"x-should-retry": "false"})


@pytest.mark.parametrize("status", [400, 401, 403, 404, 422])
def test_statuses_that_will_not(status: int) -> None:
    assert not is_retryable(status, {})
    assert is_retryable(status, {"x-should-retry": "true"})


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
