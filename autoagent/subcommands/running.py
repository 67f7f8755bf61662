"""Derive the task from flags, and end a run, for the subcommands that run an agent."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from autoagent.core.codec import event_to_dict
from autoagent.core.errors import ForUser, SettingsError, SetupError, StopRun
from autoagent.core.events import Ended, RunStarted
from autoagent.core.frozen import dataclass
from autoagent.core.task import MAX_GOALS, Goal, Outcome, Status, Task
from autoagent.settings import Settings
from autoagent.terminal.output import echo
from autoagent.text.redaction import Redactor
from autoagent.text.typed_goal import parse_and_explain

if TYPE_CHECKING:
    from autoagent.session.plan import RunPlan

TASK_FLAGS = ("wish", "ai_name", "ai_role", "ai_goals", "ai_settings_file")
"""The flags that describe the task of a run. A resumed run already has its task."""


def check_flags(flags: Mapping[str, Any], settings: Settings) -> None:
    """Raise click.UsageError for flags that cannot be used together."""
    if flags.get("continuous_limit") and not settings.continuous:
        raise click.UsageError("-l/--continuous-limit requires -c/--continuous.")
    if len(flags.get("ai_goals") or ()) > MAX_GOALS:
        raise click.UsageError(f"--ai-goal was given {len(flags['ai_goals'])} times; at most {MAX_GOALS} are taken.")
    if flags.get("wish") and flags.get("ai_goals"):
        raise click.UsageError("Give either a task or --ai-goal, not both.")
    if flags.get("gpt3only") and flags.get("gpt4only"):
        raise click.UsageError("--gpt3only and --gpt4only cannot be used together.")


def goals_of_flags(flags: Mapping[str, Any], say: Callable[[str], None]) -> tuple[Goal, ...]:
    """Return the goals of --ai-goal. Warn about a ` :: ` without a check. Raises click.UsageError for an empty goal."""
    lines = flags.get("ai_goals") or ()
    if not all(line.strip() for line in lines):
        raise click.UsageError("--ai-goal is empty.")
    return tuple(parse_and_explain(line, say, is_shown=True) for line in lines)  # when the run begins


def task_of_run(
    run_start: RunStarted, flags: Mapping[str, Any], say: Callable[[str], None], status: Status | None = None
) -> Task:
    """Return the task of a run, changed by the `flags`. `status` is how the run ended, if it did.

    A wish replaces goals that the agent has finished with, and is added to those of an interrupted run. Raises
    click.UsageError for an empty goal, or too many goals.
    """
    goals = goals_of_flags(flags, say) or run_start.task.goals
    if wish := flags.get("wish"):
        old_goals = () if status is not None and status.is_conclusion else goals
        goals = (*old_goals, parse_and_explain(wish, say))
        if len(goals) > MAX_GOALS:
            raise click.UsageError(f"A run has at most {MAX_GOALS} goals; pass the complete list with --ai-goal.")
    name, role = (flags.get(key) or getattr(run_start.task, key.removeprefix("ai_")) for key in ("ai_name", "ai_role"))
    return without_budget(replace(run_start.task, name=name, role=role, goals=goals), flags)


def without_budget(task: Task, flags: Mapping[str, Any]) -> Task:
    """Return the task without its own budget if a flag lifts it."""
    return replace(task, budget=0.0) if flags.get("budget") == 0 else task


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
