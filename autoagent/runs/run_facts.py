"""The prompt that asks a model for the facts of a run, for later runs. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from autoagent.core.events import AgentMessage, Event, Feedback, Returned, Thought
from autoagent.core.task import Task
from autoagent.text.facts import MOST
from autoagent.text.quoting import EXPLANATION, marked
from autoagent.text.sanitize import shorten
from autoagent.text.tokens import Count

TOLD = 500  # characters of what came of a step
_OLDEST = 3  # the first steps have this part of the room where there is not enough for all

_ASKED = """\
You keep the long-term memory of an agent. Below is what it did in one run, which is over. Put down what later runs \
will be glad to know: what it found out about files, systems, people and the world, what was decided, and what works \
or does not.
- At most {most} facts, each on a line of its own that begins with "- ".
- Each can be understood by itself: it names files, hosts, versions and figures, and says what was so before if that \
has changed.
- Nothing that only repeats the goals, and nothing about how the run went.
If there is nothing to put down, answer: none
{explained}

The goals of the run:
{goals}
It came to: {came_to}

What it did:
{steps}"""


def facts_prompt(task: Task, came_to: str, events: Iterable[Event], room: int, count: Count) -> str:
    """Ask for the facts of a run, given its events. Its steps take at most `room` tokens, some are left out if need be.

    Text from outside stands between marks.
    """
    return _ASKED.format(
        most=MOST,
        explained=EXPLANATION,
        goals="\n".join(f"- {goal.text}" for goal in task.goals),
        came_to=came_to,
        steps="\n".join(_fitting(list(_steps(events)), room, count)) or "nothing",
    )


def _steps(events: Iterable[Event]) -> Iterator[str]:
    """Yield a line or two for each notable step, and for feedback and notices."""
    asked: Thought | None = None
    for event in events:
        match event:
            case Thought():
                asked = event
            case Feedback():
                yield f"The user said: {shorten(event.text, TOLD)}"
            case AgentMessage():
                yield f"{event.heading} {_told(event.text, event.meta.untrusted, event)}"
            case Returned() if asked is not None:
                meta = event.meta
                if meta.repeat or meta.kept or meta.finished is not None or event.put_off:
                    continue
                thought = " ".join(asked.thoughts.text.split())
                done = shorten(f"{thought} {asked.call}", TOLD)
                yield f"{event.step}. {done} {event.outcome}: {_told(event.text, meta.untrusted, event)}"


def _told(text: str, source: str, event: Event) -> str:
    shown = shorten(text, TOLD)
    return marked(shown, source, run=event.run, step=event.step) if source else shown


def _fitting(lines: Sequence[str], room: int, count: Count) -> list[str]:
    """Return the lines, or the first and the last of them that fit, with a note between them."""
    costs = [count(line) + 1 for line in lines]
    if sum(costs) <= room:
        return list(lines)
    first = _as_many(costs, room // _OLDEST)
    last = _as_many(costs[first:][::-1], room - sum(costs[:first]))
    left_out = len(lines) - first - last
    return [*lines[:first], f"({left_out} steps are left out here)", *lines[len(lines) - last :]]


def _as_many(costs: Sequence[int], room: int) -> int:
    taken = 0
    for number, cost in enumerate(costs):
        taken += cost
        if taken > room:
            return number
    return len(costs)
