"""Define a sub-agent of this process and its mailbox: its parts, its own sub-agents, and its messages."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace

from autoagent.agent.budget import Budget
from autoagent.core.commands import CommandSpec, Proposal, ResultMeta, Verdict
from autoagent.core.errors import CommandError, StopRun
from autoagent.core.events import AgentMessage, Ended, Event
from autoagent.core.frozen import dataclass
from autoagent.core.levels import LEVELS, without_thinking
from autoagent.core.memory import Origin
from autoagent.core.protocols import Authorizer, Recorder, SubAgent
from autoagent.core.task import Goal, Outcome, Status, Task
from autoagent.subagents.subagent_state import SubAgentState
from autoagent.workspace.gate import Workspace

BUDGET_SHARE = 0.25  # of the starter's remaining budget, per sub-agent
MAX_WAIT_SECONDS = 600.0  # of `listed`
MAX_NAME_CHARACTERS = 40
POLL_SECONDS = 1.0  # after which a waiting agent checks again


@dataclass(frozen=True, slots=True)
class Isolation:
    """The separation of a worker from its fellow workers.

    `workspace` is its own copy, or None for the run's. `hides` returns whether a place in the memory belongs to a
    fellow worker.
    """

    workspace: Workspace | None = None
    hides: Callable[[str], bool] = lambda place: False


NO_ISOLATION = Isolation()


Build = Callable[["RunningWorker"], AbstractContextManager[Callable[[], Iterator[Event]]]]
"""Builds a sub-agent in the thread that will run it, and finally closes what was opened for it.

