"""Play the demo: a scripted agent without a model, whose commands do run in the workspace."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

from autoagent.core.model import Thoughts
from autoagent.core.task import Goal, Task
from autoagent.models.replay import ReplayModel

if TYPE_CHECKING:
    from autoagent.registry.models import ModelOpening

_FILE = "haiku.txt"
_HAIKU = "Last leaf on the branch,\nthe wind asks it once again.\nEvening. It lets go.\n"

_STEPS: tuple[tuple[Thoughts, str, dict[str, str]], ...] = (
    (
        Thoughts(
            text="Autumn in three lines: five, seven and five syllables. One leaf is enough for a whole season.",
            reasoning="The file is the first goal, and there is nothing to look up before I write it.",
            plan=f"- write the haiku to {_FILE}\n- read it back\n- finish",
            criticism="Count the syllables again once it is written; it is easy to be one short.",
            speak=f"I am writing a haiku about the last leaf to {_FILE}.",
        ),
        "write_to_file",
        {"filename": _FILE, "text": _HAIKU},
    ),
    (
        Thoughts(
            text="The haiku is written. Now I look at what really stands in the file.",
            reasoning="The second goal asks for it, and a file that nobody has read is only a claim.",
            plan=f"- read {_FILE}\n- count the syllables\n- finish",
            criticism="I should trust the file, not my memory of it.",
            speak="I am reading the haiku back.",
        ),
        "read_file",
        {"filename": _FILE},
    ),
    (
        Thoughts(
            text="Five, seven, five: it holds. One look at the workspace, so that I leave nothing stray behind.",
            reasoning="Only the haiku should have come of this run.",
            plan="- list the files\n- finish",
            criticism="This step is for tidiness; the goals are met already.",
            speak="The haiku scans. I am checking the workspace.",
        ),
        "list_files",
        {"directory": "."},
    ),
    (
        Thoughts(
            text="The haiku is in its file and I have read it back. Both goals are met.",
            reasoning="There is nothing left to do, and every further step would cost time.",
            plan="- finish",
            criticism="A kinder poet would have written about spring.",
            speak="Both goals are met.",
        ),
        "task_complete",
        {"reason": f"{_FILE} holds a haiku about autumn, and it was read back."},
    ),
)

_VERDICTS = {
    "goals": [
        {"n": 1, "why": "It holds three lines.", "verdict": "met", "evidence": "Last leaf on the branch"},
        {"n": 2, "why": "The file can be read.", "verdict": "met", "evidence": "the wind asks it once"},
    ]
}


def demo_model() -> ReplayModel:
    """Return a fresh demo model: it writes the haiku, reads it, lists the files and finishes."""
    replies = [
        {"thoughts": asdict(thoughts), "command": {"name": name, "args": args}} for thoughts, name, args in _STEPS
    ]
    texts = [json.dumps(reply, indent=4, ensure_ascii=False) for reply in replies]
    return ReplayModel(texts, name="demo", verifications=[json.dumps(_VERDICTS)])


def open_model(opening: ModelOpening) -> ReplayModel:
    """Open the demo at this run's position."""
    model = demo_model()
    model.skip(opening.answered)
    return model


def demo_task() -> Task:
    """Return the task of the demo."""
    goals = Goal(f"Write a haiku about autumn to {_FILE}"), Goal("Read it back before you finish")
    return Task("DemoGPT", "a scripted agent that shows what a run looks like", goals)
