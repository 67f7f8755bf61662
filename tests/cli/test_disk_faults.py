"""Disks that are full, broken or not ours to write: one line that names the file and the cause, and no damage.

The disks are real: small file systems in memory that fill up, and where strace is there, calls that fail one by one
(tests/crash tries those at every call of a run).
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import nobody
import pytest
from crash import boundaries
from driver import FINISH, GOAL, PATIENCE, Done, Home
from server import Command, Request, ScriptedServer, command

STEPS = 30
SOME_TEXT = " ".join(f"word{number}" for number in range(400))  # so that a small disk is soon full


@contextmanager
def small_disk(at: Path, options: str) -> Iterator[Callable[[], None]]:
    """A file system in memory of such a size (`size=200k`) at a place; what is yielded makes it large enough."""
    at.mkdir(mode=0o700)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"{options},mode=0700", "none", str(at)], check=True)
    try:
        yield lambda: subprocess.run(["mount", "-o", "remount,size=64m,nr_inodes=9999", str(at)], check=True) and None
    finally:
        subprocess.run(["umount", "--lazy", str(at)], check=True)


@cache
def no_mounts() -> str:
    """Why no file system can be mounted here; '' where one can."""
    if os.geteuid() != 0:
        return "only root mounts file systems"
    with tempfile.TemporaryDirectory() as folder:
        try:
            with small_disk(Path(folder, "disk"), "size=4k"):
                return ""
        except subprocess.CalledProcessError as error:
            return f"no file system can be mounted here: {error}"


mounts = pytest.mark.skipif(bool(no_mounts()), reason=no_mounts() or "it can")
only_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes another user")
traceable = pytest.mark.skipif(bool(boundaries.missing()), reason=boundaries.missing() or "it can")


def started_as(home: Home, before: Sequence[str], *arguments: str) -> Done:
    """The program, run by another one that makes the world what it is to be."""
    base = {"PATH": os.environ["PATH"], "HOME": str(home.folder), "LANG": "C.UTF-8", "PYTHONPATH": nobody.PACKAGES}
    base["PYTHONDONTWRITEBYTECODE"] = "1"  # or a fault would strike there, and be met by every later start
    python = nobody.interpreter() if before == nobody.BECOME else sys.executable
    done = subprocess.run(
        [*before, python, "-m", "autoagent", *arguments], cwd=home.folder, env={**base, **home.env},
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE, check=False,
    )  # fmt: skip
    return Done(done.returncode, done.stdout, done.stderr)


def one_line(done: Done, code: int = 1) -> str:
    """The one line in which the program says why it failed."""
    assert done.code == code, done.text
    lines = [line for line in done.err.splitlines() if line.startswith("autoagent: ")]
    assert len(lines) == 1, done.err
    assert "internal error" not in done.text
    return lines[0]


def whole_lines(home: Home) -> list[dict[str, Any]]:
    """The log without a line that was cut off, which does not count."""
    if not home.runs:
        return []
    text = home.read(f".autoagent/runs/{home.runs[-1]}/events.jsonl")
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


@mounts
@pytest.mark.parametrize(
    "options",
    [
        "size=140k",
        *(pytest.param(f"size={size}k", marks=pytest.mark.slow) for size in (4, 64, 96, 120, 180, 260)),
        *(pytest.param(f"nr_inodes={count}", marks=pytest.mark.slow) for count in (3, 14, 20, 30, 60)),
    ],
)
def test_a_disk_that_fills_up_is_told_and_nothing_is_lost(home: Home, options: str) -> None:
    home.write("autoagent_workspace/done.txt", "")

    def due(_: Request) -> Command:
        said = sum(event["type"] == "thought" for event in whole_lines(home))
        mark = {"filename": "done.txt", "text": f"{said + 1}\n"}
        return Command("append_to_file", mark, {"text": SOME_TEXT}) if said < STEPS else FINISH[0]

    with ScriptedServer(due) as server, small_disk(home.state, options) as enlarge:
        home.point_at(server)
        done = home.run(*GOAL, "-c", "--json")
        assert "internal error" not in done.text
        before = whole_lines(home)
        told = [json.loads(line) for line in done.out.splitlines()]
        shown = [event for event in told if event["seq"] >= 0]  # the end of a run that never began is in no log
        assert before[: len(shown)] == shown, "nothing was acknowledged that is not on disk"
        if done.code != 0:
            assert done.code == 1
            assert re.search(r"No space left on device|disk is full|disk I/O error", done.err), done.err
        enlarge()
        again = home.run("resume", "-c") if before else home.run(*GOAL, "-c")
        assert again.code == (0 if done.code else 1), again.text
        assert home.log()[: len(before)] == before
        unknown = sum(not event.get("known", True) for event in home.log())
        lines = home.read("autoagent_workspace/done.txt").split()
        assert len(set(lines)) == len(lines)
        assert STEPS - unknown <= len(lines) <= STEPS


@pytest.mark.slow
@mounts
def test_a_full_workspace_is_what_the_model_reads(served: Home, server: ScriptedServer) -> None:
    server.add(command("write_to_file", filename="big.txt", text="x" * 50_000), command("do_nothing"), *FINISH)
    with small_disk(served.folder / "autoagent_workspace", "size=8k"):
        done = served.run(*GOAL, "-c", "-m", "none")
        assert list((served.folder / "autoagent_workspace").iterdir()) == []
    assert done.code == 0
    assert "write_to_file failed: 'big.txt' cannot be used: No space left on device." in " ".join(done.text.split())
    assert "No space left on device" in server.requests[1].prompt


@traceable
@pytest.mark.parametrize(
    ("error", "cause"),
    [("EIO", "Input/output error"), pytest.param("ENOSPC", "No space left on device", marks=pytest.mark.slow)],
)
def test_the_log_that_cannot_be_written_is_named(home: Home, error: str, cause: str) -> None:
    assert home.run("--demo", "-c", "-l", "1", "-m", "none").code == 4
    log = home.state / "runs" / home.runs[0] / "events.jsonl"
    before = home.log()
    for call, at in (("write", 1), ("write", 4), ("fdatasync", 1), ("fdatasync", 2)):
        failing = ("strace", "-f", "-qq", "-o", "/dev/null", "-P", str(log), "-e", f"trace={call}")
        inject = ("-e", f"inject={call}:error={error}:when={at}")
        done = started_as(home, (*failing, *inject), "resume", "-c", home.runs[0])
        line = one_line(done)
        relative = log.relative_to(home.folder)
        assert line == f"autoagent: Cannot write the log {relative}: {cause}; earlier steps are intact."
        assert home.log()[: len(before)] == before
    assert home.run("resume", "-c").code == 0
    steps = [event["step"] for event in home.log() if event["type"] == "started"]
    assert len(set(steps)) == len(steps)


@pytest.mark.slow
@traceable
def test_a_log_that_cannot_be_read_is_named(home: Home) -> None:
    assert home.run("--demo", "-c", "-l", "1", "-m", "none").code == 4
    log = home.state / "runs" / home.runs[0] / "events.jsonl"
    failing = ("strace", "-f", "-qq", "-o", "/dev/null", "-P", str(log), "-e", "trace=read")
    done = started_as(home, (*failing, "-e", "inject=read:error=EIO:when=1"), "resume", "-c", home.runs[0])
    assert one_line(done) == f"autoagent: Cannot read the log {log.relative_to(home.folder)}: Input/output error."
    assert home.run("resume", "-c").code == 0


@pytest.mark.slow
@traceable
def test_a_call_that_is_interrupted_is_made_again(home: Home) -> None:
    inject = ("-e", "trace=write,fdatasync", "-e", "inject=write,fdatasync:error=EINTR:when=5+3")
    done = started_as(home, ("strace", "-f", "-qq", "-o", "/dev/null", *inject), "--demo", "-c", "-m", "none")
    assert done.code == 0, done.err
    assert done.err == ""


# Not ours to write ---------------------------------------------------------------------------------------------------


@pytest.fixture
def begun(home: Home) -> Home:
    """A home with a run of root's that was not finished."""
    home.folder.chmod(0o755)
    assert home.run("--demo", "-c", "-l", "2").code == 4
    return home


