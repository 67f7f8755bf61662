"""Rebuilds prompts from the log: the parts of each, whether it equals the one sent, and how it is without a memory."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from autoagent.agent.history import History, Moment, build_step_prompt
from autoagent.agent.progress import LoopGuard
from autoagent.agent.work import Work
from autoagent.commands.registry import Registry
from autoagent.commands.selection import LOADER, all_commands, grouped
from autoagent.core.commands import CommandSpec
from autoagent.core.errors import StateError
from autoagent.core.events import (
    AgentMessage,
    Changed,
    Checked,
    Decided,
    Dropped,
    Event,
    Feedback,
    Forked,
    Prompted,
    Recalled,
    Rejected,
    Remembered,
    Resumed,
    Retried,
    Returned,
    Rewound,
    RunStarted,
    Started,
    SystemNotice,
    Thought,
    Undone,
)
from autoagent.core.memory import LeftOut, RetrievedMemory
from autoagent.core.model import SMALL_WINDOW
from autoagent.log.reader import effective
from autoagent.prompt import Prompt, recollection_lines
from autoagent.text.tokens import Count

TRACED = (
    RunStarted, Resumed, Changed, Recalled, Dropped, Prompted, Retried, Thought, Rejected, Decided, Feedback, Forked,
    Rewound, Undone, Checked, SystemNotice, AgentMessage, Started, Returned,
)  # fmt: skip
"""What a prompt is made of, and which commands are offered with it."""


@dataclass(frozen=True, slots=True)
class BuiltPrompt:
    """A prompt that was sent, and all it was made of."""

    prompted: Prompted
    sources: Sources

    @property
    def shown(self) -> tuple[RetrievedMemory, ...]:
        """The memories that are in the prompt, best first."""
        history, memories = self.sources.history, self.sources.recalled_in(self.prompted.step)
        found = (
            (history.core, history.shares.core, history.core_at),
            (history.lasting, history.shares.lasting, history.lasting_at),
            (memories, history.shares.recollections, self.prompted.at),
        )
        lines = (recollection_lines(some, room, self.sources.count, now=at) for some, room, at in found)
        return tuple(memory for (some, *_), own in zip(found, lines, strict=True) for memory in some[: len(own)])

    @property
    def left_out(self) -> tuple[LeftOut, ...]:
        """The candidates that are not in the prompt, and why."""
        recalls = self.sources.recalls_in(self.prompted.step)
        shown = {memory.id for memory in self.shown}
        cut = {m.id: m for recall in recalls for m in recall.memories if m.id not in shown}
        no_room = [LeftOut(m.id, m.score, "no room in the prompt", m.evidence) for m in cut.values()]
        others = [other for recall in recalls for other in recall.left_out if other.id not in shown]
        return (*no_room, *{other.id: other for other in others}.values())

    @property
    def gate(self) -> float:
        """The evidence that a memory needed for this prompt, or 0 if the log does not have it."""
        return max((recall.gate for recall in self.sources.recalls_in(self.prompted.step)), default=0.0)

    @property
    def query(self) -> str:
        """The query of the recall for this step."""
        return "; ".join(recall.query for recall in self.sources.recalls_in(self.prompted.step) if not recall.core)

    def prompt(self, without: Collection[int] = ()) -> Prompt:
        """Build the prompt, leaving out the memories with these ids. With none left
        out, its sha256 is that of `prompted`, unless the program is another one now.
        """
        sent, sources = self.prompted, self.sources
        moment = Moment(sent.at, sent.zone, sent.left, sent.files)
        memories = sources.recalled_in(sent.step)
        return build_step_prompt(sources.start, sources.history, memories, moment, count=sources.count, without=without)


@dataclass(frozen=True, slots=True)
class Traced(BuiltPrompt):
    """One step, as far as its reply.

    `registry` has the commands of the run, `offered` are those of them the model could ask for in this step; `reply` is
    None if none came; `answered` is how many replies there were before.
    """

    reply: Thought | Rejected | None
    answered: int
    registry: Registry
    offered: tuple[CommandSpec, ...]


def trace(events: Iterable[Event], step: int, counter: Callable[[str], Count]) -> Traced:
    """Fold the events of a run up to the last prompt of a step. `counter` gives the token count for a model's name.

    Raises:
        StateError: the run has no such step, or none that came to a prompt.
    """
    recorded = [event for event in events if not event.agent]
    replies = [event for event in recorded if isinstance(event, (Thought, Rejected))]
    prompts = [(n, event) for n, event in enumerate(recorded) if isinstance(event, Prompted)]
    at, prompted = next(((n, event) for n, event in reversed(prompts) if event.step == step), (0, None))
    if prompted is None and any(event.step == step for event in replies):
        raise StateError(f"Step {step} has no prompt of its own: its command stood in the reply of an earlier step.")
    if prompted is None:
        last = max((event.step for _, event in prompts), default=0)
        raise StateError(f"There is no prompt of a step {step}; the last one is of step {last}.")
    before = _effective(recorded[:at])
    sources = Sources(before, counter)
    registry = _registry(sources.start)
    specs = {spec.name: spec for spec in registry.specs}
    repeats, work = LoopGuard(specs), Work(specs)
    for event in before:
        repeats.add(event)
        work.add(event)
    return Traced(
        prompted,
        sources,
        next((event for event in replies if event.step == step), None),
        sum(event.step < step for event in replies),
        registry,
        tuple(repeats.offered(work.loaded_of(registry.specs))),
    )


def prompts(events: Iterable[Event], counter: Callable[[str], Count]) -> Iterator[BuiltPrompt]:
    """Yield each prompt of a run and its sub-agents, in order. Look before the next one: the sources go on changing."""
    recorded: dict[str, list[Event]] = {}
    sources: dict[str, Sources] = {}
    for event in events:
        own = recorded.setdefault(event.agent, [])
        if isinstance(event, Prompted):
            yield BuiltPrompt(event, sources[event.agent])
        own.append(event)
        begins = isinstance(event, (RunStarted, Rewound)) and not isinstance(event, Changed)
        if begins:  # a process folds the events that count from the beginning
            sources[event.agent] = Sources(_effective(own), counter)
        elif event.agent in sources:
            sources[event.agent].add(event)


def verify(events: Iterable[Event], counter: Callable[[str], Count]) -> Iterator[tuple[Prompted, bool]]:
    """Yield each of the `prompts`, and whether the log leads to exactly what was sent."""
    for built in prompts(events, counter):
        yield built.prompted, built.prompt().sha256 == built.prompted.sha256


class Sources:
    """The sources of a prompt, folded from the events before it as by the process that built it."""

    def __init__(self, events: Sequence[Event], counter: Callable[[str], Count]) -> None:
        starts = (event for event in reversed(events) if isinstance(event, RunStarted))
        self.start = next(event for event in starts if not isinstance(event, Changed))  # of the process
        self.count = counter(self.start.model)
        registry = _registry(self.start)
        self.history = History(self.count, registry.pages_results)
        self._recalled: Recalled | None = None
        self.by_goals: Recalled | None = None
        self.core: Recalled | None = None
        began = self.start
        taken_up = next((n for n, event in enumerate(events) if event is began and isinstance(event, Resumed)), 0)
        for number, event in enumerate(events):
            if number > taken_up or not isinstance(event, (Recalled, Remembered)):
                self.add(event)

    def add(self, event: Event) -> None:
        if isinstance(event, RunStarted):
            self.start = event
        self.history.add(event)
        if isinstance(event, Recalled) and event.core:
            self.core = event
        elif isinstance(event, Recalled) and event.lasting:
            self.by_goals = event
        elif isinstance(event, Recalled):
            self._recalled = event

    def recalls_in(self, step: int) -> list[Recalled]:
        """Return the recalls for a step: of the core, by its goals, and by what it is about."""
        recalls = (self.core, self.by_goals, self._recalled)
        return [recall for recall in recalls if recall is not None and recall.step == step]

    def recalled_in(self, step: int) -> tuple[RetrievedMemory, ...]:
        """Return the recollections for a step."""
        return self._recalled.memories if self._recalled and self._recalled.step == step else ()


def _registry(start: RunStarted) -> Registry:
    """Return the commands of a run, in groups if it loaded them by group."""
    registry = Registry(all_commands()).only(start.commands, "it was not offered in that run")
    if LOADER not in start.commands:
        return registry
    return grouped(registry, guided=start.style.guided, small=start.window < SMALL_WINDOW)


def _effective(events: Sequence[Event]) -> list[Event]:
    return list(effective(events, [event for event in events if isinstance(event, Rewound)]))
