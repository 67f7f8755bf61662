"""`autoagent undo`: back, further back, forth again; and what it refuses."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import pytest
from driver import FINISH, GOAL, PATIENCE, Home
from processes import wait_for
from server import ScriptedServer, command

SCRIPT = (
    command("write_to_file", filename="a.txt", text="one"),
    command("write_to_file", filename="folder/b.txt", text="two"),
    command("read_file", filename="a.txt"),
    command("append_to_file", filename="a.txt", text=" three"),
)


@pytest.fixture
def done(served: Home, server: ScriptedServer) -> Home:
    """A home where a run has changed the workspace in steps 1, 2 and 4, and is not finished."""
    server.add(*SCRIPT)
    assert served.run(*GOAL, "-m", "none", "-c", "-l", "4").code == 4
    return served


def workspace(home: Home) -> dict[str, str]:
    root = home.folder / "autoagent_workspace"
    return {str(path.relative_to(root)): path.read_text() for path in root.rglob("*") if path.is_file()}


def refuses(home: Home, reason: str, *flags: str) -> None:
    refused = home.run("undo", home.runs[0], *flags)
    assert (refused.code, refused.err) == (1, f"autoagent: {reason}\n")


def undo(home: Home, files: dict[str, str], *flags: str) -> None:
    """Undo with these flags, which leaves these files."""
    home.succeed("undo", home.runs[0], *flags)
    assert workspace(home) == files


def cut_off(home: Home) -> None:
    """Undo a step, and leave what an undo does that is killed once it has begun."""
    assert home.run("undo", home.runs[0]).code == 0
    log = home.state / "runs" / home.runs[0] / "events.jsonl"
    lines = log.read_text().splitlines(keepends=True)
    undone = next(number for number, line in enumerate(lines) if json.loads(line)["type"] == "undone")
    log.write_text("".join(lines[: undone + 1]))
    home.write("autoagent_workspace/a.txt", "one three")  # it was killed before it wrote this file


def test_step_by_step_back_and_forth(done: Home) -> None:
    run = done.runs[0]
    all_of_it = {"a.txt": "one three", "folder/b.txt": "two"}
    before_4, before_2 = {"a.txt": "one", "folder/b.txt": "two"}, {"a.txt": "one"}
    assert workspace(done) == all_of_it
    reverts = f"`autoagent undo {run} --redo` reverts this.\n"
    assert done.succeed("undo", run[:14]).out == f"Undone: step 4 (append_to_file). Restored: a.txt.\n{reverts}"
    assert workspace(done) == before_4
    assert done.run("undo", run).out.startswith("Undone: step 2 (write_to_file). Restored: folder/b.txt.")
    assert workspace(done) == before_2
    assert not (done.folder / "autoagent_workspace/folder").exists()
    assert done.run("undo", run, "--redo").out == "The last undo is reverted. Restored: folder/b.txt.\n"
    assert workspace(done) == before_4
    undo(done, all_of_it, "--redo")
    refuses(done, f"The run {run} has no undo to revert.", "--redo")

    undone = "Undone: step 1 (write_to_file), step 2 (write_to_file), step 4 (append_to_file). "
    assert done.run("undo", run, "--to", "0").out.startswith(undone)
    assert workspace(done) == {}
    refuses(done, f"The run {run} has no change left to undo.")
    undo(done, before_4, "--to", "3")
    refuses(done, f"The run {run} has no step 5; its last is 4.", "--to", "5")
    assert done.run("undo", run, "--to", "1", "--redo").code == 2


@pytest.mark.slow
def test_the_agent_is_told_and_a_new_change_begins_a_new_line(done: Home, server: ScriptedServer) -> None:
    run = done.runs[0]
    done.run("undo", run)
    done.run("undo", run)
    server.add(command("write_to_file", filename="c.txt", text="new"), *FINISH)
    assert done.run("resume", run, "-c").code == 0
    told = "The user has undone what was changed after step 1. As they were then are now: folder/b.txt."
    assert told in server.requests[4].prompt
    assert workspace(done) == {"a.txt": "one", "c.txt": "new"}
    assert done.run("undo", run, "--redo").code == 1, "what was undone before the new change is no more on its line"
    assert done.run("undo", run).out.startswith("Undone: step 5 (write_to_file). Restored: c.txt.")
    assert done.run("undo", run).out.startswith("Undone: step 1 (write_to_file). Restored: a.txt.")
    assert workspace(done) == {}
    assert done.run("undo", run, "--to", "4").code == 0
    assert workspace(done) == {"a.txt": "one three", "folder/b.txt": "two"}, "yet it can be had"


def test_later_changes_by_hand_are_not_trampled(done: Home) -> None:
    run = done.runs[0]
    done.write("autoagent_workspace/folder/b.txt", "by hand")
    done.write("autoagent_workspace/mine.txt", "mine")
    before, log = workspace(done), done.log()
    refused = done.exits(1, "undo", run)
    assert refused.err.startswith(f"autoagent: Changed since the last snapshot of the run {run}, by hand or by ")
    assert "folder/b.txt, mine.txt. Nothing is touched; --force" in refused.err
    assert (workspace(done), done.log()) == (before, log)
    undo(done, {"a.txt": "one", "folder/b.txt": "two"}, "--force")
    assert done.run("undo", run, "--redo").code == 0
    assert workspace(done) == before, "what was made by hand is not lost either"


def test_files_made_by_hand_between_two_starts_outlive_the_undo_of_the_steps_around_them(
    done: Home, server: ScriptedServer
) -> None:
    run = done.runs[0]
    done.write("autoagent_workspace/mine.txt", "mine")
    done.write("autoagent_workspace/folder/b.txt", "two, by hand")
    server.add(command("write_to_file", filename="c.txt", text="new"), *FINISH)
    assert done.run("resume", run, "-c", "-l", "1").code == 4
    assert done.run("undo", run).out.startswith("Undone: step 5 (write_to_file). Restored: c.txt.\n")
    undone = "Undone: step 4 (append_to_file). Restored: a.txt. Kept as you changed them: folder/b.txt, mine.txt."
    assert done.run("undo", run).out.startswith(undone)
    made = {"folder/b.txt": "two, by hand", "mine.txt": "mine"}
    assert workspace(done) == {"a.txt": "one", **made}
    refused = done.exits(1, "undo", run)
    says = "autoagent: Changed by hand since step 1, and by the run too: folder/b.txt. Nothing is touched; --force "
    assert refused.err.startswith(says)
    assert workspace(done) == {"a.txt": "one", **made}
    undo(done, {"mine.txt": "mine"}, "--to", "0", "--force")
    undo(done, {"a.txt": "one", **made}, "--redo")
    back = " ".join(done.run("resume", run, "--from", "2", "-c", "-l", "1").text.split())
    assert "Back to the end of step 2. No file had to change. Kept as you changed them: folder/b.txt, mine.txt." in back
    assert workspace(done).items() >= made.items()


def test_what_a_killed_undo_left_is_done_by_the_next(done: Home) -> None:
    whole = done.log()
    cut_off(done)
    assert done.run("undo", done.runs[0]).out == "Completed an interrupted restoration. Restored: a.txt.\n"
    assert workspace(done)["a.txt"] == "one"
    assert done.log()[: len(whole)] == whole


def test_a_damaged_snapshot_is_named_and_nothing_is_touched(done: Home) -> None:
    run = done.runs[0]
    for path in (done.state / "snapshots/objects").glob("*/*"):
        path.write_bytes(b"")
    before, log = workspace(done), done.log()
    failed = done.run("undo", run)
    assert (failed.code, failed.err.count("\n")) == (1, 1) and "The snapshot is damaged: " in failed.err
    assert (workspace(done), done.log()) == (before, log)


def test_a_run_that_changed_nothing_has_nothing_to_undo(served: Home, server: ScriptedServer) -> None:
    server.add(command("list_files", directory="."))
    served.run(*GOAL, "-m", "none", "-c", "-l", "1")
    refuses(served, f"Nothing in the run {served.runs[0]} can be undone: it has no snapshots.")


def test_what_checks_and_background_programs_leave_is_not_taken_for_changes_by_hand(
    served: Home, server: ScriptedServer
) -> None:
    beats = "while :; do date +%N > beat.txt; done"  # to the end of the run
    server.add(
        command("write_to_file", filename="a.txt", text="one"),
        command("execute_shell_popen", command_line=beats),
        command("write_to_file", filename="b.txt", text="two"),
        command("list_files", directory="."),
        *FINISH,
    )
    checked = ("--ai-goal", "Write a and b :: echo checked >> checks.txt; test -f b.txt")
    assert served.run(*checked, "-m", "none", "-c").code == 0
    run = served.runs[0]
    undone = served.succeed("undo", run)
    assert undone.out.startswith("Undone: step 3 (write_to_file). Restored: ")
    assert "b.txt" not in workspace(served)
    assert workspace(served)["a.txt"] == "one"
    server.add(*FINISH, *FINISH)
    back = served.run("resume", run, "--from", "1", "-c")
    assert "Back to the end of step 1." in back.out, back.text
    assert set(workspace(served)) == {"a.txt", "checks.txt"}, back.text


def test_goals_are_no_longer_met_once_what_met_them_is_undone(served: Home, server: ScriptedServer) -> None:
    goal = ("--ai-goal", "Write a.txt :: test -f a.txt", "-m", "none", "-c")
    server.add(command("write_to_file", filename="a.txt", text="one"), command("do_nothing"))
    assert served.run(*goal, "-l", "2").code == 4
    assert "These goals are met, as their checks say" in server.requests[1].prompt
    run = served.runs[0]
    assert served.run("undo", run).code == 0
    assert "(checked)" not in served.run("show", run).text
    server.add(command("do_nothing"), *FINISH)
    served.exits(4, "resume", run, "-c", "-l", "2")
    assert "These goals are met" not in server.requests[2].prompt, "nobody knows it any more"
    checks = [event["met"] for event in served.log(run) if event["type"] == "checked"]
    assert checks[:2] == [True, False], "they are checked again at once"
    assert "is not met yet" in server.requests[3].prompt


def test_a_file_of_a_terabyte_beside_it_costs_neither_time_nor_disk(served: Home, server: ScriptedServer) -> None:
    """A sparse file of that size can come with any folder, or be made by any program."""
    huge = served.folder / "autoagent_workspace/huge.bin"
    served.write("autoagent_workspace/huge.bin", "")
    os.truncate(huge, 1 << 40)
    began = time.monotonic()
    server.add(*SCRIPT)
    ran = served.exits(4, *GOAL, "-m", "none", "-c", "-l", "4")
    assert "cannot be undone, as it is not kept: 'huge.bin': it is larger" in ran.text
    run = served.runs[0]
    server.add(*FINISH)
    fork = ("fork", run, "--at", "2", "-m", "none", "-c", "-l", "3", "--accept-claims")
    for words in (("show", run), ("undo", run, "--to", "0"), ("undo", run, "--redo"), fork):
        done = served.run(*words)
        assert done.code == 0, (words, done.text)
    assert (huge.stat().st_size, huge.stat().st_blocks) == (1 << 40, 0)
    kept = sum(path.lstat().st_blocks * 512 for path in served.folder.rglob("*"))
    assert kept < 20_000_000
    assert time.monotonic() - began < 60


@pytest.mark.parametrize("kind", ["symbolic link", "hard link", "link to the folder"])
def test_undo_changes_nothing_outside_where_a_file_has_become_a_link(done: Home, tmp_path: Path, kind: str) -> None:
    root, outside = done.folder / "autoagent_workspace", tmp_path / "outside"
    outside.mkdir()
    for name in ("a.txt", "b.txt"):
        (outside / name).write_text("mine")
    if kind == "link to the folder":
        (root / "folder/b.txt").unlink()
        (root / "folder").rmdir()
        (root / "folder").symlink_to(outside)
    else:
        (root / "a.txt").unlink()
        made = os.symlink if kind == "symbolic link" else os.link
        made(outside / "a.txt", root / "a.txt")
    run = done.runs[0]
    for words in (("--to", "0"), ("--to", "0", "--force"), ("--redo", "--force"), ("--to", "1", "--force")):
        assert done.run("undo", run, *words).code == (0 if "--force" in words else 1), words
        assert {path.name: path.read_text() for path in outside.iterdir()} == {"a.txt": "mine", "b.txt": "mine"}


def stopped_in_a_program(home: Home, server: ScriptedServer, end: int) -> str:
    """Stop a run by a signal while its second command, a program, has made b.txt and goes on."""
    program = command("execute_shell", command_line="echo x > b.txt; sleep 50")
    server.add(command("write_to_file", filename="a.txt", text="one"), program)
    process = home.start(*GOAL, "-c", "-m", "none")
    wait_for((home.folder / "autoagent_workspace" / "b.txt").exists)
    process.send_signal(end)
    process.communicate(timeout=PATIENCE)
    return home.runs[0]


def test_a_program_that_the_end_has_cut_off_is_a_step_of_its_own(served: Home, server: ScriptedServer) -> None:
    run = stopped_in_a_program(served, server, signal.SIGTERM)
    assert served.run("undo", run).out.startswith("Undone: step 2 (execute_shell). Restored: b.txt.")
    assert workspace(served) == {"a.txt": "one"}


def test_what_is_undone_after_a_kill_stays_undone_and_can_be_brought_back(served: Home, server: ScriptedServer) -> None:
    run = stopped_in_a_program(served, server, signal.SIGKILL)
    undo(served, {}, "--force")
    server.add(*FINISH)
    served.succeed("resume", run, "-c")
    [cut_off] = [event for event in served.log() if event["type"] == "returned" and not event.get("known", True)]
    assert not cut_off["data"].get("changed")
    undo(served, {"a.txt": "one", "b.txt": "x\n"}, "--redo")


def test_an_undo_that_was_killed_is_completed_and_told_to_the_agent(done: Home, server: ScriptedServer) -> None:
    cut_off(done)
    (done.state / "runs" / done.runs[0] / "holder").unlink()
    server.add(*FINISH)
    done.succeed("resume", done.runs[0], "-c")
    assert workspace(done)["a.txt"] == "one"
    assert "The user has undone what was changed after step 3" in server.requests[-1].prompt


def test_what_was_undone_may_be_done_again(served: Home, server: ScriptedServer) -> None:
    served.write("autoagent_workspace/x.txt", "mine")
    delete = command("delete_file", filename="x.txt")
    server.add(delete, command("list_files", directory="."), delete, *FINISH)
    served.succeed(*GOAL, "-m", "none", "--no-verify", stdin="y\n/undo\ny\ny\ny\ny\n")
    assert workspace(served) == {}