@pytest.mark.slow
def test_state_that_root_made_is_named_to_an_ordinary_user(begun: Home) -> None:
    nobody.require()
    os.chown(begun.folder, nobody.ID, nobody.ID)
    os.chown(begun.folder / "autoagent_workspace", nobody.ID, nobody.ID)
    for path in (begun.folder / ".local", *(begun.folder / ".local").rglob("*")):
        os.chown(path, nobody.ID, nobody.ID)
    for arguments in (["--demo", "-c"], ["resume", "-c"], ["runs"], ["show", begun.runs[0]], ["memory", "list"]):
        line = one_line(started_as(begun, nobody.BECOME, "--state-dir", ".autoagent", *arguments))
        assert re.search(r"\.autoagent\b.*: .*Permission denied", line), line
    assert begun.run("resume", "-c").code == 0, "and root goes on"


@only_root
def test_state_of_another_user_is_not_written_by_root(begun: Home) -> None:
    for path in (begun.state, *begun.state.rglob("*")):
        os.chown(path, nobody.ID, nobody.ID)
    before = begun.log()
    for arguments in (["resume", "-c"], ["--demo", "-c", "-m", "none"], ["--demo", "-c"]):
        line = one_line(begun.run(*arguments))
        assert re.search(r"\.autoagent/(runs|memory) belongs? to another user \(id 65534\); choose .*--state-dir", line)
    assert begun.log() == before
    assert {path.stat().st_uid for path in begun.state.rglob("*")} == {nobody.ID}


