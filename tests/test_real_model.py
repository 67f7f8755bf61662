"""Whole goals on the embedded model, with the network off: what the README promises to somebody without a key."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from autoagent.models.local import weights

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not weights.is_installed(), reason="the embedded model is not here: autoagent model fetch"),
]

# Brings up loopback in the new, empty network namespace, then becomes the agent.
OFFLINE = (
    "import fcntl, os, socket, struct, sys\n"
    "fcntl.ioctl(socket.socket(), 0x8914, struct.pack('16sH14x', b'lo', 1 | 64))\n"
    "os.execv(sys.executable, [sys.executable, '-m', 'autoagent', *sys.argv[1:]])\n"
)


OWN_ENVIRONMENT = {key: value for key, value in os.environ.items() if not key.startswith(("OPENAI", "AUTOAGENT"))}
HONEST = ("finished", "limit", "stuck", "unverified", "unmet")
REACHED = (0, 4, 8, 9)  # what counts is the file, whether the model ended the run, a limit, or the guard did


def own_network() -> list[str]:
    """The command that starts another one in a new network namespace. Without one the test is skipped; CI fails."""
    unshare = shutil.which("unshare")
    ways = [["-rn"], ["-n"]] if os.geteuid() == 0 else [["-rn"]]
    for way in ways if unshare else []:
        command = [str(unshare), *way]
        if subprocess.run([*command, "true"], check=False, capture_output=True).returncode == 0:
            return command
    reason = "this kernel gives us no network namespace of our own"
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


def run_goals(folder: Path, temperature: float, *goals: str) -> subprocess.CompletedProcess[str]:
    """`autoagent` at work on these goals."""
    flags = [flag for goal in goals for flag in ("--ai-goal", goal)]
    who = ("--ai-name", "Clerk", "--ai-role", "an assistant that works with files")
    return run_offline(folder, temperature, "-l", "8", "--max-seconds", "150", *who, *flags)


def run_offline(
    folder: Path, temperature: float, *arguments: str, answers: str = ""
) -> subprocess.CompletedProcess[str]:
    """`autoagent` on the embedded model in a folder of its own, in a network namespace that leads nowhere.

    With `answers`, they are typed at its questions. Otherwise it runs unattended.
    """
    return subprocess.run(
        [*own_network(), sys.executable, "-c", OFFLINE, *arguments, "--model", "local", *([] if answers else ["-c"])],
        cwd=folder,
        env=OWN_ENVIRONMENT | {"TEMPERATURE": str(temperature)},
        input=answers,
        capture_output=True,
        text=True,
        timeout=1500,
        check=False,
    )


def tries(folder: Path) -> Iterator[tuple[Path, float]]:
    """A folder and a temperature for each try: a model of 1.5B parameters does not reach every goal at the first one.

    Six at most, of two and a half minutes, and none that begins after ten.
    """
    begin = time.monotonic()
    for number in range(6):
        if time.monotonic() < begin + 600:
            yield folder / str(number), number * 0.2


def test_facts_from_a_file_are_written_to_another(tmp_path: Path) -> None:
    assert any(_facts_are_written(*each) for each in tries(tmp_path))


def _facts_are_written(folder: Path, temperature: float) -> bool:
    workspace = folder / "autoagent_workspace"
    workspace.mkdir(parents=True)
    (workspace / "notes.txt").write_text(
        "The library opens at 9.\nIt has 42000 books.\n"
        "The oldest book is from 1482.\nMembership costs 12 euros a year.\n"
    )
    goals = ("Read notes.txt", "Write a file summary.txt that holds the facts from notes.txt")
    done = run_goals(folder, temperature, *goals)
    print(done.stdout, done.stderr)  # for whoever reads why none of the tries did
    summary = workspace / "summary.txt"
    written = summary.read_text() if summary.exists() else ""
    return done.returncode in REACHED and all(fact in written for fact in ("9", "42000", "1482", "12"))


def test_a_wish_of_one_run_is_kept_to_in_the_next_and_not_if_it_is_from_outside(tmp_path: Path) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    for folder in (ours, theirs):
        folder.mkdir()

    def capital(folder: Path, country: str, answers: str = "") -> str:
        goal = f"Write the capital of {country} to {country}.txt"
        flags = ("--max-seconds", "300", "--ai-name", "Clerk", "--ai-role", "an assistant", "--ai-goal", goal)
        done = run_offline(folder, 0.0, *flags, answers=answers)
        print(done.stdout, done.stderr)
        return (folder / "autoagent_workspace" / f"{country}.txt").read_text().strip(" \n.")

    assert capital(ours, "Peru", "Write every answer in capital letters.\ny -4\n") == "LIMA"
    assert capital(ours, "Chile") == "SANTIAGO", "a run that only remembers it"
    for folder, command in ((ours, "export"), (theirs, "import")):
        moved = [sys.executable, "-m", "autoagent", "memory", command, str(tmp_path / "memory.jsonl")]
        subprocess.run(moved, cwd=folder, env=OWN_ENVIRONMENT, check=True, capture_output=True)
    assert capital(theirs, "Chile") == "Santiago", "an imported memory gives no orders"


def test_a_task_of_a_fleet_is_worked_on_like_any_other(tmp_path: Path) -> None:
    """With its drafts, in whatever way it ends."""
    (tmp_path / "cities.txt").write_text("Oslo 700000\nTokyo 14000000\nQuito 1900000\n")
    goal = "Write the name of the city with the most people in cities.txt, and nothing else, to largest.txt"
    task = {"id": "largest", "goal": goal, "files": "cities.txt", "steps": 6, "max_seconds": 150}
    (tmp_path / "tasks.jsonl").write_text(json.dumps(task))
    done = run_offline(tmp_path, 0.0, "fleet", "tasks.jsonl", "--out", "out")
    (log,) = (tmp_path / "out/largest/state/runs").glob("*/events.jsonl")
    events = [json.loads(line) for line in log.read_text().splitlines()]
    print(done.stdout, done.stderr, (tmp_path / "out/largest/output.txt").read_text())
    assert any(event["type"] == "drafted" and event["drafts"] for event in events)
    status = [event["status"] for event in events if event["type"] == "ended"][-1]
    assert status in HONEST
    assert done.returncode == (0 if status == "finished" else 9)


def test_a_python_file_that_can_be_imported(tmp_path: Path) -> None:
    assert any(_a_module_is_written(*each) for each in tries(tmp_path))


def _a_module_is_written(folder: Path, temperature: float) -> bool:
    (folder / "autoagent_workspace").mkdir(parents=True)
    goal = (
        "Write a Python file greet.py with a function greet(name), so that greet('Bo') returns 'Hello, Bo!'"
        """ :: python3 -c "import greet; got = greet.greet('Bo');"""
        """ assert got == 'Hello, Bo!', f'greet has to return the text; it returned {got}'" """
    )
    done = run_goals(folder, temperature, goal)
    print(done.stdout, done.stderr)
    check = subprocess.run(
        [sys.executable, "-c", "import greet; print(greet.greet('Ada'))"],
        cwd=folder / "autoagent_workspace",
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode in REACHED and check.stdout == "Hello, Ada!\n"
