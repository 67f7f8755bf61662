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

BUDGET_SHARE = 0.25  # of its starter's remaining budget, per sub-agent
MAX_WAIT_SECONDS = 600.0  # of `listed`
NAME_CHARACTERS = 40  # of a sub-agent, at most
POLL_SECONDS = 1.0  # at most, until a waiting agent checks again


@dataclass(frozen=True, slots=True)
class Apart:
    """Keep a worker apart from its fellow workers.

    `workspace` is its own copy, or None for the run's. `hides` tells whether a place in the memory belongs to a fellow
    worker.
    """

    workspace: Workspace | None = None
    hides: Callable[[str], bool] = lambda place: False


TOGETHER = Apart()


Build = Callable[["RunningWorker"], AbstractContextManager[Callable[[], Iterator[Event]]]]
"""Builds a sub-agent in the thread that will run it, and closes at its end what was opened for it.

It sets the sub-agent's `origin`, and returns the function that runs it and yields its events, each already logged.
Raises CommandError or ForUser if it cannot be built.
"""


@dataclass(frozen=True, slots=True)
class PoolActions:
    """Hold the pool's services for a mailbox.

    `offered` are the commands of all levels, `depth` is the deepest nesting. `former` holds the states of an earlier
    process's unfinished sub-agents, by key. `start` starts a sub-agent, and gives its budget back on failure. `stop`
    ends sub-agents with all they have started. `attend` shows the events of the others.
    """

    depth: int
    offered: Sequence[CommandSpec]
    former: Mapping[str, SubAgentState]
    start: Callable[[RunningWorker], RunningWorker]
    stop: Callable[[Sequence[RunningWorker], str], None]
    attend: Callable[[], None]


