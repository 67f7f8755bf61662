"""The end of a run: its exit code, the wish to continue with, and the event that reports a failure with --json."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from autoagent.core.codec import event_to_dict
from autoagent.core.errors import ForUser, SettingsError, SetupError, StopRun
from autoagent.core.events import Ended
from autoagent.core.frozen import dataclass
from autoagent.core.task import Outcome, Status
from autoagent.terminal.output import echo
from autoagent.text.redaction import Redactor

if TYPE_CHECKING:
    from autoagent.session.plan import RunPlan


@dataclass(frozen=True, slots=True)
class Leg:
    """The part of a run that one process carried out: its exit code, and the wish to continue with, or ''."""

    run: str
    code: int
    wish: str = ""


def next_wish(plan: RunPlan) -> str:
    """Ask the user at this terminal how to continue a finished run. Return the wish, or ''."""
    outcome = plan.console.stats.outcome
    provider = plan.settings.model_choice.provider
    if outcome is None or not outcome.status.is_conclusion or plan.settings.continuous:
        return ""
    return "" if provider.recorded or provider.task is not None else plan.console.next_wish()


@contextmanager
def report_failure_as_event(flags: Mapping[str, Any]) -> Iterator[None]:
    """With --json, also report an end without a log as an `ended` event, except for bad usage."""
    try:
        yield
    except (ForUser, StopRun, KeyboardInterrupt) as error:
        is_in_log = isinstance(error, ForUser) and error.run_began
        if flags.get("json_output") and not is_in_log and not isinstance(error, SettingsError):
            if isinstance(error, StopRun):
                outcome = error.outcome
            elif isinstance(error, KeyboardInterrupt):
                outcome = Outcome(Status.INTERRUPTED, "Ended by Ctrl-C.")
            else:
                outcome = Outcome(Status.SETUP if isinstance(error, SetupError) else Status.FAILED, str(error))
            reason = Redactor().mask(outcome.reason)  # without settings, the other secrets are unknown
            event = Ended(status=outcome.status, reason=reason, t=time.time())
            with suppress(OSError):  # nobody reads it; the error is reported anyway
                echo(json.dumps(event_to_dict(event)))
        raise
