"""What moves on a real screen while something is waited for, and how much of it a step takes."""

from __future__ import annotations

import json
import threading
import time

import pytest
from driver import FINISH, GOAL, Hanging, Home, Session
from server import Reply, ScriptedServer, command
from test_session import QUESTION, opened, saying

DRAWN = "\x1b[J\x1b[2m"  # how the lines that move begin


@pytest.mark.slow
def test_a_model_that_thinks_and_a_command_that_runs_are_never_silent(served: Home, server: ScriptedServer) -> None:
    thinking = Hanging(command("execute_shell", command_line="echo counted to ten; sleep 60"))
    server.add(thinking, command("list_files", directory="."))
    with opened(served.terminal("-m", "none", *GOAL)) as session:
        thinking.is_asked()
        moved(session, "waiting for test-model (")
        thinking.leave()
        session.answers(QUESTION, "y")
        moved(session, "running execute_shell | ")
        session.sees("  | counted to ten")
        session.presses("\x03")  # it ends the command, not the run
        session.answers("stops.\n> ", "")
        session.answers(QUESTION, "n")
        assert session.ends() == 6
        assert "waiting for test-model" not in session.screen, "what moved is gone when it is over"
        assert "Interrupted by the user" in session.screen
    assert "waiting for" not in served.run("show", served.runs[0]).out


def test_a_slow_endpoint_that_is_asked_for_the_first_time_leaves_no_empty_screen(
    served: Home, server: ScriptedServer
) -> None:
    probed = threading.Event()
    server.on_probe = lambda request: (probed.wait(60), Reply("READY"))[1]
    server.add(*FINISH)
    with opened(served.terminal("-m", "none", "-c", *GOAL)) as session:
        moved(session, "asking test-model what it can do | ")
        probed.set()
        assert session.ends() == 0
        assert "what it can do" not in session.screen


def moved(session: Session, text: str) -> None:
    """See the line, and that it is drawn anew within a second."""
    session.sees(DRAWN)
    session.sees(text)
    begun = time.monotonic()
    session.sees(DRAWN)
    assert time.monotonic() - begun < 20  # on a machine that does much else; it is drawn every 0.15 s


@pytest.mark.slow
def test_a_stall_a_long_command_and_a_long_file_leave_no_second_without_movement(
    served: Home, server: ScriptedServer
) -> None:
    stall = Hanging(command("execute_shell", command_line="sleep 22"))
    text = "".join(f"line {number} of many\n" for number in range(400))
    server.add(stall, command("write_to_file", filename="long.txt", text=text), *FINISH)
    with opened(served.terminal("-m", "none", "-c", *GOAL)) as session:
        stall.is_asked()
        rests = [longest_rest(session, 12)]
        stall.leave()
        session.sees("running execute_shell | ")
        rests.append(longest_rest(session, 20))
        assert session.ends() == 0
    assert (served.folder / "autoagent_workspace" / "long.txt").read_text() == text
    assert max(rests) < 10, "it is drawn every 0.15 s; the rest is what a busy machine may take"


def longest_rest(session: Session, seconds: float) -> float:
    """Watch what moves for so long: the longest that nothing did, in seconds."""
    begun = last = time.monotonic()
    longest = 0.0
    while last - begun < seconds:
        session.sees(DRAWN)
        longest, last = max(longest, time.monotonic() - last), time.monotonic()
    return longest


@pytest.mark.slow
def test_no_line_moves_where_nobody_can_see_it(served: Home, server: ScriptedServer) -> None:
    server.add(command("execute_shell", command_line="echo slow; sleep 1"), command("list_files", directory="."))
    with opened(served.terminal("-m", "none", "--plain", *GOAL)) as session:
        session.answers(QUESTION, "y", "n")
        assert session.ends() == 6
        assert "\x1b" not in session.raw and "running" not in session.raw


def test_ten_steps_take_at_most_80_lines_of_80_columns(served: Home, server: ScriptedServer) -> None:
    program = "def add(one, two):\n    return one + two\n\n\nprint(add(2, 3))\n"
    server.add(
        saying("I look around first.", "list_files", directory="."),
        saying("The program adds two numbers.", "write_to_file", filename="sum.py", text=program),
        saying("Now I see whether it works.", "execute_shell", command_line="cat sum.py"),
        saying("I run it.", "execute_python_file", filename="sum.py"),
        saying("It is to multiply as well.", "edit_file", filename="sum.py", old="one + two", new="one * two"),
        saying("I read it once more.", "read_file", filename="sum.py"),
        saying("One question is left.", "ask_user", question="Which name?"),
        saying("I write the notes.", "write_to_file", filename="notes.md", text="# Sum\n\nIt multiplies.\n"),
        saying("The notes lack a line.", "append_to_file", filename="notes.md", text="It adds no more.\n"),
        *FINISH,
    )
    with opened(served.terminal("-m", "none", *GOAL)) as session:
        for _ in range(6):
            session.sees("plan: write the list; look at it; but: None (t = all)")
            session.answers(QUESTION, "y")
        session.answers("The agent asks: Which name?\n> ", "sum")  # at once, without being asked whether it may ask
        for _ in range(3):
            session.answers(QUESTION, "y")
        assert session.ends() == 0
        lines = session.screen.rstrip().splitlines()
    shown = "\n".join(lines)
    steps = shown[shown.index("-- step 1 ") : shown.index("\n\nGoals ")]
    assert steps.count("\n") < 80
    assert "(t = all)" not in shown and "Run it?" not in shown, "what was answered with y makes room"
    assert "NOTE: Runs sum.py (as shown in step 2)." in shown
    assert shown.count("It is done.") == 2, "the end is told once"
    for risk, name in (("read", "list_files"), ("write", "edit_file"), ("run", "execute_shell")):
        assert f"NEXT ACTION ({risk}): COMMAND = {name}" in shown
    assert shown.count("+print(add(2, 3))") == 1, "a diff is shown once"
    assert "+++ b/" not in shown, "the arguments name the file"
    assert "\x1b[2mNOTE: Runs in a shell" in session.raw and "\x1b[31mNOTE" not in session.raw
    assert "\x1b[35mNEXT ACTION (run):" in session.raw and "\x1b[94mreturn\x1b[0m" in session.raw


def test_without_questions_nothing_offers_what_only_a_question_opens(served: Home, server: ScriptedServer) -> None:
    delete = saying("It goes.", "delete_file", filename="a.txt")
    server.add(saying("First.", "write_to_file", filename="a.txt", text="x\n"), delete, *FINISH)
    with opened(served.terminal("-m", "none", "-c", *GOAL)) as session:
        assert session.ends() == 0
        assert "First." in session.screen and "t = all" not in session.raw
        assert "\x1b[1m\x1b[31mNOTE:\x1b[0m Deletes a.txt" in session.raw, "what cannot be undone is red"


@pytest.mark.slow
def test_a_command_of_the_user_is_told_of_a_question_that_waits_and_of_the_end(
    served: Home, server: ScriptedServer
) -> None:
    server.add(command("list_files", directory="."))
    tell = rf'printf "%s\n" "$(cat)" >> {served.folder}/told'  # in one write: both may be told at once
    with opened(served.terminal("-m", "none", "--notify", tell, *GOAL)) as session:
        session.sees(QUESTION)
        session.sees("\a")  # after ten seconds
        session.types("n")
        assert session.ends() == 6
    asked, ended = (json.loads(line) for line in served.read("told").splitlines())
    assert asked["kind"] == "question" and asked["question"].startswith("Run it?") and asked["run"] == served.runs[0]
    assert (ended["kind"], ended["status"], ended["steps"]) == ("ended", "stopped", 1)
