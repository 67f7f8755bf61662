"""The core: what the user said, pinned or prefers is in every prompt, whatever the goals are."""

from __future__ import annotations

import json

import pytest
from driver import FINISH, GOAL, Home
from server import ScriptedServer, command
from test_session import QUESTION, opened

HEADING = "What the user said before and wants kept in mind"
ENGLISH = "Write all files in British English."


@pytest.mark.slow
def test_a_preference_is_in_every_prompt_of_a_run_that_it_shares_no_word_with(
    served: Home, server: ScriptedServer
) -> None:
    assert served.run("memory", "add", "The printer is on the second floor.").code == 0
    assert served.run("memory", "--user", "core", "add", ENGLISH).code == 0
    server.add(command("list_files", directory="."), *FINISH)
    assert served.run("--ai-goal", "Sum up 2 and 3", "-c").code == 0
    for asked in server.requests:
        core = asked.prompt.partition(HEADING)[2]
        assert core.index(ENGLISH) < core.index("second floor"), "what is pinned comes first"
    assert server.requests[-1].prompt.index(HEADING) < server.requests[-1].prompt.index("The workspace is empty.")
    assert served.run("replay", served.runs[0], "--verify").code == 0
    assert "user:1  in every prompt" in served.run("why", served.runs[0], "1").out

    assert served.run("memory", "--user", "core", "drop", "1").code == 0
    assert served.run("memory", "core", "drop", "1").code == 0
    server.add(*FINISH)
    assert served.run("--ai-goal", "Sum up 2 and 3", "-c").code == 0
    assert HEADING not in server.requests[-1].prompt
    assert "The core is empty" in served.run("memory", "core").err


@pytest.mark.slow
def test_what_finds_no_room_is_said_to_the_model_and_to_the_user(served: Home, server: ScriptedServer) -> None:
    for number in range(12):
        text = f"Rule {number} of the house: " + "the tables are laid before the guests have come. " * 4
        assert served.run("memory", "add", text).code == 0
    assert served.run("memory", "core", "add", "3").code == 0
    found = served.run("memory", "core")
    shown = int(found.err.partition("Prompts show the first ")[2].split()[0])
    assert 2 <= shown < 12 and f"first {shown} of 12" in found.err
    assert [memory["id"] for memory in json.loads(served.run("memory", "core", "--json").out)][:2] == [3, 12]
    server.add(*FINISH)
    assert served.run(*GOAL, "-c").code == 0
    core = server.requests[-1].prompt.partition(HEADING)[2]
    assert f"({12 - shown} more are left out for room" in core
    assert core.count("of the house") == shown and "Rule 2 of" in core, "the pinned one is there, though it is older"


def test_no_text_from_outside_gets_into_the_core(served: Home) -> None:
    served.write("notes.jsonl", "")
    assert served.run("memory", "add", "Ferries leave at nine.").code == 0
    assert served.run("memory", "export", "notes.jsonl", "--overwrite").code == 0
    assert served.run("memory", "forget", "1").code == 0
    assert served.run("memory", "import", "notes.jsonl").code == 0
    refused = served.run("memory", "core", "add", "2")
    assert refused.code == 1 and "Memory 2 comes from outside" in refused.err
    assert served.run("memory", "pin", "2").code == 0
    assert "The core is empty" in served.run("memory", "core").err
    unknown = served.run("memory", "core", "drop", "77")
    assert unknown.code == 1 and "There is no memory 77" in unknown.err


def test_the_core_is_changed_at_the_question_of_a_run(served: Home, server: ScriptedServer) -> None:
    server.add(command("list_files", directory="."), command("list_files", directory=".."), *FINISH)
    with opened(served.terminal(*GOAL)) as session:
        session.answers(QUESTION, "/memory core")
        session.sees("The core is empty. /memory core TEXT")
        session.answers(QUESTION, f"/memory core --public {ENGLISH}")
        session.sees("Kept as 1")
        session.answers(QUESTION, "/memory core --public")
        session.sees("--public takes TEXT or an ID. Nothing was changed.")
        session.answers(QUESTION, "/memory core -9")
        session.sees("There is no '9' in the core")
        session.answers(QUESTION, "y")
        session.answers(QUESTION, "/memory core -1")
        session.sees("Later prompts no longer always show 1")
        session.answers(QUESTION, "n")
        assert session.ends() == 6
    assert not any(event["type"] == "tainted" for event in served.log())
    assert HEADING not in server.requests[0].prompt
    assert ENGLISH in server.requests[1].prompt.partition(HEADING)[2]


@pytest.mark.slow
def test_a_superseded_note_is_named_and_comes_back_into_the_core_when_it_is_put_there(
    served: Home, server: ScriptedServer
) -> None:
    old, new = "The code of the door is 7421.", "The code of the door is 7422."
    assert served.run("memory", "add", old).text == "Remembered as 1.\n"
    assert served.run("memory", "add", new).text == f"Remembered as 2.\nsupersedes 1: {old}\n"
    assert served.run("memory", "add", new).text == "Remembered as 2.\n", "only once"

    def core() -> set[str]:
        return {memory["text"] for memory in json.loads(served.run("memory", "core", "--json").out)}

    assert core() == {new}
    assert served.run("memory", "core", "add", "1").text == "Saved as 1; every prompt shows it.\n"
    assert core() == {old, new}

    again = "The code of the door is 7423."
    named = sorted(served.run("memory", "core", "add", again).out.splitlines()[1:])
    assert named == [f"supersedes 1: {old}", f"supersedes 2: {new}"]
    server.add(command("list_files", directory="."), *FINISH)
    with opened(served.terminal(*GOAL)) as session:
        session.answers(QUESTION, "/memory core 77")
        session.sees("There is no memory 77.")
        session.answers(QUESTION, "/memory core 2")
        session.sees("Kept as 2")
        session.answers(QUESTION, "n")
        assert session.ends() == 6
    assert core() == {again, new}
