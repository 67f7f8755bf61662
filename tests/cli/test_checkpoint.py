"""A long run goes on from its checkpoint as it would from its whole log: to the same state, with the same prompt."""

from __future__ import annotations

import hmac
import json
import os
import re
import shutil
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from driver import GOAL, PATIENCE, Home
from server import Answer, Reply, Request, ScriptedServer, command

from autoagent.log import checkpoint
from autoagent.session.prompt_replay import prompt_of_step

# The program, which keeps a checkpoint sooner, and tells what its folds have come to when it goes on.
PROGRAM = """
import sys
import zlib
from collections import Counter, deque
from pathlib import Path

import autoagent.log.checkpoint as checkpoint
from autoagent.cli import main
from autoagent.agent.state import State

def plain(value):
    if isinstance(value, (set, frozenset)):
        return sorted(map(repr, value))
    if isinstance(value, dict):
        return [(repr(key), plain(one)) for key, one in value.items()]
    if isinstance(value, (list, tuple, deque)):
        return [plain(one) for one in value]
    if hasattr(value, "__dict__") and not callable(value):
        left_out = getattr(value, "NOT_IN_CHECKPOINT", ())
        return {name: plain(one) for name, one in vars(value).items() if name not in left_out}
    return repr(value)

def replay(state):
    used = []
    restore = checkpoint.Saved.restore
    checkpoint.Saved.restore = lambda *given: used.append(given) or restore(*given)
    replay_whole(state)
    folds = {**state._saved_parts, **state.tools.checkpoints._screen_folds}
    lines = [f"{name} {plain(fold)}" for name, fold in folds.items()]
    Path("state.txt").write_text("\\n".join([f"checkpoint {bool(used)}", *lines]))

checkpoint.EVENTS_BETWEEN = 40
replay_whole, State.replay = State.replay, replay
main()
"""


def _step(number: int) -> Answer:
    """Steps of many kinds: new files, the same again, failures, looks, a reply that is none, a command there is not."""
    kinds: list[Answer] = [
        command("write_to_file", filename=f"notes/{number}.txt", text=f"The {number}. note\n" * 40),
        command("read_file", filename=f"notes/{number - 1}.txt"),
        command("read_file", filename=f"notes/{number - 2}.txt"),
        command("read_file", filename="nowhere.txt"),
        Reply("What shall I do?"),
        command("append_to_file", filename="log.txt", text=f"{number}\n"),
        command("append_to_file", filename="log.txt", text="the same\n"),
        command("list_files", directory="."),
        command("no_such_command"),
        command("execute_shell", command_line=f"echo {number}; false"),
    ]
    return kinds[number % len(kinds)]


def _run(home: Home, *arguments: str) -> subprocess.CompletedProcess[str]:
    program, env = [sys.executable, "-c", PROGRAM, *arguments], home._environment(None)
    return subprocess.run(program, cwd=home.folder, env=env, input="", capture_output=True, text=True, timeout=PATIENCE)


def _state(home: Home) -> list[str]:
    return (home.folder / "state.txt").read_text().splitlines()


def _without_time(request: Request) -> str:
    return re.sub(r"\w{3} \w{3} [ \d]\d \d\d:\d\d:\d\d \d{4}", "~", json.dumps(request.body))  # midnight may pass


@pytest.fixture
def long_run(served: Home, server: ScriptedServer) -> Home:
    """A run of many kinds of steps in a small window, ended by a limit, some steps after its newest checkpoint."""
    served.env["AUTOAGENT_WINDOW"] = "8192"
    server.add(*(_step(number) for number in range(60)))
    done = _run(served, *GOAL, "-c", "-l", "38", "--commands", "files,execute_shell")
    assert done.returncode in (4, 8), done.stderr
    assert (served.state / "runs" / served.runs[0] / "checkpoint").exists()
    return served


def _flipped(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))


def _of_a_link(path: Path) -> None:
    path.unlink()
    path.symlink_to("/dev/zero")


def _of_a_moved_class(path: Path, made_for: bytes = b"") -> None:
    """Put a rightly sealed one in its place, with a record whose class is not to be found any more."""
    body = (made_for or path.read_bytes()[32:128]) + zlib.compress(b"cautoagent.runs.formerly\nRecord\n.")
    key = next(path.parents[3].rglob("checkpoints.key")).read_bytes()
    path.write_bytes(hmac.digest(key, path.parent.name.encode() + b"\n" + body, "sha256") + body)


