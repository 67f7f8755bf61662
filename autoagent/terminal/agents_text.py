"""Render the events of sub-agents and teams. Each line of a sub-agent bears its name, so none can pose as another."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from autoagent.core import events
from autoagent.terminal import markup, rendering
from autoagent.terminal.palette import Ink
from autoagent.terminal.rendering import Page
from autoagent.text.sanitize import cut_to_lines, escape, fold_blanks, shorten, width

if TYPE_CHECKING:
    from autoagent.agent.stats import RunStats

MAX_NAME_CHARACTERS = 20
MAX_CALL_CHARACTERS = 300


class SubAgentText:
    """Render the events of a sub-agent. Pass every event to `lines` or `add`, in order.

    With `replays`, questions and answers are rendered too, as no dialog shows them.
    """

    def __init__(self, *, replays: bool = False) -> None:
        self._replays = replays
        self._proposed: dict[str, events.Proposed] = {}
        self._names: dict[str, str] = {}
        self._commands: dict[str, str] = {}

    def add(self, event: events.Event) -> None:
        """Remember the names and calls in an event that is not to be shown."""
        match event:
            case events.RunStarted():
                self._names[event.agent] = escape(" ".join(event.task.name.split())[:MAX_NAME_CHARACTERS])
            case events.Proposed():
                self._proposed[event.agent] = event
            case events.Started():
                self._commands[event.agent] = event.call.name

    def lines(self, event: events.Event, page: Page) -> Iterator[str]:
        """Yield the lines that show an event, or none for an event that the user need not see."""
        self.add(event)
        prefix = f"[{self._names.get(event.agent, 'agent')} {event.agent}] "
        for text in self._texts(event, Page(max(20, page.columns - width(prefix)), page.color)):
            for line in text.split("\n"):
                yield page.ink("quiet", prefix) + line

    def _texts(self, event: events.Event, page: Page) -> Iterator[str]:
        match event:
            case events.RunStarted():
                yield page.prose("STARTED:", "; ".join(goal.text for goal in event.task.goals))
            case events.Thought() if event.thoughts.text.strip():
                yield page.prose("THOUGHTS:", event.thoughts.text.strip(), "thought")
            case events.Decided(allowed=True) if self._replays and event.by.startswith("user"):
                if proposed := self._proposed.get(event.agent):
                    yield from rendering.proposal(proposed, page)
                yield page.prose("ALLOWED:", event.by, "user")
            case events.Started():
                yield page.prose("COMMAND:", shorten(str(event.call), MAX_CALL_CHARACTERS), "action")
            case events.Returned():
                yield from rendering.result(event, self._commands.get(event.agent, ""), page)
            case _:
                yield from rendering.event_lines(event, page)


MAX_MESSAGE_CHARACTERS, MAX_MESSAGE_LINES = 4000, 60
_INKS: tuple[Ink, ...] = ("action", "thought", "user", "system", "label")  # for successive roles


class TeamText:
    """Render the events of a team. Pass every event to `add`, in order."""

    def __init__(self) -> None:
        self._roles: dict[str, events.Hired] = {}
        self._last_round = 0  # the last possible one, or 0

    def add(self, event: events.Event) -> None:
        match event:
            case events.RunStarted() if not event.agent:
                self._last_round = int((event.settings.get("team") or {}).get("until", 0))
            case events.Hired():
                self._roles[event.agent] = event

    def includes(self, event: events.Event) -> bool:
        """Return whether the event belongs to a team or a role, and not to an agent working for a role."""
        return (
            isinstance(event, (events.Hired, events.RoundBegan, events.RoundEnded, events.Published))
            or event.agent in self._roles
        )

    def lines(self, event: events.Event, page: Page, stats: RunStats) -> Iterator[str]:
        """Yield the lines that show an event, or none for an event that the user need not see."""
        match event:
            case events.Hired():
                profile = f"{event.profile}{', a person' if event.human else ''}"
                text = f"{profile}; watches for {_short_names(event.watch)}; does {_short_names(event.actions)}"
                yield page.prose(f"{escape(event.name)}:", text, self._role_ink(event.agent))
            case events.RoundBegan():
                limit = f" of {self._last_round}" if self._last_round else ""
                acts = f"{', '.join(map(self._role_name, event.acts))} to act"
                waits = [
                    f"{self._role_name(key)} waits for {_short_names(causes)}" for key, causes in event.waits.items()
                ]
                yield ""
                yield page.prose(f"ROUND {event.step}{limit}:", "; ".join([acts, *waits]), "label")
            case events.Published():
                writer = f"{event.sent_from} ({event.role})" if event.sent_from else event.role
                to = "" if "<all>" in event.send_to else f" to {', '.join(event.send_to)}"
                cause = f", {event.cause_by.rpartition('.')[2]}" if event.agent else ""
                ink = self._role_ink(event.agent) if event.agent else "user"
                yield page.ink(ink, escape(f"{writer}{to}{cause}:").replace("\n", " "))
                content = fold_blanks(event.content.strip())
                text = "\n".join(cut_to_lines(content, MAX_MESSAGE_CHARACTERS, MAX_MESSAGE_LINES))
                if page.draws and markup.has_markup(text):
                    yield from markup.render_markdown(text, page.columns, page.code_theme)
                else:
                    yield from rendering.block(text, page)
            case events.RoundEnded():
                yield rendering.figures_line(f"round {event.step}", stats, page)
            case _:
                for text in rendering.event_lines(event, page):
                    yield page.ink(self._role_ink(event.agent), f"[{self._role_name(event.agent)}] ") + text

    def _role_name(self, key: str) -> str:
        return escape(self._roles[key].name).replace("\n", " ") if key in self._roles else key

    def _role_ink(self, key: str) -> Ink:
        return _INKS[(int(key) - 1) % len(_INKS)] if key.isdecimal() else "quiet"


def _short_names(names: object) -> str:
    words = [str(name).rpartition(".")[2] for name in names] if isinstance(names, (list, tuple)) else []
    return ", ".join(words) or "nothing"
