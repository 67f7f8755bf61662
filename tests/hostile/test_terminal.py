"""D49 to D54: what a person sees before a command, what is taken for an answer, and screens that are none."""

from __future__ import annotations

import re
import shlex
import shutil
import signal
from contextlib import closing

import pytest
from cli.driver import FINISH, GOAL, Session
from server import THOUGHTS, Command, command

from .driver import Room, shell, write

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("either")]  # a process for each

QUESTION = "? = help)\n> "
CONTROL = re.compile(r"[^\n\x20-\x7e\xa0-\U0010ffff]")  # in plain text, but for the ends of lines


def shown(made: Room, *replies: Command, answers: str = "n\n", **env: str) -> str:
    """What stands before the question about the last of these commands; they are not run."""
    with made.served(*replies):
        done = made.run("-m", "none", *GOAL, stdin=answers, env={"COLUMNS": "100", **env})
    assert done.code == 6, done.text
    return done.text


def test_d49_codes_in_thoughts_are_shown_escaped(made: Room) -> None:
    hostile = "\x1b[2J\x1b]0;owned\x07\x1b[8mhidden\x9b31m\r\bover"
    thoughts = {**THOUGHTS, "text": hostile, "speak": hostile}
    text = shown(made, Command("write_to_file", {"filename": "a.txt", "text": hostile}, thoughts))
    assert "\\x1b[2J" in text
    for code in ("\x1b", "\x07", "\x9b", "\x08"):
        assert code not in text


def test_d50_invisible_and_disguised_characters_are_shown(made: Room) -> None:
    line = "echo a\u202eb\u200bc\U000e0041d; \u0430pt install x"
    text = shown(made, shell(line))
    for character in ("\u202e", "\u200b", "\U000e0041"):
        assert character not in text
    for escape in ("\\u202e", "\\u200b", "\\U000e0041"):
        assert escape in text
    assert "mixed" in text or "\\u0430" in text or "Cyrillic" in text


@pytest.mark.parametrize("blank", [" " * 2000, "\n" * 2000])
def test_d51_a_payload_behind_much_else_is_not_lost(made: Room, blank: str) -> None:
    text = shown(made, shell(f"true{blank}; touch payload"))
    assert "touch payload" in text
    assert len(text.splitlines()) < 200


def test_d51_of_a_long_argument_the_whole_can_be_seen(made: Room) -> None:
    line = "true " + "x" * 50_000 + " ; touch payload ; " + "y" * 50_000 + " end"
    short = shown(made, shell(line))
    assert "d, a" in short or "d = " in short or "whole" in short
    assert "100," in short, "how long it is"
    whole = shown(made, shell(line), answers="d\nn\n")
    assert ";touchpayload;" in "".join(whole.split())


def test_d52_what_was_approved_is_what_runs(made: Room) -> None:
    variable = "$HOME ${IFS} ~ * {a,b}"
    with made.served(command("write_to_file", file="old-name.txt", text=variable), *FINISH):
        done = made.succeed("-m", "none", *GOAL, stdin="y -3\n")
    assert "filename = old-name.txt" in done.text
    assert f"+{variable}" in done.text
    events = {event["type"]: event for event in made.log() if event["step"] == 1}
    assert events["thought"]["call"] == events["started"]["call"]
    assert (made.workspace / "old-name.txt").read_text() == variable


# What is typed, and what comes of the one command that waits: it runs, it is asked again, or the model reads the words.
RUNS = ("y", " Y ", "Yes", "y -1")
ASKS_AGAIN = ("y && rm x", "y -0", "y --5", "y -999999999999", "y -1.5", "y -abc", "y -", "y 5x", "", "\u0443")
FEEDBACK = ("rather not", "yellow is nicer", "paste " * 170_000)


def test_d53_the_grammar_of_answers(made: Room) -> None:
    """One run: what is no answer is typed at the first question; then each answer is given to a command of its own."""
    running = [write(f"ran-{number}", "") for number in range(len(RUNS))]
    refused = [write(f"refused-{number}", "") for number in range(len(FEEDBACK))]
    with made.served(*running, *refused, command("do_nothing")) as server:
        done = made.run("-m", "none", *GOAL, stdin="\n".join([*ASKS_AGAIN, *RUNS, *FEEDBACK, "n", ""]))
        prompts = [request.prompt for request in server.requests]
    assert done.code == 6, done.text
    assert {path.name for path in made.workspace.iterdir()} == {f"ran-{number}" for number in range(len(RUNS))}
    assert len(prompts) == len(RUNS) + len(FEEDBACK) + 1, "what is asked again never goes to the model"
    for number, line in enumerate(FEEDBACK, len(RUNS) + 1):
        assert line[:1000] in prompts[number]
        assert len(prompts[number]) < 200_000