class Mailbox:
    """Hold an agent's messages and sub-agents. Satisfies SubAgents, and has an Inbox.

    `member` is the agent's own worker, None for the run's own agent. `apart` applies to the agents that it starts.
    `members` are the sub-agents started in this process, by key, and `former` are those of an earlier process. The
    agent's own thread uses it. Other threads put events here, and wake it.
    """

    def __init__(
        self,
        pool: PoolActions,
        member: RunningWorker | None,
        name: str,
        commands: Sequence[CommandSpec],
        budget: Budget,
    ) -> None:
        self.apart = TOGETHER
        self.pool = pool
        self._member = member
        self._name = name
        self._commands = commands
        self._budget = budget
        self._depth = 0 if member is None else member.state.key.count(".") + 1
        self.members: dict[str, RunningWorker] = {}
        self.former: dict[str, SubAgentState] = {}
        self._started = 0
        self._inbox: deque[Event] = deque()
        self._wakeups: queue.SimpleQueue[None] = queue.SimpleQueue()

    def start(
        self, name: str, task: str, prompt: str, *, commands: Sequence[str] = (), origin: Origin | None = None
    ) -> SubAgent:
        name, task = " ".join(name.split())[:NAME_CHARACTERS], " ".join(task.split())
        if not (name and prompt.strip()):
            raise CommandError("An agent needs a name, and a prompt that says what it is to do.")
        if self._depth >= self.pool.depth:
            raise CommandError(
                f"Agents start others at most {self.pool.depth} deep (AUTOAGENT_AGENTS_DEPTH); do it yourself."
            )
        commands_of_its_own, budget = self._commands_for(commands), self._share_of_budget(BUDGET_SHARE)
        self._started += 1
        key = f"{self._member.key}.{self._started}" if self._member else str(self._started)
        described = Task(name, f"who works for {self._name}: {task}", (Goal(prompt.strip()),), budget.limits.usd)
        worker = RunningWorker(self, key, described, commands_of_its_own, budget, origin or Origin())
        return self.pool.start(worker).now()

    def message(self, key: str, text: str, *, origin: Origin | None = None) -> SubAgent:
        now, member = self._find(key).now(), self.members.get(key.strip())
        if member is None or member.outcome is not None:
            raise CommandError(f"{now.name} ({now.key}) has ended ({now.status}); start another agent.")
        sender = f"{self._name}, who started you"
        member.mailbox.put(AgentMessage(sender=sender, text=text, data=(origin or Origin()).labels.to_json()))
        return now

    def listed(self, wait: float = 0.0) -> Sequence[SubAgent]:
        end = time.monotonic() + min(wait, MAX_WAIT_SECONDS)
        running = [member for member in self.members.values() if member.outcome is None]
        while True:
            self._attend()
            left = end - time.monotonic()
            if left <= 0 or not running or self._inbox or any(member.outcome for member in running):
                former = [state.now() for state in self.former.values()]
                return [*former, *(member.now() for member in self.members.values())]
            with contextlib.suppress(queue.Empty):
                self._wakeups.get(timeout=left)

    def pause(self, seconds: float) -> None:
        """Wait, or less if woken. Raises StopRun if this agent is to end."""
        self._attend()
        with contextlib.suppress(queue.Empty):
            self._wakeups.get(timeout=seconds)

    def end(self, key: str) -> SubAgent:
        found = self._find(key)
        if member := self.members.get(key.strip()):
            self.pool.stop([member], f"Ended by {self._name}.")
        return found.now()

    def delegate(self, task: str, context: str, *, call: str, origin: Origin | None = None) -> tuple[str, ResultMeta]:
        if self._depth + 1 >= len(LEVELS):
            raise CommandError("There is no level below; do it yourself.")
        level = LEVELS[self._depth + 1]
        key = f"{self._member.key}.{call}" if self._member else call
        state = self.pool.former.get(key)
        if state is not None and state.is_decided:
            outcome, origin = state.outcome, state.origin
        else:
            goal = Goal("\n\n".join(filter(None, (task.strip(), context.strip(), level.ends))))
            budget = self._share_of_budget(level.share)
            commands = tuple(spec for spec in self.pool.offered if level.name in spec.levels)
            described = Task(level.title, level.role, (goal,), budget.limits.usd)
            worker = RunningWorker(self, key, described, commands, budget, origin or Origin())
            worker.reports = False
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
        return without_thinking(state.said), replace(origin.labels, changed=tuple(state.changed))

    def take(self) -> Sequence[Event]:
        self._attend()
        return self._take_all()

    def close(self) -> Sequence[Event]:
        self.pool.stop(list(self.members.values()), "The agent that started it has ended.")
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
        self.former.setdefault(event.agent, SubAgentState(event.agent)).add(event)
        if event.agent.isdecimal():
            self._started = max(self._started, int(event.agent))

    def missing_ends(self) -> list[Ended]:
        """Return the Ended events missing after a crash. Tell the agent of its own sub-agents' ends."""
        missing = []
        for key, state in self.former.items():
            if state.outcome is None:
                reason = "It ended when the program did."
                ended = Ended(agent=key, step=state.step, status=Status.INTERRUPTED, reason=reason)
                state.add(ended)
                if key.isdecimal():
                    self.put(AgentMessage(sender=state.label, text="I was cut off: I ended when the program did."))
                missing.append(ended)
        self.former = {key: state for key, state in self.former.items() if key.isdecimal()}
        return missing

    def _attend(self) -> None:
        if self._member is None:
            self.pool.attend()
        else:
            self._member.check()

    def _share_of_budget(self, part: float) -> Budget:
        budget = self._budget.share(part, time.time())
        if budget is None:
            raise CommandError("Too little is left of this run's limits for another agent; do it yourself.")
        return budget

    def _take_all(self) -> list[Event]:
        return [self._inbox.popleft() for _ in range(len(self._inbox))]

    def _find(self, key: str) -> RunningWorker | SubAgentState:
        found = self.members.get(key.strip()) or self.former.get(key.strip())
        if found is None:
            known = ", ".join([*self.former, *self.members])
            hint = f"the keys are {known}." if known else "you have started none."
            raise CommandError(f"There is no agent {key!r}; {hint}")
        return found

    def _commands_for(self, wanted: Sequence[str]) -> tuple[CommandSpec, ...]:
        """Return a sub-agent's commands: the `wanted` ones, or all of this agent's, plus the one that ends its run.

        Commands that ask the user, or do not declare whether they do, are reserved for the run's own agent.
        """
        names = {name: spec.name for spec in self._commands for name in (spec.name, *spec.aliases)}
        if unknown := [name for name in wanted if name not in names]:
            own = ", ".join(spec.name for spec in self._commands)
            raise CommandError(f"You have no command {unknown[0]!r} to hand on; yours are: {own}.")
        chosen = {names[name] for name in wanted or names}
        deepest = self._depth + 1 >= self.pool.depth
        return tuple(
            spec
            for spec in self._commands
            if (effects := spec.effects) is not None
            and (spec.name in chosen or effects.ends_run)
            and not effects.asks_user
            and not (deepest and spec.category == "agents")
        )


