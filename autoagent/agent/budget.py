"""The budget: hard ceilings on money, tokens, seconds, commands and requests to the model, as a fold over the log.

Every call counts, even if its reply could not be used. A ceiling is checked before a call, with a reply of the length
expected from earlier ones. A longer reply is cut at the ceiling (`allowance`). If a price is unknown, the user is told
once, and the ceiling on money covers known prices only. The other ceilings hold.

A sub-agent gets a share of its starter's remaining budget. The whole share is reserved while the sub-agent runs. Once
it is returned, only the amount actually spent counts. So no ceiling is exceeded, however many agents run at once.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime

from autoagent.core.errors import NoMoneyException, StopRun
from autoagent.core.events import (
    Answered,
    Event,
    Feedback,
    Forked,
    Prompted,
    Rejected,
    Resumed,
    Rewound,
    RunStarted,
    Snapshot,
    Spent,
    Started,
    SystemNotice,
    Thought,
    Undone,
)
from autoagent.core.model import Price, Usage
from autoagent.core.task import Outcome, Status

FIRST_REPLY = 1000  # tokens; expected of the first reply
_REPLIES = 20  # the last ones, by which the next is judged
_LONGER = 1.25  # than the longest of them, the next one may be


@dataclass(frozen=True, slots=True)
class RunLimits:
    """Ceilings. 0 means none. `usd` and `tokens` and `seconds` (of work) hold for the whole run, over all its
    processes. `commands`, `requests` (to the model) and `deadline` (seconds since the epoch) for the present process
    alone, so that a resumed run goes on."""

    usd: float = 0.0
    tokens: int = 0
    seconds: float = 0.0
    commands: int = 0
    requests: int = 0
    deadline: float = 0.0


def requests_for(commands: int) -> int:
    """Return how many model requests so many commands may take, including replies without a command. 0: no limit."""
    return 2 * commands + 3 if commands else 0


class Budget:
    """Add every event in order. Ask `check` before a call and `check_command` before a command.

    One thread uses a budget. Those of its shares may be other threads' at the same time.
    """

    NOT_KEPT = ("limits", "time", "_shares", "_is_open")  # in a checkpoint

    def __init__(self, limits: RunLimits, clock: Callable[[], float] = time.monotonic) -> None:
        self.limits = limits
        self.time = WorkingTime(clock)
        self._own = Usage()
        self._own_usd = 0.0
        self._own_commands = 0
        self._own_requests = 0
        self._shares: list[Budget] = []
        self._is_open = False  # as a share: all of it is reserved
        self._replies: deque[int] = deque(maxlen=_REPLIES)  # their tokens

    def add(self, event: Event) -> None:
        """Take up one event."""
        self.time.add(event)
        match event:
            case Resumed():
                self._own_commands = self._own_requests = 0
            case Thought() | Rejected() | Spent() | Answered():
                if not isinstance(event, Spent) and event.usage.completion:
                    self._replies.append(event.usage.completion)
                self._own += event.usage
                self._own_usd += event.usage.cost or 0.0
            case Started():
                self._own_commands += 1
            case Prompted():
                self._own_requests += 1

    def add_former(self, event: Event) -> None:
        """Add an event of a sub-agent of an earlier process: its spending counts here."""
        if isinstance(event, (Thought, Rejected, Spent, Answered)):
            self._own += event.usage
            self._own_usd += event.usage.cost or 0.0

    @property
    def usage(self) -> Usage:
        """The usage so far, including the shares."""
        return sum((share.usage for share in self._shares), self._own)

    @property
    def usd(self) -> float:
        """The known part of the cost. `usage.cost` is None once a call had no price."""
        return self._own_usd + sum(share.usd for share in self._shares)

    @property
    def tokens(self) -> int:
        usage = self.usage
        return usage.prompt + usage.completion

    @property
    def commands(self) -> int:
        return self._own_commands + sum(share.commands for share in self._shares)

    @property
    def requests(self) -> int:
        return self._own_requests + sum(share.requests for share in self._shares)

    def share(self, part: float, now: float) -> Budget | None:
        """Return a sub-agent's budget: this fraction of the remainder, but all of the time; None if nothing remains."""
        self._absorb()
        limits, committed = self.limits, self._committed
        left = limits.commands - committed.commands
        commands = max(int(left * part), min(1, left - 1))
        own = RunLimits(
            usd=(limits.usd - committed.usd) * part,
            tokens=int((limits.tokens - committed.tokens) * part),
            seconds=limits.seconds - self.time.seconds,
            commands=commands,
            requests=min(requests_for(max(commands, 0)), limits.requests - committed.requests),
        )
        for name in ("usd", "tokens", "seconds", "commands", "requests"):
            if not getattr(limits, name):
                own = replace(own, **{name: 0})  # no ceiling
            elif getattr(own, name) <= 0:
                return None
        if limits.deadline and now >= limits.deadline:
            return None
        share = Budget(replace(own, deadline=limits.deadline))
        share._is_open = True
        self._shares.append(share)
        return share

    def give_back(self) -> None:
        """Return the unspent share to its parent."""
        self._is_open = False

    def expect_as(self, earlier: Budget) -> None:
        """Expect replies as long as those of an earlier share."""
        self._replies.extend(earlier._replies)

    def _absorb(self) -> None:
        """Add the spending of returned shares to this budget's own: there may be thousands of shares."""
        for share in self._shares:
            if not share._is_open:
                self._own += share.usage
                self._own_usd += share.usd
                self._own_commands += share.commands
                self._own_requests += share.requests
        self._shares = [share for share in self._shares if share._is_open]

    @property
    def _committed(self) -> RunLimits:
        """The amounts spent or reserved, except time, which passes for all agents alike."""
        kept = [share._kept_back for share in self._shares]
        own = self._own
        return RunLimits(
            usd=self._own_usd + sum(share.usd for share in kept),
            tokens=own.prompt + own.completion + sum(share.tokens for share in kept),
            commands=self._own_commands + sum(share.commands for share in kept),
            requests=self._own_requests + sum(share.requests for share in kept),
        )

    @property
    def _kept_back(self) -> RunLimits:
        if not self._is_open:
            return RunLimits(self.usd, self.tokens, commands=self.commands, requests=self.requests)
        limits = self.limits
        return RunLimits(
            max(limits.usd, self.usd),
            max(limits.tokens, self.tokens),
            commands=max(limits.commands, self.commands),
            requests=max(limits.requests, self.requests),
        )

    @property
    def expected_reply(self) -> int:
        """The tokens to expect of the next reply, judged by those so far."""
        return int(_LONGER * max(self._replies)) if self._replies else FIRST_REPLY

    def allowance(self, prompt_tokens: int, price: Price | None) -> int | None:
        """Return how many tokens the reply to such a prompt may have within the ceilings, or None if there are none."""
        limits, committed = self.limits, self._committed
        left = []
        if limits.tokens:
            left.append(limits.tokens - committed.tokens - prompt_tokens)
        if limits.usd and price is not None and price.completion > 0:
            usd = limits.usd - committed.usd - prompt_tokens * price.prompt / 1e6
            left.append(int(usd / price.completion * 1e6))
        return max(1, min(left)) if left else None

    def check(self, prompt_tokens: int, reply_tokens: int, price: Price | None, now: float) -> None:
        """Raise StopRun if a call of this size would exceed a ceiling, or time is up at `now` (epoch)."""
        self.check_time(now)
        limits, committed = self.limits, self._committed
        if limits.requests and committed.requests >= limits.requests:
            number = limits.commands
            of_flag = f" (-l {number}: as many commands, and 2 x {number} + 3 requests)"
            is_share = limits.requests != requests_for(number)  # of a sub-agent, cut to what was left
            text = f"The limit of {limits.requests} requests to the model is reached{'' if is_share else of_flag}."
            raise StopRun(Outcome(Status.LIMIT, text))
        self.check_size(prompt_tokens, reply_tokens, price)

    def check_size(self, prompt_tokens: int, reply_tokens: int, price: Price | None) -> None:
        """Raise StopRun if a call of this size would exceed a ceiling of tokens or money."""
        limits, committed = self.limits, self._committed
        if limits.tokens and committed.tokens + prompt_tokens + reply_tokens > limits.tokens:
            raise StopRun(
                Outcome(
                    Status.BUDGET,
                    f"The next call may take {prompt_tokens + reply_tokens} tokens; of the limit of {limits.tokens} "
                    f"(--max-tokens) {max(0, limits.tokens - committed.tokens)} are left.",
                )
            )
        estimate = estimated_cost(prompt_tokens, reply_tokens, price) or 0.0
        if limits.usd and committed.usd + estimate > limits.usd:
            raise NoMoneyException(
                Outcome(
                    Status.BUDGET,
                    f"The next call may cost ${estimate:.4f}; of the budget of ${limits.usd:g} "
                    f"${max(0.0, limits.usd - committed.usd):.4f} is left.",
                )
            )

    def check_time(self, now: float) -> float:
        """Return the seconds that are left. Raises StopRun if time is up."""
        limits, left = self.limits, [math.inf]
        if limits.seconds:
            left.append(limits.seconds - self.time.seconds)
            if left[-1] <= 0:
                raise StopRun(Outcome(Status.LIMIT, f"The time limit of {limits.seconds:g} s is reached."))
        if limits.deadline:
            left.append(limits.deadline - now)
            if left[-1] <= 0:
                until = f"{datetime.fromtimestamp(limits.deadline):%F %R}"
                raise StopRun(Outcome(Status.LIMIT, f"The deadline, {until}, is reached."))
        return min(left)

    def check_command(self) -> None:
        """Raise StopRun if no further command may be started."""
        if self.limits.commands and self._committed.commands >= self.limits.commands:
            number = self.limits.commands
            noun = "command" if number == 1 else "commands"
            raise StopRun(Outcome(Status.LIMIT, f"The limit of {number} {noun} (-l) is reached."))

    def left(self, now: float) -> str:
        """Describe the remaining limits in a line for the prompt, or '' without limits."""
        limits, committed = self.limits, self._committed
        parts = []
        if limits.commands:
            parts.append(f"{max(0, limits.commands - committed.commands)} of {limits.commands} commands")
        if limits.usd:
            parts.append(f"${max(0.0, limits.usd - committed.usd):.3f} of ${limits.usd:g}")
        if limits.tokens:
            parts.append(f"{max(0, limits.tokens - committed.tokens)} tokens")
        if limits.seconds:
            parts.append(f"{max(0, int(limits.seconds - self.time.seconds))} seconds")
        if limits.deadline:
            parts.append(f"{max(0, int(limits.deadline - now))} seconds until the deadline")
        return f"You have left: {', '.join(parts)}." if parts else ""


