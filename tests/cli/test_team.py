"""Teams of roles as a user meets them: real processes, one scripted endpoint that answers for all roles."""

from __future__ import annotations

import itertools
import json
import random
import re
import statistics
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from driver import PATIENCE, Home
from fakes import judging
from fuzzing import KILLS
from server import Broken, Reply, Request, ScriptedServer, command
from test_session import opened

from autoagent.teams.team_file import read_team, team_of
from autoagent.text.yaml_file import read_mapping

CHAIN = """\
name: Three
idea: Write a product function
roles:
  - {name: Alice, profile: Coder, goal: write code, constraints: be short,
     actions: [{name: Code, instruction: Code it}]}
  - {name: Bob, profile: Tester, watch: [Code], actions: [{name: Test, instruction: "Test this: {news}"}]}
  - {name: Carol, profile: Reviewer, watch: [Test], may_be_human: yes, actions: [{name: Review, instruction: Judge}]}
"""
WIDE = {"COLUMNS": "300"}
Team = Callable[..., Home]  # of a text of team.yaml and of what the model answers: a home with both
EXAMPLES = sorted((Path(__file__).parent.parent.parent / "examples" / "teams").glob("*.yaml"))


def name_of(request: Request) -> str:
    """Who asks, by the sentence that says so."""
    found = re.search(r"named (\w+)", str(request.body["messages"][0]["content"]))
    assert found
    return found[1]


def asked(request: Request) -> str:
    return str(request.body["messages"][-1]["content"])


@pytest.fixture
def team(home: Home, server: ScriptedServer) -> Team:
    """A home with a team file, whose model answers `NAME n` by who asks, or as `answer` says."""
    home.point_at(server)
    counts: dict[str, int] = {}

    def made(text: str = CHAIN, answer: Callable[[Request], Any] | None = None) -> Home:
        def usual(request: Request) -> Any:
            if answer and (said := answer(request)) is not None:
                return said
            name = name_of(request)
            counts[name] = counts.get(name, 0) + 1
            return Reply(f"{name} {counts[name]}")

        home.write("team.yaml", text)
        server._every = usual
        return home

    return made


def said(home: Home, run: str | None = None) -> list[tuple[str, str]]:
    """The messages of the roles as they were written, who and what."""
    return [(event["sent_from"], event["content"]) for event in home.log(run) if event["type"] == "published"][1:]


def test_a_debate_has_finished_with_the_rounds_that_it_plans_and_its_markdown_is_drawn(
    team: Team, server: ScriptedServer
) -> None:
    role = "  - {{name: {0}, profile: Side, watch: [{1}], actions: [{{name: {0}Says, instruction: Say it}}]}}\n"
    roles = role.format("A", "UserRequirement, BSays") + role.format("B", "ASays")
    home = team(f"idea: Speak\nn_round: 2\nroles:\n{roles}", lambda request: Reply("It is **so**, `x` or not."))
    with opened(home.terminal("team", "team.yaml", "-m", "none")) as session:
        assert session.ends() == 0
        assert "  It is so, x or not." in session.screen and "**so**" not in session.screen
        assert "FINISHED: All 2 planned rounds are over." in session.screen
    assert [who for who, _ in said(home)] == ["A", "B"]
    more = home.run("resume", home.runs[0], env=WIDE)
    assert (more.code, len(said(home))) == (0, 4), more.text


@pytest.mark.slow
def test_a_round_is_a_snapshot_and_a_run_goes_on_where_it_ended(team: Team) -> None:
    home = team()
    done = home.exits(4, "team", "team.yaml", "--n-round", "1", env=WIDE)
    assert said(home) == [("Alice", "Alice 1")], "only the first link of the chain"
    assert "ROUND 1 of 1: Alice to act; Bob waits for Code; Carol waits for Test" in done.text
    assert "LIMIT REACHED: The last of 1 rounds (--n-round) is over; there is news for Bob." in done.text
    home.write("team.yaml", f"# A comment is no change.\n{CHAIN}")
    more = home.run("resume", env=WIDE)
    assert (more.code, said(home)[1:]) == (4, [("Bob", "Bob 1")]), more.text
    assert "has changed since" not in more.text
    done = home.run("resume", "--json", "--n-round", "5")
    assert done.code == 2, "resume has no such flag"
    home.write("team.yaml", CHAIN.replace("Judge", "Laugh"))
    done = home.succeed("resume", "--json", env=WIDE)
    assert "team.yaml has changed since this run began. The run goes on with the old team" in done.err
    assert said(home)[2:] == [("Carol", "Carol 1")]
    assert done.events[-1]["reason"] == "After round 3 nobody has news to act on."
    assert {event["agent"] for event in home.log() if event["type"] == "answered"} == {"", "1", "2", "3"}
    (home.folder / "team.yaml").unlink()
    assert "team.yaml: no such file" in home.run("resume", home.runs[0], env=WIDE).text
    shown = home.run("show", home.runs[0], env=WIDE).text
    assert "Alice: Coder; watches for UserRequirement; does Code" in shown
    assert "Bob (Tester), Test:\n  | Bob 1\n" in shown
    assert home.run("replay", home.runs[0], "--fast", env=WIDE).text == shown
    assert json.loads(home.run("runs", "--json").out)[0]["goals"] == ["Write a product function"]


