"""Commands about the run itself."""

from __future__ import annotations

from typing import Annotated

from autoagent.commands.context import Context
from autoagent.commands.registry import Output, command
from autoagent.messages import Effects


@command(
    "ask_user",
    "Ask the user a question",
    risk="read",
    repeatable=True,
    effects=Effects(asks_user=True),
    keywords=["ask", "user"],
    autogpt=["user_interaction"],
)
def ask_user(
    context: Context,
    question: Annotated[str, "what only the user can tell", "text"],
    timeout: Annotated[float | None, "seconds to wait"] = None,
) -> str:
    return f"The user answered: {context.ask(question, timeout)}"


@command("do_nothing", "Do nothing", risk="read", repeatable=True, effects=Effects())
def do_nothing(context: Context) -> str:
    return "No action performed."


@command(
    "task_complete",
    "Finish, once every goal is met",
    risk="read",
    aliases=["goals_accomplished"],
    repeatable=True,
    effects=Effects(ends_run=True),
    always_offered=True,
    autogpt=["task_statuses", "system"],
)
def task_complete(context: Context, reason: Annotated[str, "how each goal was met", "text"]) -> Output:
    return Output(f"Finished: {reason}", {"finished": reason})


COMMANDS = (ask_user, do_nothing, task_complete)
