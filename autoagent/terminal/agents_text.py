"""Render the events of sub-agents. Each line begins with its agent's name, so that no agent can pose as another."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from autoagent.core import events
from autoagent.terminal import markup, rendering
from autoagent.terminal.palette import Ink
from autoagent.terminal.rendering import Canvas
from autoagent.text.sanitize import cut_to_lines, escape, fold_blanks, shorten, width

if TYPE_CHECKING:
    from autoagent.agent.stats import RunStats

NAMED = 20  # characters of a name
SHOWN = 300  # characters of a call


class SubAgentText:
    """Render the events of a sub-agent. Pass every event to `lines` or `add`, in order.

    `replays`: questions and answers are shown from the events.
    """

    def __init__(self, *, replays: bool = False) -> None:
        self._replays = replays
        self._proposed: dict[str, events.Proposed] = {}
        self._names: dict[str, str] = {}
        self._commands: dict[str, str] = {}

    def add(self, event: events.Event) -> None:
        match event:
            case events.RunStarted():
                self._names[event.agent] = escape(" ".join(event.task.name.split())[:NAMED])
            case events.Proposed():
                self._proposed[event.agent] = event
            case events.Started():
                self._commands[event.agent] = event.call.name

    def lines(self, event: events.Event, page: Canvas) -> Iterator[str]:
        """Yield the lines that show an event, or none if it does not interest the user."""
        self.add(event)
        behind = f"[{self._names.get(event.agent, 'agent')} {event.agent}] "
        for text in self._texts(event, Canvas(max(20, page.columns - width(behind)), page.color)):
            for line in text.split("\n"):
                yield page.ink("quiet", behind) + line

    def _texts(self, event: events.Event, page: Canvas) -> Iterator[str]:
        match event:
            case events.RunStarted():
                yield page.said("STARTED:", "; ".join(goal.text for goal in event.task.goals))
            case events.Thought() if event.thoughts.text.strip():
                yield page.said("THOUGHTS:", event.thoughts.text.strip(), "thought")
            case events.Decided(allowed=True) if self._replays and event.by.startswith("user"):
                if proposed := self._proposed.get(event.agent):
                    yield from rendering.proposal(proposed, page)
                yield page.said("ALLOWED:", event.by, "user")
            case events.Started():
                yield page.said("COMMAND:", shorten(str(event.call), SHOWN), "action")
            case events.Returned():
                yield from rendering.result(event, self._commands.get(event.agent, ""), page)
            case _:
                yield from rendering.event_lines(event, page)


MESSAGE_CHARACTERS, MESSAGE_LINES = 4000, 60  # of one message
_INKS: tuple[Ink, ...] = ("action", "thought", "user", "system", "label")  # for successive roles


class TeamText:
    """Render the events of a team. Pass every event to `add`, in order."""

    def __init__(self) -> None:
        self._roles: dict[str, events.Hired] = {}
        self._last = 0  # the last possible round

    def add(self, event: events.Event) -> None:
        match event:
            case events.RunStarted() if not event.agent:
                self._last = int((event.settings.get("team") or {}).get("until", 0))
            case events.Hired():
                self._roles[event.agent] = event

    def knows(self, event: events.Event) -> bool:
        """Return whether the event belongs to a team or a role, and not to an agent working for a role."""
        return (
            isinstance(event, (events.Hired, events.RoundBegan, events.RoundEnded, events.Published))
            or event.agent in self._roles
        )

    def lines(self, event: events.Event, page: Canvas, tally: RunStats) -> Iterator[str]:
        """Yield the lines that show an event, or none if it does not interest the user."""
        match event:
            case events.Hired():
                human = ", a person" if event.human else ""
                text = f"{event.profile}{human}; watches for {_named(event.watch)}; does {_named(event.actions)}"
                yield page.said(f"{escape(event.name)}:", text, self._ink(event.agent))
            case events.RoundBegan():
                last = f" of {self._last}" if self._last else ""
                acts = f"{', '.join(map(self._name, event.acts))} to act"
                waits = [f"{self._name(key)} waits for {_named(causes)}" for key, causes in event.waits.items()]
                yield ""
                yield page.said(f"ROUND {event.step}{last}:", "; ".join([acts, *waits]), "label")
            case events.Published():
                yield from self._message(event, page)
            case events.RoundEnded():
                yield rendering.figures_line(f"round {event.step}", tally, page)
            case _:
                for text in rendering.event_lines(event, page):
                    yield page.ink(self._ink(event.agent), f"[{self._name(event.agent)}] ") + text

    def _message(self, event: events.Published, page: Canvas) -> Iterator[str]:
        writer = f"{event.sent_from} ({event.role})" if event.sent_from else event.role
        to = "" if "<all>" in event.send_to else f" to {', '.join(event.send_to)}"
        cause = f", {event.cause_by.rpartition('.')[2]}" if event.agent else ""
        ink = self._ink(event.agent) if event.agent else "user"
        shown = "\n".join(cut_to_lines(fold_blanks(event.content.strip()), MESSAGE_CHARACTERS, MESSAGE_LINES))
        yield page.ink(ink, escape(f"{writer}{to}{cause}:").replace("\n", " "))
        if page.draws and markup.has_markup(shown):
            yield from markup.render_markdown(shown, page.columns, page.code_theme)
        else:
            yield from rendering.block(shown, page)

    def _name(self, key: str) -> str:
        return escape(self._roles[key].name).replace("\n", " ") if key in self._roles else key

    def _ink(self, key: str) -> Ink:
        return _INKS[(int(key) - 1) % len(_INKS)] if key.isdecimal() else "quiet"


def _named(names: object) -> str:
    found = [str(name).rpartition(".")[2] for name in names] if isinstance(names, (list, tuple)) else []
    return ", ".join(found) or "nothing"
