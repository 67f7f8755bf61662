"""Run timers in a shared thread, and report an endpoint's silence.

threading.Timer costs half a millisecond each, several times a request, and nearly all timers are cancelled.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Self

from autoagent.core.errors import StopRun

LONGEST = 30.0  # seconds without a message to the user


class Timers:
    """Run due calls in a daemon thread started with the first timer. Calls must be brief and must not raise."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._due: dict[object, tuple[float, Callable[[], None]]] = {}
        self._wakes_at = float("inf")  # when the thread wakes by itself
        self._thread: threading.Thread | None = None

    def after(self, seconds: float, call: Callable[[], None]) -> Callable[[], None]:
        """Schedule a call. Return a function that cancels it."""
        key, at = object(), time.monotonic() + seconds
        with self._condition:
            self._due[key] = at, call
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="timers", daemon=True)
                self._thread.start()
            elif at < self._wakes_at:  # otherwise it wakes in time; most timers are cancelled soon
                self._condition.notify()

        def cancel() -> None:
            with self._condition:
                self._due.pop(key, None)

        return cancel

    def _run(self) -> None:
        while True:
            with self._condition:
                now = time.monotonic()
                due = [key for key, (at, _) in self._due.items() if at <= now]
                calls = [self._due.pop(key)[1] for key in due]
                if not calls:
                    self._wakes_at = min((at for at, _ in self._due.values()), default=float("inf"))
                    self._condition.wait(None if self._wakes_at == float("inf") else self._wakes_at - now)
            for call in calls:
                call()


class Heartbeat:
    """While entered, call `tell` with the seconds of silence after every further `every` seconds.

    `tell` may be None. It runs in another thread, never while a received piece is being processed.
    """

    def __init__(self, timers: Timers, interval: float = 0.0, notify: Callable[[float], None] | None = None) -> None:
        self._timers = timers
        self._interval = interval
        self._notify = notify
        self._lock = threading.Lock()
        self._silent_since = time.monotonic()
        self._reports = 0  # reports in this silence
        self._cancel: Callable[[], None] | None = None

    def __enter__(self) -> Self:
        with self._lock:
            if self._notify is not None:
                self._schedule(self._interval)
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            if self._cancel is not None:
                self._cancel()
            self._cancel = None

    def heard(self) -> None:
        """Restart the silence after a received piece."""
        with self._lock:
            self._silent_since, self._reports = time.monotonic(), 0

    def _schedule(self, seconds: float) -> None:
        """Schedule the next check. The caller holds the lock."""
        self._cancel = self._timers.after(seconds, self._check)

    def _check(self) -> None:
        with self._lock:
            if self._cancel is None or self._notify is None:
                return
            silent = time.monotonic() - self._silent_since
            if silent >= (self._reports + 1) * self._interval:
                self._reports += 1
                with suppress(StopRun):  # the listener's own thread raises it at the next piece
                    self._notify(silent)
            self._schedule(max(0.0, self._silent_since + (self._reports + 1) * self._interval - time.monotonic()))
