"""Two runs in one folder: one writes, the other is told who does, and neither undoes what the other wrote."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import warm
from crash.boundaries import STRACE, missing
from driver import FINISH, GOAL, PATIENCE, Hanging, Home
from server import ScriptedServer, command


@contextmanager
def at_work(home: Home, server: ScriptedServer, *flags: str) -> Iterator[subprocess.Popen[str]]:
    """A run that has written `first.txt` and waits for its model, until it is left; then it finishes."""
    hanging = Hanging()
    server.add(command("write_to_file", filename="first.txt", text="first"), hanging)
    process = home.start(*GOAL, "-c", "-m", "none", *flags)
    try:
        hanging.is_asked()
        yield process
    finally:
        server.add(*FINISH)
        hanging.leave()
        process.communicate(timeout=PATIENCE)


@pytest.mark.slow
def test_a_second_run_in_the_folder_is_told_who_is_at_work_there(served: Home, server: ScriptedServer) -> None:
    with at_work(served, server) as process:
        run = served.runs[0]
        (served.folder / "link").symlink_to(served.folder / "autoagent_workspace")
        told = f"is in use by the run {run} (process {process.pid}); wait until it ends, or start this run in another"
        for flags in ((), ("--state-dir", "other"), ("-w", "link")):
            assert served.fails(1, *GOAL, "-c", "-m", "none", *flags, says=told).err.count("\n") == 1
        assert served.runs == [run], "no empty run is left behind"
        assert not list((served.folder / "other").glob("runs/*"))
        server.add(*FINISH)
        beside = served.run(*GOAL, "-c", "-m", "none", "-w", "beside")
        assert "in use" not in beside.text
    assert served.log(run)[-1]["status"] == "finished"
    server.add(*FINISH)
    assert served.run(*GOAL, "-c", "-m", "none").code == 0


@pytest.mark.slow
def test_undo_resume_and_fork_leave_a_folder_alone_in_which_a_run_is_at_work(
    served: Home, server: ScriptedServer
) -> None:
    server.add(command("write_to_file", filename="earlier.txt", text="earlier"))
    assert served.run(*GOAL, "-c", "-m", "none", "-l", "1").code == 4
    earlier = served.runs[0]
    written = served.folder / "autoagent_workspace"
    with at_work(served, server) as process:
        log = served.log(earlier)
        for arguments in (
            ("undo", earlier),
            ("undo", earlier, "--force"),
            ("resume", earlier, "-c"),
            ("resume", earlier, "--from", "0", "--force", "-c"),
        ):
            served.fails(1, *arguments, says=f"(process {process.pid}); wait")
        assert served.log(earlier) == log
        assert sorted(path.name for path in written.iterdir()) == ["earlier.txt", "first.txt"]
        server.add(*FINISH)
        forked = served.run("fork", earlier, "--at", "1", "-c")
        assert "in use" not in forked.text, "a fork has a folder of its own"
    assert served.run("undo", earlier).code == 1, "the other run has written since"
    assert (written / "first.txt").exists()


def test_the_lock_dies_with_its_process_though_a_program_it_started_ran_on(
    served: Home, server: ScriptedServer
) -> None:
    fds = served.folder / "autoagent_workspace/fds.txt"
    hanging = Hanging()
    server.add(command("execute_shell_popen", command_line="ls -l /proc/self/fd > fds.txt; sleep 60"), hanging)
    process = served.start(*GOAL, "-c", "-m", "none", "--sandbox", "none")
    hanging.is_asked()
    while "null" not in (fds.read_text() if fds.exists() else ""):
        assert process.poll() is None
        time.sleep(0.01)
    process.kill()
    process.communicate(timeout=PATIENCE)
    hanging.leave()
    server.add(*FINISH)
    assert served.run("resume", "-c").code == 0
    open_there = fds.read_text()
    assert "0 -> /dev/null" in open_there
    assert f"{served.folder}/autoagent_workspace\n" not in open_there, "children do not inherit it"


def test_a_file_system_without_locks_is_said_and_the_run_goes_on(served: Home, server: ScriptedServer) -> None:
    if missing():
        pytest.skip(missing())
    server.add(*FINISH)
    root = served.folder / "autoagent_workspace"
    root.mkdir()
    tracer = (*STRACE, "-o", "/dev/null", "-P", str(root), "-e", "inject=flock:error=ENOLCK")
    environment = served._environment(None)
    code, out, err = warm.run(
        (*GOAL, "-c", "-m", "none"), served.folder, environment, "", None, PATIENCE, tracer=tracer
    )
    assert code == 0, out + err
    told = f"The workspace {root} cannot be locked (No locks available); do not start another run in it."
    assert told in " ".join((out + err).split())
