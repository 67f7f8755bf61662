"""One sub-agent of this process: what it is built with, where it stands, whether it is to end."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from autoagent.core.agents import SubAgent
from autoagent.core.commands import Call, CommandSpec, Proposal, Verdict
from autoagent.core.errors import StopRun
from autoagent.core.events import AgentMessage, Event, Returned, RunStarted
from autoagent.core.memory import Origin
from autoagent.core.outcome import Outcome
from autoagent.core.protocols import Authorizer, Listener, Recorder
from autoagent.core.task import Task
from autoagent.runs.budget import Budget
from autoagent.runs.subagent_state import SubAgentState
from autoagent.subagents.mailbox import Mailbox

if TYPE_CHECKING:
    from autoagent.subagents.pool import WorkerPool


class Runner(Protocol):
    """What works in a worker's thread: an Agent, or another source of events that are written before they are given."""

    def run(self) -> Iterator[Event]: ...


@dataclass(frozen=True, slots=True)
class WorkerSpec:
    """The parts that a sub-agent is built with.

    `place` names it in the memory; `origin` is what its task comes from. `interruptible` goes around whatever may be
    cut short, and `when_stopped` takes what lets go, called from another thread, of what the agent may be waiting for.
    `began` is how it began in an earlier process, if it is to go on from there.
    """

    key: str
    place: str
    task: Task
    commands: tuple[str, ...]
    origin: Origin
    budget: Budget
    log: Recorder
    mailbox: Mailbox
    authorizer: Authorizer
    listener: Listener
    interruptible: Callable[[], AbstractContextManager[object]]
    when_stopped: Callable[[Callable[[], object]], None]
    began: RunStarted | None = None


@dataclass(frozen=True, slots=True)
class Worker:
    """A sub-agent ready to run; `origin()` is what its words come from, after all it has read."""

    agent: Runner
    origin: Callable[[], Origin] = Origin


Build = Callable[[WorkerSpec], AbstractContextManager[Worker]]
"""Builds a sub-agent in the thread that will run it, and puts away at its end what was opened for it.

Raises CommandError, ForUser where it cannot be built.
"""


class RunningWorker:
    """A sub-agent of this process. `outcome` is set, once, when it is over; `stopping` when it is to end."""

    def __init__(
        self,
        pool: WorkerPool,
        starter: Mailbox,
        key: str,
        task: Task,
        commands: tuple[CommandSpec, ...],
        budget: Budget,
        origin: Origin,
    ) -> None:
        self.key = key
        self.starter = starter
        self.budget = budget
        self.former = pool.former(key)
        self.state = self.former or SubAgentState(key, task)
        self.state.outcome = None
        self.mailbox = Mailbox(pool, self, task.name, commands, budget)
        self.authorizer = pool.authorizer()
        self.answers: queue.SimpleQueue[Verdict | str | StopRun] = queue.SimpleQueue()
        self.asking = False
        self.reports = True
        self.stopping: Outcome | None = None
        self.outcome: Outcome | None = None
        self.thread: threading.Thread | None = None
        self.origin: Callable[[], Origin] = lambda: origin
        self._pool = pool
        self._commands = commands
        self._lets_go: list[Callable[[], object]] = []

    def order(self) -> WorkerSpec:
        """Return what it is to be built with."""
        log = _Log(self._pool, self)
        return WorkerSpec(
            key=self.key,
            place=f"{log.run}:{self.key}",
            task=self.state.task,
            commands=tuple(spec.name for spec in self._commands),
            origin=self.origin(),
            budget=self.budget,
            log=log,
            mailbox=self.mailbox,
            authorizer=_ReferringAuthorizer(self._pool, self),
            listener=_StoppableListener(self.check),
            interruptible=self._interruptible,
            when_stopped=self._lets_go.append,
            began=self.former.start if self.former else None,
        )

    def check(self) -> None:
        """Raise StopRun if it is to end."""
        if self.stopping is not None:
            raise StopRun(self.stopping)

    def stop(self, outcome: Outcome) -> None:
        """Have it end, and all it has started; from any thread."""
        self.stopping = self.stopping or outcome
        self.answers.put(StopRun(outcome))
        self.mailbox.wake()
        for member in self.mailbox.members:
            member.stop(Outcome("stopped", "The agent that started it has ended."))
        for let_go in self._lets_go:
            with contextlib.suppress(Exception):  # whatever fails to stop is left to its thread
                let_go()

    def now(self) -> SubAgent:
        """Return its record at this moment."""
        found = replace(self.state.now(time.time()), origin=self.origin())
        if self.outcome is not None:
            return replace(found, status=self.outcome.status, reason=self.outcome.reason)
        return replace(found, status="asking") if self.asking else found

    def completion_message(self) -> AgentMessage:
        """Return what its starter reads once it is over."""
        found, changed = self.now(), list(self.state.changed)
        files = f" Files changed: {', '.join(changed)}." if changed else ""
        steps = f"{found.steps} step{'' if found.steps == 1 else 's'}"
        text = f"I have ended ({found.status}) after {steps}: {found.reason}{files}"
        meta = replace(found.origin.labels, changed=tuple(changed))
        return AgentMessage(sender=self.state.label, text=text, data=meta.to_json())

    @contextmanager
    def _interruptible(self) -> Iterator[None]:
        self.check()
        yield


class _Log:
    """The run's log as a sub-agent has it; satisfies Recorder."""

    def __init__(self, pool: WorkerPool, member: RunningWorker) -> None:
        self._pool = pool
        self._member = member

    @property
    def run(self) -> str:
        return self._pool.log.run

    def masked(self, value: Any) -> Any:
        return self._pool.log.masked(value)

    def append(self, event: Event, *, passing: bool = False) -> Event:
        return self._pool.record(self._member, event)

    def events(self, *, others: bool = False) -> Iterator[Event]:
        """Yield nothing: what others do is the business of the run's own agent."""
        return iter(())

    def returned(self, step: int, agent: str = "") -> Returned | None:
        return self._pool.log.returned(step, agent)

    def results(self, agent: str = "") -> Iterator[tuple[Call, Returned]]:
        return self._pool.log.results(agent)

    def effective(self) -> Iterator[Event]:
        """Yield its events of an earlier process, if it goes on from there."""
        if self._member.former is None:
            return iter(())
        return (event for event in self._pool.log.events(others=True) if event.agent == self._member.key)


class _ReferringAuthorizer:
    """A sub-agent's authorizer: passes its questions to the pool."""

    def __init__(self, pool: WorkerPool, member: RunningWorker) -> None:
        self._pool = pool
        self._member = member

    def decide(self, proposal: Proposal) -> Verdict:
        return self._pool.ask(self._member, proposal)

    def interrupted(self) -> str:
        return ""  # Ctrl-C reaches the run's own agent alone

    def waits_on(self, reason: str) -> bool:
        return False


class _StoppableListener:
    """A sub-agent's listener: shows nothing, and cuts short what it listens to if the agent is to end."""

    def __init__(self, check: Callable[[], None]) -> None:
        self._check = check

    def text(self, delta: str) -> None:
        self._check()

    def waiting(self, reason: str, seconds: float, until: float) -> None:
        self._check()

    def heed(self) -> float:
        self._check()
        return float("inf")

    def working(self, what: str, seconds: float) -> None:
        """Ignore the silence: this may come from a thread of the model's, where nothing can be cut short."""

    def proposed(self, proposal: Proposal) -> None:
        """Ignore the proposal: it is shown once it is asked about."""
