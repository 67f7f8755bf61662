"""D55, D57 to D60: settings, state and a machine that are not as they should be."""

from __future__ import annotations

import json
import os
import re
import shutil
import sqlite3
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from cli.driver import FINISH, GOAL, ROOT, Done
from crash import boundaries
from server import ScriptedServer, command

from .driver import Room, room, shell, write

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("either")]  # a process for each


def laughs(levels: int = 9) -> str:
    """A billion of them, in YAML."""
    lines = ["a0: &a0 [lol, lol, lol, lol, lol, lol, lol, lol, lol, lol]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, levels)]
    return "\n".join(lines) + f"\nai_goals: *a{levels - 1}\n"


TASK = "ai_name: A\nai_role: b\nai_goals: [c]\n"
CONFIG = ".config/autoagent/config.yaml"
# The file, what is in it, and how the refusal goes on after the name of the file.
BAD_SETTINGS = {
    "large": ("ai_settings.yaml", f"# {'x' * 10_000_000}\n{TASK}", ": is larger than 256 KiB"),
    "laughs": ("ai_settings.yaml", laughs(), ":2: aliases (*a0) are not allowed"),
    "config: laughs": (CONFIG, laughs(), ":2: aliases (*a0) are not allowed"),
    "environment: large": (".env", f"# {'x' * 10_000_000}\n", ": is larger than 256 KiB"),
}


@pytest.mark.parametrize("name", BAD_SETTINGS)
def test_d55_settings_that_cannot_be_meant_stop_the_program(made: Room, name: str) -> None:
    file, text, problem = BAD_SETTINGS[name]
    made.write(file, text)
    done = made.run("--model", "human", "-y", "-c", "-m", "none")
    assert (done.code, done.out, len(done.err.splitlines())) == (2, "", 1), done.text
    assert f"{file}{problem}" in done.err
    assert not made.state.exists()


def test_d55_an_empty_file_is_no_task(made: Room) -> None:
    """A killed agent leaves one where it hid a file that was not there from its programs."""
    made.write("ai_settings.yaml", "")
    with made.served(*FINISH):
        assert made.run("-c", *GOAL, "-m", "none").code == 0
        done = made.run("-c", "-y", "-m", "none")
    assert done.code == 5, done.text


def a_run(made: Room, *flags: str) -> Done:
    with made.served(write("a.txt", "one"), *FINISH):
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


def without_vectors(database: Path) -> None:
    next(database.parent.glob("*.f32")).unlink()


def other_values(database: Path) -> None:
    [vectors] = database.parent.glob("*.f32")
    vectors.write_bytes(os.urandom(vectors.stat().st_size))


def other_dimension(database: Path) -> None:
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute("UPDATE spaces SET dim = dim - 1")


MENDED = (half_a_row, other_values, without_vectors, other_dimension)
LOST = (overwritten, without_words)  # there is nothing to make them anew from


@pytest.fixture
def remembering(made: Room) -> Iterator[ScriptedServer]:
    """A room with three memories, and the server that embedded them."""
    notes = [command("memory_add", text=f"The {colour} ferry leaves") for colour in ("red", "green", "blue")]
    with made.served(*notes, *FINISH) as server:
        assert made.run("-c", *GOAL).code == 0
        server.script += [command("recall", query="the green ferry"), *FINISH]
        yield server


ASKED = ("memory", "search", "the green ferry", "--json")


@pytest.mark.parametrize("harm", MENDED, ids=lambda harm: str(harm.__name__))
def test_d58_what_can_be_made_anew_of_a_memory_is(
    made: Room, remembering: ScriptedServer, harm: Callable[[Path], None]
) -> None:
    """What it then recalls is what it recalled before."""
    before = made.run(*ASKED)
    assert "green ferry" in before.out
    [database] = (made.state / "memory").rglob("memory.db")
    harm(database)
    after = made.succeed(*ASKED)
    assert re.search(r"texts are embedded again|computed again from their texts", after.err), "it is said"
    assert found(after) == found(before)
    assert made.run("-c", *GOAL).code == 0
    assert "The green ferry leaves" in remembering.requests[-1].prompt, "what was recalled"


@pytest.mark.parametrize("harm", LOST, ids=lambda harm: str(harm.__name__))
def test_d58_a_memory_that_is_lost_is_named_and_the_run_goes_on(
    made: Room, remembering: ScriptedServer, harm: Callable[[Path], None]
) -> None:
    [database] = (made.state / "memory").rglob("memory.db")
    harm(database)
    after = made.run(*ASKED)
    assert (after.code, after.out, len(after.err.splitlines())) == (1, "", 1), after.text
    assert "The memory in .autoagent/memory cannot be used: " in after.err
    assert "Restore a copy of its memory.db" in after.err
    done = made.succeed("-c", *GOAL)
    assert "Nothing is recalled: The memory in .autoagent/memory" in done.text
    shutil.rmtree(database.parent)
    assert made.run(*ASKED).code == 0, "moved away, it begins anew"


@pytest.mark.parametrize("left", [None, b""], ids=["missing", "empty"])
def test_d58_a_lost_database_beside_its_vectors_is_said(
    made: Room, remembering: ScriptedServer, left: bytes | None
) -> None:
    [database] = (made.state / "memory").rglob("memory.db")
    database.unlink()
    if left is not None:
        database.write_bytes(left)
    after = made.run(*ASKED)
    assert (after.code, len(after.err.splitlines())) == (1, 1), after.text
    assert f"memory.db is {'missing' if left is None else 'empty'}" in after.err and "-m none" in after.err
    assert "memory.db is" in made.run("doctor").out


def test_d58_a_memory_that_may_not_be_written_can_be_read() -> None:
    with room("ordinary") as made, made.served():
        assert made.run("memory", "add", "The green ferry leaves").code == 0
        folder = made.state / "memory"
        for path in (*folder.iterdir(), folder):
            path.chmod(0o555 if path.is_dir() else 0o444)
        assert "green ferry" in made.run("memory", "list").out
        asked = made.run(*ASKED)
        assert found(asked) == ["The green ferry leaves"], asked.text
        assert made.run("memory", "export", "copy.jsonl").code == 0
        refused = made.run("memory", "add", "The blue ferry leaves")
        assert (refused.code, "The memory in" in refused.err, "-m none" in refused.err) == (1, True, True), refused.text
        folder.chmod(0o700)


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


def read_only_tmp() -> Iterator[str]:
    """The arguments of bubblewrap for a world in which nobody can write to a folder for temporary files."""
    yield from ("--dev-bind", "/", "/")
    for folder in ("/tmp", "/dev/shm"):
        yield from ("--tmpfs", folder, "--remount-ro", folder)


def no_tmp() -> Iterator[str]:
    """The same for a world without /tmp, in which all else is as it is."""
    for path in sorted(Path("/").iterdir()):
        if path.name != "tmp":
            yield from ("--symlink" if path.is_symlink() else "--dev-bind", str(path.resolve()), str(path))


@pytest.mark.parametrize("kind", ["auto", "bubblewrap", "landlock"])
@pytest.mark.parametrize("world", [read_only_tmp, no_tmp], ids=lambda world: str(world.__name__))
def test_d60_no_folder_for_temporary_files(made: Room, world: Callable[[], Iterator[str]], kind: str) -> None:
    if shutil.which("bwrap") is None:
        pytest.skip("bubblewrap, which takes /tmp away, is not installed")
    if any(Path(needed).is_relative_to("/tmp") for needed in (ROOT, sys.prefix, sys.base_prefix)):
        pytest.skip("the program itself is in /tmp")
    made.around = ("bwrap", *world())
    with made.served(shell("echo still here"), *FINISH):
        done = made.run("-c", *GOAL, "-m", "none", "--sandbox", kind)
    if kind == "bubblewrap" and world is no_tmp:  # it begins every sandbox there
        assert done.code == 3, done.text
        assert done.err.startswith("autoagent: No sandbox works here. No bubblewrap: ")
    elif kind == "landlock" and done.code == 3:  # a kernel without it
        assert "Landlock" in done.err
    else:
        assert done.code == 0, done.text
        assert "still here" in done.text


WITHOUT_LOCKS = ("-o", "/dev/null", "-e", "trace=flock", "-e", "inject=flock:error=ENOLCK")


@pytest.mark.skipif(bool(boundaries.missing()), reason=boundaries.missing() or "it can")
def test_d62_a_file_system_without_locks_is_named(made: Room) -> None:
    """As some network file systems are: without the lock, two processes could write one run, or one memory."""
    with made.served(write("a.txt", "one")) as server:
        assert made.run("-c", "-l", "1", *GOAL).code == 4
        [run] = made.runs
        before = made.log()
        made.around = (*boundaries.STRACE, *WITHOUT_LOCKS)
        for arguments in (["resume", "-c"], ["-c", *GOAL], ["undo", run], ["memory", "add", "a note"]):
            done = made.run(*arguments)
            assert (done.code, len(done.err.splitlines())) == (1, 1), done.text
            assert re.match(r"autoagent: .* \.autoagent/\S+.*: No locks available\.", done.err), done.err
        assert made.run("show", run).code == 0, "what is only read needs no lock"
        assert "a note" not in made.run("memory", "list").out
        assert len(server.requests) == 1
    assert made.log(run) == before
    assert (made.workspace / "a.txt").read_text() == "one"
