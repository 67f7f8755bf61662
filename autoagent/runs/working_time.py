"""The time that an agent has worked: a fold over its events, and a clock that goes on from the newest of them.

Time between two processes of a run does not count, nor does waiting for a person, nor suspension of the machine.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from autoagent.core.events import Event, Feedback, Forked, Rewound, RunStarted, Snapshot, SystemNotice, Undone

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
