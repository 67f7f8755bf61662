"""A skill made of a run: the model is asked to write down how it was done, for the user to keep or not."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from autoagent.core.commands import Call
from autoagent.core.events import Event, Returned, RunStarted, Started
from autoagent.text.sanitize import shorten, shorten_lines

CALL, CALLS = 300, 80  # characters of a call that the model is shown, and calls
REPLY_TOKENS = 1500


@dataclass(frozen=True, slots=True)
class DoneWork:
    """The goals of a run, the commands it used, and the sources of text from outside that it has read."""

    goals: tuple[str, ...]
    calls: tuple[str, ...]
    sources: tuple[str, ...]


def done_work(events: Iterable[Event]) -> DoneWork:
    """Return what a run's own agent has done. Results are left out: they may hold what others have written."""
    goals: tuple[str, ...] = ()
    calls: list[str] = []
    sources: dict[str, None] = {}
    call: Call | None = None
    for event in events:
        if event.agent:
            continue
        match event:
            case RunStarted():
                goals = tuple(goal.text for goal in event.task.goals)
            case Started():
                call = event.call
            case Returned() if call is not None:
                calls.append(f"{shorten(str(call), CALL)} -> {'ok' if event.ok else 'failed'}")
                sources |= dict.fromkeys(filter(None, (event.meta.source,)))
    return DoneWork(goals, tuple(calls), tuple(sources))


def proposal_prompt(work: DoneWork) -> str:
    """Return what asks a model to write the skill down."""
    goals = "\n".join(f"- {goal}" for goal in work.goals)
    calls = "\n".join(shorten_lines(work.calls, CALLS))
    return (
        f"An agent has reached these goals:\n{goals}\n\nIt used these commands:\n{calls}\n\n"
        "Write down as a skill how such a task is done, so that another agent does it quicker next time: what to look "
        "at first, which steps in which order, what went wrong and how to avoid it. Leave out what belongs to this one "
        "task alone, and all secrets. Answer with nothing but the text of its SKILL.md, in this form:\n"
        "---\nname: small-letters-and-hyphens\ndescription: what it does, and when to use it, in a sentence or two\n"
        "---\n\nThe steps, in Markdown."
    )


def proposed_text(reply: str) -> str:
    """Return the SKILL.md in a reply, without a fence around it or words before it."""
    text = reply.strip().replace("\r\n", "\n")
    if fenced := re.search(r"```\w*\n(---\n.*?)\n```\s*$", text, re.DOTALL):
        text = fenced[1]
    start = re.search(r"^---$", text, re.MULTILINE)
    return (text[start.start() :] if start else text).strip() + "\n"
