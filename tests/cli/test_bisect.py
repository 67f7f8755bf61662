"""`autoagent bisect`: the first step after which a check fails, in few checks."""

from __future__ import annotations

import math

import pytest
from driver import GOAL, Home
from server import ScriptedServer, command

from autoagent.subcommands.undo import search


@pytest.mark.parametrize("count", range(1, 34))
def test_half_of_the_steps_fall_away_with_each_check(count: int) -> None:
    for first in [*range(count), None]:
        asked: list[int] = []

        def fails(number: int, first: int | None = first, asked: list[int] = asked) -> bool:
            asked.append(number)
            return first is not None and number >= first

        assert search(count, fails) == first
        assert len(asked) == len(set(asked))
        none_failed = first is None or first == count - 1
        assert len(asked) <= math.ceil(math.log2(count)) + none_failed


@pytest.fixture
def run(served: Home, server: ScriptedServer) -> str:
    """A run of nine steps: the fifth, the fourth to change something, breaks the list."""
    served.env["AUTOAGENT_SANDBOX"] = "none"
    for number in range(9):
        text = "broken" if number == 4 else f"line {number}"
        if number == 2:
            server.add(command("read_file", filename="list.txt"))
        else:
            name = "append_to_file" if number else "write_to_file"
            server.add(command(name, filename="list.txt", text=f"{text}\n"))
    assert served.run(*GOAL, "-m", "none", "-c", "-l", "9").code == 4
    return served.runs[0]


def test_the_step_that_broke_it_is_found(served: Home, run: str) -> None:
    before = served.read("autoagent_workspace/list.txt")
    found = served.succeed("bisect", run, "--check", "echo looking; touch made; ! grep broken list.txt")
    assert found.out == (
        "After step 5 (append_to_file): fails (exit status 1).\n"
        "After step 2 (append_to_file): passes.\n"
        "After step 4 (append_to_file): passes.\n"
        "First fails after step 5 (append_to_file); 3 checks of 8 steps that changed something.\n"
        "looking\nbroken\n"
    )
    assert served.read("autoagent_workspace/list.txt") == before
    assert not (served.folder / "autoagent_workspace/made").exists()


@pytest.mark.slow
def test_a_check_that_never_or_always_fails_is_said(served: Home, run: str) -> None:
    never = served.exits(1, "bisect", run, "--check", "test -e list.txt")
    assert "The check does not fail after any step (4 checks of 8 steps that changed something)." in never.out
    always = served.exits(1, "bisect", run, "--check", "no-such-program")
    assert always.err == "autoagent: The check already fails before step 1, the first that changed anything.\n"
