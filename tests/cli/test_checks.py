"""The check of a goal is a program; only words of the user make one, and it is shown before it runs."""

from __future__ import annotations

from driver import FINISH, Home
from server import Reply, ScriptedServer, command

HEAD = "ai_name: N\nai_role: an AI\nai_goals:\n"
WISHED = '{"name": "NoteGPT", "role": "an AI that notes", "goals": ["Write note.txt :: touch PWNED; rm -f keep.txt"]}'
WRITES = command("write_to_file", filename="note.txt", text="noted")


def workspace(home: Home) -> list[str]:
    return sorted(path.name for path in (home.folder / "autoagent_workspace").iterdir())


def checks(home: Home) -> list[bool]:
    return [event["met"] for event in home.log() if event["type"] == "checked"]


def test_a_check_that_the_model_wrote_is_never_run(served: Home, server: ScriptedServer) -> None:
    served.write("autoagent_workspace/keep.txt", "kept")
    server.add(Reply(WISHED), WRITES)
    assert served.run("-m", "none", stdin="write a note\nn\n").code == 6
    assert "\n  check:" not in served.read("ai_settings.yaml")

    server.add(WRITES, *FINISH)
    done = served.succeed("-y", "-m", "none", stdin="y -9\n")
    assert "check: touch" not in done.text
    assert checks(served) == []
    assert workspace(served) == ["keep.txt", "note.txt"]
    assert "Write note.txt :: touch PWNED" in server.requests[-1].prompt  # a text, for the model as well


def test_a_plain_string_with_a_double_colon_in_the_file_is_text_and_that_is_said_once(
    served: Home, server: ScriptedServer
) -> None:
    goals = "- Write a :: touch made\n- Write b :: touch made\n- 'add :: Int -> Int'\n"
    served.write("ai_settings.yaml", HEAD + goals)
    server.add(WRITES, *FINISH)
    done = served.succeed("-y", "-c", "-m", "none")
    said = " ".join(done.err.split())
    assert said.count("ai_settings.yaml: ` :: ` in a goal is text here, not a check.") == 1
    assert "`- text: ...`, and below it ` check: ...`" in said
    assert (checks(served), workspace(served)) == ([], ["note.txt"])

    served.write("ai_settings.yaml", HEAD + "- 'add :: Int -> Int'\n")  # nobody could mean a check
    server.add(*FINISH)
    assert "in a goal is text" not in served.run("-y", "-c", "-m", "none").text


def test_a_check_of_the_file_is_shown_and_run(served: Home, server: ScriptedServer) -> None:
    served.write("ai_settings.yaml", HEAD + "- text: Write note.txt\n  check: test -s note.txt\n")
    assert served.run("trust").code == 0
    server.add(WRITES, *FINISH)
    done = served.succeed("-y", "-c", "-m", "none")
    assert "GOALS:\n  1. Write note.txt\n     check: test -s note.txt\nMODEL:" in done.text
    assert set(checks(served)) == {True}


def test_a_check_that_is_typed_is_shown_saved_and_welcomed_back(served: Home) -> None:
    answers = ["", "N", "r", "Write note.txt :: test -s note.txt", r"Explain a \:: true", "Implement f :: Int", ""]
    done = served.run("-m", "none", stdin="\n".join(answers) + "\n")
    said = " ".join(done.err.split())
    assert "run in the workspace after each change: note.txt is not empty (test -s note.txt)" in said
    assert said.count("Taken as text, with no check") == 1
    saved = served.read("ai_settings.yaml")
    assert "- text: Write note.txt\n  check: test -s note.txt\n- 'Explain a :: true'\n- 'Implement f :: Int'\n" in saved
    back = served.run("-m", "none", stdin="n\n")
    assert "    check: note.txt is not empty (test -s note.txt)\n  - Explain a :: true\n" in back.text


def test_a_type_in_a_goal_makes_no_check_no_file_and_no_stuck_run(served: Home, server: ScriptedServer) -> None:
    server.add(command("write_to_file", filename="add.hs", text="add = (+)\n"), *FINISH)
    done = served.succeed("-c", "-m", "none", "--ai-goal", "Implement add :: Int -> Int -> Int in add.hs")
    assert "Taken as text, with no check" in " ".join(done.err.split())
    assert (checks(served), workspace(served)) == ([], ["add.hs"])


def test_a_check_given_on_resume_is_shown_too(served: Home, server: ScriptedServer) -> None:
    server.add(WRITES)
    assert served.run("-m", "none", "--ai-goal", "Write note.txt", stdin="n\n").code == 6
    server.add(WRITES, *FINISH)
    done = served.succeed("resume", "-c", "--ai-goal", "Write note.txt :: test -s note.txt")
    assert "  1. Write note.txt\n     check: test -s note.txt\n" in done.text
    assert set(checks(served)) == {True}


def test_a_secret_in_a_check_reaches_no_prompt(served: Home, server: ScriptedServer) -> None:
    key = "sk-in-a-check-0123456789"
    server.add(WRITES, *FINISH)
    served.succeed("-c", "-m", "none", "--ai-goal", f"Write note.txt :: test {key}", env={"OPENAI_API_KEY": key})
    assert "(checked with: `test [masked]`)" in server.requests[-1].prompt
    assert not any(key in request.prompt for request in server.requests)
