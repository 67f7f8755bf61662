"""Whole sessions at a real terminal; the screens are kept as golden text under tests/screens/."""

from __future__ import annotations

import re
import signal
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from driver import FINISH, GOAL, READY, ROOT, Hanging, Home, Session
from server import THOUGHTS, Command, Reply, ScriptedServer, command

Golden = Callable[[str, str], None]
QUESTION = "? = help)\n> "
NARROW_QUESTION = "help)\n> "
WIDTHS = pytest.mark.parametrize("columns", [80, *(pytest.param(width, marks=pytest.mark.slow) for width in (40, 120))])
INTERRUPTED = "stops.\n> "


@contextmanager
def opened(session: Session, ends: int | None = None) -> Iterator[Session]:
    """Close a session in any case, once it has ended with this exit code."""
    try:
        yield session
        assert ends is None or session.ends() == ends, session.screen
    finally:
        session.close()


def question_at(columns: int) -> str:
    return NARROW_QUESTION if columns == 40 else QUESTION


def saying(text: str, name: str, /, **args: object) -> Command:
    """A command with thoughts of its own."""
    return Command(name, args, {**THOUGHTS, "text": text, "plan": "- write the list\n- look at it"})


# From set-up to the end ------------------------------------------------------------------------------------------


@WIDTHS
def test_from_set_up_over_ctrl_c_to_the_end(served: Home, server: ScriptedServer, golden: Golden, columns: int) -> None:
    server.add(
        saying("I write the list down first.", "write_to_file", filename="list.txt", text="bread\nmilk\n"),
        saying("Now I read it back.", "read_file", filename="list.txt"),
        saying("The eggs are missing.", "append_to_file", filename="list.txt", text="eggs\n"),
        saying("I clean up.", "delete_file", filename="list.txt"),
        saying("I keep the file and look around.", "list_files", directory="."),
    )
    question = question_at(columns)
    with opened(served.terminal("-m", "none", columns=columns), ends=130) as session:
        session.answers_each(
            ("I want it to:", ""), ("Name of the AI", "ShopGPT"), ("ShopGPT is", "an AI that keeps a shopping list"),
            ("Goal 1:", "Write the shopping list to list.txt"), ("Goal 2:", "Keep it :: test -s list.txt"),
            ("Goal 3:", ""), (question, "y"), (question, "y -2"), (question, "y -abc"),
            (question, "The list is to stay; just look around."),
        )  # fmt: skip
        session.sees(question)
        session.presses_ctrl_c()
        session.sees(question)
        session.presses_ctrl_c()
    golden(f"set-up-to-ctrl-c-{columns}", session.screen)
    assert served.read("autoagent_workspace/list.txt") == "bread\nmilk\neggs\n"
    assert "Human feedback: The list is to stay; just look around." in server.requests[-1].prompt
    assert not any("y -abc" in request.prompt for request in server.requests)

    server.add(*FINISH)
    with opened(served.terminal("resume", columns=columns), ends=0) as session:
        session.answers(question, "y -2")
    golden(f"resume-{columns}", session.screen)
    assert [event["type"] for event in served.log()].count("started") == 5  # nothing ran twice


@WIDTHS
def test_the_first_run_menu_offers_a_demo(home: Home, golden: Golden, columns: int) -> None:
    with opened(home.terminal("-m", "none", columns=columns), ends=0) as session:
        session.answers_each(("1-10:", "11"), ("1-10:", "10"), (question_at(columns), "y -4"))
    golden(f"first-run-demo-{columns}", re.sub(r"server \(.*\)", "server (...)", session.screen))  # what runs here
    assert home.read("autoagent_workspace/haiku.txt").startswith("Last leaf")
    assert not (home.folder / ".env").exists()


def test_the_demo_ends_well_where_levels_are_asked_for(home: Home) -> None:
    done = home.succeed("--demo", "--hierarchical", "-c", "-m", "none")
    assert "The demo has one agent and ignores --hierarchical." in done.err


def test_a_key_typed_into_the_menu_is_stored_for_this_user_alone_and_never_shown(home: Home) -> None:
    key = "sk-typed-by-hand-0123456789"
    with opened(home.terminal("-m", "none"), ends=5) as session:
        session.answers_each(("1-10:", "1"), ("API key:", key), ("(y/n) [y]:", ""))
        session.sees("I want it to:")
        session.presses("\x04")
    assert key not in session.raw
    assert "pass --ai-name" in session.screen
    stored = home.folder / ".env"
    assert key in stored.read_text()
    assert stat.S_IMODE(stored.stat().st_mode) == 0o600
    shown = home.run("config", "--show-origin").text
    assert "openai_api_key = [masked]  (.env:1)" in shown
    assert key not in shown


