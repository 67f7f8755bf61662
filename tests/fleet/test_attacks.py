"""Fleets under attack: task files of a stranger, and programs of the agent on a node that shares nothing."""

from __future__ import annotations

import json
import os
import stat
import subprocess
from contextlib import suppress
from pathlib import Path

import nobody
import pytest
from driver import FINISH, Home
from fleets import Copying, results, run, tasks, worked
from raylets import Raylets
from server import Command, Request, ScriptedServer, command

from autoagent.fleet.folder_copy import receive
from autoagent.fleet.ray_engine import find_trusted_cluster


@pytest.mark.parametrize("id", ["fleet.jsonl", "fleet.lock", "fleet.nonce", "Fleet.Jsonl"])
def test_no_run_has_the_name_of_a_file_of_the_fleet(home: Home, server: ScriptedServer, id: str) -> None:
    assert "cannot name a folder" in run(home, tasks(1, id=id), code=2)
    assert not (home.folder / "out").exists()


@pytest.mark.parametrize("value", ["[" * 600 + "]" * 600, '{"a":' * 600 + "1" + "}" * 600])
def test_a_task_that_is_nested_without_end_is_named(home: Home, server: ScriptedServer, value: str) -> None:
    home.write("tasks.jsonl", f'{{"id": "a", "goal": {value}}}\n')
    done = home.run("fleet", "tasks.jsonl", "-c", "--out", "out")
    assert (done.code, len(done.err.splitlines())) == (2, 1), done.text


@pytest.mark.slow
def test_the_agents_own_files_are_not_copied_to_where_it_reads_them(home: Home, server: ScriptedServer) -> None:
    server.script, server._every = [command("read_file", filename=".env"), *FINISH], None
    home.write(".env", "DB_PASSWORD=of-the-user-and-nobody-else\n")
    home.write("a.txt", "a")
    home.write("tasks.yaml", "tasks:\n- {id: a, goal: Do the thing, files: [.]}\n")
    home.succeed("fleet", "tasks.yaml", "-c", "--out", "out", "--accept-claims")
    assert "of-the-user-and-nobody-else" not in json.dumps([request.body for request in server.requests])
    assert home.read("out/a/workspace/a.txt") == "a"
    assert not list((home.folder / "out/a/workspace").rglob("fleet.jsonl")), "not the fleet into itself"


@pytest.mark.slow
def test_nothing_that_a_model_says_commands_the_terminal(home: Home, server: ScriptedServer) -> None:
    said = command("read_file", filename="\x1b]0;PWNED\x07\x1b[2Ja\u202eb")
    server.script, server._every = [said, command("task_complete", reason="\x1b]0;PWNED\x07 \u202edone")], None
    file = str(home.write("tasks.jsonl", tasks(1, check="", name="\x1b]0;PWNED\x07")))
    session = home.terminal("fleet", file, "-c", "--out", "out", "--accept-claims")
    assert session.ends() == 0, session.screen
    assert "\x1b]0;" not in session.raw
    assert "\u202e" not in session.raw


def test_a_swapped_folder_sends_no_file_from_elsewhere(copying: Copying, tmp_path: Path) -> None:
    """A program in the background puts a link in the place of a folder, between the look and the copy."""
    workspace, outside = copying.here / "workspace", tmp_path / "outside"
    for base in (workspace / "d", outside):
        base.mkdir()
    (outside / "key").write_text("secret")
    (workspace / "d/key").write_text("dummy")
    (workspace / "c").write_text("first")
    for change in copying.changes():
        if change["path"] == "workspace/c":
            (workspace / "d").rename(workspace / "e")
            (workspace / "d").symlink_to(outside)
    assert not [path for path in copying.there.rglob("*") if path.is_file() and path.read_text() == "secret"]


def test_a_pipe_in_the_place_of_a_file_holds_up_no_copy(copying: Copying) -> None:
    workspace = copying.here / "workspace"
    (workspace / "a").write_text("a")
    (workspace / "b").write_text("b")
    for change in copying.changes():
        if change["path"] == "workspace/a":
            (workspace / "b").unlink()
            os.mkfifo(workspace / "b")
    assert not (copying.there / "workspace/b").exists()


