"""Ask the user, wait, page results and finish the run."""

from __future__ import annotations

import time
from datetime import datetime
from functools import partial
from typing import Annotated

from autoagent.commands.agents import levels_off_reason
from autoagent.commands.context import Context
from autoagent.commands.registry import CommandOutput, command
from autoagent.commands.support.program_output import exit_phrase
from autoagent.core.commands import Effects, ResultMeta
from autoagent.core.errors import CommandError
from autoagent.text.figures import parse_time
from autoagent.text.paging import Column, FirstLine, Lines, fill_page
from autoagent.text.quoting import split
from autoagent.workspace.gate import WorkspaceEntry

MAX_WAIT_SECONDS = 3600.0
_POLL_SECONDS = 0.2
_CLOCK_POLL_SECONDS = 5.0  # the clock may be changed meanwhile


@command(
    "ask_user",
    "Ask the user a question",
    risk="read",
    repeatable=True,
    effects=Effects(asks_user=True),
    levels=("planner",),
    autogpt=["user_interaction"],
)
def ask_user(
    context: Context,
    question: Annotated[str, "what only the user can tell", "text"],
    timeout: Annotated[float | None, "seconds to wait"] = None,
) -> str:
    try:
        return f"The user answered: {context.ask(question, timeout)}"
    except CommandError:
        if context.unanswered:
            return context.unanswered
        raise


@command("do_nothing", "Do nothing", risk="read", rare=True, repeatable=True, effects=Effects(), ignored=["reason"])
def do_nothing(context: Context) -> str:
    return "No action performed."


_waiting_command = partial(command, risk="read", repeatable=True, effects=Effects(), levels=("planner", "executor"))


@_waiting_command("wait_for", "Wait, at no cost, until a program in the background ends or a file changes", rare=True)
def wait_for(
    context: Context,
    program: Annotated[int | None, "its pid, as list_programs shows it"] = None,
    filename: Annotated[str | None, "in its place, a path that is to appear, to change or to go", "path"] = None,
    seconds: Annotated[float, "the longest to wait"] = 60.0,
) -> CommandOutput:
    if (program is None) == (filename is None):
        raise CommandError("Name either a program or a filename to wait for.")
    before = context.workspace.find(filename) if filename is not None else None
    seconds = min(max(seconds, 0.0), MAX_WAIT_SECONDS)
    end = time.monotonic() + seconds
    while True:
        if program is not None:
            is_over, text = _program_state(context, program)
        else:
            is_over, text = _file_state(context, filename or "", before)
        remaining = end - time.monotonic()
        if is_over:
            return CommandOutput(text, ResultMeta(waits=False))
        if remaining <= 0:
            return CommandOutput(f"Time is up after {seconds:g} s: {text}", ResultMeta(waits=True))
        context.pause(min(remaining, _POLL_SECONDS))


def _program_state(context: Context, pid: int) -> tuple[bool, str]:
    """Return whether the wait is over, and the current state."""
    # The newest one, as the system may reuse the pid of an ended program.
    program = next((program for program in reversed(context.sandbox.programs()) if program.pid == pid), None)
    if program is None:
        raise CommandError(f"There is no started program with pid {pid}; list_programs shows them.")
    if program.exit is None:
        return False, f"program {pid} still runs; what it prints goes to {program.output}."
    return True, f"Program {pid} has ended: {exit_phrase(program.exit)}. What it printed is in {program.output}."


def _file_state(context: Context, filename: str, before: WorkspaceEntry | None) -> tuple[bool, str]:
    name, after = context.workspace.display(filename), context.workspace.find(filename)
    if after == before:
        return False, f"{name} {'is not there' if after is None else 'has not changed'}."
    if after is None:
        return True, f"{name} is gone."
    return True, f"{name} {'is there now' if before is None else 'has changed'} ({after.size:,} bytes)."


@_waiting_command("wait_until", "Wait, at no cost, until a time", available=levels_off_reason)
def wait_until(
    context: Context, when: Annotated[str, "18:00, 2026-11-23T08:00, or 2h30m for so long from now"]
) -> CommandOutput:
    try:
        until = parse_time(when, time.time())
    except ValueError as error:
        raise CommandError(f"{error}.") from None
    while (remaining := until - time.time()) > 0:
        context.pause(min(remaining, _CLOCK_POLL_SECONDS))
    return CommandOutput(f"It is {datetime.fromtimestamp(until):%F %T}.", ResultMeta(waits=False))


@command(
    "task_complete",
    "Finish, once every goal is met or cannot be met",
    risk="read",
    aliases=["goals_accomplished", "shutdown"],
    repeatable=True,
    effects=Effects(ends_run=True),
    levels=("planner", "executor", "thinker"),
    always_offered=True,
    autogpt=["task_statuses", "system"],
)
def task_complete(
    context: Context,
    reason: Annotated[str, "how each goal was met, or why it cannot be", "text"],
    unmet: Annotated[list[int] | None, "numbers of goals that cannot be met"] = None,
) -> CommandOutput:
    return CommandOutput(f"Finished: {reason}", ResultMeta(finished=reason, given_up=tuple(unmet or ())))


@command(
    "read_result",
    "Read on in the result of an earlier step",
    risk="read",
    effects=Effects(pages_results=True),
    always_offered=True,
)
def read_result(
    context: Context,
    step: Annotated[int, "the step that gave it"],
    first_line: FirstLine = 1,
    lines: Lines = None,
    column: Column = 1,
) -> CommandOutput:
    returned = context.returned(step)
    if returned is None:
        raise CommandError(f"Step {step} has no result.")
    part = fill_page(returned.text, context.has_room, first=first_line, lines=lines, column=column)
    source = returned.meta.source
    if not source and any(marks for _, marks in split(returned.text)):  # a page may contain only one of the marks
        source = f"what step {step} quotes"
    text = "\n".join(filter(None, (part.text.removesuffix("\n"), part.note(f"read_result(step={step}, "))))
    page = (part.first, part.last, part.total)
    meta = ResultMeta(untrusted=source, private=returned.meta.private, masked=returned.meta.masked, page=page)
    return CommandOutput(text, meta)


COMMANDS = (ask_user, read_result, do_nothing, wait_for, wait_until, task_complete)