def test_d53_keys_of_the_terminal(made: Room) -> None:
    with made.served(write("ran", ""), *FINISH), closing(made.terminal("-m", "none", *GOAL)) as session:
        session.sees(QUESTION)
        session.is_sent(signal.SIGWINCH)
        session.presses_ctrl_c()
        session.sees(QUESTION)
        session.presses_ctrl_c()
        assert session.ends() == 130
    assert not (made.workspace / "ran").exists()
    with made.served(write("ran", "")), closing(made.terminal("-m", "none", *GOAL)) as session:
        session.sees(QUESTION)
        session.presses("\x04")
        assert session.ends() == 6
    assert not (made.workspace / "ran").exists()


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash, which puts programs aside, is not installed")
def test_d53_put_aside_and_taken_up_again(made: Room) -> None:
    """Ctrl-Z and fg."""
    with made.served(write("ran", ""), *FINISH):
        environment = made._environment({"TERM": "xterm-256color", "PS1": "SHELL> "})
        made.write(".inputrc", "set enable-bracketed-paste off\n")
        session = Session.of(["bash", "--noprofile", "--norc", "-i"], made.folder, environment, 200)
        try:
            session.answers("SHELL> ", shlex.join([*made.program, "-m", "none", *GOAL]))
            session.sees(QUESTION)
            session.presses("\x1a")
            session.sees("Stopped")
            session.answers("SHELL> ", "fg")
            session.sees("autoagent")
            session.types("y -3")
            session.answers("What next?", "")
            session.answers("SHELL> ", "exit $?")
            assert session.ends() == 0
        finally:
            session.close()
    assert (made.workspace / "ran").exists()


def test_d53_a_large_text_that_is_pasted_is_feedback_as_a_whole(made: Room) -> None:
    paste = "pasted " * 15_000
    with (
        made.served(write("ran", ""), command("do_nothing")) as server,
        closing(made.terminal("-m", "none", *GOAL)) as session,
    ):
        session.sees(QUESTION)
        session.pastes(paste)
        session.answers(QUESTION, "n")
        assert session.ends() == 6
        assert paste[:1000] in server.requests[-1].prompt
    assert not (made.workspace / "ran").exists()


NO_SCREENS = (
    {"TERM": "", "LANG": "C", "LC_ALL": "C"},
    {"COLUMNS": "1", "TERM": "dumb"},
    {"COLUMNS": "0", "LINES": "-5", "TERM": "no-such-terminal"},
    {"LANG": "tlh_KL.klingon", "PYTHONIOENCODING": "ascii", "NO_COLOR": "1"},
)


@pytest.mark.parametrize("env", NO_SCREENS)
def test_d54_screens_that_are_none(made: Room, env: dict[str, str]) -> None:
    with made.served(write("a.txt", "ü"), *FINISH):
        done = made.succeed("-c", "-m", "none", *GOAL, env=env)
    assert "write_to_file" in done.text
    assert not CONTROL.search(done.text)
    assert (made.workspace / "a.txt").read_text() == "ü"


def test_d54_a_terminal_of_one_column(made: Room) -> None:
    with made.served(write("a.txt", "ü"), *FINISH), closing(made.terminal("-m", "none", *GOAL, columns=1)) as session:
        session.sees("> ")
        session.types("y -3")
        assert session.ends() == 0
    assert (made.workspace / "a.txt").read_text() == "ü"


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_d54_streams_that_are_closed(made: Room, closed: str) -> None:
    """As some supervisors start programs: nothing of the agent's own may get the number of a stream."""
    made.around = ("sh", "-c", f'exec "$@" {closed}', "sh")
    with made.served(shell("echo out; echo err >&2"), *FINISH):
        done = made.succeed("-c", "-m", "none", *GOAL)
    assert ("FINISHED" in done.out) == (">&-" not in closed.split())
    assert not done.err or "2>&-" not in closed
    events = {event["type"]: event for event in made.log() if event["step"] == 1}
    assert events["returned"]["text"].endswith("out\nerr\n")
    assert made.log()[-1]["status"] == "finished"


@pytest.mark.parametrize(
    ("flags", "full", "code"),
    [((), ">/dev/full", 1), (("--json",), ">/dev/full", 1), ((), ">/dev/full 2>&1", 1), ((), "2>/dev/full", 0)],
)
def test_d54_output_to_a_full_disk(made: Room, flags: tuple[str, ...], full: str, code: int) -> None:
    made.around = ("sh", "-c", f'exec "$@" {full}', "sh")
    with made.served(write("a.txt", ""), *FINISH):
        done = made.run("-c", "-m", "none", *GOAL, *flags)
    assert done.code == code, done.text
    assert ("No space left on device" in done.err) == (full == ">/dev/full")
    assert (made.workspace / "a.txt").exists() == (code == 0), "what nobody can see is not done"
