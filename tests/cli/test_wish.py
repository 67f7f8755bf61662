"""One wish as the argument: the task the model makes of it, or the wish itself as the goal."""

from __future__ import annotations

import pytest
from driver import FINISH, Home
from server import Reply, ScriptedServer, command
from test_session import QUESTION, opened

WISH = "write a poem to poem.txt"
PROPOSAL = '{"name": "PoetGPT", "role": "an AI that writes verse", "goals": ["Write a poem to poem.txt"]}'


@pytest.mark.parametrize("arguments", [("-c", "-m", "none", WISH), (WISH, "-c", "-m", "none"), ("run", WISH, "-c")])
def test_flags_stand_before_or_behind_the_wish(
    served: Home, server: ScriptedServer, arguments: tuple[str, ...]
) -> None:
    server.add(Reply(PROPOSAL), *FINISH)
    served.succeed(*arguments)
    assert "You are PoetGPT, an AI that writes verse" in server.requests[1].prompt
    assert not (served.folder / "ai_settings.yaml").exists(), "what was saved stays what it was"


def test_the_wish_is_the_goal_where_the_model_makes_nothing_of_it(served: Home, server: ScriptedServer) -> None:
    server.add(Reply("I would rather not."), *FINISH)
    done = served.succeed(WISH, "-c", "-m", "none", "--ai-name", "Poet")
    assert "your text becomes the goal" in done.text and "NAME: Poet\n" in done.text and f"  1. {WISH}\n" in done.text


def test_what_is_proposed_is_confirmed_edited_or_refused(served: Home, server: ScriptedServer) -> None:
    server.add(Reply(PROPOSAL), command("list_files", directory="."))
    with opened(served.terminal("-m", "none", WISH), ends=6) as session:
        session.answers_each(
            ("n = no) [y]:", "e"), ("Name of the AI [PoetGPT]:", "BardGPT"), ("BardGPT is", ""),
            ("Goal 1 [Write a poem to poem.txt]:", ""), ("Goal 2:", "Keep it short"), ("Goal 3:", ""), (QUESTION, "n"),
        )  # fmt: skip
    assert [goal["text"] for goal in served.log()[0]["task"]["goals"]] == ["Write a poem to poem.txt", "Keep it short"]
    server.add(Reply(PROPOSAL))
    with opened(served.terminal("-m", "none", WISH), ends=6) as session:
        session.answers("n = no) [y]:", "n")
    assert "Nothing was started" in session.screen


def test_a_task_in_a_script_without_spaces_is_one(served: Home, server: ScriptedServer) -> None:
    server.add(*FINISH)
    served.run("写一首诗到poem.txt", "-c", "-y", "-m", "none")
    assert [goal["text"] for goal in served.log()[0]["task"]["goals"]] == ["写一首诗到poem.txt"]


def test_a_word_that_is_neither_subcommand_nor_wish_is_named(home: Home) -> None:
    for arguments, said in (
        (("show", "x"), "runs"),
        (("shwo", "x"), "There is no subcommand 'shwo'. Did you mean 'show'?"),
        (("write", "a", "poem"), 'Put a task in quotes: autoagent "write a poem"'),
        ((WISH, "now"), "Unexpected argument after the task: 'now'."),
        ((WISH, "--ai-goal", "x"), "not both"),
    ):
        done = home.run(*arguments)
        assert said in done.err and (done.code == 2 or said == "runs"), done.text
