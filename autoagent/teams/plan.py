"""The plan of a role that plans and acts: tasks that depend on one another, worked on in order, reviewed one by one."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from autoagent.teams.action import settled, told
from autoagent.teams.message import Message

if TYPE_CHECKING:
    from autoagent.teams.role import Role

TRIES = 3  # at a plan that can be used
REVISIONS = 3  # of the plan, in one turn

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
    """One task of a plan. `result` is None until it is done."""

    task_id: str
    instruction: str
    dependent_task_ids: tuple[str, ...] = ()
    result: str | None = None


class Plan:
    """Tasks in an order in which each comes after those that it depends on."""

    def __init__(self, tasks: Iterable[Task] = ()) -> None:
        self.tasks = in_order(list(tasks))

    def waiting(self) -> Task | None:
        """Return the next task that is not done."""
        return next((task for task in self.tasks if task.result is None), None)

    def revise(self, tasks: Iterable[Task]) -> None:
        """Put other tasks in the place of those that are not done."""
        done = [task for task in self.tasks if task.result is not None]
        names = {task.task_id for task in done}
        self.tasks = in_order([*done, *(task for task in tasks if task.task_id not in names)])

    def __str__(self) -> str:
        lines = []
        for task in self.tasks:
            lines.append(f"{task.task_id}. {task.instruction}")
            if task.result is not None:
                lines.append(task.result)
        return "\n".join(lines)


def in_order(tasks: list[Task], done: Iterable[str] = ()) -> list[Task]:
    """Return tasks sorted so that each follows those it needs. `done` are others that are done.

    Raises ValueError for a task that there is twice, or that needs one that there is not, or that needs itself.
    """
    names = [task.task_id for task in tasks]
    if len(set(names)) < len(names):
        raise ValueError("a task_id stands there twice")
    found: list[Task] = []
    left = list(tasks)
    while left:
        have = {*done, *(task.task_id for task in found)}
        ready = next((task for task in left if have.issuperset(task.dependent_task_ids)), None)
        if ready is None:
            raise ValueError(f"task {left[0].task_id} needs a task that is not there, or that needs it")
        found.append(ready)
        left.remove(ready)
    return found


def tasks_in(answer: str, done: Iterable[str] = ()) -> list[Task]:
    """Return the tasks of an answer. They may need those that are `done`. Raises ValueError, which says why."""
    start, end = answer.find("["), answer.rfind("]")
    if not 0 <= start < end:
        raise ValueError("there is no list in it")
    found = json.loads(answer[start : end + 1], strict=False)
    tasks = [_task(number, each) for number, each in enumerate(found, 1)]
    if not tasks:
        raise ValueError("the list is empty")
    in_order(tasks, done)
    return tasks


def _task(number: int, found: Any) -> Task:
    if isinstance(found, str):
        found = {"instruction": found}
    instruction = found.get("instruction") if isinstance(found, dict) else None
    if not isinstance(instruction, str) or not instruction.strip():
        raise ValueError(f"task {number} has no instruction")
    needs = found.get("dependent_task_ids") or ()
    if not isinstance(needs, (list, tuple)):
        raise ValueError(f"dependent_task_ids of task {number} is no list")
    return Task(str(found.get("task_id", number)), instruction.strip(), tuple(str(name) for name in needs))


async def plan_and_act(role: Role) -> Message | None:
    """Have the model write a plan, work on each task with an action, review it, revise the plan. Return the results."""
    if not role.actions:
        return None
    context = told(role.rc.history)
    plan, revisions = Plan(await _tasks(role, _WRITE.format(context=context), context)), 0
    while (task := plan.waiting()) is not None:
        task.result = await _work(role, plan, task)
        review = await role.llm_for("review").aask(_REVIEW.format(instruction=task.instruction, result=task.result))
        objection = re.search(r"\brevise\b:?(.*)", review, re.IGNORECASE | re.DOTALL)
        if objection and revisions < REVISIONS:
            revisions += 1
            prompt = _REVISE.format(context=context, plan=plan, review=objection[1].strip() or review)
            done = [each.task_id for each in plan.tasks if each.result is not None]
            plan.revise(await _tasks(role, prompt, "", done))
    said = role.said(str(plan), role.actions[-1])
    role.rc.memory.add(said)
    return said


async def _tasks(role: Role, prompt: str, whole: str, done: Iterable[str] = ()) -> list[Task]:
    """Return the tasks that the model plans. If it cannot, the whole as one task, or none."""
    problem = ""
    for _ in range(TRIES):
        answer = await role.llm_for("plan").aask(prompt + problem)
        try:
            return tasks_in(answer, done)
        except ValueError as error:  # json's own errors are such, too
            problem = f"\nYour last answer could not be used: {error}."
    return [Task("1", whole)] if whole else []


async def _work(role: Role, plan: Plan, task: Task) -> str:
    """Take the action that fits a task. Return its result as text."""
    needed = [each for each in plan.tasks if each.task_id in task.dependent_task_ids]
    results = [Message(each.result or "", f"result of task {each.task_id}") for each in needed]
    about = [*role.rc.news, *results, Message(task.instruction, "task")]
    state = 0 if len(role.actions) == 1 else max(0, await role.choose(told(about)))
    role._set_state(state)
    assert role.rc.todo is not None
    return role.said(await settled(role.rc.todo.run(about)), role.rc.todo).content
