"""Compute the figures of a run for the status line and the final report, as a fold over its events."""

from __future__ import annotations

from collections import Counter
from typing import Literal

from autoagent.agent.budget import Budget, RunLimits
from autoagent.core import events
from autoagent.core.commands import Proof
from autoagent.core.model import Usage
from autoagent.core.task import VERIFICATION, Task

GoalStatus = Proof | Literal[""]
"""The proof of a goal, or '' if nothing is known."""

EMBEDDING = "embedding"  # purpose of an embedder's cost


class RunStats:
    """Fold events into figures. For a resumed run, first add the events that are already in its log.

    Spending, commands and changed files include sub-agents. Steps, goals and the end are the run's own.
    """

    def __init__(self) -> None:
        self._budget = Budget(RunLimits())
        self.updated = 0.0  # time of the last event, in seconds since the epoch
        self.run = ""
        self.task: Task | None = None
        self.model = self.host = ""
        self.unpriced = ""  # the first model, or purpose of a call, whose cost is unknown
        self.by_model: dict[str, Usage] = {}  # usage by model, or by purpose
        self._models: dict[str, str] = {}  # model by agent
        self.budget = 0.0  # USD; 0 means none
        self.max_commands = 0  # of this process; 0 means no limit
        self.step = 0
        self.commands: Counter[str] = Counter()  # started commands, by name
        self.changed: dict[str, None] = {}  # workspace paths in the order of their first change
        self.lines: dict[str, tuple[int, int]] = {}  # lines added and removed by path, from the approved diffs
        self._diffs: dict[tuple[str, str], str] = {}  # proposed diffs by agent and call id
        self._started_at = 0.0  # when this process started
        self._earlier_seconds = 0.0  # worked by earlier processes
        self.met: dict[int, bool] = {}  # goals with a check, from 0, as last checked; empty after an undo
        self.proofs: tuple[Proof, ...] = ()  # of the goals of a finished run; empty after an undo
        self.share = 0.0  # of the window, taken by the last prompt
        self.outcome: events.Ended | None = None
        self.window = 0  # tokens

    def add(self, event: events.Event) -> None:
        self.updated = event.t
        match event:
            case events.Started():
                self.commands[event.call.name] += 1
            case events.Proposed() if event.is_diff:
                self._diffs[event.agent, event.call.id] = event.preview
            case events.Returned():
                self.changed |= dict.fromkeys(event.meta.products)
                diff = self._diffs.pop((event.agent, event.call_id), "")
                if diff and len(event.meta.products) == 1:
                    path = event.meta.products[0]
                    signs = [line[:1] for line in diff.split("\n")[2:]]  # without the two lines of the header
                    added, removed = self.lines.get(path, (0, 0))
                    self.lines[path] = added + signs.count("+"), removed + signs.count("-")
        self._attribute_usage(event)
        if event.agent:
            self._budget.add_spending(event)
            return
        self._budget.add(event)
        self.step = max(self.step, event.step)
        match event:
            case events.RunStarted():
                if self.task and self.task.goals != event.task.goals:
                    self.met.clear()
                self.run, self.task, self.model, self.window = event.run, event.task, event.model, event.window
                self.host = event.host
                self.budget = event.settings.get("budget") or event.task.budget
                self.max_commands = event.limits.get("commands", 0)
                if not isinstance(event, events.Changed):
                    self.outcome = None
                    self.proofs = ()
                    self._started_at, self._earlier_seconds = event.t, self.seconds
            case events.Prompted():
                self.share = event.tokens / self.window if self.window else 0.0
            case events.Checked():
                self.met[event.goal] = event.met
            case events.Rewound() | events.Undone():
                self.met.clear()
                self.proofs = ()
            case events.Ended():
                self.outcome, self.proofs = event, event.goals

    def _attribute_usage(self, event: events.Event) -> None:
        """Add the usage in an event to its model, or to its purpose."""
        if isinstance(event, events.RunStarted):
            self._models[event.agent] = event.model
        elif isinstance(event, (events.Thought, events.Rejected, events.Answered, events.Spent)):
            name = self._models.get(event.agent) or self.model
            purpose = "" if isinstance(event, (events.Thought, events.Rejected)) else event.purpose
            if purpose in (*self.commands, EMBEDDING, VERIFICATION):
                name = purpose
            if event.usage.cost is None:
                self.unpriced = self.unpriced or name
            if event.usage != Usage():
                self.by_model[name] = self.by_model.get(name, Usage()) + event.usage

    def goal_status(self, goal: int) -> GoalStatus:
        """Return the final status of a goal (counted from 0), or '' if unknown."""
        if (met := self.met.get(goal)) is not None:
            return "checked" if met else "unmet"
        return self.proofs[goal] if goal < len(self.proofs) else ""

    @property
    def waited(self) -> float:
        """Return how many seconds the agent waited for a person in the last process."""
        return max(0.0, self.updated - self._started_at - (self.seconds - self._earlier_seconds))

    @property
    def usage(self) -> Usage:
        return self._budget.usage

    @property
    def tokens(self) -> int:
        return self._budget.tokens

    @property
    def seconds(self) -> float:
        """Return the seconds of work up to the last event, over all processes of the run."""
        return self._budget.time.recorded
