"""How a run ends: what is checked, shown, accepted, claimed or given up is told apart, and the exit code says so."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from typing import Any

import pytest
from driver import FINISH, GOAL, READY, Done, Home, Session
from fakes import all_met, judging
from server import Answer, Fault, ScriptedServer, command
from test_session import QUESTION, opened

RUN = ("-c", "-m", "none")
WRITE = command("write_to_file", filename="note.txt", text="The ferry leaves at 7.\n")
NOTE = ("--ai-goal", "Write note.txt")
CHECKED = ("--ai-goal", "Write note.txt :: grep -q ferry note.txt")
BRIEF = {"AUTOAGENT_PROMPT_STYLE": "brief"}


def end(home: Home) -> tuple[str, list[str]]:
    """The status and the proofs of the newest run, as its log has them."""
    ended = home.log()[-1]
    return ended["status"], list(ended["goals"])


def one_line(done: Done) -> str:
    return " ".join(done.text.split())


def offered(server: ScriptedServer) -> list[list[str]]:
    """The tools of each request for a command."""
    return [[tool["function"]["name"] for tool in request.body["tools"]] for request in server.requests]


# A large model with native tools ---------------------------------------------------------------------------------


def test_no_end_is_withheld_no_command_is_taken_away_and_the_verifier_is_asked_once(
    served: Home, server: ScriptedServer
) -> None:
    server.add(command("list_files", directory="."), WRITE, command("read_file", filename="note.txt"), *FINISH)
    done = served.succeed(*RUN, *NOTE)
    assert (end(served), len(server.verifications)) == (("finished", ["shown"]), 1)
    lists = offered(server)
    assert len(lists) == 4 and all(names == lists[0] for names in lists) and "task_complete" in lists[0]
    assert "tools" not in server.verifications[0].body
    assert [event["purpose"] for event in served.log() if event["type"] == "answered"] == ["verification"]
    assert "VERIFIER: goal 1 met \"Made: 'note.txt'.\"" in one_line(done)
    assert "1. Write note.txt (shown)" in one_line(done)
    calls = len([*server.probes, *server.requests, *server.verifications])
    assert f"Tokens: {calls * 110} ({calls * 100} in" in done.text, "what the verifier used counts"


def test_without_a_verifier_a_goal_is_claimed_and_claims_count_if_the_user_says_so(
    served: Home, server: ScriptedServer
) -> None:
    server.add(*FINISH * 3)
    done = served.run(*RUN, *GOAL, "--no-verify")
    assert (done.code, end(served)) == (9, ("unverified", ["claimed"])), done.text
    assert "NOT VERIFIED: It is done." in done.text and "Do the thing (only claimed)" in one_line(done)
    assert served.run(*RUN, *GOAL, "--no-verify", "--accept-claims").code == 0
    assert end(served) == ("finished", ["claimed"])
    assert served.run(*RUN, *GOAL, env={"AUTOAGENT_VERIFY": "no", "AUTOAGENT_ACCEPT_CLAIMS": "yes"}).code == 0
    server.add(*FINISH)
    assert served.run("run", *RUN, *GOAL, "--no-verify").code == 9
    assert server.verifications == []


def test_goals_with_green_checks_need_no_verifier(served: Home, server: ScriptedServer) -> None:
    server.add(WRITE, *FINISH)
    done = served.run(*RUN, *CHECKED)
    assert (done.code, end(served), server.verifications) == (0, ("finished", ["checked"]), []), done.text
    server.add(*FINISH)
    done = served.run(*RUN, *CHECKED, "--ai-goal", "Be kind")
    assert (done.code, end(served), len(server.verifications)) == (0, ("finished", ["checked", "shown"]), 1)
    shown = server.verifications[0].prompt
    assert "2. Be kind" in shown and "1. Write note.txt" not in shown, "a checked goal is not judged"


def test_caches_are_no_work_of_the_run(served: Home, server: ScriptedServer) -> None:
    caches = "mkdir -p .tested/v __pycache__ && touch .tested/CACHEDIR.TAG .tested/v/last __pycache__/a.pyc"
    server.add(command("execute_shell", command_line=f"{caches} && echo ferry >note.txt"), *FINISH)
    done = served.run(*NOTE, *RUN)
    assert "Files changed: note.txt" in done.text, done.text
    (returned,) = (event for event in served.log() if event["type"] == "returned" and "changed" in event["data"])
    assert "__pycache__/a.pyc" in returned["data"]["changed"]  # and can be taken back
    shown = server.verifications[0].prompt
    assert "--- 'note.txt' now" in shown and ".tested" not in shown and "a.pyc" not in shown.partition("Printed by")[0]


def test_another_model_judges_at_its_own_price(served: Home, server: ScriptedServer) -> None:
    served.env |= {"OPENAI_BASE_URL": "http://api.example/v1", "http_proxy": server.base_url.removesuffix("/v1")}
    served.env |= {"OPENAI_API_KEY": "sk-0123456789", "SMART_LLM": "gpt-4.1-mini", "VERIFIER_LLM": "gpt-4.1"}
    server.add(*FINISH)
    served.succeed(*RUN, *GOAL)
    assert [request.body["model"] for request in server.verifications] == ["gpt-4.1"]
    assert {request.body["model"] for request in server.requests} == {"gpt-4.1-mini"}
    (run,) = json.loads(served.run("runs", "--json").out)
    prices = {"gpt-4.1-mini": 100 * 0.4e-6 + 10 * 1.6e-6, "gpt-4.1": 100 * 2e-6 + 10 * 8e-6}
    paid = [*server.probes, *server.requests, *server.verifications]
    assert run["cost"] == pytest.approx(sum(prices[request.body["model"]] for request in paid))
    (verified,) = [event for event in served.log() if event["type"] == "verified"]
    assert verified["model"] == "gpt-4.1"


# What the verifier says ------------------------------------------------------------------------------------------


def test_a_goal_found_not_met_puts_the_end_off_once_with_the_reason(served: Home, server: ScriptedServer) -> None:
    server.judges = judging("not met", "It does not say from where.")
    server.add(WRITE, *FINISH * 2)
    done = served.run(*RUN, *NOTE)
    assert (done.code, end(served), len(server.requests)) == (9, ("unverified", ["claimed"]), 3), done.text
    assert "Goal 1 (Write note.txt) seems not met: It does not say from where." in server.requests[2].prompt
    assert "task_complete is put off: Not ended yet. A check of your work found:" in server.requests[2].prompt
    assert "If you are sure that it is met, finish again" in server.requests[2].prompt
    assert "task_complete failed" not in server.requests[2].prompt
    ends = [event for event in served.log() if event["type"] == "returned"][1:]
    assert [(event["ok"], bool(event["data"].get("put_off"))) for event in ends] == [(False, True), (True, False)]
    assert len(server.verifications) == 1, "nothing has happened since, so it is not asked again"
    assert offered(server)[0] == offered(server)[1] == offered(server)[2]
    assert "CHECKING: Goal 1 (Write note.txt) seems not met: It does not say from where." in one_line(done)
    assert "put off" not in done.text and "finish again" not in done.text, "that is for the model"

    verdicts = iter([judging("not met"), all_met])
    server.judges = lambda shown: next(verdicts)(shown)
    server.add(FINISH[0], command("append_to_file", filename="note.txt", text="From Oban.\n"), *FINISH)
    done = served.run(*RUN, *NOTE)
    assert (done.code, end(served)) == (0, ("finished", ["shown"])), done.text


@pytest.mark.parametrize(
    ("judges", "said"),
    [
        (judging("met", "It says so.", "The ferry leaves at 8."), "It says so. (its evidence was not found)"),
        (lambda shown: "Certainly! All goals are met.", "The verifier's answer cannot be read."),
        (lambda shown: "", "The verifier did not answer."),
        (lambda shown: Fault(500, "the moon is full"), "The goals could not be verified: "),
        (lambda shown: Fault(400, "no such parameter"), "The goals could not be verified: "),
    ],
    ids=["no such quote", "garbage", "empty", "faulty", "refused"],
)
def test_a_verifier_that_proves_nothing_leaves_a_claim_and_says_why(
    served: Home, server: ScriptedServer, judges: Callable[[str], str | Answer], said: str
) -> None:
    server.judges = judges
    server.add(WRITE, *FINISH)
    done = served.run(*RUN, *NOTE)
    assert (done.code, end(served)) == (9, ("unverified", ["claimed"])), done.text
    assert said in one_line(done)


# What the agent says ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("check", ["", " :: test -s contacts.txt"], ids=["no check", "a check that fails"])
def test_a_goal_that_cannot_be_met_is_given_up_and_that_is_no_success(
    served: Home, server: ScriptedServer, check: str
) -> None:
    server.add(command("task_complete", reason="Mr Keller is not in contacts.txt.", unmet=[1]))
    done = served.run(*RUN, "--ai-goal", f"Write what Mr Keller's number is to contacts.txt{check}")
    assert (done.code, end(served)) == (10, ("unmet", ["unmet"])), done.text
    assert "NOT MET: Mr Keller is not in contacts.txt." in done.text
    assert server.verifications == []
    (run,) = json.loads(served.run("runs", "--json").out)
    assert (run["status"], run["proofs"]) == ("unmet", ["unmet"])


def test_a_check_that_fails_holds_the_end_whatever_the_verifier_would_say(served: Home, server: ScriptedServer) -> None:
    server.add(*FINISH, WRITE, *FINISH)
    done = served.run(*RUN, *CHECKED)
    assert (done.code, end(served)) == (0, ("finished", ["checked"])), done.text
    assert "Goal 1 (Write note.txt) is not met: its check" in server.requests[1].prompt


# What the person says --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "code", "ended"), [("y", 0, ("finished", ["accepted"])), ("n", 9, ("unverified", ["claimed"]))]
)
def test_a_person_is_asked_once_with_what_is_known_and_decides(
    served: Home, server: ScriptedServer, answer: str, code: int, ended: tuple[str, list[str]]
) -> None:
    server.judges = judging("cannot tell", "The note is cut.")
    server.add(WRITE, *FINISH)
    with opened(served.terminal("-m", "none", *NOTE)) as session:
        session.answers(QUESTION, "y -2")
        session.sees("Goal 1: Write note.txt")
        session.sees("cannot tell: The note is cut.")
        session.sees("Files changed: note.txt")
        session.answers("Accept it as done?", answer)
        assert session.ends() == code
        assert session.screen.count("Accept it as done?") == 1
    assert end(served) == ended


def test_what_a_person_misses_goes_to_the_agent_which_goes_on(served: Home, server: ScriptedServer) -> None:
    server.judges = judging("cannot tell")
    more = command("append_to_file", filename="note.txt", text="From Oban.\n")
    server.add(WRITE, *FINISH, more, *FINISH)
    with opened(served.terminal("-m", "none", *NOTE)) as session:
        session.answers(QUESTION, "y -2")
        session.answers("Accept it as done?", "From where?")
        session.answers(QUESTION, "y -2")
        session.answers("Accept it as done?", "y")
        assert session.ends() == 0
    assert end(served) == ("finished", ["accepted"])
    assert "Human feedback: From where?" in server.requests[2].prompt
    assert [event["text"] for event in served.log() if event["type"] == "feedback"] == ["From where?"]
    assert len(server.verifications) == 2


@pytest.mark.parametrize(
    ("leave", "status", "code"),
    [
        (lambda session: session.types("\x04"), "stopped", 6),
        (lambda session: session.is_sent(signal.SIGTERM), "interrupted", 130),
    ],
)
def test_a_run_that_is_left_at_this_question_asks_again_when_it_is_resumed(
    served: Home, server: ScriptedServer, leave: Callable[[Session], None], status: str, code: int
) -> None:
    server.judges = judging("cannot tell")
    server.add(WRITE, *FINISH, *FINISH)
    with opened(served.terminal("-m", "none", *NOTE)) as session:
        session.answers(QUESTION, "y -2")
        session.sees("Accept it as done?")
        session.sees(READY)
        leave(session)
        assert session.ends() == code
    assert end(served) == (status, [])
    with opened(served.terminal("resume")) as session:
        session.answers(QUESTION, "y")
        session.answers("Accept it as done?", "y")
        assert session.ends() == 0
    assert end(served) == ("finished", ["accepted"])


def test_where_nobody_can_answer_a_claim_stays_one(served: Home, server: ScriptedServer) -> None:
    server.judges = judging("cannot tell")
    server.add(*FINISH)
    assert served.run("-m", "none", *GOAL, stdin="y\n").code == 9
    assert end(served) == ("unverified", ["claimed"])


# Who reads it ----------------------------------------------------------------------------------------------------


def test_the_ends_are_told_apart_in_events_runs_and_show(served: Home, server: ScriptedServer) -> None:
    def judge(shown: str) -> str:
        goals = [
            {"n": 2, "why": "It says 7.", "verdict": "met", "evidence": "The ferry leaves at 7."},
            {"n": 3, "why": "Who knows?", "verdict": "cannot tell", "evidence": ""},
        ]
        return json.dumps({"goals": goals})

    server.judges = judge
    server.add(WRITE, *FINISH)
    goals = ("Write note.txt :: test -s note.txt", "Say when the ferry leaves", "Be kind")
    done = served.run(*RUN, "--json", *(part for goal in goals for part in ("--ai-goal", goal)))
    assert done.code == 9, done.text
    proofs = ["checked", "shown", "claimed"]
    assert done.events[-1]["goals"] == proofs
    (verified,) = [event for event in done.events if event["type"] == "verified"]
    assert verified["model"] == "test-model"
    assert verified["verdicts"] == [
        {"goal": 1, "finding": "met", "evidence": "The ferry leaves at 7.", "why": "It says 7."},
        {"goal": 2, "finding": "cannot tell", "evidence": "", "why": "Who knows?"},
    ]
    (run,) = json.loads(served.run("runs", "--json").out)
    assert (run["status"], run["proofs"]) == ("unverified", proofs)
    assert f"{run['id']}  unverified" in served.run("runs").out
    shown = one_line(served.run("show", run["id"]))
    assert 'goal 2 met "The ferry leaves at 7.": It says 7.' in shown and "goal 3 cannot tell: Who knows?" in shown
    assert "(only claimed)" in shown
    assert served.run("replay", run["id"], "--verify").code == 0


def test_a_run_that_is_taken_up_again_is_judged_again(served: Home, server: ScriptedServer) -> None:
    server.judges = judging("not met")
    server.add(WRITE, *FINISH, Fault(401, "no"))
    assert served.run(*RUN, *NOTE).code == 3
    server.add(*FINISH * 2)
    done = served.run("resume", "-c")
    assert (done.code, len(server.verifications)) == (9, 2), "whoever takes it up may have changed anything"


# A small model ---------------------------------------------------------------------------------------------------


def brief(served: Home, server: ScriptedServer, *steps: Any, goal: str = GOAL[1]) -> Done:
    server.add(*steps)
    return served.run(*RUN, "--ai-goal", goal, env=BRIEF)


def test_a_small_models_run_whose_last_program_failed_is_not_shown(served: Home, server: ScriptedServer) -> None:
    fails = command("execute_shell", command_line="echo all tests passed; exit 1")
    done = brief(served, server, WRITE, fails, *[*FINISH] * 9, goal="Make the tests pass")
    assert done.code != 0, done.text
    assert end(served)[1] != ["shown"]
    assert server.verifications == [], "what is plainly wrong is not asked about"
    (verdict,) = next(event for event in served.log() if event["type"] == "verified")["verdicts"]
    assert (verdict["finding"], verdict["why"]) == ("not met", "The last program that was run failed.")


@pytest.mark.slow
def test_a_small_model_is_offered_no_test_writer_and_overwrites_no_test(served: Home, server: ScriptedServer) -> None:
    for name, text in {"test_calc.py": "assert 1\n", "calc.py": "x = 1\n"}.items():
        served.write(f"autoagent_workspace/{name}", text)
    served.env["AUTOAGENT_WINDOW"] = "8000"
    overwrite = command("write_to_file", filename="test_calc.py", text="assert 2\n")
    read = command("read_file", filename="calc.py")
    done = brief(served, server, read, overwrite, *[*FINISH] * 9, goal="Make calc.py pass test_calc.py")
    assert done.code in (8, 9), done.text
    assert all("write_tests" not in names for names in offered(server))
    assert served.read("autoagent_workspace/test_calc.py") == "assert 1\n"
    assert "you have not read it. Read it first" in server.requests[2].prompt


@pytest.mark.parametrize("env", [{}, BRIEF], ids=["full", "brief"])
def test_in_a_small_window_a_group_of_commands_is_loaded_when_it_is_asked_for(
    served: Home, server: ScriptedServer, env: dict[str, str]
) -> None:
    served.env |= {"AUTOAGENT_WINDOW": "8000", **env}
    server.add(command("more_commands", group="web"), WRITE, *FINISH)
    done = served.run(*RUN, "--ai-goal", "Look up the ferry on the web, and write note.txt")
    assert done.code == (9 if env else 0), done.text
    before, after = offered(server)[:2]
    assert "browse_website" not in before and "browse_website" in after
    assert "browse_website" in server.requests[1].prompt
    assert served.run("replay", served.runs[-1], "--verify").code == 0


def test_work_for_goals_that_are_kept_or_reworded_is_judged_too(served: Home, server: ScriptedServer) -> None:
    server.add(command("write_to_file", filename="a.txt", text="alpha"))
    served.run("--ai-goal", "Write alpha into a.txt", "-c", "-m", "none", "-l", "1")
    server.add(command("write_to_file", filename="b.txt", text="beta"), *FINISH)
    served.run("resume", served.runs[0], "Write beta into b.txt", "-c")
    assert "Made: 'a.txt', 'b.txt'." in str(server.verifications[0].body["messages"][1]["content"])
