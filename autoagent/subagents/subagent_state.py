"""Track the state of a sub-agent, as a fold over its events in this process or an earlier one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from autoagent.core.events import Checked, Decided, Ended, Event, Labelled, Returned, RunStarted, Thought
from autoagent.core.memory import PRIVATE, Origin
from autoagent.core.protocols import SubAgent
from autoagent.core.task import Outcome, Status, Task

MAX_MESSAGE_CHARACTERS = 600
FINAL_STATUSES = (Status.FINISHED, Status.STUCK)  # ends that another attempt would not change


class SubAgentState:
    """Fold the events of a sub-agent. Pass each to `add`, in order.

    `task` is known beforehand or comes from the first event. `outcome` is None while it runs, `start` is its first
    event. `changed` holds the workspace paths that it has changed, in order. `newest_args` are the arguments of each
    command's newest successful call, and `checks` the results of the goals' checks since the newest change. `origin`
    is the source of its words after all it has read, including everything its starter had read before.
    """

    def __init__(self, key: str, task: Task | None = None) -> None:
        self.key = key
        self.task = task or Task("an agent", "", ())
        self.step = 0
        self.last_message = ""
        self.newest_args: dict[str, Mapping[str, Any]] = {}
        self.checks: dict[int, Checked] = {}
        self.changed: dict[str, None] = {}
        self.outcome: Outcome | None = None
        self.start: RunStarted | None = None
        self.updated = 0.0  # time of the newest event
        self._command = ""
        self._args: Mapping[str, Any] = {}
        self._sources: dict[str, None] = {}
        self._is_private = False

    def add(self, event: Event) -> None:
        self.step = max(self.step, event.step)
        self.updated = event.t
        if isinstance(event, Labelled):
            meta = event.meta
            self._sources |= dict.fromkeys(filter(None, (meta.untrusted, meta.quoted)))
            self._is_private = self._is_private or meta.private
        match event:
            case RunStarted():
                self.task, self.start, self.outcome = event.task, event, None
            case Thought():
                self.last_message = event.thoughts.speak.strip() or event.thoughts.text.strip()
                self._command, self._args = event.call.name, event.call.args
            case Decided(args=args) if args is not None:
                self._args = args
            case Checked():
                self.checks[event.goal] = event
            case Returned():
                self.changed |= dict.fromkeys(event.meta.changed)
                self.last_message = event.meta.finished or self.last_message
                if event.ok:
                    self.newest_args[self._command] = self._args
                if event.meta.changed:
                    self.checks.clear()
            case Ended():
                self.outcome = Outcome(event.status, event.reason)

    @property
    def origin(self) -> Origin:
        """Return the origin of its words after all it has read."""
        return Origin(", ".join([PRIVATE] * self._is_private + list(self._sources)), not self._sources)

    @property
    def is_decided(self) -> bool:
        """Return whether it ended in a way that another attempt would not change."""
        return self.outcome is not None and self.outcome.status in FINAL_STATUSES

    @property
    def label(self) -> str:
        """Return its name, unique among others: `Anna (1)`."""
        return f"{self.task.name} ({self.key})"

    def describe(self, time: float | None = None) -> SubAgent:
        """Return the record of the sub-agent at this time, by default at its last event."""
        start, until = self.start, self.updated if time is None or self.outcome else time
        message = self.last_message
        return SubAgent(
            key=self.key,
            name=self.task.name,
            task=self.task.role,
            commands=start.commands if start else (),
            status=self.outcome.status if self.outcome else "running",
            reason=self.outcome.reason if self.outcome else "",
            steps=self.step,
            seconds=max(0.0, until - start.t) if start else 0.0,
            said=f"{message[:MAX_MESSAGE_CHARACTERS]}…" if len(message) > MAX_MESSAGE_CHARACTERS else message,
            origin=self.origin,
        )
