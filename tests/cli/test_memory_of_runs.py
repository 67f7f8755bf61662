"""What a run leaves in the memory is worth it, and infects no run that it does not concern."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest
from driver import FINISH, Home
from loopback_site import Site, answer
from server import Command, Fault, Reply, Request, ScriptedServer, command


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


@pytest.mark.slow
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
    assert served.run(*goal("Write when the ferries leave the northern harbour"), "--memory", "all").code == 0
    refused = [event for event in served.log() if event["type"] == "decided" and not event["allowed"]]
    assert [event["by"] for event in refused] == ["guard"], "a page that is relevant still taints"
    assert "memory" in refused[0]["reason"]


FERRIES = "Write when the ferries leave the northern harbour"


def about_ferries(home: Home, server: ScriptedServer, outside: Site) -> None:
    """Let a run remember a page about ferries."""
    server.add(command("browse_website", url=outside.url("/page"), question=""), *FINISH)
    home.succeed(*goal("Find out when the ferries leave"), env={"AUTOAGENT_ALLOW_HOSTS": outside.allowed()})


@pytest.mark.slow
def test_goals_that_act_outward_recall_nothing_from_outside_unless_it_is_said(
    served: Home, server: ScriptedServer, outside: Site
) -> None:
    served.write("autoagent_workspace/notes.md", "Ask Kim for the budget.")
    about_ferries(served, server, outside)
    shell = command("execute_shell", command_line="python3 --version")
    replies = command("recall", query="when the ferries leave the harbour"), command("read_file", filename="notes.md")
    server.add(*replies, shell, *FINISH)
    assert served.run(*goal(f"{FERRIES}, by a shell command")).code == 0
    recalled = next(event for event in served.log() if event["type"] == "recalled")
    assert recalled["memories"] == []
    assert {other["reason"] for other in recalled["left_out"]} == {"from outside"}
    returned = [event for event in served.log() if event["type"] == "returned"]
    assert "No memory matches.\n(3 more that may fit come from outside" in returned[0]["text"]
    assert returned[2]["ok"], "nothing has tainted it"
    assert "from outside" in served.run("why", served.runs[-1], "1").text

    server.add(command("read_file", filename="notes.md"), shell, *FINISH)
    assert served.run(*goal(f"{FERRIES}, by a shell command"), "--memory", "all").code == 0
    assert [event["by"] for event in served.log() if event["type"] == "decided" and not event["allowed"]] == ["guard"]


@pytest.mark.slow
def test_a_memory_that_taints_a_run_is_dropped_at_the_question(
    served: Home, server: ScriptedServer, outside: Site
) -> None:
    served.write("autoagent_workspace/notes.md", "Ask Kim for the budget.")
    about_ferries(served, server, outside)
    read, shell = command("read_file", filename="notes.md"), command("execute_shell", command_line="echo a > a.txt")
    both = [("execute_shell", f'{{"command_line": "echo {name} > {name}.txt"}}') for name in "ab"]
    server.add(read, Reply("", tuple(both), "tool_calls"), shell, *FINISH)
    session = served.terminal(*goal(FERRIES), "-c", "--memory", "all", columns=200)
    session.answers("/drop = continue without memory", "/drop 99")
    session.sees("/drop takes a memory that brought text from outside: ")
    session.answers("/drop = continue without memory", "/drop")
    session.sees("a memory from outside was dropped at the question of this very call")
    session.answers("Run it anyway?", "y")
    assert session.ends() == 0, session.screen
    assert not (served.folder / "autoagent_workspace/b.txt").exists(), (
        "it was asked for with the memory in the prompt, too"
    )
    assert "Not run: the further commands of that reply (1)." in server.requests[4].prompt
    log = served.log()
    tainted, dropped = ([e["memory"] for e in log if e["type"] == kind] for kind in ("tainted", "dropped"))
    assert dropped
    assert set(dropped) == set(tainted)
    decided = [(event["step"], event["by"]) for event in log if event["type"] == "decided"]
    assert decided[1:3] == [(2, "user (drop)"), (3, "user")], "the same call, asked for anew"
    kept = [memory for memory in listed(served) if memory["run"] == served.runs[-1]]
    assert {memory["kind"] for memory in kept} >= {"step", "fact"}
    assert not any(memory["trusted"] for memory in kept)
    assert "leave the northern harbour at nine" in server.requests[3].prompt
    assert "leave the northern harbour at nine" not in server.requests[4].prompt
    assert served.run("replay", served.runs[-1], "--verify").code == 0

    path = served.state / "runs" / served.runs[-1] / "events.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[: next(n for n, event in enumerate(log) if event["step"] == 3)]))
    server.script[:] = [shell, *FINISH]
    assert served.run("resume", "-c").code == 0
    refused = [event for event in served.log() if event["type"] == "decided" and not event["allowed"]]
    assert [event["by"] for event in refused] == ["user (drop)", "guard"], "a resumed run knows of the call, too"
    assert not (served.folder / "autoagent_workspace/b.txt").exists()
    assert "leave the northern harbour at nine" not in server.requests[-1].prompt
    assert served.run("replay", served.runs[-1], "--verify").code == 0


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


def test_a_step_that_a_power_cut_took_from_the_memory_is_remembered_once_the_run_goes_on(
    served: Home, server: ScriptedServer
) -> None:
    served.run("memory", "add", "Tea is hot.")
    memory, before = served.state / "memory", served.folder / "before"
    shutil.copytree(memory, before)
    steps = [command("write_to_file", filename=f"{name}.txt", text=name) for name in ("alpha", "beta", "gamma")]
    server.add(*steps)
    assert served.run(*goal("Write the letters"), "-l", "3").code == 4
    kept = {found["text"] for found in listed(served)}
    assert sum("Done: write_to_file" in text for text in kept) == 3
    gamma = max((found for found in listed(served)), key=lambda found: int(found["id"]))["id"]
    assert served.run("memory", "forget", str(gamma)).code == 0
    server.add(command("do_nothing"))
    assert served.run("resume", "-c", "-l", "1").code == 4
    assert not any("gamma" in found["text"] for found in listed(served)), "what the user forgets stays so"

    shutil.rmtree(memory)
    shutil.copytree(before, memory)
    server.add(command("do_nothing"))
    assert served.run("resume", "-c", "-l", "1").code == 4
    found = {found["text"]: found for found in listed(served)}
    assert kept <= set(found)
    assert [found[text]["step"] for text in sorted(kept) if "Done: write" in text] == [1, 2, 3]


def test_what_the_user_says_is_remembered_as_such(served: Home, server: ScriptedServer) -> None:
    server.add(command("write_to_file", filename="a.txt", text="a"), *FINISH)
    served.run("--ai-goal", "Write a", stdin="Reports go to the folder out\ny\n")
    [said] = [memory for memory in listed(served) if memory["kind"] == "feedback"]
    assert said["text"].splitlines()[0] == "Reports go to the folder out"
    assert said["trusted"] is True


@pytest.mark.slow
def test_memories_are_pinned_edited_filtered_and_forgotten_by_the_user(served: Home) -> None:
    served.write("long.txt", "The staging database listens on port 5433.\n")
    assert served.run("memory", "add", "--file", "long.txt").text == "Remembered as 1.\n"
    assert served.run("memory", "add", "Tea is hot.").code == 0
    assert served.run("memory", "pin", "1").text == "Pinned 1.\n"
    assert "pinned" in served.run("memory", "list").text
    assert served.run("memory", "edit", "2", "Tea is cold.").text == "Edited 2; its new ID is 3.\n"
    assert listed(served)[0]["text"] == "Tea is cold."
    assert served.run("memory", "list", "--before", "2020-01-01").text == "No memory matches.\n"
    ask = ("memory", "search", "Tea is cold")
    searched = json.loads(served.run(*ask, "--kind", "note", "--source", "user", "--json").out)
    assert searched[0]["text"] == "Tea is cold."
    for other in ("--kind=step", "--source=agent", "--run=2026", "--before=2020-01-01"):
        assert served.run(*ask, other).text == "No memory matches.\n"
    assert served.run("memory", "forget", "--kind", "note").text == "Forgot 1 memory.\n"
    assert [memory["id"] for memory in listed(served)] == [1], "a pinned one is forgotten by its id alone"
    assert served.run("memory", "unpin", "1").text == "Unpinned 1.\n"
    assert served.run("memory", "forget", "--kind", "note").text == "Forgot 1 memory.\n"
    assert served.run("memory", "forget").code == 2
    assert served.run("memory", "add").code == 2
    assert "There is no memory 9;" in served.run("memory", "pin", "9").text


def facts(home: Home) -> list[dict[str, Any]]:
    """The facts in the memory, the oldest first."""
    return sorted((memory for memory in listed(home) if memory["kind"] == "fact"), key=lambda memory: memory["id"])


DISTILS = {"MEMORY_DISTIL": "on"}


def test_what_fits_a_clause_of_a_goal_alone_is_not_pushed(served: Home, server: ScriptedServer) -> None:
    for text in ("The ferries leave the northern harbour at nine.", "Save each letter as letter.txt."):
        assert served.run("memory", "add", text).code == 0
    assert served.run("memory", "core", "drop", "1").code == served.run("memory", "core", "drop", "2").code == 0
    server.add(*FINISH)
    wish = "Find out when the first ferries leave the northern harbour, and save it as brev.txt"
    assert served.run(*goal(wish), "--accept-claims").code == 0
    assert "harbour at nine" in server.requests[0].prompt
    assert "letter.txt" not in server.requests[0].prompt
    why = served.run("why", served.runs[0], "1").text
    assert "fits a clause alone" in why, why


@pytest.mark.slow
def test_a_memory_of_something_else_does_not_change_what_is_done(served: Home, server: ScriptedServer) -> None:
    """The model does whatever its prompt says of names, as small ones do."""
    meridian = command("memory_add", text="Files of the project Meridian have names in capitals.")
    server.add(meridian, *FINISH)
    assert served.run(*goal("Learn the customs of Meridian")).code == 0

    def believes(request: Request) -> Command:
        name = "SHIPS.TXT" if "capitals" in request.prompt else "ships.txt"
        return command("write_to_file", filename=name, text="3")

    written: list[str] = []
    for wish in ("Count the ships and write them to a file", "Write a file for the project Meridian, names and all"):
        server.add(believes, *FINISH)
        assert served.run(*goal(wish)).code == 0
        there = sorted(path.name for path in (served.folder / "autoagent_workspace").glob("*.*"))
        written += [name for name in there if name not in written]
    assert written == ["ships.txt", "SHIPS.TXT"], "it changes only what it is about"


@pytest.mark.parametrize("accepts", [(), ("--accept-claims",)])
def test_an_end_that_nothing_checked_is_kept_as_a_claim(
    served: Home, server: ScriptedServer, accepts: tuple[str, ...]
) -> None:
    server.add(command("write_to_file", filename="a.txt", text="a"), command("task_complete", reason="All done."))
    done = served.run(*goal("Write a poem"), "--no-verify", *accepts)
    assert done.code == (0 if accepts else 9)
    [fact] = [fact["text"].splitlines() for fact in facts(served)]
    assert fact[:2] == ["A run for: Write a poem", "Claimed, nothing checked: All done."]
    assert fact[2].startswith("Done: write_to_file(") and "task_complete" not in fact[2]
    assert fact[3:] == ["Files: a.txt"]


FOUND = Reply("- The port of the service is 5433.\n- Deploys need the key of Kim.\nThat is all.")


def test_a_run_that_is_over_is_put_down_in_facts_by_one_call(served: Home, server: ScriptedServer) -> None:
    write = command("write_to_file", filename="a.txt", text="alpha, port 5433")
    server.add(write, *FINISH, FOUND)
    done = served.succeed(*goal("Write where the service runs"), env=DISTILS)
    assert "FACTS: The port of the service is 5433. | Deploys need the key of Kim." in done.text
    kept = [memory["text"] for memory in facts(served)]
    assert kept[:2] == ["The port of the service is 5433.", "Deploys need the key of Kim."]
    assert kept[2].startswith("A run for: Write where the service runs\nIt came to: It is done.")
    assert "a.txt" in server.requests[2].prompt, "it is shown what the run did"
    assert "; 50 out)" in done.text, "the call counts, beside the probe, two steps and the verifier"
    assert "tools" not in server.requests[2].body

    moved = Reply("- The port of the service is 5434.")
    server.add(command("write_to_file", filename="b.txt", text="omega"), *FINISH, moved)
    assert served.run(*goal("Write where it was moved"), env=DISTILS).code == 0
    old, _, _, new, _ = facts(served)
    assert (old["source"], new["source"]) == (f"superseded by {new['id']}", ""), "both are kept"

    server.add(command("write_to_file", filename="c.txt", text="c"), *FINISH)
    assert served.run(*goal("Write c"), "--distil", "off", env=DISTILS).code == 0
    assert len(facts(served)) == 6
    assert not server.script


@pytest.mark.slow
def test_what_is_distilled_from_text_from_outside_is_not_trusted(
    served: Home, server: ScriptedServer, outside: Site
) -> None:
    env = {"AUTOAGENT_ALLOW_HOSTS": outside.allowed(), **DISTILS}
    browse = command("browse_website", url=outside.url("/page"), question="")
    server.add(browse, *FINISH, Reply("- Ferries leave at 9."))
    assert served.run(*goal("Find out when the ferries leave"), env=env).code == 0
    assert [(fact["trusted"], fact["source"]) for fact in facts(served)] == [(False, outside.url("/page"))] * 2
    assert "<untrusted-" in server.requests[-1].prompt


def test_facts_that_cannot_be_had_change_nothing_of_the_end(served: Home, server: ScriptedServer) -> None:
    write = command("write_to_file", filename="a.txt", text="a")
    server.add(write, *FINISH, Fault(500, "broken"))
    done = served.succeed(*goal("Write a"), env=DISTILS)
    assert "No facts of the run were kept: " in done.text
    assert [fact["text"].splitlines()[0] for fact in facts(served)] == ["A run for: Write a"]
    assert len(server.requests) == 3, "it is asked once"

    dear = replace(FINISH[0], usage={"prompt_tokens": 60_000, "completion_tokens": 10})
    server.add(write, dear)
    done = served.succeed(*goal("Write a"), "--max-tokens", "50000", "--accept-claims", env=DISTILS)
    assert "of the limit of 50000 (--max-tokens)" in " ".join(done.text.split())
    assert len(server.requests) == 5


def test_a_run_that_was_killed_at_its_end_asks_for_its_facts_once(served: Home, server: ScriptedServer) -> None:
    server.add(command("write_to_file", filename="a.txt", text="a"), *FINISH, FOUND)
    assert served.run(*goal("Write a"), env=DISTILS).code == 0
    before, [run] = [fact["text"] for fact in facts(served)], served.runs
    path = served.state / "runs" / run / "events.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    kept = [number for number, event in enumerate(served.log()) if event["type"] == "remembered"]
    path.write_text("".join(lines[: kept[-2]]))  # of the three, the first is in the log
    assert served.run("memory", "forget", str(facts(served)[1]["id"])).code == 0
    assert served.run("resume", "-c", env=DISTILS).code == 0
    assert len(server.requests) == 3
    assert [fact["text"] for fact in facts(served)] == [before[0], before[2], before[1]], "each once"
    assert served.ended()


@pytest.mark.slow
def test_what_a_power_cut_took_is_remembered_again_in_the_memory_it_was_in(
    served: Home, server: ScriptedServer
) -> None:
    for name, text in (("a.txt", "The ferry leaves at nine."), ("b.txt", "The bridge is closed.")):
        served.write(f"autoagent_workspace/{name}", text)
        server.add(command("read_file", filename=name))
    assert served.run("--ai-goal", "Read a.txt and b.txt", "-c", "-l", "2").code == 4
    kept = [(memory["id"], memory["text"]) for memory in listed(served)]
    assert len(kept) == 2

    [file] = served.folder.rglob("memory/memory.db")
    with closing(sqlite3.connect(file)) as db, db:  # another run has the id of what was lost
        taken = "text = 'Swans are white.', hash = x'00', run = 'another'"
        db.execute(f"UPDATE memories SET {taken} WHERE id = ?", (kept[0][0],))
    server.add(command("list_files", directory="."))
    assert served.run("resume", "-c", "-l", "1").code == 4
    assert {text for _, text in kept} < {memory["text"] for memory in listed(served)}

    server.add(*FINISH)
    elsewhere = {"MEMORY_INDEX": "another"}
    assert served.run("resume", "-c", env=elsewhere).code == 0
    there = json.loads(served.run("memory", "list", "--json", env=elsewhere).out)
    assert not {memory["text"] for memory in there} & {text for _, text in kept}


def test_a_fact_takes_the_place_of_an_older_one_and_never_of_what_the_user_said(
    served: Home, server: ScriptedServer
) -> None:
    assert served.run("memory", "add", "The shop is painted green.").code == 0
    write = command("write_to_file", filename="a.txt", text="a")
    server.add(write, *FINISH, Reply("- The shop is built with make."))
    assert served.run(*goal("Find out how the shop is built"), env=DISTILS).code == 0
    [old] = [fact for fact in facts(served) if "with make" in fact["text"] and not fact["text"].startswith("A run")]

    both = f"- [replaces {old['id']}] The shop is built with just.\n- [replaces 1] The shop is painted red."
    server.add(write, *FINISH, Reply(both))
    assert served.run(*goal("Build the shop, and see how it is built"), env=DISTILS).code == 0
    asked = server.requests[-1].prompt
    assert f"[{old['id']}] The shop is built with make." in asked and "painted green" not in asked
    kept = {memory["text"]: memory for memory in listed(served)}
    new = kept["The shop is built with just."]
    assert kept[old["text"]]["source"] == f"private, superseded by {new['id']}"
    assert kept["The shop is painted green."]["source"] == "user", "only he takes that back"

    server.add(*FINISH)
    assert served.run(*goal("Tell how the shop is built"), "--distil", "off", env=DISTILS).code == 0
    first = server.requests[-1].prompt
    assert "built with just" in first and "built with make" not in first


def test_a_mistake_is_not_made_again_and_a_preference_is_kept(served: Home, server: ScriptedServer) -> None:
    served.write("autoagent_workspace/settings.yaml", "colour: green\n")

    def reads(request: Request) -> Reply:
        """Read the settings where the prompt says they are, else where one would look first."""
        known = "settings.yaml" in request.prompt
        return command("read_file", filename="settings.yaml" if known else "config.yaml")

    def writes(request: Request) -> Reply:
        text = "Colour: green" if "British English" in request.prompt else "Color: green"
        return command("write_to_file", filename="colour.txt", text=text)

    learnt = "- The preferences of the window, such as its hue, are in settings.yaml. There is no config.yaml."
    server.add(reads, command("read_file", filename="settings.yaml"), writes, *FINISH, Reply(learnt))
    assert served.run(*goal("Write which hue the window has, as its preferences say"), env=DISTILS).code == 0
    assert (served.folder / "autoagent_workspace/colour.txt").read_text() == "Color: green"
    assert served.run("memory", "core", "add", "Write in British English.").code == 0

    server.add(reads, writes, *FINISH, Reply("none"))
    assert served.run(*goal("Write which hue the window has, as its preferences say"), env=DISTILS).code == 0
    calls = [event["call"]["args"] for event in served.log() if event["type"] == "thought"]
    assert calls[0]["filename"] == "settings.yaml", "config.yaml was tried in vain before"
    assert (served.folder / "autoagent_workspace/colour.txt").read_text() == "Colour: green"
