"""The facts of a run that is over: one call to the model, within the budget, whose failure costs the facts alone."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Generator

from autoagent.core.commands import Proposal
from autoagent.core.errors import ModelError, SetupError, StopRun
from autoagent.core.events import Answered, Event, Retried, Rewound
from autoagent.core.model import Completion, Message
from autoagent.core.outcome import Outcome
from autoagent.core.protocols import Listener, Model
from autoagent.runs.log_reader import effective
from autoagent.runs.run_facts import facts_prompt
from autoagent.steps.authorization import Authorization
from autoagent.steps.run_state import Policy, RunState
from autoagent.text.facts import PURPOSE, facts_in
from autoagent.text.tokens import PER_MESSAGE

ROOM = 6000  # tokens of the run's steps that the model is shown
SHARE = 4  # of the window, one part may be these
REPLY = 500  # tokens
SECONDS = 60.0  # that the call may take


class Distillation:
    """Has the model put down what a run found out, where the policy wants it and the model is one to do so."""

    def __init__(self, state: RunState, model: Model, policy: Policy, user: Authorization, listener: Listener) -> None:
        self._state = state
        self._model = model
        self._wanted = policy.distils
        self._clock = policy.clock
        self._user = user
        self._listener = listener

    def facts(self, outcome: Outcome) -> Generator[Event, None, list[str]]:
        """Return the facts of the run that ends so; those that an earlier process was told are not asked for again."""
        state = self._state
        if not self._wanted or state.start.asking == "brief":  # a small model makes none
            return []
        answered = state.resume.distilled
        if answered is None:
            answered = yield from self._ask(outcome)
        return facts_in(answered.text, truncated=answered.truncated) if answered else []

    def _ask(self, outcome: Outcome) -> Generator[Event, None, Answered | None]:
        state, problem = self._state, ""
        rewinds = [event for event in state.log.events() if isinstance(event, Rewound)]
        own = (event for event in effective(state.log.events(), rewinds) if event.agent == state.key)
        room = min(ROOM, state.start.window // SHARE)
        prompt = facts_prompt(state.start.task, outcome.reason, own, room, state.count)
        try:
            completion = self._complete(prompt)
        except (ModelError, SetupError, StopRun) as error:
            problem = str(error)
        except KeyboardInterrupt:
            problem = "interrupted"
        if problem:
            yield from state.charge(PURPOSE, self._model.take_usage())
            yield state.record(Retried(reason=f"What the run found out is not put down in facts: {problem}"))
            return None
        answered = state.record(
            Answered(
                purpose=PURPOSE,
                sha256=hashlib.sha256(prompt.encode("utf-8", "surrogatepass")).hexdigest(),
                text=completion.text,
                usage=completion.usage,
                truncated=completion.truncated,
            )
        )
        yield answered
        yield from state.charge(PURPOSE, self._model.take_usage())
        assert isinstance(answered, Answered)
        return answered  # as it is in the log: without secrets

    def _complete(self, prompt: str) -> Completion:
        """Ask once, within what the limits leave."""
        budget, price = self._state.budget, self._model.price
        sent = int((self._state.count(prompt) + 2 * PER_MESSAGE) * self._state.history.scale)
        began = self._clock()
        budget.check(sent, REPLY + self._model.reasoning_room, price, began)

        def heed() -> float:
            left = min(began + SECONDS - self._clock(), budget.check_time(self._clock()))
            if left <= 0:
                raise StopRun(Outcome("limit", f"the model took longer than {SECONDS:g} s"))
            return left

        with self._user.interruptible():
            self._listener.working("what the run found out is put down in facts", SECONDS)
            return self._model.complete(
                [Message("user", prompt)],
                max_tokens=REPLY,
                at_most=budget.allowance(sent, price),
                listener=_Once(self._listener, heed),
            )


class _Once:
    """Satisfies Listener: shows nothing of the answer, and waits for no second try."""

    def __init__(self, listener: Listener, heed: Callable[[], float]) -> None:
        self._listener = listener
        self._heed = heed

    def text(self, delta: str) -> None:
        """Show nothing: the facts are shown once they are whole."""

    def waiting(self, reason: str, seconds: float, until: float) -> None:
        raise StopRun(Outcome("failed", reason))

    def heed(self) -> float:
        return min(self._listener.heed(), self._heed())

    def working(self, what: str, seconds: float) -> None:
        self._listener.working(what, seconds)

    def proposed(self, proposal: Proposal) -> None:
        """Nothing is proposed."""
