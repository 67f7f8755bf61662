"""Decide when to retry a failed request, how long to wait, and when to give up: a policy without a clock.

Requests without an answer are retried while patience lasts, to wait out an outage. Requests that may be charged are
retried a few times only.

Waits back off exponentially with full jitter (Brooker, "Exponential Backoff and Jitter", 2015), so that agents that
failed together do not return together. A wait requested by the server has precedence.

tenacity's rules see the outcome of one attempt. These need charges, repeated refusals and the remaining patience.
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
    """The limits of retrying: `patience` seconds from the first fault on, and a limit for attempts that may be charged.

    `at_first`: the patience with an address that has never answered and may be wrong. The n-th wait is under `first *
    2**n` seconds and at most `longest`. `sleep`, `clock` (seconds since the epoch), `timer` (monotonic seconds) and
    `chance` (in [0, 1)) are handed in.
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
        """Return the seconds before the next attempt after `failed` failures: the server's request plus jitter."""
        if after is not None:
            return after + self.first * self.chance()
        return min(self.longest, self.first * 2.0 ** min(failed - 1, 30)) * self.chance()


class Fault(Exception):
    """A failed attempt that may be retried. `after`: the wait requested by the server in seconds.

    `refusal`: the error to raise if the request itself causes the failure twice (such as a 500 for every request with
    tools).
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
    """Return whether a retry may help after this status. `x-should-retry` overrides it."""
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
    """Return the final result of `attempt`, and the reasons of the faults on the way.

    `waiting` hears of each wait: the reason, the seconds, and the end of the patience (seconds since the epoch). `heed`
    is called several times a second during a wait and ends it by raising. `known`: the endpoint has answered before.

    Raises:
        Unreachable: the last fault, once the patience or the charged attempts are used up, or the server asks for a
            longer wait.
        Exception: the refusal behind two faults.
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
