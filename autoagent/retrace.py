"""A step's prompt once more, from the log: what went into it, and what it would be without some of its memories."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from autoagent.budget import Budget, Limits
from autoagent.commands.catalogue import all_commands
from autoagent.commands.registry import Registry
from autoagent.errors import StateError
from autoagent.history import History
from autoagent.loop import prompt_of
from autoagent.messages import (
    CommandSpec,
    Event,
    LeftOut,
    Prompted,
    Recalled,
    Recollection,
    Rejected,
    RunStarted,
    Thought,
)
from autoagent.prompt import Prompt, recollection_lines
from autoagent.repeats import Repeats
from autoagent.tokens import Count


@dataclass(frozen=True, slots=True)
class Traced:
    """One step, as far as its reply: the prompt that was answered and all it was made of.

    `registry` has the commands of the run, `offered` are those of them the model could ask for in this step; `reply` is
    None where none came; `answered` is how many replies there were before.
    """

    start: RunStarted
    recalled: Recalled | None
    prompted: Prompted
    reply: Thought | Rejected | None
    answered: int
    registry: Registry
    offered: tuple[CommandSpec, ...]
    history: History
    budget: Budget
    count: Count

    @property
    def shown(self) -> tuple[Recollection, ...]:
        """The memories that are in the prompt, best first."""
        memories = self.recalled.memories if self.recalled else ()
        return memories[: len(recollection_lines(memories, self.history.shares.recollections, self.count))]

    @property
    def left_out(self) -> tuple[LeftOut, ...]:
        """The candidates that are not, and why."""
        if self.recalled is None:
            return ()
        cut = self.recalled.memories[len(self.shown) :]
        return (*(LeftOut(m.id, m.score, "no room in the prompt") for m in cut), *self.recalled.left_out)

    def prompt(self, without: Collection[int] = ()) -> Prompt:
        """The prompt, left out the memories with these ids. With none left out, its sha256 is that of `prompted`,
        unless the program or the time zone is another one now."""
        memories = [m for m in (self.recalled.memories if self.recalled else ()) if m.id not in without]
        at = self.prompted.at
        return prompt_of(self.start, self.history, self.budget, memories, now=at, count=self.count)


def trace(events: Iterable[Event], step: int, counter: Callable[[str], Count]) -> Traced:
    """Fold the events of a run up to the last prompt of a step; `counter` gives the token count for a model's name.

    Raises:
        StateError: the run has no such step, or none that came to a prompt.
    """
    recorded = list(events)
    prompts = [(n, event) for n, event in enumerate(recorded) if isinstance(event, Prompted)]
    at, prompted = next(((n, event) for n, event in reversed(prompts) if event.step == step), (0, None))
    if prompted is None:
        last = max((event.step for _, event in prompts), default=0)
        raise StateError(f"There is no prompt of a step {step}; the last one is of step {last}.")
    before = recorded[:at]
    start = next(event for event in reversed(before) if isinstance(event, RunStarted))
    count = counter(start.model)
    registry = Registry(all_commands()).only(start.commands, "it was not offered in that run")
    history, budget = History(count), Budget(Limits(**start.limits))
    repeats = Repeats({spec.name: spec for spec in registry.specs})
    for event in before:
        for fold in (history, budget, repeats):
            fold.add(event)
    recalls = [event for event in before if isinstance(event, Recalled) and event.step == step]
    replies = [event for event in recorded if isinstance(event, (Thought, Rejected))]
    return Traced(
        start=start,
        recalled=recalls[-1] if recalls else None,
        prompted=prompted,
        reply=next((event for event in replies if event.step == step), None),
        answered=sum(event.step < step for event in replies),
        registry=registry,
        offered=tuple(spec for spec in registry.specs if spec.name not in repeats.barred_names),
        history=history,
        budget=budget,
        count=count,
    )
