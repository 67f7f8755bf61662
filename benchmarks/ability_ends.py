"""Ends of runs for a verifier to judge: goals, files before, the agent's commands, and whether the end is right.

Two sources. *Recorded* ends are those of real runs that `ability.py --keep` has kept, where the agent said that it was
done. *Generated* ends come from drawn tasks: a right one is the reference solution, a wrong one a plausible mistake of
the family or a damaged solution (a line gone, a wrong number, an invented word, a file not done, another file deleted
or changed, nothing done). Whether an end is right, the task's check says.
"""

from __future__ import annotations

import json
import random
import re
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ability_checks import WORDS, Changes, Task, apply
from ability_tasks import draw

SHARES = {"mistake": 4}  # of the kinds of wrong ends, where it is not 1
Command = tuple[str, Mapping[str, Any]]


@dataclass(frozen=True)
class End:
    """An end and how the agent came to it: `commands` lead from the files `before` to those `after`.

    `kind` is `reference` for a right generated end, what is wrong for a wrong one, and `run` for a recorded one.
    """

    name: str
    source: str
    kind: str
    family: str
    language: str
    goals: tuple[str, ...]
    before: Mapping[str, str]
    commands: tuple[Command, ...]
    after: Mapping[str, str]
    right: bool


def files_in(folder: Path) -> dict[str, str]:
    """The texts in a folder, without what running code leaves there."""
    found = (path for path in sorted(folder.rglob("*")) if path.is_file())
    names = {path.relative_to(folder).as_posix(): path for path in found}
    return {
        name: path.read_text(errors="replace") for name, path in names.items() if "__pycache__" not in name.split("/")
    }


def recorded(keep: Path, split: str) -> Iterator[End]:
    """Yield the ends that ability.py has kept of a split: those that say that all is done."""
    for home in sorted(keep.glob(f"autoagent/{split}-*")):
        if not (home / "record.json").exists():
            continue
        record = json.loads((home / "record.json").read_text())
        events = [json.loads(line) for log in home.glob("state/runs/*/events.jsonl") for line in log.open()]
        calls = [event["call"] for event in events if event["type"] == "started"]
        if record["code"] not in (0, 9) or not calls or calls[-1]["name"] != "task_complete":
            continue
        yield End(
            name=f"{home.name}-run",
            source="recorded",
            kind="run",
            family=record["family"],
            language=record["language"],
            goals=tuple(goal["text"] for goal in events[0]["task"]["goals"]),
            before=files_in(home / "before"),
            commands=tuple((call["name"], call["args"]) for call in calls if call["name"] != "task_complete"),
            after=files_in(home / "workspace"),
            right=record["possible"] and record["right_files"],
        )


def generated(split: str, tasks: int, seed: int) -> Iterator[End]:
    """Yield a right and a wrong end of each drawn task, of an impossible one only a wrong end."""
    kinds: Counter[str] = Counter()
    for task in draw(split, tasks, seed):
        chance = random.Random(f"{seed}/{task.name}")
        if task.possible:
            yield _end(task, "reference", task.solution, chance, right=True)
        wrong = [(kind, changes) for kind, changes in damages(task, chance) if not _is_right(task, changes)]
        kind = min(dict(wrong), key=lambda kind: (kinds[kind] / SHARES.get(kind, 1), kind))
        kinds[kind] += 1
        yield _end(task, kind, chance.choice([changes for name, changes in wrong if name == kind]), chance, right=False)


def damages(task: Task, chance: random.Random) -> Iterator[tuple[str, Changes]]:
    """Yield wrong ends of a task, with what is wrong."""
    if not task.possible:
        yield from (("impossible", changes) for changes in task.wrong)
        return
    yield "nothing done", {}
    yield from (("mistake", changes) for changes in task.wrong)
    solution = dict(task.solution)
    others = sorted(set(task.files) - set(solution))
    for name in others:
        yield "another file deleted", {**solution, name: None}
        yield "another file changed", {**solution, name: task.files[name] + f"{chance.choice(WORDS)}\n"}
    for name, text in solution.items():
        if len(solution) > 1:
            yield "a file not done", {key: entry for key, entry in solution.items() if key != name}
        if not text or name.endswith(".py"):
            continue
        lines = text.splitlines(keepends=True)
        at = chance.randrange(len(lines))
        if len(lines) > 2:
            yield "a line gone", {**solution, name: "".join(lines[:at] + lines[at + 1 :])}
        if numbers := list(re.finditer(r"\d", text)):
            digit = chance.choice(numbers)
            other = str((int(digit[0]) + chance.randint(1, 9)) % 10)
            yield "a wrong number", {**solution, name: text[: digit.start()] + other + text[digit.end() :]}
        if words := list(re.finditer(r"[^\W\d]{4,}", text)):
            word = chance.choice(words)
            new = chance.choice([word for word in WORDS if word not in text])
            yield "an invented word", {**solution, name: text[: word.start()] + new + text[word.end() :]}


def _is_right(task: Task, changes: Changes) -> bool:
    if not task.possible:
        return False
    with tempfile.TemporaryDirectory() as folder:
        task.lay_out(Path(folder))
        apply(changes, Path(folder))
        return task.right_files(Path(folder))


def _end(task: Task, kind: str, changes: Changes, chance: random.Random, *, right: bool) -> End:
    """The end of an agent that reads all files, changes some, and now and then runs the tests that there are."""
    commands: list[Command] = [("read_file", {"filename": name}) for name in task.files]
    for name, text in changes.items():
        if text is not None:
            commands.append(("write_to_file", {"filename": name, "text": text}))
        elif name in task.files:
            commands.append(("delete_file", {"filename": name}))
    after = {name: text for name, text in {**task.files, **changes}.items() if text is not None}
    if chance.random() < 0.5:
        tests = [name for name in after if name.startswith("check_")]
        commands += [("execute_python_file", {"filename": name}) for name in tests]
    return End(
        f"{task.name}-{kind.replace(' ', '_')}", "generated", kind, task.family, task.language, task.goals, task.files,
        tuple(commands), after, right,
    )  # fmt: skip


def balance(ends: Sequence[End]) -> str:
    """Say how many there are of which."""
    right = sum(end.right for end in ends)
    by_source = Counter(end.source for end in ends)
    sources = ", ".join(f"{count} {source}" for source, count in by_source.items())
    return f"{len(ends)} ends ({sources}): {right} right, {len(ends) - right} wrong"
