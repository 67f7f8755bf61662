"""Builds the sub-agents of a run, each with a model, a memory and a context of its own."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from autoagent.commands.registry import Registry
from autoagent.core.errors import CommandError
from autoagent.core.protocols import Model
from autoagent.safety.exfiltration_guard import ExfiltrationGuard
from autoagent.safety.tainted_files import TaintedFiles
from autoagent.session import build
from autoagent.settings import Settings
from autoagent.terminal.console import Console
from autoagent.workspace.gate import Workspace

if TYPE_CHECKING:
    from autoagent.session.folder_texts import FolderTexts
    from autoagent.session.services import MemoryParts
    from autoagent.subagents.worker import Build, Worker, WorkerSpec


def builder(
    settings: Settings,
    registry: Registry,
    workspace: Workspace,
    tainted: TaintedFiles,
    model: Model,
    parts: MemoryParts,
    console: Console,
    texts: FolderTexts | None = None,
) -> Build:
    """Return the function that builds the sub-agents of a run. The arguments are those of the run's own agent.

    Everything opened is used by one thread alone, except a model and an embedder declared as shared. A sub-agent's
    programs are its own and end with it.
    """
    from autoagent.commands.selection import all_specs
    from autoagent.loop import Agent
    from autoagent.session.restoring import open_snapshots
    from autoagent.session.services import MemoryParts, open_context
    from autoagent.steps.run_state import Policy, Tools
    from autoagent.steps.surroundings import changes_files
    from autoagent.subagents.worker import Worker

    specs = (*registry.specs, *all_specs())

    @contextmanager
    def build_worker(order: WorkerSpec) -> Iterator[Worker]:
        own = build.model_of_worker(settings, console, model, order.key, order.task.model)
        embedder = parts.embedder if settings.embedder[0].shared else None
        ranker = build.open_ranker(settings, console, own)
        offered = registry.only(order.commands, "it was not handed on to this agent")
        trusted = build.recalls_trusted_only(settings, offered.specs)
        own_parts = MemoryParts(embedder, ranker, parts.ticks, parts.user, trusted_only=trusted)
        described = build.describe(order.task, settings, own, offered, order.began, texts)
        limits = dataclasses.asdict(order.budget.limits)
        guard = ExfiltrationGuard(tainted, specs, network=settings.sandbox_network, origin=order.origin)
        with open_context(settings, workspace, guard, own, own, own_parts, ask=_nobody, say=_unheard) as context:
            order.when_stopped(context.sandbox.close)
            start = dataclasses.replace(described, workspace=str(workspace.root), limits=limits)
            tools = Tools(
                offered,
                dataclasses.replace(context, run=order.place, agents=order.mailbox, pause=order.mailbox.pause),
                open_snapshots(settings.state_dir, workspace),
                inbox=order.mailbox,
            )
            # A small model is asked for no verdict: it costs nothing to tell it of plain faults before it reports.
            told = settings.verify and not own.style.reasons and any(map(changes_files, offered.specs))
            verifier = own if told else None
            policy = Policy(order.authorizer, guard, order.budget, order.interruptible, verifier=verifier)
            agent = Agent(start, own, tools, policy, order.log, listener=order.listener, key=order.key)
            yield Worker(agent, lambda: guard.origin)

    return build_worker


def _unheard(line: str) -> None:
    """Ignore the memory's messages, as the run's own memory shows the same."""


def _nobody(question: str, timeout: float | None) -> str:
    raise CommandError("Only the run's own agent can ask the user; decide yourself.")