def test_what_a_role_is_told(team: Team, server: ScriptedServer) -> None:
    team().run("team", "team.yaml", "Do it", "--json")
    alice, bob, carol = server.requests
    sentence = "You are a Coder, named Alice, your goal is write code, and the constraint is be short"
    assert alice.body["messages"][0] == {"role": "system", "content": sentence}
    assert asked(alice) == "Human: Do it\n\nCode it"
    assert asked(bob) == "Test this: Alice (Coder): Alice 1"
    assert asked(carol) == "Human: Do it\n\nAlice (Coder): Alice 1\n\nBob (Tester): Bob 1\n\nJudge"


def test_roles_of_a_round_act_at_once_and_are_published_in_hiring_order(team: Team, server: ScriptedServer) -> None:
    """Two of one profile; the first is the slowest: it waits until the last was asked."""
    role = "  - {{name: {0}, profile: Twin, actions: [{{name: Say, instruction: Say it}}]}}\n"
    asked_last = threading.Event()

    def answer(request: Request) -> Any:
        if name_of(request) == "C":
            asked_last.set()
        assert asked_last.wait(PATIENCE)

    home = team("roles:\n" + "".join(role.format(name) for name in "ABC"), answer)
    home.succeed("team", "team.yaml", "Speak", "--n-round", "1")
    written = [event["agent"] for event in home.log() if event["type"] == "published"]
    assert sorted(written) == ["", "1", "2", "3"]
    names = re.findall(r"^(\w) \(Twin\), Say:$", home.run("show", home.runs[0]).text, re.MULTILINE)
    assert sorted(names) == ["A", "B", "C"]


MODES = """\
roles:
  - {{name: Alice, profile: Worker, react_mode: {mode}, max_react_loop: 3,
     actions: [{{name: First, instruction: do one}}, {{name: Second, instruction: do two}}]}}
"""


@pytest.mark.parametrize(
    ("choices", "done"),
    [
        (["1", "0", "-1"], ["do two", "do one"]),
        (["I take 1.", "7"], ["do two"]),
        (["-1"], []),
        (["none of them"], []),
        (["0", "0", "0", "0"], ["do one"] * 3),
    ],
)
def test_the_model_chooses_what_is_next(team: Team, choices: list[str], done: list[str]) -> None:
    left, did = list(choices), []

    def answer(request: Request) -> Any:
        if "0. First\n1. Second" in asked(request):
            return Reply(left.pop(0))
        did.append(asked(request).splitlines()[-1])
        return Reply("did it")

    home = team(MODES.format(mode="react"), answer)
    home.succeed("team", "team.yaml", "Work")
    assert did == done
    assert len(said(home)) == bool(done), "the last result alone is published"


def test_actions_by_order(team: Team, server: ScriptedServer) -> None:
    home = team(MODES.format(mode="by_order"))
    assert home.run("team", "team.yaml", "Work").code == 0
    assert [asked(request).splitlines()[-1] for request in server.requests] == ["do one", "do two"]
    assert said(home) == [("Alice", "Alice 2")]


def test_a_plan_is_written_worked_on_reviewed_and_revised(team: Team) -> None:
    last = {"task_id": "b", "dependent_task_ids": ["a"], "instruction": "use it"}
    plan = [last, {"task_id": "a", "instruction": "get it"}]
    worked: list[str] = []
    reviews = ["confirm", "revise: polish it", "confirm"]

    def answer(request: Request) -> Any:
        text = asked(request)
        if "Write a plan" in text:
            return Reply("No plan." if "could not be used" not in text else f"```json\n{json.dumps(plan)}\n```")
        if "Is it done?" in text:
            return Reply(reviews.pop(0))
        if "Write the tasks that are left" in text:
            assert "polish it" in text
            return Reply('[{"task_id": "c", "dependent_task_ids": ["b"], "instruction": "polish"}]')
        if "0. First" in text:
            return Reply("1")
        worked.append(text)
        return Reply(f"result {len(worked)}")

    home = team(MODES.format(mode="plan_and_act"), answer)
    home.succeed("team", "team.yaml", "Work")
    assert ["get it" in worked[0], "use it" in worked[1], "polish" in worked[2]] == [True] * 3
    assert "result of task a: result 1" in worked[1]
    assert said(home)[-1][1] == "a. get it\nresult 1\nb. use it\nresult 2\nc. polish\nresult 3"


@pytest.mark.slow
def test_the_investment_is_a_limit_for_all(team: Team, server: ScriptedServer) -> None:
    usage = {"prompt_tokens": 1000, "completion_tokens": 1000}  # 0.01 USD
    home = team(answer=lambda request: Reply("x", usage=usage))
    home.pay(server, "gpt-4.1")
    home.env |= {"AUTOAGENT_VERIFY": "no", "AUTOAGENT_ACCEPT_CLAIMS": "yes"}
    broke = home.run("team", "team.yaml", "--investment", "0")
    assert (broke.code, server.requests) == (7, []), broke.text
    assert "BUDGET USED UP: Insufficient funds: 0" in broke.text
    done = home.exits(7, "team", "team.yaml", "--investment", "0.021", env=WIDE)
    assert "BUDGET USED UP: Insufficient funds: 0.021" in done.text
    assert "$0.0200 of $0.021" in done.text
    assert len(server.requests) == 2
    more = home.run("resume", home.runs[-1], "--budget", "0.05", env=WIDE)
    assert (more.code, len(server.requests)) == (0, 3), more.text
    assert "Cost: $0.0300" in more.text


