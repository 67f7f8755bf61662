"""Combine a folder's memory with the user's own memory."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from heapq import merge  # keeps the order within each memory, which may be a model's
from typing import Any

from autoagent.core.errors import ModelError, StateError
from autoagent.core.memory import BEYOND, FROM_OUTSIDE, PRIVATE, USER, LeftOut, Recall, RetrievedMemory, link_to_newer
from autoagent.core.model import Usage
from autoagent.memory.living_memory import LivingMemory


class CombinedMemory:
    """Recall from the folder's and the user's memory, storing only the kind USER in the latter. Satisfies Memory.

    `open_user_memory(create)` returns the user's memory, or None if it is missing and not to be created.
    `refusal(text)` may ask the user, and returns why the text may not be added to it, or ''. If the user's memory
    cannot be read, `listen` receives the reason, once, and only the folder's is recalled. Recalled memories of the user
    count as private.
    """

    def __init__(
        self,
        folder_memory: LivingMemory,
        open_user_memory: Callable[[bool], LivingMemory | None],
        refusal: Callable[[str], str],
        listen: Callable[[str], None],
    ) -> None:
        self._folder_memory = folder_memory
        self._open_user_memory = open_user_memory
        self._refusal = refusal
        self._listen = listen
        self._user: LivingMemory | None = None
        self._problem = ""

    def add(self, text: str, *, kind: str = "note", source: str = "", trusted: bool = True, **data: Any) -> int | None:
        """Store a text, in the user's own memory if its kind is USER. Raises StateError if this is not allowed."""
        if kind != USER:
            return self._folder_memory.add(text, kind=kind, source=source, trusted=trusted, **data)
        if not trusted:
            raise StateError(f"Text from outside ({source}) never goes into the user's own memory.")
        if not text.strip():
            return None
        if reason := self._refusal(text):
            raise StateError(reason)
        user = self._user_memory(create=True)
        assert user is not None
        id = user.add(text, kind=kind, source=source, **{**data, "durable": True})
        return None if id is None else -id

    def __getattr__(self, name: str) -> Any:
        return getattr(self._folder_memory, name)  # anything else concerns only the folder's memory

    def has_lost(self, memory: int, run: str, text: str = "") -> bool:
        return memory >= 0 and self._folder_memory.has_lost(memory, run, text)

    def recall(self, query: str, k: int = 10, *, skip: Collection[tuple[str, int]] = (), **options: Any) -> Recall:
        """Search and filter both memories separately, and return the best results."""
        recalls = self._folder_memory.recall(query, k, skip=skip, **options)
        try:
            user = self._user_memory()
            user_recall = user.recall(query, k, **options) if user else Recall()
        except (ModelError, StateError) as error:
            self._report_unreadable(error)
            return recalls
        top = max(_best_evidence(recalls), _best_evidence(user_recall))
        recalls, user_recall = _rescale(recalls, top), _rescale(user_recall, top)
        best = list(merge(recalls.memories, map(_of_user, user_recall.memories), key=lambda memory: -memory.score))
        beyond = [LeftOut(memory.id, memory.score, BEYOND, memory.evidence) for memory in best[k:]]
        others = (replace(other, id=-other.id) for other in user_recall.left_out)
        left_out = sorted((*beyond, *recalls.left_out, *others), key=lambda other: -other.score)
        problem = recalls.problem or user_recall.problem
        return replace(recalls, memories=tuple(best[:k]), left_out=tuple(left_out), problem=problem)

    def core(self) -> list[RetrievedMemory]:
        try:
            user = self._user_memory()
            user_core = user.core() if user else []
        except StateError as error:
            self._report_unreadable(error)
            user_core = []
        both = (*self._folder_memory.core(), *map(_of_user, user_core))
        return sorted(both, key=lambda memory: (memory.core_rank, -memory.t))

    def _report_unreadable(self, error: Exception) -> None:
        """Report once why the user's own memory is not read."""
        if str(error) != self._problem:
            self._problem = str(error)
            self._listen(f"Your own memory is left out: {error}")

    def keep_in_core(self, memory: int, *, kept: bool, public: bool = False) -> bool:
        place = self._folder_memory if memory >= 0 else self._user_memory()
        return place is not None and place.keep_in_core(abs(memory), kept=kept, public=public)

    @property
    def core_changes(self) -> int:
        return self._folder_memory.core_changes + (self._user.core_changes if self._user is not None else 0)

    def supersede(self, old: int, new: int) -> bool:
        return old >= 0 and new >= 0 and self._folder_memory.supersede(old, new)

    def use(self, memories: Collection[int]) -> None:
        self._folder_memory.use({id for id in memories if id >= 0})
        user_ids = {-id for id in memories if id < 0}
        if user_ids and (user := self._user_memory()) is not None:
            user.use(user_ids)

    def forget(self, memory: int) -> bool:
        place = self._folder_memory if memory >= 0 else self._user_memory()
        return place is not None and place.forget(abs(memory))

    def take_usage(self) -> Usage:
        return self._folder_memory.take_usage() + (self._user.take_usage() if self._user is not None else Usage())

    def __len__(self) -> int:
        """Count the memories of the folder."""
        return len(self._folder_memory)

    def close(self) -> None:
        self._folder_memory.close()
        if self._user is not None:
            self._user.close()

    def _user_memory(self, *, create: bool = False) -> LivingMemory | None:
        if self._user is None:
            self._user = self._open_user_memory(create)
        return self._user


def _best_evidence(recall: Recall) -> float:
    """Return the highest evidence among the ranked candidates."""
    found = [memory.evidence for memory in recall.memories]
    return max(found + [other.evidence for other in recall.left_out if other.reason != FROM_OUTSIDE], default=0.0)


def _rescale(recall: Recall, top: float) -> Recall:
    """Scale the scores, which are relative to the best of one memory, to the best of both with the evidence `top`."""
    share = _best_evidence(recall) / top if top else 1.0
    memories = tuple(replace(memory, score=memory.score * share) for memory in recall.memories)
    left_out = tuple(replace(other, score=other.score * share) for other in recall.left_out)
    return replace(recall, memories=memories, left_out=left_out)


def _of_user(memory: RetrievedMemory) -> RetrievedMemory:
    """Return one of the user's own memories as a run sees it."""
    source = memory.source if memory.private or memory.public else ", ".join(filter(None, (PRIVATE, memory.source)))
    newer = memory.superseded_by
    return replace(memory, id=-memory.id, source=source if newer is None else link_to_newer(source, -newer))
