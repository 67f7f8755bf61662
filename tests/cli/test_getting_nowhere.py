"""A run that is left alone and gets nowhere ends by itself, and one that works goes on, as a user sees it."""

from __future__ import annotations

import threading
from contextlib import closing
from typing import Any

import pytest
from driver import FINISH, GOAL, PATIENCE, Done, Home
from server import Command, Reply, Request, ScriptedServer, command

RUN = (*GOAL, "-c", "-m", "none")
LOOK = command("list_files", directory=".")
WRITE = command("write_to_file", filename="a.txt", text="one\n")


def shell(line: str) -> Command:
    return command("execute_shell", command_line=line)


def assert_stuck(home: Home, server: ScriptedServer, *steps: Any, flags: tuple[str, ...] = RUN, within: int) -> Done:
    """Run on these replies; the run is to end as stuck before they have run out, and tell first."""
    server.add(*steps)
    done = home.run(*flags)
    assert done.code == 8, done.text
    assert len(server.requests) <= within
    said = [" ".join(event["text"].split()[-3:]) for event in home.log() if event["type"] == "noticed"]
    ends = [text for text in said if text in ("Try something else.", "has been told.")]
    assert ends == ["Try something else.", "has been told."]
    assert any("Try something else." in request.prompt for request in server.requests), "the model is told"
    assert "STUCK: " in done.text
    return done


def test_1_a_red_test_whose_seconds_vary(served: Home, server: ScriptedServer) -> None:
    line = 'echo "FAILED test_a.py::test_b"; echo "1 failed, 3 passed in 3.$(date +%N)s"; exit 1'
    assert_stuck(served, server, *[shell(line)] * 30, within=6)


def test_1_a_task_complete_that_is_refused_whatever_reason_it_gives(served: Home, server: ScriptedServer) -> None:
    refused = [command("task_complete", reason=f"Done, {n}.") for n in range(20)]
    check = "Do the thing :: echo $(date +%N) tests are red; false"
    done = assert_stuck(served, server, *refused, flags=("--ai-goal", check, *RUN[2:]), within=6)
    assert "and nothing is new since." in " ".join(done.text.split())


@pytest.mark.slow
def test_1_an_edit_back_and_forth_with_a_test_each_time(served: Home, server: ScriptedServer) -> None:
    there = command("edit_file", filename="a.txt", old="one", new="two")
    back = command("edit_file", filename="a.txt", old="two", new="one")
    test = shell('date +%N >> traces; echo "1 failed in 0.$(date +%N)s"; exit 1')
    assert_stuck(served, server, WRITE, *[there, test, back, test] * 10, within=30)


def test_2_the_limit_counts_requests_too_and_says_which(served: Home, server: ScriptedServer) -> None:
    server.add(WRITE, *[WRITE, Reply("I will.")] * 40)
    done = served.run(*RUN, "-l", "3")
    assert done.code == 4, done.text
    assert len(server.requests) == 2 * 3 + 3
    assert "LIMIT REACHED: The limit of 9 requests to the model is reached" in done.text
    assert "(-l 3 allows 2 x 3 + 3 requests)." in " ".join(done.text.split())
    again = served.run("resume", "-c", "-l", "2")
    assert (again.code, len(server.requests)) == (4, 9 + 7), "each process has its own"


def test_2_a_limit_of_commands_is_named_as_such(served: Home, server: ScriptedServer) -> None:
    server.add(*[command("write_to_file", filename=f"{n}", text="x") for n in range(9)])
    done = served.run(*RUN, "-l", "3")
    assert (done.code, len(server.requests)) == (4, 3), "no call is made that could not be acted on"
    assert sorted(path.name for path in (served.folder / "autoagent_workspace").iterdir()) == ["0", "1", "2"]
    assert "LIMIT REACHED: The limit of 3 commands (-l) is reached." in done.text


@pytest.mark.slow
def test_3_a_program_that_goes_on_can_be_polled(served: Home, server: ScriptedServer) -> None:
    def stop(request: Request) -> Command:
        (pid,) = {event["data"]["pid"] for event in served.log() if event.get("data", {}).get("pid")}
        return command("stop_program", pid=pid)

    polls = [shell("sleep 0.01"), command("list_programs")] * 20
    server.add(command("execute_shell_popen", command_line="exec sleep 1000"), *polls, stop, *FINISH)
    served.succeed(*RUN)
    assert [event for event in served.log() if event["type"] == "noticed"] == []


