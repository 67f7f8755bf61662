"""The commands that run programs: through the registry as the loop runs them, in a real sandbox, with real programs."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from fakes import Commands, nobody_asked
from processes import PATIENCE, wait_for

from autoagent.commands import code
from autoagent.commands.context import Context
from autoagent.commands.registry import Registry
from autoagent.commands.support.shell_lines import shell_rule
from autoagent.core.commands import Proposal, Result, ResultMeta
from autoagent.core.errors import ModelError
from autoagent.memory.none import NoMemory
from autoagent.sandbox.process import ProcessLimits
from autoagent.sandbox.programs import open_sandbox
from autoagent.settings import Settings
from autoagent.workspace.gate import Workspace


@dataclass(frozen=True)
class Room(Commands):
    """The code commands over one workspace."""

    def run(self, name: str, /, **args: Any) -> Result:
        """Propose the call and run it, as the loop does."""
        return self.execute(self.propose(name, **args))

    def execute(self, proposal: Proposal) -> Result:
        return self.registry.execute(proposal.call, replace(self.context, shown=proposal.preview))

    def under(self, **settings: Any) -> Room:
        """The same with lists of programs."""
        return self.having(shell_rule=shell_rule(Settings(**settings), self.root, ["/usr/bin", "/bin"]))


@pytest.fixture
def ws(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Room]:
    workspace = Workspace(tmp_path / "ws", [tmp_path / "ws" / "own"])
    limits = ProcessLimits(seconds=getattr(request, "param", 30))
    with closing(open_sandbox(workspace, limits, kind="none")) as sandbox:
        yield Room(Context(workspace, NoMemory(), nobody_asked, sandbox=sandbox), Registry(code.COMMANDS))


# how a program ended ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("echo hello", "Exit status 0. It printed:\nhello\n"),
        ("true", "Exit status 0; nothing was printed."),
        ("false", "Exit status 1; nothing was printed."),
        ("echo no >&2; exit 3", "Exit status 3. It printed:\nno\n"),
        ("exit 139", "Exit status 139 (a program that it ran was ended by SIGSEGV); nothing was printed."),
        ("exit 255", "Exit status 255; nothing was printed."),
        ("kill -KILL $$", "Ended by SIGKILL; nothing was printed."),
        ("kill -SEGV $$", "Ended by SIGSEGV; nothing was printed."),
    ],
)
def test_status_or_signal_is_named(ws: Room, line: str, text: str) -> None:
    assert ws.text("execute_shell", command_line=line) == text


def test_what_is_not_there_or_cannot_be_run_is_named(ws: Room) -> None:
    text = ws.text("execute_shell", command_line="no-such-program")
    assert text.startswith("Exit status 127 (a program that it ran was not found). It printed:\n")
    assert "no-such-program" in text
    (ws.root / "plain").write_text("x")
    text = ws.text("execute_shell", command_line="./plain")
    assert text.startswith("Exit status 126 (a program that it ran is not executable). It printed:\n")
    text = ws.text("execute_shell", command_line="touch made; echo 'x")  # the quotes are unbalanced
    assert text.startswith("Exit status 2. It printed:\n")
    assert not (ws.root / "made").exists()


def test_how_a_program_ended_whether_it_failed_and_whether_it_only_waits_is_told(ws: Room) -> None:
    def meta(line: str) -> ResultMeta:
        result = ws.run("execute_shell", command_line=line)
        assert result.ok
        return result.meta

    assert meta("exit 3").to_json() == {"exit": 3, "signal": "", "limit": "", "failed": True}
    assert meta("kill -KILL $$").to_json()["signal"] == "SIGKILL"
    failed = [meta(line).failed for line in ("true", "false", "echo no; exit 1", "exit 2", "kill -KILL $$")]
    assert failed == [False, False, True, True, True], "1 without a word is an answer, as of grep"
    assert meta("true").waits is None
    assert meta("sleep 0").waits is False
    assert ws.run("list_programs").meta.waits is False
    pid = ws.run("execute_shell_popen", command_line="exec sleep 1000").meta.to_json()["pid"]
    assert meta("sleep 0; ls").waits is True
    assert ws.run("list_programs").meta.waits is True
    ws.text("stop_program", pid=pid)
    assert ws.run("list_programs").meta.waits is False


@pytest.mark.slow
@pytest.mark.parametrize("ws", [1], indirect=True, ids=["of a second"])
def test_a_limit_is_named_with_what_came_before_it(ws: Room) -> None:
    text = ws.text("execute_shell", command_line="echo begun; sleep 1000")
    assert text == "Stopped at the limit of 1 s. It printed:\nbegun\n"
    text = ws.text("execute_python_code", code="print('begun')\nwhile True: pass", name="busy")
    assert text == "Stopped at the limit of 1 s. It printed:\nbegun\n"


@pytest.mark.parametrize("line", ["read x", "cat", "python3 -c 'input()'", "ssh-add x </dev/tty", "sudo -S true"])
def test_what_asks_finds_nobody_and_ends_by_itself(ws: Room, line: str) -> None:
    started = time.monotonic()
    assert ws.text("execute_shell", command_line=line).startswith("Exit status ")
    assert time.monotonic() - started < PATIENCE


# what it printed ----------------------------------------------------------------------------------------------------


def test_both_streams_come_in_their_order(ws: Room) -> None:
    line = "for i in 1 2 3; do echo out $i; echo err $i >&2; done"
    printed = "out 1\nerr 1\nout 2\nerr 2\nout 3\nerr 3\n"
    assert ws.text("execute_shell", command_line=line) == f"Exit status 0. It printed:\n{printed}"
    program = "import sys\nfor i in 1, 2, 3:\n    print('out', i)\n    print('err', i, file=sys.stderr)\n"
    assert ws.text("execute_python_code", code=program, name="both") == f"Exit status 0. It printed:\n{printed}"


@pytest.mark.parametrize(
    ("line", "printed"),
    [
        (r"printf 'caf\351\n'", "caf\ufffd\n"),
        (r"printf 'a\0b\n'", "a\0b\n"),
        (r"printf '10%%\r 50%%\r100%%\ndone\n'", "100%\ndone\n"),
        (r"printf '1\r2\r3\r'", "3"),
        (r"printf 'dos\r\nlines\r\n'", "dos\nlines\n"),
    ],
)
def test_what_is_no_plain_text_is_made_readable(ws: Room, line: str, printed: str) -> None:
    assert ws.text("execute_shell", command_line=line) == f"Exit status 0. It printed:\n{printed}"


@pytest.mark.parametrize(
    ("line", "total"), [("head -c 2000000 /dev/zero | tr '\\0' x", 2_000_000), ("yes xx | head -n 500000", 1_500_000)]
)
def test_an_output_of_more_than_a_megabyte_is_cut_with_its_size(ws: Room, line: str, total: int) -> None:
    text = ws.text("execute_shell", command_line=f"echo head; {line}; echo; echo tail")
    assert text.startswith("Exit status 0. It printed:\nhead\nxx")
    assert text.endswith("\ntail\n")
    left_out = total + 11 - ProcessLimits().head_bytes - ProcessLimits().tail_bytes
    assert f"\n[... {left_out:,} of {total + 11:,} bytes left out ...]\n" in text
    text = ws.text("execute_shell", command_line="yes xx | head -n 300000")
    assert text == "Exit status 0. It printed:\n" + "xx\n" * 300_000


# shell lines --------------------------------------------------------------------------------------------------------


def test_a_shell_line_runs_in_the_workspace_with_a_clean_environment(ws: Room) -> None:
    assert ws.text("execute_shell", command_line="pwd").endswith(f"\n{ws.root}\n")
    assert "PYTEST_CURRENT_TEST" in os.environ
    assert "PYTEST_CURRENT_TEST" not in ws.text("execute_shell", command_line="env")


@pytest.mark.parametrize(
    ("line", "refusal"),
    [
        ("echo a\0b", "The command holds a null character, which no argument of a program can hold."),
        ("echo \ud83d", "The command holds '\\ud83d', which is not valid Unicode."),
        (" \n", "The command is empty."),
        (
            "echo " + "x" * 3_000_000,
            "The command has 3,000,005 bytes, and the system takes 131,071 at most (E2BIG): "
            "write it to a file and run that.",
        ),
    ],
)
@pytest.mark.parametrize("name", ["execute_shell", "execute_shell_popen"])
def test_a_line_that_cannot_be_run_is_refused(ws: Room, name: str, line: str, refusal: str) -> None:
    proposal = ws.propose(name, command_line=line)
    assert proposal.preview == f"This will fail: {refusal}"
    assert ws.execute(proposal).text == refusal


@pytest.mark.slow
def test_the_longest_line_runs(ws: Room) -> None:
    line = "echo " + "x" * (code.MAX_LINE_BYTES - 5)
    assert ws.text("execute_shell", command_line=line).startswith("Exit status 0. It printed:\nxxx")


def test_a_proposal_names_programs_and_risk(ws: Room) -> None:
    proposal = ws.propose("execute_shell", command_line="rm -rf x | cat")
    assert (proposal.preview, proposal.risk, proposal.changes) == ("Runs in a shell: rm, cat.", "irreversible", True)
    assert ws.propose("execute_shell_popen", command_line="curl http://x").risk == "network"
    assert ws.propose("execute_shell", command_line="$x").preview == "Runs in a shell: $x."
    assert ws.propose("execute_shell", command_line="# x").risk == "run"


def test_a_list_takes_the_place_of_the_shell(ws: Room) -> None:
    listed = ws.under(shell_command_control="allowlist", shell_allowlist=("echo",))
    assert listed.text("execute_shell", command_line="echo '$x;' *") == "Exit status 0. It printed:\n$x; *\n"
    assert listed.propose("execute_shell", command_line="echo x").preview == "Runs /usr/bin/echo, without a shell."
    for line in ("echo x > f", "echo x | sh", "touch f", "echo 'x"):
        assert listed.propose("execute_shell", command_line=line).preview.startswith("This will fail: ")
        assert listed.refusal("execute_shell", command_line=line)
        assert listed.refusal("execute_shell_popen", command_line=line)
    assert list(ws.root.iterdir()) == []


def test_shell_commands_can_be_switched_off() -> None:
    off = {c.spec.name for c in code.COMMANDS if c.available and c.available(Settings(execute_local_commands=False))}
    assert off == {"execute_shell", "verify", "execute_shell_popen", "list_programs", "stop_program"}
    assert not any(c.available(Settings()) for c in code.COMMANDS if c.available)


# background programs ------------------------------------------------------------------------------------------------


def test_a_program_in_the_background_is_listed_and_ended(ws: Room) -> None:
    assert ws.text("list_programs") == "No program was started in the background."
    result = ws.run("execute_shell_popen", command_line="echo begun; sleep 1000")
    pid = result.meta.to_json()["pid"]
    assert result.text == (
        f"Started as program {pid}. What it prints goes to background/echo-1.log; wait_for waits for its end, "
        "stop_program ends it."
    )
    assert result.meta.to_json()["changed"] == ["background/echo-1.log"]
    log = ws.root / "background" / "echo-1.log"
    wait_for(lambda: log.read_text() == "begun\n")
    assert ws.text("list_programs").startswith(f"{pid}: running; ")
    assert ws.text("stop_program", pid=pid).startswith(f"{pid}: ended by SIG")
    assert ws.text("list_programs").endswith("prints to background/echo-1.log")
    assert "running" not in ws.text("list_programs")
    assert ws.refusal("stop_program", pid=1) == "There is no started program with pid 1."


def test_each_background_program_has_a_log_of_its_own(ws: Room) -> None:
    for line in ("/bin/echo 1", "echo 2", "./no-such; exit 4"):
        ws.text("execute_shell_popen", command_line=line)
    wait_for(lambda: "running" not in ws.text("list_programs"))
    logs = sorted(path.name for path in (ws.root / "background").iterdir())
    assert logs == ["echo-1.log", "echo-2.log", "no-such-1.log"]
    assert (ws.root / "background" / "echo-2.log").read_text() == "2\n"
    assert "exit status 4; " in ws.text("list_programs")


# Python -------------------------------------------------------------------------------------------------------------


def test_python_code_is_kept_and_run_if_it_is_text(ws: Room) -> None:
    proposal = ws.propose("execute_python_code", code="print(6 * 7)\n", name="answer")
    assert proposal.preview == ("--- /dev/null\n+++ b/executed_code/answer.py\n@@ -0,0 +1 @@\n+print(6 * 7)")
    assert not list(ws.root.iterdir())
    result = ws.execute(proposal)
    assert (result.text, result.meta.changed) == ("Exit status 0. It printed:\n42\n", ("executed_code/answer.py",))
    assert (ws.root / "executed_code" / "answer.py").read_text() == "print(6 * 7)\n"
    again = ws.propose("execute_python_code", code="print(6 * 7)\n", name="answer.py")
    assert again.preview == "Runs executed_code/answer.py, which holds this code already:\nprint(6 * 7)\n"
    assert again.changes
    refusal = ws.refusal("execute_python_code", code="'\ud83d'", name="x")
    assert refusal == "The text holds '\\ud83d' at position 1, which utf-8 cannot encode."


@pytest.mark.parametrize(
    "name",
    ["../../../main.py", "/etc/x", "a/b.py", "", " ", ".", "..", "x/", "a\0b", "a\nb", "x" * 5000, "\ud83d", "~/x"],
)
def test_code_is_kept_nowhere_else(ws: Room, name: str) -> None:
    assert ws.propose("execute_python_code", code="print(1)", name=name).preview.startswith("This will fail: ")
    assert ws.refusal("execute_python_code", code="print(1)", name=name)
    assert [path.name for path in ws.root.parent.rglob("*")] == ["ws"]


@pytest.mark.parametrize("name", ["-rf", "a b;c", "$(x)", "*", "__init__"])
def test_an_odd_name_is_a_plain_name(ws: Room, name: str) -> None:
    text = ws.text("execute_python_code", code="import sys; print(sys.argv)", name=name)
    assert text == f"Exit status 0. It printed:\n['executed_code/{name}.py']\n"


def test_a_program_finds_what_it_would_find_run_by_its_name(ws: Room) -> None:
    program = (
        "import sys, near\n"
        "names = [n for n in globals() if not n.startswith('__')]\n"
        "print(__name__, __file__, sys.argv, sys.path[0], sorted(names), near.here)\n"
        "assert sys.modules['__main__'].near is near\n"
        "print(repr(sys.stdin.read()))\n"
    )
    (ws.root / "sub").mkdir()
    (ws.root / "sub" / "near.py").write_text("here = 'near'\n")
    (ws.root / "sub" / "main.py").write_text(program)
    printed = ws.text("execute_python_file", filename="sub/main.py", args=["a b", "-x", "3"])
    assert printed == (
        f"Exit status 0. It printed:\n__main__ {ws.root}/sub/main.py ['sub/main.py', 'a b', '-x', '3'] "
        f"{ws.root}/sub ['near', 'sys'] near\n''\n"
    )
    assert not (ws.root / "sub" / "__pycache__").exists()


def test_a_traceback_is_that_of_the_program(ws: Room) -> None:
    text = ws.text("execute_python_code", code="def f():\n    return 1 / 0\nf()\n", name="bad")
    lines = text.split("\n")
    assert lines[:4] == [
        "Exit status 1. It printed:",
        "Traceback (most recent call last):",
        f'  File "{ws.root}/executed_code/bad.py", line 3, in <module>',
        "    f()",
    ]
    assert "ZeroDivisionError: division by zero" in lines
    text = ws.text("execute_python_code", code="x = = 1\n", name="bad")
    assert text.startswith(f'Exit status 1. It printed:\n  File "{ws.root}/executed_code/bad.py", line 1\n')
    assert "SyntaxError: invalid syntax" in text
    assert ws.text("execute_python_code", code="raise SystemExit(7)", name="bad").startswith("Exit status 7;")


def test_source_may_be_in_another_encoding(ws: Room) -> None:
    (ws.root / "x.py").write_bytes(b"# -*- coding: latin-1 -*-\nprint('caf\xe9')\n")
    assert ws.text("execute_python_file", filename="x.py") == "Exit status 0. It printed:\ncafé\n"
    (ws.root / "empty.py").write_bytes(b"")
    assert ws.text("execute_python_file", filename="empty.py") == "Exit status 0; nothing was printed."


@pytest.mark.parametrize(
    ("name", "refusal"),
    [
        ("link.py", "'link.py' is a symbolic link; name the file itself."),
        ("out.py", "'out.py' is a symbolic link; name the file itself."),
        ("folder.py", "'folder.py' is a folder, not a file."),
        ("notes.txt", "'notes.txt' is not a Python file: its name must end in .py."),
        ("no.py", "There is no 'no.py' in the workspace."),
        ("binary.py", "'binary.py' is a binary file, not Python source."),
        ("big.py", "'big.py' is larger than 1,000,000 bytes, too large to be run."),
        ("own", "'own' belongs to the agent itself and can be neither read nor written."),
    ],
)
def test_only_a_python_file_is_run(ws: Room, name: str, refusal: str) -> None:
    for path in ("x.py", "notes.txt"):
        (ws.root / path).write_text("print(1)")
    (ws.root / "link.py").symlink_to("x.py")
    (ws.root / "out.py").symlink_to("/etc/hostname")
    (ws.root / "folder.py").mkdir()
    (ws.root / "binary.py").write_bytes(b"\0")
    (ws.root / "big.py").write_bytes(b"#" * 1_000_001)
    assert ws.propose("execute_python_file", filename=name).preview == f"This will fail: {refusal}"
    assert ws.refusal("execute_python_file", filename=name) == refusal


def test_what_runs_is_what_was_shown(ws: Room) -> None:
    (ws.root / "x.py").write_text("print('good')\n")
    proposal = ws.propose("execute_python_file", filename="x.py")
    digest = hashlib.sha256(b"print('good')\n").hexdigest()
    assert proposal.preview == f"Runs x.py (14 bytes, SHA-256 {digest}):\nprint('good')\n"
    (ws.root / "x.py").write_text("open('harm', 'w')\n")
    result = ws.execute(proposal)
    assert (result.ok, result.text) == (
        False,
        "x.py is no longer what was shown when it was allowed; it was not run. Try again.",
    )
    assert not (ws.root / "harm").exists()
    early = ws.propose("execute_python_file", filename="later.py")
    (ws.root / "later.py").write_text("open('harm', 'w')\n")
    assert not ws.execute(early).ok
    assert not (ws.root / "harm").exists()


def test_the_bytes_that_were_checked_run_whatever_the_file_holds_by_then(ws: Room) -> None:
    program = "import pathlib, sys\nprint(pathlib.Path(__file__).read_text())\n"
    (ws.root / "x.py").write_text(program)
    proposal = ws.propose("execute_python_file", filename="x.py")
    inner = ws.context.sandbox

    class Late:
        """A sandbox in which the file is changed in the very last moment."""

        def __getattr__(self, name: str) -> Any:
            (ws.root / "x.py").write_text("changed")
            return getattr(inner, name)

    assert ws.having(sandbox=Late()).execute(proposal).text == "Exit status 0. It printed:\nchanged\n"


# asking the model ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "args", "asked"),
    [
        ("analyze_code", {"code": "x = 1"}, ["improved", "\n```\nx = 1\n```"]),
        ("evaluate_code", {"code": "x = 1"}, ["improved", "\n```\nx = 1\n```"]),
        ("improve_code", {"suggestions": ["a", "b"], "code": "x"}, ["\n- a\n- b\n", "\n```\nx\n```"]),
        ("write_tests", {"code": "x", "focus": ["edges"]}, ["\n- edges\n", "\n```\nx\n```"]),
        ("analyze_code", {"code": "s = '```'"}, ["\n````\ns = '```'\n````"]),
    ],
)
def test_the_model_is_asked_about_code(ws: Room, name: str, args: dict[str, Any], asked: list[str]) -> None:
    prompts: list[str] = []
    answering = ws.having(complete=lambda prompt: prompts.append(prompt) or "an answer")
    assert answering.text(name, **args) == "an answer"
    assert all(part in prompts[0] for part in asked)


def test_a_model_that_fails_fails_the_command_alone(ws: Room) -> None:
    def complete(prompt: str) -> str:
        raise ModelError("The endpoint is down.")

    refusal = ws.having(complete=complete).refusal("analyze_code", code="x")
    assert refusal == "The model gave no answer: The endpoint is down."
    assert ws.refusal("analyze_code", code="x") == "There is no model here to ask."