@pytest.mark.slow
def test_a_person_takes_a_role(team: Team, server: ScriptedServer) -> None:
    home = team()
    with opened(home.terminal("team", "team.yaml", "--human", columns=100)) as session:
        session.sees("Bob (Tester): Bob 1")
        session.answers("You are Carol, Reviewer.", "Fine, but:")
        session.answers("> ", "name it better.")
        session.answers("> ", "")
        assert session.ends() == 0
    assert said(home)[-1] == ("Carol", "Fine, but:\nname it better.")
    assert len(server.requests) == 2
    assert home.run("team", "team.yaml", "--human", stdin="exit\n").code == 6
    ended = home.exits(5, "team", "team.yaml", "--human")
    assert "Carol(Reviewer) is a person, and nobody is there to answer" in " ".join(ended.text.split())
    assert home.run("resume", stdin='"""One.\n\nTwo."""\n').code == 0
    assert said(home)[-1] == ("Carol", "One.\n\nTwo.")
    assert len(server.requests) == 6, "what was answered before is not asked again"


@pytest.mark.parametrize("works", ["commands: [read_file]", "file: a.txt"])
def test_a_person_does_the_work_of_an_agent(team: Team, server: ScriptedServer, works: str) -> None:
    home = team(CHAIN.replace("instruction: Judge", f"instruction: Judge, {works}"))
    assert home.run("team", "team.yaml", "--human", stdin="I did.\n\n").code == 0
    assert said(home)[-1] == ("Carol", "I did.")
    assert len(server.requests) == 2 and not home.offered(), "no model is asked in the place of a person"


WORKERS = """\
roles:
  - {name: Alice, profile: Coder, actions: [{name: Save, instruction: Save it, commands: [write_to_file]}]}
  - {name: Bob, profile: Tester, watch: [Save],
     actions: [{name: Look, instruction: "Look: {news}", commands: [read_file]}]}
  - {name: Carol, profile: Reader, watch: [Look], actions: [{name: Read, instruction: Read it}]}
"""


def working(request: Request) -> Any:
    """Alice writes a file, Bob reads it, Carol is a plain role."""
    if "Carol" in request.prompt[:200]:
        return Reply("Carol is done.")
    steps = sum(message["role"] == "assistant" for message in request.body["messages"])
    first = command("write_to_file", filename="a.txt", text="one\n") if "You are Alice" in request.prompt else None
    if steps == 0:
        return first or command("read_file", filename="a.txt")
    return command("task_complete", reason="a.txt holds one line.")


def test_an_action_uses_commands_that_are_authorized(team: Team, server: ScriptedServer) -> None:
    home = team(WORKERS, working)
    done = home.succeed("team", "team.yaml", "Save", "-m", "none", stdin="y\n" * 9, env=WIDE)
    assert home.read("autoagent_workspace/a.txt") == "one\n"
    assert re.search(r"Alice \(1\.1\.1\).*write_to_file", done.text)
    assert ("Alice", "a.txt holds one line.\nFiles changed: a.txt.") in said(home)
    offered = [event["commands"] for event in home.log() if event["type"] == "run_started" and event["agent"]]
    assert offered == [["write_to_file", "task_complete"], ["read_file", "task_complete"]]
    assert "a.txt holds one line." in asked(server.requests[-1])
    labels = [event["data"] for event in home.log() if event["type"] == "published"]
    assert labels[1] == {}
    undone = home.run("undo", home.runs[0])
    assert undone.code == 0 and not (home.folder / "autoagent_workspace" / "a.txt").exists(), undone.text
    assert home.run("undo", home.runs[0], "--redo").code == 0
    assert home.read("autoagent_workspace/a.txt") == "one\n"
    home.write("autoagent_workspace/a.txt", "mine\n")
    refused = home.run("team", "team.yaml", "Save", "-m", "none", "--n-round", "1", stdin="n\n")
    assert refused.code == 6, "as at any question"


CUT_OFF = "it may have run, wholly or in part"
SIDE_BY_SIDE = """\
roles:
  - {name: Ann, profile: One, actions: [{name: AnnSaves, instruction: Save, commands: [write_to_file, list_files]}]}
  - {name: Bea, profile: Two, actions: [{name: BeaSaves, instruction: Save, commands: [write_to_file, list_files]}]}
"""


