"""Hand work from one level of a hierarchical run to the next, whose calls are authorized one by one."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from autoagent.commands.context import Context
from autoagent.commands.registry import CommandOutput, command
from autoagent.core.commands import Effects
from autoagent.settings import Settings


def in_levels(settings: Settings) -> str:
    """Explain why a command of levels cannot be used, or ''."""
    return "" if settings.hierarchical else "the run has no levels (--hierarchical)"


_delegating_command = partial(
    command, risk="read", available=in_levels, repeatable=True, effects=Effects(tells_agents=True), always_offered=True
)


@_delegating_command("execute_task", "Have the executor do a task, and wait for its result", levels=("planner",))
def execute_task(
    here: Context,
    task: Annotated[str, "what is to be done", "text"],
    context: Annotated[str, "all that must be known for it", "text"] = "",
) -> CommandOutput:
    return _delegate(here, task, context)


@_delegating_command("think", "Have a question thought through step by step, and wait for the result")
def think(
    here: Context,
    question: Annotated[str, "what is to be thought through", "text"],
    context: Annotated[str, "all that must be known for it", "text"] = "",
) -> CommandOutput:
    return _delegate(here, question, context)


def _delegate(here: Context, task: str, context: str) -> CommandOutput:
    result, meta = here.agents.delegate(task, context, call=here.call, origin=here.origin())
    files = f"\nFiles changed: {', '.join(meta.changed)}." if meta.changed else ""
    return CommandOutput(f"{result}{files}", meta)


COMMANDS = (execute_task, think)