SPOILT: dict[str, Callable[[Path], object]] = {"changed in one bit": _flipped, "of a moved class": _of_a_moved_class}
SPOILT_OTHERWISE: dict[str, Callable[[Path], object]] = {
    "of an older program": lambda path: _of_a_moved_class(path, os.urandom(96)),
    "deleted": Path.unlink,
    "a link": _of_a_link,
    "empty": lambda path: path.write_bytes(b""),
    "torn": lambda path: os.truncate(path, path.stat().st_size // 2),
    "garbage": lambda path: path.write_bytes(os.urandom(5000)),
    "of another key": lambda path: next(path.parents[3].rglob("checkpoints.key")).write_bytes(os.urandom(32)),
    "without its key": lambda path: next(path.parents[3].rglob("checkpoints.key")).unlink(),
}


@pytest.mark.slow
@pytest.mark.parametrize("spoilt", [SPOILT, SPOILT_OTHERWISE])
def test_it_is_of_use_and_changes_nothing_but_time(
    long_run: Home, server: ScriptedServer, tmp_path: Path, spoilt: dict[str, Callable[[Path], object]]
) -> None:
    """Whatever has become of the checkpoint, the run goes on with the same state and the same prompt."""
    folder, run = long_run.folder, long_run.runs[0]
    found: dict[str, tuple[list[str], str]] = {}
    for name, spoil in {"as it is": lambda path: None, **spoilt}.items():
        shutil.copytree(folder, tmp_path / "kept", symlinks=True)
        spoil(long_run.state / "runs" / run / "checkpoint")
        server.script[:] = [_step(1)]
        asked = len(server.requests)
        done = _run(long_run, "resume", run, "-c", "-l", "1")
        assert "Traceback" not in done.stderr, done.stderr
        found[name] = _state(long_run), _without_time(server.requests[asked])
        for path in folder.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        shutil.copytree(tmp_path / "kept", folder, symlinks=True, dirs_exist_ok=True)
        shutil.rmtree(tmp_path / "kept")
    (used, *state), prompt = found.pop("as it is")
    assert used == "checkpoint True"
    for name, ((used, *other), sent) in found.items():
        assert used == "checkpoint False", name
        assert other == state, name
        assert sent == prompt, name


@pytest.mark.slow
def test_one_that_does_not_fit_is_not_used(long_run: Home, server: ScriptedServer) -> None:
    """Neither where the log is not the one that it was made from, nor where other commands are offered."""
    server.script[:] = [_step(1), _step(1)]
    _run(long_run, "resume", long_run.runs[0], "-c", "-l", "1", "--commands", "files")
    assert _state(long_run)[0] == "checkpoint False"

    log = long_run.state / "runs" / long_run.runs[0] / "events.jsonl"
    log.write_text(log.read_text().replace("The 10. note", "The 11. note"))
    _run(long_run, "resume", long_run.runs[0], "-c", "-l", "1")
    assert _state(long_run)[0] == "checkpoint False"
    assert long_run.run("replay", long_run.runs[0], "--verify").code == 1


@pytest.mark.slow
def test_prompts_verify_after_going_on_from_one(long_run: Home, server: ScriptedServer) -> None:
    server.script[:] = [_step(number) for number in range(1, 4)]
    _run(long_run, "resume", long_run.runs[0], "-c", "-l", "2")
    assert _state(long_run)[0] == "checkpoint True"
    assert long_run.run("replay", long_run.runs[0], "--verify").code == 0


@pytest.mark.slow
def test_a_late_step_is_shown_from_one_as_from_the_whole_log(long_run: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    restored: list[str] = []
    restore = checkpoint.Saved.restore

    def restore_and_tell(saved: checkpoint.Saved, name: str, *given: Any) -> None:
        restored.append(name)
        restore(saved, name, *given)

    monkeypatch.setattr(checkpoint.Saved, "restore", restore_and_tell)
    for name, value in long_run._environment(None).items():
        monkeypatch.setenv(name, value)

    def seen() -> list[Any]:
        shown = [long_run.run("show", long_run.runs[0], "--step", step) for step in ("20", "37", "39")]
        built = [prompt_of_step(long_run.state, long_run.runs[0], step) for step in (5, 20, 37)]
        assert all(one.prompt().sha256 == one.prompted.sha256 for one in built)
        parts = [(one.prompt(), one.shown, one.left_out, one.query) for one in built]
        return [parts, [(one.code, one.out, one.err) for one in shown]]

    from_checkpoints = seen()
    assert restored == ["History"] * 2, "there is none before step 5"
    for path in (long_run.state / "runs" / long_run.runs[0]).glob("checkpoint-*"):
        path.unlink()
    assert seen() == from_checkpoints
    assert len(restored) == 2
