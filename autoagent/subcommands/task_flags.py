"""Derive a run's task from its flags, and check that the flags go together."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import click

from autoagent.core.events import RunStarted
from autoagent.core.task import MAX_GOALS, Goal, Status, Task
from autoagent.settings import Settings
from autoagent.text.typed_goal import parse_and_explain

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
