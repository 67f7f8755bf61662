"""Manage all sub-agents of a run and what they share: the log, the user, and limits on number and depth.

Only the thread of the run's own agent shows events and asks questions, before each of its steps and while it waits for
others. A sub-agent that has a question waits until that thread has asked it.

A sub-agent is stopped by a flag, which it checks before every step, call, command and question, and for every piece of
a streamed reply. Its own sub-agents stop with it.

If an agent that has read untrusted text starts another, the other counts as having read that text too, since its task
becomes part of its system prompt.

Not covered: a call or command that does not return in time is abandoned to its thread, which ends with the process and
can record nothing more.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from types import TracebackType
from typing import Any, Self

from autoagent.agent.budget import Budget
from autoagent.core.commands import CommandSpec, Proposal, Verdict
from autoagent.core.errors import CommandError, ForModel, ForUser, StateError, StopRun
from autoagent.core.events import Ended, Event, Snapshot, SystemNotice, Undone
from autoagent.core.frozen import dataclass
from autoagent.core.protocols import Authorizer, Listener, Recorder
from autoagent.core.task import Outcome, Status
from autoagent.safety.approval import AuthorizerWrapper
from autoagent.subagents.subagent_state import SubAgentState
from autoagent.subagents.worker import Build, Mailbox, PoolActions, RunningWorker

UNDO_NOTICE = "The user has undone changes to files. Read a file again before you rely on it."
PATIENCE_SECONDS = 3.0  # until a sub-agent that should stop is abandoned to its thread


@dataclass(frozen=True, slots=True)
class Leader:
    """The parts of the run's own agent that its sub-agents share.

    `all_commands` are those that any agent of the run may have, at its level if the run is hierarchical. `undone_at` is
    when the user last undid something of the run, in seconds since the epoch, or 0.
    """

    log: Recorder
    budget: Budget
    commands: Sequence[CommandSpec]
    name: str
    all_commands: Sequence[CommandSpec] = ()
    undone_at: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Oversight:
    """The oversight of sub-agents by the user.

    `authorizer()` makes an authorizer for a sub-agent. `asks` returns whether it may ask the user about a proposal, so
    that `listener` is told first. `show` shows an event. `interruptible` lets Ctrl-C through, and `uninterruptible`
    holds it back, even within `interruptible`.
    """

    authorizer: Callable[[], Authorizer]
    asks: Callable[[Proposal], bool]
    listener: Listener
    show: Callable[[Event], None]
    interruptible: Callable[[], AbstractContextManager[object]] = nullcontext
    uninterruptible: Callable[[], AbstractContextManager[object]] = nullcontext


class WorkerPool:
    """Run the sub-agents of a run. Entering restores them from the log of an earlier process. Leaving ends them all.

    `mailbox` belongs to the run's own agent. At most `at_once` sub-agents run at a time, nested at most `depth` deep.
    If a sub-agent does not stop within `patience` seconds, it is abandoned to its thread. With `resumes`, sub-agents
    left unfinished by an earlier process are restarted by their starters and continue.
    """

    def __init__(
        self,
        build: Build,
        leader: Leader,
        oversight: Oversight,
        *,
        at_once: int,
        depth: int,
        patience: float = PATIENCE_SECONDS,
        resumes: bool = False,
    ) -> None:
        self.unfinished: dict[str, SubAgentState] = {}  # by key, to be restarted
        actions = PoolActions(depth, leader.all_commands, self.unfinished, self.start, self.stop, self.show_and_ask)
        self.mailbox = Mailbox(actions, None, leader.name, leader.commands, leader.budget)
        self.at_once = at_once
        self.oversight = oversight
        self.log = leader.log
        self.undone_at = leader.undone_at
        self._build = build
        self._time = leader.budget.time
        self._patience = patience
        self._resumes = resumes
        self.workers: list[RunningWorker] = []
        self._lock = threading.Lock()  # for appending sub-agents' events, and for `workers`
        self._to_show: deque[Event] = deque()
        self._questions: deque[tuple[RunningWorker, Callable[[], Verdict | str]]] = deque()

    def __enter__(self) -> Self:
        for event in self.log.events(sub_agents=True):
            self.mailbox.add_earlier_event(event)
        if self._resumes:
            self.unfinished.update(self.mailbox.earlier_states)
            self.mailbox.earlier_states.clear()
        for ended in self.mailbox.missing_ends():
            self.log.append(ended)
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop(list(self.workers), "The run has ended.")
        if exc_type is None:
            self._show_until(None)

    # In the thread of the run's own agent ------------------------------------------------------------------------

    def show(self, event: Event) -> None:
        """Show an event of the run's own agent, after all earlier events of the others."""
        self._show_until(event.seq)
        self.oversight.show(event)

    def show_and_ask(self) -> None:
        """Show the sub-agents' events, and ask the user their questions.

        Raises StopRun if the user ends the run, KeyboardInterrupt for Ctrl-C outside a question.
        """
        self._show_until(None)
        while self._questions:
            worker, ask = self._questions[0]
            answer: Verdict | str | StopRun | None = None
            if worker.stop_outcome is None:
                try:
                    with self.oversight.interruptible(), self._time.idle():
                        answer = ask()
                except StopRun as stop:
                    answer = stop
            with self.oversight.uninterruptible():
                self._questions.popleft()
                if answer is not None:
                    worker.answers.put(answer)
            if isinstance(answer, StopRun):
                raise answer

    def _show_until(self, seq: int | None) -> None:
        """Show the sub-agents' events before `seq`, or all of them for None."""
        with self.oversight.uninterruptible():
            with self._lock:  # all earlier events in the log are in the queue by now
                count = sum(seq is None or event.seq < seq for event in self._to_show)
                events = [self._to_show.popleft() for _ in range(count)]
            for event in events:
                self.oversight.show(event)

    # In any thread -----------------------------------------------------------------------------------------------

    def start(self, worker: RunningWorker) -> RunningWorker:
        """Start a sub-agent in its own thread. Return it once it is built and known to its starter.

        A signal interrupts only the wait for the build. It then ends the sub-agent, so that none runs unknown to its
        starter. Raises CommandError if it may not or cannot start. Its budget is then given back.
        """
        in_leader_thread = worker.starter is self.mailbox  # only there do signals arrive
        oversight = self.oversight
        with oversight.uninterruptible() if in_leader_thread else nullcontext():
            worker.approver = oversight.authorizer()
            worker.log, worker.authorizer = _SubAgentLog(self, worker), _PoolAuthorizer(self, worker)
            with self._lock:
                running = sum(other.outcome is None for other in self.workers)
                if running >= self.at_once:
                    worker.budget.give_back()
                    raise CommandError(
                        f"{running} agents are running, as many as AUTOAGENT_AGENTS allows: wait for one of them "
                        "with list_agents, or end one with delete_agent."
                    )
                self.workers.append(worker)
            if worker.earlier_state is not None and self.undone_at > worker.earlier_state.updated:
                worker.mailbox.put(SystemNotice(text=UNDO_NOTICE))
            build_result: queue.SimpleQueue[str] = queue.SimpleQueue()  # why it cannot be built, or ''
            worker.thread = threading.Thread(
                target=self._run, args=(worker, build_result), name=f"agent {worker.key}", daemon=True
            )
            try:
                worker.thread.start()
                with oversight.interruptible() if in_leader_thread else nullcontext():
                    problem = build_result.get()
            except RuntimeError as error:  # the system allows no more threads
                self._end(worker, Outcome(Status.FAILED, str(error)))
                raise CommandError(f"The agent cannot be started: {error}.") from None
            except BaseException:  # Ctrl-C or a signal: its starter will never learn its key
                worker.stop(Outcome(Status.STOPPED, "Its start was interrupted."))
                raise
            if problem:
                raise CommandError(f"The agent cannot be started: {problem}")
            worker.starter.workers[worker.key] = worker
        return worker

    def on_event(self, event: Event) -> None:
        """Tell the running sub-agents of an undo: files may have old contents that no sub-agent wrote."""
        if isinstance(event, Undone):
            for worker in [worker for worker in self.workers if worker.outcome is None]:
                worker.when_undone(event)
                worker.mailbox.put(SystemNotice(text=UNDO_NOTICE))

    def ask_user(self, worker: RunningWorker, ask: Callable[[], Verdict | str]) -> Verdict | str:
        """Have the run's own agent ask the user a question, and return the answer.

        Raises StopRun if this sub-agent or the whole run is to end.
        """
        worker.is_asking = True
        self._questions.append((worker, ask))
        self.mailbox.wake()
        answer = worker.answers.get()
        worker.is_asking = False
        if isinstance(answer, StopRun):
            raise StopRun(answer.outcome)
        return answer

    def record(self, worker: RunningWorker, event: Event, *, passing: bool = False) -> Event:
        """Append a sub-agent's event, to be shown later. Raises StopRun if the sub-agent was abandoned."""
        with self._lock:
            if worker.outcome is not None:
                raise StopRun(worker.outcome)
            stamped = self._append(worker, event, passing=passing)
        self.mailbox.wake()
        return stamped

    def stop(self, workers: Sequence[RunningWorker], reason: str) -> None:
        """End these sub-agents and everything they started. Abandon those that do not stop in time."""
        running = [worker for worker in workers if worker.outcome is None]
        for worker in running:
            worker.stop(Outcome(Status.STOPPED, reason))
        end = time.monotonic() + self._patience
        for worker in running:
            if worker.thread is not None:
                worker.thread.join(max(0.0, end - time.monotonic()))
        for worker in running:
            self._end(worker, Outcome(Status.STOPPED, f"{reason} Its command did not stop in time."))

    def _run(self, worker: RunningWorker, build_result: queue.SimpleQueue[str]) -> None:
        """Run a sub-agent in its thread. An error ends only this sub-agent, and its starter is told."""
        is_built = False
        try:
            with (worker.build or self._build)(worker) as run:
                is_built = True
                build_result.put("")
                for _ in run():
                    pass  # each event was processed when it was recorded
            outcome = worker.state.outcome or Outcome(Status.FAILED, "It ended without giving a reason.")
        except StopRun as stop:
            outcome = stop.outcome
        except (ForUser, ForModel) as error:
            outcome = Outcome(Status.FAILED, str(error))
        except BaseException as error:  # a bug in one agent, or sys.exit() in its tool, must not end the others
            outcome = Outcome(Status.FAILED, f"{type(error).__name__}: {error}")
        self._end(worker, worker.state.outcome or outcome)
        if not is_built:
            build_result.put(outcome.reason)

    def _end(self, worker: RunningWorker, outcome: Outcome) -> None:
        """End a sub-agent once: log it, give its budget back, and tell its starter."""
        worker.mailbox.close()
        with self._lock:
            if worker.outcome is not None:
                return
            if worker.state.start and worker.state.outcome is None:
                with contextlib.suppress(StateError):  # the run's own agent fails with the same error
                    self._append(worker, Ended(status=outcome.status, reason=outcome.reason))
            worker.outcome = outcome
        worker.budget.give_back()
        if worker.is_awaited:
            worker.starter.wake()
        elif worker.state.start:
            worker.starter.put(worker.completion_message())

    def _append(self, worker: RunningWorker, event: Event, *, passing: bool = False) -> Event:
        """Append an event. The caller holds the lock."""
        if isinstance(event, Snapshot) and worker.mailbox.isolation.workspace is not None:
            event = replace(event, apart=True)
        event = replace(event, agent=worker.key, step=max(event.step, worker.state.step))
        stamped = self.log.append(event, passing=passing)
        worker.state.add(stamped)
        self._to_show.append(stamped)
        return stamped


