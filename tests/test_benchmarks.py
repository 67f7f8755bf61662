"""The benchmarks whose figures do not depend on the machine hold what the README claims, and their checks are fair."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "benchmarks"))
import ability_checks
import ability_ends
import ability_results
import ability_tasks
from ability_agents import OURS, Run
from ability_checks import LANGUAGES, Task

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"


@pytest.mark.slow
def test_most_of_a_prompt_can_come_from_the_prefix_cache() -> None:
    command = [sys.executable, BENCHMARKS / "prefix.py", "--steps", "200"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    shares = {int(window): float(share) for window, share in re.findall(r"^ *(\d+) +([\d.]+)%", done.stdout, re.M)}
    assert shares[32_768] >= 90, done.stdout
    assert shares[8_192] >= 75, done.stdout


DRAWN = [
    pytest.param(task, id=task.name, marks=pytest.mark.slow if task.number else ())
    for split in ability_tasks.SPLITS
    for task in ability_tasks.draw(split, 36, 1)
]


def left(task: Task, workspace: Path, changes: ability_checks.Changes) -> bool:
    """Whether the check takes the files that somebody leaves."""
    workspace.mkdir()
    task.lay_out(workspace)
    ability_checks.apply(changes, workspace)
    return task.right_files(workspace)


def test_families_are_split_by_lot() -> None:
    names = {split: set(families) for split, families in ability_tasks.SPLITS.items()}
    assert names["dev"] == ability_tasks.by_lot(names["dev"] | names["test"], ability_tasks.LOT)
    assert len(set.union(*names.values())) == sum(map(len, names.values())), "each name is in one split"
    assert all(len(families) >= 7 for families in ability_tasks.SPLITS.values())


def test_what_is_drawn_hangs_on_the_seed_alone_and_covers_families_and_languages() -> None:
    for split, families in ability_tasks.SPLITS.items():
        drawn = ability_tasks.draw(split, 36, 7)
        assert [(task.name, task.goals, task.files) for task in drawn[:12]] == [
            (task.name, task.goals, task.files) for task in ability_tasks.draw(split, 12, 7)
        ]
        assert {(task.family, task.language) for task in drawn} == {(f, lang) for f in families for lang in LANGUAGES}
        assert [task.goals for task in drawn] != [task.goals for task in ability_tasks.draw(split, 36, 8)]


@pytest.mark.parametrize("task", DRAWN)
def test_a_check_takes_the_right_end_and_no_other(task: Task, tmp_path: Path) -> None:
    assert left(task, tmp_path / "right", task.solution)
    untidy = {name: text and text.replace("\n", " \n") + "\n\n" for name, text in task.solution.items()}
    assert left(task, tmp_path / "untidy", {**untidy, "scratch.tmp": "1"})
    assert len(task.wrong) >= 2
    if task.possible:
        for number, changes in enumerate((*task.wrong, {})):
            assert not left(task, tmp_path / f"wrong{number}", changes), changes
    for number, name in enumerate(set(task.files) - set(task.solution)):
        assert not left(task, tmp_path / f"lost{number}", {**task.solution, name: None}), name


def test_an_outcome_hangs_on_the_exit_code_and_the_files(tmp_path: Path) -> None:
    def outcome(task: Task, code: int, changes: ability_checks.Changes, agent: str = OURS) -> str:
        workspace = tmp_path / str(len(list(tmp_path.iterdir())))
        left(task, workspace, changes)
        return ability_results.outcome(agent, task, code, workspace)

    drawn = ability_tasks.draw("dev", 36, 3)
    possible, impossible = (next(task for task in drawn if task.possible is kind) for kind in (True, False))
    wrong, invented = possible.wrong[0], impossible.wrong[0]
    assert outcome(possible, 0, possible.solution) == "right"
    assert outcome(possible, 0, wrong) == "false finish"
    assert outcome(possible, 9, possible.solution) == outcome(possible, 4, possible.solution) == "right, unverified"
    assert outcome(possible, 9, wrong) == outcome(possible, 10, wrong) == outcome(possible, 8, wrong) == "failed"
    assert outcome(impossible, 10, {}) == "right"
    assert outcome(impossible, 10, dict.fromkeys(impossible.files)) == "failed"
    assert outcome(impossible, 0, {}) == outcome(impossible, 0, invented) == "false finish"
    assert outcome(impossible, 9, {}) == "failed"
    # A peer has no end that says "unmet": leaving all as it was counts as that.
    assert outcome(impossible, 0, {}, "a peer") == "right"
    assert outcome(impossible, 0, {"answer.txt": "7"}, "a peer") == "false finish"


def test_an_interval_holds_the_share_also_at_its_ends() -> None:
    assert [round(bound, 3) for bound in ability_results.wilson(8, 10)] == [0.490, 0.943]
    assert ability_results.wilson(0, 60)[0] == 0 and ability_results.wilson(60, 60)[1] == pytest.approx(1)


@pytest.mark.slow
def test_runs_that_are_kept_are_not_run_again_and_those_of_test_are_not_shown(tmp_path: Path) -> None:
    file = tmp_path / "runs.jsonl"
    with file.open("w") as lines:
        for split in ability_tasks.SPLITS:
            for number, task in enumerate(ability_tasks.draw(split, 12, 5)):
                workspace = tmp_path / f"{split}{number}"
                left(task, workspace, task.solution)
                run = Run(code=0 if number else 8, ended="", steps=3, tokens=100, generated=9, seconds=1, unparseable=0)
                record = ability_results.record(OURS, split, 5, task, run, workspace)
                lines.write(json.dumps(asdict(record)) + "\n")
    command = [sys.executable, BENCHMARKS / "ability.py", "--split", "both", "--seed", "5", "--agents", OURS]
    done = subprocess.run([*command, "--json", file], capture_output=True, text=True, check=True)
    assert re.search(rf"{OURS} +2 of 12, 17 % \(5-45\) +9 of 12, 75 %", done.stdout), done.stdout
    assert re.search("right ends, dev - test: .0 points", done.stdout)
    assert "repair" in done.stdout and "rename" not in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("split", ability_tasks.SPLITS)
def test_ends_for_the_verifier_are_what_they_are_said_to_be(split: str, tmp_path: Path) -> None:
    ends = list(ability_ends.generated(split, 72, 1))
    assert len(ends) >= 120
    assert 0.4 <= sum(end.right for end in ends) / len(ends) <= 0.5
    assert len({end.name for end in ends}) == len(ends)
    assert len({end.kind for end in ends if not end.right}) >= 7
    tasks = {task.name: task for task in ability_tasks.draw(split, 72, 1)}
    for number, end in enumerate(ends):
        task = tasks[end.name.removesuffix(f"-{end.kind.replace(' ', '_')}")]
        workspace = tmp_path / str(number)
        workspace.mkdir()
        ability_checks.apply(end.after, workspace)
        assert end.right == (task.possible and task.right_files(workspace)), end.name
