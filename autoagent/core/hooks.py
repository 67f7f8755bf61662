"""Hooks of AutoGPT plugins into the parts of a step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from autoagent.core.commands import Call, Result
from autoagent.core.events import Event
from autoagent.core.model import Completion, Message


class StepHooks(Protocol):
    """Called at fixed points of each step. No hook raises. Their changes are authorized and logged like the model's
    own.
    """

    def planning(self, messages: Sequence[Message]) -> Sequence[tuple[str, str]]:
        """Return extra messages for the model before it is asked, as (role, text)."""

    def reply(self, completion: Completion) -> Completion:
        """Return the reply of the model as it is to be understood."""

    def call(self, call: Call) -> Call:
        """Return the call to propose instead of this call."""

    def result(self, call: Call, result: Result) -> Result:
        """Return the result to show to the model, with labels."""

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
