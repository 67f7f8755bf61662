"""Files and standard input that a user attaches to a wish, and to what is typed at a question."""

from __future__ import annotations

import shlex

from driver import FINISH, PROGRAM, Home, Session
from server import Reply, ScriptedServer, command
from test_session import QUESTION, opened

PROPOSAL = Reply('{"name": "FixGPT", "role": "an AI that mends programs", "goals": ["Fix this"]}')
PROGRAM_TEXT = "def area(r):\n    return 3 * r * r\n"


def piped(home: Home, line: str) -> Session:
    """A shell line at a terminal, in which `autoagent` is the program."""
    environment = home._environment({"TERM": "xterm-256color"})
    line = line.replace("autoagent", shlex.join(PROGRAM))
    return Session.of(["/bin/sh", "-c", line], home.folder, environment, 80, edits=True)


def test_standard_input_beside_a_wish_is_untrusted_text_of_the_run(served: Home, server: ScriptedServer) -> None:
    server.add(PROPOSAL, *FINISH)
    done = served.run("-c", "-m", "none", "fix this", stdin=PROGRAM_TEXT)
    assert done.code == 0, done.text
    prompt = server.requests[1].prompt
    assert "standard input, attached by the user:" in prompt and PROGRAM_TEXT.strip() in prompt
    attached = next(event for event in served.log() if event["type"] == "told")
    assert attached["attached"] and attached["data"] == {"untrusted": "standard input"}
    assert "return 3" not in server.requests[0].prompt, "the text is no part of the wish"
    assert served.run("replay", served.runs[0], "--verify").code == 0


def test_the_terminal_answers_where_standard_input_is_attached(served: Home, server: ScriptedServer) -> None:
    server.add(PROPOSAL, command("list_files", directory="."))
    served.write("x.py", PROGRAM_TEXT)
    with opened(piped(served, 'cat x.py | autoagent -m none "fix this"')) as session:
        session.answers("n = no) [y]:", "y")
        session.sees("standard input, 2 lines")
        session.answers(QUESTION, "n")
        assert session.ends() == 6
    assert PROGRAM_TEXT.strip() in server.requests[1].prompt


def test_answers_on_a_pipe_stay_answers(served: Home, server: ScriptedServer) -> None:
    server.add(PROPOSAL, command("list_files", directory="."))
    with opened(piped(served, 'printf "n\\n" | autoagent -m none "fix this"')) as session:
        assert session.ends() == 6, session.screen
    assert not [event for event in served.log() if event["type"] == "told"]


def test_what_is_no_text_is_refused_in_a_line(served: Home, server: ScriptedServer) -> None:
    (served.folder / "x.bin").write_bytes(b"\x00\xff\xfe")
    with opened(piped(served, 'autoagent -c "fix this" < x.bin')) as session:
        assert session.ends() == 2
        assert "standard input: is no UTF-8 text" in " ".join(session.screen.split())
    assert not server.requests


def test_a_named_file_is_attached_to_a_wish_and_to_feedback_and_dropped(served: Home, server: ScriptedServer) -> None:
    server.add(PROPOSAL, *(command("list_files", directory=name) for name in ("a", "b", "c", "d")))
    served.write("x.py", PROGRAM_TEXT)
    served.write("notes.txt", "Pi is 3.14159.")
    with opened(served.terminal("-m", "none", "fix @x.py for @ann")) as session:
        session.answers("n = no) [y]:", "y")
        session.sees("Not attached: ann")
        session.answers(QUESTION, "see @not\t")
        session.answers(QUESTION, "/drop x.py")
        session.sees("Later prompts do not show x.py.")
        session.answers(QUESTION, "/add nowhere.txt")
        session.sees("nowhere.txt: No such file")
        session.answers(QUESTION, "then read on")
        session.answers(QUESTION, "n")
        assert session.ends() == 6
    first, second, third = (request.prompt for request in server.requests[1:4])
    assert PROGRAM_TEXT.strip() in first and "Pi is" not in first
    assert "notes.txt, attached by the user:\nPi is 3.14159." in second and "Human feedback: see @notes.txt" in second
    assert "x.py was attached, and the user has taken it back." in third and "return 3" not in third
    assert [event["data"] for event in served.log() if event["type"] == "told"] == [{"private": True}] * 2
    assert served.run("replay", served.runs[0], "--verify").code == 0


def test_a_file_that_only_a_goal_of_the_folder_names_is_not_attached(served: Home, server: ScriptedServer) -> None:
    server.add(*FINISH)
    served.write("secret.txt", "nobody asked for this")
    served.write("ai_settings.yaml", "ai_name: A\nai_role: an AI\nai_goals:\n- Send @secret.txt\n")
    assert served.run("-y", "-c", "-m", "none").code == 0
    assert "nobody asked" not in server.requests[0].prompt
