"""The interface for extensions of autoagent: one function, `register(host)`, and the names that it needs.

    from typing import Annotated

    from autoagent.extension import Context, Effects, Host, command

    @command("hello", "Greet somebody", risk="read", effects=Effects())
    def hello(context: Context, name: Annotated[str, "whom", "text"]) -> str:
        return f"Hello, {name}."

    def register(host: Host) -> None:
        host.command(hello)

An entry point of the group `autoagent` leads to the function. docs/extending.md has the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol, TypeVar

import click

from autoagent.commands.context import Context, Setting
from autoagent.commands.registry import Command, CommandOutput, Registry, command
from autoagent.commands.support.extras import Extra
from autoagent.core.commands import Call, Effects, Proposal, Result, ResultMeta, Verdict
from autoagent.core.errors import CommandError, SettingsError, SetupError, StateError
from autoagent.core.events import Event
from autoagent.core.memory import Change, RetrievedMemory, Stats
from autoagent.core.model import Completion, Message
from autoagent.core.protocols import Embedder, Listener, MemoryStore, Model
from autoagent.registry.embedders import EmbedderKind, EmbedderOpening
from autoagent.registry.memory import Backend, StoreOpening
from autoagent.registry.models import ModelOpening, Provider
from autoagent.registry.parts import FolderPart, Place, PromptParts, RunOpening, RunPart, UntrustedValue, runs_alone
from autoagent.registry.registrations import Registrations
from autoagent.registry.sandbox import SandboxKind
from autoagent.reply.parser import written
from autoagent.services.api_client import host_of, reason_of, unreachable
from autoagent.session.run_parts import claimed_state, read_place
from autoagent.terminal.output import echo, echo_json
from autoagent.workspace.gate import Workspace

__all__ = [
    "Backend", "Call", "Change", "Command", "CommandError", "CommandOutput", "Completion", "Context", "Effects",
    "Embedder", "EmbedderKind", "EmbedderOpening", "Event", "Extra", "FolderPart", "Host", "Listener", "MemoryStore",
    "Message", "Model", "ModelOpening", "Place", "PromptParts", "Proposal", "Provider", "Registrations", "Result",
    "ResultMeta", "RetrievedMemory", "RunOpening", "RunPart", "SandboxKind", "Setting", "SettingsError", "SetupError",
    "StateError", "Stats", "StoreOpening", "UntrustedValue", "Verdict", "claimed_state", "command", "echo",
    "echo_json", "host_of", "read_place", "reason_of", "registered", "runs_alone", "try_command", "unreachable",
    "written",
]  # fmt: skip

Shown = TypeVar("Shown", bound=Event)


class Host(Protocol):
    """The host passed to `register`. An extension does only the things that it registers here.

    A hook that raises is reported to the user once and skipped. If it is one of the two that decide, the call is
    refused. Hooks are also called from the threads of sub-agents.
    """

    def command(self, *commands: Command) -> None:
        """Offer commands, made by `@command`. One that declares no effects is asked about at each call."""

    def model(self, provider: Provider) -> None:
        """Add a model provider: `--model NAME`."""

    def memory(self, backend: Backend) -> None:
        """Add a memory backend: `-m NAME`."""

    def embedder(self, kind: EmbedderKind) -> None:
        """Add an embedder: `EMBEDDING_MODEL=NAME`."""

    def sandbox(self, kind: SandboxKind) -> None:
        """Add a kind of sandbox: `--sandbox NAME`."""

    def folder(self, part: FolderPart) -> None:
        """Take part in folders: what the user is asked about before it counts, and what commands may not reach."""

    def run(self, open_part: Callable[[RunOpening], AbstractContextManager[RunPart | None]]) -> None:
        """Take part in runs: each opens a part and closes it at its end. None takes no part."""

    def subcommand(self, command: click.Command) -> None:
        """Add a subcommand of the program by its name, without replacing any."""

    def authorizer(self, decide: Callable[[Proposal], Verdict | None]) -> None:
        """Decide on calls before the user is asked. None leaves a call to the next.

        A refusal always counts. An allowance counts where nothing warns of the call, and stands in the log.
        """

    def listener(self, hear: Callable[[Event], None]) -> None:
        """Hear every event of a run, of its sub-agents too, once it is in the log, without secrets."""

    def renderer(self, event: type[Shown], render: Callable[[Shown], str | None]) -> None:
        """Show events of a type as this text, None: as usual. Questions, decisions and commands stay as they are."""

    def around_think(self, hook: Callable[[Sequence[Message], Callable[[], Completion]], Completion]) -> None:
        """Stand around the model's turn: the prompt, which stays as it is, and how to ask. Return the completion."""

    def around_authorize(self, hook: Callable[[Proposal, Callable[[], Verdict]], Verdict]) -> None:
        """Wrap the verdict on a call. The wrapper may refuse an allowed call, but never allow a refused one."""

    def around_execute(self, hook: Callable[[Call, Callable[[], Result]], Result]) -> None:
        """Wrap an authorized command: run it once and return the result.

        The labels of the result stay. A changed text counts as untrusted and private.
        """

    def around_store(self, hook: Callable[[str, Callable[[str], int | None]], int | None]) -> None:
        """Wrap the storing of a memory: store this text or another. Return the memory's id."""


def registered(register: Callable[[Host], Any]) -> Registrations:
    """Return everything that a `register` function registers, for the tests of an extension."""
    added = Registrations()
    register(added)
    return added


def try_command(added: Registrations, command: str, folder: Path, /, **args: Any) -> Result:
    """Run one of the commands that were registered, in a workspace, for the tests of an extension.

    There is no memory, sandbox or web. Raises ReplyError for arguments that do not fit.
    """
    from autoagent.core.errors import CommandError

    def nobody(question: str, timeout: float | None) -> str:
        raise CommandError("Nobody is there to answer.")

    registry = Registry(added.commands)
    memory: Any = None
    return registry.execute(registry.check(Call("1", command, args)), Context(Workspace(folder), memory, nobody))
