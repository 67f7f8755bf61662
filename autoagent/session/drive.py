"""Drive a planned run to its exit code: open its parts, run it, and close everything."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from autoagent.agent.budget import Budget
from autoagent.agent.state import Policy, Tools
from autoagent.agent.surroundings import changes_files
from autoagent.commands.context import Context, refuse
from autoagent.commands.selection import all_specs, plugin_commands
from autoagent.core.commands import Question
from autoagent.core.errors import CommandError, ForUser, SetupError
from autoagent.core.events import Ended, Event, Feedback, Resumed, Undone
from autoagent.core.frozen import dataclass
from autoagent.core.levels import LEVELS
from autoagent.core.model import Usage
from autoagent.core.protocols import Inbox
from autoagent.log.checkpoint import Checkpoints
from autoagent.log.event_log import EventLog
from autoagent.log.reader import is_cut_off, log_path, read, run_ids
from autoagent.memory.none import TickClock
from autoagent.models.forwarding import SwitchableModel
from autoagent.registry.registrations import HOST_HOOKS
from autoagent.safety.exfiltration_guard import ExfiltrationGuard
from autoagent.safety.rules import Rulebook
from autoagent.safety.tainted_files import TaintedFiles
from autoagent.session import build
from autoagent.session.attachments import Attachments
from autoagent.session.consent import consent_of
from autoagent.session.extension_hooks import report_extensions
from autoagent.session.memories import MemoryParts, lazy_embedder, user_memory
from autoagent.session.restoring import open_snapshots
from autoagent.settings import Settings, checkpoint_key
from autoagent.subagents.pool import Leader, LeaderAuthorizer, Oversight, WorkerPool
from autoagent.subagents.worker import Build, Mailbox, RunningWorker
from autoagent.terminal.console import Console
from autoagent.terminal.rendering import CONTINUOUS_WARNING
from autoagent.terminal.signals import Interrupts
from autoagent.workspace.lock import sole_writer

if TYPE_CHECKING:
    from autoagent.session.plan import RunPlan
    from autoagent.session.services import Boundaries


@dataclass(frozen=True, slots=True)
class OpenedRun:
    """A run with all of its open parts, owned by its leader."""

    plan: RunPlan
    log: EventLog
    budget: Budget
    pool: WorkerPool
    tools: Tools
    policy: Policy
    interrupts: Interrupts
    tainted: TaintedFiles


Lead = Callable[[OpenedRun], Iterator[Event]]
"""Runs the leader of a run, its own agent or a team, and yields its events."""


def drive(
    plan: RunPlan,
    open_log: Callable[[TaintedFiles], EventLog],
    setup_usage: Usage | None = None,
    lead: Lead | None = None,
) -> int:
    """Run the agent to its end, show the events and the report, and return the exit code.

    `lead` runs in place of one agent. The log is opened last, so that a failure to open anything else leaves no empty
    run, and warnings appear only after that. `open_log` may change the workspace, already locked by this process,
    and mark files as tainted. `setup_usage` is the model's earlier usage. Raises ForUser.
    """
    console = plan.console
    with _open_run(plan, open_log) as opened:
        if lead:
            events = lead(opened)
        else:
            from autoagent.loop import Agent

            run, tools, policy = opened.plan, opened.tools, opened.policy
            agent = Agent(run.start, run.model, tools, policy, opened.log, listener=console, setup_usage=setup_usage)
            events = agent.run()
        try:
            for event in events:
                opened.pool.show(event)
                plan.extensions.hear(event)
        except ForUser as error:
            if console.stats.run:  # otherwise nothing of the run is on disk
                error.run_began = True
                console.report(opened.log.path)
            raise
    console.report(opened.log.path)
    assert isinstance(event, Ended)
    return event.status.code


@contextmanager
def _open_run(plan: RunPlan, open_log: Callable[[TaintedFiles], EventLog]) -> Iterator[OpenedRun]:
    """Open all parts of the run, and always close them in reverse order."""
    from autoagent.session.plan import limits_of
    from autoagent.session.services import boundaries_of, open_context
    from autoagent.session.steering import RunSteering

    start, model, registry, settings, console = plan.start, plan.model, plan.registry, plan.settings, plan.console
    budget = Budget(limits_of(settings, start.task))
    boundaries = boundaries_of(start, settings, registry.specs)
    workspace, tainted, guard = boundaries.workspace, boundaries.tainted, boundaries.guard
    models = model, model if plan.extensions.replaces_model else build.open_fast_model(settings, console, model)
    verifier = build.open_verifier(settings, console, model)
    memory_parts = _memory_parts(plan, budget)
    own_registry = build.own_registry(registry, settings)
    late_answers = LateAnswers(console, settings.unanswered_text if settings.hierarchical else "")
    ask = plan.extensions.asked(late_answers.ask)
    with (
        sole_writer(workspace.root, console.warn) as is_alone,
        open_context(settings, workspace, guard, models, memory_parts, budget, ask=ask, say=console.say) as context,
        open_log(tainted) as log,
        Interrupts().installed() as interrupts,
    ):
        if is_alone and (isinstance(start, Resumed) or _was_killed(settings.state_dir, log.run)):
            workspace.delete_drafts()
        _report_warnings(settings, console, context)
        context.sandbox.tell(console.printed)
        plan.extensions.attach(context, registry)
        boundaries.rulebook.logged_calls = log.calls
        for listener in (memory_parts.ticks and memory_parts.ticks.add, HOST_HOOKS.get("written")):
            if listener:
                log.on_append(listener)
        build_worker = _worker_builder(plan, boundaries, memory_parts)
        with _open_pool(plan, build_worker, log, budget, boundaries.rulebook, interrupts) as pool:
            log.on_append(pool.on_event)
            context = replace(context, run=log.run, agents=pool.mailbox, pause=pool.mailbox.pause)
            if settings.hierarchical:
                context = replace(context, dream=_dream, unanswered=settings.unanswered_text)
            snapshots = open_snapshots(settings.state_dir, workspace, console.warn)
            checkpoints = Checkpoints(log, console.folds, checkpoint_key(os.environ))
            attachments = Attachments(workspace.root, tainted, console.say, sees=settings.model_choice.provider.sees)
            late_answers.inner = pool.mailbox
            late_answers.first = attachments.at_start(plan.user_texts, plan.piped_text)
            inbox = Inbox(late_answers.take, late_answers.close)
            tools = Tools(own_registry, context, snapshots, inbox, plan.extensions.steps, checkpoints)
            own_model = SwitchableModel(model)  # sub-agents keep theirs
            steering = RunSteering(
                plan, own_registry, own_model, budget, log.run, snapshots, attachments, context.memory
            )
            is_team = "team" in start.settings
            authorizer = plan.authorizer(boundaries.rulebook, None if is_team else steering.steering)
            policy = Policy(
                LeaderAuthorizer(authorizer, pool), guard, budget, interrupts.allowed,
                accept_claims=settings.accept_claims, read_attachments=attachments.read_named,
                distils=build.may_distil(settings) and not plan.extensions.replaces_model,
                verifier=own_model if verifier is model else verifier, runs_tests=settings.continuous,
            )  # fmt: skip
            yield OpenedRun(replace(plan, model=own_model), log, budget, pool, tools, policy, interrupts, tainted)


def _was_killed(state_dir: Path, run: str) -> bool:
    """Return whether the newest other run has no end, so that it may have left drafts of files."""
    previous_run = next((other for other in run_ids(state_dir) if other != run), None)
    with suppress(OSError, SetupError):
        return previous_run is not None and is_cut_off(log_path(state_dir, previous_run))
    return True


class LateAnswers:
    """Ask at the console. With an interim answer, questions stay open, and late answers are delivered as messages.

    As an inbox, it returns the `first` messages, then those of the `inner` mailbox.
    """

    def __init__(self, console: Console, interim_answer: str) -> None:
        self._console = console
        self._interim_answer = interim_answer
        self.first: Sequence[Event] = ()
        self.inner: Mailbox | None = None

    def ask(self, question: str, timeout: float | None) -> str:
        """Return the user's answer. Raises CommandError if none came in time or nobody can be asked."""
        self._console.discard_typeahead()
        record = Question(text=question, stays_open=True) if self._interim_answer else Question()
        try:
            return self._console.ask(question, timeout, label="The agent asks:", question=record)
        except TimeoutError as error:
            raise CommandError(self._interim_answer or str(error)) from None
        except EOFError:
            raise CommandError(self._interim_answer or "Nobody is there to answer; decide yourself.") from None

    def take(self) -> Sequence[Event]:
        inner = self.inner.take() if self.inner else ()  # first, as it may raise
        first, self.first = self.first, ()
        return [*first, *inner, *self._late_answers()]

    def close(self) -> Sequence[Event]:
        self._console.close_questions()
        return [*(self.inner.close() if self.inner else ()), *self._late_answers()]

    def _late_answers(self) -> list[Event]:
        answers = self._console.take_late()
        return [Feedback(text=f"A late answer to {question.text!r}: {line}") for question, line in answers]