It sets the sub-agent's `origin`, and returns the function that runs it and yields its events, each already logged.
Raises CommandError or ForUser if it cannot be built.
"""


@dataclass(frozen=True, slots=True)
class PoolActions:
    """The services of the pool for a mailbox.

    `all_commands` are those of all levels, `depth` is the deepest nesting. `unfinished` holds the states of an earlier
    process's unfinished sub-agents, by key. `start` starts a sub-agent, and gives its budget back on failure. `stop`
    ends sub-agents and everything that they started. `show_and_ask` shows their events and asks their questions.
    """

    depth: int
    all_commands: Sequence[CommandSpec]
    unfinished: Mapping[str, SubAgentState]
    start: Callable[[RunningWorker], RunningWorker]
    stop: Callable[[Sequence[RunningWorker], str], None]
    show_and_ask: Callable[[], None]


class Mailbox:
    """An agent's messages and sub-agents. Satisfies SubAgents and Inbox.

    `worker` is that of the agent, None for the run's own agent. `isolation` applies to the agents that it starts.
    `workers` are the sub-agents started in this process, by key, and `earlier_states` are the states of those started
    by an earlier process. Only the agent's thread uses a mailbox, but any thread may put events into it or wake it.
    """

    def __init__(
        self,
        pool: PoolActions,
        worker: RunningWorker | None,
        name: str,
        commands: Sequence[CommandSpec],
        budget: Budget,
    ) -> None:
        self.pool = pool
        self.isolation = NO_ISOLATION
        self.workers: dict[str, RunningWorker] = {}
        self.earlier_states: dict[str, SubAgentState] = {}
        self._worker = worker
        self._name = name
        self._commands = commands
        self._budget = budget
        self._depth = 0 if worker is None else worker.state.key.count(".") + 1
        self._start_count = 0
        self._inbox: deque[Event] = deque()
        self._wakeups: queue.SimpleQueue[None] = queue.SimpleQueue()

    def start(
        self, name: str, task: str, prompt: str, *, commands: Sequence[str] = (), origin: Origin | None = None
    ) -> SubAgent:
        name, task = " ".join(name.split())[:MAX_NAME_CHARACTERS], " ".join(task.split())
        if not (name and prompt.strip()):
            raise CommandError("An agent needs a name, and a prompt that says what it is to do.")
        if self._depth >= self.pool.depth:
            raise CommandError(
                f"Agents start others at most {self.pool.depth} deep (AUTOAGENT_AGENTS_DEPTH); do it yourself."
            )
        specs, budget = self._commands_for(commands), self._share_of_budget(BUDGET_SHARE)
        self._start_count += 1
        key = f"{self._worker.key}.{self._start_count}" if self._worker else str(self._start_count)
        worker_task = Task(name, f"who works for {self._name}: {task}", (Goal(prompt.strip()),), budget.limits.usd)
        worker = RunningWorker(self, key, worker_task, specs, budget, origin or Origin())
        return self.pool.start(worker).describe()

    def message(self, key: str, text: str, *, origin: Origin | None = None) -> SubAgent:
        agent, worker = self._find(key).describe(), self.workers.get(key.strip())
        if worker is None or worker.outcome is not None:
            raise CommandError(f"{agent.name} ({agent.key}) has ended ({agent.status}); start another agent.")
        sender = f"{self._name}, who started you"
        worker.mailbox.put(AgentMessage(sender=sender, text=text, data=(origin or Origin()).labels.to_json()))
        return agent

    def listed(self, wait: float = 0.0) -> Sequence[SubAgent]:
        end = time.monotonic() + min(wait, MAX_WAIT_SECONDS)
        running = [worker for worker in self.workers.values() if worker.outcome is None]
        while True:
            self._attend()
            seconds_left = end - time.monotonic()
            if seconds_left <= 0 or not running or self._inbox or any(worker.outcome for worker in running):
                earlier_agents = [state.describe() for state in self.earlier_states.values()]
                return [*earlier_agents, *(worker.describe() for worker in self.workers.values())]
            with contextlib.suppress(queue.Empty):
                self._wakeups.get(timeout=seconds_left)

    def pause(self, seconds: float) -> None:
        """Wait for this long, or until woken. Raises StopRun if this agent is to end."""
        self._attend()
        with contextlib.suppress(queue.Empty):
            self._wakeups.get(timeout=seconds)

    def end(self, key: str) -> SubAgent:
        agent = self._find(key)
        if worker := self.workers.get(key.strip()):
            self.pool.stop([worker], f"Ended by {self._name}.")
        return agent.describe()

    def delegate(self, task: str, context: str, *, call: str, origin: Origin | None = None) -> tuple[str, ResultMeta]:
        if self._depth + 1 >= len(LEVELS):
            raise CommandError("There is no level below; do it yourself.")
        level = LEVELS[self._depth + 1]
        key = f"{self._worker.key}.{call}" if self._worker else call
        state = self.pool.unfinished.get(key)
        if state is not None and state.is_decided:
            outcome, origin = state.outcome, state.origin
        else:
            goal = Goal("\n\n".join(filter(None, (task.strip(), context.strip(), level.result_instruction))))
            budget = self._share_of_budget(level.share)
            commands = tuple(spec for spec in self.pool.all_commands if level.name in spec.levels)
            worker_task = Task(level.title, level.role, (goal,), budget.limits.usd)
            worker = RunningWorker(self, key, worker_task, commands, budget, origin or Origin())
            worker.is_awaited = True
            self.pool.start(worker)
            try:
                while worker.outcome is None:
                    self.pause(POLL_SECONDS)
            except BaseException:  # Ctrl-C, or the end of the run: nobody would read the result
                self.pool.stop([worker], f"{self._name} was interrupted.")
                raise
            state, outcome, origin = worker.state, worker.outcome, worker.origin()
        assert outcome is not None
        if outcome.status == Status.SETUP:
            raise StopRun(outcome)
        if outcome.status != Status.FINISHED:
            raise CommandError(f"The {level.name} has not done it ({outcome.status}): {outcome.reason}")
        return without_thinking(state.last_message), replace(origin.labels, changed=tuple(state.changed))

    def take(self) -> Sequence[Event]:
        self._attend()
        return self._take_all()

    def close(self) -> Sequence[Event]:
        self.pool.stop(list(self.workers.values()), "The agent that started it has ended.")
        return self._take_all()

    def put(self, event: Event) -> None:
        """Leave a message for the agent."""
        self._inbox.append(event)
        self.wake()

    def wake(self) -> None:
        """Wake the agent if it is waiting."""
        if self._wakeups.empty():
            self._wakeups.put(None)

    def add_earlier_event(self, event: Event) -> None:
        """Apply an event of a sub-agent from an earlier process."""
        self._budget.add_spending(event)
        self.earlier_states.setdefault(event.agent, SubAgentState(event.agent)).add(event)
        if event.agent.isdecimal():
            self._start_count = max(self._start_count, int(event.agent))

    def missing_ends(self) -> list[Ended]:
        """Return the Ended events missing after a crash. Tell the agent of its own sub-agents' ends."""
        end_events = []
        for key, state in self.earlier_states.items():
            if state.outcome is None:
                reason = "It ended when the program did."
                ended = Ended(agent=key, step=state.step, status=Status.INTERRUPTED, reason=reason)
                state.add(ended)
                if key.isdecimal():
                    self.put(AgentMessage(sender=state.label, text="I was cut off: I ended when the program did."))
                end_events.append(ended)
        self.earlier_states = {key: state for key, state in self.earlier_states.items() if key.isdecimal()}
        return end_events

    def _attend(self) -> None:
        if self._worker is None:
            self.pool.show_and_ask()
        else:
            self._worker.check()

    def _share_of_budget(self, part: float) -> Budget:
        budget = self._budget.share(part, time.time())
        if budget is None:
            raise CommandError("Too little is left of this run's limits for another agent; do it yourself.")
        return budget

    def _take_all(self) -> list[Event]:
        return [self._inbox.popleft() for _ in range(len(self._inbox))]

    def _find(self, key: str) -> RunningWorker | SubAgentState:
        found = self.workers.get(key.strip()) or self.earlier_states.get(key.strip())
        if found is None:
            keys = ", ".join([*self.earlier_states, *self.workers])
            hint = f"the keys are {keys}." if keys else "you have started none."
            raise CommandError(f"There is no agent {key!r}; {hint}")
        return found

    def _commands_for(self, requested_names: Sequence[str]) -> tuple[CommandSpec, ...]:
        """Return a sub-agent's commands: the requested ones, or all of this agent's, plus the one that ends its run.

        Commands that ask the user, or do not declare whether they do, are reserved for the run's own agent.
        """
        names = {name: spec.name for spec in self._commands for name in (spec.name, *spec.aliases)}
        if unknown := [name for name in requested_names if name not in names]:
            available_names = ", ".join(spec.name for spec in self._commands)
            raise CommandError(f"You have no command {unknown[0]!r} to hand on; yours are: {available_names}.")
        chosen_names = {names[name] for name in requested_names or names}
        is_deepest = self._depth + 1 >= self.pool.depth
        return tuple(
            spec
            for spec in self._commands
            if (effects := spec.effects) is not None
            and (spec.name in chosen_names or effects.ends_run)
            and not effects.asks_user
            and not (is_deepest and spec.category == "agents")
        )