def test_3_a_program_that_has_ended_is_no_reason_to_poll(served: Home, server: ScriptedServer) -> None:
    start = command("execute_shell_popen", command_line="true")
    assert_stuck(served, server, start, shell("sleep 0.2"), *[command("list_programs")] * 40, within=25)


def test_a_resume_starts_the_count_again(served: Home, server: ScriptedServer) -> None:
    server.add(*[LOOK] * 20)
    assert [served.run(*RUN).code, len(server.requests)] == [8, 6]
    assert [served.run("resume", "-c").code, len(server.requests)] == [8, 12]


@pytest.mark.parametrize("step", [LOOK, Reply("I will.")], ids=["repeat", "unusable"])
def test_a_sub_agent_that_gets_nowhere_ends_and_its_starter_is_told(
    served: Home, server: ScriptedServer, step: Command | Reply
) -> None:
    def answer(request: Request) -> Command | Reply:
        if request.asked_by("Digger"):
            return step
        if "Digger has the key" not in request.prompt:
            return command("start_agent", name="Digger", task="dig", prompt="Dig")
        if "I have ended (stuck)" not in request.prompt:
            return command("list_agents", wait=60)
        return FINISH[0]

    with ScriptedServer(answer) as talking:
        served.point_at(talking)
        done = served.run(*RUN)
    assert done.code == 0, done.text
    ended = [event for event in served.log() if event["type"] == "ended"]
    assert [(event["agent"], event["status"]) for event in ended] == [("1", "stuck"), ("", "finished")]


# wait_for --------------------------------------------------------------------------------------------------------

START = command("execute_shell_popen", command_line="sleep 0.3; exit 3")
FOR_EVER = command("execute_shell_popen", command_line="exec sleep 1000")


def wait(home: Home, seconds: float) -> Any:
    """Wait for the program that was started last."""

    def answer(request: Request) -> Command:
        pids = [event["data"]["pid"] for event in home.log() if event.get("data", {}).get("pid")]
        return command("wait_for", program=pids[-1], seconds=seconds)

    return answer


def test_3_a_program_is_waited_for_in_one_step(served: Home, server: ScriptedServer) -> None:
    server.add(START, wait(served, 60), *FINISH)
    done = served.run(*RUN)
    assert (done.code, len(server.requests)) == (0, 3), done.text
    assert "has ended: exit status 3." in " ".join(done.text.split())


@pytest.mark.slow
def test_3_a_wait_that_brings_nothing_may_be_repeated(served: Home, server: ScriptedServer) -> None:
    server.add(FOR_EVER, *[wait(served, 0.01)] * 40, *FINISH)
    served.succeed(*RUN)
    assert [event for event in served.log() if event["type"] == "noticed"] == []


def test_3_ctrl_c_ends_a_wait(served: Home, server: ScriptedServer) -> None:
    server.add(command("wait_for", filename="a.txt", seconds=3000), *FINISH)
    with closing(served.terminal(*RUN)) as session:
        session.sees("COMMAND = wait_for")
        session.presses_ctrl_c()
        session.answers("Interrupted. Enter continues", "")
        assert session.ends() == 0
    assert "Interrupted by the user" in server.requests[1].prompt


def test_3_a_sub_agent_that_waits_can_be_ended(served: Home) -> None:
    def answer(request: Request) -> Command:
        if request.asked_by("Digger"):
            waits.set()
            return command("wait_for", filename="a.txt", seconds=3000)
        if "Digger has the key" not in request.prompt:
            return command("start_agent", name="Digger", task="dig", prompt="Dig")
        if "1. Digger: ended" not in request.prompt:
            assert waits.wait(PATIENCE)
            return command("delete_agent", key="1")
        return FINISH[0]

    waits = threading.Event()
    with ScriptedServer(answer) as talking:
        served.point_at(talking)
        done = served.run(*RUN)
    assert done.code == 0, done.text
    ended = [(event["agent"], event["reason"]) for event in served.log() if event["type"] == "ended"]
    assert ended[0][0] == "1", "it has ended by itself, and was not left to its thread"
    assert ended[0][1].startswith("Ended by ")
