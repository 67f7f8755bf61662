"""The state of a run: every fold over its events, and the one way in which an event gets into the log and into them."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from time import time
from typing import TYPE_CHECKING

from autoagent.agent.budget import Budget
from autoagent.agent.history import History
from autoagent.agent.progress import LoopGuard, Standstill
from autoagent.agent.work import Work
from autoagent.commands.context import Context
from autoagent.commands.registry import Registry
from autoagent.core.commands import Call
from autoagent.core.events import Changed, Event, Feedback, RunStarted, Spent
from autoagent.core.model import Usage
from autoagent.core.protocols import Authorizer, Inbox, Model, Recorder, Snapshots
from autoagent.log.checkpoint import Checkpoint
from autoagent.registry.parts import NO_PART, RunPart
from autoagent.text.tokens import counter

if TYPE_CHECKING:
    from autoagent.safety.exfiltration_guard import ExfiltrationGuard

Events = Generator[Event, None, None]


@dataclass(frozen=True, slots=True)
class Tools:
    """The agent's tools.

    `snapshots` keeps the workspace before and after each change, if wanted. `inbox` brings messages from other agents,
    `part` is that of the extensions in each step. `checkpoint` lets a long run resume at once.
    """

    registry: Registry
    context: Context
    snapshots: Snapshots | None = None
    inbox: Inbox | None = None
    part: RunPart = NO_PART
    checkpoint: Checkpoint | None = None


@dataclass(frozen=True, slots=True)
class Policy:
    """The agent's permissions and limits.

    `interruptible` is entered around everything that may be cut short by Ctrl-C: model, command and question, never a
    write. `clock` gives seconds since the epoch. With `distils` the model is asked for the facts of a run that is over;
    `verifier` is the model that judges the goals before the run ends, None if nothing is verified; with `accept_claims`
    an unverified goal counts as met. `attached` reads the files that feedback names. With
    `runs_tests` the tests in the workspace are run for the verifier, without a question.
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
    attached: Callable[[str], Sequence[Event]] = lambda text: ()


class State:
    """The state of a run: what its events come to. A resumed run has the same state as one that never stopped.

    `key` is that of a sub-agent, whose events stand in the log of the run that started it.
    """

    def __init__(self, start: RunStarted, tools: Tools, policy: Policy, log: Recorder, key: str = "") -> None:
        self._registry = tools.registry
        specs = {spec.name: spec for spec in self._registry.specs}
        self.start = start
        self.step = 0
        self.log = log
        self.key = key
        self.count = counter(start.model)
        self.budget = policy.budget
        self.guard = policy.guard
        self.history = History(self.count, self._registry.pages_results)
        self.loop_guard = LoopGuard(specs)
        self.standstill = Standstill(specs)
        self.work = Work(specs)
        self._parts = (self.history, self.budget, self.loop_guard, self.standstill, self.work, self.guard)
        self._checkpoint = tools.checkpoint
        self._attached = policy.attached

    def apply(self, event: Event, *, spends: bool = True) -> None:
        """Take up one event of this agent; without `spends`, not in its budget."""
        for part in self._parts:
            if spends or part is not self.budget:
                part.add(event)

    def record(self, event: Event, *, passing: bool = False) -> Event:
        """Write the event to disk, then apply it. Return it as it is in the log, without secrets.

        Raises StateError if the log, or the record of tainted files, cannot be written.
        """
        worked = round(self.budget.time.seconds, 3)
        stamped = self.log.append(replace(event, step=self.step, agent=self.key, worked=worked), passing=passing)
        if isinstance(stamped, Changed):
            self.start = stamped
        self.apply(stamped)
        return stamped

    def replay(self) -> None:
        """Restore this agent's state from the log.

        A worker's spending in an earlier process counts for its starter, whose budget it shares.
        """
        kept = self._checkpoint
        for event in kept.events(self._kept, self._fingerprint) if kept else self.log.effective():
            if event.agent == self.key:
                self.apply(event, spends=not self.key)
        if self.log.lost:
            self.work.doubt()
        self.guard.mark_again()
        self.step = self.work.step

    def keep(self) -> None:
        """Keep the state as of the newest event now and then, once all of them have been shown."""
        if self._checkpoint is not None:
            self._checkpoint.keep(self._kept, self._fingerprint)

    def _fingerprint(self) -> str:
        """Return a digest of everything besides the events that shapes the state."""
        return repr((self.start.model, self._registry.pages_results, self._registry.specs, self.guard.configuration))

    @property
    def _kept(self) -> Mapping[str, object]:
        return {type(part).__name__: part for part in (*self._parts, self.budget.time)}

    def charge(self, purpose: str, usage: Usage) -> Events:
        """Record spending besides the steps."""
        if usage != Usage():
            yield self.record(Spent(purpose=purpose, usage=usage))

    def heard(self, text: str) -> Events:
        """Record a word of the user to the agent, after the files that it names."""
        for event in self._attached(text):
            yield self.record(event)
        yield self.record(Feedback(text=text))

    def logged(self, call: Call) -> Call:
        """Return the call as the log holds it, without secrets, or the call itself if it has none."""
        args = self.log.masked(call.args)
        return call if args == call.args else replace(call, args=args)

    def failing(self) -> str:
        """Name the goals whose checks fail, in one line."""
        return self.work.failing(self.guard.quote)

    def place_in(self, run: str) -> str:
        """Return the name of this agent of a run in the memory: each agent counts its own steps."""
        return f"{run}:{self.key}" if self.key else run