class LeaderAuthorizer(AuthorizerWrapper):
    """Authorize calls of the run's own agent. Ctrl-C also revokes the advance approvals of the pool's sub-agents."""

    def __init__(self, inner: Authorizer, pool: WorkerPool) -> None:
        super().__init__(inner)
        self._pool = pool

    def interrupted(self) -> str:
        for worker in list(self._pool.workers):
            worker.approver = self._pool.oversight.authorizer()
        return self._inner.interrupted()


class _SubAgentLog:
    """The run's log as a sub-agent sees it. Satisfies Recorder."""

    def __init__(self, pool: WorkerPool, worker: RunningWorker) -> None:
        self._pool = pool
        self._worker = worker

    def __getattr__(self, name: str) -> Any:
        return getattr(self._pool.log, name)

    def append(self, event: Event, *, passing: bool = False) -> Event:
        return self._pool.record(self._worker, event, passing=passing)

    def events(self, *, sub_agents: bool = False) -> Iterator[Event]:
        """Yield nothing: only the run's own agent follows other agents."""
        return iter(())

    def effective(self) -> Iterator[Event]:
        """Yield this agent's events from an earlier process, if it continues from there."""
        if self._worker.earlier_state is None:
            return iter(())
        events = self._pool.log.events(sub_agents=not self._pool.undone_at)
        return (event for event in events if event.agent == self._worker.key or isinstance(event, Undone))


class _PoolAuthorizer:
    """Authorize a sub-agent's calls, passing its questions to the pool."""

    def __init__(self, pool: WorkerPool, worker: RunningWorker) -> None:
        self._pool = pool
        self._worker = worker

    def decide(self, proposal: Proposal) -> Verdict:
        worker, oversight = self._worker, self._pool.oversight
        proposal = replace(proposal, agent=worker.state.label)
        if not oversight.asks(proposal):
            return worker.approver.decide(proposal)

        def ask() -> Verdict:
            oversight.listener.proposed(proposal)
            return worker.approver.decide(proposal)

        answer = self._pool.ask_user(worker, ask)
        assert isinstance(answer, Verdict)
        return answer

    def interrupted(self) -> str:
        return ""  # Ctrl-C reaches only the run's own agent

    def accepts(self, claims: str) -> Verdict:
        """Accept nothing, as nobody is there to ask."""
        return Verdict(False, "nobody")

    def waits_on(self, reason: str) -> bool:
        return False
