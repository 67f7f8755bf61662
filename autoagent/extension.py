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
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import click

from autoagent import __version__
from autoagent.commands.context import Context, Setting, refuse
from autoagent.commands.registry import Command, CommandOutput, Registry, command, folded
from autoagent.commands.support.extras import Extra, is_installed
from autoagent.core.commands import Call, Effects, Proposal, Result, ResultMeta, Verdict
from autoagent.core.declaration import setting
from autoagent.core.errors import CommandError, SettingsError, SetupError, StateError
from autoagent.core.events import Event
from autoagent.core.memory import GONE, Change, Found, Gate, Reranker, RetrievedMemory, Retriever, Stats
from autoagent.core.model import Completion, Message
from autoagent.core.protocols import Embedder, Listener, MemoryStore, Model
from autoagent.core.services import ProcessExit
from autoagent.network.addresses import Address, bracketed
from autoagent.network.addresses import parse as parse_address
from autoagent.network.addresses import refusal_reason as address_refusal
from autoagent.registry.embedders import EmbedderKind, EmbedderOpening
from autoagent.registry.memory import Backend, StoreOpening
from autoagent.registry.models import ModelOpening, Provider
from autoagent.registry.parts import (
    FolderPart,
    Offer,
    OfferedCommand,
    Place,
    PromptParts,
    RunOpening,
    RunPart,
    UntrustedValue,
    runs_alone,
)
from autoagent.registry.registrations import Registrations
from autoagent.registry.sandbox import SandboxKind
from autoagent.reply.parser import written
from autoagent.services.api_client import ApiProvider, host_of, reason_of, unreachable
from autoagent.session.offers import allow_at_once, waiting
from autoagent.session.run_parts import claimed_state, opened_place, read_place
from autoagent.terminal.output import echo, echo_json, echo_list
from autoagent.workspace.gate import Workspace, shown

if TYPE_CHECKING:
    from autoagent.session.outside_calls import Answer, CallService, SharedMemory, opened_memory, opened_service

__all__ = [
    "GONE", "Address", "Answer", "ApiProvider", "Backend", "Call", "CallService", "Change", "Command",
    "CommandError", "CommandOutput", "Completion", "Context", "Effects", "Embedder", "EmbedderKind",
    "EmbedderOpening", "Event", "Extra", "FolderPart", "Found", "Gate", "Host", "Listener", "MemoryStore",
    "Message", "Model", "ModelOpening", "Offer", "OfferedCommand", "Place", "ProcessExit", "PromptParts",
    "Proposal", "Provider", "Registrations", "Reranker", "Result", "ResultMeta", "RetrievedMemory", "Retriever",
    "RunOpening", "RunPart", "SandboxKind", "ServiceCommand", "Setting", "SettingsError", "SetupError",
    "SharedMemory", "StateError", "Stats", "StoreOpening", "UntrustedValue", "Verdict", "Workspace", "__version__",
    "address_refusal", "allow_at_once", "bracketed", "claimed_state", "command", "echo", "echo_json", "echo_list",
    "folded", "host_of", "is_installed", "opened_memory", "opened_place", "opened_service", "parse_address",
    "read_place", "reason_of", "registered", "runs_alone", "setting", "shown", "try_command", "unreachable",
    "waiting", "written",
]  # fmt: skip

Shown = TypeVar("Shown", bound=Event)


