"""Decide when to retry a failed request, how long to wait, and when to give up: a policy without a clock.

Requests without an answer are retried while patience lasts, to wait out an outage. Requests that may be charged are
retried only a few times.

Waits back off exponentially with full jitter (Brooker, "Exponential Backoff and Jitter", 2015), so that agents that
failed together do not return together. A wait requested by the server has precedence.

tenacity is not used: its rules see only the outcome of one attempt. These need charges, repeated refusals and the
remaining patience.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from random import random
from typing import Literal, TypeVar

from autoagent.core.errors import Unreachable
from autoagent.core.frozen import dataclass

T = TypeVar("T")

_REFUSAL_FAULTS = 2  # faults of one kind that count as a refusal of the request
_CHECK_SECONDS = 0.2  # between checks whether to continue waiting


Stage = Literal["unreached", "refused", "begun"]
"""How far a failed attempt got: to no server, to a refusal, or to an answer that may be charged."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Limit retries: `patience` seconds from the first fault on, and a number of attempts that may be charged.

    `first_patience` is the patience with an address that has never answered and may be wrong. The n-th wait is shorter
    than `first_delay * 2**n` seconds and at most `max_delay`. `sleep`, `clock` (seconds since the epoch), `timer`
    (monotonic seconds) and `chance` (in [0, 1)) are injected.
    """

    patience: float = 60.0
    first_patience: float = 15.0
    attempts: int = 5
    first_delay: float = 1.0
    max_delay: float = 30.0
    sleep: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.time
    timer: Callable[[], float] = time.monotonic
    chance: Callable[[], float] = random

    def wait(self, failures: int, requested: float | None) -> float:
        """Return the seconds before the next attempt: the server's request plus jitter."""
        if requested is not None:
            return requested + self.first_delay * self.chance()
        return min(self.max_delay, self.first_delay * 2.0 ** min(failures - 1, 30)) * self.chance()


@dataclass(eq=False, repr=False)
class Fault(Exception):
    """Report a failed attempt that may be retried. `after` is the wait requested by the server in seconds.

    `refusal` is the error to raise if the request itself causes the failure twice (such as a 500 for every request with
    tools).
    """

    reason: str
    after: float | None = None
    stage: Stage = "begun"
    refusal: Exception | None = None

    def __str__(self) -> str:
        return self.reason


def is_retryable(status: int, headers: Mapping[str, str]) -> bool:
    """Return whether a retry may help after this status. `x-should-retry` overrides it."""
    header = headers.get("x-should-retry", "").lower()
    return header == "true" if header in ("true", "false") else status in (408, 409, 429) or status >= 500


def retry_after(headers: Mapping[str, str], now: float) -> float | None:
    """Return the seconds requested by `retry-after-ms` or `Retry-After` (seconds or a date), or None."""
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        try:
            seconds = float(headers.get(name, "")) * unit
        except ValueError:
            continue
        if 0 <= seconds < float("inf"):
            return seconds
    from email.utils import parsedate_to_datetime  # large, and rarely needed

    try:
        return max(0.0, parsedate_to_datetime(headers.get("retry-after", "")).timestamp() - now)
    except (ValueError, OverflowError):
        return None


def with_retries(
    attempt: Callable[[], T],
    policy: RetryPolicy,
    waiting: Callable[[str, float, float], None] = lambda reason, seconds, until: None,
    remaining_seconds: Callable[[], float] | None = None,
    *,
    has_answered: bool = True,
) -> tuple[T, tuple[str, ...]]:
    """Return the final result of `attempt`, and the reasons of the faults before it.

    `waiting` receives each wait: the reason, the seconds, and the end of the patience (seconds since the epoch).
    `remaining_seconds` is called several times a second during a wait and ends it by raising. `has_answered` tells
    whether the endpoint has answered before.

    Raises Unreachable for the last fault, once the patience or the charged attempts are used up, or if the server asks
    for a longer wait. Raises the refusal behind two faults.
    """
    reasons: list[str] = []
    charged_count = refusal_count = 0
    started_at = 0.0
    while True:
        try:
            return attempt(), tuple(reasons)
        except Fault as fault:
            now = policy.timer()
            started_at = started_at if reasons else now
            reasons.append(fault.reason)
            charged_count += fault.stage == "begun"
            refusal_count += fault.refusal is not None
            if fault.refusal is not None and refusal_count == _REFUSAL_FAULTS:
                raise fault.refusal from fault
            patience = policy.patience if has_answered or fault.stage != "unreached" else policy.first_patience
            remaining = started_at + patience - now
            if remaining <= 0 or charged_count >= policy.attempts:
                times = f"{len(reasons)} times in {now - started_at:.0f} s" if len(reasons) > 1 else "once"
                longer = ", or set --patience" if remaining <= 0 else ""  # unless that would be too frequent
                advice = f"; try again later{longer}" if patience else ""
                raise Unreachable(f"{fault.reason} (tried {times}{advice})") from fault
            if fault.after is not None and fault.after > remaining:
                raise Unreachable(
                    f"{fault.reason} (it asks to wait {fault.after:.0f} s, the patience left is {remaining:.0f} s; "
                    "try again later, or set --patience)"
                ) from fault
            seconds = min(remaining, policy.wait(len(reasons), fault.after))
        waiting(reasons[-1], seconds, policy.clock() + remaining)
        if remaining_seconds is None:
            policy.sleep(seconds)
            continue
        end = policy.timer() + seconds
        while (rest := end - policy.timer()) > 0:
            policy.sleep(min(rest, _CHECK_SECONDS, remaining_seconds()))
        remaining_seconds()
