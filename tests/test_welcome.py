"""The questions of set-up, asked on a scripted terminal; the servers it finds are real ones on loopback."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from loopback_site import Site, Visit, answer

from autoagent.core.errors import ModelError, SetupError, StopRun
from autoagent.core.task import Goal, Task
from autoagent.models.servers import HOSTED, Server, find_servers, list_models
from autoagent.session.task_file import read_task
from autoagent.settings import Settings
from autoagent.terminal import setup_wizard
from autoagent.terminal.answers import ClickTerminal
from autoagent.terminal.setup_wizard import (
    PLAIN_ROLE,
    WISH_NAME,
    ask_task,
    choose_model,
    model_is_chosen,
    parse_proposal,
    proposal_messages,
    welcome_back,
)
from autoagent.text.typed_goal import describe_check


class ScriptedTerminal(ClickTerminal):
    """Answers from a list; the input ends where the list does. `shown` is all that a user would see."""

    def __init__(self, *answers: str, interactive: bool = False) -> None:
        self.interactive = interactive
        self.answers = list(answers)
        self.shown: list[str] = []

    def say(self, text: str) -> None:
        self.shown.append(text)

    def ask(self, prompt: str, default: str = "") -> str:
        self.shown.append(prompt)
        if not self.answers:
            raise EOFError
        return self.answers.pop(0) or default

    def secret(self, prompt: str) -> str:
        return self.ask(prompt)

    @property
    def screen(self) -> str:
        return "\n".join(self.shown)


# The task, one by one --------------------------------------------------------------------------------------------


def test_name_role_and_goals_are_asked_and_enter_ends() -> None:
    terminal = ScriptedTerminal("Foo-GPT", "an AI that foos", "Goal a", "Goal b :: test -s b", "")
    task = ask_task(terminal)
    assert task == Task("Foo-GPT", "an AI that foos", (Goal("Goal a"), Goal("Goal b", "test -s b")))
    assert "Foo-GPT is [" in terminal.screen


def test_the_fifth_goal_is_the_last_question() -> None:
    terminal = ScriptedTerminal("N", "r", "1", "2", "3", "4", "5", "not asked for")
    assert [goal.text for goal in ask_task(terminal).goals] == ["1", "2", "3", "4", "5"]
    assert terminal.answers == ["not asked for"]


def test_enter_takes_name_and_role_but_a_goal_is_the_users_own() -> None:
    terminal = ScriptedTerminal("", " ", "", "Sum notes.txt", "")
    assert ask_task(terminal) == Task(WISH_NAME, PLAIN_ROLE, (Goal("Sum notes.txt"),))
    assert "Please give at least one goal." in terminal.shown and "net worth" not in terminal.screen


def test_a_plain_check_is_said_in_words() -> None:
    assert describe_check("test -s poem.txt") == "poem.txt is not empty (test -s poem.txt)"
    assert describe_check("test -s a; rm b") == "test -s a; rm b"


def test_the_end_of_the_input_stops_and_says_what_to_pass() -> None:
    with pytest.raises(StopRun, match="--ai-goal") as caught:
        ask_task(ScriptedTerminal("Foo-GPT"))
    assert caught.value.outcome.status == "unanswered"


# The task, from a wish -------------------------------------------------------------------------------------------

GOOD = '{"name": "Sum-GPT", "role": "an AI that sums", "goals": ["Sum notes.txt"]}'
SUMS = Task("Sum-GPT", "an AI that sums", (Goal("Sum notes.txt"),))


def proposing(answer: str | Exception, wishes: list[str]) -> Callable[[str], str]:
    """A model that proposes this for every wish, or fails with this."""

    def propose(wish: str) -> str:
        wishes.append(wish)
        if isinstance(answer, Exception):
            raise answer
        return answer

    return propose


def test_one_wish_becomes_a_task_that_is_shown() -> None:
    terminal, wishes = ScriptedTerminal("sum up notes.txt"), list[str]()
    assert ask_task(terminal, proposing(GOOD, wishes)) == SUMS
    assert wishes == ["sum up notes.txt"]
    assert "  - Sum notes.txt" in terminal.shown


@pytest.mark.parametrize("answer", ["", "manual", "--manual"])
def test_no_wish_leads_to_the_single_questions(answer: str) -> None:
    propose = proposing(AssertionError(), [])
    assert ask_task(ScriptedTerminal(answer, "N", "r", "g", ""), propose) == Task("N", "r", (Goal("g"),))


@pytest.mark.parametrize(
    ("wish", "proposal", "shown"),
    [
        ("do it", "I cannot help with that.", "cannot be used"),
        ("do it", ModelError("the endpoint is down"), "the endpoint is down"),
        ("sum up notes.txt in brief.md", GOOD, "The model's goals leave out 'brief.md'; your text becomes the goal."),
        ("sum up notes.txt and es.txt", GOOD, "The model's goals leave out 'es.txt'; your text becomes the goal."),
        ("write 'To be' to notes.txt", GOOD, "The model's goals leave out 'To be'; your text becomes the goal."),
        ("sum up notes.txt in 3 lines by 14:30", GOOD, "leave out '3', '14:30'; your text becomes the goal."),
    ],
)
def test_the_wish_is_the_goal_where_the_model_fails_or_its_proposal_cannot_be_used_or_loses_what_the_wish_names(
    wish: str, proposal: str | Exception, shown: str
) -> None:
    terminal = ScriptedTerminal(wish)
    task = ask_task(terminal, proposing(proposal, []))
    assert task.goals == (Goal(wish),) and (proposal != GOOD or (task.name, task.role) == (SUMS.name, SUMS.role))
    assert shown in terminal.screen


def test_a_person_confirms_edits_or_refuses_what_is_proposed() -> None:
    assert ask_task(ScriptedTerminal("sum", "what?", "", interactive=True), proposing(GOOD, [])) == SUMS
    refused, wishes = ScriptedTerminal("sum", "n", "add", "y", interactive=True), list[str]()
    ask_task(refused, proposing(GOOD, wishes))
    assert wishes == ["sum", "add"]
    edits = ScriptedTerminal("sum", "e", "", "an adder", "", "Print it", "", interactive=True)
    edited = Task("Sum-GPT", "an adder", (Goal("Sum notes.txt"), Goal("Print it")))
    assert ask_task(edits, proposing(GOOD, [])) == edited


def test_a_refused_key_is_not_swallowed() -> None:
    with pytest.raises(SetupError):
        ask_task(ScriptedTerminal("do it"), proposing(SetupError("the key is refused"), []))


@pytest.mark.parametrize(
    "text",
    [
        GOOD,
        f"Sure! Here it is:\n```json\n{GOOD}\n```\nGood luck.",
        '{"ai_name": "Sum-GPT", "ai_role": "an AI that sums", "ai_goals": "Sum notes.txt"}',
        "Name: Sum-GPT\nDescription: an AI that sums\nGoals:\n- Sum notes.txt\n",
        "**Name:** Sum-GPT\n**Role:** an AI that sums\n\n**Goals:**\n1. Sum notes.txt",
    ],
)
def test_proposals_that_can_be_used(text: str) -> None:
    assert parse_proposal(text) == SUMS


@pytest.mark.parametrize(
    "text",
    [
        *("", "{", "[1]"),
        '{"name": "N", "role": "r", "goals": []}',
        '{"name": "N", "goals": ["g"]}',
        '{"name": 1, "role": "r", "goals": ["g"]}',
        '{"name": "N", "role": "r", "goals": [{"g": 1}]}',
        '{"name": "...", "role": "an AI ...", "goals": ["...", "..."]}',
        '{"name": "<name>", "role": "<role>", "goals": ["<goal>"]}',
        "Name: N\nDescription:\nGoals:\n- g",
    ],
)
def test_proposals_that_cannot_be_used(text: str) -> None:
    assert parse_proposal(text) is None


def test_at_most_five_goals_are_taken_from_a_proposal_and_the_others_are_named() -> None:
    terminal = ScriptedTerminal("do seven things")
    proposal = json.dumps({"name": "N", "role": "r", "goals": [f"g{i}" for i in range(7)]})
    task = ask_task(terminal, proposing(proposal, []))
    assert [goal.text for goal in task.goals] == ["g0", "g1", "g2", "g3", "g4"]
    assert "The model proposed 7 goals; the first 5 are kept, without: g5; g6" in terminal.shown


def test_the_prompt_for_a_proposal_holds_the_wish_and_the_form_of_the_answer() -> None:
    system, user = proposal_messages("sum up notes.txt")
    assert user.content == "sum up notes.txt"
    assert '"goals"' in system.content


# Welcome back ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answers", "again"), [(["y"], True), (["Yes "], True), ([""], True), (["n"], False), (["what?", "NO"], False)]
)
def test_welcome_back(answers: list[str], again: bool) -> None:
    terminal = ScriptedTerminal(*answers)
    task = Task("Foo-GPT", "an AI", (Goal("a"),))
    assert welcome_back(terminal, task, "ai_settings.yaml") == (task if again else None)
    assert "Welcome back! Would you like me to return to being Foo-GPT?" in terminal.shown
    assert terminal.answers == []


def test_welcome_back_can_edit_and_needs_an_answer() -> None:
    task = Task("Foo-GPT", "an AI", (Goal("a"), Goal("b")), budget=2.0)
    terminal = ScriptedTerminal("e", "Bar-GPT", "", "-", "", "c", "")
    edited = Task("Bar-GPT", "an AI", (Goal("b"), Goal("c")), budget=2.0)
    assert welcome_back(terminal, task, "ai_settings.yaml") == edited
    with pytest.raises(StopRun, match="pass -y"):
        welcome_back(ScriptedTerminal(), Task("N", "r", (Goal("g"),)), "a.yaml")


# The model -------------------------------------------------------------------------------------------------------


@contextmanager
def model_server(body: str, status: int = 200) -> Iterator[int]:
    """A server that lists its models with this; gives its port."""
    with Site() as site:
        site.pages["/v1/models"] = answer(body.encode(), status, length=-1)
        yield site.server_port


MODELS = '{"data": [{"id": "qwen:7b"}, {"id": "llama"}, {"no": "id"}]}'


def test_servers_of_this_machine_are_found_with_their_models() -> None:
    with model_server(MODELS) as good, model_server("<html>") as other, model_server(MODELS, 500) as broken:
        found = find_servers({"Ollama": good, "vLLM": other, "LM Studio": broken, "llama.cpp": 9})
    assert found == (Server("Ollama", f"http://127.0.0.1:{good}/v1", ("qwen:7b", "llama")),)


@pytest.mark.parametrize("base_url", ["http://127.0.0.1:9/v1", "http://127.0.0.1:port", "http://", "http://[::1/v1"])
def test_an_address_that_leads_nowhere_is_a_problem_and_no_exception(base_url: str) -> None:
    listed = list_models(base_url, timeout=0.5)
    assert listed.status == 0 and listed.problem


def test_an_answer_that_drips_is_cut_off() -> None:
    def drip(visit: Visit) -> None:
        visit.wfile.write(answer(length=-1))
        visit.drip(b" " * 10_000)

    with Site() as site:
        site.pages["*"] = drip
        begin = time.monotonic()
        listed = list_models(site.url("/v1"), timeout=0.5)
    assert (listed.status, listed.problem) == (0, "no complete answer arrived in time")
    assert time.monotonic() - begin < 30, "it drips for ever"


def test_an_answer_that_is_too_large_is_left() -> None:
    with model_server(MODELS + " " * 4_000_000) as port:
        assert list_models(f"http://127.0.0.1:{port}/v1").problem == "the answer is larger than 4 MB"


NO_SERVERS: Callable[[], tuple[Server, ...]] = tuple


def test_an_openai_key_may_be_kept() -> None:
    terminal = ScriptedTerminal("11", "1", "short", "sk-1234567890", "y")
    choice = choose_model(terminal, NO_SERVERS)
    assert (choice.env, choice.save) == ({"OPENAI_API_KEY": "sk-1234567890"}, True)
    assert "Please answer with a number from 1 to 10." in terminal.shown


@pytest.mark.parametrize("number", range(2, 8))
def test_a_hosted_provider_is_its_address_and_a_key_that_is_set_is_taken_with_enter(
    number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider = HOSTED[number - 1]
    monkeypatch.setenv(provider.key_variable, "key-1234567890")
    with model_server(MODELS) as port:
        here = dataclasses.replace(provider, base_url=f"http://127.0.0.1:{port}/v1")
        monkeypatch.setattr(setup_wizard, "HOSTED", (*HOSTED[: number - 1], here, *HOSTED[number:]))
        terminal = ScriptedTerminal(str(number), "", "llama", "n")
        env = choose_model(terminal, NO_SERVERS).env
    named = {"SMART_LLM": "llama", "FAST_LLM": "llama"}
    assert env == {"OPENAI_BASE_URL": here.base_url, "OPENAI_API_KEY": "key-1234567890", **named}
    assert f"{provider.name}, with your API key ({provider.key_variable})" in terminal.screen
    assert "It offers: qwen:7b, llama" in terminal.shown and provider.base_url.startswith("https://")


def test_servers_are_looked_for_when_one_is_wanted_and_not_before() -> None:
    seen: list[str] = []
    terminal = ScriptedTerminal("11", "8", "http://127.0.0.1:9/v1", "", "tiny", "n")
    choose_model(terminal, lambda: seen.extend(terminal.shown) or ())
    assert "Please answer with a number from 1 to 10." in seen
    assert terminal.shown[len(seen)] == "  None was found on the usual ports of this machine."


def test_a_server_that_was_found_is_taken_with_enter() -> None:
    found = (Server("Ollama", "http://127.0.0.1:11434/v1", ("qwen:7b", "llama")),)
    terminal = ScriptedTerminal("8", "", "", "n")
    choice = choose_model(terminal, lambda: found)
    base = {"OPENAI_BASE_URL": "http://127.0.0.1:11434/v1"}
    assert (choice.env, choice.save) == ({**base, "SMART_LLM": "qwen:7b", "FAST_LLM": "qwen:7b"}, False)
    assert "Ollama at http://127.0.0.1:11434/v1: qwen:7b, llama" in terminal.screen


def test_another_server_is_asked_for_its_models() -> None:
    with model_server(MODELS) as port:
        url = f"http://127.0.0.1:{port}/v1"
        terminal = ScriptedTerminal("8", "ftp://x", url, "a-key-of-it", "llama", "y")
        choice = choose_model(terminal, NO_SERVERS)
    expected = {"OPENAI_BASE_URL": url, "SMART_LLM": "llama", "FAST_LLM": "llama", "OPENAI_API_KEY": "a-key-of-it"}
    assert choice.env == expected
    assert "It offers: qwen:7b, llama" in terminal.shown


def test_the_embedded_model_names_its_size_and_the_demo_is_not_kept() -> None:
    terminal = ScriptedTerminal("9", "y")
    assert choose_model(terminal, NO_SERVERS).env == {"AUTOAGENT_MODEL": "local"}
    assert "1.1 GB once" in terminal.screen
    assert choose_model(ScriptedTerminal("10"), NO_SERVERS).env == {"AUTOAGENT_MODEL": "demo"}


def test_the_menu_without_an_answer_says_what_to_pass() -> None:
    with pytest.raises(SetupError, match=r"no model is set up: .* --model local"):
        choose_model(ScriptedTerminal("1"), NO_SERVERS)


def test_the_menu_is_for_those_who_have_chosen_nothing() -> None:
    assert not model_is_chosen(Settings())
    assert model_is_chosen(Settings(openai_api_key="k"))
    assert model_is_chosen(Settings(openai_base_url="http://h/v1"))
    assert model_is_chosen(Settings(model="human"))


# `autoagent setup` -----------------------------------------------------------------------------------------------


def setup(answers: str, *flags: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "autoagent", *flags, "setup"]
    return subprocess.run(command, input=answers, capture_output=True, text=True)


def test_setup_writes_both_files(folder: Path) -> None:
    done = setup("1\nsk-1234567890\ny\nFoo-GPT\nan AI\nGoal a\n\n")
    assert (done.returncode, done.stdout, "sk-1234567890" in done.stderr) == (0, "", False), done.stderr
    assert (folder / ".env").read_text() == "OPENAI_API_KEY=sk-1234567890\n"
    assert (folder / ".env").stat().st_mode & 0o777 == 0o600
    assert read_task(folder / "ai_settings.yaml") == Task("Foo-GPT", "an AI", (Goal("Goal a"),))


def test_setup_replaces_a_task_only_if_told_to(folder: Path) -> None:
    (folder / "ai_settings.yaml").write_text("ai_name: Foo\nai_role: an AI\nai_goals: [Mine]\n")
    done = setup("n\n", "--model", "human")
    assert done.returncode == 0 and "Replace the task in ai_settings.yaml?" in done.stderr
    assert read_task(folder / "ai_settings.yaml").goals == (Goal("Mine"),)


def test_setup_at_the_end_of_the_input_leaves_no_half_task(folder: Path) -> None:
    done = setup("Foo-GPT\n", "--model", "human")
    assert done.returncode == 5 and "pass --ai-name" in done.stderr
    assert list(folder.iterdir()) == []
