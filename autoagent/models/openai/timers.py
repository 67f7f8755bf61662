"""Timers that share one thread: most are cancelled before their time, and a thread for each would cost far more."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


class Timers:
    """Calls what is due, in a thread of its own that begins with the first timer and ends with the process.

    What is called must be brief and raise nothing.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._due: dict[object, tuple[float, Callable[[], None]]] = {}
        self._looks = float("inf")  # when the thread looks next, if nobody wakes it
        self._thread: threading.Thread | None = None

    def after(self, seconds: float, call: Callable[[], None]) -> Callable[[], None]:
        """Call it once that time has passed, unless what is returned is called before."""
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
