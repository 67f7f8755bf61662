"""What others may do in the parts of a step, beside the program itself: plug-ins of AutoGPT's kind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from autoagent.core.commands import Call, Result
from autoagent.core.events import Event
from autoagent.core.model import Completion, Message


class StepHooks(Protocol):
    """Asked at their places in each step; none of them raises. What they change is what is authorized and logged."""

    def planning(self, messages: Sequence[Message]) -> Sequence[tuple[str, str]]:
        """Return what is to be said to the model before it is asked: by whom, and the text."""

    def reply(self, completion: Completion) -> Completion:
        """Return the reply of the model as it is to be understood."""

    def call(self, call: Call) -> Call:
        """Return the call that is proposed in the place of this one."""

    def result(self, call: Call, result: Result) -> Result:
        """Return the result that the model is shown, labelled as what it is."""

    def hear(self, event: Event) -> None:
        """Hear an event of the run."""


class _NoHooks:
    """Nothing is changed."""

    def planning(self, messages: Sequence[Message]) -> Sequence[tuple[str, str]]:
        return ()

    def reply(self, completion: Completion) -> Completion:
        return completion

    def call(self, call: Call) -> Call:
        return call

    def result(self, call: Call, result: Result) -> Result:
        return result

    def hear(self, event: Event) -> None:
        return


NO_HOOKS: StepHooks = _NoHooks()
