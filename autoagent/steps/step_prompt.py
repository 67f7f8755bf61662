"""The prompt of a step, from what the log holds: the loop sends it, and `replay` and `why` build it again."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from autoagent.core.events import RunStarted
from autoagent.core.memory import RetrievedMemory
from autoagent.prompt import Prompt, StepFacts, build
from autoagent.runs.history import History
from autoagent.text.tokens import Count


def build_step_prompt(
    start: RunStarted,
    history: History,
    memories: Sequence[RetrievedMemory],
    left: str,
    *,
    now: float,
    zone: int | None,
    count: Count,
    without: Collection[int] = (),
) -> Prompt:
    """Build the prompt of a step; `left` is the line that states what is left of the limits, `zone` as in Prompted.
    Memories with an id in `without` are left out.

    All of its parts are in the log, so it can be rebuilt (see prompt_replay).
    """
    facts = StepFacts(
        goals=start.task.goals,
        standing="\n".join(line for line in (history.standing, left) if line),
        met=history.met,
        failing=history.failing,
        lasting=[memory for memory in history.lasting if memory.id not in without],
        lasting_at=history.lasting_at,
        now=now,
        zone=zone,
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
