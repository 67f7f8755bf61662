"""From a run that is described to its exit code: everything is opened, put together, driven and closed."""

from __future__ import annotations

import dataclasses
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from autoagent.agent.budget import Budget
from autoagent.core.codec import to_json
from autoagent.core.commands import Question
from autoagent.core.errors import CommandError, ForUser, SettingsError, SetupError, StopRun
from autoagent.core.events import Ended, Event, Feedback, Resumed, Thought
from autoagent.core.levels import LEVELS
from autoagent.core.model import Usage
from autoagent.core.task import Outcome, Status
from autoagent.log.event_log import EventLog
from autoagent.registry.registrations import GUESTS
from autoagent.session import build
from autoagent.settings import Settings, user_state_path
from autoagent.terminal.console import Console
from autoagent.terminal.output import echo
from autoagent.terminal.rendering import CONTINUOUS_WARNING
from autoagent.text.redaction import Redactor

if TYPE_CHECKING:
    from autoagent.agent.state import Policy, Tools
    from autoagent.commands.context import Context
    from autoagent.commands.registry import Registry
    from autoagent.core.protocols import Inbox, Model
    from autoagent.safety.rules import Rulebook
    from autoagent.safety.tainted_files import TaintedFiles
    from autoagent.session.folder_texts import FolderTexts
    from autoagent.session.plan import RunPlan
    from autoagent.session.services import MemoryParts
    from autoagent.subagents.pool import WorkerPool
    from autoagent.subagents.worker import Build, Runner, Worker, WorkerSpec
    from autoagent.terminal.signals import Interrupts
    from autoagent.workspace.gate import Workspace


LAST_WORDS_SECONDS = 10.0  # seconds the voice may take to finish once the run has ended


@dataclass(frozen=True, slots=True)
class OpenedRun:
    """A run with all of its open parts: its leader has its log, its workers and the user's attention."""

    plan: RunPlan
    log: EventLog
    budget: Budget
    pool: WorkerPool
    tools: Tools
    policy: Policy
    interrupts: Interrupts
    tainted: TaintedFiles


Lead = Callable[[OpenedRun], "Runner"]
"""Makes whoever leads a run: its own agent, or a team."""


def drive(
    plan: RunPlan,
    open_log: Callable[[TaintedFiles], EventLog],
    setup_usage: Usage | None = None,
    lead: Lead | None = None,
) -> int:
    """Run the agent to its end, show the events and the report, and return the exit code.

    `lead` makes the leader of the run in place of one agent.

    The log is opened last, so that a failure to open anything else leaves no empty run behind. Warnings are shown only
    then. `open_log` may change the workspace, which this process has locked by then, and mark files as tainted.
    `setup_usage` is the model's usage before. Raises ForUser.
    """
    settings, console = plan.settings, plan.console
    with _opened(plan, open_log) as opened:
        if lead:
            leader = lead(opened)
        else:
            from autoagent.loop import Agent

            run, tools, policy = opened.plan, opened.tools, opened.policy
            leader = Agent(run.start, run.model, tools, policy, opened.log, listener=console, setup_usage=setup_usage)
        try:
            with _heard(settings, console) as hear:
                for event in leader.run():
                    opened.pool.show(event)
                    hear(event)
                    plan.extensions.hear(event)
        except ForUser as error:
            if console.tally.run:  # else nothing of the run is on disk
                error.run_began = True
                console.report(opened.log.path)
            raise
    console.report(opened.log.path)
    assert isinstance(event, Ended)
    return event.status.code


@dataclass(frozen=True, slots=True)
class Leg:
    """One part of a run, by one process: its exit code, and the wish with which the person has it go on, if any."""

    run: str
    code: int
    wish: str = ""


def next_wish(plan: RunPlan) -> str:
    """Return the wish with which the person at this terminal has a run go on that the agent has ended; '' for none."""
    ended, provider = plan.console.tally.ended, plan.settings.model_choice.provider
    if ended is None or not ended.status.is_conclusion or plan.settings.continuous:
        return ""
    return "" if provider.recorded or provider.task is not None else plan.console.next_wish()