class RunningWorker:
    """A sub-agent of this process: the parts to build it with, and its state.

    `stop_outcome` is set when it is to end, and `outcome` once it has ended. `task_origin` is the source of its task,
    and `origin` returns the source of its words after all it has read. `earlier_state` is its state in an earlier
    process, if it continues from there. `authorizer` refers its questions to the run's own agent, where `approver`
    decides them. The pool sets both, and `log`. `interruptible` wraps everything that may be interrupted, and
    `when_stopped` registers a function that releases a waiting agent from another thread. `build`, if any, builds a
    runner other than an Agent. The end of a sub-agent that `is_awaited` is not announced.
    """

    log: Recorder
    authorizer: Authorizer
    approver: Authorizer
    build: Build | None = None
    is_awaited = False

    def __init__(
        self, starter: Mailbox, key: str, task: Task, commands: tuple[CommandSpec, ...], budget: Budget, origin: Origin
    ) -> None:
        self.key = key
        self.starter = starter
        self.budget = budget
        self.earlier_state = starter.pool.unfinished.get(key)
        self.state = self.earlier_state or SubAgentState(key, task)
        self.state.outcome = None
        self.task = self.state.task
        self.mailbox = Mailbox(starter.pool, self, task.name, commands, budget)
        self.mailbox.isolation = starter.isolation
        self.listener = _StoppableListener(self.check)
        self.answers: queue.SimpleQueue[Verdict | str | StopRun] = queue.SimpleQueue()
        self.is_asking = False
        self.stop_outcome: Outcome | None = None
        self.outcome: Outcome | None = None
        self.thread: threading.Thread | None = None
        self.task_origin = origin
        self.origin: Callable[[], Origin] = lambda: origin
        self.commands = tuple(spec.name for spec in commands)
        self._stop_callbacks: list[Callable[[], object]] = []
        self.when_stopped = self._stop_callbacks.append
        self.when_undone: Callable[[Event], None] = lambda event: None

    def check(self) -> None:
        """Raise StopRun if this sub-agent is to end."""
        if self.stop_outcome is not None:
            raise StopRun(self.stop_outcome)

    def stop(self, outcome: Outcome) -> None:
        """End this sub-agent and everything that it started. Any thread may call this."""
        self.stop_outcome = self.stop_outcome or outcome
        self.answers.put(StopRun(outcome))
        self.mailbox.wake()
        for worker in list(self.mailbox.workers.values()):
            worker.stop(Outcome(Status.STOPPED, "The agent that started it has ended."))
        for release in self._stop_callbacks:
            with contextlib.suppress(Exception):  # if that fails, the sub-agent is abandoned to its thread
                release()

    def describe(self) -> SubAgent:
        """Return the record of this sub-agent as of now."""
        record = replace(self.state.describe(time.time()), origin=self.origin())
        if self.outcome is not None:
            return replace(record, status=self.outcome.status, reason=self.outcome.reason)
        return replace(record, status="asking") if self.is_asking else record

    def completion_message(self) -> AgentMessage:
        """Return the message that tells its starter of its end."""
        record, changed = self.describe(), list(self.state.changed)
        files = f" Files changed: {', '.join(changed)}." if changed else ""
        steps = f"{record.steps} step{'' if record.steps == 1 else 's'}"
        text = f"I have ended ({record.status}) after {steps}: {record.reason}{files}"
        meta = replace(record.origin.labels, changed=tuple(changed))
        return AgentMessage(sender=self.state.label, text=text, data=meta.to_json())

    @contextmanager
    def interruptible(self) -> Iterator[None]:
        """Wrap a block that may be interrupted. Raises StopRun if the agent is to end."""
        self.check()
        yield


class _StoppableListener:
    """A listener that shows nothing, and interrupts the reply if the sub-agent is to end."""

    def __init__(self, check: Callable[[], None]) -> None:
        self._check = check

    def text(self, delta: str) -> None:
        self._check()

    def waiting(self, reason: str, seconds: float, until: float) -> None:
        self._check()

    def check_time_left(self) -> float:
        self._check()
        return float("inf")

    def working(self, what: str, seconds: float) -> None:
        """Ignore the silence. This may be a model's own thread, where nothing can be interrupted."""

    def proposed(self, proposal: Proposal) -> None:
        """Ignore the proposal, as it is shown when the user is asked."""
