"""What a command may touch. Never the agent, the console or the settings as a whole."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from autoagent.protocols import Memory
from autoagent.workspace import Workspace


@dataclass(frozen=True, slots=True)
class Context:
    """Handed to every command as its first argument.

    `ask(question, timeout)` gives the user's answer, `timeout` in seconds or None to wait; it raises CommandError
    where nobody can answer or nobody did in time. `run` names the run whose log tells where a memory came from.
    """

    workspace: Workspace
    memory: Memory
    ask: Callable[[str, float | None], str]
    run: str = ""
