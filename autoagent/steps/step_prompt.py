"""Builds the prompt of a step from the log: the loop sends it, and `replay` and `why` rebuild it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from autoagent.core.events import RunStarted
from autoagent.core.memory import RetrievedMemory
from autoagent.prompt import Prompt, StepFacts, build
from autoagent.runs.history import History
from autoagent.text.tokens import Count


@dataclass(frozen=True, slots=True)
class Moment:
    """The moment of a prompt, as in Prompted: `left` is the line on the remaining limits, `files` the workspace's."""

    now: float
    zone: int | None
    left: str = ""
    files: str = ""


def build_step_prompt(
    start: RunStarted,
    history: History,
    memories: Sequence[RetrievedMemory],
    moment: Moment,
    *,
    count: Count,
    without: Collection[int] = (),
) -> Prompt:
    """Build the prompt of a step, without the memories whose ids are in `without`.

    All of its parts are in the log, so it can be rebuilt (see prompt_replay).
    """
    facts = StepFacts(
        goals=start.task.goals,
        standing="\n".join(line for line in (history.standing, moment.left) if line),
        files=moment.files,
        met=history.met,
        failing=history.failing,
        lasting=[memory for memory in history.lasting if memory.id not in without],
        lasting_at=history.lasting_at,
        now=moment.now,
        zone=moment.zone,
        file=start.task.file,
    )
    return build(
        start.system,
        history.messages,
        [memory for memory in memories if memory.id not in without],
        facts,
        shares=history.shares,
        count=count,
        fixed_tokens=history.fixed_tokens,
    )
