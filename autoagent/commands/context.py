"""What a command may touch. Never the agent, the console or the settings as a whole."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from autoagent.errors import CommandError
from autoagent.messages import Usage
from autoagent.protocols import Memory
from autoagent.workspace import Workspace


def _no_model(prompt: str) -> str:
    raise CommandError("There is no model here to ask.")


@dataclass(frozen=True, slots=True)
class Context:
    """Handed to every command as its first argument.

    `ask(question, timeout)` gives the user's answer, `timeout` in seconds or None to wait; it raises CommandError
    where nobody can answer or nobody did in time. `run` names the run whose log tells where a memory came from.
    `complete(prompt)` is the answer of the model that executes; it raises ModelError, or CommandError without one.
    `take_usage()` says what that has cost since it was last asked.
    """

    workspace: Workspace
    memory: Memory
    ask: Callable[[str, float | None], str]
    run: str = ""
    complete: Callable[[str], str] = _no_model
    take_usage: Callable[[], Usage] = Usage
