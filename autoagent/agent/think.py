"""Build the prompt of a step within the window and the limits, and ask the model."""

from __future__ import annotations

import time
from collections.abc import Collection, Generator, Sequence
from dataclasses import replace

from autoagent.agent.authorize import Authorization
from autoagent.agent.budget import estimated_cost
from autoagent.agent.history import History
from autoagent.agent.state import Events, State
from autoagent.agent.surroundings import Surroundings, describe_workspace
from autoagent.core.commands import CommandSpec
from autoagent.core.errors import ContextOverflow, Unreachable
from autoagent.core.events import CUT_SHORT, AgentMessage, Event, Prompted, Retried, RunStarted
from autoagent.core.memory import RetrievedMemory
from autoagent.core.model import Completion, Message, Usage
from autoagent.core.protocols import Listener, Model
from autoagent.models.forwarding import LimitedListener
from autoagent.prompt import Prompt, StepFacts, build
from autoagent.registry.parts import NO_PART
from autoagent.text.tokens import Count

MAX_SHORTENINGS = 4  # of the history, per step, if the endpoint rejects the prompt as too long


class ModelTurn:
    """Ask the model for the next reply. `setup_usage` is its usage before the run started."""

    def __init__(self, state: State, model: Model, user: Authorization, listener: Listener, setup_usage: Usage) -> None:
        self._state = state
        self._model = model
        self._surroundings = Surroundings()
        self._clock = state.policy.clock
        self._user = user
        self._listener = listener
        self._pending_usage = setup_usage  # charged by the endpoint, but not yet logged

    def ask(self, memories: tuple[RetrievedMemory, ...]) -> Generator[Event, None, Completion]:
        """Ask the model, shortening the history if the endpoint rejects the prompt as too long."""
        state, part, shortenings = self._state, self._state.tools.part, 0
        if part is not NO_PART:
            messages = [Message("system", state.start.system), *state.history.messages]
            for sender, text in part.planning(messages):
                yield state.record(AgentMessage(sender=sender, text=text, data={"untrusted": sender, "private": True}))
        while True:
            prompt = yield from self._prompt(memories)
            try:
                with self._user.interruptible():
                    completion = self._complete(prompt)
                break
            except KeyboardInterrupt:
                yield from self.charge()
                yield from self._user.interrupted()
            except Unreachable as error:
                yield from self.charge()
                if not self._user.should_wait(str(error)):
                    raise
                yield state.record(Retried(reason=f"The user chose to wait: {error}"))
            except ContextOverflow as error:
                if shortenings == MAX_SHORTENINGS:
                    raise
                shortenings += 1
                yield state.record(Retried(reason=f"{str(error).rstrip('.')}; the history is cut", shortened=True))
        for reason in completion.retries:
            yield state.record(Retried(reason=reason))
        yield from self.charge()
        return completion

    def charge(self, purpose: str = CUT_SHORT) -> Events:
        """Record the usage that belongs to no completion."""
        usage = self._pending_usage + self._model.take_usage()
        self._pending_usage = Usage()
        yield from self._state.charge(purpose, usage)

    def _prompt(self, memories: tuple[RetrievedMemory, ...]) -> Generator[Event, None, Prompt]:
        """Build the prompt of this step, within the window and the budget, and log it."""
        state, now = self._state, self._clock()
        limits = state.budget.describe_remaining(now)
        zone, price = time.localtime(now).tm_gmtoff, self._model.price
        self._surroundings = describe_workspace(state) if state.start.style.guided else Surroundings()
        files = self._surroundings.text
        event = Prompted(sha256="", tokens=0, messages=0, at=now, estimate=None, left=limits, zone=zone, files=files)
        prompt = build_step_prompt(state.start, state.history, memories, event, count=state.count)
        prompt_tokens, reply_tokens = self._estimate(prompt)
        state.budget.check(prompt_tokens, reply_tokens, price, now)
        event = replace(event, sha256=prompt.sha256, tokens=prompt.tokens, messages=len(prompt.messages))
        yield state.record(replace(event, estimate=estimated_cost(prompt_tokens, reply_tokens, price)))
        state.save_checkpoint()
        return prompt

    def _estimate(self, prompt: Prompt) -> tuple[int, int]:
        """Estimate the size of the prompt and of its reply in the endpoint's tokens."""
        history = self._state.history
        max_reply = history.reply_tokens + self._model.reasoning_room
        return int(prompt.tokens * history.scale), min(max_reply, self._state.budget.expected_reply)

    def _complete(self, prompt: Prompt) -> Completion:
        """Ask the model within the remaining limits. A retry that would exceed them ends the run."""
        state, budget = self._state, self._state.budget
        prompt_tokens, reply_tokens = self._estimate(prompt)
        commands: Sequence[CommandSpec] = ()
        if not state.start.style.writes_file:
            commands = state.loop_guard.select_commands(state.work.loaded_commands(state.tools.registry.specs))
            commands = self._surroundings.bind(commands) if state.start.style.guided else commands

        def before_retry(reason: str) -> None:
            self._pending_usage += self._model.take_usage()
            budget.check_size(prompt_tokens, reply_tokens, self._model.price, self._pending_usage)

        return self._model.complete(
            prompt.messages,
            commands=commands,
            max_tokens=state.history.reply_tokens,
            at_most=budget.allowance(prompt_tokens, self._model.price),
            listener=LimitedListener(self._listener, lambda: budget.check_time(self._clock()), before_retry),
        )


def build_step_prompt(
    start: RunStarted,
    history: History,
    memories: Sequence[RetrievedMemory],
    event: Prompted,
    *,
    count: Count,
    excluded: Collection[int] = (),
) -> Prompt:
    """Build the prompt of a step, without the memories whose ids are in `excluded`.

    `event` holds its circumstances: time, time zone, remaining limits and workspace. All inputs are in the log, so the
    prompt can be rebuilt (see prompt_replay).
    """
    facts = StepFacts(
        goals=start.task.goals,
        reminders="\n".join(filter(None, (history.reminders, event.left))),
        files=event.files,
        met=history.met,
        failing=history.failing,
        core=[memory for memory in history.core if memory.id not in excluded],
        core_left=history.core_left,
        core_at=history.core_at,
        lasting=[memory for memory in history.lasting if memory.id not in excluded],
        lasting_at=history.lasting_at,
        now=event.at,
        zone=event.zone,
        file=start.task.file,
    )
    return build(
        start.system,
        history.messages,
        [memory for memory in memories if memory.id not in excluded],
        facts,
        shares=history.shares,
        count=count,
        fixed_tokens=history.fixed_tokens,
    )