@contextmanager
def told_as_event(given: Mapping[str, Any]) -> Iterator[None]:
    """With --json, report an end that no log can hold as an `ended` event as well, except bad usage."""
    try:
        yield
    except (ForUser, StopRun, KeyboardInterrupt) as error:
        in_log = isinstance(error, ForUser) and error.run_began
        if given.get("json_output") and not in_log and not isinstance(error, SettingsError):
            if isinstance(error, StopRun):
                outcome = error.outcome
            elif isinstance(error, KeyboardInterrupt):
                outcome = Outcome(Status.INTERRUPTED, "Ended by Ctrl-C.")
            else:
                outcome = Outcome(Status.SETUP if isinstance(error, SetupError) else Status.FAILED, str(error))
            reason = Redactor().mask(outcome.reason)  # the settings, and so other secrets, are unknown here
            ended = Ended(status=outcome.status, reason=reason, t=time.time())
            with suppress(OSError):  # nobody reads it, and the error is reported anyway
                echo(json.dumps(to_json(ended)))
        raise


@contextmanager
def _opened(plan: RunPlan, open_log: Callable[[TaintedFiles], EventLog]) -> Iterator[OpenedRun]:
    """Open all parts of the run. Close them in the reverse order in any case."""
    from autoagent.agent.state import Policy, Tools
    from autoagent.commands.selection import all_specs
    from autoagent.log.checkpoint import Checkpoint
    from autoagent.models.switchable import SwitchableModel
    from autoagent.safety.exfiltration_guard import ExfiltrationGuard
    from autoagent.safety.tainted_files import TaintedFiles
    from autoagent.session.attachments import Attachments
    from autoagent.session.plan import limits_of
    from autoagent.session.restoring import open_snapshots
    from autoagent.session.services import open_context
    from autoagent.session.steering import RunSteering
    from autoagent.terminal.signals import Interrupts
    from autoagent.workspace.lock import sole_writer

    start, model, registry, settings, console = plan.start, plan.model, plan.registry, plan.settings, plan.console
    budget = Budget(limits_of(settings, start.task))
    workspace = build.workspace_of(start, settings)
    tainted = TaintedFiles(settings.state_dir / "taint.jsonl", workspace.root)
    guard = ExfiltrationGuard(tainted, (*registry.specs, *all_specs()), network=settings.sandbox_network)
    rulebook = build.rulebook_of(settings, workspace, registry.specs)
    guard.is_ruled = lambda call: rulebook.allows(call) is not None
    fast = model if plan.extensions.replaces_model else build.open_fast_model(settings, console, model)
    verifier = build.open_verifier(settings, console, model)
    parts = _memory_parts(plan, budget)
    own = build.own_registry(registry, settings)
    late = LateAnswers(console, settings.unanswered_text)
    ask = plan.extensions.asked(late.ask if settings.hierarchical else build.ask_the_user(console))
    with (
        sole_writer(workspace.root, console.warn),
        open_context(settings, workspace, guard, model, fast, parts, ask=ask, say=console.say) as context,
        open_log(tainted) as log,
        Interrupts().installed() as interrupts,
    ):
        if isinstance(start, Resumed):
            workspace.sweep()
        _warn(settings, console, context)
        context.sandbox.tell(console.printed)
        plan.extensions.attach(context, registry)
        rulebook.follow(log.calls)
        if parts.ticks:
            log.listen(parts.ticks.add)
        if "written" in GUESTS:
            log.listen(GUESTS["written"])
        build_worker = builder(settings, registry, workspace, tainted, model, parts, console, plan.texts)
        with _pool(plan, build_worker, log, budget, rulebook, interrupts) as pool:
            context = replace(context, run=log.run, agents=pool.mailbox, pause=pool.mailbox.pause)
            if settings.hierarchical:
                context = replace(context, dream=_dream, unanswered=settings.unanswered_text)
            snapshots = open_snapshots(settings.state_dir, workspace, console.warn)
            checkpoint = Checkpoint(log, console.folds, user_state_path(os.environ) / "checkpoints.key")
            attachments = Attachments(workspace.root, tainted, console.say, sees=settings.model_choice.provider.sees)
            late.inner, late.first = pool.mailbox, attachments.at_start(plan.said, plan.piped)
            tools = Tools(own, context, snapshots, inbox=late, part=plan.extensions.steps, checkpoint=checkpoint)
            current = SwitchableModel(model)  # of the run's own agent: the others keep theirs
            steering = RunSteering(plan, own, current, budget, log.run, snapshots, attachments, context.memory)
            authorizer = plan.authorizer(rulebook, None if "team" in start.settings else steering)
            policy = Policy(
                pool.leading(authorizer), guard, budget, interrupts.allowed, accept_claims=settings.accept_claims,
                distils=build.distils(settings) and not plan.extensions.replaces_model, attached=attachments.named_in,
                verifier=current if verifier is model else verifier, runs_tests=settings.continuous,
            )  # fmt: skip
            yield OpenedRun(replace(plan, model=current), log, budget, pool, tools, policy, interrupts, tainted)


