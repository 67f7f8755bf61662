"""The context of a command: all that it may touch. Never the agent, the console or the settings as a whole."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

from autoagent.core.errors import CommandError
from autoagent.core.events import Returned
from autoagent.core.memory import Origin
from autoagent.core.model import Usage
from autoagent.core.protocols import Media, Memory, Sandbox, SubAgents, Web
from autoagent.network.addresses import Address
from autoagent.workspace.gate import Workspace


class _Absent:
    """A stand-in for what a run was not given: any use of it is refused."""

    def __init__(self, what: str) -> None:
        self._what = what

    def __getattr__(self, name: str) -> Any:
        raise CommandError(f"There is {self._what} in this run.")


def _no_model(prompt: str) -> str:
    raise CommandError("There is no model here to ask.")


def in_a_shell(line: str) -> Sequence[str]:
    """Return the arguments that run a line in a shell."""
    return ("/bin/sh", "-c", line)


@dataclass(frozen=True, slots=True)
class Context:
    """Handed to every command as its first argument.

    `ask(question, timeout)` gives the user's answer, `timeout` in seconds or None to wait; it raises CommandError
    where nobody can answer or nobody did in time. `run` names the run whose log tells where a memory came from.
    `complete(prompt)` is the answer of the model that thinks, `summarise(prompt)` that of the fast one; they raise
    ModelError, or CommandError without one. `take_usage()` says what both and the media have cost since it was last
    asked. `progress` shows the user, in a line, how far a long command is. `pause(seconds)` lets time pass, and raises
    StopRun where the run is to end meanwhile.

    `python` is the interpreter of Python programs. `shell_rule(line)` gives the arguments with which a shell line is
    run, or raises CommandError if it is refused. `shown` is the preview on which this very call was allowed, for
    commands that must do exactly what was shown; None if nothing was. `origin()` is what a text that the agent has
    remembered now comes from, after all that this run has read. `mask` takes secrets out of a text that goes where
    others may read it, such as the memory. `has_room` says whether a text fits into the share of the window that one
    result may take, `returned` what came of an earlier step of this agent, None if it ran no command.
    `dream(context, prompt)` makes a dream of fragments. `call` is the id of this call; `unanswered` is what a question
    comes to that nobody answers, '' for a failure. `git_authorization` gives the Authorization header for cloning from
    an address, '' if there is none.
    """

    workspace: Workspace
    memory: Memory
    ask: Callable[[str, float | None], str]
    run: str = ""
    complete: Callable[[str], str] = _no_model
    summarise: Callable[[str], str] = _no_model
    dream: Callable[[Context, str], str] = lambda context, prompt: context.complete(prompt)
    take_usage: Callable[[], Usage] = Usage
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
    git_authorization: Callable[[Address], str] = lambda address: ""
    sandbox: Sandbox = cast(Sandbox, _Absent("no sandbox to run programs in"))  # noqa: RUF009 - it has no state
    web: Web = cast(Web, _Absent("no way to the web"))  # noqa: RUF009
    media: Media = cast(Media, _Absent("no provider of media"))  # noqa: RUF009
    agents: SubAgents = cast(SubAgents, _Absent("no way to start agents"))  # noqa: RUF009