class RunningWorker:
    """Hold a sub-agent of this process: the parts to build it with, and its state.

    `outcome` is set once when it has ended, `stopping` when it is to end. `task_origin` is the source of its task, and
    `origin` returns the source of its words, given all it has read. `began` is its start in an earlier process, if it
    continues from there. `authorizer` refers its questions to the run's own agent, where `approver` decides them. The
    pool sets both, and `log`. `interruptible` wraps everything that may be interrupted, and `when_stopped` registers a
    function that releases a waiting agent from another thread. `build`, if any, builds a runner other than an Agent. A
    sub-agent that does not report is waited for, and its end is not announced.
    """

    log: Recorder
    authorizer: Authorizer
    approver: Authorizer
    build: Build | None = None
    reports = True

    def __init__(
        self, starter: Mailbox, key: str, task: Task, commands: tuple[CommandSpec, ...], budget: Budget, origin: Origin
    ) -> None:
        self.key = key
        self.starter = starter
        self.budget = budget
        self.former = starter.pool.former.get(key)
        self.state = self.former or SubAgentState(key, task)
        self.state.outcome = None
        self.task = self.state.task
        self.began = self.former.start if self.former else None
        self.mailbox = Mailbox(starter.pool, self, task.name, commands, budget)
        self.mailbox.apart = starter.apart
        self.listener = _StoppableListener(self.check)
        self.answers: queue.SimpleQueue[Verdict | str | StopRun] = queue.SimpleQueue()
        self.asking = False
        self.stopping: Outcome | None = None
        self.outcome: Outcome | None = None
        self.thread: threading.Thread | None = None
        self.task_origin = origin
        self.origin: Callable[[], Origin] = lambda: origin
        self.commands = tuple(spec.name for spec in commands)
        self._lets_go: list[Callable[[], object]] = []
        self.when_stopped = self._lets_go.append
        self.when_undone: Callable[[Event], None] = lambda event: None

    def check(self) -> None:
        """Raise StopRun if it is to end."""
        if self.stopping is not None:
            raise StopRun(self.stopping)

    def stop(self, outcome: Outcome) -> None:
        """End it and all it has started. Any thread may call this."""
        self.stopping = self.stopping or outcome
        self.answers.put(StopRun(outcome))
        self.mailbox.wake()
        for member in list(self.mailbox.members.values()):
            member.stop(Outcome(Status.STOPPED, "The agent that started it has ended."))
        for let_go in self._lets_go:
            with contextlib.suppress(Exception):  # a failure to stop leaves it to its thread
                let_go()

    def now(self) -> SubAgent:
        """Return its record at this moment."""
        found = replace(self.state.now(time.time()), origin=self.origin())
        if self.outcome is not None:
            return replace(found, status=self.outcome.status, reason=self.outcome.reason)
        return replace(found, status="asking") if self.asking else found

    def completion_message(self) -> AgentMessage:
        """Return the message to its starter after it has ended."""
        found, changed = self.now(), list(self.state.changed)
        files = f" Files changed: {', '.join(changed)}." if changed else ""
        steps = f"{found.steps} step{'' if found.steps == 1 else 's'}"
        text = f"I have ended ({found.status}) after {steps}: {found.reason}{files}"
        meta = replace(found.origin.labels, changed=tuple(changed))
        return AgentMessage(sender=self.state.label, text=text, data=meta.to_json())

    @contextmanager
    def interruptible(self) -> Iterator[None]:
        """Enter a block that may be interrupted. Raises StopRun if the agent is to end."""
        self.check()
        yield


class _StoppableListener:
    """Listen for a sub-agent: show nothing, and interrupt the reply if the agent is to end."""

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
        """Ignore the silence. This may be a model's own thread, where nothing can be interrupted."""

    def proposed(self, proposal: Proposal) -> None:
        """Ignore the proposal, as it is shown when the user is asked."""