class LateAnswers:
    """Asks at the console, and brings answers that come too late as news. `unanswered` is the answer meanwhile.

    It is an inbox, too: the messages of `first` come before all others, then those of the `inner` inbox.
    """

    def __init__(self, console: Console, unanswered: str) -> None:
        self._console = console
        self._unanswered = unanswered
        self.first: Sequence[Event] = ()
        self.inner: Inbox | None = None

    def ask(self, question: str, timeout: float | None) -> str:
        """Return the user's answer. Raises CommandError if there was none in time, or nobody is there."""
        self._console.discard_typeahead()
        asked = Question(text=question, stays_open=True)
        try:
            return self._console.ask(question, timeout, label="The agent asks:", question=asked)
        except (TimeoutError, EOFError):
            raise CommandError(self._unanswered) from None

    def take(self) -> Sequence[Event]:
        """Return the messages that have come since the last call."""
        late = self._console.take_late()
        first, self.first = self.first, ()
        answers = (Feedback(text=f"A late answer to {question.text!r}: {line}") for question, line in late)
        return [*first, *(self.inner.take() if self.inner else ()), *answers]

    def close(self) -> Sequence[Event]:
        """Close the questions that are still open, and the inner inbox."""
        self._console.close_questions()
        return self.inner.close() if self.inner else ()


def _memory_parts(plan: RunPlan, budget: Budget) -> MemoryParts:
    """Return the parts for the memories of the run's agents."""
    from autoagent.memory.none import TickClock
    from autoagent.session.memories import lazy_embedder, user_memory
    from autoagent.session.services import MemoryParts

    settings, console = plan.settings, plan.console
    usual = lazy_embedder(settings, console)
    return MemoryParts(
        plan.extensions.embedder() or usual,
        build.open_ranker(settings, console, plan.model),
        TickClock() if settings.memory_ticks else None,
        user_memory(settings, usual) if settings.memory_user else None,
        build.consent_of(console, budget),
        build.recalls_trusted_only(settings, plan.registry.specs),
    )


def _warn(settings: Settings, console: Console, context: Context) -> None:
    """Show warnings before the first step."""
    from autoagent.commands.selection import added
    from autoagent.session.build import tell_old_rules
    from autoagent.session.extension_hooks import tell_extensions
    from autoagent.session.services import tell_browser, tell_gaps

    if settings.continuous:
        console.warn(CONTINUOUS_WARNING)
    for problem in filter(None, (one.problem for one in added())):
        console.warn(problem)
    tell_extensions(console.say, console.warn)
    tell_gaps(context.sandbox, console.warn)
    tell_browser(settings, console.warn)
    tell_old_rules(settings, console.warn)


def _dream(context: Context, prompt: str) -> str:
    """Have the executor make a dream, as the planner's own words are for plans."""
    return context.agents.delegate("Dream", prompt, call=context.call, origin=context.origin())[0]


