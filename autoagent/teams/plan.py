"""Define the plan of a role that plans and acts: dependent tasks, done in order, each reviewed."""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from typing import Any

from autoagent.teams.llm import Llm
from autoagent.teams.message import Message

MAX_TRIES = 3  # for a usable plan
MAX_REVISIONS = 3  # of the plan, in one turn

_FORM = """\
Answer with JSON alone, a list of tasks, such as
[{"task_id": "1", "dependent_task_ids": [], "instruction": "what to do"}]
`dependent_task_ids` names the tasks whose results it needs. Few tasks are better than many.
"""
_WRITE = "{context}\n\nWrite a plan for what is wanted of you.\n" + _FORM.replace("{", "{{").replace("}", "}}")
_REVISE = (
    "{context}\n\nThe plan so far, with the results of finished tasks:\n{plan}\n\n"
    "The review of the last task said: {review}\n\nWrite the tasks that are left, anew, without the finished ones.\n"
) + _FORM.replace("{", "{{").replace("}", "}}")
_REVIEW = (
    "The task was: {instruction}\n\nIts result:\n{result}\n\n"
    "Is it done? Answer with the one word confirm, or with `revise:` and what the plan must do about it."
)


@dataclass(slots=True)
class Task:
    """A task of a plan. `result` is None until the task is done."""

    task_id: str
    instruction: str
    dependent_task_ids: tuple[str, ...] = ()
    result: str | None = None

    def __str__(self) -> str:
        planned = f"{self.task_id}. {self.instruction}"
        return planned if self.result is None else f"{planned}\n{self.result}"


def sort_by_dependencies(tasks: list[Task], finished_ids: Collection[str]) -> list[Task]:
    """Return tasks sorted so that each follows its dependencies, or those in `finished_ids`.

    Raises ValueError for a duplicate task, a missing dependency or a circular one.
    """
    names = [task.task_id for task in tasks]
    if len(set(names)) < len(names):
        raise ValueError("a task_id stands there twice")
    ordered: list[Task] = []
    remaining = list(tasks)
    while remaining:
        available_ids = {*finished_ids, *(task.task_id for task in ordered)}
        ready = next((task for task in remaining if available_ids.issuperset(task.dependent_task_ids)), None)
        if ready is None:
            raise ValueError(f"task {remaining[0].task_id} needs a task that is not there, or that needs it")
        ordered.append(ready)
        remaining.remove(ready)
    return ordered


def tasks_in(answer: str, done: Collection[str]) -> list[Task]:
    """Return the unfinished tasks of an answer in order. `done` are the ids of finished tasks. Raises ValueError."""
    start, end = answer.find("["), answer.rfind("]")
    if not 0 <= start < end:
        raise ValueError("there is no list in it")
    items = json.loads(answer[start : end + 1], strict=False)
    tasks = [_task(number, each) for number, each in enumerate(items, 1)]
    if not tasks:
        raise ValueError("the list is empty")
    unfinished = [task for task in sort_by_dependencies(tasks, done) if task.task_id not in done]
    if not unfinished:
        raise ValueError(f"all of its tasks are finished ({', '.join(done)}); a new task needs a new task_id")
    return unfinished


def _task(number: int, item: Any) -> Task:
    if isinstance(item, str):
        item = {"instruction": item}
    instruction = item.get("instruction") if isinstance(item, dict) else None
    if not isinstance(instruction, str) or not instruction.strip():
        raise ValueError(f"task {number} has no instruction")
    dependencies = item.get("dependent_task_ids") or ()
    if not isinstance(dependencies, (list, tuple)):
        raise ValueError(f"dependent_task_ids of task {number} is not a list")
    return Task(str(item.get("task_id", number)), instruction.strip(), tuple(map(str, dependencies)))


async def run_plan(
    context: str, llm_for: Callable[[str], Llm], work: Callable[[str, list[Message]], Awaitable[str]]
) -> str:
    """Have the model write a plan for `context`, work on each task, review the result and revise the plan.

    `work` takes a task and the results that it needs, and returns its result. Return the plan with all results.
    """
    open_tasks = deque(await _tasks(llm_for, _WRITE.format(context=context), whole=context))
    done: dict[str, Task] = {}
    revisions = 0
    while open_tasks:
        task = open_tasks.popleft()
        dependencies = [other for other in done.values() if other.task_id in task.dependent_task_ids]
        results = [Message(other.result or "", f"result of task {other.task_id}") for other in dependencies]
        task.result = await work(task.instruction, results)
        done[task.task_id] = task
        review = await llm_for("review").aask(_REVIEW.format(instruction=task.instruction, result=task.result))
        objection = re.search(r"\brevise\b:?(.*)", review, re.IGNORECASE | re.DOTALL)
        if objection and revisions < MAX_REVISIONS:
            revisions += 1
            plan = "\n".join(map(str, (*done.values(), *open_tasks)))
            prompt = _REVISE.format(context=context, plan=plan, review=objection[1].strip() or review)
            open_tasks = deque(await _tasks(llm_for, prompt, done))
    return "\n".join(map(str, done.values()))


async def _tasks(llm_for: Callable[[str], Llm], prompt: str, done: Collection[str] = (), whole: str = "") -> list[Task]:
    """Return the tasks planned by the model. Without a usable plan, return `whole`, if any, as a single task."""
    problem = ""
    for _ in range(MAX_TRIES):
        answer = await llm_for("plan").aask(prompt + problem)
        try:
            return tasks_in(answer, done)
        except ValueError as error:  # includes json's own errors
            problem = f"\nYour last answer could not be used: {error}."
    return [Task("1", whole)] if whole else []
