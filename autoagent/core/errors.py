"""Every error of the program, named by who must act on it: the model, or the user.

A bug of ours is none of these: it stays a plain Python exception, and `--debug` shows where it came from.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from autoagent.core.task import Outcome


class AutoagentError(Exception):
    """The base class, never raised itself."""


class ForModel(AutoagentError):
    """An error for the model: its text goes into the history."""


class CommandError(ForModel):
    """A command that could not do its work. The text becomes a failed Result."""


class ReplyError(ForModel):
    """A model's reply that is not one valid command. The text says why and where.

    `command` names a command that was given placeholders instead of values. `off`: it is a command of the program,
    but not this agent's, such as that of another level.
    """

    def __init__(self, problem: str, command: str = "", *, off: bool = False) -> None:
        super().__init__(problem)
        self.command, self.off = command, off


class ForUser(AutoagentError):
    """An error for the person at the terminal: one line that names the problem and the fix."""

    run_began = False  # a log exists and holds all events so far
    exit_code = 1


class SettingsError(ForUser):
    """A flag, variable or settings file that cannot be used."""

    exit_code = 2


class SetupError(ForUser):
    """A model that cannot be used at all: no key, a refused key, an unknown model, missing weights."""

    exit_code = 3


class ModelError(ForUser):
    """An endpoint that did not answer usably, after all retries."""


class Unreachable(ModelError):
    """An endpoint without a usable answer within the patience, which may answer later."""


class ContextOverflow(ModelError):
    """A prompt that the endpoint rejects as too long. The loop may retry with a shorter prompt."""


class QuotaExceeded(ModelError):
    """An account out of money. Waiting does not help."""


class StateError(ForUser):
    """A log, memory or folder of the program that cannot be read or written."""


class StopRun(AutoagentError):
    """The end of a run. The loop logs the outcome."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(outcome.reason)
        self.outcome = outcome


class NoMoneyException(StopRun):
    """A run whose money does not cover the next call. `amount` is the known spending in USD."""

    def __init__(self, outcome: Outcome, amount: float = 0.0) -> None:
        super().__init__(outcome)
        self.amount = amount
        self.message = outcome.reason


def causes(error: BaseException) -> Iterator[BaseException]:
    """Yield the error and its causes, outermost first.

    Besides Python's own chain, urllib3 keeps a cause in `reason` and requests among the arguments.
    """
    pending, seen = [error], set[int]()
    while pending:
        cause = pending.pop()
        if id(cause) in seen:
            continue
        seen.add(id(cause))
        yield cause
        linked = (cause.__context__, cause.__cause__, getattr(cause, "reason", None), *cause.args)
        pending.extend(candidate for candidate in linked if isinstance(candidate, BaseException))
