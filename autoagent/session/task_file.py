"""Read and write `ai_settings.yaml` and `prompt_settings.yaml`, as AutoGPT writes them."""

from __future__ import annotations

from pathlib import Path

from autoagent.core.errors import SettingsError
from autoagent.core.task import MAX_GOALS, Goal, Task
from autoagent.session.dotenv import number
from autoagent.text.text_file import is_there, read_text, write_text
from autoagent.text.yaml_file import YamlEntry, read_mapping

TASK_KEYS = ("ai_name", "ai_role", "ai_goals", "api_budget")


def is_saved(path: Path) -> bool:
    """Return whether there is a saved task. An empty file counts as missing."""
    return is_there(path) and (not path.is_file() or path.stat().st_size > 0)


def read_task(path: Path) -> Task:
    """Read the saved task. Raises SettingsError naming the file, line and key of any error."""
    entries = read_mapping(path, TASK_KEYS)
    goals = _goals(entries["ai_goals"]) if "ai_goals" in entries else ()
    if not goals:
        raise SettingsError(f"{path}: ai_goals: no goal is given; add one as `- what to reach` under `ai_goals:`.")
    if len(goals) > MAX_GOALS:
        raise SettingsError(f"{entries['ai_goals'].where}: holds {len(goals)} goals; at most {MAX_GOALS} are taken.")
    name, role = (_required(path, entries, key) for key in ("ai_name", "ai_role"))
    budget = entries.get("api_budget")
    usd = number(budget.text() or "0", budget.where, "an amount of USD such as 1.50") if budget else 0.0
    return Task(name, role, goals, budget=usd)


def checks_in(path: Path) -> list[tuple[int, str]]:
    """Return the checks of the saved goals with their lines, or [] if the file is unreadable or not a task."""
    try:
        text = read_text(path) if is_there(path) else ""
        if not ("check" in text or "\\" in text):  # most tasks have none, and YAML is slow to load
            return []
        goals = read_mapping(path, TASK_KEYS)["ai_goals"]
        checks = [_text_and_check(item).get("check") for item in goals.items()] if goals.is_list else []
    except (SettingsError, KeyError):
        return []
    return [(int(check.place.rpartition(":")[2]), check.text()) for check in checks if check]


def write_task(path: Path, task: Task) -> None:
    """Save the task atomically, without escaping non-Latin text. Raises SettingsError if it cannot be written."""
    import yaml

    record = {
        "ai_goals": [{"text": goal.text, "check": goal.check} if goal.check else goal.text for goal in task.goals],
        "ai_name": task.name,
        "ai_role": task.role,
        "api_budget": task.budget,
    }
    write_text(path, yaml.safe_dump(record, allow_unicode=True, sort_keys=False, width=4096))


def read_prompt_settings(path: Path) -> dict[str, tuple[str, ...]]:
    """Return the non-empty lists under `constraints`, `resources` and `best_practices`.

    AutoGPT calls the last `performance_evaluations`. Raises SettingsError naming the file, line and key.
    """
    entries = read_mapping(path, ("constraints", "resources", "best_practices", "performance_evaluations"))
    lists: dict[str, tuple[str, ...]] = {}
    for key, entry in entries.items():
        name = "best_practices" if key == "performance_evaluations" else key
        if name in lists:
            raise SettingsError(
                f"{entry.where}: performance_evaluations and best_practices are the same; keep one of them."
            )
        lists[name] = tuple(entry.texts())
    return lists


def _goals(entry: YamlEntry) -> tuple[Goal, ...]:
    """Read a list of goals or a single goal. A check has its own key, so the text is never split."""
    if entry.node.id == "scalar":
        return (Goal(entry.text()),) if entry.text() else ()
    return tuple(_goal(item) for item in entry.items())


def _text_and_check(item: YamlEntry) -> dict[str, YamlEntry]:
    has_keys = item.node.id == "mapping" and any(key.value == "text" for key, _ in item.node.value)
    return item.members(("text", "check")) if has_keys else {"text": item}  # `- Goal 1: make x` is a text, too


def _goal(item: YamlEntry) -> Goal:
    parts = _text_and_check(item)
    for part in parts.values():
        if not part.text():
            raise SettingsError(f"{part.where}: holds an empty item; write it out or remove it.")
    return Goal(parts["text"].text(), parts["check"].text() if "check" in parts else None)


def _required(path: Path, entries: dict[str, YamlEntry], key: str) -> str:
    text = entries[key].text() if key in entries else ""
    if not text:
        location = entries[key].where if key in entries else f"{path}: {key}"
        raise SettingsError(f"{location}: is missing; add `{key}: ...`.")
    return text
