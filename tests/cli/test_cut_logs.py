"""A log that has lost its end: what was done and is not known any more is said, and never done again in silence."""

from __future__ import annotations

from pathlib import Path

import pytest
from driver import FINISH, GOAL, Home
from server import ScriptedServer, command


@pytest.fixture
def four_steps(served: Home, server: ScriptedServer) -> Path:
    """The log of a run that has appended four lines to a file, and was stopped then."""
    server.add(*(command("execute_shell", command_line=f"echo {number} >> trace.txt") for number in range(1, 5)))
    done = served.run(*GOAL, "-c", "-l", "4", "-m", "none")
    assert done.code == 4, done.text
    return served.state / "runs" / served.runs[0] / "events.jsonl"


def trace(home: Home) -> list[str]:
    return home.read("autoagent_workspace/trace.txt").split()


def test_a_log_cut_in_the_middle_is_no_torn_tail(served: Home, server: ScriptedServer, four_steps: Path) -> None:
    whole = four_steps.read_bytes()
    cut = whole[: len(whole) // 2]
    assert not cut.endswith(b"\n")
    four_steps.write_bytes(cut)
    server.add(command("execute_shell", command_line="echo again >> trace.txt"), *FINISH)
    asked = len(server.requests)
    done = served.run("resume", "-c")
    assert done.code == 1
    written, left = (len(data.splitlines()) for data in (whole, cut))
    assert f"is missing: {written} events were written, {left - 1} are left" in done.text
    assert served.run("undo", served.runs[0]).code == 1
    assert (len(server.requests), trace(served)) == (asked, list("1234"))
    assert four_steps.read_bytes() == cut, "what is left is not touched"


def test_where_whole_lines_are_left_the_agent_is_told(served: Home, server: ScriptedServer, four_steps: Path) -> None:
    """As where a person has cut it: it goes on, yet a command that was asked for may have run."""
    whole = four_steps.read_bytes().splitlines(keepends=True)
    asked_for = [number for number, line in enumerate(whole) if b'"type":"decided"' in line][2]
    four_steps.write_bytes(b"".join(whole[: asked_for + 1]))
    server.script[:] = list(FINISH)
    asked = len(server.requests)
    done = served.succeed("resume", "-c")
    lost = f"Missing at the end of the log: {len(whole) - asked_for - 1} events"
    assert lost in done.text
    assert lost in server.requests[asked].prompt
    assert "it may have run, wholly or in part" in server.requests[asked].prompt
    assert trace(served) == list("1234")


@pytest.mark.slow
@pytest.mark.parametrize("how", ["resume", "fork"])
def test_a_cut_run_goes_on_from_the_step_that_is_named(
    served: Home, server: ScriptedServer, four_steps: Path, how: str
) -> None:
    whole = four_steps.read_bytes().splitlines(keepends=True)
    results = [number for number, line in enumerate(whole) if b'"type":"returned"' in line]
    four_steps.write_bytes(b"".join(whole[: results[1] + 1]) + whole[results[1] + 1][:20])
    run = served.runs[0]
    refused = served.run("resume", "-c").text
    flag = {"resume": "--from", "fork": "--at"}[how]
    assert f"`autoagent {how} {run} {flag} 2`" in refused

    server.script[:] = [command("execute_shell", command_line="echo other >> trace.txt"), *FINISH]
    arguments = (how, run, flag, "2", "-c")
    if how == "resume":  # steps 3 and 4 have changed the file: to take that back is the user's to say
        assert "trace.txt" in served.run(*arguments).err
        arguments = (*arguments, "--force")
    served.succeed(*arguments)
    place = served.folder / ("autoagent_workspace" + ("-fork1" if how == "fork" else ""))
    assert (place / "trace.txt").read_text().split() == ["1", "2", "other"]


def test_a_command_whose_start_was_lost_may_have_run(served: Home, server: ScriptedServer, four_steps: Path) -> None:
    """Of the log but its last line is left, which said that the fourth command began."""
    whole = four_steps.read_bytes().splitlines(keepends=True)
    began = [number for number, line in enumerate(whole) if b'"type":"started"' in line][-1]
    four_steps.write_bytes(b"".join(whole[: began + 1]))
    count = four_steps.with_name("holder")
    count.write_text(count.read_text().replace(f"\n{len(whole)} ", f"\n{began + 1} "))
    four_steps.write_bytes(b"".join(whole[:began]) + whole[began][:30])

    server.script[:] = list(FINISH)
    asked = len(server.requests)
    done = served.succeed("resume", "-c")
    assert "Missing at the end of the log: 1 event." in done.text
    assert "it may have run, wholly or in part" in server.requests[asked].prompt
    assert trace(served) == list("1234")


def test_a_line_that_never_was_on_disk_is_no_loss(served: Home, server: ScriptedServer, four_steps: Path) -> None:
    with four_steps.open("a") as log:
        log.write('{"v":1,"type":"resumed","ru')
    server.script[:] = list(FINISH)
    done = served.succeed("resume", "-c")
    assert "Missing at the end" not in done.text
    assert [event["seq"] for event in served.log()] == list(range(len(served.log())))


@pytest.mark.parametrize(("stored", "edited"), [(True, False), (True, True), (False, False)])
def test_whether_a_text_was_remembered_is_looked_up(
    served: Home, server: ScriptedServer, stored: bool, edited: bool
) -> None:
    """The log ends where the command began, as after a kill."""
    server.add(command("memory_add", text="The ferry leaves at 7:40."))
    assert served.run(*GOAL, "-c", "-l", "1").code == 4
    log = served.state / "runs" / served.runs[0] / "events.jsonl"
    lines = log.read_bytes().splitlines(keepends=True)
    [begun] = [number for number, line in enumerate(lines) if b'"type":"started"' in line]
    log.write_bytes(b"".join(lines[: begun + 1]))
    if not stored:
        assert served.run("memory", "forget", "1").code == 0
    if edited:
        served.write("autoagent_workspace/salary.csv", "mine\n")
    server.script[:] = list(FINISH)
    asked = len(server.requests)
    served.succeed("resume", "-c")
    result, *_ = (event for event in served.log() if event["type"] == "returned")
    lost = "The program ended while this command ran: the text was not stored."
    assert (result["ok"], result["known"]) == (stored, not edited), "what the user wrote since is not the run's own"
    assert result["text"] == ("Remembered as memory 1." if stored else lost)
    prompt = server.requests[asked].prompt
    assert result["text"] in prompt and "may have run" not in prompt
    assert "Not known to be done" not in served.run("memory", "list", "--json").out
