"""The end says of each goal how it is known that it is met: checked, shown, or only claimed."""

from __future__ import annotations

import json

import pytest
from driver import FINISH, Home
from server import Command, ScriptedServer, command
from test_session import QUESTION, opened

RUN = ("-c", "-m", "none")
WRITE = command("write_to_file", filename="note.txt", text="The ferry leaves at 7.\n")


def ends(reason: str) -> Command:
    return command("task_complete", reason=reason)


def proofs(home: Home) -> list[str]:
    return list(home.log()[-1]["goals"])


def test_what_the_model_merely_says_is_called_a_claim_in_report_runs_and_show(
    served: Home, server: ScriptedServer
) -> None:
    server.add(*FINISH)
    done = served.run(*RUN, "--ai-goal", "Find out when the ferry leaves")
    assert done.code == 0
    assert "1. Find out when the ferry leaves (only claimed)" in " ".join(done.text.split())
    assert proofs(served) == ["claimed"]
    (run,) = json.loads(served.run("runs", "--json").out)
    assert (run["status"], run["proofs"]) == ("finished", ["claimed"])
    assert f"{run['id']}  claimed  " in served.run("runs").out
    assert "(only claimed)" in served.run("show", run["id"]).out


def test_a_green_check_a_file_that_was_written_and_a_quoted_output_are_told_apart(
    served: Home, server: ScriptedServer
) -> None:
    look = command("execute_shell", command_line="cat note.txt")
    goals = ("Write note.txt :: test -s note.txt", "Write note.txt for a reader", "Tell when it leaves", "Be kind")
    reason = 'Goal 3: it says "ferry leaves at 7". Goal 4: I was "ever so kind".'
    server.add(WRITE, look, ends("Done."), ends(reason))
    done = served.run(*RUN, "--json", *(part for goal in goals for part in ("--ai-goal", goal)))
    assert done.code == 0, done.text
    assert done.events[-1]["goals"] == proofs(served) == ["checked", "shown", "shown", "claimed"]


def test_what_the_model_has_said_itself_is_no_evidence(served: Home, server: ScriptedServer) -> None:
    echo = command("execute_shell", command_line="echo all tests passed")
    server.add(echo, ends("`all tests passed`"), ends("`all tests passed`"))
    assert served.run(*RUN, "--ai-goal", "Make the tests pass").code == 0
    assert proofs(served) == ["claimed"]


def test_strict_does_not_finish_on_a_claim_and_says_what_is_lacking(served: Home, server: ScriptedServer) -> None:
    served.write("autoagent_workspace/times.txt", "The ferry leaves at 7.\n")
    read = command("read_file", filename="times.txt")
    server.add(*[ends("At 8.")] * 2, read, ends('Goal 1: "The ferry leaves at 7"'))
    done = served.run(*RUN, "--strict", "--ai-goal", "Tell when the ferry leaves")
    assert done.code == 0, done.text
    assert proofs(served) == ["shown"]
    assert "Nothing in this run shows that these goals are met:\nGoal 1: Tell when" in server.requests[2].prompt


def test_strict_ends_as_stuck_where_it_comes_to_nothing(served: Home, server: ScriptedServer) -> None:
    served.env["AUTOAGENT_STRICT"] = "true"
    server.add(*[ends(f"Done, {number}.") for number in range(20)])
    done = served.run(*RUN, "--ai-goal", "Tell when the ferry leaves")
    assert done.code == 8, done.text
    assert "FINISHED" not in done.text and len(server.requests) < 10
    assert proofs(served) == []


@pytest.mark.parametrize(
    ("answers", "check"),
    [
        ([("Use them?", "y")], "test -s poem.txt"),
        ([("Use them?", "n")], None),
        ([("Use them?", "e"), ("Check of goal 1 [test -s poem.txt]:", "grep -q sea poem.txt")], "grep -q sea poem.txt"),
    ],
)
def test_a_check_that_follows_from_a_goal_is_proposed_and_used_only_if_it_is_taken(
    served: Home, server: ScriptedServer, answers: list[tuple[str, str]], check: str | None
) -> None:
    server.add(command("list_files", directory="."))
    with opened(served.terminal("-m", "none")) as session:
        session.answers("I want it to:", "")
        for question in ("Name of the AI", "is ["):
            session.answers(question, "")
        session.answers("Goal 1:", "Write a poem to poem.txt")
        session.answers("Goal 2:", "")
        for question, answer in answers:
            session.answers(question, answer)
        session.answers(QUESTION, "n")
        assert session.ends() == 6
    assert [goal["check"] for goal in served.log()[0]["task"]["goals"]] == [check]
