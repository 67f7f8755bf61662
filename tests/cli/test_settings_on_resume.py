"""What a run that is taken up again goes by: what it has kept, what the user has set since, and flags before both."""

from __future__ import annotations

import pytest
from driver import FINISH, GOAL, Done, Home
from server import ScriptedServer, command

CONTINUOUS = ("-c", "-m", "none")


def begun(home: Home, server: ScriptedServer, *flags: str, env: dict[str, str] | None = None) -> Done:
    """A run that was stopped by its limit of commands, and could finish now."""
    server.add(command("do_nothing"))
    done = home.run(*GOAL, *CONTINUOUS, "-l", "1", *flags, env=env)
    server.add(*FINISH)
    return done


@pytest.mark.parametrize("where", ["the environment", ".env", ".config/autoagent/config.yaml", "a flag"])
def test_a_ceiling_that_the_user_sets_now_holds_over_the_kept_one(
    served: Home, server: ScriptedServer, where: str
) -> None:
    assert begun(served, server, "--max-tokens", "90000").code == 4
    env = {"AUTOAGENT_MAX_TOKENS": "2000"} if where == "the environment" else {}
    if where.startswith("."):
        served.write(where, "AUTOAGENT_MAX_TOKENS=2000\n" if where == ".env" else "max_tokens: 2000\n")
    flags = ("--max-tokens", "2000") if where == "a flag" else ()
    stopped = served.run("resume", "-c", *flags, env=env)
    assert stopped.code == 7, stopped.text
    assert "of the limit of 2000 (--max-tokens)" in " ".join(stopped.text.split())
    assert "Changed from here on: max_tokens 90000 -> 2000." in stopped.text


def test_what_was_said_already_when_the_run_began_does_not_lift_what_its_flags_have_set(
    served: Home, server: ScriptedServer
) -> None:
    said = {"AUTOAGENT_MAX_TOKENS": "90000"}
    assert begun(served, server, "--max-tokens", "2000", env=said).code == 7
    again = served.run("resume", "-c", env=said)
    assert (again.code, "Changed from here on" in again.text) == (7, False), again.text
    assert served.run("resume", "-c", env={"AUTOAGENT_MAX_TOKENS": "80000"}).code == 0


@pytest.mark.parametrize(("flag", "low"), [("--max-tokens", "10"), ("--max-seconds", "0.0001")])
@pytest.mark.parametrize("word", ["none", "0"])
def test_a_flag_lifts_a_ceiling(served: Home, server: ScriptedServer, flag: str, low: str, word: str) -> None:
    variable = {f"AUTOAGENT_{flag[2:].replace('-', '_').upper()}": low}
    server.add(*FINISH)
    assert served.run(*GOAL, *CONTINUOUS, env=variable).code in (4, 7)
    assert served.run("resume", "-c", flag, word, env=variable).code == 0
    server.add(*FINISH)
    assert served.run(*GOAL, *CONTINUOUS, flag, word, env=variable).code == 0


def test_a_flag_lifts_the_budget_that_is_saved_with_the_task(served: Home, server: ScriptedServer) -> None:
    served.write("ai_settings.yaml", "ai_name: A\nai_role: a tester\nai_goals: [Do the thing]\napi_budget: 0.25\n")
    server.add(command("do_nothing"), *FINISH, *FINISH)
    assert served.run("-y", *CONTINUOUS, "-l", "1").code == 4
    done = served.succeed("resume", "-c", "--budget", "none")
    assert "Changed from here on: api_budget 0.25 -> 0.0." in done.text
    assert "The task has changed" not in done.text
    assert served.run("-y", *CONTINUOUS, "--budget", "0").code == 0
    first, resumed = (event for event in served.log(served.runs[0]) if event["type"] in ("run_started", "resumed"))
    assert [event["limits"]["usd"] for event in (first, resumed, served.log()[0])] == [0.25, 0, 0]


@pytest.mark.parametrize("how", ["OPENAI_BASE_URL", "--base-url"])
def test_a_run_goes_on_where_its_server_has_moved_to(served: Home, server: ScriptedServer, how: str) -> None:
    server.add(command("do_nothing"))
    assert served.run(*GOAL, *CONTINUOUS, "-l", "1").code == 4
    with ScriptedServer() as moved:
        moved.add(*FINISH)
        server.add(*FINISH)
        old = served.env.pop("OPENAI_BASE_URL")
        named = {"OPENAI_BASE_URL": moved.base_url} if how == "OPENAI_BASE_URL" else {}
        flags = () if named else (how, moved.base_url)
        done = served.succeed("resume", "-c", *flags, env=named)
        assert (len(server.requests), len(moved.requests)) == (1, 1)
        assert f"openai_base_url '{old}' -> '{moved.base_url}'" in " ".join(done.text.split())


def test_an_address_that_nobody_names_any_more_is_still_that_of_the_run(served: Home, server: ScriptedServer) -> None:
    assert begun(served, server).code == 4
    del served.env["OPENAI_BASE_URL"]
    assert served.run("resume", "-c").code == 0
    assert len(server.requests) == 2


def test_the_embedder_that_the_user_names_is_used_though_it_is_the_usual_one(
    served: Home, server: ScriptedServer
) -> None:
    server.add(command("write_to_file", filename="a.txt", text="oak"), *FINISH)
    assert served.run(*GOAL, "-c", env={"EMBEDDING_MODEL": "text-embedding-3-small"}).code == 0
    assert {request.body["model"] for request in server.embeddings} == {"text-embedding-3-small"}
