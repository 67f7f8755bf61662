"""A run shown again: a step of it, all of it, in a pager, as a file."""

from __future__ import annotations

import json

import pytest
from driver import FINISH, GOAL, Home
from server import ScriptedServer, command
from test_session import opened


@pytest.fixture
def run(served: Home, server: ScriptedServer) -> str:
    """A run of three steps whose second one prints much."""
    text = "".join(f"line {number} <b>&amp;\n" for number in range(60))
    server.add(command("write_to_file", filename="a.py", text=text), command("read_file", filename="a.py"), *FINISH)
    assert served.run("-c", "-m", "none", *GOAL).code == 0
    return served.runs[0]


def test_a_step_alone_and_nothing_cut(served: Home, run: str) -> None:
    short, full = (served.run("show", run, "--step", "2", *flags).out for flags in ((), ("--full",)))
    assert short.startswith("-- step 2 | ") and "COMMAND = read_file" in short and "write_to_file" not in short
    assert "  | line 30 <b>" not in short and "  | line 30 <b>" in full
    assert served.run("replay", run, "--fast", "--step", "2", "--full").out == full
    for flags in ((), ("--json",)):
        missing = served.run("show", run, "--step", "9", *flags)
        assert (missing.code, missing.out) == (1, "") and "has 3 steps, and no step 9" in missing.err


def test_without_a_run_it_is_the_newest(served: Home, server: ScriptedServer, run: str) -> None:
    server.add(*FINISH)
    assert served.run("-c", "-m", "none", *GOAL).code == 0
    newest = next(other for other in served.runs if other != run)
    assert served.succeed("show").out == served.succeed("show", newest).out
    assert served.succeed("replay", "--fast").out == served.succeed("show", newest).out
    assert served.succeed("report").err == f"Written to {newest}.html.\n"
    assert f"the run {newest} can be undone" in served.run("undo").err
    assert served.succeed("report", "--compare", run).err == f"Written to {run}-{newest}.html.\n"
    assert served.read(".autoagent/.gitignore") == "*\n", "with -w . the state lies in a repository"


def test_json_may_stand_before_a_subcommand(served: Home, run: str) -> None:
    assert served.succeed("--json", "runs").out == served.succeed("runs", "--json").out
    assert json.loads(served.succeed("--json", "memory", "list").out) == []
    step = served.succeed("--json", "show", run, "--step", "2").out
    assert step == served.succeed("show", run, "--json", "--step", "2").out
    assert min(json.loads(line)["seq"] for line in step.splitlines()) > 0, "only events of the log"


def test_a_run_is_handed_on_as_a_file_that_needs_nothing_else(served: Home, run: str) -> None:
    assert served.run("show", run, "--full", "--export", "run.html").code == 0
    page = served.read("run.html")
    assert 'id="facts"' in page and "src=" not in page and "href=" not in page and "\x1b" not in page
    assert served.run("show", run, "--export", "run.md").code == 0
    assert served.read("run.md").startswith(f"# Run {run}\n\n```\nNAME: ")
    assert served.run("show", run, "--export", "run.pdf").code == 2
    for flags in (("run.md", "--json"), ("run.md", "--prompt", "--step", "1"), ("run.html", "--step", "1")):
        assert served.run("show", run, "--export", *flags).code == 2
    for flag in ("--json", "--full"):
        assert served.run("show", run, "--prompt", "--step", "1", flag).code == 2


def test_a_code_block_of_a_file_does_not_end_the_block_around_the_run(served: Home, server: ScriptedServer) -> None:
    texts = [f"```\n{word}\n```\n" for word in ("one", "two")]
    server.add(*(command("write_to_file", filename="a.md", text=text) for text in texts), *FINISH)
    assert served.run("-c", "-m", "none", *GOAL).code == 0
    assert served.run("show", served.runs[0], "--export", "run.md").code == 0
    assert "\n   ```\n" in (shown := served.read("run.md")), "an unchanged line of the diff is a fence"
    assert shown.startswith(f"# Run {served.runs[0]}\n\n````\n") and shown.endswith("\n````\n")


def test_what_is_longer_than_the_terminal_is_paged(served: Home, run: str) -> None:
    with opened(served.terminal("show", run, "--full", env={"PAGER": "head -n 2", "LINES": "24"})) as session:
        assert session.ends() == 0
        assert session.screen.startswith("NAME: ") and len(session.screen.splitlines()) == 2


def test_runs_have_names_and_stand_in_columns_that_fit(served: Home, server: ScriptedServer, run: str) -> None:
    server.add(*FINISH)
    assert served.run("fork", run, "--at", "1", "--name", "another way", "-c").code == 0
    forked, first = json.loads(served.run("runs", "--json").out)
    assert (forked["name"], forked["parent"], first["name"]) == ("another way", run, "Do the thing")
    for columns, titles in ((40, "RUN RESULT"), (80, "RUN RESULT COST FORK OF NAME")):
        with opened(served.terminal("runs", columns=columns)) as session:
            assert session.ends() == 0
            lines = session.screen.splitlines()
            assert lines[0].split() == titles.split() and "another way" in session.screen
            assert len(lines) == (5 if columns == 40 else 3), "a run takes a line; its name another one, if need be"
    assert served.run("memory", "add", "The ferry leaves at 7:40, " * 9).code == 0
    with opened(served.terminal("memory", "list", columns=40)) as session:
        assert session.ends() == 0
        assert session.screen.splitlines()[0].split()[0] == "ID" and len(session.screen.splitlines()) == 2
