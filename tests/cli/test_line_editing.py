"""What is typed at a real terminal: arrow keys, pastes, other scripts, an editor, and words with a slash."""

from __future__ import annotations

import os
import pty
import sys
from pathlib import Path

import pytest
from driver import FINISH, GOAL, READY, Home, Session
from server import ScriptedServer, command
from test_session import QUESTION, opened

from autoagent.terminal.line_editor import LineEditor, edit_in_editor

LEFT, UP, ALT_ENTER, CTRL_A = "\x1b[D", "\x1b[A", "\x1b\r", "\x01"
PASTED = "\x1b[200~{}\x1b[201~"
EDITOR = {"EDITOR": 'sh -c \'printf "line one\\nline two\\n" > "$0"\''}


def test_a_name_is_edited_with_arrow_keys_in_any_script(home: Home) -> None:
    with opened(home.terminal("--model", "human", "-m", "none", columns=40)) as session:
        session.answers("Name of the AI", f"BobGT{LEFT}P")
        session.answers("BobGPT is", f"园丁🙂{LEFT}{LEFT}的{CTRL_A}一个")
        session.answers("Goal 1:", PASTED.format("Look after\nthe garden"))
        session.answers("Goal 2:", "")
        session.answers("as the model:\n> ", "\x04")
        assert session.ends() == 6
    saved = home.read("ai_settings.yaml")
    assert all(text in saved for text in ("ai_name: BobGPT", "一个园的丁🙂", "Look after", "the garden"))


def test_a_diff_longer_than_the_terminal_is_shown_in_the_users_pager(served: Home, server: ScriptedServer) -> None:
    pager = served.write("pager", "#!/bin/sh\necho PAGED; cat\n")
    pager.chmod(0o755)
    short, long = ("".join(f"line {number}\n" for number in range(lines)) for lines in (50, 500))
    server.add(*(command("write_to_file", filename="a.txt", text=text) for text in (short, long)))
    with opened(served.terminal("-m", "none", *GOAL, env={"PAGER": str(pager)})) as session:
        session.answers(QUESTION, "d")
        session.sees("line 49")
        session.answers(QUESTION, "y", "d")
        session.sees("PAGED")
        session.sees("line 499")
        session.answers(QUESTION, "n")
        assert session.ends() == 6
    assert session.raw.count("PAGED") == 1


def test_a_paste_arrives_whole_whether_the_terminal_marks_it_or_not(served: Home, server: ScriptedServer) -> None:
    lines = [f"line {number}: grüße 你好 🙂" for number in range(50)]
    server.add(*[command("list_files", directory=".")] * 4)
    with opened(served.terminal("-m", "none", *GOAL)) as session:
        session.answers(QUESTION, PASTED.format("\n".join(lines)), "\r".join(lines), f"one{ALT_ENTER}two", "n")
        assert session.ends() == 6
    feedback = [event["text"] for event in served.log() if event["type"] == "feedback"]
    assert feedback == ["\n".join(lines), "\n".join(lines), "one\ntwo"]


def test_what_was_typed_in_an_earlier_run_comes_back_without_its_secrets(served: Home, server: ScriptedServer) -> None:
    server.add(*[command("list_files", directory=".")] * 4)
    for line in ("Use the key sk-0123456789abcdefghij, then stop", f"{UP} at once"):
        with opened(served.terminal("-m", "none", *GOAL)) as session:
            session.answers(QUESTION, line, "n")
            assert session.ends() == 6
    text = next(event["text"] for event in served.log() if event["type"] == "feedback")
    assert text.startswith("Use the key ") and text.endswith(", then stop at once")
    history = served.folder / ".local/state/autoagent/history"
    assert "sk-0123" not in history.read_text()
    assert history.stat().st_mode & 0o777 == 0o600


