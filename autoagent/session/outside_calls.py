"""Run calls from outside, such as those of another agent, as a run, and open the memory to other programs.

Each call of a command is a step of the run: authorized, guarded, undoable and in its log. Nobody can be asked here, so
without `-c` only calls that a rule allows run. With `-c` all calls run, except that those with a warning of the
guard still need a rule.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from autoagent import __version__
from autoagent.agent.authorize import Authorization
from autoagent.agent.budget import Budget
from autoagent.agent.execute import Execution
from autoagent.agent.progress import LoopGuard
from autoagent.agent.state import Events, Policy, State, Tools
from autoagent.commands import selection
from autoagent.commands.context import refuse
from autoagent.commands.registry import Registry
from autoagent.core.commands import Call, Proposal, Verdict
from autoagent.core.errors import CommandError, ForUser, ReplyError, SettingsError, StopRun
from autoagent.core.events import Decided, Ended, Event, Returned, RunStarted, Thought
from autoagent.core.memory import RetrievedMemory
from autoagent.core.model import Completion, Thoughts, Usage
from autoagent.core.protocols import Model, Recorder
from autoagent.core.task import Goal, Outcome, Status, Task
from autoagent.log.event_log import EventLog
from autoagent.registry.parts import Place
from autoagent.safety.approval import (
    NOBODY,
    AuthorizerWrapper,
    ContinuousAuthorizer,
    FailClosedAuthorizer,
    RuleAuthorizer,
)
from autoagent.session import build
from autoagent.session.extension_hooks import hooked_authorizer, hooked_registry, notify_listeners, render
from autoagent.session.memories import MemoryParts, open_memory_for_subcommand
from autoagent.session.plan import limits_of, logged_settings
from autoagent.session.restoring import open_snapshots
from autoagent.session.services import boundaries_of, open_context
from autoagent.session.session import Session, claimed_state
from autoagent.settings import Settings
from autoagent.terminal.console import Console, EventHooks
from autoagent.terminal.screen import Style
from autoagent.terminal.signals import Interrupts
from autoagent.text.quoting import mark_untrusted
from autoagent.workspace.lock import sole_writer

if TYPE_CHECKING:
    from autoagent.memory.living_memory import LivingMemory

WINDOW = 128_000  # tokens, the assumed window of the calling agent, which limits results


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a call from outside: a text, and the files it created unless their content is from outside."""

    text: str
    failed: bool = False
    made: tuple[str, ...] = ()


class CallService:
    """Carry out calls as steps of a run, shown by the console. Calls come from one thread.

    `place` is the folder, `specs` declares the callable commands, and `workspace` is where they work. `waiting` returns
    a context to wait for a call in, where Ctrl-C interrupts.
    """

    def __init__(self, place: Place, tools: Tools, policy: Policy, start: RunStarted, log: Recorder, console: Console):
        self.place = place
        self.specs = tools.registry.specs
        self.workspace = tools.context.workspace
        self.waiting: Callable[[], AbstractContextManager[object]] = policy.interruptible
        self._state = State(start, tools, policy, log)
        self._state.loop_guard = LoopGuard({})  # the caller decides on repeats, and cannot refer to earlier steps
        self._registry = tools.registry
        self._user = Authorization(self._state, console)
        self._execution = Execution(self._state, self._user)
        self._show: Callable[[Event], None] = console.show

    def begin(self) -> None:
        self._show(self._state.record(self._state.start))

    def call(self, name: str, args: Mapping[str, Any]) -> Answer:
        """Authorize and run one call. Raises StopRun if a limit is reached or a signal ends the service."""
        state = self._state
        state.budget.check_command()
        state.step += 1
        try:
            call = self._registry.check(Call(str(state.step), name, args))
        except ReplyError as error:
            return Answer(str(error), failed=True)
        self._show(state.record(Thought(thoughts=Thoughts(), call=call, text="", usage=Usage())))
        answer = Answer("Refused.", failed=True)
        for event in self._events_of(call):
            self._show(event)
            if isinstance(event, Decided) and not event.allowed:
                answer = Answer(f"Refused, and not run: {event.reason}", failed=True)
            elif isinstance(event, Returned):
                answer = Answer(event.text, not event.ok, event.meta.products)
                if source := event.meta.untrusted:
                    answer = Answer(mark_untrusted(event.text, source, run=event.run, step=event.step), answer.failed)
        return answer

    def end(self, outcome: Outcome) -> None:
        """Stop the programs that are still running, and record the end of the run."""
        for event in self._execution.close():
            self._show(event)
        self._show(self._state.record(Ended(status=outcome.status, reason=outcome.reason)))

    def _events_of(self, call: Call) -> Events:
        if (proposal := (yield from self._user.authorize(call))) is not None:
            yield from self._execution.run(proposal)


class _RulesOnly(AuthorizerWrapper):
    """Refuse calls that no rule allows. `started_by` is the subcommand that serves the calls."""

    def __init__(self, started_by: str) -> None:
        super().__init__(ContinuousAuthorizer())
        self._started_by = started_by

    def decide(self, proposal: Proposal) -> Verdict:
        reason = (
            f"{proposal.warning} Nobody can be asked here. Start `{self._started_by}` with --allow "
            f"{proposal.call.name} for this command, or with -c for all that the guard does not warn of."
        )
        return Verdict(False, NOBODY, reason.strip())

    def accepts(self, claims: str) -> Verdict:
        return Verdict(False, NOBODY)


