"""The long-term memory in a step: what is recalled before the model is asked, and what is kept of the step."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace

from autoagent.core.errors import ModelError, StateError
from autoagent.core.events import Event, Recalled, Remembered, Retried, Tainted
from autoagent.core.memory import RetrievedMemory
from autoagent.core.protocols import Memory
from autoagent.steps.authorization import Authorization
from autoagent.steps.run_state import Events, RunState

RECALLED = 10  # memories asked for at every step
RECALLED_CHARACTERS = 400  # of each memory; a prompt shows no more
LEFT_OUT = 20  # candidates left out of a recall that the log names


class StepMemory:
    """The memory of a run. Failures are recorded, not raised: then nothing is recalled or kept."""

    def __init__(self, state: RunState, memory: Memory, user: Authorization) -> None:
        self._state = state
        self._memory = memory
        self._user = user
        self._problem = ""  # why the last recall found nothing by its meaning

    def recall(self) -> Generator[Event, None, tuple[RetrievedMemory, ...]]:
        """Retrieve the memories nearest to what is going on, cut to what a prompt shows of them."""
        state, history = self._state, self._state.history
        query = history.newest or " ".join(goal.text for goal in state.start.task.goals)
        shown = {(state.place_in(run), step) for run, step in history.steps}
        try:
            with self._user.interruptible():  # an endpoint may embed, and be silent
                found = self._memory.recall(query, RECALLED, room=history.shares.recollections, skip=shown)
        except (ModelError, StateError) as error:
            yield state.record(Retried(reason=f"Nothing is recalled: {error}"))
            return ()
        except KeyboardInterrupt:
            yield from self._user.interrupted()
            return ()
        yield from state.charge("embedding", self._memory.take_usage())
        if found.problem and found.problem != self._problem:
            yield state.record(Retried(reason=f"Memories are recalled by their words alone: {found.problem}"))
        self._problem = found.problem
        memories = tuple(replace(memory, text=memory.text[:RECALLED_CHARACTERS]) for memory in found.memories)
        if not memories and not found.left_out:
            return ()
        left_out = found.left_out[:LEFT_OUT]
        recalled = state.record(Recalled(query=query[:RECALLED_CHARACTERS], memories=memories, left_out=left_out))
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
