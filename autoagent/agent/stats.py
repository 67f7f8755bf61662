"""The figures of a run so far, for the status line and the report at its end: a fold over its events."""

from __future__ import annotations

from collections import Counter
from typing import Literal

from autoagent.agent.budget import Budget, RunLimits
from autoagent.core.commands import Proof
from autoagent.core.events import (
    Answered,
    Changed,
    Checked,
    Ended,
    Event,
    Prompted,
    Proposed,
    Rejected,
    Returned,
    Rewound,
    RunStarted,
    Spent,
    Started,
    Thought,
    Undone,
)
from autoagent.core.model import Usage
from autoagent.core.task import VERIFICATION, Task

Standing = Proof | Literal["unmet", ""]
"""Of a goal: how it is known that it is met, or that its check is red."""

EMBEDDING = "embedding"  # the purpose of what an embedder was paid


class RunStats:
    """Add every event in order. For a run that is resumed, those of its log first.

    Sub-agents count in spending, commands and changed files. Steps, goals and the end are the run's own.
    """

    def __init__(self) -> None:
        self._spent = Budget(RunLimits())
        self._spent_by_others = Budget(RunLimits())  # by sub-agents
        self._now = 0.0
        self.run = ""
        self.task: Task | None = None
        self.model = self.host = ""
        self.unpriced = ""  # the first model, or command, of which nobody knows what it costs
        self.by_model: dict[str, Usage] = {}  # what was spent, by the model, or by what else it was spent on
        self._models: dict[str, str] = {}  # of each agent
        self.budget = 0.0  # USD; 0 for none
        self.most_commands = 0  # of this process; 0 for no limit
        self.step = 0
        self.commands: Counter[str] = Counter()  # started, by name
        self.changed: dict[str, None] = {}  # workspace paths, in the order they were first changed
        self.lines: dict[str, tuple[int, int]] = {}  # added and removed, by path, as the diffs said that were allowed
        self._diffs: dict[str, str] = {}  # of what is proposed, by the id of the call
        self._began = 0.0  # this process, and what was worked before it
        self._worked_before = 0.0
        self.met: dict[int, bool] = {}  # goals with a check, counted from 0, as last checked; none after an undo
        self.proofs: tuple[Proof, ...] = ()  # of the goals of a finished run; none after an undo
        self.share = 0.0  # of the window that the last prompt took
        self.ended: Ended | None = None
        self.window = 0  # tokens

    def add(self, event: Event) -> None:
        """Take up one event."""
        self._now = event.t
        match event:
            case Started():
                self.commands[event.call.name] += 1
            case Proposed() if event.is_diff:
                self._diffs[f"{event.agent} {event.call.id}"] = event.preview
            case Returned():
                self.changed |= dict.fromkeys(event.meta.products)
                diff = self._diffs.pop(f"{event.agent} {event.call_id}", "")
                if diff and len(event.meta.products) == 1:
                    self._count_lines(event.meta.products[0], diff)
            case Thought(usage=Usage(cost=None)) | Rejected(usage=Usage(cost=None)) | Answered(usage=Usage(cost=None)):
                self.unpriced = self.unpriced or self.model
            case Spent(usage=Usage(cost=None)):
                self.unpriced = self.unpriced or (event.purpose if event.purpose in self.commands else self.model)
        self._share_out(event)
        if event.agent:
            self._spent_by_others.add_former(event)
            return
        self._spent.add(event)
        self.step = max(self.step, event.step)
        match event:
            case RunStarted():
                if self.task and self.task.goals != event.task.goals:
                    self.met.clear()
                self.run, self.task, self.model, self.window = event.run, event.task, event.model, event.window
                self.host = event.host
                self.budget = event.settings.get("budget") or event.task.budget
                self.most_commands = event.limits.get("commands", 0)
                if not isinstance(event, Changed):
                    self.ended = None
                    self.proofs = ()
                    self._began, self._worked_before = event.t, self.seconds
            case Prompted():
                self.share = event.tokens / self.window if self.window else 0.0
            case Checked():
                self.met[event.goal] = event.met
            case Rewound() | Undone():
                self.met.clear()
                self.proofs = ()
            case Ended():
                self.ended, self.proofs = event, event.goals

    def _share_out(self, event: Event) -> None:
        """Add the usage in an event to its model."""
        if isinstance(event, RunStarted):
            self._models[event.agent] = event.model
        elif isinstance(event, (Thought, Rejected, Answered, Spent)) and event.usage != Usage():
            on = self._models.get(event.agent) or self.model
            if isinstance(event, (Answered, Spent)) and event.purpose in (*self.commands, EMBEDDING, VERIFICATION):
                on = event.purpose
            self.by_model[on] = self.by_model.get(on, Usage()) + event.usage

    def _count_lines(self, path: str, diff: str) -> None:
        signs = [line[:1] for line in diff.split("\n")[2:]]
        plus, minus = self.lines.get(path, (0, 0))
        self.lines[path] = plus + signs.count("+"), minus + signs.count("-")

    def standing(self, goal: int) -> Standing:
        """Return how a goal, counted from 0, stands at the end: '' where nobody says."""
        if (met := self.met.get(goal)) is not None:
            return "checked" if met else "unmet"
        return self.proofs[goal] if goal < len(self.proofs) else ""

    @property
    def waited(self) -> float:
        """Seconds of the last process in which the agent was not at work: a person thought, or was away."""
        return max(0.0, self._now - self._began - (self.seconds - self._worked_before))

    @property
    def usage(self) -> Usage:
        return self._spent.usage + self._spent_by_others.usage

    @property
    def tokens(self) -> int:
        return self._spent.tokens + self._spent_by_others.tokens

    @property
    def updated(self) -> float:
        """The time of the last event, in seconds since the epoch."""
        return self._now

    @property
    def seconds(self) -> float:
        """Seconds at work, over all processes of the run, up to the last event."""
        return self._spent.time.recorded