class _LazyModel:
    """Open the model for commands that need it on first use. Its errors fail the command."""

    def __init__(self, open_model: Callable[[], Model]) -> None:
        self._open = open_model
        self._model: Model | None = None

    def complete(self, *args: Any, **kwargs: Any) -> Completion:
        try:
            self._model = self._model or self._open()
            return self._model.complete(*args, **kwargs)
        except ForUser as error:
            raise CommandError(f"The model that this command asks cannot be used: {error}") from error

    def take_usage(self) -> Usage:
        return self._model.take_usage() if self._model else Usage()


@contextmanager
def opened_service(*flags: Mapping[str, Any] | None, over: str, started_by: str) -> Iterator[CallService]:
    """Open a run for calls from outside, and end it. Ask the user first whether to trust the folder.

    `flags` are the run's; later layers win, 0 lifts a limit. `over` is the protocol, `started_by` the subcommand.
    Output goes to standard error. Raises ForUser if something cannot be opened, StopRun if a limit or a signal ends it.
    """
    pairs = ((name, value) for layer in flags for name, value in (layer or {}).items())
    session = Session.open({name: value for name, value in pairs if value not in (None, "", ()) and value is not False})
    if session.flags.get("continuous_limit") and not session.settings.continuous:
        raise SettingsError("-l/--continuous-limit requires -c/--continuous.")
    with claimed_state(session.settings.state_dir):
        yield from _run_service(session, over, started_by)


def _run_service(session: Session, over: str, started_by: str) -> Iterator[CallService]:
    settings = replace(session.settings, agents_at_once=0)  # there is no agent here that could start others
    hooks, style, mask = EventHooks(render, notify_listeners), Style(plain=True), build.mask_of(settings)
    console = Console(sys.stderr, sys.stderr, sys.stdin, style=style, mask=mask, hooks=hooks)
    registry = hooked_registry(selection.choose(selection.available(settings), settings.commands, WINDOW))
    names = [  # the commands that need neither the user, nor a run, nor other agents
        spec.name
        for spec in registry.specs
        if (e := spec.effects) is None or not (e.asks_user or e.tells_agents or e.ends_run or e.pages_results)
    ]
    registry = registry.only(names, "it is of no use to another agent")
    start = _describe_start(settings, registry, session, over)
    boundaries = boundaries_of(start, settings, registry.specs)
    workspace, guard = boundaries.workspace, boundaries.guard
    inner = ContinuousAuthorizer() if settings.continuous else _RulesOnly(started_by)
    parts = MemoryParts(trusted_only=build.recalls_trusted_only(settings, registry.specs))
    model: Any = _LazyModel(lambda: build.open_model(settings, console))
    budget = Budget(limits_of(settings, start.task))
    refusal = partial(refuse, "Nobody can be asked here; decide yourself.")
    with (
        sole_writer(workspace.root, console.warn),
        open_context(
            settings, workspace, guard, (model, model), parts, budget, ask=refusal, say=console.say
        ) as context,
        EventLog.create(settings.state_dir, mask=mask) as log,
        Interrupts().installed() as interrupts,
    ):
        tools = Tools(registry, context, open_snapshots(settings.state_dir, workspace, console.warn))
        authorizer = FailClosedAuthorizer(hooked_authorizer(RuleAuthorizer(boundaries.rulebook, inner)))
        policy = Policy(authorizer, guard, budget, interrupts.allowed)
        service = CallService(session.place, tools, policy, start, log, console)
        service.begin()
        outcome = Outcome(Status.FINISHED, "The client has left.")
        try:
            yield service
        except KeyboardInterrupt:
            outcome = Outcome(Status.INTERRUPTED, "Ended by Ctrl-C.")
        except StopRun as stop:
            outcome = stop.outcome
        service.end(outcome)
    if outcome.status != Status.FINISHED:
        raise StopRun(outcome)


def _describe_start(settings: Settings, registry: Registry, session: Session, over: str) -> RunStarted:
    task = Task(over, "commands for other agents", (Goal(f"Run the commands that other agents call over {over}"),))
    return RunStarted(
        version=__version__, task=task, model="", window=WINDOW, reply_tokens=0, system="", system_tokens=0,
        asking="tools", commands=tuple(spec.name for spec in registry.specs),
        workspace=str(settings.workspace.absolute()), settings=logged_settings(settings, session=session),
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class SharedMemory:
    """Open the long-term memory to another program. Texts that it adds count as from outside. Secrets are masked."""

    place: Place
    _memory: LivingMemory
    _mask: Callable[[str], str]

    def search(self, query: str, count: int) -> Sequence[RetrievedMemory]:
        """Return matching memories, best first, and strengthen them. Raises ModelError, StateError."""
        return self._memory.recall(query, count).memories

    def recent(self, count: int) -> Sequence[RetrievedMemory]:
        """Return the most recently stored or used memories. Raises StateError."""
        return self._memory.store.listed(count)

    def add(self, text: str, source: str) -> int | None:
        """Store a text from a source. Return its id, or None if it is empty. Raises ModelError, StateError."""
        return self._memory.add(self._mask(text), source=source, trusted=False)

    def forget(self, id: int) -> bool:
        """Delete a memory, or return False if there is none. Raises StateError."""
        return self._memory.forget(id)


@contextmanager
def opened_memory(flags: Mapping[str, Any] | None) -> Iterator[SharedMemory]:
    """Open the memory of the current folder for another program. Raises SettingsError if it is switched off."""
    session = Session.open(flags)
    with open_memory_for_subcommand(session.settings) as memory:
        yield SharedMemory(session.place, memory, build.mask_of(session.settings))
