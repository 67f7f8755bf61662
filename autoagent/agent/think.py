"""The model's turn: the prompt of a step, within the window and the limits, and the reply to it."""

from __future__ import annotations

import time
from collections.abc import Generator

from autoagent.agent.authorize import Authorization
from autoagent.agent.budget import estimated_cost
from autoagent.agent.history import Moment, build_step_prompt
from autoagent.agent.state import Events, Policy, State, Tools
from autoagent.agent.surroundings import Surroundings, look_around
from autoagent.core.commands import CommandSpec
from autoagent.core.errors import ContextOverflow, Unreachable
from autoagent.core.events import AgentMessage, Event, Prompted, Retried
from autoagent.core.memory import RetrievedMemory
from autoagent.core.model import Completion, Message, Usage
from autoagent.core.protocols import Listener, Model
from autoagent.models.watch import Watch
from autoagent.prompt import Prompt
from autoagent.registry.parts import NO_PART

SHORTENINGS = 4  # of the history in one step, when the endpoint says that the prompt does not fit
CUT_SHORT = "replies that were cut short"


class ModelTurn:
    """Asks the model. `setup_usage` is its usage before the run began."""

    def __init__(
        self,
        state: State,
        model: Model,
        tools: Tools,
        policy: Policy,
        user: Authorization,
        listener: Listener,
        setup_usage: Usage,
    ) -> None:
        self._state = state
        self._model = model
        self._registry = tools.registry
        self._workspace = tools.context.workspace
        self._around = Surroundings()
        self._part = tools.part
        self._clock = policy.clock
        self._user = user
        self._listener = listener
        self._pending_usage = setup_usage  # paid, and not yet in the log

    def ask(self, memories: tuple[RetrievedMemory, ...]) -> Generator[Event, None, Completion]:
        """Ask the model with all that fits; cut the history further if the endpoint finds the prompt too long."""
        state, shortened = self._state, 0
        if self._part is not NO_PART:
            shown = [Message("system", state.start.system), *state.history.messages]
            for sender, text in self._part.planning(shown):
                yield state.record(AgentMessage(sender=sender, text=text, data={"untrusted": sender}))
        while True:
            prompt = yield from self._prompt(memories)
            try:
                with self._user.interruptible():
                    completion = self._complete(prompt)
                break
            except KeyboardInterrupt:
                yield from self._user.interrupted()
            except Unreachable as error:
                yield from self.charge()
                if not self._user.waits_on(str(error)):
                    raise
                yield state.record(Retried(reason=f"The user waits on: {error}"))
            except ContextOverflow as error:
                if shortened == SHORTENINGS:
                    raise
                shortened += 1
                yield state.record(Retried(reason=f"{str(error).rstrip('.')}; the history is cut", shortened=True))
        for reason in completion.retries:
            yield state.record(Retried(reason=reason))
        yield from self.charge()
        return completion

    def charge(self, purpose: str = CUT_SHORT) -> Events:
        """Record usage besides the completions."""
        pending, self._pending_usage = self._pending_usage + self._model.take_usage(), Usage()
        yield from self._state.charge(purpose, pending)

    def _prompt(self, memories: tuple[RetrievedMemory, ...]) -> Generator[Event, None, Prompt]:
        """Build the prompt of this step, within the window and the budget, and announce it in the log."""
        state, now = self._state, self._clock()
        left = state.budget.left(now)
        zone = time.localtime(now).tm_gmtoff
        self._around = look_around(self._workspace, state) if state.start.style.guided else Surroundings()
        moment = Moment(now, zone, left, self._around.text)
        prompt = build_step_prompt(state.start, state.history, memories, moment, count=state.count)
        expected, reply_tokens = self._expected(prompt)
        price = self._model.price
        state.budget.check(expected, reply_tokens, price, now)
        yield state.record(
            Prompted(
                sha256=prompt.sha256,
                tokens=prompt.tokens,
                messages=len(prompt.messages),
                at=now,
                estimate=estimated_cost(expected, reply_tokens, price),
                left=left,
                zone=zone,
                files=moment.files,
            )
        )
        state.keep()
        return prompt

    @property
    def _offered(self) -> list[CommandSpec]:
        offered = self._state.loop_guard.offered(self._state.work.loaded_of(self._registry.specs))
        return self._around.bind(offered) if self._state.start.style.guided else offered

    def _expected(self, prompt: Prompt) -> tuple[int, int]:
        """Estimate, in tokens as the endpoint counts them, the prompt and the reply to it."""
        history = self._state.history
        most = history.reply_tokens + self._model.reasoning_room
        return int(prompt.tokens * history.scale), min(most, self._state.budget.expected_reply)

    def _complete(self, prompt: Prompt) -> Completion:
        """Ask the model within the remaining limits. A retry that would exceed them ends the run."""
        budget = self._state.budget
        sent, reply = self._expected(prompt)

        def before_retry(reason: str) -> None:
            self._pending_usage += self._model.take_usage()
            budget.check_size(
                self._pending_usage.prompt + sent, self._pending_usage.completion + reply, self._model.price
            )

        return self._model.complete(
            prompt.messages,
            commands=() if self._state.start.style.writes_file else self._offered,
            max_tokens=self._state.history.reply_tokens,
            at_most=budget.allowance(sent, self._model.price),
            listener=Watch(self._listener, lambda: budget.check_time(self._clock()), before_retry),
        )
