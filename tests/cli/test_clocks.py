"""What counts as time at work, and the wall clock's deadline."""

from __future__ import annotations

import time

import pytest
from driver import FINISH, GOAL, PATIENCE, Home
from server import Request, ScriptedServer, command

THINKS = 1.5  # seconds of a person's; no run of these tests works as much less long than it takes by accident


def passed(home: Home) -> tuple[float, float]:
    """The seconds from the first to the last event of the run, and those that were worked by then."""
    log = home.log()
    return log[-1]["t"] - log[0]["t"], log[-1]["worked"]


@pytest.mark.slow
@pytest.mark.parametrize("question", ["Run it?", "The agent asks"])
def test_a_persons_thinking_is_no_work(served: Home, server: ScriptedServer, question: str) -> None:
    asks = question == "The agent asks"
    server.add(command("ask_user", question="Which colour?") if asks else command("do_nothing"), *FINISH)
    process = served.start(*GOAL, "-m", "none")
    assert process.stdin and process.stdout
    while question not in process.stdout.readline():
        assert process.poll() is None
    time.sleep(THINKS)
    process.communicate("blue\ny\ny\n" if asks else "y\ny\ny\n", timeout=PATIENCE)
    whole, worked = passed(served)
    assert process.returncode == 0
    assert 0 < worked <= whole - THINKS


@pytest.mark.slow
def test_the_time_between_processes_is_no_work(served: Home, server: ScriptedServer) -> None:
    server.add(command("write_to_file", filename="a.txt", text="one"), command("do_nothing"))
    assert served.run(*GOAL, "-c", "-m", "none", "-l", "2").code == 4
    run = served.runs[0]
    first = served.log()[-1]["worked"]
    time.sleep(THINKS)
    assert served.run("undo", run).code == 0
    server.add(command("do_nothing"))
    assert served.run("resume", "-c", "-l", "1", "--ai-goal", "Do another thing").code == 4
    second = served.log()[-1]["worked"]
    server.add(*FINISH)
    assert served.run("resume", run, "--from", "1", "-c").code == 0
    whole, worked = passed(served)
    assert first < second < worked <= whole - THINKS
    assert f"Time: {int(worked)} s" in served.run("show", run).text


def test_a_deadline_ends_the_run(served: Home, server: ScriptedServer) -> None:
    def slowly(request: Request) -> object:
        time.sleep(THINKS)
        return command("do_nothing")

    server.add(slowly, *FINISH, *FINISH)
    stopped = served.run(*GOAL, "-c", "-m", "none", "--deadline", f"{THINKS}s")
    assert stopped.code == 4, stopped.text
    assert "The deadline, 20" in stopped.text
    assert served.run("resume", "-c").code == 0, "it must be said anew"


@pytest.mark.parametrize(
    ("text", "says"), [("soon", "'soon' is not a time; write 18:00"), ("1999-01-01", "'1999-01-01' has passed already")]
)
def test_a_deadline_that_is_none_is_a_usage_error(home: Home, text: str, says: str) -> None:
    done = home.run(*GOAL, "--deadline", text)
    assert done.code == 2
    assert says in done.err
