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
class Traced:
    """One step, as far as its reply: the prompt that was answered and all it was made of.

    `registry` has the commands of the run, `offered` are those of them the model could ask for in this step; `reply` is
    None if none came; `answered` is how many replies there were before.
    """

    start: RunStarted
    recalled: Recalled | None
    by_goals: Recalled | None
    core: Recalled | None
    prompted: Prompted
    reply: Thought | Rejected | None
    answered: int
    registry: Registry
    offered: tuple[CommandSpec, ...]
    history: History
    count: Count

    @property
    def shown(self) -> tuple[RetrievedMemory, ...]:
        """The memories that are in the prompt, best first."""
        memories, shares = (self.recalled.memories if self.recalled else ()), self.history.shares
        lasting, at = self.history.lasting, self.history.lasting_at
        core = recollection_lines(self.history.core, shares.core, self.count, now=self.history.core_at)
        stay = recollection_lines(lasting, shares.lasting, self.count, now=at)
        new = recollection_lines(memories, shares.recollections, self.count, now=self.prompted.at)
        return self.history.core[: len(core)] + lasting[: len(stay)] + memories[: len(new)]

    @property
    def left_out(self) -> tuple[LeftOut, ...]:
        """The candidates that are not in the prompt, and why."""
        recalls = [recall for recall in (self.core, self.recalled, self.by_goals) if recall]
        shown = {memory.id for memory in self.shown}
        cut = {m.id: m for recall in recalls for m in recall.memories if m.id not in shown}
        no_room = [LeftOut(m.id, m.score, "no room in the prompt", m.evidence) for m in cut.values()]
        others = [other for recall in recalls for other in recall.left_out if other.id not in shown]
        return (*no_room, *{other.id: other for other in others}.values())

    @property
    def gate(self) -> float:
        """The evidence that a memory needed for this prompt, or 0 if the log does not have it."""
        return max((recall.gate for recall in (self.by_goals, self.recalled) if recall), default=0.0)

    @property
    def query(self) -> str:
        """The query of the recall for this step."""
        return "; ".join(recall.query for recall in (self.by_goals, self.recalled) if recall)

    def prompt(self, without: Collection[int] = ()) -> Prompt:
        """Build the prompt, leaving out the memories with these ids. With none left
        out, its sha256 is that of `prompted`, unless the program is another one now.
        """
        memories = self.recalled.memories if self.recalled else ()
        return _rebuilt(self.start, self.history, memories, self.prompted, self.count, without)


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
    sources = _Sources(before, counter)
    registry = _registry(sources.start)
    specs = {spec.name: spec for spec in registry.specs}
    repeats, work = LoopGuard(specs), Work(specs)
    for event in before:
        repeats.add(event)
        work.add(event)
    return Traced(
        start=sources.start,
        recalled=sources.recalled_in(step),
        by_goals=sources.by_goals if sources.by_goals and sources.by_goals.step == step else None,
        core=sources.core if sources.core and sources.core.step == step else None,
        prompted=prompted,
        reply=next((event for event in replies if event.step == step), None),
        answered=sum(event.step < step for event in replies),
        registry=registry,
        offered=tuple(repeats.offered(work.loaded_of(registry.specs))),
        history=sources.history,
        count=sources.count,
    )


def verify(events: Iterable[Event], counter: Callable[[str], Count]) -> Iterator[tuple[Prompted, bool]]:
    """Yield each prompt of a run and its sub-agents, in order, and whether the log leads to exactly what was sent.

    Does as `trace`, for all of them in one pass.
    """
    recorded: dict[str, list[Event]] = {}
    sources: dict[str, _Sources] = {}
    for event in events:
        own = recorded.setdefault(event.agent, [])
        if isinstance(event, Prompted):
            yield event, sources[event.agent].prompt(event).sha256 == event.sha256
        own.append(event)
        begins = isinstance(event, (RunStarted, Rewound)) and not isinstance(event, Changed)
        if begins:  # a process folds the events that count from the beginning
            sources[event.agent] = _Sources(_effective(own), counter)
        elif event.agent in sources:
            sources[event.agent].add(event)


class _Sources:
    """The parts of a prompt, folded from the events before it as by the process that built it."""

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

    def recalled_in(self, step: int) -> Recalled | None:
        """Return the recollections for a step, or None."""
        return self._recalled if self._recalled and self._recalled.step == step else None

    def prompt(self, prompted: Prompted) -> Prompt:
        recalled = self.recalled_in(prompted.step)
        memories = recalled.memories if recalled else ()
        return _rebuilt(self.start, self.history, memories, prompted, self.count)


def _rebuilt(
    start: RunStarted,
    history: History,
    memories: Sequence[RetrievedMemory],
    prompted: Prompted,
    count: Count,
    without: Collection[int] = (),
) -> Prompt:
    moment = Moment(prompted.at, prompted.zone, prompted.left, prompted.files)
    return build_step_prompt(start, history, memories, moment, count=count, without=without)


def _registry(start: RunStarted) -> Registry:
    """Return the commands of a run, in groups if it loaded them by group."""
    registry = Registry(all_commands()).only(start.commands, "it was not offered in that run")
    if LOADER not in start.commands:
        return registry
    return grouped(registry, guided=start.style.guided, small=start.window < SMALL_WINDOW)


def _effective(events: Sequence[Event]) -> list[Event]:
    return list(effective(events, [event for event in events if isinstance(event, Rewound)]))