def _memory_parts(plan: RunPlan, budget: Budget) -> MemoryParts:
    settings, console = plan.settings, plan.console
    embedder = lazy_embedder(settings, console)
    return MemoryParts(
        plan.extensions.embedder() or embedder,
        build.open_ranker(settings, console, plan.model),
        TickClock() if settings.memory_ticks else None,
        user_memory(settings, embedder) if settings.memory_user else None,
        consent_of(console, budget),
        build.recalls_trusted_only(settings, plan.registry.specs),
    )


def _report_warnings(settings: Settings, console: Console, context: Context) -> None:
    from autoagent.session.services import report_browser

    if settings.continuous:
        console.warn(CONTINUOUS_WARNING)
    for addition in plugin_commands():
        if addition.problem:
            console.warn(addition.problem)
    report_extensions(console.say, console.warn)
    if (sandbox := context.sandbox).gaps:
        console.warn(f"Programs run under the sandbox {sandbox.name!r}, which has gaps:")
        for gap in sandbox.gaps:
            console.warn(f"- {gap}")
    report_browser(settings, console.warn)
    build.warn_of_old_rules(settings, console.warn)


def _dream(context: Context, prompt: str) -> str:
    """Have the executor make a dream, since the planner only writes plans."""
    return context.agents.delegate("Dream", prompt, call=context.call, origin=context.origin())[0]