def side_by_side(request: Request) -> Any:
    """Each role writes a file of its own and the shared one, looks around, and ends. Told of a conflict, Bea mends."""
    name, turn = name_of_agent(request), request.prompt.count("Workspace (Workspace)") > 0
    steps = sum(message["role"] == "assistant" for message in request.body["messages"])
    if CUT_OFF in request.prompt:  # whoever was killed does not know: it is done again
        steps = max(0, steps - sum(CUT_OFF in str(message["content"]) for message in request.body["messages"][:-1]) - 1)
    if turn:
        mended = command("write_to_file", filename="shared.txt", text="Ann and Bea\n")
        return mended if steps == 0 else command("task_complete", reason="mended")
    script = [
        command("write_to_file", filename=f"{name}.txt", text=f"{name}\n"),
        command("write_to_file", filename="shared.txt", text=f"{name} alone\n"),
        command("list_files", directory="."),
    ]
    return script[steps] if steps < len(script) else command("task_complete", reason=f"{name} is done")


def name_of_agent(request: Request) -> str:
    found = re.search(r"You are (Ann|Bea)", request.prompt)
    assert found
    return found[1]


def test_roles_of_one_round_work_apart_and_a_conflict_is_told(team: Team, server: ScriptedServer) -> None:
    home = team(SIDE_BY_SIDE, side_by_side)
    home.write("autoagent_workspace/shared.txt", "as it was\n")
    home.write("autoagent_workspace/sub/kept.txt", "kept\n")
    home.succeed("team", "team.yaml", "Go", "-c", env=WIDE)
    messages = dict(said(home)[:2])
    assert set(messages["Ann"].partition("Files changed: ")[2].rstrip(".").split(", ")) == {"Ann.txt", "shared.txt"}
    for name, other in (("Ann", "Bea"), ("Bea", "Ann")):
        own = [request.prompt for request in server.requests if name_of_agent(request) == name]
        rounds = [prompt for prompt in own if "Workspace (Workspace)" not in prompt]
        assert f"{name}.txt" in rounds[-1] and "kept.txt" in rounds[-1]
        assert not any(f"{other}.txt" in prompt or f"{other} alone" in prompt for prompt in rounds)
    [(_, told)] = [(who, text) for who, text in said(home) if who == "Workspace"]
    assert "Bea(Two) has changed shared.txt, and so has Ann(One) in the same round, whose change stands." in told
    assert "-as it was\n+Bea alone" in told
    [turn] = [event for event in home.log() if event["type"] == "round_began"][1:]
    assert turn["acts"] == ["2"], "the one whose change was not taken has the next turn"
    workspace = home.folder / "autoagent_workspace"
    names = ["Ann.txt", "Bea.txt", "shared.txt", "sub"]
    assert sorted(path.name for path in workspace.iterdir()) == names
    assert home.read("autoagent_workspace/shared.txt") == "Ann and Bea\n"
    assert not list((home.folder / ".autoagent").rglob("copies/*"))
    assert home.run("undo", home.runs[0], "--to", "1").code == 0
    assert home.read("autoagent_workspace/shared.txt") == "Ann alone\n"
    assert home.run("undo", home.runs[0]).code == 0
    assert sorted(path.name for path in workspace.iterdir()) == ["shared.txt", "sub"]
    assert home.read("autoagent_workspace/shared.txt") == "as it was\n"


@pytest.mark.slow
def test_two_writers_of_one_round_that_are_killed_lose_and_double_nothing(team: Team) -> None:
    home = team(f"idea: Go\n{SIDE_BY_SIDE}", lambda request: (time.sleep(0.02), side_by_side(request))[1])
    workspace = home.folder / "autoagent_workspace"
    chance, kills, ended = random.Random(5), 0, 0
    while kills < KILLS:
        for path in workspace.glob("*"):
            path.unlink()
        home.write("autoagent_workspace/shared.txt", "as it was\n")
        earlier, arguments = set(home.runs), ("team", "team.yaml", "-m", "none")
        while True:
            process = home.start(*arguments, "-c")
            time.sleep(chance.uniform(0.02, 0.7))
            if process.poll() is not None:
                break
            process.kill()
            process.communicate()
            kills += 1
            if run := next((run for run in home.runs if run not in earlier and home.log(run)), ""):
                if home.ended(run):
                    break
                arguments = ("resume", run)
        process.communicate()
        [run] = [run for run in home.runs if run not in earlier and home.log(run)]
        assert sorted(who for who, _ in said(home, run)) == ["Ann", "Bea", "Bea", "Workspace"]
        texts = {path.name: path.read_text() for path in workspace.iterdir()}
        assert texts == {"Ann.txt": "Ann\n", "Bea.txt": "Bea\n", "shared.txt": "Ann and Bea\n"}
        assert not list((home.folder / ".autoagent").rglob("copies/*"))
        ended += 1
    assert ended


@pytest.mark.slow
def test_a_role_and_an_action_may_have_a_model_of_their_own(team: Team, server: ScriptedServer) -> None:
    named = WORKERS.replace("profile: Coder", "profile: Coder, model: m-role")
    named = named.replace("instruction: Read it", "instruction: Read it, model: m-action")
    home = team(named, working)
    home.exits(4, "team", "team.yaml", "Save", "-m", "none", "-c", "--n-round", "2", env=WIDE)
    assert home.run("resume", home.runs[0], "-c").code == 0
    models = [request.body["model"] for request in server.requests]
    assert list(dict.fromkeys(models)) == ["m-role", "test-model", "m-action"]
    server.requests.clear()
    assert home.run("team", "team.yaml", "Save", "-m", "none", "-c", "--model", "m-all").code == 0
    assert {request.body["model"] for request in server.requests} == {"m-all"}, "what the user says holds for all"


