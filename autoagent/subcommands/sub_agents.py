"""Builds the sub-agents of a run, each with a model, a memory and a context of its own."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

from autoagent.commands.registry import Registry
from autoagent.console import Console
from autoagent.errors import CommandError
from autoagent.guard import Guard
from autoagent.protocols import Embedder, Model
from autoagent.settings import Settings
from autoagent.subcommands import assembly
from autoagent.taint import TaintedFiles

if TYPE_CHECKING:
    from autoagent.commands.context import Context
    from autoagent.subagents.member import Build, Built, Order


def builder(
    settings: Settings,
    registry: Registry,
    shared: Context,
    tainted: TaintedFiles,
    model: Model,
    embedder: Embedder,
    console: Console,
) -> Build:
    """What builds the sub-agents of a run with these settings; the others are those of the run's own agent, `shared`
    its context.

    What is opened is used by one thread alone, but for an embedded model and an embedder of this machine, which any
    thread may use and which are too large to be loaded twice. A sub-agent's programs are its own and end with it.
    """
    from autoagent.loop import Agent
    from autoagent.subagents.member import Built
    from autoagent.subcommands.memory import embeds_remotely, open_memory
    from autoagent.subcommands.reach import open_sandbox, reach
    from autoagent.subcommands.restoring import open_snapshots
    from autoagent.tokens import counter

    @contextmanager
    def build(order: Order) -> Iterator[Built]:
        embedded = settings.model.partition(":")[0] == "local"
        own = model if embedded else assembly.open_model(settings, console, agent=order.key)
        offered = registry.only(order.commands, "it was not handed on to this agent")
        described = assembly.describe(order.task, settings, own, offered)
        limits = dataclasses.asdict(order.budget.limits)
        start = dataclasses.replace(described, workspace=str(shared.workspace.root), limits=limits)
        own_embedder = None if embeds_remotely(settings) else embedder
        with (
            closing(open_memory(settings, _unheard, own_embedder)) as memory,
            closing(open_sandbox(settings, shared.workspace)) as sandbox,
        ):
            order.when_stopped(sandbox.close)
            guard = Guard(tainted, network=settings.sandbox_network, origin=order.origin)
            completing = assembly.Completing(own, assembly.mask_of(settings))
            reached = reach(settings, shared.workspace, sandbox)
            context = dataclasses.replace(
                shared,
                memory=memory,
                ask=_nobody,
                run=order.place,
                complete=completing,
                summarise=completing,
                take_usage=lambda: completing.take_usage() + reached["media"].take_usage(),
                progress=_unheard,
                agents=order.desk,
                origin=lambda: guard.origin,
                **reached,
            )
            agent = Agent(
                start,
                own,
                offered,
                context,
                order.authorizer,
                order.budget,
                order.log,
                memory,
                guard,
                listener=order.listener,
                count=counter(own.name),
                interruptible=order.interruptible,
                snapshots=open_snapshots(settings.state_dir, shared.workspace),
                post=order.desk,
                key=order.key,
            )
            yield Built(agent, lambda: guard.origin)

    return build


def _unheard(line: str) -> None:
    """What the memory has to say, the run's own one says as well."""


def _nobody(question: str, timeout: float | None) -> str:
    raise CommandError("Only the run's own agent can ask the user; decide yourself.")
