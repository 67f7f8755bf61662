"""What a person changes of a run at its question: the model, the budget, the goals, and the last change of a file."""

from __future__ import annotations

from driver import FINISH, GOAL, Home
from server import ScriptedServer, command
from test_session import QUESTION, opened

EDIT = "Enter = done\n> "
MODELS = ({"id": "other-model", "object": "model"}, {"id": "test-model", "object": "model"})


def test_the_model_the_budget_and_the_goals_are_changed_at_the_question_and_kept(
    served: Home, server: ScriptedServer
) -> None:
    server.models = MODELS
    server.add(command("list_files", directory="."), *FINISH)
    with opened(served.terminal("-m", "none", *GOAL), ends=6) as session:
        for typed, shown in (
            ("/model nope", "There is no model 'nope'. The endpoint has other-model, test-model."),
            ("/model demo", "demo: its replies belong to another run, in a fixed order"),
            ("/budget much", "not 'much'"),
            ("/budget", "Cost:"),
            ("/model other-model", "the model is other-model, window 32,000 tokens"),
            ("/budget 0.50", "the budget is $0.5"),
        ):
            session.answers(QUESTION, typed)
            session.sees(shown)
            assert len(server.requests) == 1, "no word of these costs a call"
        session.answers_each(
            (QUESTION, "/goals"), (EDIT, "+ Tell the time :: true"), (EDIT, "1 Do another thing"), (EDIT, ""),
        )  # fmt: skip
        session.sees("the goals")
        session.answers(QUESTION, "/goals 3 -")
        session.sees("/goals takes a change: N TEXT replaces goal N")
        session.answers(QUESTION, "/goals + Go home")
        session.sees("the goals")
        session.answers(QUESTION, "n")
    changes = [event for event in served.log() if event["type"] == "changed"]
    assert [change["model"] for change in changes] == ["other-model"] * 4
    assert [change["limits"]["usd"] for change in changes] == [0, 0.5, 0.5, 0.5]
    assert served.run("resume", "--plain", stdin="y\ny\ny\n").code == 0
    asked = server.requests[-1]
    assert asked.body["model"] == "other-model"
    for said in ("Do another thing", "Tell the time", "Go home", "of $0.5.", "The user has changed the goals."):
        assert said in asked.prompt
    assert "Do the thing" not in asked.prompt.partition("The user has changed")[0]
    assert served.run("replay", served.runs[0], "--verify").code == 0


def test_a_server_that_lists_no_models_takes_any_name(served: Home, server: ScriptedServer) -> None:
    server.models = None
    server.add(command("list_files", directory="."))
    with opened(served.terminal("-m", "none", *GOAL), ends=6) as session:
        session.answers(QUESTION, "/model")
        session.sees("The model is test-model. /model takes")
        session.answers(QUESTION, "/model other-model")
        session.sees("the model is other-model, window 32,000 tokens")
        session.answers(QUESTION, "n")


def test_undo_at_the_question_takes_the_last_change_back_and_tells_the_model(
    served: Home, server: ScriptedServer
) -> None:
    server.add(
        command("write_to_file", filename="a.txt", text="one\n"),
        command("append_to_file", filename="a.txt", text="two\n"),
        *FINISH,
    )
    with opened(served.terminal("-m", "none", *GOAL), ends=0) as session:
        session.answers(QUESTION, "/undo")
        session.sees("can be undone")
        session.answers(QUESTION, "y")
        session.answers(QUESTION, "/undo")
        session.sees("Undone: step 1 (write_to_file).")
        session.sees("\x1b[32m  +")  # what is proposed is now another change
        session.answers_each((QUESTION, "/undo --redo"), (QUESTION, "/undo"), (QUESTION, "y -9"))
    assert served.read("autoagent_workspace/a.txt") == "two\n"
    assert "The user has undone what was changed after step 0." in server.requests[2].prompt
    assert served.run("replay", served.runs[0], "--verify").code == 0