def test_an_agent_of_a_role_is_not_through_before_its_check_passes(team: Team) -> None:
    lines = iter([
        command("write_to_file", filename="a.txt", text="one\n"), command("task_complete", reason="done too early"),
        command("write_to_file", filename="a.txt", text="two\n"), command("task_complete", reason="done"),
    ])  # fmt: skip
    checked = CHAIN.replace("Code it", 'Code it, commands: [write_to_file], check: "grep two a.txt"')
    home = team(checked, lambda request: next(lines) if "You are Alice" in request.prompt else None)
    refused = home.exits(3, "team", "team.yaml", "-m", "none", "-c")
    assert "team.yaml check. Review and trust them with `autoagent trust team.yaml`." in refused.err
    assert "grep two a.txt" in home.run("trust", "team.yaml").out
    home.succeed("team", "team.yaml", "-m", "none", "-c")
    checks = [event["met"] for event in home.log() if event["type"] == "checked"]
    assert (checks[0], checks[-1]) == (False, True)
    assert said(home)[0] == ("Alice", "done\nFiles changed: a.txt.")
    assert next(lines, None) is None


FILE = """\
roles:
  - {name: Alice, profile: Coder,
     actions: [{name: Code, instruction: "Code: {idea}", file: a.py, check: "! grep wrong a.py"}]}
  - {name: Bob, profile: Reader, watch: [Code], actions: [{name: Read, instruction: Read it}]}
"""


@pytest.mark.slow
def test_the_code_block_of_an_answer_is_the_file(team: Team, server: ScriptedServer) -> None:
    answers = iter([
        "It is:\n```python\nassert 0, 'wrong'\n```", "```\na\n```\nor\n```\nb\n```",
        "```python\nprint('\\n')\n```\nThat is it.",
    ])  # fmt: skip
    home = team(FILE, lambda request: Reply(next(answers)) if "You are Alice" in request.prompt else None)
    home.run("trust", "team.yaml")
    done = home.succeed("team", "team.yaml", "Go", "-m", "none", stdin="y\n" * 2, env=WIDE)
    assert home.read("autoagent_workspace/a.py") == "print('\\n')\n"
    message = "a.py:\n```\nprint('\\n')\n```\nIts check `! grep wrong a.py` passes."
    assert said(home) == [("Alice", message), ("Bob", "Bob 1")]
    asked_for = [request.body for request in server.requests[:3]]
    assert not any("tools" in body or "response_format" in body for body in asked_for)
    assert asked_for[0]["messages"][-1]["content"].endswith("Code: Go\n\nWrite a.py whole, in one Markdown code block.")
    assert asked_for[1]["messages"][2]["content"] == "It is:\n```python\nassert 0, 'wrong'\n```"
    assert "Its check says: exit status 1. assert 0, 'wrong'" in server.requests[1].prompt
    assert "The reply holds 2 code blocks; answer with one that holds the whole of a.py." in server.requests[2].prompt
    kinds = [event["type"] for event in home.log() if event["agent"] == "1.1.1"]
    assert (kinds.count("decided"), kinds.count("started"), kinds.count("checked")) == (2, 2, 2)
    assert home.run("replay", home.runs[0], "--verify").code == 0
    assert "-assert 0, 'wrong'" in done.text, "as any write, it is shown before"

    server.requests.clear()
    server._every = lambda request: Reply("```\n{wrong}\n```")
    assert home.run("team", "team.yaml", "Go", "-m", "none", "-c").code == 10
    assert "not right yet (stuck)" in said(home)[0][1], "the others read what is wrong with it"
    assert said(home)[0][1].endswith("Its check `! grep wrong a.py` fails: exit status 1. {wrong}")
    assert len(server.requests) == 4 and home.read("autoagent_workspace/a.py") == "{wrong}\n"

    server._every = lambda request: Reply("```\nprint('b')\n```")
    refused = home.run("team", "team.yaml", "Go", "-m", "none", stdin="n\n")
    assert refused.code == 6 and home.read("autoagent_workspace/a.py") == "{wrong}\n"
    outside = home.write("out.yaml", FILE.replace("file: a.py", "file: ../a.py"))
    held = home.run("team", str(outside), "Go", "-m", "none", "-c", "--n-round", "1")
    assert not (home.folder / "a.py").exists(), held.text


def test_what_a_writer_has_read_goes_with_its_message(team: Team, server: ScriptedServer) -> None:
    """The user's own file makes what is said of it private, and what is said to that."""

    def reading(request: Request) -> Any:
        answer = working(request)
        return command("read_file", filename="a.txt") if getattr(answer, "name", "") == "write_to_file" else answer

    home = team(WORKERS.replace("write_to_file", "read_file"), reading)
    home.write("autoagent_workspace/a.txt", "mine\n")
    home.succeed("team", "team.yaml", "Read", "-m", "none", "-c")
    labels = [event["data"].get("private") for event in home.log() if event["type"] == "published"]
    assert labels == [None, True, True, True]


