"""The backend `none`: a memory that keeps nothing."""

from __future__ import annotations

from collections.abc import Collection

from autoagent.messages import Recollection, Usage


class NoMemory:
    """Satisfies Memory: stores nothing, recalls nothing."""

    def add(
        self, text: str, *, kind: str = "note", source: str = "", trusted: bool = True, run: str = "", step: int = 0
    ) -> int | None:
        return None

    def recall(self, query: str, k: int = 10, *, skip: Collection[tuple[str, int]] = ()) -> list[Recollection]:
        return []

    def forget(self, memory: int) -> bool:
        return False

    def __len__(self) -> int:
        return 0

    def take_usage(self) -> Usage:
        return Usage()

    def close(self) -> None:
        """Nothing is open."""
