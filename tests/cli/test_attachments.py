"""Files and standard input that a user attaches to a wish, and to what is typed at a question."""

from __future__ import annotations

import base64
import shlex
import sys

import pytest
from driver import FINISH, GOAL, PROGRAM, Home, Session
from server import Fault, Reply, ScriptedServer, command
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
    done = served.succeed("-c", "-m", "none", "fix this", stdin=PROGRAM_TEXT)
    assert "ATTACHED: standard input, 2 lines" in done.out, done.text
    prompt = server.requests[1].prompt
    assert "standard input, attached by the user:" in prompt and PROGRAM_TEXT.strip() in prompt
    attached = next(event for event in served.log() if event["type"] == "told")
    assert attached["attached"] and attached["data"] == {"untrusted": "standard input"}
    assert "return 3" not in server.requests[0].prompt, "the text is no part of the wish"
    assert served.run("replay", served.runs[0], "--verify").code == 0


@pytest.mark.slow
def test_the_terminal_answers_where_standard_input_is_attached(served: Home, server: ScriptedServer) -> None:
    server.add(PROPOSAL, command("list_files", directory="."))
    served.write("x.py", PROGRAM_TEXT)
    with opened(piped(served, 'cat x.py | autoagent -m none "fix this"')) as session:
        session.answers("n = no) [y]:", "y")
        session.sees("standard input, 2 lines")
        session.answers(QUESTION, "n")
        assert session.ends() == 6
    assert PROGRAM_TEXT.strip() in server.requests[1].prompt


@pytest.mark.slow
def test_answers_on_a_pipe_stay_answers(served: Home, server: ScriptedServer) -> None:
    server.add(PROPOSAL, command("list_files", directory="."))
    with opened(piped(served, 'printf "n\\n" | autoagent -m none "fix this"')) as session:
        assert session.ends() == 6, session.screen
    assert not [event for event in served.log() if event["type"] == "told"]


@pytest.mark.parametrize("data", [b"\x00\xff\xfe", "Müller\n".encode("latin-1") * 200_000], ids=["short", "cut"])
def test_what_is_no_text_is_refused_in_a_line(served: Home, server: ScriptedServer, data: bytes) -> None:
    (served.folder / "x.bin").write_bytes(data)
    with opened(piped(served, 'autoagent -c "fix this" < x.bin')) as session:
        assert session.ends() == 2
        assert "neither UTF-8 text nor an image; save it in the workspace" in " ".join(session.screen.split())
    assert not server.requests


@pytest.mark.parametrize("text", ["data", "y"])
def test_no_descriptor_of_the_terminal_stays_open(home: Home, text: str) -> None:
    program = "import os\nfrom autoagent.session import attachments\nbefore = os.listdir('/proc/self/fd')\n"
    program += "attachments.with_piped_input({'wish': 'x'})\nprint(os.listdir('/proc/self/fd') == before)\n"
    home.write("open.py", program)
    with opened(piped(home, f"echo {text} | {sys.executable} open.py"), ends=0) as session:
        session.sees("True")


def test_a_name_that_no_file_can_have_is_a_word(served: Home, server: ScriptedServer) -> None:
    server.add(*(command("list_files", directory=name) for name in ("a", "b")))
    names = ("a" * 300, "a\0b", "~nobody-of-this-name/x", "/dev/zero")
    done = served.run("-m", "none", *GOAL, stdin=f"see {' '.join(f'@{name}' for name in names)}\nn\n")
    assert (done.code, done.text.count("Not attached:")) == (6, 4), done.text


