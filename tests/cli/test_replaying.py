"""`autoagent replay`: a run is shown again, and its log is proved to explain every prompt."""

from __future__ import annotations

import json
import os
import time

import pytest
from driver import FINISH, GOAL, Home
from server import Reply, ScriptedServer, command

SCRIPT = (
    command("write_to_file", filename="a.txt", text="one"),
    Reply("no command at all"),
    command("read_file", filename="a.txt"),
    command("append_to_file", filename="a.txt", text=" two, as I thought"),
    command("append_to_file", filename="a.txt", text=" two"),
)


@pytest.fixture
def run(served: Home, server: ScriptedServer) -> str:
    """A run with a memory and limits, in three processes."""
    server.add(*SCRIPT)
    limits = ("--max-tokens", "90000", "--max-seconds", "900")
    assert served.run(*GOAL, *limits, "-c", "-l", "2").code == 4
    assert served.run("resume", stdin="Be brief.\n").code == 5
    server.add(*FINISH)
    assert served.run("resume", "-c", "--max-tokens", "80000").code == 0
    return served.runs[0]


def test_it_looks_as_it_did(served: Home, server: ScriptedServer, run: str) -> None:
    asked = len(server.requests)
    before = sorted(path.stat().st_mtime_ns for path in served.folder.rglob("*"))
    fast = served.run("replay", run, "--fast")
    assert (fast.code, fast.out) == (0, served.run("show", run).out)
    assert "UNUSABLE REPLY:" in fast.text and len(server.requests) == asked
    assert sorted(path.stat().st_mtime_ns for path in served.folder.rglob("*")) == before


@pytest.mark.slow
def test_it_keeps_its_pace_but_for_long_pauses(home: Home) -> None:
    assert home.run("--demo", "-c", "-l", "1", "-m", "none").code == 4
    log = home.state / "runs" / home.runs[0] / "events.jsonl"
    events = home.log()
    for event in events[-2:]:
        event["t"] += 1.0
    log.write_text("".join(json.dumps(event) + "\n" for event in events))
    began = time.monotonic()
    assert home.run("replay", home.runs[0]).code == 0
    assert time.monotonic() - began > 1.0


def test_every_prompt_follows_from_the_log_in_another_time_zone_too(served: Home, run: str) -> None:
    prompts = sum(event["type"] == "prompted" for event in served.log())
    assert prompts >= 6
    says = f"{prompts} prompts of {run} derived from its log: each matches the prompt that was sent.\n"
    for zone in ("UTC", "Asia/Kathmandu"):
        assert served.succeed("replay", run, "--verify", env={"TZ": zone}).out == says


def test_a_reply_of_several_calls_is_taken_up_and_derived_again(served: Home, server: ScriptedServer) -> None:
    write, append = "write_to_file", "append_to_file"
    calls = tuple((name, f'{{"filename": "a.txt", "text": "{n}"}}') for n, name in enumerate((write, append, append)))
    server.add(Reply("All of them.", calls), *FINISH)
    assert served.run(*GOAL, "-m", "none", "-c", "-l", "1").code == 4
    assert len(server.requests) == 1
    served.succeed("resume", "-c")
    assert (served.folder / "autoagent_workspace/a.txt").read_text() == "012"
    assert len(server.requests) == 1 + len(FINISH), "the second and the third are not asked for again"
    verified = served.run("replay", served.runs[0], "--verify")
    assert (verified.code, verified.out.split()[0]) == (0, str(1 + len(FINISH))), verified.text
    assert "Step 2 has no prompt of its own" in served.exits(1, "why", served.runs[0], "2").err
    again = served.run("--model", f"replay:{served.runs[0]}", *GOAL, "-m", "none", "-c", "-w", "again")
    assert (again.code, (served.folder / "again/a.txt").read_text()) == (0, "012"), again.text


def test_the_first_step_that_differs_is_named(served: Home, run: str) -> None:
    log = served.state / "runs" / run / "events.jsonl"
    events = served.log()
    returned = next(event for event in events if event["type"] == "returned" and event["step"] == 3)
    returned["text"] += " (somebody changed this)"
    log.write_text("".join(json.dumps(event) + "\n" for event in events))
    differs = served.run("replay", run, "--verify")
    prompts = sum(event["type"] == "prompted" for event in events)
    assert differs.code == 1
    assert f"{prompts - 3} of {prompts} prompts in {run} differ; the first is at step 4." in differs.out


# As it was on screen ---------------------------------------------------------------------------------------------


def test_14_a_run_is_shown_from_its_log_as_it_was_on_screen(served: Home, server: ScriptedServer) -> None:
    server.add(*SCRIPT, command("execute_shell", command_line="echo 1; exit 3"), *FINISH)
    live = served.succeed(*GOAL, "-c", "-m", "none")
    shown = served.run("show", served.runs[0])
    for text in ("COMMAND = write_to_file", "\n  +one\n", "command_line = echo 1; exit 3"):
        assert text in shown.out
    assert shown.out == live.out[live.out.index("NAME: ") :]
    assert served.run("replay", "--fast", served.runs[0]).out == shown.out


def test_14_what_the_user_decided_is_shown(served: Home, server: ScriptedServer) -> None:
    write = command("write_to_file", filename="a.txt", text="one\n")
    last = command("write_to_file", filename="never.txt", text="never\n")
    server.add(write, command("list_files"), command("read_file", filename="a.txt"), last)
    assert served.run(*GOAL, "-m", "none", stdin="e\nfilename=b.txt\n\ny -2\nNot that.\nn\n").code == 6
    shown = served.run("show", served.runs[0]).out
    lines = [line for line in shown.splitlines() if line.startswith(("NEXT ACTION", "ALLOWED", "USER", "STOPPED"))]
    assert lines == [
        "NEXT ACTION (write): COMMAND = write_to_file  filename = a.txt",
        "NEXT ACTION (write): COMMAND = write_to_file  filename = b.txt",
        "ALLOWED: user",
        "NEXT ACTION (read): COMMAND = list_files",
        "ALLOWED: user (in advance)",
        "NEXT ACTION (read): COMMAND = read_file  filename = a.txt",
        "USER: Not that.",
        "NEXT ACTION (write): COMMAND = write_to_file  filename = never.txt",
        "STOPPED: Ended by the user.",
    ], shown
    assert "filename = b.txt" in shown
    assert "\n  +never\n" in shown, "also what was not decided on any more"
    server.add(command("write_to_file", filename="c.txt", text="two\n"), *FINISH)
    assert served.run(*GOAL, "-m", "none", stdin="y\ny\n").code == 0
    shown = served.run("show", served.runs[-1]).out
    assert shown.count("ALLOWED: user") == 2, "the second end, for which nobody was asked, is the first one's answer"


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [("show",), ("show", "--json"), ("replay", "--fast")], ids=" ".join)
def test_14_a_reader_that_has_enough_hears_no_complaint(served: Home, run: str, arguments: tuple[str, ...]) -> None:
    reads, writes = os.pipe()
    os.close(reads)
    with os.fdopen(writes, "w") as closed:
        done = served.run(*arguments, run, stdout=closed)
    assert (done.err, done.code in (0, 1, 141)) == ("", True)


def test_14_an_older_log_shows_its_commands_too(served: Home, run: str) -> None:
    log = served.state / "runs" / run / "events.jsonl"
    events = [event for event in served.log() if event["type"] != "proposed"]
    log.write_text("".join(json.dumps({**event, "seq": n}) + "\n" for n, event in enumerate(events)))
    shown = served.run("show", run)
    assert "COMMAND = append_to_file" in shown.out, shown.text