def test_no_copy_gets_the_rights_of_its_owner(tmp_path: Path) -> None:
    put = {"path": "tool", "at": 0, "data": "", "mode": 0o6755, "last": True, "in_place": False}
    receive(tmp_path, put)
    assert stat.S_IMODE((tmp_path / "tool").stat().st_mode) == 0o755


def test_a_file_of_nothing_fills_no_disk(copying: Copying) -> None:
    hole, copy = copying.here / "hole", copying.there / "hole"
    with hole.open("wb") as file:
        file.truncate(20_000_000)
        file.seek(10_000_000)
        file.write(b"x")
    copying.update()
    assert copy.read_bytes() == hole.read_bytes()
    assert copy.stat().st_blocks * 512 < 1_000_000


def test_a_file_of_endless_holes_is_named_and_holds_up_no_copy(copying: Copying) -> None:
    here, there = copying.here, copying.there
    (here / "z").write_text("last")
    (here / "kept").write_text("first")
    copying.update()
    for name in ("huge", "kept"):
        with (here / name).open("ab") as file:
            file.truncate(1 << 40)
    for _ in range(2):
        copying.update()
    assert {path.name for path in there.iterdir() if path.is_file()} == {"z", "kept"}
    assert (there / "kept").read_text() == "first", "what the other side has is not lost"
    assert sorted(line.partition(":")[0] for line in copying.said) == ["'huge' is not copied", "'kept' is not copied"]


@pytest.mark.slow
def test_no_module_of_the_folder_is_run_on_a_node(home: Home, cluster: Raylets) -> None:
    """Ray puts the folder in which a driver starts on the path of its workers."""
    for name in ("autoagent/__init__", "setproctitle", "msgspec", "psutil", "sitecustomize", "colorama"):
        home.write(f"{name}.py", f"open({str(home.folder / 'PWNED')!r}, 'a').write('{name} ')\n")
    home.env["PYTHONSAFEPATH"] = "1"  # as the script that pip installs starts it
    cluster.add()
    run(home, tasks(1), *cluster.flags)
    assert not (home.folder / "PWNED").exists(), home.read("PWNED")


@pytest.mark.slow
def test_no_cluster_of_another_user_is_joined() -> None:
    nobody.require()
    argv = ["/opt/raylet", "-c", "read x", "--gcs-address=127.0.0.1:9"]
    with subprocess.Popen(argv, executable="/bin/sh", stdin=subprocess.PIPE, user=nobody.ID, group=nobody.ID) as other:
        with suppress(ConnectionError):
            assert find_trusted_cluster() != "127.0.0.1:9"
        other.kill()


DEEP = """import os
for n in range({depth}):
    os.mkdir("d" * 200)
    os.chdir("d" * 200)
open("x", "w").close()
"""


@pytest.mark.slow
def test_what_cannot_be_copied_ends_its_run_alone(home: Home, server: ScriptedServer, cluster: Raylets) -> None:
    """A program nests folders deeper than the head's disk takes names: those of the other runs are copied."""
    deep = command("execute_python_code", code=DEEP.format(depth=20), name="deep.py")

    def answer(request: Request) -> Command:
        if "a/workspace" in request.prompt or "Dig" in request.prompt:
            return deep if "deep.py" not in request.prompt else FINISH[0]
        return worked(request)

    server._every = answer
    cluster.add(hides=home.folder)
    text = "\n".join([json.dumps({"id": "deep", "goal": "Dig"}), tasks(2)])
    flags = (*cluster.flags, "--parallel", "2", "--retries", "0")
    said = run(home, text, *flags, "--accept-claims", code=9)
    found = {row["id"]: row["status"] for row in results(home)["runs"]}
    assert found == {"deep": "failed", "t000": "finished", "t001": "finished"}, said