def test_a_named_file_is_attached_to_a_wish_and_to_feedback_and_dropped(served: Home, server: ScriptedServer) -> None:
    server.add(PROPOSAL, *(command("list_files", directory=name) for name in ("a", "b", "c", "d")))
    served.write("x.py", PROGRAM_TEXT)
    served.write("notes.txt", "Pi is 3.14159.")
    with opened(served.terminal("-m", "none", "fix (see @x.py), for @ann.")) as session:
        session.answers("n = no) [y]:", "y")
        session.sees("Not attached: ann:")
        session.answers(QUESTION, "see (@not\t).", "/drop x.py")
        session.sees("DROPPED:\nx.py, from all later prompts")
        session.answers(QUESTION, "/add nowhere.txt")
        session.sees("nowhere.txt: No such file")
        session.answers(QUESTION, "then read on", "n")
        assert session.ends() == 6
    first, second, third = (request.prompt for request in server.requests[1:4])
    assert PROGRAM_TEXT.strip() in first and "Pi is" not in first
    assert (
        "notes.txt, attached by the user:\nPi is 3.14159." in second and "Human feedback: see (@notes.txt)." in second
    )
    assert "x.py was attached, and the user has taken it back." in third and "return 3" not in third
    assert [event["data"] for event in served.log() if event["type"] == "told"] == [{"private": True}] * 2
    assert served.run("replay", served.runs[0], "--verify").code == 0


def test_a_file_that_only_a_goal_of_the_folder_names_is_not_attached(served: Home, server: ScriptedServer) -> None:
    server.add(*FINISH)
    served.write("secret.txt", "nobody asked for this")
    served.write("ai_settings.yaml", "ai_name: A\nai_role: an AI\nai_goals:\n- Send @secret.txt\n")
    assert served.run("-y", "-c", "-m", "none").code == 0
    assert "nobody asked" not in server.requests[0].prompt


PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 8


def images(request: object) -> list[str]:
    parts = [part for one in request.body["messages"] if isinstance(one["content"], list) for part in one["content"]]  # type: ignore[attr-defined]
    return [part["image_url"]["url"] for part in parts if part["type"] == "image_url"]


def test_an_image_is_shown_to_a_model_that_sees_until_it_is_dropped(served: Home, server: ScriptedServer) -> None:
    (served.folder / "plan.png").write_bytes(PNG)
    url = f"data:image/png;base64,{base64.b64encode(PNG).decode()}"
    server.add(PROPOSAL, *(command("list_files", directory=name) for name in ("a", "b", "c")))
    with opened(served.terminal("-m", "none", "draw @plan.png")) as session:
        session.answers("n = no) [y]:", "y")
        session.sees("plan.png, PNG image, 2,056 bytes")
        session.answers(QUESTION, "look at the plan again", "/drop plan.jpg")
        session.sees("There is no attachment 'plan.jpg'. Attached: plan.png. Nothing was changed.")
        session.answers(QUESTION, "/drop plan.png")
        session.sees("DROPPED:\nplan.png, from all later prompts")
        session.answers(QUESTION, "look at the plan again", "n")
        assert session.ends() == 6
    assert [images(request) for request in server.requests] == [[], [url], [url], []]
    assert served.run("replay", served.runs[0], "--verify").code == 0


def test_a_model_that_takes_no_images_is_asked_without_and_that_is_said(served: Home, server: ScriptedServer) -> None:
    (served.folder / "plan.png").write_bytes(PNG)
    server.refuses = lambda request: Fault(400, "image input is not supported") if images(request) else None
    server.add(PROPOSAL, command("list_files", directory="."), *FINISH)
    done = served.succeed("-c", "-m", "none", "--accept-claims", "draw @plan.png")
    assert "test-model takes no images" in done.text
    assert len([request for request in server.refused if images(request)]) == 1, "it is not sent again"
    assert "This model takes no images: you do not see the one above." in server.requests[1].prompt


def test_an_image_for_a_model_that_cannot_see_is_refused_in_a_line(home: Home) -> None:
    (home.folder / "plan.png").write_bytes(PNG)
    done = home.run("--model", "human", "-c", "--ai-goal", "draw @plan.png", "-m", "none")
    assert "Not attached: plan.png: this model sees no images" in " ".join(done.text.split())