def test_set_up_keeps_nothing_that_it_is_told_not_to_keep(home: Home) -> None:
    answers = ["1", "too short", "sk-typed-by-hand-0123456789", "n", "NewGPT", "a new one", "Do it", ""]
    done = home.succeed("setup", stdin="\n".join(answers) + "\n")
    assert "Not saved; to use it, set OPENAI_API_KEY." in done.err
    assert "sk-typed" not in done.text
    assert "ai_name: NewGPT" in home.read("ai_settings.yaml")
    assert [path.name for path in home.folder.iterdir()] == ["ai_settings.yaml"]
    assert "set AUTOAGENT_MODEL=demo." in home.run("setup", stdin="10\n\n\nDo it\n\n").err


@WIDTHS
def test_a_wish_becomes_settings_that_are_saved_and_welcomed_back(
    served: Home, server: ScriptedServer, golden: Golden, columns: int
) -> None:
    thoughts = {
        "text": "Two lines are enough for a first poem.",
        "reasoning": "The task names the file and nothing else.",
        "plan": "- write poem.txt\n- read it once more",
        "criticism": "It should not rhyme for the sake of rhyming.",
        "speak": "",
    }
    server.add(
        Reply('{"name": "PoetGPT", "role": "an AI that writes verse", "goals": ["Write a poem to poem.txt"]}'),
        Command("write_to_file", {"filename": "poem.txt", "text": "Roses are red,\nviolets are blue.\n"}, thoughts),
    )
    with opened(served.terminal("-m", "none", columns=columns), ends=6) as session:
        session.answers_each(("I want it to:", "write a poem to poem.txt"), ("[y]:", ""), (question_at(columns), "n"))
    golden(f"wish-{columns}", session.screen)
    assert "write a poem to poem.txt" in server.requests[0].prompt
    assert "You are PoetGPT, an AI that writes verse" in server.requests[1].prompt
    assert "ai_name: PoetGPT" in served.read("ai_settings.yaml")

    server.add(*FINISH)
    with opened(served.terminal("-m", "none", columns=columns), ends=0) as session:
        session.answers_each(("[y]:", "perhaps"), ("[y]:", "y"), (question_at(columns), "y"))
    golden(f"welcome-back-{columns}", session.screen)


def test_the_docs_show_what_is_printed() -> None:
    block = (ROOT / "docs" / "usage.md").read_text().partition("```\n$ autoagent\n")[2].partition("```")[0]
    printed = iter((ROOT / "tests" / "screens" / "wish-80.txt").read_text().splitlines())
    missing = [line for line in block.splitlines() if line not in printed]  # each comes after the one before
    assert not missing


def test_who_is_not_to_come_back_is_asked_for_anew(home: Home) -> None:
    home.write("ai_settings.yaml", "ai_name: Old\nai_role: an old one\nai_goals: [An old goal]\n")
    with opened(home.terminal("--model", "human", "-m", "none"), ends=6) as session:
        session.answers_each(
            ("e = edit) [y]:", "n"), ("Name of the AI", "New"), ("New is", ""), ("Goal 1:", "A new goal"),
            ("Goal 2:", ""),
        )  # fmt: skip
        session.sees("Your reply, as the model:\n> ")
        session.presses("\x04")
    assert "ai_name: New" in home.read("ai_settings.yaml")
    assert "Old" not in home.read("ai_settings.yaml")


def test_a_person_can_be_the_model(home: Home) -> None:
    with opened(home.terminal("--model", "human", "-m", "none", *GOAL)) as session:
        session.answers_each(
            ("as the model:\n> ", "dance"), ("as the model:\n> ", "write_to_file filename=a.txt text=hello"),
            (QUESTION, "y"), ("as the model:\n> ", 'task_complete {"reason": "a.txt is there"}'), (QUESTION, "y"),
            ("Accept it as done? y = yes, n = leave it unverified, or type feedback\n> ", "y"),
        )  # fmt: skip
        assert session.ends() == 0  # there is no model that could verify the work
    assert home.read("autoagent_workspace/a.txt") == "hello"
    assert home.log()[-1]["reason"] == "a.txt is there"


# The keys at the question ----------------------------------------------------------------------------------------


@WIDTHS
def test_the_letters_at_the_question(home: Home, golden: Golden, columns: int) -> None:
    question = question_at(columns)
    with opened(home.terminal("--demo", "-m", "none", columns=columns), ends=6) as session:
        session.answers_each((question, ""), (question, "?"), (question, "e"))
        session.sees("Evening. It lets go.")
        session.presses("\x03")
        session.answers(question, "e filename")
        session.sees("Editing filename of")
        session.sees(READY)
        session.presses("\x15autumn.txt\r")
        session.answers_each((question, "d"), (question, "a"), (question, " Y "), (question, "quit"))
    golden(f"letters-{columns}", session.screen)
    assert home.read("autoagent_workspace/autumn.txt").startswith("Last leaf")
    assert not (home.folder / "autoagent_workspace" / "haiku.txt").exists()


