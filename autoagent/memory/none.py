"""Provide a memory that stores nothing, and a clock that counts replies. Both need only the core."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection
from typing import Any

from autoagent.core.events import Event, Thought
from autoagent.core.memory import Dream, Recall, RetrievedMemory
from autoagent.core.model import Usage
from autoagent.core.protocols import MemoryStore


class NoMemory:
    """Store nothing, recall nothing and sleep without a dream. Satisfies Memory."""

    store_id = ""
    core_changes = 0

    def add(self, text: str, **metadata: Any) -> int | None:
        return None

    def has_lost(self, memory: int, run: str, text: str = "") -> bool:
        return False

    def keep_in_core(self, memory: int, *, kept: bool, public: bool = False) -> bool:
        return False

    def supersede(self, old: int, new: int) -> bool:
        return False

    def forget(self, memory: int) -> bool:
        return False

    def use(self, memories: Collection[int]) -> None:
        """Do nothing: there are no memories."""

    def nap(self) -> None:
        """Do nothing: nothing can fade."""

    def close(self) -> None:
        """Do nothing: nothing is open."""

    def recall(self, query: str, k: int = 10, **options: Any) -> Recall:
        return Recall()

    def core(self) -> list[RetrievedMemory]:
        return []

    def sleep(self, n: int | None, dream: Callable[[str], str]) -> Dream:
        return Dream()

    def __len__(self) -> int:
        return 0

    def take_usage(self) -> Usage:
        return Usage()


class TickClock:
    """Count each reply with a command as a tick of the clock that a run's agents share.

    It continues from the newest time in the memory, so no time passes between runs or while a run waits.
    """

    def __init__(self) -> None:
        self._ticks = 0
        self._start: float | None = None
        self._lock = threading.Lock()

    def add(self, event: Event) -> None:
        self._ticks += isinstance(event, Thought)

    def over(self, store: MemoryStore) -> Callable[[], float]:
        """Return the clock for a memory in this store. It raises StateError if the store cannot be read."""

        def now() -> float:
            with self._lock:
                if self._start is None:
                    newest = store.listed(1)
                    self._start = (newest[0].t if newest else time.time()) - self._ticks
                return self._start + self._ticks

        return now
