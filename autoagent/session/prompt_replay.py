"""Rebuild prompts from the log: list their parts, compare them with those sent, and leave out memories."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from autoagent.agent.history import History
from autoagent.agent.progress import LoopGuard
from autoagent.agent.work import Work
from autoagent.commands.registry import Registry
from autoagent.commands.selection import LOADER, all_commands, grouped
from autoagent.core import events
from autoagent.core.commands import CommandSpec
from autoagent.core.errors import StateError
from autoagent.core.events import Event
from autoagent.core.memory import LeftOut, RetrievedMemory
from autoagent.core.model import SMALL_WINDOW
from autoagent.log.checkpoint import Saved, load
from autoagent.log.reader import effective, log_path, read
from autoagent.prompt import Prompt, recollection_lines
from autoagent.settings import checkpoint_key
from autoagent.text.tokens import counter

PROMPT_EVENTS = (
    events.RunStarted, events.Resumed, events.Changed, events.Recalled, events.Dropped, events.Prompted, events.Retried,
    events.Thought, events.Rejected, events.Decided, events.Feedback, events.Forked, events.Rewound, events.Undone,
    events.Checked, events.SystemNotice, events.AgentMessage, events.Started, events.Returned,
)  # fmt: skip
"""The events that make up a prompt and its offered commands."""


@dataclass(frozen=True, slots=True)
class BuiltPrompt:
    """A sent prompt with all its sources."""

    prompted: events.Prompted
    sources: Sources

    @property
    def shown(self) -> tuple[RetrievedMemory, ...]:
        """Return the memories in the prompt, best first."""
        history, memories = self.sources.history, self.sources.recalled_in(self.prompted.step)
        groups = (
            (history.core, history.shares.core, history.core_at),
            (history.lasting, history.shares.goal_memories, history.lasting_at),
            (memories, history.shares.step_memories, self.prompted.at),
        )
        lines = (recollection_lines(group, room, self.sources.count, now=now) for group, room, now in groups)
        return tuple(memory for (group, *_), part in zip(groups, lines, strict=True) for memory in group[: len(part)])

    @property
    def left_out(self) -> tuple[LeftOut, ...]:
        """Return the candidates missing from the prompt, and why."""
        recalls = self.sources.recalls_in(self.prompted.step)
        shown_ids = {memory.id for memory in self.shown}
        cut = {m.id: m for recall in recalls for m in recall.memories if m.id not in shown_ids}
        omitted = [LeftOut(m.id, m.score, "no room in the prompt", m.evidence) for m in cut.values()]
        others = [candidate for recall in recalls for candidate in recall.left_out if candidate.id not in shown_ids]
        return (*omitted, *{candidate.id: candidate for candidate in others}.values())

    @property
    def gate(self) -> float:
        """Return the evidence that a memory needed for this prompt, or 0 if unlogged."""
        return max((recall.gate for recall in self.sources.recalls_in(self.prompted.step)), default=0.0)

    @property
    def query(self) -> str:
        return "; ".join(recall.query for recall in self.sources.recalls_in(self.prompted.step) if not recall.core)

    def prompt(self, excluded: Collection[int] = ()) -> Prompt:
        """Build the prompt without the `excluded` memories. Without any, the same program rebuilds `prompted`."""
        from autoagent.agent.think import build_step_prompt

        sent, sources = self.prompted, self.sources
        memories = sources.recalled_in(sent.step)
        return build_step_prompt(sources.start, sources.history, memories, sent, count=sources.count, excluded=excluded)


@dataclass(frozen=True, slots=True)
class TracedStep(BuiltPrompt):
    """A step up to its reply.

    `registry` has the commands of the run, `offered` those of this step. `reply` is None if none came, and `answered`
    is the number of earlier replies.
    """

    reply: events.Thought | events.Rejected | None
    answered: int
    registry: Registry
    offered: tuple[CommandSpec, ...]


def prompt_of_step(state_dir: Path, run: str, step: int) -> BuiltPrompt:
    """Return the last prompt of a step of a run, folded from the newest checkpoint before it.

    Raises StateError if the run has no such step, or none with a prompt.
    """
    saved = load(log_path(state_dir, run), checkpoint_key(os.environ), step)
    start: events.RunStarted | None = saved.states["History"]["_start"] if saved else None
    if saved and start and not isinstance(start, events.Changed):
        logged = list(
            read(state_dir, run, PROMPT_EVENTS, until=step, begin=(saved.position.size, saved.position.events))
        )
        has_step = any(isinstance(event, events.Prompted) and event.step == step for event in logged)
        is_rewound = any(isinstance(event, events.Rewound) for event in logged)
        if has_step and not is_rewound and saved.is_made_for(_registry(start).fingerprint(start.model)):
            return _last_prompt(logged, step, saved)
    return _last_prompt(list(read(state_dir, run, PROMPT_EVENTS, until=step)), step)


def trace(logged: Iterable[Event], step: int) -> TracedStep:
    """Fold the events of a run up to the last prompt of a step. Raises StateError like `prompt_of_step`."""
    logged = list(logged)
    built = _last_prompt(logged, step)
    registry = _registry(built.sources.start)
    specs = {spec.name: spec for spec in registry.specs}
    loop_guard, work = LoopGuard(specs), Work(specs)
    run_events = [event for event in logged if not event.agent]
    for event in _effective(run_events[: run_events.index(built.prompted)]):
        loop_guard.add(event)
        work.add(event)
    replies = [event for event in run_events if isinstance(event, (events.Thought, events.Rejected))]
    return TracedStep(
        built.prompted,
        built.sources,
        next((event for event in replies if event.step == step), None),
        sum(event.step < step for event in replies),
        registry,
        tuple(loop_guard.select_commands(work.loaded_commands(registry.specs))),
    )


def _last_prompt(logged: Sequence[Event], step: int, saved: Saved | None = None) -> BuiltPrompt:
    run_events = [event for event in logged if not event.agent]
    prompts = [(n, event) for n, event in enumerate(run_events) if isinstance(event, events.Prompted)]
    index, prompted = next(((n, event) for n, event in reversed(prompts) if event.step == step), (0, None))
    replies = (event for event in run_events if isinstance(event, (events.Thought, events.Rejected)))
    if prompted is None and any(event.step == step for event in replies):
        raise StateError(f"Step {step} has no prompt of its own: its command was in the reply of an earlier step.")
    if prompted is None:
        last = max((event.step for _, event in prompts), default=0)
        raise StateError(f"Step {step} has no prompt; the last prompt is that of step {last}.")
    return BuiltPrompt(prompted, Sources(_effective(run_events[:index]), saved))


def prompts(logged: Iterable[Event]) -> Iterator[BuiltPrompt]:
    """Yield each prompt of a run and its sub-agents in order. Use each before the next, since its sources change."""
    by_agent: dict[str, list[Event]] = {}
    sources: dict[str, Sources] = {}
    for event in logged:
        agent_events = by_agent.setdefault(event.agent, [])
        if isinstance(event, events.Prompted):
            yield BuiltPrompt(event, sources[event.agent])
        agent_events.append(event)
        if isinstance(event, (events.RunStarted, events.Rewound)) and not isinstance(event, events.Changed):
            sources[event.agent] = Sources(_effective(agent_events))  # as a process folds them from the beginning
        elif event.agent in sources:
            sources[event.agent].add(event)


def verify_prompts(logged: Iterable[Event]) -> Iterator[tuple[events.Prompted, bool]]:
    """Yield each of the `prompts`, and whether the log reproduces it exactly."""
    for built in prompts(logged):
        yield built.prompted, built.prompt().sha256 == built.prompted.sha256


class Sources:
    """Fold the events before a prompt as the process that built it did."""

    def __init__(self, logged: Sequence[Event], saved: Saved | None = None) -> None:
        starts = [e for e in logged if isinstance(e, events.RunStarted) and not isinstance(e, events.Changed)]
        self.start: events.RunStarted = starts[-1] if starts or not saved else saved.states["History"]["_start"]
        self.count = counter(self.start.model)
        registry = _registry(self.start)
        self.history = History(self.count, registry.pages_results)
        self._recalls: dict[str, events.Recalled | None] = {"core": None, "goals": None, "topic": None}
        start = self.start
        if saved:
            saved.restore("History", self.history, self.history.NOT_RESUMED if starts else ())
        resume_index = next(
            (n for n, event in enumerate(logged) if event is start and isinstance(event, events.Resumed)), 0
        )
        for number, event in enumerate(logged):
            if number > resume_index or not isinstance(event, (events.Recalled, events.Remembered)):
                self.add(event)

    def add(self, event: Event) -> None:
        if isinstance(event, events.RunStarted):
            self.start = event
        self.history.add(event)
        if isinstance(event, events.Recalled):
            self._recalls["core" if event.core else "goals" if event.lasting else "topic"] = event

    def recalls_in(self, step: int) -> list[events.Recalled]:
        """Return the recalls for a step: of the core, by its goals, and by its topic."""
        return [recall for recall in self._recalls.values() if recall is not None and recall.step == step]

    def recalled_in(self, step: int) -> tuple[RetrievedMemory, ...]:
        recall = self._recalls["topic"]
        return recall.memories if recall is not None and recall.step == step else ()


def _registry(start: events.RunStarted) -> Registry:
    """Return the commands of a run, in groups if it loaded them by group."""
    registry = Registry(all_commands()).only(start.commands, "it was not offered in that run")
    if LOADER not in start.commands:
        return registry
    return grouped(registry, guided=start.style.guided, small=start.window < SMALL_WINDOW)


def _effective(logged: Sequence[Event]) -> list[Event]:
    return list(effective(logged, [event for event in logged if isinstance(event, events.Rewound)]))
