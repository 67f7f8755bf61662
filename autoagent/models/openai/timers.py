"""Timers that share a thread, and the heartbeat that reports an endpoint's silence.

threading.Timer costs half a millisecond each, several times a request, and nearly all timers are cancelled.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Self

from autoagent.core.errors import StopRun

LONGEST = 30.0  # seconds without a word to the user


class Timers:
    """Runs due calls in a daemon thread started with the first timer. Calls must be brief and must not raise."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._due: dict[object, tuple[float, Callable[[], None]]] = {}
        self._looks = float("inf")  # when the thread looks next, if nobody wakes it
        self._thread: threading.Thread | None = None

    def after(self, seconds: float, call: Callable[[], None]) -> Callable[[], None]:
        """Schedule a call. Return a function that cancels it."""
        key, at = object(), time.monotonic() + seconds
        with self._changed:
            self._due[key] = at, call
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="timers", daemon=True)
                self._thread.start()
            elif at < self._looks:  # else it looks in time: it is not woken for a timer that is cancelled soon
                self._changed.notify()

        def cancel() -> None:
            with self._changed:
                self._due.pop(key, None)

        return cancel

    def _run(self) -> None:
        while True:
            with self._changed:
                now = time.monotonic()
                due = [key for key, (at, _) in self._due.items() if at <= now]
                calls = [self._due.pop(key)[1] for key in due]
                if not calls:
                    self._looks = min((at for at, _ in self._due.values()), default=float("inf"))
                    self._changed.wait(None if self._looks == float("inf") else self._looks - now)
            for call in calls:
                call()


class Heartbeat:
    """While entered, calls `tell` with the seconds of silence after every further `every` seconds.

    `tell` may be None. It runs in another thread, never while a received piece is being processed.
    """

    def __init__(self, timers: Timers, every: float = 0.0, tell: Callable[[float], None] | None = None) -> None:
        self._timers = timers
        self._every = every
        self._tell = tell
        self._lock = threading.Lock()
        self._since = time.monotonic()
        self._reported = 0  # times in this silence
        self._cancel: Callable[[], None] | None = None

    def __enter__(self) -> Self:
        with self._lock:
            if self._tell is not None:
                self._wait(self._every)
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            if self._cancel is not None:
                self._cancel()
            self._cancel = None

    def heard(self) -> None:
        """Note that a piece came: the silence starts over."""
        with self._lock:
            self._since, self._reported = time.monotonic(), 0

    def _wait(self, seconds: float) -> None:
        """Schedule the next check. The caller holds the lock."""
        self._cancel = self._timers.after(seconds, self._look)

    def _look(self) -> None:
        with self._lock:
            if self._cancel is None or self._tell is None:
                return
            silent = time.monotonic() - self._since
            if silent >= (self._reported + 1) * self._every:
                self._reported += 1
                with suppress(StopRun):  # who ends what listens does so in the listener's own thread, at the next piece
                    self._tell(silent)
            self._wait(max(0.0, self._since + (self._reported + 1) * self._every - time.monotonic()))
