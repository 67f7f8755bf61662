"""Define a command's context: everything it may use, but never the agent, the console or all settings."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, cast

from autoagent.core.errors import CommandError
from autoagent.core.events import Returned
from autoagent.core.frozen import dataclass
from autoagent.core.memory import Origin
from autoagent.core.model import Usage
from autoagent.core.protocols import Memory, Sandbox, SubAgents, Web
from autoagent.workspace.gate import Workspace

Setting = Callable[[str], Any]
"""Returns a setting by name."""


class _Absent:
    """Stand in for a missing service, and refuse any use."""

    def __init__(self, service: str) -> None:
        self._service = service

    def __getattr__(self, name: str) -> Any:
        raise CommandError(f"There is {self._service} in this run.")


def refuse(reason: str, *_: Any) -> Any:
    """Stand in for a function of the context that cannot be used. Raises CommandError with the reason."""
    raise CommandError(reason)


_no_model = partial(refuse, "There is no model here to ask.")


def in_a_shell(line: str) -> Sequence[str]:
    """Return the argument vector that runs a line in a shell."""
    return ("/bin/sh", "-c", line)


@dataclass(frozen=True, slots=True)
class Context:
    """Everything that a command may use. Every command receives it as its first argument.

    `ask(question, timeout)` returns the user's answer. `timeout` is in seconds, or None to wait. It raises CommandError
    if nobody can answer, or nobody did in time. `run` is the id of the run, kept with each memory as its source.
    `complete(prompt)` asks the thinking model, and `summarise(prompt)` the fast one. They raise ModelError, or
    CommandError if there is no model. `take_usage()` returns the usage of both since its last call, including costs
    that commands reported by `spend(usd)`, None if unknown. `progress` shows the user a line on the progress of a long
    command. `pause(seconds)` waits, and raises StopRun if the run is to end meanwhile.

    `python` is the interpreter of Python programs. `shell_rule(line)` returns the arguments with which to run a shell
    line, or raises CommandError if it is refused. `shown` is the preview with which this very call was allowed, for
    commands that must do exactly that, or None. `origin()` is the source of a text that the agent remembers now, given
    all that this run has read. `mask` removes secrets from a text that others may read, such as a memory. `has_room`
    returns whether a text fits into one result's share of the window, and `returned` the result of an earlier step of
    this agent, or None. `dream(context, prompt)` makes a dream of fragments. `call` is the id of this call.
    `unanswered` is the answer to a question that nobody answers, '' for a failure. `setting(name)` returns a setting.
    """

    workspace: Workspace
    memory: Memory
    ask: Callable[[str, float | None], str]
    run: str = ""
    complete: Callable[[str], str] = _no_model
    summarise: Callable[[str], str] = _no_model
    dream: Callable[[Context, str], str] = lambda context, prompt: context.complete(prompt)
    take_usage: Callable[[], Usage] = Usage
    spend: Callable[[float | None], None] = lambda usd: None
    progress: Callable[[str], None] = lambda text: None
    pause: Callable[[float], None] = time.sleep
    origin: Callable[[], Origin] = Origin
    mask: Callable[[str], str] = str
    has_room: Callable[[str], bool] = lambda text: True
    returned: Callable[[int], Returned | None] = lambda step: None
    python: str = sys.executable
    shell_rule: Callable[[str], Sequence[str]] = in_a_shell
    shown: str | None = None
    call: str = ""
    unanswered: str = ""
    setting: Setting = partial(refuse, "There are no settings here.")
    sandbox: Sandbox = cast(Sandbox, _Absent("no sandbox to run programs in"))
    web: Web = cast(Web, _Absent("no way to the web"))
    agents: SubAgents = cast(SubAgents, _Absent("no way to start agents"))
