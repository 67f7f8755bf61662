"""A clock that counts the replies of a run's models in place of seconds: what is not asked for ages by work alone."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from autoagent.core.events import Event, Thought
from autoagent.core.protocols import MemoryStore


class TickClock:
    """The clock of one run, shared by its agents. Let it hear every event; each reply with a command is a tick.

    It goes on from the newest time in the memory, so that between two runs, and while one waits, no time passes.
    """

    def __init__(self) -> None:
        self._ticks = 0
        self._began: float | None = None
        self._lock = threading.Lock()

    def add(self, event: Event) -> None:
        """Take up one event."""
        self._ticks += isinstance(event, Thought)

    def over(self, store: MemoryStore) -> Callable[[], float]:
        """Return the clock for a memory in this store; it raises StateError where the store cannot be read."""

        def now() -> float:
            with self._lock:
                if self._began is None:
                    newest = store.listed(1)
                    self._began = (newest[0].t if newest else time.time()) - self._ticks
                return self._began + self._ticks

        return now
