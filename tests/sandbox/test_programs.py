"""Programs as the commands run them: what they are given, what comes of them, and those that run on."""

from __future__ import annotations

import errno
import os
import signal
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from processes import PATIENCE, processes_with, wait_for

from autoagent.commands.support.program_output import exit_phrase
from autoagent.core.errors import CommandError, SetupError
from autoagent.core.protocols import Sandbox
from autoagent.core.services import ProcessExit
from autoagent.sandbox.process import ProcessLimits
from autoagent.sandbox.programs import open_sandbox
from autoagent.workspace.gate import Workspace


@pytest.fixture(scope="module", params=["bubblewrap", "landlock", "none"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def workspace(kind: str) -> Iterator[Workspace]:
    """One for each kind."""
    with tempfile.TemporaryDirectory(prefix="sandbox-") as folder:
        yield Workspace(Path(folder, "ws"))


@pytest.fixture(scope="module")
def sandbox(kind: str, workspace: Workspace) -> Iterator[Sandbox]:
    """One for all tests that leave nothing running in it."""
    with opened(kind, workspace) as made:
        yield made


@pytest.fixture
def another(kind: str, workspace: Workspace) -> Iterator[Sandbox]:
    with opened(kind, workspace) as made:
        yield made


@contextmanager
def opened(kind: str, workspace: Workspace) -> Iterator[Sandbox]:
    try:
        made = open_sandbox(workspace, ProcessLimits(head_bytes=100, tail_bytes=100), kind=kind)
    except SetupError as error:
        pytest.skip(str(error))
    with closing(made):
        yield made


def shell(sandbox: Sandbox, script: str) -> ProcessExit:
    return sandbox.run(["/bin/sh", "-c", script])


def test_a_program_that_cannot_be_watched_is_not_left_running(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(pid: int) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    assert shell(sandbox, "exit 0").status == 0
    before = sorted(Path("/proc/self/fd").iterdir())
    with monkeypatch.context() as patched:
        patched.setattr(os, "pidfd_open", refuse)
        with pytest.raises(CommandError, match="cannot be started: Too many open files"):
            shell(sandbox, "sleep 98765")
    assert sorted(Path("/proc/self/fd").iterdir()) == before
    assert not processes_with("sleep 98765")


def test_both_streams_come_in_order_with_the_status(sandbox: Sandbox) -> None:
    done = shell(sandbox, "echo a; echo b >&2; echo c; exit 3")
    assert done == ProcessExit(b"a\nb\nc\n", 6, status=3)


def test_the_signal_that_ended_a_program_is_named(sandbox: Sandbox) -> None:
    assert shell(sandbox, "echo a; kill -SEGV $$") == ProcessExit(b"a\n", 2, signal="SIGSEGV")
    assert shell(sandbox, "kill -TERM $$") == ProcessExit(b"", 0, signal="SIGTERM")


def test_head_and_tail_of_long_output_are_kept(sandbox: Sandbox) -> None:
    done = shell(sandbox, "printf start; head -c 300000 /dev/zero | tr '\\0' x; printf end")
    head, middle, tail = done.output.split(b"\n")
    assert (head, tail) == (b"start" + 95 * b"x", 97 * b"x" + b"end")
    assert middle == b"[... 299,808 of 300,008 bytes left out ...]"
    assert done.total == 300_008


def test_standard_input_is_empty_or_what_was_given(sandbox: Sandbox) -> None:
    assert sandbox.run(["cat"]).output == b""
    assert sandbox.run(["wc", "-c"], data=b"x" * 200_000).output.strip() == b"200000"


def test_there_is_no_terminal(sandbox: Sandbox) -> None:
    assert shell(sandbox, "exec 3<>/dev/tty").status != 0
    assert shell(sandbox, "tty").output == b"not a tty\n"


@pytest.mark.parametrize(
    ("argv", "folder", "reason"),
    [
        (["no-such-program"], ".", "no program 'no-such-program'"),
        (["./no-such-file"], ".", "no program './no-such-file'"),
        ([""], ".", "no program ''"),
        (["./plain.txt"], ".", "not executable"),
        (["true"], "nowhere", "no folder 'nowhere'"),
        (["true"], "plain.txt", "no folder 'plain.txt'"),
        (["true"], "..", "outside the workspace"),
        (["true", "x" * 3_000_000], ".", "Argument list too long"),
        (["true", "a\0b"], ".", "null byte"),
    ],
)
def test_what_cannot_be_started_says_why(
    sandbox: Sandbox, workspace: Workspace, argv: list[str], folder: str, reason: str
) -> None:
    workspace.write("plain.txt", b"x")
    with pytest.raises(CommandError, match=reason):
        sandbox.run(argv, folder=folder)


def test_a_program_of_the_workspace_runs(sandbox: Sandbox, workspace: Workspace) -> None:
    workspace.write("below/hello", b"#!/bin/sh\necho hello $1\n")
    (workspace.root / "below/hello").chmod(0o755)
    assert sandbox.run(["./hello", "you"], folder="below").output == b"hello you\n"


def test_the_agents_python_is_found_and_knows_its_packages(sandbox: Sandbox) -> None:
    done = sandbox.run(["python3", "-c", "import click, sys; print(sys.prefix)"])
    assert done.status == 0, done


def test_a_limit_of_time_keeps_what_was_printed(sandbox: Sandbox) -> None:
    begin = time.monotonic()
    done = sandbox.run(["/bin/sh", "-c", "echo before; sleep 1000; echo after"], seconds=1.0)
    assert done == ProcessExit(b"before\n", 7, limit="1 s")
    assert time.monotonic() - begin < PATIENCE


def test_a_program_in_the_background_runs_on_until_it_is_stopped(another: Sandbox, workspace: Workspace) -> None:
    started = another.start(["/bin/sh", "-c", "echo out; echo err >&2; sleep 1000"], output="logs/p.txt")
    assert (started.command, started.output) == ("/bin/sh -c 'echo out; echo err >&2; sleep 1000'", "logs/p.txt")
    wait_for(lambda: workspace.read("logs/p.txt", 100) == b"out\nerr\n")
    assert another.programs() == [started]
    stopped = another.stop(started.pid)
    assert stopped.exit is not None and stopped.exit.signal in ("SIGTERM", "SIGKILL")
    assert another.stop(started.pid) == stopped
    assert another.programs() == [stopped]


def test_a_program_in_the_background_outlives_the_thread_that_asked_for_it(another: Sandbox) -> None:
    thread = threading.Thread(target=lambda: another.start(["sleep", "0.5"], output="log.txt"))
    thread.start()
    thread.join()
    wait_for(lambda: another.programs()[0].exit is not None)
    assert another.programs()[0].exit == ProcessExit(b"", 0, status=0)


def test_closing_ends_what_still_runs(another: Sandbox) -> None:
    pids = [another.start(["sleep", "1000"], output=f"{number}.txt").pid for number in range(3)]
    another.close()
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
    assert all(program.exit is not None for program in another.programs())


@pytest.mark.parametrize(
    ("kind_of", "method", "error"), [(Future, "result", KeyboardInterrupt), (threading.Thread, "start", RuntimeError)]
)
def test_closing_ends_what_ctrl_c_or_a_limit_met_while_it_started(
    another: Sandbox, monkeypatch: pytest.MonkeyPatch, kind_of: type, method: str, error: type[BaseException]
) -> None:
    def interrupted(whatever: object) -> object:
        raise error

    with monkeypatch.context() as at_the_start:
        at_the_start.setattr(kind_of, method, interrupted)
        with pytest.raises(error):
            another.start(["sleep", "1000"], output="log.txt")
    another.close()
    assert [program.exit is not None for program in another.programs()] == [True] * (kind_of is Future)


def test_a_program_that_cannot_be_watched_is_named_and_keeps_the_others_from_nothing(
    kind: str, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(kind, workspace) as made:
        others = [made.start(["/bin/sh", "-c", "sleep 1000"], output=f"{n}.txt") for n in range(2)]
        with monkeypatch.context() as patch:
            patch.setattr(workspace.guarded_files, "end", _fail)
            lost = made.start(["/bin/sh", "-c", "sleep 0.1"], output="lost.txt")
            wait_for(lambda: made.programs()[-1].exit is not None)
        exits = [program.exit for program in made.programs()]
        assert exits[:2] == [None, None] and exits[2] == made.stop(lost.pid).exit == ProcessExit(b"", 0, lost="no more")
        assert "could no longer be watched: no more" in exit_phrase(exits[2])
        assert [Path(f"/proc/{each.pid}").exists() for each in others] == [True, True]
    assert [Path(f"/proc/{each.pid}").exists() for each in others] == [False, False]
    workspace.guarded_files.end()


def _fail() -> None:
    raise OSError("no more")


def test_what_was_never_started_cannot_be_stopped(sandbox: Sandbox) -> None:
    with pytest.raises(CommandError, match=f"no started program with pid {os.getpid()}"):
        sandbox.stop(os.getpid())


def test_interrupting_the_agent_ends_the_program(sandbox: Sandbox, workspace: Workspace) -> None:
    def interrupt() -> None:
        wait_for(lambda: workspace.find("running") is not None)
        os.kill(os.getpid(), signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
    thread = threading.Thread(target=interrupt)
    thread.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            shell(sandbox, "touch running; sleep 987651")
        thread.join()
    finally:
        signal.signal(signal.SIGINT, before)
    assert not processes_with("sleep 987651")
