"""Record an extension's registrations for `extension.Host`, which documents each method."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partialmethod
from types import SimpleNamespace
from typing import Any

from autoagent.core.events import Decided, Ended, Event, Prompted, Proposed, RunStarted, Started, Thought

# No extension may render these: questions, decisions and commands keep their form.
PROTECTED_EVENTS = (RunStarted, Prompted, Thought, Proposed, Decided, Started, Ended)

Hook = Callable[..., Any]

# Hooks of a host program that runs this one in its own process: `model` wraps each opened model, `request` sends each
# request to an endpoint, `listen` receives each event, and `written` each event as soon as it is logged, in any thread.
HOST_HOOKS: dict[str, Hook] = {}


@dataclass(slots=True)
class Registrations:
    """The registrations of an extension, in order. Satisfies extension.Host."""

    commands: list[Any] = field(default_factory=list)
    records: dict[str, list[Any]] = field(default_factory=dict)  # by group of entry points
    hooks: dict[str, list[Hook]] = field(default_factory=dict)  # by the place of the hook
    renderers: dict[str, Hook] = field(default_factory=dict)  # by event type

    def command(self, *commands: Any) -> None:
        self.commands += commands

    def renderer(self, event: type[Event], render: Hook) -> None:
        """Register a renderer. Raises ValueError for protected events."""
        if not (isinstance(event, type) and issubclass(event, Event)) or issubclass(event, PROTECTED_EVENTS):
            raise ValueError(f"no extension can render {getattr(event, '__name__', event)!r}")
        self.renderers[event.type] = render

    def _record(self, group: str, record: Any) -> None:
        self.records.setdefault(group, []).append(record)

    def _hook(self, place: str, hook: Hook) -> None:
        if not callable(hook):
            raise ValueError(f"{hook!r} cannot be called")
        self.hooks.setdefault(place, []).append(hook)

    model = partialmethod(_record, "models")
    memory = partialmethod(_record, "memory")
    embedder = partialmethod(_record, "embedders")
    sandbox = partialmethod(_record, "sandbox")
    folder = partialmethod(_record, "folders")
    run = partialmethod(_record, "runs")
    settings = partialmethod(_record, "settings")
    subcommand = partialmethod(_record, "subcommands")
    authorizer = partialmethod(_hook, "decide")
    listener = partialmethod(_hook, "listen")
    around_think = partialmethod(_hook, "think")
    around_authorize = partialmethod(_hook, "authorize")
    around_execute = partialmethod(_hook, "execute")
    around_store = partialmethod(_hook, "store")
    retriever = partialmethod(_hook, "retrieve")
    gate = partialmethod(_hook, "gate")
    reranker = partialmethod(_hook, "rerank")
    after_forget = partialmethod(_hook, "forget")
    after_sleep = partialmethod(_hook, "sleep")

    def of(self, group: str) -> list[tuple[str, Any]]:
        """Return the records of a group by name. '' stands for the name of the extension."""
        if group == "commands":
            return [("", SimpleNamespace(COMMANDS=tuple(self.commands)))] if self.commands else []
        is_unnamed = group in ("folders", "runs")
        return [
            ("" if is_unnamed else str(getattr(record, "name", record)), record)
            for record in self.records.get(group, ())
        ]

    @property
    def hook_names(self) -> list[str]:
        """Describe the hooks for the user."""
        renders = [f"render {name}" for name in self.renderers]
        return [*self.hooks, *renders]
