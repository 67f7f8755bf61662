"""A clock that counts model replies instead of seconds, so that only work ages memories."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from autoagent.core.events import Event, Thought
from autoagent.core.protocols import MemoryStore


class TickClock:
    """The clock of one run, shared by its agents. It hears every event. Each reply with a command is a tick.

    It continues from the newest time in the memory, so no time passes between runs or while a run waits.
    """

    def __init__(self) -> None:
        self._ticks = 0
        self._began: float | None = None
        self._lock = threading.Lock()

    def add(self, event: Event) -> None:
        """Count an event."""
        self._ticks += isinstance(event, Thought)

    def over(self, store: MemoryStore) -> Callable[[], float]:
        """Return the clock for a memory in this store. It raises StateError if the store cannot be read."""

        def now() -> float:
            with self._lock:
                if self._began is None:
                    newest = store.listed(1)
                    self._began = (newest[0].t if newest else time.time()) - self._ticks
                return self._began + self._ticks

        return now
