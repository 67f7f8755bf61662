"""Distill the facts of a run at its end, by asking a model what later runs will find useful."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from itertools import accumulate

from autoagent.agent.remember import effective_events, replaceable_memories
from autoagent.agent.side_call import MAX_SECONDS, SideCall, SideRequest
from autoagent.agent.state import State
from autoagent.core import events
from autoagent.core.errors import StopRun
from autoagent.core.events import Answered, Event, Retried
from autoagent.core.model import Message
from autoagent.core.task import Outcome
from autoagent.text.facts import MAX_FACTS, PURPOSE, parse_facts
from autoagent.text.quoting import EXPLANATION, mark_untrusted
from autoagent.text.sanitize import shorten
from autoagent.text.tokens import Count

MAX_STEPS_TOKENS = 6000  # for the run's steps in the request
WINDOW_DIVISOR = 4  # the steps take at most a quarter of the window
MAX_REPLY_TOKENS = 500
_MAX_STEP_CHARACTERS = 500  # of a step's outcome
_OLDEST_DIVISOR = 3  # the first steps get a third of the room if not all fit

_INSTRUCTION = """\
You keep the long-term memory of an agent. Below is what it did in one run, which is over. Write down what later runs \
will find useful: what it found out about files, systems, people and the world, what was decided, and what works or \
does not.
- At most {most} facts, each on a line of its own that begins with "- ".
- Each can be understood by itself: it names files, hosts, versions and figures, and says what was so before if that \
has changed.
- Nothing that only repeats the goals, and nothing about how the run went.
If there is nothing to write down, answer: none
{known}{explained}

The goals of the run:
{goals}
Result: {conclusion}

What it did:
{steps}"""

_CANDIDATES = """\
Earlier runs wrote down the following, each with its number. Do not repeat what still holds. A fact that takes the \
place of one of these begins with "- [replaces N] ", with its number for N.
{lines}
"""


def distill(state: State, call: SideCall, outcome: Outcome) -> Generator[Event, None, list[str]]:
    """Return the facts of a run, extracted by a model if the policy asks for it and the model's style allows it.

    The facts that an earlier process obtained are reused.
    """
    if not state.policy.distils or not state.start.style.reasons:
        return []
    answer: Answered | str | None = state.continuation.facts_answer
    if answer is None:
        room = min(MAX_STEPS_TOKENS, state.start.window // WINDOW_DIVISOR)
        candidates = replaceable_memories(state.history)
        lines = "\n".join(f"[{memory.id}] {' '.join(memory.text.split())}" for memory in candidates)
        steps = list(_steps(effective_events(state)))
        prompt = _INSTRUCTION.format(
            most=MAX_FACTS,
            known=_CANDIDATES.format(lines=lines) if candidates else "",
            explained=EXPLANATION,
            goals="\n".join(f"- {goal.text}" for goal in state.start.task.goals),
            conclusion=outcome.reason,
            steps="\n".join(_fit(steps, room, state.count)) or "nothing",
        )
        activity = "keeping the facts of the run"
        request = SideRequest([Message("user", prompt)], PURPOSE, activity, MAX_REPLY_TOKENS, seconds=MAX_SECONDS)
        try:
            answer = yield from call.ask(request)
        except StopRun as stop:  # the run is over anyway
            answer = str(stop)
    if isinstance(answer, str):
        yield state.record(Retried(reason=f"No facts of the run were kept: {answer}"))
        return []
    return parse_facts(answer.text, truncated=answer.truncated)


def _steps(recorded: Iterable[Event]) -> Iterator[str]:
    """Yield a line or two for each notable step, feedback and notice, with outside text marked."""
    thought: events.Thought | None = None
    for event in recorded:
        match event:
            case events.Thought():
                thought = event
            case events.Feedback():
                yield f"The user said: {shorten(event.text, _MAX_STEP_CHARACTERS)}"
            case events.AgentMessage():
                yield f"{event.heading} {_quote(event.text, event.meta.untrusted, event)}"
            case events.Returned() if thought is not None:
                meta = event.meta
                if meta.repeat or meta.kept or meta.finished is not None or event.put_off:
                    continue
                reasoning = " ".join(thought.thoughts.text.split())
                text = shorten(f"{reasoning} {thought.call}", _MAX_STEP_CHARACTERS)
                yield f"{event.step}. {text} {event.outcome}: {_quote(event.text, meta.untrusted, event)}"


def _quote(text: str, source: str, event: Event) -> str:
    excerpt = shorten(text, _MAX_STEP_CHARACTERS)
    return mark_untrusted(excerpt, source, run=event.run, step=event.step) if source else excerpt


def _fit(lines: Sequence[str], room: int, count: Count) -> list[str]:
    """Return the lines, or the first and last that fit into `room` tokens, with a note between them."""
    sizes = [count(line) + 1 for line in lines]
    if sum(sizes) <= room:
        return list(lines)
    first_count = sum(tokens <= room // _OLDEST_DIVISOR for tokens in accumulate(sizes))
    last_room = room - sum(sizes[:first_count])
    last_count = sum(tokens <= last_room for tokens in accumulate(reversed(sizes[first_count:])))
    note = f"({len(lines) - first_count - last_count} steps are left out here)"
    return [*lines[:first_count], note, *lines[len(lines) - last_count :]]