JUDGED = """\
idea: Write a poem
n_round: 6
roles:
  - {name: Ann, profile: Poet, actions: [{name: Write, instruction: Write it, send_to: Ben}]}
  - name: Ben
    profile: Judge
    actions: [{name: Judge, instruction: "Judge {last}", when: {APPROVED: end, REJECTED: [Ann, Cid]}}]
    watch: []
  - {name: Cid, profile: Clerk, watch: [], actions: [{name: File, instruction: File it, send_to: [Cid]}]}
"""


def test_a_team_ends_true_when_its_judge_says_so(team: Team, server: ScriptedServer) -> None:
    """A line that is the text alone hands on or ends; a word within a sentence does neither."""
    verdicts = iter(["It is not APPROVED.\n**Rejected**", "Fine.\nAPPROVED."])
    home = team(JUDGED, lambda request: Reply(next(verdicts)) if name_of(request) == "Ben" else None)
    done = home.succeed("team", "team.yaml", "-m", "none", env=WIDE)
    assert "FINISHED: Ended by Ben in round 4." in done.text
    assert sorted(who for who, _ in said(home)) == ["Ann", "Ann", "Ben", "Ben", "Cid"]
    told = next(asked(request) for request in server.requests if name_of(request) == "Ben")
    assert told.endswith("Let one line of your answer be one of these, and nothing else: APPROVED, REJECTED.")
    again = home.run("resume", home.runs[0], env=WIDE)
    assert again.code == 0 and "Ended by Ben in round 4." in again.text
    undecided = team(JUDGED, lambda request: Reply("Hm.") if name_of(request) == "Ben" else None)
    done = undecided.exits(9, "team", "team.yaml", "-m", "none", env=WIDE)
    assert "nobody has news to act on. Ben(Judge) (Judge) did not say that the work is done." in done.text


RECKONS = """\
idea: Say what 6 times 7 is
roles:
  - {name: Ann, profile: Reckoner, actions: [{name: Say, instruction: Say it}]}
"""


@pytest.mark.parametrize(
    ("finding", "quote", "code", "proof"),
    [("met", "It is 42", 0, "shown"), ("met", "It is 41", 9, "claimed"), ("not met", "", 9, "claimed")],
)
def test_the_end_of_a_team_is_the_end_of_its_goal(
    team: Team, server: ScriptedServer, finding: str, quote: str, code: int, proof: str
) -> None:
    server.judges = judging(finding, evidence=quote)
    home = team(RECKONS, lambda request: Reply("It is 42."))
    done = home.exits(code, "team", "team.yaml", "-c", "-m", "none", env=WIDE)
    judged = server.verifications[0].prompt
    assert "1. Say what 6 times 7 is" in judged and "It is 42." in judged
    assert home.log()[-1]["goals"] == [proof]
    assert ("The work is" in done.text) == (code == 9)


def test_what_the_verifier_misses_goes_back_to_the_team_once(team: Team, server: ScriptedServer) -> None:
    def judges(shown: str) -> str:
        found = ("met", "It is 42") if "It is 42" in shown else ("not met", "")
        return json.dumps({"goals": [{"n": 1, "why": "41 is too few", "verdict": found[0], "evidence": found[1]}]})

    server.judges = judges
    home = team(RECKONS, lambda request: Reply("It is 42." if "41 is too few" in request.prompt else "It is 41."))
    done = home.run("team", "team.yaml", "-c", "-m", "none", env=WIDE)
    assert (done.code, home.log()[-1]["goals"]) == (0, ["shown"]), done.text
    published = [event["role"] for event in home.log() if event["type"] == "published"]
    assert published[1:] == ["Reckoner", "Verifier", "Reckoner"]
    assert len(server.verifications) == 2
    stubborn = team(RECKONS, lambda request: Reply("It is 41."))
    done = stubborn.run("team", "team.yaml", "-c", "-m", "none", env=WIDE)
    assert (done.code, stubborn.log()[-1]["goals"]) == (9, ["claimed"]), done.text
    assert len(server.verifications) == 4, "once more, and then it ends as it stands"


def test_a_role_whose_check_stays_red_is_no_success(team: Team, server: ScriptedServer) -> None:
    home = team(FILE, lambda request: Reply("```\nwrong\n```") if "Alice" in request.prompt[:200] else None)
    home.run("trust", "team.yaml")
    done = home.exits(10, "team", "team.yaml", "Go", "-c", "-m", "none", env=WIDE)
    assert "NOT MET: After round 2 nobody has news to act on. Not done: Alice:" in done.text
    home = team(FILE, lambda request: Reply("```\nright\n```") if "Alice" in request.prompt[:200] else None)
    home.env["AUTOAGENT_ACCEPT_CLAIMS"] = "no"
    done = home.run("team", "team.yaml", "Go", "-c", "-m", "none", env=WIDE)
    assert (done.code, home.log()[-1]["goals"]) == (0, ["checked"]), done.text


