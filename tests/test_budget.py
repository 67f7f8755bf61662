"""The budget: ceilings are met before they are passed, and everything that was paid counts."""

from __future__ import annotations

import pytest

from autoagent.budget import Budget, Limits, requests_for
from autoagent.errors import StopRun
from autoagent.messages import Call, Goal, Price, Prompted, Rejected, Resumed, RunStarted, Spent, Started, Task, Usage

PRICE = Price(1.0, 10.0, 0.1)
START = {
    "version": "", "task": Task("n", "r", (Goal("g"),)), "model": "m", "window": 8192, "reply_tokens": 100,
    "system": "", "system_tokens": 0, "asking": "text", "commands": (), "workspace": "",
}  # fmt: skip


def spent(usd: float | None, tokens: int = 0) -> Spent:
    return Spent(purpose="probe", usage=Usage(tokens, 0, 0, usd))


def test_the_estimate_of_the_next_call_counts() -> None:
    budget = Budget(Limits(usd=0.01))
    budget.add(spent(0.006))
    budget.check(1000, 100, PRICE, 0)
    with pytest.raises(StopRun) as stopped:
        budget.check(1000, 400, PRICE, 0)
    assert stopped.value.outcome.status == "budget"
    assert "$0.0040 is left" in stopped.value.outcome.reason


def test_one_call_without_a_price_does_not_switch_the_limit_off() -> None:
    budget = Budget(Limits(usd=0.01))
    budget.add(spent(None))
    budget.add(spent(5.0))
    assert budget.usage.cost is None
    with pytest.raises(StopRun):
        budget.check(1, 1, None, 0)


def test_rejected_replies_and_probes_are_tokens_too() -> None:
    budget = Budget(Limits(tokens=1000))
    budget.add(Rejected(problem="", text="", usage=Usage(500, 100)))
    budget.add(spent(0.0, 300))
    assert budget.tokens == 900
    budget.check(50, 50, PRICE, 0)
    with pytest.raises(StopRun, match="100 are left"):
        budget.check(51, 50, PRICE, 0)


def test_time_is_that_of_all_processes_and_commands_those_of_this_one() -> None:
    budget = Budget(Limits(seconds=100, commands=2))
    budget.add(RunStarted(t=1000.0, **START))
    for t in (1010.0, 1060.0):
        budget.add(Started(t=t, call=Call("1", "x", {})))
    with pytest.raises(StopRun, match="limit of 2 commands"):
        budget.check_command()
    budget.add(Resumed(t=5000.0, **START))
    budget.check_command()
    assert budget.seconds(5030.0) == 90
    budget.check(1, 1, None, 5030.0)
    with pytest.raises(StopRun, match="time limit") as stopped:
        budget.check(1, 1, None, 5041.0)
    assert stopped.value.outcome.status == "limit"
    assert budget.left(5030.0) == "You have left: 2 of 2 commands, 10 seconds."


def test_requests_are_counted_beside_commands_and_sub_agents_have_their_share_of_both() -> None:
    assert [requests_for(commands) for commands in (0, 1, 3)] == [0, 5, 9]
    budget = Budget(Limits(commands=3, requests=9))
    share = budget.share(0.25, 0.0)
    assert share is not None
    assert (share.limits.commands, share.limits.requests) == (1, 5)
    prompted = Prompted(sha256="", tokens=1, messages=1, at=0.0, estimate=None)
    for _ in range(3):
        budget.add(prompted)
        budget.check(1, 1, None, 0.0)
    budget.add(prompted)
    with pytest.raises(StopRun, match="limit of 9 requests to the model"):
        budget.check(1, 1, None, 0.0)
    share.give_back()
    budget.check(1, 1, None, 0.0)
    assert budget.requests == 4
