"""A server that was started anew with other abilities than were found out before: the run goes on, and says how."""

from __future__ import annotations

from typing import Any

import pytest
from driver import FINISH, GOAL, Home
from server import Fault, Reply, Request, ScriptedServer, command

RUN = (*GOAL, "-c", "-m", "none")
GENERIC = {400: "bad request", 422: "Unprocessable Entity", 500: "Internal Server Error"}
CARRIERS = ("tools", "response_format")
NOW = {"retry-after-ms": "1"}


def found_out(home: Home, server: ScriptedServer) -> None:
    """Have it kept that the server takes tools."""
    server.add(*FINISH)
    assert home.run(*RUN).code == 0
    assert len(server.probes) == 1


def refusing(server: ScriptedServer, status: int, *names: str) -> None:
    """Answer whatever holds one of these with a fault that says nothing."""
    answer = server.answer

    def refuse(request: Request) -> Any:
        if any(name in request.body for name in names):
            server.refused.append(request)
            return Fault(status, GENERIC[status], headers=NOW)
        if request.body["messages"][0]["content"].startswith("Are you ready?"):
            return Reply("Yes.")
        return answer(request)

    server.answer = refuse  # type: ignore[method-assign]


@pytest.mark.slow
@pytest.mark.parametrize("status", GENERIC)
def test_a_fault_that_says_nothing_leads_to_plain_text(served: Home, server: ScriptedServer, status: int) -> None:
    found_out(served, server)
    refusing(server, status, *CARRIERS)
    server.add(*FINISH)
    done = served.succeed(*RUN)
    flat = " ".join(done.text.split())
    assert f"answered {status}: {GENERIC[status]}; from now on it is asked by text (AUTOAGENT_ASKING overrides" in flat
    assert '"command": {' in server.requests[-1].prompt, "the form of a reply is in the prompt"
    asked = len(server.refused)
    server.add(*FINISH)
    assert served.run(*RUN).code == 0
    assert len(server.refused) == asked, "it is kept"


@pytest.mark.parametrize("status", [400, *(pytest.param(status, marks=pytest.mark.slow) for status in (422, 500))])
def test_a_new_server_with_such_a_fault_is_asked_in_plain_text(
    served: Home, server: ScriptedServer, status: int
) -> None:
    refusing(server, status, *CARRIERS)
    server.add(*FINISH)
    served.succeed(*RUN)
    assert '"command": {' in server.requests[-1].prompt


def test_a_server_that_takes_a_schema_now_is_asked_by_it(served: Home, server: ScriptedServer) -> None:
    found_out(served, server)
    server.rejects = ("tools",)
    server.add(*FINISH)
    served.succeed(*RUN)
    assert "response_format" in server.requests[-1].body


def test_a_server_that_ignores_tools_now_is_noticed_by_its_replies(served: Home, server: ScriptedServer) -> None:
    found_out(served, server)
    server.ignores = ("tools",)
    server.add(Reply("I will list the files now."), *FINISH)
    done = served.succeed(*RUN)
    assert "no longer answers requests made by tools; from now on it is asked by schema" in " ".join(done.text.split())


def test_a_fault_that_has_nothing_to_do_with_the_way_is_told_as_it_was(served: Home, server: ScriptedServer) -> None:
    found_out(served, server)
    server.add(*[Fault(400, "the moon is full")] * 2)
    done = served.run(*RUN)
    assert done.code == 1
    assert "answered 400: the moon is full" in " ".join(done.text.split())
    server.add(command("do_nothing"), *FINISH)
    assert served.run(*RUN).code == 0
    assert "tools" in server.requests[-1].body, "nothing else is kept for it"


@pytest.mark.parametrize(("way", "name"), [("tools", "tools"), ("schema", "response_format"), ("text", "")])
def test_a_way_can_be_forced(served: Home, server: ScriptedServer, way: str, name: str) -> None:
    server.add(*FINISH)
    env = {"AUTOAGENT_ASKING": way}
    assert served.run(*RUN, env=env).code == 0
    assert server.probes == []
    assert [carrier for carrier in CARRIERS if carrier in server.requests[-1].body] == [name][: bool(name)]
    if name:
        server.add(Fault(400, "bad request"))
        done = served.run(*RUN, env=env)
        assert done.code == 1
        assert f"bad request; AUTOAGENT_ASKING={way} allows no other way: change it" in " ".join(done.text.split())


def test_a_window_that_is_smaller_now_is_looked_up_at_the_start(home: Home, server: ScriptedServer) -> None:
    home.point_at(server)
    home.env["AUTOAGENT_WINDOW"] = ""
    for size in (32_000, 16_000):
        server.models = ({"id": "test-model", "max_model_len": size},)
        server.add(*FINISH)
        assert home.run(*RUN).code == 0
        assert home.log()[0]["window"] == size
