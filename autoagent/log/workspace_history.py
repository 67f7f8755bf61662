"""The history of the workspace through a run: a fold over the log that knows each state and which steps can be undone.

Steps are the run's own, and the rounds of a team. Changes by a sub-agent are part of the step during which they
happened.
"""

from __future__ import annotations

from dataclasses import dataclass

from autoagent.core.events import Ended, Event, Returned, Rewound, RoundBegan, RoundEnded, Snapshot, Started, Undone

_ROUND = "round of a team"


@dataclass(frozen=True, slots=True)
class Turn:
    """A step that changed the workspace, its command, and the trees before and after it."""

    step: int
    command: str
    before: str
    after: str


class WorkspaceHistory:
    """Add every event in order, even those that no longer count: the states after them can still be restored.

    `tree` is the newest snapshot, `first` the oldest one, '' if there is none. `level` is the last step whose
    changes are in the workspace, `turns` are those that changed it, also the ones that were undone and may come back.
    `unfinished` is the tree of a restoration that was cut off, '' if none was.
    """

    def __init__(self) -> None:
        self.tree = ""
        self.first = ""
        self.step = 0
        self.level = 0
        self.unfinished = ""
        self.turns: list[Turn] = []
        self._undone: list[tuple[str, int]] = []  # tree and level before each undo that can be taken back
        self._after: dict[int, str] = {}
        self._running = ("", "")  # the command and the tree before it

    def add(self, event: Event) -> None:
        """Take up one event."""
        if not event.agent:
            self.step = max(self.step, event.step)
        match event:
            case Snapshot(apart=False):
                self.tree, self.unfinished = event.tree, ""
                self.first = self.first or event.tree
                if self._running == (_ROUND, ""):
                    self._running = (_ROUND, event.tree)
            case RoundBegan():
                self._running = (_ROUND, self.tree)
            case RoundEnded() | Ended(agent="") if self._running[0] == _ROUND:
                self._returned(event.step)
                self._running = ("", "")
            case Started(agent=""):
                self._running = (event.call.name, self.tree)
            case Returned(agent=""):
                self._returned(event.step)
            case Undone():
                if event.redo:
                    _, self.level = self._undone.pop()
                else:
                    self._undone.append((self.tree, self.level))
                    self.level = event.to
                self.unfinished = event.tree
            case Rewound():
                self._undone.clear()
                self.level, self.unfinished = event.to, event.tree

    @property
    def in_effect(self) -> list[Turn]:
        """The steps that changed the workspace and whose changes are still in it, in order."""
        return [turn for turn in self.turns if turn.step <= self.level]

    @property
    def undone(self) -> tuple[str, int] | None:
        """The tree and the level before the last undo, or None if there is none to take back."""
        return self._undone[-1] if self._undone else None

    def after(self, step: int) -> str:
        """Return the tree after a step, or '' if no snapshot shows it."""
        done = [number for number in self._after if number <= step]
        return (self._after[max(done)] if done else "") or self.first

    def _returned(self, step: int) -> None:
        command, before = self._running
        self._after[step] = self.tree
        if before and self.tree != before:
            self.turns = [*self.in_effect, Turn(step, command, before, self.tree)]
            self.level = step
            self._undone.clear()
