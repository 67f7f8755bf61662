"""Call a model outside the steps of a run, within the budget and logged with its answer."""

from __future__ import annotations

import hashlib
from collections.abc import Generator, Mapping, Sequence
from typing import Any

from autoagent.agent.budget import estimated_cost
from autoagent.agent.state import State
from autoagent.core.commands import CommandSpec
from autoagent.core.errors import ModelError, SetupError, StopRun
from autoagent.core.events import Answered, Asked, Event
from autoagent.core.frozen import dataclass
from autoagent.core.model import Completion, Message
from autoagent.core.protocols import Listener, Model
from autoagent.core.task import Outcome, Status
from autoagent.models.forwarding import LimitedListener
from autoagent.text.tokens import TOKENS_PER_MESSAGE

MAX_SECONDS = 60.0  # per call
MAX_LOCAL_SECONDS = 300.0  # for a local model, which is slow and costs nothing


@dataclass(frozen=True, slots=True)
class SideRequest:
    """A request to a model outside the steps of a run."""

    messages: Sequence[Message]
    purpose: str  # as logged
    activity: str  # for the status line
    reply_tokens: int  # at most
    schema: Mapping[str, Any] | None = None  # of the answer, for models that support schemas
    seconds: float = 0.0  # expected duration to announce, or 0 if an event follows soon
    commands: Sequence[CommandSpec] = ()  # if there are any, the answer must use one of them
    temperature: float | None = None  # replaces the model's


def is_signal(error: BaseException) -> bool:
    """Return whether an error means that a signal ended the run."""
    return isinstance(error, StopRun) and error.outcome.status is Status.INTERRUPTED


class SideCall:
    """Ask a model once per request."""

    def __init__(self, state: State, model: Model, listener: Listener) -> None:
        self._state = state
        self.model = model
        self._clock = state.policy.clock
        self._listener = listener

    def ask(self, request: SideRequest) -> Generator[Event, None, Answered | str]:
        """Record and return the answer as logged, or return why there is none.

        Raises StopRun if a signal ends the run.
        """
        try:
            return (yield from self.ask_or_raise(request))
        except (ModelError, SetupError, StopRun) as error:
            if is_signal(error):
                raise
            return str(error)
        except KeyboardInterrupt:
            return "interrupted"

    def ask_or_raise(self, request: SideRequest) -> Generator[Event, None, Answered]:
        """Record and return the answer as logged. Raises the same errors as Model.complete, or KeyboardInterrupt."""
        prompt = "\n".join(message.content for message in request.messages)
        sha256 = hashlib.sha256(prompt.encode("utf-8", "surrogatepass")).hexdigest()
        tokens = sum(self._state.count(message.content) + TOKENS_PER_MESSAGE for message in request.messages)
        prompt_tokens = int(tokens * self._state.history.scale)
        reply_tokens, price = request.reply_tokens + self.model.reasoning_room, self.model.price
        started_at = self._clock()
        self._state.budget.check(prompt_tokens, reply_tokens, price, started_at)
        estimate = estimated_cost(prompt_tokens, reply_tokens, price)
        yield self._state.record(Asked(purpose=request.purpose, sha256=sha256, tokens=prompt_tokens, estimate=estimate))
        try:
            completion = self._complete(request, prompt_tokens, started_at)
        finally:
            yield from self._state.charge(request.purpose, self.model.take_usage())
        event = self._state.record(
            Answered(
                purpose=request.purpose,
                sha256=sha256,
                text=completion.text,
                usage=completion.usage,
                truncated=completion.truncated,
            )
        )
        yield event
        assert isinstance(event, Answered)
        return event

    def _complete(self, request: SideRequest, prompt_tokens: int, started_at: float) -> Completion:
        model, budget = self.model, self._state.budget
        seconds = MAX_LOCAL_SECONDS if model.price and not model.price.prompt else MAX_SECONDS

        def remaining_seconds() -> float:
            remaining = min(started_at + seconds - self._clock(), budget.check_time(self._clock()))
            if remaining <= 0:
                raise StopRun(Outcome(Status.LIMIT, f"the model took longer than {seconds:g} s"))
            return remaining

        def fail(reason: str) -> None:
            raise StopRun(Outcome(Status.FAILED, reason))

        with self._state.policy.interruptible():
            if request.seconds:
                self._listener.working(request.activity, request.seconds)
            return model.complete(
                request.messages,
                max_tokens=request.reply_tokens,
                at_most=budget.allowance(prompt_tokens, model.price),
                listener=LimitedListener(self._listener, remaining_seconds, fail, quiet=True),  # shown once complete
                schema=request.schema,
                commands=request.commands,
                **({} if request.temperature is None else {"temperature": request.temperature}),
            )