def _pool(
    plan: RunPlan, build_worker: Build, log: EventLog, budget: Budget, rulebook: Rulebook, interrupts: Interrupts
) -> WorkerPool:
    """Open the sub-agents of the run, overseen by the user at the same console."""
    from autoagent.subagents.pool import Leader, Oversight, WorkerPool

    settings, console = plan.settings, plan.console
    own = build.own_registry(plan.registry, settings)
    leader = Leader(log, budget, own.specs, plan.start.task.name, plan.registry.specs)
    oversight = Oversight(
        authorizer=lambda: plan.authorizer(rulebook),
        asks=lambda proposal: not settings.continuous or bool(proposal.warning),
        listener=console,
        show=console.show,
        interruptible=interrupts.allowed,
        held=interrupts.held,
    )
    levels = len(LEVELS) if settings.hierarchical else 0
    return WorkerPool(
        build_worker, leader, oversight, at_once=plan.workers or max(settings.agents_at_once, levels),
        depth=settings.agents_depth, resumes=plan.workers_resume or settings.hierarchical,
    )  # fmt: skip


@contextmanager
def _heard(settings: Settings, console: Console) -> Iterator[Callable[[Event], None]]:
    """Return a function that says aloud the words meant for the user, if that is wanted."""
    if not settings.speak:
        yield lambda event: None
        return
    from autoagent.services.media.speech import voice_of

    voice = voice_of(settings, console.say)
    if settings.speech_provider != "offline":
        console.say("What the voice may cost is not part of the cost of the run.")

    patience = LAST_WORDS_SECONDS

    def hear(event: Event) -> None:
        nonlocal patience
        if isinstance(event, Thought) and event.thoughts.speak:
            voice.say(event.thoughts.speak)
        elif isinstance(event, Ended) and event.status == Status.INTERRUPTED:
            patience = 0.0  # a signal ends a run at once, in the middle of a word too

    try:
        yield hear
    finally:
        voice.close(patience)


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
    from autoagent.agent.state import Policy, Tools
    from autoagent.agent.surroundings import changes_files
    from autoagent.commands.selection import all_specs
    from autoagent.loop import Agent
    from autoagent.safety.exfiltration_guard import ExfiltrationGuard
    from autoagent.safety.tainted_files import TaintedFiles
    from autoagent.session.plan import describe
    from autoagent.session.restoring import open_snapshots
    from autoagent.session.services import MemoryParts, open_context
    from autoagent.subagents.worker import Worker

    specs = (*registry.specs, *all_specs())

    @contextmanager
    def build_worker(order: WorkerSpec) -> Iterator[Worker]:
        own = build.model_of_worker(settings, console, model, order.key, order.task.model)
        embedder = parts.embedder if settings.embedder[0].shared else None
        ranker = build.open_ranker(settings, console, own)
        offered = registry.only(order.commands, "it was not handed on to this agent")
        trusted = build.recalls_trusted_only(settings, offered.specs)
        apart = order.apart
        own_parts = MemoryParts(embedder, ranker, parts.ticks, parts.user, trusted_only=trusted, hides=apart.hides)
        place, marks = apart.workspace or workspace, tainted
        if place is not workspace:
            marks = TaintedFiles(settings.state_dir / "taint.jsonl", place.root)
            marks.inherit(workspace.root, (), 0)
        described = describe(order.task, settings, own, offered, order.began, texts)
        limits = dataclasses.asdict(order.budget.limits)
        guard = ExfiltrationGuard(marks, specs, network=settings.sandbox_network, origin=order.origin)
        with open_context(settings, place, guard, own, own, own_parts, ask=_nobody, say=lambda line: None) as context:
            order.when_stopped(context.sandbox.close)
            start = dataclasses.replace(described, workspace=str(place.root), limits=limits)
            tools = Tools(
                offered,
                dataclasses.replace(context, run=order.place, agents=order.mailbox, pause=order.mailbox.pause),
                open_snapshots(settings.state_dir, place),
                inbox=order.mailbox,
            )
            # A small model is asked for no verdict: it costs nothing to tell it of plain faults before it reports.
            told = settings.verify and not own.style.reasons and any(map(changes_files, offered.specs))
            verifier = own if told else None
            policy = Policy(order.authorizer, guard, order.budget, order.interruptible, verifier=verifier)
            agent = Agent(start, own, tools, policy, order.log, listener=order.listener, key=order.key)
            yield Worker(agent, lambda: guard.origin)

    return build_worker


def _nobody(question: str, timeout: float | None) -> str:
    raise CommandError("Only the run's own agent can ask the user; decide yourself.")
