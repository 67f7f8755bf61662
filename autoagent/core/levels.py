"""Define the three levels of a hierarchical run: planner, executor and thinker."""

from __future__ import annotations

import re

from autoagent.core.commands import LevelName
from autoagent.core.frozen import dataclass

THINKING_START, THINKING_END = "<|thinking_start|>", "<|thinking_end|>"
_THINKING = re.compile(rf"{re.escape(THINKING_START)}.*?(?:{re.escape(THINKING_END)}|\Z)\s*", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Level:
    """A level of a hierarchical run, and its agent."""

    name: LevelName
    title: str
    role: str
    result_instruction: str  # what to return at the end; added to its task
    share: float  # of the remaining budget of the level above


PLANNER = Level("planner", "Planner", "who plans and has others do the work", "", 1.0)
EXECUTOR = Level(
    "executor",
    "Executor",
    "who breaks a task into concrete questions, solves them one by one, and returns nothing but the result",
    "The reason of task_complete is all that is returned: let it be the result.",
    0.5,
)
THINKER = Level(
    "thinker",
    "Thinker",
    "who thinks a question through, step by step",
    f"The reason of task_complete is your thinking between {THINKING_START} and {THINKING_END}, and then the result.",
    0.5,
)
LEVELS = (PLANNER, EXECUTOR, THINKER)  # from the top: each delegates to the next


def without_thinking(text: str) -> str:
    """Return the result of a level without the thinking that precedes it."""
    return _THINKING.sub("", text).strip()