def test_an_output_has_its_fields_and_hands_on_by_one(team: Team, server: ScriptedServer) -> None:
    answers = iter(['{"verdict": "maybe", "score": 3}', 'Well: {"verdict": "REJECTED", "score": 3}'])
    home = team(
        "roles:\n"
        "  - {name: Ann, profile: Judge, actions: [{name: Judge, instruction: Judge it,\n"
        "     when: {REJECTED: Bea, APPROVED: end}, output: {verdict: [APPROVED, REJECTED], score: integer}}]}\n"
        "  - {name: Bea, profile: Mender, watch: [], actions: [{name: Mend, instruction: Mend it}]}\n",
        lambda request: Reply(next(answers)) if "named Ann" in request.prompt else None,
    )
    home.exits(9, "team", "team.yaml", "Go", env=WIDE)
    assert said(home) == [("Ann", '{"verdict": "REJECTED", "score": 3}'), ("Bea", "Bea 1")]
    assert "verdict does not fit" in server.requests[1].prompt
    [judged] = [event for event in home.log() if event["type"] == "published" and event["sent_from"] == "Ann"]
    assert judged["extra"]["instruct_content"]["value"] == {"verdict": "REJECTED", "score": 3}


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("Code it}", "Code it, send_to: Bert}", "team.yaml:4: Code is sent to 'Bert', who is not a role; there are"),
        ("Code it}", "Code it, when: {x: [end, Bert]}}", "'Bert', who is not a role; there are Alice, Bob, Carol, and"),
        ("Code it}", "Code it, file: a, when: {x: end}}", "when: an action with a file cannot have it"),
        ("Code it}", "Code it, send_to: Carol}", "nothing wakes Bob"),
        ("roles:", "rolls:", "rolls: no such key of a team. Did you mean roles?"),
        ("watch: [Code]", "watch: [Cod]", "Bob watches for 'Cod', which no role does; there are Code, Review"),
        ("goal: write code", "react_mode: fast", "react_mode: 'fast' is unknown; use react, by_order or plan_and_act."),
        ("name: Code, ", "", "an action has no name"),
        ("instruction: Judge", "instruction: Judge, commands: [fly]", "there is no command 'fly' here"),
        ("instruction: Judge", "instruction: Judge, check: 'true'", "only an action with commands or a file can have"),
        ("instruction: Judge", "instruction: Judge, file: a, commands: [read_file]", "commands or a file, not both"),
        ("idea:", "investment: much\nidea:", "investment: must be an amount of USD such as 1.50, not 'much'."),
        ("instruction: Judge", "instruction: Judge, file: ../a.md", "yaml:7: file: '../a.md' is outside of the"),
        ("instruction: Judge", "instruction: Judge, file: /etc/a", "'/etc/a' is outside of the workspace; name a file"),
        ("watch: [Code]", "watch: [Test]", "team.yaml:6: watch: nothing wakes Bob, which watches for Test; this team"),
        ("watch: [Test]", "watch: []", "team.yaml:7: watch: nothing wakes Carol, which watches for nothing; this"),
        ("goal: write", "watch: [Review], goal: write", "roles: no role watches for UserRequirement, which starts"),
        ("actions: [{name: Review, instruction: Judge}]", "goal: x", "team.yaml:7: Carol has no actions; list them"),
        ("Code it}]", "Code it}, {name: Last, instruction: x}], react_mode: by_order", "nothing wakes Bob, which wa"),
        ("idea: Write a product function", "", "There is no idea: add IDEA, or `idea:` in team.yaml."),
    ],
)
def test_a_bad_file_is_named_with_what_is_wrong(team: Team, old: str, new: str, problem: str) -> None:
    home = team(CHAIN.replace(old, new, 1))
    done = home.exits(2, "team", "team.yaml", env=WIDE)
    assert problem in done.text
    assert not home.runs


@pytest.mark.parametrize("model", ["human", "demo", "replay:x"])
def test_a_model_for_one_agent_is_refused(team: Team, model: str) -> None:
    home = team()
    done = home.run("team", "team.yaml", "--model", model)
    assert (done.code, len(done.text.splitlines())) == (2, 1), done.text
    assert "cannot answer for several roles" in done.text
    assert "answers for one agent alone" in home.exits(2, "--hierarchical", "--ai-goal", "x", "--model", "human").text
    assert not home.runs


def test_a_fork_goes_on_from_the_end_of_a_round(team: Team) -> None:
    home = team()
    home.run("team", "team.yaml")
    first = home.runs[0]
    assert "goes back" in home.exits(2, "resume", first, "--from", "1").text
    home.succeed("fork", first, "--at", "1", "--feedback", "Hurry", env=WIDE)
    second = next(run for run in home.runs if run != first)
    assert home.log(second)[:9] == home.log(first)[:9]
    written = [content for _, content in said(home, second)]
    assert written[:2] == ["Alice 1", "Hurry"]
    assert {"Alice 2", "Bob 2", "Bob 3", "Carol 3"} <= set(written), "who watches for the user's word acts on it"


