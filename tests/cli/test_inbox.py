"""Questions that wait, and answers from another terminal: real processes, pipes and pseudo-terminals."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from driver import FINISH, GOAL, PATIENCE, READY, Done, Hanging, Home
from processes import wait_for
from server import Command, Reply, Request, ScriptedServer, command
from test_session import QUESTION, opened

from autoagent.core.errors import StateError
from autoagent.safety.open_questions import OpenQuestion, OpenQuestions, pick

RUN = ("-m", "none", *GOAL)
LIST = command("list_files", directory=".")


def folder(home: Home) -> Path:
    return home.folder / ".local/state/autoagent/questions"


def files(home: Home) -> list[Path]:
    return list(folder(home).iterdir())


def waiting(home: Home, fits: Callable[[OpenQuestion], bool] = lambda question: True) -> OpenQuestion:
    """Wait for an open question of this home."""
    return wait_for(lambda: [question for question in OpenQuestions(folder(home)).all() if fits(question)])[0]


def flat(done: Done) -> str:
    return " ".join(done.text.split())


def decided(home: Home) -> list[dict[str, Any]]:
    return [event for event in home.log() if event["type"] == "decided"]


@pytest.mark.slow
def test_a_question_is_answered_from_another_terminal(served: Home, server: ScriptedServer) -> None:
    server.add(command("write_to_file", filename="a.txt", text="the whole text"), LIST, *FINISH)
    process = served.start(*RUN)
    first = waiting(served)
    shown = flat(served.run("inbox"))
    assert f"{first.run}." in shown and "write_to_file (write)" in shown and "the whole text" in shown
    assert f"autoagent inbox {first.id} TEXT" in shown
    [listed] = json.loads(served.run("inbox", "--json").out)
    assert listed["command"]["arguments"] == {"filename": "a.txt", "text": "the whole text"}
    assert (listed["run"], listed["waits"]) == (served.runs[0], True)
    for bad, why in (("y 5x", "with N a whole number"), ("e", "for the terminal of the run"), ("/cost", "/cost is")):
        refused = served.run("answer", bad)
        assert (refused.code, refused.err.count("\n")) == (2, 1), bad
        assert why in refused.err and "The question stays open." in refused.err
    assert waiting(served).id == first.id
    assert served.run("answer", first.run[:10], "use another name").code == 0
    second = waiting(served, lambda question: question.command.get("name") == "list_files")
    gone = served.run("answer", first.id, "y")
    assert gone.code == 1 and "No open question begins with" in gone.err
    assert served.run("answer", second.id, "y -4").code == 0
    assert "Answered from another terminal: use another name" in ends(process)
    assert not files(served) and folder(served).stat().st_mode & 0o777 == 0o700
    assert served.run("inbox", "--json").out == "[]\n"
    assert [(e["allowed"], e["by"], e["elsewhere"]) for e in decided(served)][:3] == [
        (False, "user", True), (True, "user", True), (True, "user (in advance)", False)
    ]  # fmt: skip
    assert any(e["type"] == "feedback" and e["text"] == "use another name" for e in served.log())


def ends(process: subprocess.Popen[str], code: int = 0) -> str:
    """Wait for the end of a run: what it has shown."""
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == code, out + err
    return str(out)


@pytest.mark.slow
def test_no_name_of_a_folder_passes_for_a_question(served: Home, server: ScriptedServer) -> None:
    (served.folder / "ws\nOTHER  for 1 s").mkdir()
    server.add(command("write_to_file", filename="a.txt", text="x"))
    process = served.start(*RUN, "-w", "ws\nOTHER  for 1 s")
    waiting(served)
    assert [line for line in served.run("inbox").out.splitlines() if line.startswith("OTHER")] == []
    process.kill()
    process.communicate()


@pytest.mark.slow
def test_who_is_first_wins_and_the_other_is_told(served: Home, server: ScriptedServer) -> None:
    server.add(LIST, command("list_files", directory="./."), command("read_file", filename="a"))
    with opened(served.terminal(*RUN)) as session:
        session.sees(QUESTION)
        session.sees(READY)
        run = waiting(served).run
        session.is_sent(signal.SIGSTOP)
        assert served.run("answer", run, "y").code == 0
        late = served.run("answer", run, "n")
        assert late.code == 1 and "is no longer open: it was answered" in flat(late)
        session.is_sent(signal.SIGCONT)
        session.sees("Answered from another terminal: y")
        session.answers(QUESTION, "not this")
        read = waiting(served, lambda question: question.command.get("name") == "read_file")
        assert served.run("answer", "n").code == 0
        session.sees("Answered from another terminal: n")
        assert session.ends() == 6
    assert served.run("answer", read.id, "y").code == 1
    assert [(e["allowed"], e["elsewhere"]) for e in decided(served)] == [(True, True), (False, False)]


def test_a_question_whose_process_is_gone_is_not_open(served: Home, server: ScriptedServer) -> None:
    server.add(LIST)
    process = served.start(*RUN)
    run = waiting(served).run
    process.kill()
    process.communicate()
    assert files(served), "it could not be taken away"
    assert served.run("inbox", "--json").out == "[]\n"
    assert not files(served)
    assert served.run("answer", run, "y").code == 1


@pytest.mark.slow
def test_the_run_ends_or_goes_on_without_an_answer_as_set(served: Home, server: ScriptedServer) -> None:
    server.add(LIST, LIST, command("ask_user", question="Which?"), *FINISH)
    ended = served.exits(5, *RUN, "--answer-timeout", "0.3")
    assert "For 0.3 s it can be answered elsewhere: autoagent answer" in flat(ended)
    reason = "Nobody answered within 0.3 s (--answer-timeout); the run is saved and ends."
    assert f"NOBODY ANSWERED: {reason}" in flat(ended)
    assert served.log()[-1]["reason"] == reason
    allow = ("--allow", "task_complete")
    env = {"AUTOAGENT_ANSWER_TIMEOUT": "0.3", "AUTOAGENT_IF_UNANSWERED": "go-on"}
    went_on = served.succeed(*RUN, *allow, env=env)
    assert "Nobody answered within 0.3 s (--answer-timeout); the run goes on." in flat(went_on)
    refused = decided(served)[0]
    assert (refused["allowed"], refused["by"]) == (False, "nobody")
    assert refused["reason"].startswith("Nobody answered within 0.3 s (--answer-timeout). So it was not run.")
    assert refused["reason"] in server.requests[2].prompt
    [asked] = [e for e in served.log() if e["type"] == "returned" and e["step"] == 2]
    assert asked["text"] == "Nobody answered within 0.3 s (--answer-timeout)."


def test_a_run_without_a_terminal_waits_for_an_answer(served: Home, server: ScriptedServer) -> None:
    server.add(command("ask_user", question="Which name?"), *FINISH)
    process = served.start(*RUN, "-c", "--answer-timeout", "600")
    assert process.stdin is not None
    process.stdin.close()
    process.stdin = None
    assert "The agent asks: Which name?" in waiting(served).question
    assert served.run("answer", "Ada\nLovelace").code == 0
    ends(process)
    assert "The user answered: Ada\nLovelace" in server.requests[1].prompt


def test_a_late_answer_from_another_terminal_is_news(served: Home, server: ScriptedServer) -> None:
    def later(request: Request) -> Command:
        late = waiting(served)
        assert late.stays_open and late.run == served.runs[0]
        OpenQuestions(folder(served)).answer(late, "Blue")
        return command("recall", query="colours")

    steps = iter([command("ask_user", question="Which colour?", timeout=0.2), later, *FINISH])
    server._every = lambda request: step(request) if callable(step := next(steps)) else step
    served.succeed("--hierarchical", "-c", *GOAL)
    assert "A late answer to 'Which colour?': Blue" in server.requests[2].prompt
    assert not files(served)


@pytest.mark.slow
def test_a_late_answer_that_is_typed_does_not_answer_the_next_question(home: Home, server: ScriptedServer) -> None:
    home.point_at(server)
    hanging = Hanging(command("recall", query="colours"))
    steps = iter([command("ask_user", question="Which colour?", timeout=0.5), hanging, *FINISH])
    server._every = lambda request: step(request) if callable(step := next(steps)) else step
    with opened(home.terminal("--hierarchical", *GOAL)) as session:
        session.sees("The agent asks: Which colour?")
        session.sees("用户暂未回复")
        hanging.is_asked()
        session.types("Blue")
        session.sees("Blue")
        hanging.leave()
        session.sees("recall")
        session.answers(QUESTION, "y")
        session.sees("A late answer to 'Which colour?': Blue")
        session.answers(QUESTION, "y")
        assert session.ends() == 0
    assert "A late answer to 'Which colour?': Blue" in server.requests[2].prompt
    assert [e["text"] for e in home.log() if e["type"] == "feedback"] == ["A late answer to 'Which colour?': Blue"]
    assert [e["allowed"] for e in decided(home)][1:] == [True, True]


TEAM = """\
idea: Write a product function
roles:
  - {name: Alice, profile: Coder, actions: [{name: Code, instruction: Code it}]}
  - {name: Carol, profile: Reviewer, watch: [Code], is_human: yes, actions: [{name: Review, instruction: Judge}]}
