"""D55, D57 to D60: settings, state and a machine that are not as they should be."""

from __future__ import annotations

import json
import os
import resource
import stat
import subprocess
from collections.abc import Iterator

import pytest
from cli.driver import FINISH, GOAL, PATIENCE, PROGRAM, Done
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


def test_d58_a_damaged_memory_is_found_out(made: Room) -> None:
    assert a_run(made).code == 0
    [database] = [path for path in (made.state / "memory").rglob("*") if path.is_file() and path.stat().st_size > 4096][
        :1
    ]
    data = bytearray(database.read_bytes())
    data[100:4000] = os.urandom(3900)
    database.write_bytes(data)
    for path in database.parent.glob(f"{database.name}-*"):
        path.unlink()
    done = made.run("memory", "list")
    assert done.code != 0, done.text
    assert database.name in done.text or "memory" in done.text
    assert a_run(made).code in (0, 1)  # with a memory made anew, or with a line that says why not


def test_d60_few_files_may_be_open(made: Room) -> None:
    with ScriptedServer(command("write_to_file", filename="a.txt", text="one"), *FINISH) as server:
        made.point_at(server)
        argv = [*PROGRAM, "-c", *GOAL, "-m", "local"]
        process = subprocess.run(
            argv,
            cwd=made.folder,
            env=made._environment(None),
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64)),
        )
    done = Done(process.returncode, process.stdout, process.stderr)
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


def test_d60_no_folder_for_temporary_files(made: Room) -> None:
    with ScriptedServer(command("write_to_file", filename="a.txt", text="one"), *FINISH) as server:
        made.point_at(server)
        done = made.run("-c", *GOAL, "-m", "none", env={"TMPDIR": "/nonexistent"})
    assert done.code == 0, done.text
