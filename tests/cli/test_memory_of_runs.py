"""What a run leaves in the memory is worth it, and infects no run that it does not concern."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from driver import FINISH, Home
from loopback_site import Site, answer
from server import Reply, ScriptedServer, command


@pytest.fixture
def outside() -> Iterator[Site]:
    with Site() as site:
        site.pages["/page"] = answer(b"<p>Ferries leave the northern harbour at nine.", Content_Type="text/html")
        yield site


def listed(home: Home) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(home.run("memory", "list", "--json").out)
    return found


def goal(text: str) -> tuple[str, ...]:
    return ("--ai-goal", text, "-c")


def test_three_ordinary_runs_do_not_infect_one_another(served: Home, server: ScriptedServer, outside: Site) -> None:
    served.write("autoagent_workspace/notes.md", "Ask Kim for the budget.")
    env = {"AUTOAGENT_ALLOW_HOSTS": outside.allowed()}
    server.add(command("browse_website", url=outside.url("/page"), question=""), *FINISH)
    assert served.run(*goal("Find out when the ferries leave"), env=env).code == 0
    server.add(command("read_file", filename="notes.md"), *FINISH)
    assert served.run(*goal("Read notes.md")).code == 0
    shell = command("execute_shell", command_line="python3 --version")
    server.add(shell, *FINISH)
    assert served.run(*goal("Print the Python version")).code == 0
    assert "tainted" not in [event["type"] for event in served.log()]
    assert not [event for event in served.log() if event["type"] == "decided" and not event["allowed"]]

    server.add(command("read_file", filename="notes.md"), shell, *FINISH)
    assert served.run(*goal("Write when the ferries leave the northern harbour")).code == 0
    refused = [event for event in served.log() if event["type"] == "decided" and not event["allowed"]]
    assert [event["by"] for event in refused] == ["guard"], "a page that is relevant still taints"
    assert "memory" in refused[0]["reason"]


def test_what_is_not_worth_it_is_not_remembered_and_nothing_twice(served: Home, server: ScriptedServer) -> None:
    server.add(
        Reply("I shall think about it."),  # no command
        command("memory_add", text="The tide is highest at noon."),
        command("write_to_file", filename="tide.txt", text="noon"),
        command("write_to_file", filename="../tide.txt", text="noon"),  # refused by the gate: a failure, which is one
        command("recall", query="the tide"),
        *FINISH,
    )
    assert served.run(*goal("Write down the tide")).code == 0
    found = listed(served)
    assert sorted(memory["kind"] for memory in found) == ["fact", "note", "step", "step"]
    assert sum("highest at noon" in memory["text"] for memory in found) == 1
    [fact] = [memory["text"] for memory in found if memory["kind"] == "fact"]
    assert fact == "A run for: Write down the tide\nIt came to: It is done.\nFiles: tide.txt"
    step = min((memory for memory in found if memory["kind"] == "step"), key=lambda memory: memory["step"])
    assert step["text"].splitlines()[0].startswith("Thought: ")
    assert step["text"].splitlines()[1].startswith("Done: write_to_file(")


def test_what_the_user_says_is_remembered_as_such(served: Home, server: ScriptedServer) -> None:
    server.add(command("write_to_file", filename="a.txt", text="a"), *FINISH)
    served.run("--ai-goal", "Write a", stdin="Reports go to the folder out\ny\n")
    [said] = [memory for memory in listed(served) if memory["kind"] == "feedback"]
    assert said["text"].splitlines()[0] == "Reports go to the folder out"
    assert said["trusted"] is True


def test_memories_are_pinned_edited_filtered_and_forgotten_by_the_user(served: Home) -> None:
    served.write("long.txt", "The staging database listens on port 5433.\n")
    assert served.run("memory", "add", "--file", "long.txt").text == "Remembered as 1.\n"
    assert served.run("memory", "add", "Tea is hot.").code == 0
    assert served.run("memory", "pin", "1").text == "Pinned 1.\n"
    assert "pinned" in served.run("memory", "list").text
    assert served.run("memory", "edit", "2", "Tea is cold.").text == "Edited 2; it is 3 now.\n"
    assert listed(served)[0]["text"] == "Tea is cold."
    assert served.run("memory", "list", "--before", "2020-01-01").text == "The memory is empty.\n"
    assert served.run("memory", "forget", "--kind", "note").text == "Forgot 1 memories.\n"
    assert [memory["id"] for memory in listed(served)] == [1], "a pinned one is forgotten by its id alone"
    assert served.run("memory", "unpin", "1").text == "Unpinned 1.\n"
    assert served.run("memory", "forget", "--kind", "note").text == "Forgot 1 memories.\n"
    assert served.run("memory", "forget").code == 2
    assert served.run("memory", "add").code == 2
    assert "There is no memory 9;" in served.run("memory", "pin", "9").text
