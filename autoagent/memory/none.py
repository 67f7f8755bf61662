"""The backend `none`: a memory that keeps nothing."""

from __future__ import annotations

from collections.abc import Callable, Collection

from autoagent.core.memory import Dream, Recall, RetrievedMemory
from autoagent.core.model import Usage


class NoMemory:
    """Satisfies Memory: stores nothing, recalls nothing, and sleeps without a dream."""

    def add(
        self,
        text: str,
        *,
        kind: str = "note",
        source: str = "",
        trusted: bool = True,
        run: str = "",
        step: int = 0,
        durable: bool = True,
    ) -> int | None:
        return None

    @property
    def store_id(self) -> str:
        return ""

    def has_lost(self, memory: int, run: str, text: str = "") -> bool:
        return False

    def recall(
        self,
        query: str,
        k: int = 10,
        *,
        room: int | None = None,
        skip: Collection[tuple[str, int]] = (),
        pushed: bool = False,
        meant: Callable[[RetrievedMemory], bool] | None = None,
    ) -> Recall:
        return Recall()

    def use(self, memories: Collection[int]) -> None:
        """Do nothing: there are none."""

    def nap(self) -> None:
        """Do nothing: nothing can fade."""

    def sleep(self, n: int | None, dream: Callable[[str], str]) -> Dream:
        return Dream()

    def forget(self, memory: int) -> bool:
        return False

    def __len__(self) -> int:
        return 0

    def take_usage(self) -> Usage:
        return Usage()

    def close(self) -> None:
        """Do nothing: nothing is open."""
