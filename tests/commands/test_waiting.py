"""wait_for says what came: the end of a program, what became of a file, or that time is up."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from fakes import Commands, nobody_asked

from autoagent.commands import code, system
from autoagent.commands.context import Context
from autoagent.commands.registry import Registry
from autoagent.core.commands import Result
from autoagent.memory.none import NoMemory
from autoagent.sandbox.process import ProcessLimits
from autoagent.sandbox.programs import open_sandbox
from autoagent.workspace.gate import Workspace


@dataclass(frozen=True)
class Room(Commands):
    """The commands over one workspace; `meanwhile` is done whenever a command lets time pass."""

    pauses: list[float]

    def waits(self, meanwhile: Callable[[], object] = lambda: None, **args: Any) -> Result:
        def pause(seconds: float) -> None:
            self.pauses.append(seconds)
            time.sleep(min(seconds, 0.01))
            meanwhile()

        result = self.having(pause=pause).run("wait_for", **args)
        assert result.ok, result.text
        return result


@pytest.fixture
def ws(tmp_path: Path) -> Iterator[Room]:
    workspace = Workspace(tmp_path / "ws")
    with closing(open_sandbox(workspace, ProcessLimits(), kind="none")) as sandbox:
        registry = Registry([*code.COMMANDS, *system.COMMANDS])
        yield Room(Context(workspace, NoMemory(), nobody_asked, sandbox=sandbox), registry, [])


@pytest.mark.parametrize(
    ("line", "how"),
    [("exec sleep 0.05", "exit status 0"), ("sleep 0.05; exit 3", "exit status 3"), ("true", "exit status 0")],
)
def test_it_says_with_which_status_a_program_ended(ws: Room, line: str, how: str) -> None:
    started = ws.run("execute_shell_popen", command_line=line)
    pid, (log,) = started.meta.to_json()["pid"], started.meta.to_json()["changed"]
    ended = ws.waits(program=pid, seconds=60)
    assert ended.text == f"Program {pid} has ended: {how}. What it printed is in {log}."
    assert ended.meta.waits is False, "it waited, and does no longer"
    assert ws.waits(program=pid, seconds=60) == ended, "it has ended already"


def test_it_says_that_time_is_up_and_the_program_goes_on(ws: Room) -> None:
    started = ws.run("execute_shell_popen", command_line="exec sleep 1000")
    pid, (log,) = started.meta.to_json()["pid"], started.meta.to_json()["changed"]
    late = ws.waits(program=pid, seconds=0.02)
    assert late.text == f"Time is up after 0.02 s: program {pid} still runs; what it prints goes to {log}."
    assert late.meta.to_json() == {"waits": True}
    assert ws.pauses


def test_it_says_what_became_of_a_file_or_folder(ws: Room) -> None:
    path = ws.root / "a.txt"
    there = ws.waits(lambda: path.write_text("one"), filename="a.txt", seconds=60)
    assert there.text == "a.txt is there now (3 bytes)."
    assert ws.waits(lambda: path.write_text("three"), filename="a.txt", seconds=60).text == (
        "a.txt has changed (5 bytes)."
    )
    assert ws.waits(path.unlink, filename="a.txt", seconds=60).text == "a.txt is gone."
    assert len(ws.pauses) == 3
    (ws.root / "out").mkdir()
    text = ws.waits(lambda: (ws.root / "out/new").write_text("x"), filename="out", seconds=60).text
    assert text.startswith("out has changed (")


@pytest.mark.parametrize(("seconds", "there"), [(0, True), (-5, False)])
def test_it_says_that_time_is_up_and_the_file_is_as_it_was(ws: Room, seconds: float, there: bool) -> None:
    if there:
        (ws.root / "a.txt").write_text("x")
    late = ws.waits(filename="a.txt", seconds=seconds)
    assert late.text == f"Time is up after 0 s: a.txt {'has not changed' if there else 'is not there'}."
    assert (late.meta.to_json(), ws.pauses) == ({"waits": True}, [])


@pytest.mark.parametrize(
    ("args", "why"),
    [
        ({}, "Name either a program or a filename to wait for."),
        ({"program": 1, "filename": "a"}, "Name either a program or a filename to wait for."),
        ({"program": 1}, "There is no started program with pid 1; list_programs shows them."),
        ({"filename": "../a"}, "outside"),
    ],
)
def test_what_cannot_be_waited_for_is_refused(ws: Room, args: dict[str, Any], why: str) -> None:
    assert why in ws.refusal("wait_for", **args)
