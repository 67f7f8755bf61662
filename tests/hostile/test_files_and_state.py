"""D55, D57 to D60: settings, state and a machine that are not as they should be."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import sqlite3
import stat
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from cli.driver import FINISH, GOAL, Done
from crash import boundaries
from server import ScriptedServer, command

from .driver import Room, room

pytestmark = pytest.mark.slow  # a process for each


@pytest.fixture
def made() -> Iterator[Room]:
    with room() as made:
        yield made


def laughs(levels: int = 9) -> str:
    """A billion of them, in YAML."""
    lines = ["a0: &a0 [lol, lol, lol, lol, lol, lol, lol, lol, lol, lol]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, levels)]
    return "\n".join(lines) + f"\nai_goals: *a{levels - 1}\n"


TMP = ("/tmp", "/dev/shm")
TASK = "ai_name: A\nai_role: b\nai_goals: [c]\n"
BAD_TASKS = {
    "unknown key": (f"{TASK}ai_colour: red\n", "ai_settings.yaml:4"),
    "wrong type": ("ai_name: A\nai_role: b\nai_goals: [c]\napi_budget: much\n", "api_budget"),
    "twice": (f"{TASK}ai_name: B\n", "ai_settings.yaml:4"),
    "tabs": ("ai_name: A\n\tai_role: b\n", "ai_settings.yaml:2"),
    "large": (f"# {'x' * 10_000_000}\n{TASK}", "ai_settings.yaml"),
    "laughs": (laughs(), "ai_settings.yaml"),
    "no mapping": ("- a\n- b\n", "ai_settings.yaml"),
}


@pytest.mark.parametrize("name", BAD_TASKS)
def test_d55_settings_that_cannot_be_meant_stop_the_program(made: Room, name: str) -> None:
    text, place = BAD_TASKS[name]
    made.write("ai_settings.yaml", text)
    done = made.run("--model", "human", "-y", "-c", "-m", "none")
    assert done.code in (1, 2, 3), done.text
    assert place in done.text
    assert len(done.err.splitlines()) <= 3
    assert not made.state.exists()


def test_d55_a_mark_and_other_line_ends_are_no_fault(made: Room) -> None:
    (made.folder / "ai_settings.yaml").write_bytes(b"\xef\xbb\xbf" + TASK.replace("\n", "\r\n").encode())
    with ScriptedServer(*FINISH) as server:
        made.point_at(server)
        done = made.run("-y", "-c", "-m", "none")
        assert "You are A, b" in server.requests[0].prompt
    assert done.code == 0, done.text


def test_d55_an_empty_file_is_no_task(made: Room) -> None:
    """A killed agent leaves one where it hid a file that was not there from its programs."""
    made.write("ai_settings.yaml", "")
    with ScriptedServer(*FINISH) as server:
        made.point_at(server)
        assert made.run("-c", *GOAL, "-m", "none").code == 0
        done = made.run("-c", "-y", "-m", "none")
    assert done.code == 5, done.text


@pytest.mark.parametrize(
    ("line", "place"), [("TEMPERATURE=hot", "TEMPERATURE"), ("PLAIN_OUTPUT=perhaps", "PLAIN_OUTPUT")]
)
def test_d55_variables_of_the_wrong_type_are_named(made: Room, line: str, place: str) -> None:
    made.write(".env", f"SMART_LLM=x\n{line}\n")
    done = made.run("--demo", "-c", "-m", "none")
    assert done.code in (1, 2, 3), done.text
    assert place in done.text
    assert ".env:2" in done.text


def a_run(made: Room, *flags: str) -> Done:
    with ScriptedServer(command("write_to_file", filename="a.txt", text="one"), *FINISH) as server:
        made.point_at(server)
        return made.run("-c", *GOAL, *flags)


def test_d57_state_of_a_newer_version_is_refused(made: Room) -> None:
    assert made.run("--demo", "-c", "-l", "1", "-m", "none").code == 4
    path = made.state / "runs" / made.runs[0] / "events.jsonl"
    lines = [json.dumps({**json.loads(line), "v": 999}) for line in path.read_text().splitlines()]
    path.write_text("\n".join(lines) + "\n")
    done = made.run("resume", made.runs[0], "-c")
    assert done.code == 1, done.text
    assert "999" in done.text or "newer" in done.text


def test_d57_the_state_is_for_its_user_alone(made: Room) -> None:
    previous = os.umask(0)
    try:
        assert a_run(made).code == 0
    finally:
        os.umask(previous)
    for path in (made.state, *made.state.rglob("*")):
        mode = stat.S_IMODE(path.stat().st_mode)
        assert mode & 0o077 == 0, (path, oct(mode))


def overwritten(database: Path) -> None:
    data = bytearray(database.read_bytes())
    data[100:4000] = os.urandom(3900)
    database.write_bytes(data)


def without_words(database: Path) -> None:
    with closing(sqlite3.connect(database)) as connection:
        connection.executescript("PRAGMA writable_schema = 1; DELETE FROM sqlite_schema WHERE name LIKE 'words%'")


def half_a_row(database: Path) -> None:
    [vectors] = database.parent.glob("*.f32")
    os.truncate(vectors, vectors.stat().st_size - 10)


def other_values(database: Path) -> None:
    [vectors] = database.parent.glob("*.f32")
    vectors.write_bytes(os.urandom(vectors.stat().st_size))


def without_vectors(database: Path) -> None:
    [vectors] = database.parent.glob("*.f32")
    vectors.unlink()


def other_dimension(database: Path) -> None:
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute("UPDATE spaces SET dim = dim - 1")


HARMS = (overwritten, without_words, half_a_row, other_values, without_vectors, other_dimension)


@pytest.mark.parametrize("harm", HARMS, ids=lambda harm: str(harm.__name__))
def test_d58_a_damaged_memory_is_found_out(made: Room, harm: Callable[[Path], None]) -> None:
    """It is named, or made anew: what it then recalls is what it recalled before."""
    notes = [command("memory_add", text=f"The {colour} ferry leaves") for colour in ("red", "green", "blue")]
    with ScriptedServer(*notes, *FINISH) as server:
        made.point_at(server)
        assert made.run("-c", *GOAL).code == 0
        asked = ("memory", "search", "the green ferry", "--json")
        before = made.run(*asked)
        assert "green ferry" in before.out
        [database] = (made.state / "memory").rglob("memory.db")
        harm(database)
        after = made.run(*asked)
        if after.code == 0:
            assert found(after) == found(before)
        else:
            assert "memory" in after.err
            assert len(after.err.splitlines()) <= 2
        server.script += [command("recall", query="the green ferry"), *FINISH]
        assert made.run("-c", *GOAL).code in (0, 1)


def found(done: Done) -> list[str]:
    return [memory["text"] for memory in json.loads(done.out)]


@pytest.mark.skipif(shutil.which("prlimit") is None, reason="prlimit (util-linux) is not installed")
def test_d60_few_files_may_be_open(made: Room) -> None:
    made.around = ("prlimit", "--nofile=64:64", "--")
    done = a_run(made, "-m", "local")
    assert done.code in (0, 1), done.text
    if done.code:
        assert "Too many open files" in done.text


def test_d60_an_ordinary_users_home_that_cannot_be_written() -> None:
    with room("ordinary") as made:
        made.start("--version").communicate()  # all belongs to the user now
        made.folder.chmod(0o555)
        made.workspace.rmdir()
        done = made.run("--demo", "-c", "-m", "none")
        assert done.code in (1, 2, 3), done.text
        assert "cannot be" in done.text
        made.folder.chmod(0o755)


@pytest.mark.parametrize("kind", ["bubblewrap", "landlock"])
def test_d60_no_folder_for_temporary_files(made: Room, kind: str) -> None:
    """One that nobody can write to stands for one that is not there: /tmp itself is the machine's."""
    if shutil.which("bwrap") is None:
        pytest.skip("bubblewrap, which takes /tmp away, is not installed")
    made.around = ("bwrap", "--dev-bind", "/", "/", *itertools.chain(*(("--tmpfs", t, "--remount-ro", t) for t in TMP)))
    with ScriptedServer(command("execute_shell", command_line="echo still here"), *FINISH) as server:
        made.point_at(server)
        done = made.run("-c", *GOAL, "-m", "none", "--sandbox", kind)
    if done.code == 0:
        assert "still here" in done.text
    else:
        assert done.code in (1, 3), done.text
        assert "temporary" in done.text or kind in done.text


@pytest.mark.skipif(bool(boundaries.missing()), reason=boundaries.missing() or "it can")
def test_d62_a_file_system_without_locks_is_named(made: Room) -> None:
    """As some network file systems are: without the lock, two processes could write one run."""
    made.around = (*boundaries.STRACE, "-o", "/dev/null", "-e", "trace=flock", "-e", "inject=flock:error=ENOLCK")
    done = a_run(made, "-m", "none")
    assert done.code == 1, done.text
    assert "No locks available" in done.text
    assert ".autoagent" in done.text
    assert not (made.workspace / "a.txt").exists()
