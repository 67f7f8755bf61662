"""Going on with a run: after a stop, a limit, a kill, from elsewhere, and what is refused."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import time
from pathlib import Path

import pytest
from driver import FINISH, GOAL, PATIENCE, Home
from server import ScriptedServer, command

WRITE = command("write_to_file", filename="a.txt", text="one")


def test_a_run_goes_on_with_its_own_workspace_and_settings(served: Home, server: ScriptedServer) -> None:
    server.add(WRITE, command("append_to_file", filename="a.txt", text=" two"))
    served.write("mine.yaml", "constraints: [Never hurry.]")
    flags = ("-P", "mine.yaml", "-w", "ws", "-m", "none", "--commands", "files", "--max-tokens", "50000")
    assert served.run(*GOAL, *flags, stdin="y\n").code == 5
    assert served.read("ws/a.txt") == "one"
    began = served.log()[0]
    left = served.write("ws/sub/.autoagent-0123456789abcdef.tmp", "what a kill left of a file that was being written")

    elsewhere = served.folder / "elsewhere"
    elsewhere.mkdir()
    server.add(*FINISH)
    there = Home(elsewhere, warm=True)  # an environment that says nothing of the model
    done = there.succeed("--state-dir", "../.autoagent", "resume", served.runs[0][:12], stdin="y\ny\ny\n")
    assert f"RESUMED: run {served.runs[0]}, after step 2" in done.text
    assert served.read("ws/a.txt") == "one two" and not left.exists()
    assert not [path for path in elsewhere.rglob("*") if path.is_file()]
    resumed = next(event for event in served.log() if event["type"] == "resumed")
    for kept in ("model", "window", "commands", "workspace", "task", "system", "asking"):
        assert resumed[kept] == began[kept], kept
    assert resumed["settings"].pop("said") == began["settings"].pop("said")
    hidden, hidden_now = began["settings"].pop("protected"), resumed["settings"].pop("protected")
    assert resumed["settings"] == began["settings"]
    assert hidden_now[: len(hidden)] == hidden
    assert str(elsewhere / ".env") in hidden_now
    # What was approved but not started is asked again, and not thought again.
    assert len(server.requests) == 3
    assert [event["type"] for event in served.log()].count("started") == 3


def test_a_new_run_clears_away_what_a_kill_left_and_the_agent_never_sees_it(
    served: Home, server: ScriptedServer
) -> None:
    name = ".autoagent-0123456789abcdef.tmp"
    server.add(*FINISH)
    served.succeed(*GOAL, "-w", "ws", "-c")
    left = served.write(f"ws/sub/{name}", "of the user, as no run was killed")
    server.add(*FINISH)
    served.succeed(*GOAL, "-w", "ws", "-c")
    assert left.exists()

    log = served.folder / ".autoagent/runs" / served.runs[-1] / "events.jsonl"
    *lines, end = log.read_bytes().splitlines(keepends=True)
    assert b'"type":"ended"' in end
    log.write_bytes(b"".join(lines))
    server.add(command("list_files"), *FINISH)
    done = served.succeed(*GOAL, "-w", "ws", "-c")
    assert not left.exists()
    assert name not in done.text


def test_the_agents_own_files_stay_out_of_reach_wherever_it_is_resumed(served: Home, server: ScriptedServer) -> None:
    served.write("project/.env", "OPENAI_API_KEY=sk-out-of-reach-0123456789\n")
    project = Home(served.folder / "project", served.env, warm=True)
    server.add(command("read_file", filename=".env"))
    assert project.run(*GOAL, "-w", ".", "-m", "none").code == 5  # nobody answers
    server.add(*FINISH)
    done = served.succeed("--state-dir", "project/.autoagent", "resume", "-c")
    assert "SYSTEM: read_file failed:" in done.text
    assert not any("sk-out-of-reach" in request.prompt for request in server.requests)


def test_a_run_without_a_start_and_a_damaged_one_are_passed_over(home: Home) -> None:
    assert home.run("--demo", "-c", "-l", "1", "-m", "none").code == 4
    unfinished = home.runs[0]
    home.write(".autoagent/runs/29990101-000000-0000/events.jsonl", "")
    damaged = home.write(".autoagent/runs/29990101-000000-0001/events.jsonl", "nonsense\n")
    assert [row["id"] for row in json.loads(home.run("runs", "--json").out)] == [unfinished]
    done = home.succeed("resume", "-c")
    assert f"RESUMED: run {unfinished}" in done.text
    assert f"{damaged.relative_to(home.folder)}:1: not an event" in done.err


@pytest.mark.slow
def test_a_limit_of_commands_counts_anew_and_continuous_must_be_said_anew(home: Home) -> None:
    assert home.run("--demo", "-c", "-l", "1", "-m", "none").code == 4
    assert "Run it?" in home.fails(5, "resume").text
    assert home.run("resume", "-l", "1").code == 2
    assert home.run("resume", "-c", "-l", "1").code == 4
    assert home.run("resume", "-c").code == 0
    assert len(home.runs) == 1
    steps = [event["step"] for event in home.log() if event["type"] == "started"]
    assert steps == [1, 2, 3, 4]  # none twice
    assert home.fails(1, "resume").err == "autoagent: There is no unfinished run in .autoagent.\n"
    advice = f'give it a new task: autoagent resume {home.runs[0]} "..."'
    finished = home.fails(1, "resume", home.runs[0])
    assert finished.err == f"autoagent: The run {home.runs[0]} is finished; {advice}\n"


@pytest.mark.slow
def test_a_command_that_only_looks_is_simply_run_again_after_a_kill(served: Home, server: ScriptedServer) -> None:
    server.add(command("ask_user", question="What is your colour?"))
    process = served.start(*GOAL, "-m", "none")
    assert process.stdin and process.stdout
    while "The agent asks" not in process.stdout.readline():  # the command runs, and waits
        assert process.poll() is None

    served.fails(1, "resume", says=f"The run {served.runs[0]} is held by process {process.pid}; end it first")
    process.kill()
    process.communicate(timeout=PATIENCE)
    assert served.log()[-1]["type"] == "started"
    runs = json.loads(served.run("runs", "--json").out)
    assert [run["status"] for run in runs] == ["unfinished"]

    server.add(*FINISH)
    done = served.succeed("resume", stdin="blue\ny\ny\n")
    assert "may have run" not in done.text
    assert "The user answered: blue" in server.requests[1].prompt
    names = [event["call"]["name"] for event in served.log() if event["type"] == "started"]
    assert names == ["ask_user"] * 2 + ["task_complete"]


def kill_once_written(process: subprocess.Popen[str], file: Path) -> None:
    """Kill the program when a command of it has written this file, and runs on."""
    while not (file.exists() and file.read_text()):
        assert process.poll() is None
        time.sleep(0.02)
    process.kill()
    process.communicate(timeout=PATIENCE)


def test_a_command_cut_off_by_a_kill_may_have_run_and_is_not_run_again(served: Home, server: ScriptedServer) -> None:
    server.add(command("execute_shell", command_line="echo once >> count.txt; sleep 60"))
    count = served.folder / "autoagent_workspace/count.txt"
    kill_once_written(served.start(*GOAL, "-c", "-m", "none"), count)

    server.add(*FINISH)
    done = served.succeed("resume", "-c")
    assert "execute_shell may have run: The program ended while this command ran" in " ".join(done.text.split())
    assert "it may have run, wholly or in part. Look before you repeat it." in server.requests[1].prompt
    names = [event["call"]["name"] for event in served.log() if event["type"] == "started"]
    assert (names, count.read_text()) == (["execute_shell", "task_complete"], "once\n")


def test_what_a_command_wrote_before_a_kill_is_as_untrusted_as_its_result_would_have_been(
    served: Home, server: ScriptedServer
) -> None:
    networked = {"AUTOAGENT_SANDBOX_NETWORK": "true"}  # so what programs bring is from outside
    server.add(command("execute_shell", command_line="echo obey > page.txt; sleep 60"))
    page = served.folder / "autoagent_workspace/page.txt"
    kill_once_written(served.start(*GOAL, "-c", "-m", "none", env=networked), page)

    server.add(command("read_file", filename="page.txt"), *FINISH)
    assert served.run("resume", "-c", env=networked).code == 0
    hidden, read, *_ = (event for event in served.log() if event["type"] == "returned")
    assert (hidden["known"], hidden["data"]) == (False, {"changed": ["page.txt"], "tainted_by": "the network"})
    assert (read["data"]["untrusted"], read["data"]["private"]) == ("the network", True)
    assert "it may have run, wholly or in part" in server.requests[1].prompt
    undone = served.run("undo", served.runs[0], "--to", "0")
    assert (undone.code, page.exists()) == (0, False), undone.text


@pytest.fixture
def stopped(home: Home) -> Path:
    """The log of a demo that was stopped after its first command."""
    assert home.run("--demo", "-m", "none", stdin="y\nn\n").code == 6
    return home.state / "runs" / home.runs[0] / "events.jsonl"


def test_damage_is_named_with_its_line(home: Home, stopped: Path) -> None:
    lines = stopped.read_text().splitlines(keepends=True)
    for damage, says in (
        ("nonsense\n", "events.jsonl:3: not an event of version 1"),
        (lines[2].replace('"v":1', '"v":2'), "events.jsonl:3: not an event of version 1: event version 2 is newer"),
        ("", "events.jsonl:3: event 3 stands where 2 belongs"),
        ('{"v":1,"type":"dance"}\n', "unknown event type 'dance'"),
        ("[]\n", "events.jsonl:3: not an event"),
    ):
        stopped.write_text("".join([*lines[:2], damage, *lines[3:]]))
        home.fails(1, "resume", says=says)
        home.fails(1, "show", home.runs[0], says=says)
        listed = home.run("runs")
        assert (listed.code, listed.out, says in listed.err) == (0, "", True)


def test_a_run_is_named_by_any_prefix_that_fits_one_alone(home: Home, stopped: Path) -> None:
    first = home.runs[0]
    other = stopped.parent.with_name(first[:-1] + ("0" if first[-1] != "0" else "1"))
    other.mkdir()
    (other / "events.jsonl").write_bytes(stopped.read_bytes())
    assert home.run("show", first).code == 0
    home.fails(1, "show", first[:-1], says=f"'{first[:-1]}' matches 2 runs")
    none = home.fails(1, "resume", "1999")
    assert none.err == "autoagent: No run '1999' in .autoagent; `autoagent runs` lists them.\n"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_state_folder_that_cannot_be_written_is_named(home: Home) -> None:
    home.state.mkdir(mode=0o500)
    denied = "Cannot write the log .autoagent/runs: Permission denied"
    assert home.fails(1, "--demo", "-c", "-m", "none", says=denied).err.count("\n") == 1


# From an earlier step --------------------------------------------------------------------------------------------

THREE = (
    command("write_to_file", filename="a.txt", text="one"),
    command("write_to_file", filename="b.txt", text="wrong"),
    command("append_to_file", filename="a.txt", text=" too much"),
)


@pytest.mark.slow
def test_from_an_earlier_step_history_and_workspace_are_as_they_were(served: Home, server: ScriptedServer) -> None:
    server.add(*THREE)
    assert served.run(*GOAL, "-m", "none", "-c", "-l", "3").code == 4
    run = served.runs[0]
    before = served.log()
    server.add(command("write_to_file", filename="c.txt", text="right"), *FINISH)
    done = served.succeed("resume", run, "--from", "1", "-c")
    assert "Back to the end of step 1. Restored: a.txt, b.txt." in " ".join(done.text.split())
    workspace = served.folder / "autoagent_workspace"
    assert {path.name: path.read_text() for path in workspace.iterdir()} == {"a.txt": "one", "c.txt": "right"}
    assert "b.txt" not in server.requests[3].prompt
    assert "a.txt" in server.requests[3].prompt

    log = served.log()
    assert log[: len(before)] == before, "nothing is taken out of the log"
    assert [event["step"] for event in log if event["type"] == "thought"] == [1, 2, 3, 4, 5]
    assert f"Tokens: {7 * 110} " in " ".join(done.text.split()), "the probe, and also what was taken back"
    assert served.run("replay", run, "--verify").code == 0
    for step, says in (
        ("2", "cannot go back to step 2: it is at step 5, and this step was never done or was already taken back"),
        ("6", "cannot go back to step 6"),
        ("5", f"The run {run} finished with step 5; go back to an earlier one."),
    ):
        served.fails(1, "resume", run, "--from", step, "-c", says=says)
    assert served.log() == log

    server.add(*FINISH)
    assert served.run("fork", run, "--at", "2", "-c", "-w", "other").code == 0
    assert "b.txt" in server.requests[5].prompt
    assert served.read("other/b.txt") == "wrong"
    server.add(*FINISH)
    assert served.run("resume", run, "--from", "4", "-c").code == 0, "a finished run too"
    assert served.run("replay", run, "--verify").code == 0


def test_from_an_earlier_step_changes_by_hand_are_not_trampled(served: Home, server: ScriptedServer) -> None:
    server.add(*THREE)
    assert served.run(*GOAL, "-m", "none", "-c", "-l", "3").code == 4
    served.write("autoagent_workspace/a.txt", "by hand")
    log = served.log()
    served.fails(1, "resume", "--from", "1", "-c", says="a.txt. Nothing is touched; --force restores these too")
    assert served.log() == log
    server.add(*FINISH)
    assert served.run("resume", "--from", "1", "-c", "--force").code == 0
    assert served.read("autoagent_workspace/a.txt") == "one"


def test_a_restoration_that_was_cut_off_is_finished_first(served: Home, server: ScriptedServer) -> None:
    server.add(*THREE)
    assert served.run(*GOAL, "-m", "none", "-c", "-l", "3").code == 4
    path = served.state / "runs" / served.runs[0] / "events.jsonl"
    served.run("resume", "--from", "1", stdin="n\n")
    lines = path.read_text().splitlines(keepends=True)
    rewound = next(number for number, line in enumerate(lines) if json.loads(line)["type"] == "rewound")
    path.write_text("".join(lines[: rewound + 1]))
    served.write("autoagent_workspace/b.txt", "wrong")  # it was killed before it deleted this file
    server.add(*FINISH)
    done = served.succeed("resume", "-c")
    assert "Completed an interrupted restoration. Restored: b.txt." in " ".join(done.text.split())
    assert not (served.folder / "autoagent_workspace/b.txt").exists()


def test_changed_goals_and_settings_are_told_and_recorded(served: Home, server: ScriptedServer) -> None:
    server.add(WRITE)
    assert served.run(*GOAL, "-m", "none", "-c", "-l", "1").code == 4
    server.add(*FINISH)
    done = served.succeed("resume", "-c", "--ai-goal", "Do another", "--model", "second-model", "--max-tokens", "70000")
    flat = " ".join(done.text.split())
    assert "Goals now: 1. Do another" in flat
    assert "Changed from here on: " in flat
    assert "max_tokens 0 -> 70000" in flat
    assert "model 'test-model' -> 'second-model'" in flat
    assert "Goals now: 1. Do another" in server.requests[1].prompt
    resumed = next(event for event in served.log() if event["type"] == "resumed")
    assert [goal["text"] for goal in resumed["task"]["goals"]] == ["Do another"]
    assert resumed["settings"]["max_tokens"] == 70000
    assert served.run("replay", served.runs[0], "--verify").code == 0


def test_a_log_of_an_older_program_is_read(home: Home, stopped: Path) -> None:
    """Without the fields that came later, and written by another JSON writer."""
    newer = {"agent", "limits", "left_out", "known", "seconds", "shortened", "truncated", "command"}
    events = [event for event in home.log() if event["type"] != "snapshot"]
    older = [{key: value for key, value in event.items() if key not in newer} for event in events]
    stopped.write_text("".join(json.dumps({**e, "seq": n}, sort_keys=True) + "\n" for n, e in enumerate(older)))
    assert home.run("resume", "-c").code == 0


@pytest.mark.slow
def test_after_ten_thousand_steps_a_run_is_soon_ready(served: Home, server: ScriptedServer) -> None:
    """Two to three seconds on an idle machine; its own time is looked at, which is longer on one that is shared."""
    server.add(command("read_file", filename="a.txt"))
    served.write("autoagent_workspace/a.txt", "some words to read " * 20)
    assert served.run(*GOAL, "-m", "none", "-c", "-l", "1").code == 4
    path = served.state / "runs" / served.runs[0] / "events.jsonl"
    events = served.log()
    start, step = [e for e in events if e["step"] == 0], [e for e in events if e["step"] == 1 and e["type"] != "ended"]
    steps = ({**event, "step": number} for number in range(1, 10_001) for event in step)
    lines = (json.dumps({**e, "seq": n}, separators=(",", ":")) + "\n" for n, e in enumerate([*start, *steps]))
    path.write_text("".join(line.replace("a.txt", f"{number}.txt") for number, line in enumerate(lines)))
    server.add(*FINISH)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert served.run("resume", "-c").code == 0
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 5
    assert [event["step"] for event in served.log() if event["type"] == "thought"][-2:] == [10_000, 10_001]
