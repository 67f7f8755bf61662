"""The long-term memory in a step: what is recalled before the model is asked, and what is kept of the step.

Two things are recalled, each with a quota and a room of its own: by the goals and the last feedback, which stays for
the run and stands near the beginning of its prompts, and by the newest step, which is new each time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Generator, Sequence
from itertools import chain, zip_longest

from autoagent.core.errors import ModelError, StateError
from autoagent.core.events import Event, Recalled, Remembered, Retried, Tainted
from autoagent.core.memory import LeftOut, Recall, RetrievedMemory
from autoagent.core.protocols import Memory
from autoagent.prompt import recollection_lines
from autoagent.steps.authorization import Authorization
from autoagent.steps.run_state import Events, RunState

BY_GOALS = 8  # memories that stay for the run
BY_STEP = 5
ASKED = 16  # goals, and clauses of goals and of feedback, that are recalled by, each for itself
CLAUSE = 3  # words that a part of a sentence has at least to be recalled by alone
QUERY_SHOWN = 400  # characters of a query that the log has
LEFT_OUT = 20  # candidates left out of a recall that the log names


class StepMemory:
    """The memory of a run. Failures are recorded, not raised: then nothing is recalled or kept."""

    def __init__(self, state: RunState, memory: Memory, user: Authorization, clock: Callable[[], float]) -> None:
        self._state = state
        self._memory = memory
        self._user = user
        self._clock = clock
        self._problem = ""  # why the last recall found nothing by its meaning
        self._asked: tuple[str, ...] = ()  # goals and feedback that were recalled by last

    def recall(self) -> Generator[Event, None, tuple[RetrievedMemory, ...]]:
        """Retrieve the memories that fit what is going on; return those by the newest step, the others stay."""
        history = self._state.history
        said = [goal.text for goal in self._state.start.task.goals] + [history.feedback]
        asked = tuple(dict.fromkeys(chain.from_iterable(map(_clauses, said))))[:ASKED]
        if asked != self._asked:
            self._asked = asked
            yield from self._recall(asked, BY_GOALS, (), lasting=True)
        if not history.topic:
            return ()
        return (yield from self._recall((history.topic,), BY_STEP, {memory.id for memory in history.lasting}))

    def _recall(
        self, queries: Sequence[str], quota: int, there: Collection[int], *, lasting: bool = False
    ) -> Generator[Event, None, tuple[RetrievedMemory, ...]]:
        """Recall by each query, and record the best of all; those that are `there` already are left out."""
        state, history = self._state, self._state.history
        room = history.shares.lasting if lasting else history.shares.recollections
        shown = {(state.place_in(run), step) for run, step in history.steps}
        found: list[Recall] = []
        try:
            with self._user.interruptible():  # an endpoint may embed, and be silent
                for query in queries:
                    found.append(self._memory.recall(query, quota + len(there), skip=shown, pushed=True))
        except (ModelError, StateError) as error:
            yield state.record(Retried(reason=f"Nothing is recalled: {error}"))
            return ()
        except KeyboardInterrupt:
            yield from self._user.interrupted()
            return ()
        yield from state.charge("embedding", self._memory.take_usage())
        problem = next((recall.problem for recall in found if recall.problem), "")
        if problem and problem != self._problem:
            yield state.record(Retried(reason=f"Memories are recalled by their words alone: {problem}"))
        self._problem = problem
        best = [memory for memory in _in_turn(found) if memory.id not in there][:quota]
        fitting = len(recollection_lines(best, room, state.count, now=self._clock()))
        cut = [LeftOut(memory.id, memory.score, "no room in the prompt") for memory in best[fitting:]]
        memories = tuple(sorted(best[:fitting], key=lambda memory: -memory.t))  # the newer above the older
        kept = {memory.id for memory in best}
        others = {other.id: other for recall in found for other in recall.left_out if other.id not in kept}
        left_out = (*cut, *sorted(others.values(), key=lambda other: -other.score))[:LEFT_OUT]
        if not memories and not left_out and not (lasting and history.lasting):
            return ()
        query = " ".join(queries)[:QUERY_SHOWN]
        recalled = state.record(Recalled(query=query, memories=memories, left_out=left_out, lasting=lasting))
        yield recalled
        assert isinstance(recalled, Recalled)
        for memory in recalled.memories:
            if labels := state.guard.new_labels(memory).to_json():
                yield state.record(Tainted(memory=memory.id, data=labels))
        return recalled.memories  # as they are in the log: without secrets

    def remember(self) -> Events:
        """Keep the step."""
        state, text = self._state, self._state.history.newest
        if not text:
            return
        origin = state.guard.origin
        place = state.place_in(state.log.run)
        try:
            with self._user.interruptible():
                memory = self._memory.add(
                    text, kind="step", source=origin.source, trusted=origin.trusted, run=place, step=state.step
                )
        except (ModelError, StateError) as error:
            yield state.record(Retried(reason=f"This step is not remembered: {error}"))
        except KeyboardInterrupt:
            yield from self._user.interrupted()
        else:
            if memory is not None:
                yield state.record(Remembered(memory=memory))
        yield from state.charge("embedding", self._memory.take_usage())


def _clauses(text: str) -> list[str]:
    """Split what is wanted into its parts: a memory fits one of them, hardly ever all."""
    parts = re.split(r"[.;:,\n]\s+|\s(?:and|und|et)\s", text)
    return [part for part in parts if len(part.split()) >= CLAUSE] or ([text] if text else [])


def _in_turn(recalls: Sequence[Recall]) -> list[RetrievedMemory]:
    """Return the best of each recall, then the second best, and so on, each memory once."""
    ranks = zip_longest(*(recall.memories for recall in recalls))
    found: dict[int, RetrievedMemory] = {}
    for memory in chain.from_iterable(ranks):
        if memory is not None:
            found.setdefault(memory.id, memory)
    return list(found.values())