"""


@pytest.mark.slow
def test_a_person_of_a_team_answers_from_another_terminal(home: Home, server: ScriptedServer) -> None:
    home.point_at(server)
    home.write("team.yaml", TEAM)
    server._every = lambda request: Reply("def product(): ...")
    timeout = ("--answer-timeout", "600")
    process = home.start("team", "team.yaml", *timeout)
    asked = waiting(home)
    assert "def product(): ..." in asked.text and "You are Carol, Reviewer." in asked.question
    assert home.run("answer", asked.run, "Fine, but:\n\nname it better.").code == 0
    ends(process)
    said = [e["content"] for e in home.log() if e["type"] == "published" and e["role"] == "Reviewer"]
    assert said == ["Fine, but:\n\nname it better."]
    process = home.start("team", "team.yaml", *timeout)
    waiting(home)
    assert home.run("answer", "exit").code == 0
    ends(process, 6)
    home.succeed("team", "team.yaml", "--answer-timeout", "0.3", "--if-unanswered", "go-on")
    assert [e["content"] for e in home.log() if e["type"] == "published"][-1] == "用户暂未回复"


@pytest.mark.parametrize("sandbox", ["bubblewrap", "landlock"])
def test_the_agent_cannot_answer_its_own_question(served: Home, server: ScriptedServer, sandbox: str) -> None:
    state = served.folder / "state"
    questions = state / "autoagent/questions"
    env = {"XDG_STATE_HOME": str(state)}
    touch = "echo x > state/autoagent/questions/mine; cat state/autoagent/questions/*.json; ls state/autoagent"
    server.add(
        command("execute_shell", command_line=touch),
        command("write_to_file", filename="state/autoagent/questions/x.answer", text="{}"),
        command("list_files", directory="state/autoagent/questions"),
        command("ask_user", question="Which?"),
    )
    process = served.start(*RUN, "-w", ".", "--sandbox", sandbox, "--require-sandbox", env=env)
    assert process.stdin is not None
    process.stdin.write("y\ny\ny\n")
    process.stdin.flush()
    open_questions = OpenQuestions(questions)
    wait_for(lambda: process.poll() is not None or any(question.kind == "text" for question in open_questions.all()))
    if process.poll() is not None:
        pytest.skip(f"{sandbox} does not work here: {process.communicate()[1]}")
    assert not (questions / "mine").exists() and not (questions / "x.answer").exists()
    process.communicate(timeout=PATIENCE)
    returned = [event for event in served.log() if event["type"] == "returned"]
    assert "COMMAND" not in returned[0]["text"] and "execute_shell" not in returned[0]["text"], returned[0]["text"]
    for event in returned[1:3]:
        assert not event["ok"] and "belongs to the agent itself" in event["text"], event["text"]


def test_what_others_could_have_written_is_no_answer(tmp_path: Path) -> None:
    questions = OpenQuestions(tmp_path / "questions")
    held = questions.add(OpenQuestion(id="r.1", run="r", question="?"))
    for answer, mode in ((tmp_path / "questions" / "r.1.answer", 0o644), (tmp_path / "mine", 0o600)):
        answer.write_text('{"text": "y"}')
        answer.chmod(mode)
    assert held.close() is None
    held = questions.add(OpenQuestion(id="r.2", run="r", question="?"))
    (tmp_path / "questions" / "r.2.answer").symlink_to(tmp_path / "mine")
    assert held.close() is None
    (tmp_path / "questions").chmod(0o770)
    with pytest.raises(StateError, match="must belong to you alone"):
        questions.all()


def test_a_run_is_named_by_any_unique_prefix() -> None:
    late = OpenQuestion(id="20260101-a.1", run="20260101-a", question="?", until=1.0, stays_open=True)
    now = OpenQuestion(id="20260101-a.2", run="20260101-a", question="?")
    other = OpenQuestion(id="20260102-b.1", run="20260102-b", question="?")
    assert pick([late, now, other], "20260101") is now, "the run waits for it"
    assert pick([late, now, other], "20260101-a.1") is late
    assert pick([late], "") is late
    for wanted in ("2026", "", "x"):
        with pytest.raises(StateError):
            pick([late, now, other], wanted)
