"""The budget: ceilings are met before they are passed, and everything that was paid counts."""

from __future__ import annotations

import pytest
from fakes import ScriptedModel, started

from autoagent.agent.budget import Budget, RunLimits, WorkingTime, requests_for
from autoagent.core.commands import Call
from autoagent.core.errors import StopRun
from autoagent.core.events import Ended, Prompted, Rejected, Resumed, Spent, Started, SystemNotice, Undone
from autoagent.core.model import Price, Usage
from autoagent.core.task import Status
from autoagent.session.build import ModelCaller

PRICE = Price(1.0, 10.0, 0.1)
PROMPTED = Prompted(sha256="", tokens=1, messages=1, at=0.0, estimate=None)


class Clock:
    """Shows what it is set to."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def spent(usd: float | None, tokens: int = 0) -> Spent:
    return Spent(purpose="probe", usage=Usage(tokens, 0, 0, usd))


def test_the_estimate_of_the_next_call_counts() -> None:
    budget = Budget(RunLimits(usd=0.01))
    budget.add(spent(0.006))
    budget.check(1000, 100, PRICE, 0)
    with pytest.raises(StopRun) as stopped:
        budget.check(1000, 400, PRICE, 0)
    assert stopped.value.outcome.status == Status.BUDGET
    assert "only $0.0040 of the budget of $0.01 is left" in stopped.value.outcome.reason


def test_one_call_without_a_price_does_not_switch_the_limit_off() -> None:
    budget = Budget(RunLimits(usd=0.01))
    budget.add(spent(None))
    budget.add(spent(5.0))
    assert budget.usage.cost is None
    with pytest.raises(StopRun):
        budget.check(1, 1, None, 0)


def test_rejected_replies_and_probes_are_tokens_too() -> None:
    budget = Budget(RunLimits(tokens=1000))
    budget.add(Rejected(problem="", text="", usage=Usage(500, 100)))
    budget.add(spent(0.0, 300))
    assert budget.tokens == 900
    budget.check(50, 50, PRICE, 0)
    with pytest.raises(StopRun, match="only 100 of the limit"):
        budget.check(51, 50, PRICE, 0)


def test_time_is_that_of_all_processes_and_commands_those_of_this_one() -> None:
    clock = Clock()
    budget = Budget(RunLimits(seconds=100, commands=2), clock)
    budget.add(started(worked=0.0))
    for worked in (10.0, 60.0):
        budget.add(Started(worked=worked, call=Call("1", "x", {})))
    with pytest.raises(StopRun, match="limit of 2 commands"):
        budget.check_command()
    clock.now += 5000.0  # reading the log, say
    budget.add(started(Resumed, worked=60.0))
    budget.check_command()
    clock.now += 30.0
    assert budget.time.seconds == 90
    budget.check(1, 1, None, 0)
    assert budget.describe_remaining(0) == "You have left: 2 of 2 commands, 10 seconds."
    with budget.time.idle(), budget.time.idle():  # a person thinks, in a question within a question
        clock.now += 1000.0
        assert budget.time.seconds == 90
    budget.check(1, 1, None, 0)
    clock.now += 10.0
    with pytest.raises(StopRun, match="time limit") as stopped:
        budget.check(1, 1, None, 0)
    assert stopped.value.outcome.status == Status.LIMIT


def test_a_log_of_an_older_program_says_only_when_its_events_came() -> None:
    clock = Clock()
    time = WorkingTime(clock)
    time.add(started(t=1000.0))
    for t in (1010.0, 1060.0):
        time.add(Started(t=t, call=Call("1", "x", {})))
    time.add(Ended(t=1070.0, status=Status.LIMIT, reason=""))
    time.add(Undone(t=4000.0, to=0, tree="t"))
    time.add(SystemNotice(t=4001.0, text="The user has undone it."))
    time.add(started(Resumed, t=5000.0))
    time.add(Started(t=5005.0, call=Call("2", "x", {})))
    assert time.recorded == 75
    time.add(started(Resumed, t=9000.0, worked=75.0))
    clock.now += 5.0
    assert (time.recorded, time.seconds) == (75, 80)


def test_a_deadline_is_that_of_the_wall_clock_and_of_sub_agents_too() -> None:
    budget = Budget(RunLimits(deadline=5000.0))
    budget.check(1, 1, None, 4999.0)
    share = budget.share(0.25, 4999.0)
    assert share.describe_remaining(4990.0) == "You have left: 10 seconds until the deadline."
    for one in (budget, share):
        with pytest.raises(StopRun, match="The deadline, ") as stopped:
            one.check(1, 1, None, 5000.0)
        assert stopped.value.outcome.status == Status.LIMIT
    assert budget.share(0.25, 5000.0) is None


def test_requests_are_counted_beside_commands_and_sub_agents_have_their_share_of_both() -> None:
    assert [requests_for(commands) for commands in (0, 1, 3)] == [0, 5, 9]
    budget = Budget(RunLimits(commands=3, requests=9))
    share = budget.share(0.25, 0.0)
    assert (share.limits.commands, share.limits.requests) == (1, 5)
    for _ in range(3):
        budget.add(PROMPTED)
        budget.check(1, 1, None, 0.0)
    budget.add(PROMPTED)
    with pytest.raises(StopRun, match="limit of 9 requests to the model"):
        budget.check(1, 1, None, 0.0)
    share.give_back()
    budget.check(1, 1, None, 0.0)
    assert budget.requests == 4


def test_a_share_that_was_cut_to_what_is_left_tells_its_own_limit() -> None:
    budget = Budget(RunLimits(commands=3, requests=9))
    for _ in range(7):
        budget.add(PROMPTED)
    share = budget.share(0.25, 0.0)
    assert (share.limits.commands, share.limits.requests) == (1, 2)
    share.add(PROMPTED)
    share.add(PROMPTED)
    with pytest.raises(StopRun, match=r"^The limit of 2 requests to the model is reached\.$"):
        share.check(1, 1, None, 0.0)


def test_what_a_command_asks_a_model_costs_what_was_cut_short_too() -> None:
    class CutShort(ScriptedModel):
        owed = Usage(7, 3, 0, 0.01)

        def take_usage(self) -> Usage:
            owed, self.owed = self.owed, Usage()
            return owed

    model = CutShort(["Yes."], report=lambda messages: Usage(5, 1, 0, 0.02))
    caller = ModelCaller(model, str, Budget(RunLimits()))
    assert caller("Are you ready?") == "Yes."
    assert caller.take_usage() == Usage(12, 4, 0, 0.03)
    assert caller.take_usage() == Usage()


def test_calls_of_a_command_are_bounded_by_the_run_with_what_is_not_charged_yet() -> None:
    model = ScriptedModel(["Yes."] * 3, report=lambda messages: Usage(5_000, 50, 0, 0.0))
    caller = ModelCaller(model, str, Budget(RunLimits(tokens=10_500)))
    assert caller("Are you ready?") == caller("And now?") == "Yes."
    with pytest.raises(StopRun, match=r"only 400 of the limit of 10500 \(--max-tokens\) are left"):
        caller("Once more?")
    assert caller.take_usage() == Usage(10_000, 100, 0, 0.0)


def test_a_lower_ceiling_binds_the_shares_in_use() -> None:
    budget = Budget(RunLimits(usd=10.0))
    share = budget.share(0.25, 0.0)
    share.check_size(100_000, 0, Price(6.0, 0.0, 0.0))
    budget.change_usd(0.01)
    with pytest.raises(StopRun):
        share.check_size(100_000, 0, Price(6.0, 0.0, 0.0))
    budget.change_usd(10.0)
    budget.check_size(100_000, 0, Price(6.0, 0.0, 0.0))
