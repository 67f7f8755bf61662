"""A locale without UTF-8: names of files, goals and texts in any script work all the same."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from driver import FINISH, Home
from server import ScriptedServer, command

NAME = "π中.txt"
C = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}


@pytest.fixture
def latin(tmp_path: Path) -> dict[str, str]:
    """The environment of a terminal in ISO 8859-1."""
    if not shutil.which("localedef"):
        pytest.skip("no localedef to make the locale with")
    made = subprocess.run(["localedef", "-i", "en_US", "-f", "ISO-8859-1", tmp_path / "en_US.ISO-8859-1"], check=False)
    if made.returncode != 0:
        pytest.skip("the sources of the locale are not installed")
    return {"LC_ALL": "en_US.ISO-8859-1", "LOCPATH": str(tmp_path)}


def script(server: ScriptedServer) -> None:
    server.add(
        command("write_to_file", filename=NAME, text="größe π\n"),
        command("edit_file", filename=NAME, old="größe", new="Höhe"),
        command("execute_shell", command_line="cat *.txt"),
        command("list_files"),
        command("read_file", filename="fehlt-ü.txt"),
        command("execute_python_code", code=f"print(open('{NAME}', encoding='utf-8').read())", name="ö.py"),
        *FINISH,
    )


def check(home: Home, server: ScriptedServer) -> None:
    assert home.read(f"autoagent_workspace/{NAME}") == "Höhe π\n"
    told = [event["text"] for event in home.log() if event["type"] == "returned"]
    assert told[2] == "Exit status 0. It printed:\nHöhe π\n"
    assert told[3] == NAME
    assert told[4] == "There is no 'fehlt-ü.txt' in the workspace."
    assert "Schreibe über π" in server.requests[0].prompt
    assert home.log()[-1]["status"] == "finished"


@pytest.mark.slow
@pytest.mark.parametrize(
    "env",
    [
        C,
        pytest.param({**C, "PYTHONUTF8": ""}, marks=pytest.mark.slow),
        pytest.param({**C, "PYTHONCOERCECLOCALE": ""}, marks=pytest.mark.slow),
        pytest.param({"LC_ALL": "POSIX"}, marks=pytest.mark.slow),
    ],
)
def test_a_locale_of_ascii(served: Home, server: ScriptedServer, env: dict[str, str]) -> None:
    script(server)
    done = served.succeed("-c", "--ai-goal", "Schreibe über π", "-m", "none", env=env)
    check(served, server)
    if env is C:
        assert "\\u03c0\\u4e2d.txt" in done.text, "what the terminal lacks is an escape"
        assert "1. Schreibe \\xfcber \\u03c0" in done.text


@pytest.mark.slow
def test_undo_and_listings_in_a_locale_of_ascii(served: Home, server: ScriptedServer) -> None:
    script(server)
    assert served.run("-c", "--ai-goal", "Schreibe über π", "-m", "none", env=C).code == 0
    for arguments in (["runs"], ["show", served.runs[0]], ["replay", served.runs[0], "--verify"], ["config"]):
        served.succeed(*arguments, env=C)
    served.succeed("undo", served.runs[0], "--to", "0", env=C)
    assert not (served.folder / "autoagent_workspace" / NAME).exists()


@pytest.mark.slow
def test_an_answer_is_read_in_a_locale_of_ascii(served: Home, server: ScriptedServer) -> None:
    script(server)
    served.exits(6, "--ai-goal", "x", "-m", "none", stdin="Nimm größere Wörter π\nn\n", env=C)
    assert "Human feedback: Nimm größere Wörter π" in server.requests[1].prompt


def test_a_folder_whose_name_is_no_text(served: Home, server: ScriptedServer) -> None:
    folder = Path(os.fsdecode(os.fsencode(served.folder) + b"/caf\xe9"))
    folder.mkdir()
    here = Home(folder, env=served.env)
    server.add(*FINISH)
    here.succeed("-c", "-m", "none", "--accept-claims", "--ai-goal", "x", "--state-dir", str(folder / "state"))
    here.succeed("--state-dir", str(folder / "state"), "report", "-o", "run.html")


def test_a_terminal_in_latin_1(served: Home, server: ScriptedServer, latin: dict[str, str]) -> None:
    script(server)
    served.write("ai_settings.yaml", "ai_name: A\nai_role: a writer\nai_goals: [Schreibe über π]\n")
    with (served.folder / "screen").open("w") as screen:
        done = served.run("-c", "-y", "-m", "none", env=latin, stdout=screen)
    assert done.code == 0, done.err
    check(served, server)
    assert "1. Schreibe über \\u03c0".encode("latin-1") in (served.folder / "screen").read_bytes()
