"""The registrations of an extension: the record behind `extension.Host`, which documents each method."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from autoagent.core.events import Decided, Ended, Event, Prompted, Proposed, RunStarted, Started, Thought

SHOWN_BY_US = (RunStarted, Prompted, Thought, Proposed, Decided, Started, Ended)
"""The events that no extension renders: what is asked, decided and run is shown as it is."""

Hook = Callable[..., Any]

GUESTS: dict[str, Hook] = {}
"""Hooks of a program that runs this one in its own process: `model` wraps each model that is opened, `request` sends
each request to an endpoint, `listen` hears each event, `written` each one as soon as a log has it, in any thread."""


@dataclass(slots=True)
class Registrations:
    """The registrations of one extension, in order. Satisfies extension.Host."""

    commands: list[Any] = field(default_factory=list)
    records: dict[str, list[Any]] = field(default_factory=dict)  # by the group of entry points that they go with
    hooks: dict[str, list[Hook]] = field(default_factory=dict)  # by what they are around, or what they do
    renderers: dict[str, Hook] = field(default_factory=dict)  # by the type of the event

    def command(self, *commands: Any) -> None:
        """Add commands."""
        self.commands += commands

    def model(self, provider: Any) -> None:
        """Add a model provider."""
        self._record("models", provider)

    def memory(self, backend: Any) -> None:
        """Add a memory backend."""
        self._record("memory", backend)

    def embedder(self, kind: Any) -> None:
        """Add an embedder."""
        self._record("embedders", kind)

    def sandbox(self, kind: Any) -> None:
        """Add a kind of sandbox."""
        self._record("sandbox", kind)

    def folder(self, part: Any) -> None:
        """Add a part in folders."""
        self._record("folders", part)

    def run(self, open_part: Hook) -> None:
        """Add a part in runs."""
        self._record("runs", open_part)

    def subcommand(self, command: Any) -> None:
        """Add a subcommand."""
        self._record("subcommands", command)

    def authorizer(self, decide: Hook) -> None:
        """Add somebody who decides."""
        self._hook("decide", decide)

    def listener(self, hear: Hook) -> None:
        """Add a listener of events."""
        self._hook("listen", hear)

    def renderer(self, event: type[Event], render: Hook) -> None:
        """Add a renderer for a type of event. Raises ValueError for types that only the program renders."""
        if not (isinstance(event, type) and issubclass(event, Event)) or issubclass(event, SHOWN_BY_US):
            raise ValueError(f"no extension can render {getattr(event, '__name__', event)!r}")
        self.renderers[event.type] = render

    def around_think(self, hook: Hook) -> None:
        """Add a hook around the model's turn."""
        self._hook("think", hook)

    def around_authorize(self, hook: Hook) -> None:
        """Add a hook around the verdict on a call."""
        self._hook("authorize", hook)

    def around_execute(self, hook: Hook) -> None:
        """Add a hook around a command."""
        self._hook("execute", hook)

    def around_store(self, hook: Hook) -> None:
        """Add a hook around storing a memory."""
        self._hook("store", hook)

    def of(self, group: str) -> list[tuple[str, Any]]:
        """Return the records of a group of entry points by name, '' for that of the extension."""
        if group == "commands":
            return [("", SimpleNamespace(COMMANDS=tuple(self.commands)))] if self.commands else []
        unnamed = group in ("folders", "runs")
        return [("" if unnamed else str(getattr(one, "name", one)), one) for one in self.records.get(group, ())]

    @property
    def reaches(self) -> list[str]:
        """Name the hooks in words, for the user."""
        renders = [f"render {name}" for name in self.renderers]
        return [*self.hooks, *renders]

    def _record(self, group: str, record: Any) -> None:
        self.records.setdefault(group, []).append(record)

    def _hook(self, place: str, hook: Hook) -> None:
        if not callable(hook):
            raise ValueError(f"{hook!r} cannot be called")
        self.hooks.setdefault(place, []).append(hook)