def estimated_cost(prompt_tokens: int, reply_tokens: int, price: Price | None) -> float | None:
    """Estimate in USD a call of at most this size, with nothing cached, or None if the price is unknown."""
    if price is None:
        return None
    return (prompt_tokens * price.prompt + reply_tokens * price.completion) / 1e6


_BETWEEN = (Undone, Rewound, Forked, Snapshot, SystemNotice, Feedback)  # what is written between two processes as well


class WorkingTime:
    """Add every event of one agent in order. `recorded` is the seconds of work by the newest of them.

    Events of older programs do not say how long was worked: there all time counts between those of one process.
    """

    NOT_KEPT = ("_clock", "_since", "_left_at")  # in a checkpoint

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.recorded = 0.0
        self._clock = clock
        self._since: float | None = None  # goes on from `recorded`; begins with the first question for it
        self._left_at: float | None = None  # when a person began to be waited for
        self._older: float | None = None  # time of the newest event of an older program, in this process

    def add(self, event: Event) -> None:
        """Take up one event."""
        if event.worked is not None:
            self.recorded, self._older = max(self.recorded, event.worked), None
        elif isinstance(event, RunStarted):
            self._older = event.t
        elif self._older is not None and event.t > self._older and not isinstance(event, _BETWEEN):
            self.recorded += event.t - self._older
            self._older = event.t
        self._since = self._clock()

    @property
    def seconds(self) -> float:
        """Seconds of work by now, of all processes of the run."""
        until = self._clock() if self._left_at is None else self._left_at
        if self._since is None:
            self._since = until
        return self.recorded + max(0.0, until - self._since)

    @contextmanager
    def idle(self) -> Iterator[None]:
        """Do not count the time spent in the block: a person is waited for."""
        if self._left_at is not None:
            yield
            return
        self._left_at = self._clock()
        try:
            yield
        finally:
            if self._since is not None:
                self._since += self._clock() - self._left_at
            self._left_at = None
