"""Combine every fold over a run's events, and write all events to the log."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from time import time
from typing import TYPE_CHECKING

from autoagent.agent.budget import Budget
from autoagent.agent.history import History
from autoagent.agent.progress import LoopGuard, Standstill
from autoagent.agent.work import Continuation, Work
from autoagent.commands.context import Context
from autoagent.commands.registry import Registry
from autoagent.core.commands import Call
from autoagent.core.events import Changed, Event, Feedback, RunStarted, Spent, Undone
from autoagent.core.frozen import dataclass
from autoagent.core.model import Usage
from autoagent.core.protocols import Authorizer, Inbox, Model, Recorder
from autoagent.log.checkpoint import Checkpoints
from autoagent.registry.parts import NO_PART, RunPart
from autoagent.text.tokens import counter

if TYPE_CHECKING:
    from autoagent.safety.exfiltration_guard import ExfiltrationGuard
    from autoagent.workspace.snapshots import Snapshots

Events = Generator[Event, None, None]


@dataclass(frozen=True, slots=True)
class Tools:
    """The tools of an agent.

    `snapshots`, if any, keep the workspace before and after each change. `inbox` receives messages from other agents,
    `part` runs the extensions' hooks in each step, and `checkpoints` let a long run resume quickly.
    """

    registry: Registry
    context: Context
    snapshots: Snapshots | None = None
    inbox: Inbox | None = None
    part: RunPart = NO_PART
    checkpoints: Checkpoints | None = None


@dataclass(frozen=True, slots=True)
class Policy:
    """The permissions and limits of an agent.

    `interruptible` wraps what Ctrl-C may interrupt: model, command and question, never a write. `clock` returns seconds
    since the epoch. With `distils`, the model is asked for facts at the end of a run. `verifier`, if any, judges the
    goals before the end, and `accept_claims` counts unverified goals as met. `read_attachments` reads files named in
    feedback. With `runs_tests`, the workspace's tests run for the verifier without a question.
    """

    authorizer: Authorizer
    guard: ExfiltrationGuard
    budget: Budget
    interruptible: Callable[[], AbstractContextManager[object]] = nullcontext
    clock: Callable[[], float] = time
    distils: bool = False
    verifier: Model | None = None
    accept_claims: bool = False
    runs_tests: bool = False
    read_attachments: Callable[[str], Sequence[Event]] = lambda text: ()


class State:
    """Everything derived from a run's events. A resumed run has the state of an uninterrupted one.

    `tools` and `policy` serve the parts of a step. `key` identifies a sub-agent, whose events share the log of its
    parent run.
    """

    def __init__(self, start: RunStarted, tools: Tools, policy: Policy, log: Recorder, key: str = "") -> None:
        specs = {spec.name: spec for spec in tools.registry.specs}
        self.tools = tools
        self.policy = policy
        self.start = start
        self.step = 0
        self.log = log
        self.key = key
        self.count = counter(start.model)
        self.budget = policy.budget
        self.guard = policy.guard
        self.history = History(self.count, tools.registry.pages_results)
        self.loop_guard = LoopGuard(specs)
        self.standstill = Standstill(specs)
        self.work = Work(specs)
        self.continuation = Continuation()
        folds = (self.history, self.budget, self.loop_guard, self.standstill, self.work, self.continuation)
        self._parts = (*folds, self.guard)

    def apply(self, event: Event, *, spends: bool = True) -> None:
        """Apply one event of this agent. Charge its budget only if it `spends`."""
        for part in self._parts:
            if spends or part is not self.budget:
                part.add(event)

    def record(self, event: Event, *, passing: bool = False) -> Event:
        """Write the event to disk, apply it, and return it as logged, with secrets masked.

        Raises StateError if the log, or the record of tainted files, cannot be written.
        """
        seconds = round(self.budget.time.seconds, 3)
        logged = self.log.append(replace(event, step=self.step, agent=self.key, worked=seconds), passing=passing)
        if isinstance(logged, Changed):
            self.start = logged
        self.apply(logged)
        return logged

    def replay(self) -> None:
        """Restore this agent's state from the log.

        A worker's spending in an earlier process is charged to its starter, whose budget it shares.
        """
        checkpoints = self.tools.checkpoints
        for event in checkpoints.events(self._saved_parts, self._fingerprints) if checkpoints else self.log.effective():
            if event.agent == self.key:
                self.apply(event, spends=not self.key)
            elif isinstance(event, Undone) and not event.agent:  # the run's own agent undid what this one has done
                self.apply(replace(event, agent=self.key, step=self.continuation.step), spends=False)
        if self.log.lost and not self.continuation.has_started:  # the lost event may have said that it has
            self.continuation.has_started, self.work.tree_before = True, self.work.tree
        self.guard.restore_marks()
        self.step = self.continuation.step

    def save_checkpoint(self) -> None:
        """Save a checkpoint if the last one is old. Call it once all events have been shown."""
        if self.tools.checkpoints is not None:
            self.tools.checkpoints.save(self.step, self._saved_parts, self._fingerprints)

    def _fingerprints(self) -> tuple[str, str]:
        """Describe everything besides the events that shapes the state."""
        return self.tools.registry.fingerprint(self.start.model), repr(self.guard.configuration)

    @property
    def _saved_parts(self) -> Mapping[str, object]:
        return {type(part).__name__: part for part in (*self._parts, self.budget.time)}

    def charge(self, purpose: str, usage: Usage) -> Events:
        """Record spending outside the steps."""
        if usage != Usage():
            yield self.record(Spent(purpose=purpose, usage=usage))

    def add_feedback(self, text: str) -> Events:
        """Record the user's feedback after the files it names."""
        for event in self.policy.read_attachments(text):
            yield self.record(event)
        yield self.record(Feedback(text=text))

    def logged(self, call: Call) -> Call:
        """Return the call as logged, with secrets masked, or the call itself if it holds none."""
        args = self.log.masked(call.args)
        return call if args == call.args else replace(call, args=args)

    def memory_run(self, run: str) -> str:
        """Return the run under which this agent stores memories, since each agent counts its own steps."""
        return f"{run}:{self.key}" if self.key else run