def _open_pool(
    plan: RunPlan, build_worker: Build, log: EventLog, budget: Budget, rulebook: Rulebook, interrupts: Interrupts
) -> WorkerPool:
    """Open the pool of sub-agents. The user oversees them at the same console."""
    settings, console = plan.settings, plan.console
    own_registry = build.own_registry(plan.registry, settings)
    undone_at = max((event.t for event in read(settings.state_dir, log.run, (Undone,))), default=0.0)
    leader = Leader(log, budget, own_registry.specs, plan.start.task.name, plan.registry.specs, undone_at)
    oversight = Oversight(
        authorizer=lambda: plan.authorizer(rulebook),
        asks=lambda proposal: not settings.continuous or bool(proposal.warning),
        listener=console, show=console.show, interruptible=interrupts.allowed, uninterruptible=interrupts.deferred,
    )  # fmt: skip
    levels = len(LEVELS) if settings.hierarchical else 0
    return WorkerPool(
        build_worker, leader, oversight, at_once=plan.workers or max(settings.agents_at_once, levels),
        depth=settings.agents_depth, resumes=plan.workers_resume or settings.hierarchical,
    )  # fmt: skip


def _worker_builder(plan: RunPlan, boundaries: Boundaries, parts: MemoryParts) -> Build:
    """Return the function that builds the sub-agents of a run from the parts of its own agent.

    Everything that the function opens is used by one thread only, except a shared model and embedder. A sub-agent's
    programs end with it.
    """
    from autoagent.loop import Agent
    from autoagent.session.plan import start_event
    from autoagent.session.services import open_context

    settings, registry, console = plan.settings, plan.registry, plan.console
    specs = (*registry.specs, *all_specs())
    refusal = partial(refuse, "Only the run's own agent can ask the user; decide yourself.")

    @contextmanager
    def build_worker(worker: RunningWorker) -> Iterator[Callable[[], Iterator[Event]]]:
        worker_model = build.model_of_worker(settings, console, plan.model, worker.key, worker.task.model)
        embedder = parts.embedder if settings.embedder[0].shared else None
        ranker = build.open_ranker(settings, console, worker_model)
        worker_registry = registry.only(worker.commands, "it was not handed on to this agent")
        trusted_only = build.recalls_trusted_only(settings, worker_registry.specs)
        hides = worker.mailbox.isolation.hides
        own_parts = MemoryParts(embedder, ranker, parts.ticks, parts.user, trusted_only=trusted_only, hides=hides)
        own_workspace, own_tainted = worker.mailbox.isolation.workspace or boundaries.workspace, boundaries.tainted
        if own_workspace is not boundaries.workspace:
            own_tainted = TaintedFiles(settings.state_dir / "taint.jsonl", own_workspace.root)
            own_tainted.inherit(boundaries.workspace.root, (), 0)
        start = start_event(worker.task, settings, worker_model, worker_registry, worker.state.start, plan.texts)
        limits = dataclasses.asdict(worker.budget.limits)
        guard = ExfiltrationGuard(own_tainted, specs, network=settings.sandbox_network, origin=worker.task_origin)
        models = worker_model, worker_model
        with open_context(
            settings, own_workspace, guard, models, own_parts, worker.budget, ask=refusal, say=lambda line: None
        ) as context:
            worker.when_stopped(context.sandbox.close)
            worker.when_undone = guard.add
            start = replace(start, workspace=str(own_workspace.root), limits=limits)
            mailbox, inbox = worker.mailbox, Inbox(worker.mailbox.take, worker.mailbox.close)
            context = replace(context, run=f"{worker.log.run}:{worker.key}", agents=mailbox, pause=mailbox.pause)
            tools = Tools(worker_registry, context, open_snapshots(settings.state_dir, own_workspace), inbox)
            # a small model gives no verdict, but is told of obvious errors before it reports
            can_err = not worker_model.style.reasons and any(map(changes_files, worker_registry.specs))
            verifier = worker_model if settings.verify and can_err else None
            policy = Policy(worker.authorizer, guard, worker.budget, worker.interruptible, verifier=verifier)
            agent = Agent(start, worker_model, tools, policy, worker.log, listener=worker.listener, key=worker.key)
            worker.origin = lambda: guard.origin
            yield agent.run

    return build_worker
