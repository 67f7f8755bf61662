"""Nothing that a file, a log or a command line holds steers the terminal: it is shown as an escape."""

from __future__ import annotations

import json

import pytest
from driver import FINISH, GOAL, Home
from server import ScriptedServer, command

TRICK = "a\x1b[2Jb\x9bc\u202ed"


def clean(text: str) -> None:
    assert not {"\x1b", "\x9b", "\u202e"} & set(text), text


def test_names_of_files_that_undo_and_bisect_tell(served: Home, server: ScriptedServer) -> None:
    line = "touch \"$(printf 'a\\033[2Jb')\""
    server.add(command("execute_shell", command_line=line), command("write_to_file", filename="c", text="x"))
    assert served.run(*GOAL, "-m", "none", "-c", "-l", "2").code == 4
    run = served.runs[0]
    found = served.run("bisect", run, "--check", "printf 'x\\033[2J'; test ! -e b")
    clean(found.text)
    undone = served.run("undo", run, "--to", "0")
    clean(undone.text)
    assert r"a\x1b[2Jb" in undone.out
    clean(served.run("replay", run, "--verify").text)


def test_names_and_screens_of_scenarios(home: Home) -> None:
    home.write("s.yaml", json.dumps({"name": TRICK, "goals": ["x"], "replies": [], "expect": {"screen": [TRICK]}}))
    played = home.run("test", "s.yaml")
    assert played.code
    clean(played.text)


@pytest.mark.parametrize(
    "arguments", [(TRICK,), ("-c", "-l", TRICK), ("show", TRICK), ("rules", "add", TRICK), ("memory", "import", TRICK)]
)
def test_what_stands_on_the_command_line(home: Home, arguments: tuple[str, ...]) -> None:
    done = home.run(*arguments, "--state-dir", TRICK)
    assert done.code
    clean(done.text)


def test_json_holds_what_was_there_as_escapes(served: Home, server: ScriptedServer) -> None:
    server.add(*FINISH)
    assert served.run("--ai-goal", TRICK, "-m", "none", "-c").code == 0
    listed = served.run("runs", "--json")
    clean(listed.text)
    assert json.loads(listed.out)[0]["goals"] == [TRICK]
