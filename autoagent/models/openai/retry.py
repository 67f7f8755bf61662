"""When a failed request deserves another, how long to wait before it, and when to stop: a policy without a clock.

What was not answered is asked again for as long as there is patience, so that an outage is waited out. What may have
to be paid each time is asked again a few times only.

Waits back off exponentially with full jitter (Brooker, "Exponential Backoff and Jitter", 2015), so that many agents
that failed together do not come back together. What the server says of waiting comes before what we would choose.

Not tenacity: its rules see one attempt's outcome, ours what was paid for, what was refused twice and the patience left.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import random
from typing import Literal, TypeVar

from autoagent.core.errors import Unreachable

T = TypeVar("T")

_REFUSALS = 2  # faults of one kind that count as a refusal of the request
_LOOK = 0.2  # seconds between two looks whether to wait on


Stage = Literal["unreached", "refused", "begun"]
"""How far a failed attempt came: to no server at all, to one that said no, or to an answer that may have to be paid."""


@dataclass(frozen=True, slots=True)
class Policy:
    """How long to retry: `patience` seconds from the first
    fault on, with at most so many attempts that may be charged.

    `at_first`: the patience with an address at which nothing has ever answered, as it may be wrong. The n-th wait is
    under `first * 2**n` seconds; none that we choose is longer than `longest`. `sleep`, `clock` (seconds since the
    epoch), `timer` (seconds that no clock change touches) and `chance` (in [0, 1)) are the world, handed in.
    """

    patience: float = 60.0
    at_first: float = 15.0
    attempts: int = 5
    first: float = 1.0
    longest: float = 30.0
    sleep: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.time
    timer: Callable[[], float] = time.monotonic
    chance: Callable[[], float] = random

    def wait(self, failed: int, after: float | None) -> float:
        """Return the seconds before the next attempt, once `failed`
        have failed: what the server asks for, plus the jitter.
        """
        if after is not None:
            return after + self.first * self.chance()
        return min(self.longest, self.first * 2.0 ** min(failed - 1, 30)) * self.chance()


class Fault(Exception):
    """An attempt that failed in a way that may pass. `after`: seconds that the server asks to wait.

    `refusal`: what to raise where this very request may be what the server fails at (a 500 to every request that
    offers tools), and it did so twice.
    """

    def __init__(
        self, reason: str, after: float | None = None, stage: Stage = "begun", refusal: Exception | None = None
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.after = after
        self.stage: Stage = stage
        self.refusal = refusal


def deserves(status: int, headers: Mapping[str, str]) -> bool:
    """Return whether an answer with this status may differ next time; `x-should-retry` has the last word."""
    said = headers.get("x-should-retry", "").lower()
    return said == "true" if said in ("true", "false") else status in (408, 409, 429) or status >= 500


def retry_after(headers: Mapping[str, str], now: float) -> float | None:
    """Return the seconds that `retry-after-ms` or `Retry-After` (seconds or a date) asks for, or None."""
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        try:
            seconds = float(headers.get(name, "")) * unit
        except ValueError:
            continue
        if 0 <= seconds < float("inf"):
            return seconds
    from email.utils import parsedate_to_datetime  # costs as much as all of this room, and is seldom wanted

    try:
        return max(0.0, parsedate_to_datetime(headers.get("retry-after", "")).timestamp() - now)
    except (ValueError, OverflowError):
        return None


def persist(
    attempt: Callable[[], T],
    policy: Policy,
    waiting: Callable[[str, float, float], None],
    heed: Callable[[], float] | None = None,
    *,
    known: bool = True,
) -> tuple[T, tuple[str, ...]]:
    """Return what `attempt` gave in the end, and the reasons of the faults on the way.

    `waiting` is told before each wait: the reason, the seconds, and until when (seconds since the epoch) there is
    patience. `heed` is called several times a second while it waits, and ends the wait by raising. `known`: the
    endpoint has answered before.

    Raises:
        Unreachable: the last fault, when the patience is over, too many were paid for, or the server asks for a longer
            wait than there is patience.
        Exception: the refusal that two faults with one come to.
    """
    reasons: list[str] = []
    paid = refusals = 0
    began = 0.0
    while True:
        try:
            return attempt(), tuple(reasons)
        except Fault as fault:
            now = policy.timer()
            began = began if reasons else now
            reasons.append(fault.reason)
            paid += fault.stage == "begun"
            refusals += fault.refusal is not None
            if fault.refusal is not None and refusals == _REFUSALS:
                raise fault.refusal from fault
            patience = policy.patience if known or fault.stage != "unreached" else policy.at_first
            left = began + patience - now
            if left <= 0 or paid >= policy.attempts:
                times = f"{len(reasons)} times in {now - began:.0f} s" if len(reasons) > 1 else "once"
                longer = ", or set --patience" if left <= 0 else ""  # where that would not have been too often
                advice = f"; try again later{longer}" if patience else ""
                raise Unreachable(f"{fault.reason} (tried {times}{advice})") from fault
            if fault.after is not None and fault.after > left:
                raise Unreachable(
                    f"{fault.reason} (it asks to wait {fault.after:.0f} s, the patience left is {left:.0f} s; "
                    "try again later, or set --patience)"
                ) from fault
            seconds = min(left, policy.wait(len(reasons), fault.after))
        waiting(reasons[-1], seconds, policy.clock() + left)
        _pause(seconds, policy, heed)


def _pause(seconds: float, policy: Policy, heed: Callable[[], float] | None) -> None:
    if heed is None:
        policy.sleep(seconds)
        return
    end = policy.timer() + seconds
    while (left := end - policy.timer()) > 0:
        policy.sleep(min(left, _LOOK, heed()))
    heed()