def test_what_is_typed_before_the_question_answers_nothing(served: Home, server: ScriptedServer) -> None:
    thinking = Hanging(command("write_to_file", filename="a.txt", text="x"))
    server.add(thinking)
    with opened(served.terminal("-m", "none", *GOAL), ends=6) as session:
        thinking.is_asked()
        session.types("y")
        session.sees("y\n")  # the terminal has it
        thinking.leave()
        session.answers(QUESTION, "n")
    assert not (served.folder / "autoagent_workspace" / "a.txt").exists()


def test_what_is_typed_before_the_agent_asks_is_not_the_answer(served: Home, server: ScriptedServer) -> None:
    thinking = Hanging(command("ask_user", question="Which colour?\x1b[2J"))
    server.add(thinking, *FINISH)
    with opened(served.terminal("-c", "-m", "none", *GOAL), ends=0) as session:
        thinking.is_asked()
        session.types("red")
        session.sees("red\n")  # the terminal has it
        thinking.leave()
        session.answers("The agent asks: Which colour?\\x1b[2J\n> ", "green")
    assert "The user answered: green" in server.requests[1].prompt


# Ctrl-C ----------------------------------------------------------------------------------------------------------


def test_ctrl_c_while_the_model_thinks_gives_the_user_the_word(served: Home, server: ScriptedServer) -> None:
    first, second = Hanging(), Hanging()
    server.add(command("do_nothing"), first, command("list_files", directory="."), second)
    with opened(served.terminal("-m", "none", *GOAL), ends=130) as session:
        session.answers(QUESTION, "y -9")
        first.is_asked()
        session.presses_ctrl_c()
        session.sees(INTERRUPTED)
        first.leave()
        session.types("Look around first.")
        session.sees(QUESTION)  # the rest of `y -9` is forfeited
        assert "Human feedback: Look around first." in server.requests[-1].prompt
        session.types("y")
        second.is_asked()
        session.presses_ctrl_c()
        session.sees(INTERRUPTED)
        session.presses_ctrl_c()
    assert "autoagent resume 20260101-120000-abcd" in session.screen
    second.leave()
    assert served.log()[-1]["status"] == "interrupted"


def test_a_signal_at_the_question_saves_the_run(home: Home) -> None:
    with opened(home.terminal("--demo", "-m", "none"), ends=130) as session:
        session.sees(QUESTION)
        session.is_sent(signal.SIGTERM)
    assert "INTERRUPTED: Ended by SIGTERM." in session.screen
    assert home.log()[-1]["status"] == "interrupted"


def test_a_terminal_that_is_closed_saves_the_run(home: Home) -> None:
    with opened(home.terminal("--demo", "-m", "none")) as session:
        session.sees(QUESTION)
        assert session.is_closed() == 1  # there was nowhere to say how it ended
    assert home.log()[-1]["reason"] == "Ended by SIGHUP."
    assert home.run("resume", "-c").code == 0


def test_ctrl_c_during_set_up_ends_the_program(home: Home) -> None:
    with opened(home.terminal(), ends=130) as session:
        session.sees("1-10:")
        session.presses_ctrl_c()
    assert session.screen.endswith("1-10:\n\nInterrupted.\n")


def test_continuous_mode_at_a_terminal_asks_only_after_ctrl_c(served: Home, server: ScriptedServer) -> None:
    thinking = Hanging()
    server.add(command("write_to_file", filename="a.txt", text="x"), thinking)
    with opened(served.terminal("-c", "-m", "none", *GOAL), ends=6) as session:
        thinking.is_asked()
        session.presses_ctrl_c()
        session.answers(INTERRUPTED, "n")
    assert "Continuous mode: commands run without a question" in session.screen
    assert "? = help" not in session.screen
    thinking.leave()
    assert served.read("autoagent_workspace/a.txt") == "x"


# Colours ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("flags", "env", "colored"),
    [((), {}, True), ((), {"NO_COLOR": "1"}, False), (("--plain",), {}, False), ((), {"TERM": "dumb"}, False)],
)
def test_colours_are_for_those_who_want_them(
    home: Home, flags: tuple[str, ...], env: dict[str, str], colored: bool
) -> None:
    with opened(home.terminal("--demo", "-m", "none", *flags, env=env), ends=6) as session:
        session.answers("> ", "n")
    assert bool(re.search(r"\x1b\[[1-9][\d;]*m", session.raw)) is colored
    if "TERM" in env or flags:  # nor is anything else that a terminal would have to obey
        assert "\x1b[" not in session.raw