@pytest.mark.slow
def test_a_team_that_is_killed_many_times_loses_nothing(team: Team, server: ScriptedServer) -> None:
    """No message twice, none lost, no answer paid for that the log has; an agent at work for a role goes on as well."""
    one = "  - {{name: R{0}, profile: P, watch: [UserRequirement, A{1}], actions: [{{name: A{0}, instruction: Go}}]}}\n"
    roles = one.format(0, 1) + one.format(1, 0)
    worker = (
        "  - {name: Alice, profile: Coder, watch: [UserRequirement, Save, A0],\n"
        "     actions: [{name: Save, instruction: Save it, commands: [write_to_file]}]}\n"
        "  - {name: Frank, profile: Coder, watch: [UserRequirement, Save],\n"
        "     actions: [{name: File, instruction: '{last}', file: f.txt, check: test -s f.txt}]}\n"
    )

    def answer(request: Request) -> Any:
        time.sleep(0.01)
        if "named R" in request.prompt[:60]:
            return Reply(f"{request.prompt.count('(P)')} words before")
        if "You are Frank" in request.prompt:
            return Reply("```\nis it\n```")
        return working(request)

    home = team("roles:\n" + roles + worker, answer)
    chance, kills, started = random.Random(17), 0, ("team", "team.yaml", "Go", "-c", "-m", "none", "--n-round", "6")
    home.run("trust", "team.yaml")
    assert home.run(*started).code == 4
    expected = sorted(messages(home))
    took = len(expected) * 0.02 + 0.8
    while kills < KILLS:
        process = home.start(*started)
        while True:
            time.sleep(chance.uniform(0.05, took))
            if process.poll() is not None:
                break
            process.kill()
            process.wait()
            kills += 1
            run = home.runs[-1]
            process.communicate()
            if not home.log(run) or home.ended(run):
                break
            process = home.start("resume", run, "-c")
        process.communicate()
        if home.ended():
            assert sorted(messages(home)) == expected
            calls = [e["sha256"] + e["agent"] + str(e["step"]) for e in home.log() if e["type"] == "answered"]
            assert len(calls) == len(set(calls)), "no answer is asked for, and so paid for, twice"


@pytest.mark.slow
def test_a_team_of_a_thousand_rounds_grows_by_its_messages_alone(team: Team) -> None:
    pid: list[int] = []
    resident: list[int] = []  # pages, by round

    def answer(request: Request) -> Reply:
        resident.append(int(Path(f"/proc/{pid[0]}/statm").read_text().split()[1]) if pid else 0)
        return Reply(f"{name_of(request)} says yes.")

    role = "  - {{name: {0}, profile: {0}, watch: [{1}], actions: [{{name: Of{0}, instruction: '{{last}} Go on.'}}]}}\n"
    roles = role.format("Ann", "UserRequirement, OfBen") + role.format("Ben", "OfAnn")
    home = team(f"idea: Speak\nn_round: 1000\nroles:\n{roles}", answer)
    process = home.start("team", "team.yaml", "-c", "-m", "none")
    pid.append(process.pid)
    shown, err = process.communicate(timeout=10 * PATIENCE)
    assert (process.returncode, len(said(home))) == (0, 1000), (shown + err)[-2000:]
    log = home.log()
    ends = [*itertools.pairwise(number for number, event in enumerate(log) if event["type"] == "round_ended")]
    sizes = [len(str(log[first:last])) for first, last in ends]
    assert max(sizes[-50:]) <= 1.2 * max(sizes[50:100])
    assert (statistics.median(resident[-50:]) - statistics.median(resident[50:100])) * 4096 <= 20e6


def messages(home: Home) -> list[tuple[int, str, str]]:
    """The messages of a run; after a crash it may be unknown which files were changed."""
    found = [event for event in home.log() if event["type"] == "published"]
    return [(e["step"], e["agent"], e["content"].partition("\nFiles changed")[0]) for e in found]


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_the_examples_can_be_read(path: Path) -> None:
    definition = read_team(path)
    assert definition["idea"]
    assert len(team_of(definition).env.roles) >= 2
    assert read_mapping(path, definition.keys())


def test_a_file_that_the_idea_names_and_standard_input_reach_the_roles(team: Team) -> None:
    prompts: list[str] = []

    def answer(request: Request) -> Reply:
        prompts.append(asked(request))
        return Reply("done")

    home = team(CHAIN, answer)
    home.write("notes.md", "The ferry leaves at 7:40.")
    done = home.succeed("team", "team.yaml", "write about @notes.md and @gone.md", "-c", stdin="Rain from noon.\n")
    assert "Not attached: gone.md: No such file or directory." in done.text
    first = prompts[0]
    assert "notes.md:\nThe ferry leaves at 7:40." in first and "write about @notes.md" in first
    assert re.search(r'<untrusted-\w+ from "standard input">\nstandard input:\nRain from noon\.', first), first
    published = [event for event in home.log() if event["type"] == "published" and event["role"] == "Human"]
    assert [event["data"] for event in published[:2]] == [{"untrusted": "standard input"}, {"private": True}]


@pytest.mark.slow
def test_what_a_role_writes_is_shown_as_it_comes(team: Team) -> None:
    home = team(CHAIN, lambda request: Broken("silence", "First line\nsecond line\nand a thi"))
    with opened(home.terminal("team", "team.yaml", "-c")) as session:
        session.sees("Alice writes, 3 lines | ")
        session.sees("  | First line")
        session.sees("  | second line")
        session.presses_ctrl_c()
        assert session.ends() == 130
