"""The point a run has reached: a fold over the log that tells a resumed run where to continue."""

from __future__ import annotations

from dataclasses import replace

from autoagent.core.commands import Call
from autoagent.core.events import (
    Answered,
    Decided,
    Dropped,
    Ended,
    Event,
    Feedback,
    Forked,
    Prompted,
    Rejected,
    Remembered,
    Resumed,
    Returned,
    Rewound,
    Snapshot,
    Started,
    Thought,
    Undone,
)
from autoagent.text.facts import PURPOSE


class ResumeState:
    """Add every event in order.

    `step` is the newest one. `unusable` counts the unusable replies of this process since the last usable one. `call`
    was asked for and is neither refused nor done. `started` says that it began to run, so that nobody can know whether
    it did. `waiting` are the further commands of a reply, as Thought has them, until the user has a word in it or drops
    a memory that they were asked for with, or the model has to look first whether one of them has run.
    `returned` is a result after which the step was not finished: remembered, and the run ended if it says so.
    `tree` is the newest snapshot of the workspace, `before` the newest one when the last command began. `remembers`:
    something of the run was kept. `newest_memory` is the highest id of that by store. `distilled` are its facts, once
    it has come to its end, `kept` is how many were kept since.
    """

    def __init__(self) -> None:
        self.step = 0
        self.unusable = 0
        self.call: Call | None = None
        self.started = False
        self.waiting: tuple[str, ...] = ()
        self.returned: Returned | None = None
        self.tree = ""
        self.before = ""
        self.remembers = False
        self.distilled: Answered | None = None
        self.kept = 0
        self.newest_memory: dict[str, int] = {}

    def add(self, event: Event) -> None:
        """Take up one event."""
        self.step = max(self.step, event.step)
        self._wait(event)
        match event:
            case Thought():
                self.call, self.started, self.returned, self.unusable = event.call, False, None, 0
                self.distilled = None
            case Rejected():
                self.call, self.started, self.returned = None, False, None
                self.unusable = 0 if event.off else self.unusable + 1  # well formed: the standstill ends it
            case Decided(allowed=True, args=args) if self.call and args is not None:
                self.call = replace(self.call, args=args)
            case Started():
                self.started, self.before = True, self.tree
            case Returned():
                self.call, self.started, self.returned = None, False, event
            case Decided(allowed=False):
                self.call, self.started = None, False
            case Prompted() | Ended() | Rewound() | Forked():
                self.returned = None
            case Snapshot():
                self.tree = event.tree
            case Resumed():
                self.unusable = 0
            case Answered(purpose=purpose) if purpose == PURPOSE:
                self.distilled, self.kept = event, 0
            case Remembered():
                self.remembers, self.kept = True, self.kept + 1
                newest = self.newest_memory.get(event.store, 0)
                self.newest_memory[event.store] = max(newest, event.memory)

    def doubt(self) -> None:
        """Count the open call as begun: the event that is missing may have said so."""
        if not self.started:
            self.started, self.before = True, self.tree

    def _wait(self, event: Event) -> None:
        match event:
            case Thought(more=more):
                self.waiting = more or self.waiting[1:]
            case Rejected():
                self.waiting = self.waiting[1:]
            case Feedback() | Dropped() | Returned(wants_a_look=True) | Undone() | Rewound() | Forked():
                self.waiting = ()
