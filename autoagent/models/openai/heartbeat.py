"""Tell the listener of a request while the server is silent."""

from __future__ import annotations

import contextlib
import threading
import time
from typing import Self

from autoagent.core.errors import StopRun
from autoagent.core.protocols import Listener

MAX_QUIET_SECONDS = 30.0  # without a message to the user


class Heartbeat:
    """While entered, notify the listener of each silence: halfway through the patience, and at regular intervals.

    `patience` is the longest silence in seconds. Notices come from another thread, never during `restart`.
    """

    def __init__(self, host: str, patience: float, listener: Listener | None) -> None:
        self._host = host
        self._patience = patience
        self._listener = listener
        self._interval = min(MAX_QUIET_SECONDS, max(1.0, patience / 2))
        self._lock = threading.Lock()
        self._end_event = threading.Event()
        self.restart()

    def __enter__(self) -> Self:
        if self._listener is not None:
            threading.Thread(target=self._watch, args=(self._listener,), name="heartbeat", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._end_event.set()

    def restart(self) -> None:
        """Restart the silence timer, as a piece has arrived."""
        with self._lock:
            self._silent_since = time.monotonic()
            self._due = self._silent_since + self._interval

    def _watch(self, listener: Listener) -> None:
        while not self._end_event.wait(max(0.0, self._due - time.monotonic())):
            with self._lock:
                silent_seconds = time.monotonic() - self._silent_since
                if time.monotonic() < self._due or self._end_event.is_set():
                    continue
                self._due += self._interval
                message = f"waiting for {self._host}, which has said nothing for {silent_seconds:.0f} s"
                with contextlib.suppress(StopRun):  # the listener's own thread raises it at the next piece
                    listener.working(message, max(0.0, self._patience - silent_seconds))
