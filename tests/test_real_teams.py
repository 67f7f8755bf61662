"""The teams of examples/teams, and a hierarchy with a goal of three tasks, on the embedded model, the network off."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from test_real_model import OWN_ENVIRONMENT, REACHED, run_offline

from autoagent.models.local import weights

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not weights.is_installed(), reason="the embedded model is not here: autoagent model fetch"),
]

EXAMPLES = Path(__file__).parent.parent / "examples" / "teams"


def tries(folder: Path) -> Iterator[tuple[Path, float]]:
    """A folder and a temperature for each try: three at most, and none that begins after eight minutes."""
    begin = time.monotonic()
    for number in range(3):
        if time.monotonic() < begin + 480:
            place = folder / str(number)
            place.mkdir()
            yield place, number * 0.3


def team(example: str, folder: Path, temperature: float, *flags: str) -> tuple[int, list[dict[str, Any]]]:
    """Run an example; return its exit code and what the roles have written."""
    file = str(EXAMPLES / f"{example}.yaml")
    trusting = [sys.executable, "-m", "autoagent", "trust", file]
    subprocess.run(trusting, cwd=folder, env=OWN_ENVIRONMENT, stdin=subprocess.DEVNULL, check=True)
    done = run_offline(folder, temperature, "team", file, *flags)
    print(done.stdout, done.stderr)  # for whoever reads why none of the tries did
    [log] = (folder / ".autoagent" / "runs").glob("*/events.jsonl")
    events = [json.loads(line) for line in log.read_text().splitlines()]
    return done.returncode, [e for e in events if e["type"] == "published" and e["sent_from"]]


def works(folder: Path, *arguments: str) -> str:
    """What a Python program of the workspace prints; '' if it fails."""
    place = folder / "autoagent_workspace"
    done = subprocess.run([sys.executable, *arguments], cwd=place, capture_output=True, text=True, check=False)
    return done.stdout if done.returncode == 0 else ""


def test_a_coder_a_tester_and_a_reviewer_make_code_whose_tests_pass(tmp_path: Path) -> None:
    assert any(_is_reviewed(*each) for each in tries(tmp_path))


def _is_reviewed(folder: Path, temperature: float) -> bool:
    code, messages = team("code-review", folder, temperature)
    tried = "from solution import product as p; assert (p([]), p([7]), p([2, 3, 4])) == (1, 7, 24)"
    tested = "import test_solution; print('passed')"
    asserts = (folder / "autoagent_workspace" / "test_solution.py").read_text().count("\nassert solution.product(")
    whole = [message["sent_from"] for message in messages] == ["Alice", "Bob", "Charlie"]
    passes = works(folder, "-c", f"{tried}; print('right')") == "right\n" and "passed" in works(folder, "-c", tested)
    return code == 0 and whole and asserts >= 3 and passes and bool(messages[-1]["content"].strip())


def test_a_product_manager_an_architect_and_an_engineer_make_a_document_and_a_program(tmp_path: Path) -> None:
    assert any(_is_a_product(*each) for each in tries(tmp_path))


def _is_a_product(folder: Path, temperature: float) -> bool:
    code, messages = team("product", folder, temperature)
    document = (folder / "autoagent_workspace" / "requirements.md").read_text()
    says = all(word in document for word in ("Celsius", "Fahrenheit")) and len(document.splitlines()) >= 4
    whole = [message["sent_from"] for message in messages] == ["Pam", "Archie", "Eve"]
    converts = (works(folder, "convert.py", "0", "C"), works(folder, "convert.py", "50", "F"))
    return code == 0 and whole and says and "32" in converts[0] and "10" in converts[1]


def test_two_debate(tmp_path: Path) -> None:
    assert any(_is_a_debate(*each) for each in tries(tmp_path))


def _is_a_debate(folder: Path, temperature: float) -> bool:
    """Each says something else each time, and speaks of what they want."""
    code, messages = team("debate", folder, temperature)
    texts = [message["content"].lower() for message in messages]
    sides = [text.count("librar") - text.count("pool") for text in texts]
    assert [message["sent_from"] for message in messages] == ["Laura", "Paul", "Laura", "Paul"]
    return code == 0 and len(set(texts)) == len(texts) and min(sides[::2]) > 0 > max(sides[1::2])


def test_a_hierarchy_ends_as_its_three_tasks_are_done(tmp_path: Path) -> None:
    """By the executor: the planner has no command that writes. It is not done in each try; the end says so."""
    words = ("red", "blue", "green")
    goals = [f"Write a file {word}.txt that holds the word {word} :: grep -qx {word} {word}.txt" for word in words]
    flags = [flag for goal in goals for flag in ("--ai-goal", goal)]
    who = ("--ai-name", "Clerk", "--ai-role", "an assistant that works with files")
    done = run_offline(tmp_path, 0, "--hierarchical", "--max-seconds", "120", *who, *flags)
    print(done.stdout, done.stderr)
    held = [tmp_path / "autoagent_workspace" / f"{word}.txt" for word in words]
    written = [path.read_text().strip() for path in held if path.exists()]
    assert done.returncode in REACHED
    assert done.returncode != 0 or written == list(words)
