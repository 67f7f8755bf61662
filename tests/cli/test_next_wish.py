"""After the end: what next, in the same run; the same from a later start; and which run that is."""

from __future__ import annotations

import pytest
from driver import FINISH, GOAL, NEXT, Home
from server import ScriptedServer, command
from test_session import QUESTION, opened

POEM = command("write_to_file", filename="poem.txt", text="Roses are red.\n")
GERMAN = command("write_to_file", filename="gedicht.txt", text="Rosen sind rot.\n")
FLAGS = ("-m", "none")


def finished(home: Home, server: ScriptedServer, *more: str) -> str:
    server.add(POEM, *FINISH)
    home.succeed(*GOAL, *FLAGS, "-c", *more)
    return home.runs[-1]


def goals(home: Home, run: str | None = None) -> list[str]:
    """Of the newest start in a log."""
    starts = [event for event in home.log(run) if event["type"] in ("run_started", "resumed")]
    return [goal["text"] for goal in starts[-1]["task"]["goals"]]


def test_after_the_end_a_new_wish_goes_on_in_the_same_run(served: Home, server: ScriptedServer) -> None:
    server.add(POEM, *FINISH, GERMAN, *FINISH)
    with opened(served.terminal(*GOAL, *FLAGS), ends=0) as session:
        session.answers_each((QUESTION, "y -3"), (NEXT, "now translate it"), (QUESTION, "y -3"))
    assert session.screen.count("NAME:") == 1, "what stays as it was is not shown again"
    assert "1. now translate it" in session.screen
    assert len(served.runs) == 1 and goals(served) == ["now translate it"]
    assert {path.name for path in (served.folder / "autoagent_workspace").iterdir()} == {"poem.txt", "gedicht.txt"}
    asked = server.requests[3].prompt
    assert "poem.txt" in asked, "it knows what it did"
    assert "The user goes on. Goals so far: 1. Do the thing. Goals now: 1. now translate it" in asked
    assert [event["type"] for event in served.log()].count("ended") == 2


def test_work_for_earlier_goals_shows_nothing_of_the_next_ones(served: Home, server: ScriptedServer) -> None:
    run = finished(served, server)
    server.add(*FINISH)
    served.succeed("resume", run, "add a verse to poem.txt", "-c", *FLAGS)
    assert len(server.verifications) == 2
    assert "No file was changed." in server.verifications[1].prompt, "what was done for the first wish is no evidence"


def test_a_wish_at_an_earlier_step_is_added_to_the_goals_that_are_open_again(
    served: Home, server: ScriptedServer
) -> None:
    run = finished(served, server)
    server.add(*FINISH)
    served.succeed("resume", run, "in German", "--from", "1", "-c", *FLAGS)
    assert goals(served) == ["Do the thing", "in German"]


@pytest.mark.slow
def test_a_name_is_one_line_and_can_be_changed(served: Home, server: ScriptedServer) -> None:
    refused = served.run(*GOAL, "-c", *FLAGS, "--name", "two\nlines")
    assert (refused.code, served.runs) == (2, []) and "--name: contains a line break" in refused.text
    run = finished(served, server, "--name", " the roses ")
    assert served.log()[0]["settings"]["run_name"] == "the roses"
    server.add(*FINISH)
    served.succeed("resume", run, "go on", "-c", *FLAGS, "--name", "the tulips", env={"MEMORY_SLEEP": "4"})
    assert "the tulips" in served.succeed("runs").out
    gone = "Not used: MEMORY_SLEEP: `autoagent memory sleep -n N` sets how many memories it meets."
    for typed in ("doctor", "memory list", "runs"):
        said = " ".join(served.run(*typed.split(), env={"MEMORY_SLEEP": "4"}).text.split())
        assert said.count("MEMORY_SLEEP") == 1 and gone in said
    served.write(".env", "MEMORY_SLEEP=4\n")
    assert served.run("doctor").text.count("MEMORY_SLEEP") == 1


@pytest.mark.slow
def test_a_finished_run_goes_on_with_a_wish_from_a_pipe_too(served: Home, server: ScriptedServer) -> None:
    run = finished(served, server)
    finished(served, server, "--name", "another")
    server.add(GERMAN, *FINISH)
    done = served.succeed("resume", run[:-2], "now translate it", "-c", *FLAGS)
    assert goals(served, run) == ["now translate it"] and "What next?" not in done.text
    for newest in (("-r",), ("resume",)):
        server.add(*FINISH)
        assert served.run(*newest, "and print it", "-c", *FLAGS).code == 0
    assert goals(served, run) == ["and print it"] or len(served.runs) == 2
    advice = f'The run {run} is finished; give it a new task: autoagent resume {run} "..."'
    assert served.fails(1, "resume", run, says=advice).out == ""


def test_a_wish_comes_after_the_goals_that_a_run_was_stopped_at(served: Home, server: ScriptedServer) -> None:
    server.add(POEM)
    assert served.run(*GOAL, *FLAGS, stdin="n\n").code == 6
    server.add(*FINISH)
    assert served.run("-r", "and keep it short", "-c").code == 0
    assert goals(served) == ["Do the thing", "and keep it short"]


def test_several_runs_are_offered_and_searched(served: Home, server: ScriptedServer) -> None:
    first = finished(served, server, "--name", "the roses")
    server.add(POEM)
    assert served.run(*GOAL, *FLAGS, "--name", "the violets", stdin="n\n").code == 6
    finished(served, server, "--name", "the daisies")
    server.add(GERMAN, *FINISH)
    with opened(served.terminal("resume"), ends=0) as session:
        session.sees("1  just now        finished    the daisies")
        session.sees("2  just now        stopped     the violets")
        session.sees("3  just now        finished    the roses")
        session.answers("words to search [2]:", "tulips")
        session.sees("No run matches 'tulips'.")
        session.answers("[2]:", "roses")
        session.sees(f"The run {first} is finished: the roses")
        session.answers_each((NEXT, "now translate it"), (QUESTION, "y -3"), (NEXT, ""))
    assert goals(served, first) == ["now translate it"]


def test_where_nobody_is_asked_nothing_waits(served: Home, server: ScriptedServer) -> None:
    """Not in continuous mode, not after the demo."""
    server.add(POEM, *FINISH)
    for arguments in ((*GOAL, *FLAGS, "-c"), ("--demo", "-c", "-m", "none")):
        with opened(served.terminal(*arguments)) as session:
            assert session.ends() == 0
        assert NEXT not in session.screen