def __getattr__(name: str) -> Any:
    """Import a name that only serving needs: it takes as long to import as a run."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from autoagent.session import outside_calls

    return getattr(outside_calls, name)


class Host(Protocol):
    """Register what an extension provides.

    A hook that raises is reported to the user once and skipped. If it is one of the two that decide, the call is
    refused. Hooks are also called from the threads of sub-agents.
    """

    def command(self, *commands: Command) -> None:
        """Add commands made with `@command`. One that declares no effects asks before each call."""

    def model(self, provider: Provider) -> None:
        """Add a model provider: `--model NAME`."""

    def memory(self, backend: Backend) -> None:
        """Add a memory backend: `-m NAME`."""

    def embedder(self, kind: EmbedderKind) -> None:
        """Add an embedder: `EMBEDDING_MODEL=NAME`."""

    def sandbox(self, kind: SandboxKind) -> None:
        """Add a kind of sandbox: `--sandbox NAME`."""

    def folder(self, part: FolderPart) -> None:
        """Add a part for folders: what needs the user's trust, and what commands may not reach."""

    def run(self, open_part: Callable[[RunOpening], AbstractContextManager[RunPart | None]]) -> None:
        """Add a part for runs, opened at the start and closed at the end. Return None to take no part."""

    def settings(self, kind: type) -> None:
        """Add settings: a dataclass of `setting(...)` fields, with a title as its docstring."""

    def subcommand(self, command: click.Command) -> None:
        """Add a subcommand without replacing an existing one."""

    def authorizer(self, decide: Callable[[Proposal], Verdict | None]) -> None:
        """Decide on calls before the user is asked; None leaves a call to the next authorizer.

        A refusal always applies. An allowance applies if no warning concerns the call, and is logged.
        """

    def listener(self, hear: Callable[[Event], None]) -> None:
        """Receive every logged event of a run and its sub-agents, with secrets masked."""

    def renderer(self, event: type[Shown], render: Callable[[Shown], str | None]) -> None:
        """Render events of a type as text, None: the default. Questions, decisions and commands keep their form."""

    def around_think(self, hook: Callable[[Sequence[Message], Callable[[], Completion]], Completion]) -> None:
        """Wrap the model's turn: receive the prompt, read-only, and a function that asks. Return the completion."""

    def around_authorize(self, hook: Callable[[Proposal, Callable[[], Verdict]], Verdict]) -> None:
        """Wrap the verdict on a call. The wrapper may refuse an allowed call, but never allow a refused one."""

    def around_execute(self, hook: Callable[[Call, Callable[[], Result]], Result]) -> None:
        """Wrap an authorized command: run it once and return the result.

        The result keeps its labels. A changed text counts as untrusted and private.
        """

    def around_store(self, hook: Callable[[str, Callable[[str], int | None]], int | None]) -> None:
        """Wrap the storing of a memory: store this text or another, and return the memory's id."""

    def retriever(self, find: Retriever) -> None:
        """Find further candidates of a recall: receive the query and a function that lists the newest 5,000 memories.

        Return ids with their relatedness: 0 as unrelated texts, 1 as those that certainly belong together. The best are
        weighed and ordered like the memory's own candidates. Memories that the run may not see are dropped.
        """

    def gate(self, weigh: Gate) -> None:
        """Weigh how well candidates fit a query: replace the evidence of any, by id.

        A memory needs 0.8 to be put into a prompt, and 0.1 where it is asked for. `evidence` holds its value so far.
        """

    def reranker(self, order: Reranker) -> None:
        """Order the candidates that passed the gate: return their ids, best first, the rest staying behind them."""

    def after_forget(self, hook: Callable[[Sequence[int]], object]) -> None:
        """Receive the ids of memories forgotten by fading, sleeping, merging or on request."""

    def after_sleep(self, hook: Callable[[Sequence[int], str], object]) -> None:
        """Receive the ids that a sleep forgot, and the dream made from them, or ''."""


class ServiceCommand(click.Command):
    """A subcommand that serves calls from outside. The flags of a run that need no task are its parameters, too."""

    serves = True


def registered(register: Callable[[Host], Any]) -> Registrations:
    """Return everything that a `register` function registers, for an extension's tests."""
    registrations = Registrations()
    register(registrations)
    return registrations


def try_command(registrations: Registrations, command: str, folder: Path, /, **args: Any) -> Result:
    """Run a registered command in a workspace, for an extension's tests.

    There is no memory, sandbox or web. Raises ReplyError for invalid arguments.
    """
    registry = Registry(registrations.commands)
    memory: Any = None
    context = Context(Workspace(folder), memory, partial(refuse, "Nobody is there to answer."))
    return registry.execute(registry.check(Call("1", command, args)), context)
