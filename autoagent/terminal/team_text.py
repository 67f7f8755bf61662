"""Renders the events of a team: who speaks, in a colour of its own; who waits for whom; the round, and the money."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from autoagent.core.events import Event, Hired, Published, RoundBegan, RoundEnded, RunStarted
from autoagent.terminal import markdown, rendering
from autoagent.terminal.rendering import Canvas, Ink
from autoagent.text.sanitize import escape, fold_blanks, shorten_text

if TYPE_CHECKING:
    from autoagent.agent.stats import RunStats

MESSAGE_CHARACTERS, MESSAGE_LINES = 4000, 60  # of one message
_INKS: tuple[Ink, ...] = ("action", "thought", "user", "system", "label")  # of the roles, one after the other


class TeamText:
    """Take up every event of a team in order. `lines` does so, too."""

    def __init__(self) -> None:
        self._roles: dict[str, Hired] = {}
        self._last = 0  # the last round that there may be

    def add(self, event: Event) -> None:
        """Take up one event."""
        match event:
            case RunStarted() if not event.agent:
                self._last = int((event.settings.get("team") or {}).get("until", 0))
            case Hired():
                self._roles[event.agent] = event

    def knows(self, event: Event) -> bool:
        """Return whether the event is one of a team, or of a role and not of an agent that works for it."""
        return isinstance(event, (Hired, RoundBegan, RoundEnded, Published)) or event.agent in self._roles

    def lines(self, event: Event, page: Canvas, tally: RunStats) -> Iterator[str]:
        """Yield the lines that show an event, or none for one that a person need not see."""
        self.add(event)
        match event:
            case Hired():
                human = ", a person" if event.human else ""
                text = f"{event.profile}{human}; watches for {_named(event.watch)}; does {_named(event.actions)}"
                yield page.said(f"{escape(event.name)}:", text, self._ink(event.agent))
            case RoundBegan():
                last = f" of {self._last}" if self._last else ""
                acts = f"{', '.join(map(self._name, event.acts))} to act"
                waits = [f"{self._name(key)} waits for {_named(causes)}" for key, causes in event.waits.items()]
                yield ""
                yield page.said(f"ROUND {event.step}{last}:", "; ".join([acts, *waits]), "label")
            case Published():
                yield from self._message(event, page)
            case RoundEnded():
                yield rendering.figures(f"round {event.step}", tally, page)
            case _ if event.agent in self._roles:
                for text in rendering.event_lines(event, page):
                    yield page.ink(self._ink(event.agent), f"[{self._name(event.agent)}] ") + text

    def _message(self, event: Published, page: Canvas) -> Iterator[str]:
        writer = f"{event.sent_from} ({event.role})" if event.sent_from else event.role
        to = "" if "<all>" in event.send_to else f" to {', '.join(event.send_to)}"
        cause = f", {event.cause_by.rpartition('.')[2]}" if event.agent else ""
        ink = self._ink(event.agent) if event.agent else "user"
        shown = "\n".join(shorten_text(fold_blanks(event.content.strip()), MESSAGE_CHARACTERS, MESSAGE_LINES))
        yield page.ink(ink, escape(f"{writer}{to}{cause}:").replace("\n", " "))
        if page.draws and markdown.has_markup(shown):
            yield from markdown.drawn(shown, page.columns, color=page.color)
        else:
            yield from rendering.block(shown, page)

    def _name(self, key: str) -> str:
        return escape(self._roles[key].name).replace("\n", " ") if key in self._roles else key

    def _ink(self, key: str) -> Ink:
        return _INKS[(int(key) - 1) % len(_INKS)] if key.isdecimal() else "quiet"


def _named(names: object) -> str:
    found = [str(name).rpartition(".")[2] for name in names] if isinstance(names, (list, tuple)) else []
    return ", ".join(found) or "nothing"
