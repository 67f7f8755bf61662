"""Enforce ceilings on money, tokens, seconds, commands and model requests, as a fold over the log.

Every request counts, even if its reply is unusable. Each is checked beforehand with the expected reply length. A longer
reply is cut off at the ceiling (`allowance`). If a price is unknown, the user is notified once, and the ceiling on
money covers only known prices.

A sub-agent receives a share of its parent's remaining budget, reserved in full while it runs. Afterwards, only the
amount spent counts. No ceiling is exceeded, however many agents run at once.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime

from autoagent.core import events
from autoagent.core.errors import NoMoneyException, StopRun
from autoagent.core.frozen import dataclass
from autoagent.core.model import Price, Usage
from autoagent.core.task import Outcome, Status

FIRST_REPLY_TOKENS = 1000  # expected of the first reply
_NONE = Usage()
_MAX_RECENT_REPLIES = 20  # replies from which the length of the next is estimated
_REPLY_MARGIN = 1.25  # the next reply may be this much longer than the longest of them
_MIN_USD = 1e-9  # the lowest ceiling on money, since 0 means none


@dataclass(frozen=True, slots=True)
class RunLimits:
    """The ceilings of a run; 0 means none.

    `usd`, `tokens` and `seconds` of work apply to the whole run. `commands`, `requests` to the model and `deadline`
    (seconds since the epoch) apply to one process, so that a resumed run can go on.
    """

    usd: float = 0.0
    tokens: int = 0
    seconds: float = 0.0
    commands: int = 0
    requests: int = 0
    deadline: float = 0.0


def requests_for(commands: int) -> int:
    """Return how many model requests this many commands may take, including unusable replies; 0 means no limit."""
    return 2 * commands + 3 if commands else 0


class Budget:
    """Count usage by event. Call `check` before a request and `check_command` before a command.

    One thread uses a budget, but its shares may belong to other threads at the same time.
    """

    NOT_IN_CHECKPOINT = ("limits", "time", "_shares", "_is_open")

    def __init__(self, limits: RunLimits, clock: Callable[[], float] = time.monotonic) -> None:
        self.limits = limits
        self.time = WorkingTime(clock)
        self._own_usage = Usage()
        self._own_usd = 0.0
        self._own_commands = 0
        self._own_requests = 0
        self._shares: list[Budget] = []
        self._is_open = False  # whether this is a share in use, so that all of it is reserved
        self._replies: deque[int] = deque(maxlen=_MAX_RECENT_REPLIES)  # tokens per reply

    def add(self, event: events.Event) -> None:
        self.time.add(event)
        self.add_spending(event)
        match event:
            case events.Resumed():
                self._own_commands = self._own_requests = 0
            case events.Thought() | events.Rejected() | events.Answered() if event.usage.completion:
                self._replies.append(event.usage.completion)
            case events.Started():
                self._own_commands += 1
            case events.Prompted():
                self._own_requests += 1

    def add_spending(self, event: events.Event) -> None:
        """Add only the money and tokens of an event, such as that of an earlier process's sub-agent."""
        if isinstance(event, (events.Thought, events.Rejected, events.Spent, events.Answered)):
            self._own_usage += event.usage
            self._own_usd += event.usage.cost or 0.0

    @property
    def usage(self) -> Usage:
        """Return the usage so far, including shares."""
        return sum((share.usage for share in self._shares), self._own_usage)

    @property
    def usd(self) -> float:
        """Return the known part of the cost. `usage.cost` is None once a request had no price."""
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
        """Return a sub-agent's budget: this `part` of the remainder, but all of the time; None if nothing remains."""
        self._absorb()
        limits, committed = self.limits, self._committed
        remaining = limits.commands - committed.commands
        commands = max(int(remaining * part), min(1, remaining - 1))  # at least 1, if another remains for this agent
        share_limits = RunLimits(
            usd=(limits.usd - committed.usd) * part,
            tokens=int((limits.tokens - committed.tokens) * part),
            seconds=limits.seconds - self.time.seconds,
            commands=commands,
            requests=min(requests_for(max(commands, 0)), limits.requests - committed.requests),
        )
        for name in ("usd", "tokens", "seconds", "commands", "requests"):
            if not getattr(limits, name):
                share_limits = replace(share_limits, **{name: 0})  # 0 means no ceiling
            elif getattr(share_limits, name) <= 0:
                return None
        if limits.deadline and now >= limits.deadline:
            return None
        share = Budget(replace(share_limits, deadline=limits.deadline))
        share._is_open = True
        self._shares.append(share)
        return share

    def change_usd(self, usd: float) -> None:
        """Set the ceiling on money, 0 for none. A share in use gets no more than the rest."""
        self.limits = replace(self.limits, usd=usd)
        if usd:
            remaining = max(0.0, usd - self.usd)
            for share in [share for share in self._shares if share._is_open]:
                limit = share.usd + remaining
                share.change_usd(max(min(share.limits.usd or limit, limit), _MIN_USD))

    def give_back(self) -> None:
        """Return the unspent share to its parent."""
        self._is_open = False

    def adopt_estimate(self, earlier: Budget) -> None:
        """Expect replies as long as those of an earlier share."""
        self._replies.extend(earlier._replies)

    def _absorb(self) -> None:
        """Merge the spending of returned shares into this budget, since there may be thousands."""
        # Each is asked once, as its agent's thread may close it at any time.
        for share in [share for share in self._shares if not share._is_open]:
            self._shares.remove(share)
            self._own_usage += share.usage
            self._own_usd += share.usd
            self._own_commands += share.commands
            self._own_requests += share.requests

    @property
    def _committed(self) -> RunLimits:
        """Return the amounts spent or reserved, except time, since it passes for all agents alike."""
        reserved = [share._reserved for share in self._shares]
        usage = self._own_usage
        return RunLimits(
            usd=self._own_usd + sum(share.usd for share in reserved),
            tokens=usage.prompt + usage.completion + sum(share.tokens for share in reserved),
            commands=self._own_commands + sum(share.commands for share in reserved),
            requests=self._own_requests + sum(share.requests for share in reserved),
        )

    @property
    def _reserved(self) -> RunLimits:
        limits = self.limits if self._is_open else RunLimits()
        return RunLimits(
            usd=max(limits.usd, self.usd),
            tokens=max(limits.tokens, self.tokens),
            commands=max(limits.commands, self.commands),
            requests=max(limits.requests, self.requests),
        )

    @property
    def expected_reply(self) -> int:
        """Return the tokens expected of the next reply, estimated from recent ones."""
        return int(_REPLY_MARGIN * max(self._replies)) if self._replies else FIRST_REPLY_TOKENS

    def allowance(self, prompt_tokens: int, price: Price | None) -> int | None:
        """Return how many tokens the reply to such a prompt may have, or None without ceilings."""
        limits, committed = self.limits, self._committed
        remaining = []
        if limits.tokens:
            remaining.append(limits.tokens - committed.tokens - prompt_tokens)
        if limits.usd and price is not None and price.completion > 0:
            usd = limits.usd - committed.usd - prompt_tokens * price.prompt / 1e6
            remaining.append(int(usd / price.completion * 1e6))
        return max(1, min(remaining)) if remaining else None

    def check(self, prompt_tokens: int, reply_tokens: int, price: Price | None, now: float) -> None:
        """Raise StopRun if a request of this size would exceed a ceiling, or time is up at `now` (epoch seconds)."""
        self.check_time(now)
        limits, committed = self.limits, self._committed
        if limits.requests and committed.requests >= limits.requests:
            commands = limits.commands
            hint = f" (-l {commands} allows 2 x {commands} + 3 requests)"
            is_share = limits.requests != requests_for(commands)  # a sub-agent's limit, cut to the remainder
            text = f"The limit of {limits.requests} requests to the model is reached{'' if is_share else hint}."
            raise StopRun(Outcome(Status.LIMIT, text))
        self.check_size(prompt_tokens, reply_tokens, price)

    def check_size(self, prompt_tokens: int, reply_tokens: int, price: Price | None, pending: Usage = _NONE) -> None:
        """Raise StopRun if a request of this size would exceed the ceiling on tokens or money.

        `pending` has been used but not yet charged.
        """
        limits, committed = self.limits, self._committed
        tokens = committed.tokens + pending.prompt + pending.completion
        usd = committed.usd + (pending.cost or 0.0)
        if limits.tokens and tokens + prompt_tokens + reply_tokens > limits.tokens:
            raise StopRun(
                Outcome(
                    Status.BUDGET,
                    f"The next call may take {prompt_tokens + reply_tokens} tokens, but only "
                    f"{max(0, limits.tokens - tokens)} of the limit of {limits.tokens} (--max-tokens) are left.",
                )
            )
        estimate = estimated_cost(prompt_tokens, reply_tokens, price) or 0.0
        if limits.usd and usd + estimate > limits.usd:
            raise NoMoneyException(
                Outcome(
                    Status.BUDGET,
                    f"The next call may cost ${estimate:.4f}, but only ${max(0.0, limits.usd - usd):.4f} "
                    f"of the budget of ${limits.usd:g} is left.",
                )
            )

    def check_time(self, now: float) -> float:
        """Return the remaining seconds. Raises StopRun if the time is up."""
        limits = self.limits
        seconds = limits.seconds - self.time.seconds if limits.seconds else math.inf
        if seconds <= 0:
            raise StopRun(Outcome(Status.LIMIT, f"The time limit of {limits.seconds:g} s is reached."))
        until_deadline = limits.deadline - now if limits.deadline else math.inf
        if until_deadline <= 0:
            deadline = f"{datetime.fromtimestamp(limits.deadline):%F %R}"
            raise StopRun(Outcome(Status.LIMIT, f"The deadline, {deadline}, is reached."))
        return min(seconds, until_deadline)

    def check_command(self) -> None:
        """Raise StopRun if no further command may start."""
        if self.limits.commands and self._committed.commands >= self.limits.commands:
            count = self.limits.commands
            noun = "command" if count == 1 else "commands"
            raise StopRun(Outcome(Status.LIMIT, f"The limit of {count} {noun} (-l) is reached."))

    def describe_remaining(self, now: float) -> str:
        """Describe the remaining limits in a line for the prompt, or return '' without limits."""
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
    """Estimate the cost in USD of a request of this size with nothing cached, or None without a price."""
    if price is None:
        return None
    return (prompt_tokens * price.prompt + reply_tokens * price.completion) / 1e6


