"""When a failed request deserves another, how long to wait before it, and when to stop: a policy without a clock.

Waits back off exponentially with full jitter (Brooker, "Exponential Backoff and Jitter", 2015), so that many agents
that failed together do not come back together. What the server says of waiting comes before what we would choose.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import random
from typing import TypeVar

from autoagent.errors import ModelError

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Policy:
    """At most `attempts` in all. The n-th wait is under `first * 2**n` seconds; none is longer than `longest`.

    `sleep`, `clock` (seconds since the epoch) and `chance` (in [0, 1)) are the world, handed in.
    """

    attempts: int = 5
    first: float = 1.0
    longest: float = 60.0
    sleep: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.time
    chance: Callable[[], float] = random

    def wait(self, failed: int, after: float | None) -> float:
        """Seconds before the next attempt, once `failed` have failed: what the server asks for, plus the jitter."""
        backoff = min(self.longest, self.first * 2 ** (failed - 1)) * self.chance()
        return backoff if after is None else min(self.longest, after + self.first * self.chance())


class Fault(Exception):
    """An attempt failed in a way that may pass. `after`: seconds that the server asks to wait."""

    def __init__(self, reason: str, after: float | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.after = after


def deserves(status: int, headers: Mapping[str, str]) -> bool:
    """Whether an answer with this status may be different next time; `x-should-retry` has the last word."""
    said = headers.get("x-should-retry", "").lower()
    return said == "true" if said in ("true", "false") else status in (408, 409, 429) or status >= 500


def retry_after(headers: Mapping[str, str], now: float) -> float | None:
    """Seconds that `retry-after-ms` or `Retry-After` (seconds or a date) asks for; None where neither is usable."""
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
    attempt: Callable[[], T], policy: Policy, waiting: Callable[[str, float], None]
) -> tuple[T, tuple[str, ...]]:
    """What `attempt` gave in the end, and the reasons of the faults on the way. `waiting` is told before each wait.

    Raises:
        ModelError: the last fault, when there were too many or the server asks for a longer wait than the policy's.
    """
    reasons: list[str] = []
    while True:
        try:
            return attempt(), tuple(reasons)
        except Fault as fault:
            reasons.append(fault.reason)
            if len(reasons) >= policy.attempts:
                raise ModelError(f"{fault.reason} (tried {len(reasons)} times; try again later)") from fault
            if fault.after is not None and fault.after > policy.longest:
                raise ModelError(
                    f"{fault.reason} (it asks to wait {fault.after:.0f} s, the limit here is {policy.longest:.0f} s; "
                    "try again later)"
                ) from fault
            seconds = policy.wait(len(reasons), fault.after)
        waiting(reasons[-1], seconds)
        policy.sleep(seconds)
