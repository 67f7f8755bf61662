"""Renders events of sub-agents: each line begins with the name of its agent, so that none can be mistaken."""

from __future__ import annotations

from collections.abc import Iterator

from autoagent.core.events import Decided, Event, Proposed, Returned, RunStarted, Started, Thought
from autoagent.terminal import rendering
from autoagent.terminal.rendering import Canvas
from autoagent.text.sanitize import escape, shorten, width

NAMED = 20  # characters of a name
SHOWN = 300  # characters of a call


class SubAgentText:
    """Take up every event of a sub-agent in order. `lines` does so, too.

    `replays`: questions and answers are shown from the events.
    """

    def __init__(self, *, replays: bool = False) -> None:
        self._replays = replays
        self._proposed: dict[str, Proposed] = {}
        self._names: dict[str, str] = {}
        self._commands: dict[str, str] = {}

    def add(self, event: Event) -> None:
        """Take up one event."""
        match event:
            case RunStarted():
                self._names[event.agent] = escape(" ".join(event.task.name.split())[:NAMED])
            case Proposed():
                self._proposed[event.agent] = event
            case Started():
                self._commands[event.agent] = event.call.name

    def lines(self, event: Event, page: Canvas) -> Iterator[str]:
        """Yield the lines that show an event, or none for one that a person need not see."""
        self.add(event)
        behind = f"[{self._names.get(event.agent, 'agent')} {event.agent}] "
        for text in self._texts(event, Canvas(max(20, page.columns - width(behind)), page.color)):
            for line in text.split("\n"):
                yield page.ink("quiet", behind) + line

    def _texts(self, event: Event, page: Canvas) -> Iterator[str]:
        match event:
            case RunStarted():
                yield page.said("STARTED:", "; ".join(goal.text for goal in event.task.goals))
            case Thought() if event.thoughts.text.strip():
                yield page.said("THOUGHTS:", event.thoughts.text.strip(), "thought")
            case Decided(allowed=True) if self._replays and event.by.startswith("user"):
                if proposed := self._proposed.get(event.agent):
                    yield from rendering.proposal(proposed, page)
                yield page.said("ALLOWED:", event.by, "user")
            case Started():
                yield page.said("COMMAND:", shorten(str(event.call), SHOWN), "action")
            case Returned():
                yield from rendering.returned(event, self._commands.get(event.agent, ""), page)
            case _:
                yield from rendering.event_lines(event, page)
