"""The facts of a run that is over: one call to the model, within the budget, whose failure costs the facts alone."""

from __future__ import annotations

from collections.abc import Generator

from autoagent.core.events import Answered, Event, Retried, Rewound
from autoagent.core.model import Message
from autoagent.core.outcome import Outcome
from autoagent.runs.log_reader import effective
from autoagent.runs.run_facts import facts_prompt
from autoagent.steps.run_state import Policy, RunState
from autoagent.steps.side_call import SECONDS, Question, SideCall
from autoagent.text.facts import PURPOSE, facts_in

ROOM = 6000  # tokens of the run's steps that the model is shown
SHARE = 4  # of the window, one part may be these
REPLY = 500  # tokens


class Distillation:
    """Has the model extract facts from a run, if the policy asks for it and the model's style allows it."""

    def __init__(self, state: RunState, policy: Policy, call: SideCall) -> None:
        self._state = state
        self._wanted = policy.distils
        self._call = call

    def facts(self, outcome: Outcome) -> Generator[Event, None, list[str]]:
        """Return the facts of the run that ends so. Those that an earlier process was told are not asked for again."""
        state = self._state
        if not self._wanted or not state.start.style.reasons:
            return []
        answered = state.resume.distilled
        if answered is None:
            answered = yield from self._ask(outcome)
        return facts_in(answered.text, truncated=answered.truncated) if answered else []

    def _ask(self, outcome: Outcome) -> Generator[Event, None, Answered | None]:
        state = self._state
        rewinds = [event for event in state.log.events() if isinstance(event, Rewound)]
        own = (event for event in effective(state.log.events(), rewinds) if event.agent == state.key)
        room = min(ROOM, state.start.window // SHARE)
        prompt = facts_prompt(state.start.task, outcome.reason, own, room, state.count)
        doing = "what the run found out is put down in facts"
        asked = Question([Message("user", prompt)], PURPOSE, doing, REPLY, seconds=SECONDS)
        answered = yield from self._call.ask(asked)
        if isinstance(answered, str):
            yield state.record(Retried(reason=f"What the run found out is not put down in facts: {answered}"))
            return None
        return answered
