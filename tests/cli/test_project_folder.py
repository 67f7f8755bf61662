"""A wish in a folder of the user's own: where it works, what is said of that, and which folders never become one."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from driver import FINISH, GOAL, Home
from server import Reply, ScriptedServer, command
from test_session import QUESTION, opened

from autoagent.session.load import is_project

WISH = "fix the bug in calc.py"
PROPOSAL = Reply('{"name": "FixGPT", "role": "an AI that mends", "goals": ["Fix the bug in calc.py"]}')
FLAGS = ("-m", "none", "-c")
MEND = command("edit_file", filename="calc.py", old="a - b", new="a + b")
OURS = "autoagent_workspace"
WRONG, RIGHT = "def add(a, b):\n    return a - b\n", "def add(a, b):\n    return a + b\n"


@pytest.fixture
def project(served: Home) -> Home:
    """A folder below the home folder, with a file of the user's."""
    served.write("calc/calc.py", WRONG)
    return Home(served.folder / "calc", {**served.env, "HOME": str(served.folder)}, warm=True)


def workspace(home: Home) -> str:
    return str(home.log()[0]["workspace"])


def test_a_wish_works_in_the_project_and_says_so_in_one_line(project: Home, server: ScriptedServer) -> None:
    subprocess.run(["git", "init", "-q", project.folder], check=True)
    server.add(PROPOSAL, MEND, *FINISH)
    done = project.succeed(*FLAGS, WISH)
    assert done.text.count(f"Working in this folder, {project.folder} (-w DIR for another).") == 1
    assert project.read("calc.py") == RIGHT
    assert workspace(project) == str(project.folder)
    git = ["git", "-C", str(project.folder), "status", "--porcelain"]
    status = subprocess.run(git, capture_output=True, text=True, check=True)
    assert status.stdout == "?? calc.py\n", "nothing of the agent's own lies in the repository"
    undone = project.run("undo", project.runs[0])
    assert (undone.code, project.read("calc.py")) == (0, WRONG), undone.text


def test_a_wish_that_is_typed_does_the_same_and_leaves_no_file_behind(project: Home, server: ScriptedServer) -> None:
    server.add(PROPOSAL, MEND)
    with opened(project.terminal("-m", "none"), ends=6) as session:
        session.sees("Working in this folder")
        session.answers_each(("I want it to:", WISH), ("n = no) [y]:", "y"), (QUESTION, "n"))
    assert workspace(project) == str(project.folder)
    assert {path.name for path in project.folder.iterdir()} == {"calc.py", ".autoagent", ".inputrc"}


def test_what_the_user_names_decides(project: Home, server: ScriptedServer) -> None:
    for flags, env in (((*FLAGS, "-w", "out"), {}), (FLAGS, {"AUTOAGENT_WORKSPACE": "out"})):
        server.add(PROPOSAL, *FINISH)
        done = project.succeed(*flags, WISH, env=env)
        assert "Working in this folder" not in done.text
        assert workspace(project) == str(project.folder / "out")


@pytest.mark.parametrize("file, text", [
    ("ai_settings.yaml", "ai_name: A\nai_role: an AI\nai_goals: [Rest]\n"),
    ("prompt_settings.yaml", "constraints: [Never hurry.]\n"),
    (".env", "RESTRICT_TO_WORKSPACE=True\n"),
    ("auto_gpt_workspace/notes.txt", "The ferry leaves at 7:40."),
])  # fmt: skip
def test_where_autogpt_is_at_home_nothing_changes(project: Home, server: ScriptedServer, file: str, text: str) -> None:
    project.write(file, text)
    server.add(PROPOSAL, *FINISH)
    project.succeed(*FLAGS, WISH)
    expected = "auto_gpt_workspace" if file.startswith("auto_gpt") else "autoagent_workspace"
    assert workspace(project) == str(project.folder / expected)


@pytest.mark.slow
def test_the_demo_before_it_changes_nothing_for_a_wish(project: Home, server: ScriptedServer) -> None:
    assert project.run("--demo", "-c").code == 0
    server.add(PROPOSAL, MEND, *FINISH)
    assert project.run(*FLAGS, WISH).code == 0
    assert (workspace(project), project.read("calc.py")) == (str(project.folder), RIGHT)


def test_goals_given_as_autogpt_takes_them_work_where_they_did(project: Home, server: ScriptedServer) -> None:
    server.add(*FINISH)
    assert project.run(*FLAGS, *GOAL).code == 0
    assert workspace(project) == str(project.folder / "autoagent_workspace")


def test_the_home_folder_is_never_the_workspace(project: Home, server: ScriptedServer) -> None:
    project.env["HOME"] = str(project.folder)
    (project.folder / ".git").mkdir()
    server.add(PROPOSAL, *FINISH)
    assert project.run(*FLAGS, WISH).code == 0
    assert workspace(project) == str(project.folder / "autoagent_workspace")


def test_what_is_a_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "home/me"
    empty, hidden, marked, open_to_all = (home / name for name in ("empty", "hidden", "marked", "open"))
    for folder in (empty, hidden, marked, open_to_all):
        folder.mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    (hidden / ".vscode").mkdir()
    (marked / "package.json").touch()
    (open_to_all / "list.csv").touch()
    open_to_all.chmod(0o1777)
    (hidden / OURS).mkdir()
    none = (Path("/"), Path("/tmp"), tmp_path / "home", home, empty, hidden, open_to_all)
    assert not any(is_project(folder, OURS) for folder in none)
    assert is_project(marked, OURS)
    (open_to_all / ".git").touch()
    assert is_project(open_to_all, OURS)
    assert not is_project(home / "gone", OURS)


def test_the_key_and_the_state_in_the_project_stay_out_of_reach(project: Home, server: ScriptedServer) -> None:
    project.write(".env", "OPENAI_API_KEY=sk-out-of-reach-0123456789\n")
    look = command("execute_shell", command_line="cat .env; ls -A .autoagent; cat .autoagent/id")
    server.add(PROPOSAL, command("read_file", filename=".env"), look, *FINISH)
    assert project.run(*FLAGS, WISH).code == 0
    assert not any("sk-out-of-reach" in request.prompt for request in server.requests)
    assert not any((project.state / "id").read_text().strip() in request.prompt for request in server.requests)
