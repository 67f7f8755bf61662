"""`autoagent fork`: another turn from a step of a run, which stays as it is."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from driver import FINISH, GOAL, Home
from loopback_site import Site, answer
from server import ScriptedServer, command

SCRIPT = (
    command("write_to_file", filename="a.txt", text="one"),
    command("append_to_file", filename="a.txt", text=" two"),
    command("write_to_file", filename="b.txt", text="wrong"),
)
READS = command("read_file", filename="secret.txt")
PROGRAM = (command("execute_shell", command_line="date"), command("do_nothing"))  # the second if the first was refused


@pytest.fixture
def origin(served: Home, server: ScriptedServer) -> Home:
    """A home with a run of three steps."""
    server.add(*SCRIPT)
    assert served.run(*GOAL, "-m", "none", "-c", "-l", "3").code == 4
    return served


def files(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


def test_a_fork_shares_what_was_before_and_leaves_the_run_alone(origin: Home, server: ScriptedServer) -> None:
    first = origin.runs[0]
    log, workspace = origin.log(first), files(origin.folder / "autoagent_workspace")
    server.add(command("write_to_file", filename="c.txt", text="right"), *FINISH)
    done = origin.succeed(
        "fork", first[:14], "--at", "2", "--feedback", "Call it c.txt.", "--model", "other-model", "-c"
    )
    place = origin.folder / "autoagent_workspace-fork1"
    flat = " ".join(done.text.split())
    assert f"Forked from {first} after step 2 into {place}. Restored: a.txt." in flat
    assert "Changed from here on: " in flat
    assert "model 'test-model' -> 'other-model'" in flat
    assert files(place) == {"a.txt": "one two", "c.txt": "right"}
    assert (origin.log(first), files(origin.folder / "autoagent_workspace")) == (log, workspace)

    second = next(run for run in origin.runs if run != first)
    forked = origin.log(second)
    shared = [event for event in log if event["step"] <= 2]
    assert forked[: len(shared)] == shared
    assert [event["type"] for event in forked[len(shared) :]][:4] == ["forked", "snapshot", "feedback", "resumed"]
    assert (forked[len(shared)]["origin"], forked[len(shared)]["at"]) == (first, 2)
    assert [event["seq"] for event in forked] == list(range(len(forked)))
    prompt = server.requests[3].prompt
    assert "Human feedback: Call it c.txt." in prompt
    assert "wrong" not in prompt
    assert server.requests[3].body["model"] == "other-model"

    assert origin.run("replay", second, "--verify").code == 0
    assert origin.run("undo", second).out.startswith("Undone: step 3 (write_to_file). Restored: c.txt.")
    assert origin.run("undo", second).out.startswith("Undone: step 2 (append_to_file). Restored: a.txt.")
    assert files(place) == {"a.txt": "one"}
    places = {row["id"]: row["workspace"] for row in json.loads(origin.run("runs", "--json").out)}
    assert places == {first: str(origin.folder / "autoagent_workspace"), second: str(place)}


def test_where_a_fork_works(origin: Home, server: ScriptedServer) -> None:
    first = origin.runs[0]
    refused = origin.fails(2, "fork", first, "--at", "1", "-c", "-w", "autoagent_workspace")
    assert refused.err == "autoagent: The folder autoagent_workspace is not empty; name a new folder for the fork.\n"
    server.add(*FINISH, *FINISH)
    assert origin.run("fork", first, "--at", "1", "-c", "-w", "elsewhere/ws").code == 0
    assert files(origin.folder / "elsewhere/ws") == {"a.txt": "one"}
    assert origin.run("fork", first, "--at", "0", "-c", "--ai-goal", "Another goal").code == 0
    assert files(origin.folder / "autoagent_workspace-fork1") == {}
    assert "Another goal" in server.requests[-1].prompt
    assert "Goals now: 1. Another goal" in server.requests[-1].prompt
    assert "Do the thing" not in server.requests[-1].body["messages"][0]["content"]


def test_a_file_that_the_feedback_names_is_attached(origin: Home, server: ScriptedServer) -> None:
    origin.write("notes.txt", "Use oak.\n")
    server.add(*FINISH)
    origin.succeed("fork", origin.runs[0], "--at", "2", "--feedback", "Do as @notes.txt says.", "-c")
    assert "notes.txt, attached by the user:\nUse oak." in server.requests[-1].prompt


def test_a_fork_that_cannot_begin_as_from_a_step_that_never_was_leaves_nothing_behind(origin: Home) -> None:
    first = origin.runs[0]
    refused = origin.fails(1, "fork", first, "--at", "4", "-c")
    assert refused.err == f"autoagent: The run {first} has no step 4; its last is 3.\n"
    origin.fails(2, "fork", first)
    (origin.folder / "mine").mkdir()
    for named in ((), ("-w", "new"), ("-w", "mine")):
        refused = origin.fails(2, "fork", first, "--at", "2", "-c", "--allow", "dance:*", *named)
        assert len(refused.text.splitlines()) == 1, refused.text
    folders = {path.name for path in origin.folder.iterdir() if path.is_dir()}
    assert folders == {".autoagent", ".local", "autoagent_workspace", "mine"}
    assert origin.runs == [first]


def test_a_run_without_snapshots_is_forked_with_the_files_as_they_are(served: Home, server: ScriptedServer) -> None:
    served.write("autoagent_workspace/a.txt", "mine")
    server.add(command("read_file", filename="a.txt"), *FINISH)
    served.run(*GOAL, "-m", "none", "-c", "-l", "1")
    done = served.run("fork", served.runs[0], "--at", "1", "-c")
    flat = " ".join(done.text.split())
    assert "The run has no snapshots: the workspace begins with the files as they are now." in flat
    assert files(served.folder / "autoagent_workspace-fork1") == {"a.txt": "mine"}


@pytest.fixture
def outside() -> Iterator[Site]:
    with Site() as site:
        site.pages["/page"] = answer(b"<p>Tea is good.", Content_Type="text/html")
        yield site


def refused_by_guard(home: Home, source: str) -> bool:
    """Whether the newest run was kept from running a program, as it had read this source and private data."""
    refused = [event for event in home.log() if event["type"] == "decided" and event["by"] == "guard"]
    return len(refused) == 1 and source in refused[0]["reason"] and "secret.txt" in refused[0]["reason"]


@pytest.mark.slow
def test_a_fork_is_as_tainted_as_the_run_was(served: Home, server: ScriptedServer, outside: Site) -> None:
    """Also by what an earlier run has left in the workspace."""
    page, env = outside.url("/page"), {"AUTOAGENT_ALLOW_HOSTS": outside.allowed()}
    browse = command("browse_website", url=page, question="")
    served.write("autoagent_workspace/secret.txt", "mine")
    server.add(browse, command("write_to_file", filename="page.txt", text="Tea."))
    assert served.run(*GOAL, "-m", "none", "-c", "-l", "2", env=env).code == 4
    server.add(command("write_to_file", filename="a.txt", text="a"), browse)
    server.add(command("append_to_file", filename="a.txt", text=" page"))
    assert served.run(*GOAL, "-m", "none", "-c", "-l", "3", env=env).code == 4
    run = served.runs[-1]

    server.add(READS, command("read_file", filename="a.txt"), command("read_file", filename="page.txt"), *PROGRAM)
    assert served.run("fork", run, "--at", "1", "-c", "-l", "4").code == 4
    labels = {event["call_id"]: event["data"] for event in served.log() if event["type"] == "returned"}
    assert "untrusted" not in labels["3"], "as it was after step 1, nothing from outside was in it"
    assert (labels["4"]["untrusted"], "private" in labels["4"]) == (page, False), "nothing of the user's is in this"
    assert refused_by_guard(served, page)

    server.add(READS, *PROGRAM)
    assert served.run("fork", run, "--at", "2", "-c", "-l", "2").code == 4
    assert refused_by_guard(served, page)


@pytest.mark.slow
def test_what_a_memory_has_brought_into_a_run_is_known_once_it_is_taken_up_again(
    served: Home, server: ScriptedServer, outside: Site
) -> None:
    page = outside.url("/page")
    served.write("autoagent_workspace/secret.txt", "mine")
    server.add(command("browse_website", url=page, question=""))
    assert served.run(*GOAL, "-c", "-l", "1", env={"AUTOAGENT_ALLOW_HOSTS": outside.allowed()}).code == 4
    server.add(READS)
    assert served.run("--ai-goal", "Write that tea is good", "-c", "-l", "1", "--memory", "all").code == 4
    tainted, *_ = (event for event in served.log() if event["type"] == "tainted")
    assert tainted["data"] == {"untrusted": page}
    run = served.runs[-1]
    server.add(*PROGRAM)
    assert served.run("fork", run, "--at", "1", "-c", "-l", "1", "-m", "none").code == 4
    assert refused_by_guard(served, page)
    server.add(*PROGRAM)
    assert served.run("resume", run, "-c", "-l", "1", "-m", "none").code == 4
    assert refused_by_guard(served, page)


def test_a_fork_does_not_recall_the_steps_that_it_still_shows(served: Home, server: ScriptedServer) -> None:
    server.add(*SCRIPT)
    assert served.run(*GOAL, "-c", "-l", "3").code == 4
    first = served.runs[-1]
    server.add(command("do_nothing"))
    assert served.run("fork", first, "--at", "2", "-c", "-l", "1").code == 4
    recalled = [memory for event in served.log() if event["type"] == "recalled" for memory in event["memories"]]
    assert [(memory["run"], memory["step"]) for memory in recalled if memory["run"] == first] == [(first, 3)]
