"""A call to a model beside the steps of a run: within the budget, and in the log with its answer."""

from __future__ import annotations

import hashlib
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from autoagent.agent.state import Policy, State
from autoagent.core.errors import ModelError, SetupError, StopRun
from autoagent.core.events import Answered, Event
from autoagent.core.model import Completion, Message
from autoagent.core.protocols import Listener, Model
from autoagent.core.task import Outcome, Status
from autoagent.models.watch import Watch
from autoagent.text.tokens import PER_MESSAGE

SECONDS = 60.0  # that a call may take
LOCAL_SECONDS = 300.0  # the same on this machine's processor, which is slow and costs nothing


@dataclass(frozen=True, slots=True)
class Question:
    """A question to a model: the messages, its purpose in the log, the screen's status line, and the longest reply.

    `schema` is the JSON schema of the answer, for models that can be bound to one. `seconds`: the expected duration to
    announce, or 0 if an event follows soon.
    """

    messages: Sequence[Message]
    purpose: str
    doing: str
    reply_tokens: int
    schema: Mapping[str, Any] | None = None
    seconds: float = 0.0


class SideCall:
    """Asks a model once for each question. Failures are returned, never raised."""

    def __init__(self, state: State, model: Model, policy: Policy, listener: Listener) -> None:
        self._state = state
        self._budget = policy.budget
        self.model = model  # that answers
        self._clock = policy.clock
        self._interruptible = policy.interruptible
        self._listener = listener

    def ask(self, question: Question) -> Generator[Event, None, Answered | str]:
        """Record and return the answer as it is in the log, or say why there is none."""
        problem = ""
        try:
            completion = self._complete(question)
        except (ModelError, SetupError, StopRun) as error:
            problem = str(error)
        except KeyboardInterrupt:
            problem = "interrupted"
        yield from self._state.charge(question.purpose, self.model.take_usage())
        if problem:
            return problem
        prompt = "\n".join(message.content for message in question.messages)
        answered = self._state.record(
            Answered(
                purpose=question.purpose,
                sha256=hashlib.sha256(prompt.encode("utf-8", "surrogatepass")).hexdigest(),
                text=completion.text,
                usage=completion.usage,
                truncated=completion.truncated,
            )
        )
        yield answered
        assert isinstance(answered, Answered)
        return answered

    def _complete(self, question: Question) -> Completion:
        model, budget, count = self.model, self._budget, self._state.count
        sent = sum(count(message.content) + PER_MESSAGE for message in question.messages)
        sent = int(sent * self._state.history.scale)
        began = self._clock()
        budget.check(sent, question.reply_tokens + model.reasoning_room, model.price, began)
        seconds = LOCAL_SECONDS if model.price and not model.price.prompt else SECONDS

        def heed() -> float:
            left = min(began + seconds - self._clock(), budget.check_time(self._clock()))
            if left <= 0:
                raise StopRun(Outcome(Status.LIMIT, f"the model took longer than {seconds:g} s"))
            return left

        def no_retry(reason: str) -> None:
            raise StopRun(Outcome(Status.FAILED, reason))

        with self._interruptible():
            if question.seconds:
                self._listener.working(question.doing, question.seconds)
            return model.complete(
                question.messages,
                max_tokens=question.reply_tokens,
                at_most=budget.allowance(sent, model.price),
                listener=Watch(self._listener, heed, no_retry, quiet=True),  # it is shown once it is whole
                schema=question.schema,
            )