# Events that may also be written between two processes, so that the time before them was no work.
_UNTIMED = (events.Undone, events.Rewound, events.Forked, events.Snapshot, events.SystemNotice, events.Feedback)


class WorkingTime:
    """Measure an agent's working time. `recorded` holds the seconds of work up to the newest event.

    Events of older versions carry no working time. For them, all time between events of one process counts.
    """

    NOT_IN_CHECKPOINT = ("_clock", "_resumed_at", "_idle_since")

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.recorded = 0.0
        self._clock = clock
        self._resumed_at: float | None = None  # when `recorded` was last extended, or None before the first question
        self._idle_since: float | None = None  # when the agent began to wait for a person
        self._legacy_event_at: float | None = None  # time of the newest event, if it carries no working time

    def add(self, event: events.Event) -> None:
        if event.worked is not None:
            self.recorded, self._legacy_event_at = max(self.recorded, event.worked), None
        elif isinstance(event, events.RunStarted):
            self._legacy_event_at = event.t
        elif (since := self._legacy_event_at) is not None and event.t > since and not isinstance(event, _UNTIMED):
            self.recorded += event.t - since
            self._legacy_event_at = event.t
        self._resumed_at = self._clock()

    @property
    def seconds(self) -> float:
        """Return the seconds of work until now, over all processes of the run."""
        until = self._clock() if self._idle_since is None else self._idle_since
        if self._resumed_at is None:
            self._resumed_at = until
        return self.recorded + max(0.0, until - self._resumed_at)

    @contextmanager
    def idle(self) -> Iterator[None]:
        """Stop the clock during the block, while the agent waits for a person."""
        if self._idle_since is not None:
            yield
            return
        self._idle_since = self._clock()
        try:
            yield
        finally:
            if self._resumed_at is not None:
                self._resumed_at += self._clock() - self._idle_since
            self._idle_since = None
