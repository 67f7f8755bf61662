"""Folders that somebody else wrote: what they bring takes the program over in no way, before they are trusted."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli.driver import FINISH, GOAL
from server import ScriptedServer, command

from .driver import USERS, Room, room


@pytest.fixture(params=USERS)
def there(request: pytest.FixtureRequest) -> Iterator[Room]:
    """A folder of this user's own, in which the program is started."""
    with room(request.param) as made:
        yield made


def finish(there: Room, *arguments: str, stdin: str = "", env: dict[str, str] | None = None) -> tuple[int, str]:
    """Run the program to its end: the exit code and all it showed."""
    process = there.start(*arguments, env=env)
    out, err = process.communicate(stdin, timeout=60)
    assert "Traceback" not in out + err, out + err
    return process.returncode, out + err


@pytest.mark.parametrize("program", ["bwrap", "uname", "git"])
def test_no_program_is_taken_from_the_folder_by_a_relative_path(there: Room, program: str) -> None:
    there.write(program, f"#!/bin/sh\ntouch {there.folder}/PWNED\nexit 1\n").chmod(0o755)
    with ScriptedServer(command("execute_shell", command_line="true"), *FINISH) as server:
        there.point_at(server)
        code, text = finish(there, "-c", "-m", "none", *GOAL, env={"PATH": f".::{os.environ['PATH']}:bin"})
    assert code == 0, text
    assert not (there.folder / "PWNED").exists()


def test_no_module_is_taken_from_the_folder(there: Room) -> None:
    for name in ("click", "openai", "pip"):
        there.write(f"{name}.py", f"open({str(there.folder / 'PWNED')!r}, 'w')\nraise SystemExit(0)\n")
    code, text = finish(there, "--version")
    assert (code, text.split(",")[0]) == (0, "autoagent")
    assert not (there.folder / "PWNED").exists()


@pytest.mark.parametrize(
    ("name", "flags"), [(".env", []), ("p.yaml", ["-P", "p.yaml"]), ("ai_settings.yaml", ["-y"])], ids=lambda v: str(v)
)
def test_a_pipe_in_place_of_a_settings_file_stops_the_start(there: Room, name: str, flags: list[str]) -> None:
    os.mkfifo(there.folder / name)
    with ScriptedServer() as server:
        there.point_at(server)
        task = () if "-y" in flags else GOAL
        code, text = finish(there, "-c", "-m", "none", *task, *flags)
    assert code == 2, text
    assert f"{name}: is no file but a pipe." in text
    assert Path(there.folder / name).is_fifo()