@pytest.mark.slow
@only_root
@pytest.mark.parametrize("how", ["modes", pytest.param("mount", marks=mounts)])
def test_a_state_folder_that_is_read_only_is_named(begun: Home, how: str) -> None:
    assert begun.run("memory", "add", "a demo").code == 0
    if how == "modes":
        nobody.require()
        for path in (begun.folder, *begun.folder.rglob("*")):
            os.chown(path, nobody.ID, nobody.ID)
        for path in (begun.state, *begun.state.rglob("*")):
            path.chmod(path.stat().st_mode & 0o555)
        before, cause = nobody.BECOME, "Permission denied"
    else:
        remount = 'mount --bind .autoagent .autoagent && mount -o remount,ro,bind .autoagent && cd . && exec "$@"'
        before, cause = ("unshare", "-m", "sh", "-c", remount, "sh"), "Read-only file system"
    log = f".autoagent/runs/{begun.runs[0]}/events.jsonl"
    assert one_line(started_as(begun, before, "resume", "-c")) == f"autoagent: Cannot open the log {log}: {cause}."
    line = one_line(started_as(begun, before, "--demo", "-c", "-m", "none"))
    assert re.fullmatch(rf"autoagent: [\w ]+ \.autoagent/\S+: {cause}\.", line), line
    line = one_line(started_as(begun, before, "memory", "pin", "1"))
    assert line.startswith(f"autoagent: The memory in .autoagent/memory cannot be used: {cause}.")
    for arguments in (["show", begun.runs[0]], ["memory", "search", "demo"]):
        assert started_as(begun, before, *arguments).code == 0, "what can be read is shown"


@pytest.mark.slow
def test_logs_that_others_may_read_are_closed_to_them(home: Home) -> None:
    assert home.run("--demo", "-c", "-l", "2", "-m", "none").code == 4
    (home.state / "runs").chmod(0o755)
    assert home.run("resume", "-c").code == 0
    assert (home.state / "runs").stat().st_mode & 0o777 == 0o700


@pytest.mark.slow
@pytest.mark.parametrize(("name", "code"), [(".autoagent", 2), (".autoagent/runs", 1), (".autoagent/memory", 1)])
def test_a_file_where_a_folder_belongs_is_named(home: Home, name: str, code: int) -> None:
    home.write(name, "not a folder")
    line = one_line(home.run("--demo", "-c", "-m", "local", "--state-dir", ".autoagent"), code)
    causes = "is a file|Not a directory|File exists|unable to open|cannot be used"
    assert re.search(rf"{re.escape(name)}\b.*({causes})", line), line
    assert home.read(name) == "not a folder"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
@pytest.mark.parametrize(
    "arguments",
    [["runs"], *(pytest.param([name], marks=pytest.mark.slow) for name in ("--help", "commands", "config"))],
    ids=" ".join,
)
def test_output_that_cannot_be_written_is_said_once(home: Home, arguments: list[str]) -> None:
    assert home.run("--demo", "-c", "-l", "1", "-m", "none").code == 4
    with Path("/dev/full").open("w") as full:
        done = home.run(*arguments, stdout=full)
    assert (done.code, done.err) == (1, "autoagent: the output cannot be used: No space left on device.\n")


def test_a_folder_that_is_gone_is_said(home: Home) -> None:
    gone = home.folder / "gone"
    gone.mkdir()
    done = started_as(home, ("sh", "-c", 'cd gone && rmdir ../gone && exec "$@"', "sh"), "--demo", "-c")
    assert (done.code, done.err) == (1, "autoagent: the current folder cannot be used: No such file or directory.\n")


@pytest.mark.slow
def test_a_clock_that_was_put_back_does_no_harm(home: Home) -> None:
    assert home.run("--demo", "-c", "-l", "2", "-m", "none").code == 4
    log = home.state / "runs" / home.runs[0] / "events.jsonl"
    ahead = [{**event, "t": event["t"] + 3600} for event in home.log()]
    log.write_text("".join(json.dumps(event, separators=(",", ":")) + "\n" for event in ahead))
    home.succeed("resume", "-c", "--max-seconds", "60")
    assert home.log()[: len(ahead)] == ahead
