"""Track the workspace through a run: each state, and the steps that can be undone, as a fold over the log.

Steps are the run's own, and the rounds of a team. Changes by a sub-agent belong to the step during which they happened.
"""

from __future__ import annotations

from autoagent.core import events
from autoagent.core.frozen import dataclass

_ROUND = "round of a team"


@dataclass(frozen=True, slots=True)
class Turn:
    """A step that changed the workspace."""

    step: int
    command: str
    before: str  # the tree
    after: str


class WorkspaceHistory:
    """Fold all events in order, including revoked ones, whose states can still be restored."""

    # The events to read. Only the step of thoughts and unusable replies is used.
    KINDS = (
        events.Thought, events.Rejected, events.Started, events.Returned, events.Snapshot, events.Undone,
        events.Rewound, events.RoundBegan, events.RoundEnded, events.Ended,
    )  # fmt: skip

    def __init__(self) -> None:
        self.tree = ""  # the newest snapshot
        self.first = ""  # the oldest snapshot
        self.step = 0
        self.level = 0  # the last step whose changes are in the workspace
        self.unfinished = ""  # the tree of an interrupted restoration
        self.last_restoration: events.Undone | events.Rewound | None = None  # the newest restoration
        self.turns: list[Turn] = []  # the steps that changed it, including undone ones
        self.by_hand: list[tuple[int, str, str]] = []  # changes by the user: step, and the trees before and after
        self._agents: set[str] = set()  # running sub-agents
        self._is_shared = False  # whether a sub-agent has worked since the last snapshot
        self._undone: list[tuple[str, int]] = []  # tree and level before each revertible undo
        self._trees_after: dict[int, str] = {}
        self._running = ("", "")  # the command and the tree before it
        self._call_id = ""  # of that command

    def add(self, event: events.Event) -> None:
        if event.agent:  # a sub-agent, which may be changing the workspace
            self._is_shared = True
            if isinstance(event, events.Ended):
                self._agents.discard(event.agent)
            else:
                self._agents.add(event.agent)
        else:
            self.step = max(self.step, event.step)
        match event:
            case events.Snapshot(apart=False):
                if event.by_hand and not self._is_shared:
                    self.by_hand.append((event.step, self.tree, event.tree))
                self._is_shared = bool(self._agents)
                self.tree, self.unfinished = event.tree, ""
                self.first = self.first or event.tree
                if self._running == (_ROUND, ""):
                    self._running = (_ROUND, event.tree)
            case events.RoundBegan():
                self._running = (_ROUND, self.tree)
            case events.RoundEnded() | events.Ended(agent="") | events.Returned(agent="") if self._running[0]:
                self._end_command(event.step)  # also a command that the end of the process has cut off
                self._running = ("", "")
            case events.Started(agent="") if not (self._running[0] and self._call_id == event.call.id):
                self._running = (event.call.name, self.tree)  # unless an interrupted call goes on
                self._call_id = event.call.id
            case events.Undone():
                self._running, self.last_restoration = ("", ""), event
                if event.redo:
                    _, self.level = self._undone.pop()
                else:
                    self._undone.append((self.tree, self.level))
                    self.level = event.to
                self.unfinished = event.tree
            case events.Rewound():
                self._running, self.last_restoration = ("", ""), event
                self._undone.clear()
                self.level, self.unfinished = event.to, event.tree

    @property
    def applied(self) -> list[Turn]:
        return [turn for turn in self.turns if turn.step <= self.level]

    @property
    def undone(self) -> tuple[str, int] | None:
        """Return the tree and the level before the last undo, or None."""
        return self._undone[-1] if self._undone else None

    def after(self, step: int) -> str:
        """Return the tree after a step, or '' if no snapshot shows it."""
        steps = [number for number in self._trees_after if number <= step]
        return (self._trees_after[max(steps)] if steps else "") or self.first

    def _end_command(self, step: int) -> None:
        command, old_tree = self._running
        self._trees_after[step] = self.tree
        if old_tree and self.tree != old_tree:
            self.turns = [*self.applied, Turn(step, command, old_tree, self.tree)]
            self.level = step
            self._undone.clear()
