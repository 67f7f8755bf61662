"""Define every error of the program, grouped by its audience: the model or the user.

A bug of ours is neither: it stays a plain Python exception, and `--debug` shows its origin.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from autoagent.core.task import Outcome


class AutoagentError(Exception):
    """Serve as the base class. Never raised itself."""


class ForModel(AutoagentError):
    """Report an error to the model: its text goes into the history."""


class CommandError(ForModel):
    """Report that a command failed. The text becomes a failed Result."""


class ReplyError(ForModel):
    """Report a model's reply that is not one valid command. The text says why and where.

    `command` names a command that was given placeholders instead of values. `off` tells whether the program has the
    command, but not for this agent, for example because of its level.
    """

    def __init__(self, problem: str, command: str = "", *, off: bool = False) -> None:
        super().__init__(problem)
        self.command = command
        self.off = off


class ForUser(AutoagentError):
    """Report an error to the person at the terminal in one line that names the problem and the fix."""

    run_began = False  # a log exists and holds all events so far
    exit_code = 1


class SettingsError(ForUser):
    """Report a flag, variable or settings file that cannot be used."""

    exit_code = 2


class SetupError(ForUser):
    """Report a model that cannot be used at all: no key, a refused key, an unknown model, missing weights."""

    exit_code = 3


class ModelError(ForUser):
    """Report that an endpoint gave no usable answer, even after retries."""


class Unreachable(ModelError):
    """Report that an endpoint gave no usable answer in time. It may answer later."""


class ContextOverflow(ModelError):
    """Report a prompt that the endpoint rejects as too long. The loop may retry with a shorter prompt."""


class QuotaExceeded(ModelError):
    """Report an account without money. Waiting does not help."""


class StateError(ForUser):
    """Report a log, memory or folder of the program that cannot be read or written."""


class StopRun(BaseException):
    """End a run. The loop logs the outcome.

    Like KeyboardInterrupt, it is not an Exception: signals raise it anywhere, even in third-party code that catches
    every Exception and would then carry on.
    """

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(outcome.reason)
        self.outcome = outcome


class RunEnded(StopRun, Exception):
    """Report an early end to the program that runs a team, which may catch it as an Exception."""


class NoMoneyException(StopRun):
    """Report that a run's money does not cover the next call. `amount` is the known spending in USD."""

    def __init__(self, outcome: Outcome, amount: float = 0.0) -> None:
        super().__init__(outcome)
        self.amount = amount
        self.message = outcome.reason


def causes(error: BaseException) -> Iterator[BaseException]:
    """Yield the error and its causes, outermost first.

    Besides Python's own chain, urllib3 keeps a cause in `reason` and requests among the arguments.
    """
    pending, seen_ids = [error], set[int]()
    while pending:
        cause = pending.pop()
        if id(cause) in seen_ids:
            continue
        seen_ids.add(id(cause))
        yield cause
        candidates = (cause.__context__, cause.__cause__, getattr(cause, "reason", None), *cause.args)
        pending.extend(candidate for candidate in candidates if isinstance(candidate, BaseException))