def test_the_text_of_a_file_and_feedback_are_written_in_the_editor(served: Home, server: ScriptedServer) -> None:
    server.add(command("write_to_file", filename="a.txt", text="x\ny\n"), *[command("list_files", directory=".")] * 2)
    with opened(served.terminal("-m", "none", *GOAL, env=EDITOR)) as session:
        session.answers(QUESTION, "e", "y", "/write", "n")
        assert session.ends() == 6
    assert served.read("autoagent_workspace/a.txt") == "line one\nline two\n"
    assert "line one\nline two" in [event.get("text") for event in served.log() if event["type"] == "feedback"]


@pytest.mark.parametrize("editor", ["rm -f", "false", "no-such-editor", "unclosed '"])
def test_an_editor_that_leaves_no_text_changes_nothing(monkeypatch: pytest.MonkeyPatch, editor: str) -> None:
    monkeypatch.setenv("EDITOR", editor)
    monkeypatch.delenv("VISUAL", raising=False)
    assert edit_in_editor("text", ".txt") is None


def test_e_edits_what_is_to_be_written_without_an_editor_too(served: Home, server: ScriptedServer) -> None:
    served.write("autoagent_workspace/a.txt", "the old line\n")
    edit = command("edit_file", filename="a.txt", old="the old line", new="the new line")
    server.add(edit, command("list_files", directory="."))
    with opened(served.terminal("-m", "none", *GOAL)) as session:
        session.answers(QUESTION, "e")
        session.sees("Editing new of edit_file (or: e filename, e old).")
        session.sees(READY)
        session.presses(" of mine\r")
        session.answers(QUESTION, "e nothing")
        session.sees("There is no argument nothing; use filename, old, new")
        session.answers(QUESTION, "y", "n")
        assert session.ends() == 6
    assert served.read("autoagent_workspace/a.txt") == "the new line of mine\n"


def test_ctrl_d_saves_and_leaves_and_a_yes_in_other_words_is_asked_again(served: Home, server: ScriptedServer) -> None:
    server.add(command("list_files", directory="."))
    with opened(served.terminal("-m", "none", *GOAL)) as session:
        session.answers(QUESTION, "ok, run it")
        session.sees("y runs it; anything else that you type is feedback. Nothing was run.")
        session.answers(QUESTION, "?")
        session.sees("NAME: an argument")
        session.sees(QUESTION)
        lines = session.screen.split("> ?\n")[1].split("Run it?")[0].splitlines()
        assert len(lines) <= 20 and all(line[12] != " " and line[11] == " " for line in lines[1:]), lines
        session.presses("/budg\t\r")
        session.sees("Cost")
        session.sees(QUESTION)
        session.presses("\x04")
        assert session.ends() == 6
        assert "STOPPED: Saved, by Ctrl-D." in session.screen and "pass -c" not in session.screen
    assert len(server.requests) == 1


def test_lines_typed_at_once_stay_two_and_a_wish_comes_back(home: Home) -> None:
    with opened(home.terminal("--model", "human", "-m", "none")) as session:
        session.sees("Name of the AI")
        session.sees(READY)
        session.presses("BobGPT\rwho keeps the books\r")
        session.answers("Goal 1:", "Keep the books")
        session.answers("Goal 2:", "")
        session.answers("as the model:\n> ", "\x04")
        assert session.ends() == 6
    saved = home.read("ai_settings.yaml")
    assert "ai_name: BobGPT\n" in saved and "ai_role: who keeps the books\n" in saved
    with opened(home.terminal("--model", "human", "-m", "none")) as session:
        session.answers("e = edit) [y]:", "n")
        session.answers("Name of the AI", f"{UP}{UP}{UP}")
        session.sees("who keeps the books is [")
        session.presses("\x03")
        assert session.ends() == 130


DECISION = """
from autoagent.terminal.answers import ClickTerminal
terminal = ClickTerminal()
print(terminal.ask("Name?"), terminal.decide("Trust it? (y/n)"))
"""


def test_what_was_typed_before_a_yes_or_no_question_does_not_answer_it(home: Home) -> None:
    line, environment = [sys.executable, "-c", DECISION], home._environment({"TERM": "xterm-256color"})
    with opened(Session.of(line, home.folder, environment, 80, edits=True)) as session:
        session.sees(READY)
        session.presses("Bob\ry\r")
        session.answers("(y/n)", "n")
        session.sees("Bob False")
        assert session.ends() == 0


SIGNALLED = """
import os, signal, sys
import prompt_toolkit.input.vt100, prompt_toolkit.output.vt100
from autoagent.terminal.line_editor import LineEditor
number = signal.Signals[sys.argv[1]]
signal.signal(signal.SIGTERM, lambda *_: print("ended by SIGTERM"))
came = []
def loop_opened(event, arguments):
    if event == "socket.__new__" and not came:
        came.append(event)
        signal.raise_signal(number)
sys.addaudithook(loop_opened)
try:
    LineEditor(sys.stdin, sys.stdout, None, str).read("What now? ")
except (EOFError, KeyboardInterrupt) as error:
    print(type(error).__name__)
"""


@pytest.mark.parametrize(
    ("name", "shown"), [("SIGINT", "KeyboardInterrupt"), ("SIGTERM", "ended by SIGTERM\nEOFError")]
)
def test_a_signal_while_the_editor_opens_ends_the_question_and_leaves_nothing_open(
    tmp_path: Path, name: str, shown: str
) -> None:
    line = [sys.executable, "-W", "error", "-c", SIGNALLED, name]
    with opened(Session.of(line, tmp_path, {**os.environ, "TERM": "xterm"}, 80)) as session:
        session.sees(shown)
        assert session.ends() == 0


def test_a_run_is_shown_in_a_pager_that_is_told_of_the_colours(served: Home, server: ScriptedServer) -> None:
    server.add(*FINISH)
    assert served.run("-c", "-m", "none", *GOAL).code == 0
    for name, colours in (("less", "\x1b[1m"), ("more", "NAME:")):
        pager = served.write(f"bin/{name}", f"#!/bin/sh\necho PAGED BY {name} $LESS; cat\n")
        pager.chmod(0o755)
        env = {"PAGER": str(pager), "LESS": "-FX", "LINES": "5", "COLUMNS": "80"}
        with opened(served.terminal("show", served.runs[0], env=env)) as session:
            assert session.ends() == 0
        shown = session.raw.split(f"PAGED BY {name} ")[1]
        assert shown.startswith("-R -FX\r\n") and shown.split("\r\n")[1].startswith(colours)


def test_a_word_behind_a_slash_costs_no_call(served: Home, server: ScriptedServer) -> None:
    server.add(command("list_files", directory="."), *[command("do_nothing")] * 2)
    with opened(served.terminal("-m", "none", "--ai-goal", "Do it :: false")) as session:
        session.answers(QUESTION, "/cots")
        session.sees("There is no /cots; use /cost, ")
        for word, answer in {
            "/cost": "Tokens: 220",
            "/context": "Prompt: ",
            "/memory": "No memory was recalled",
            "/help": "/continuous: ",
            "/continuous x": "takes a number",
        }.items():
            session.answers(QUESTION, word)
            session.sees(answer.split(": ")[0])
        session.answers(QUESTION, "/goals")
        session.sees("not checked yet")
        session.answers("Enter = done\n> ", "")  # they stay as they are, and nothing is told
        assert len(server.requests) == 1
        session.answers(QUESTION, "/continuous 2", "q")
        assert session.ends() == 6
    assert [event["type"] for event in served.log()].count("started") == 2


def test_a_terminal_that_is_closed_before_its_signal_arrives_ends_the_input() -> None:
    (keyboard, stdin), (window, screen) = pty.openpty(), pty.openpty()
    with os.fdopen(stdin) as lines, os.fdopen(screen, "w") as shown:
        os.close(window)
        with pytest.raises(EOFError):
            LineEditor(lines, shown, None, str).read("> ")
        os.dup2(keyboard, screen)  # takes what the closed window did not
    os.close(keyboard)
