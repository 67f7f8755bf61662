"""An endpoint that is away for a while: it is waited for, visibly, while there is patience and no limit is reached."""

from __future__ import annotations

import json
import signal
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from driver import FINISH, GOAL, PATIENCE, Home
from raw_endpoint import Connection, Relay
from server import Command, Fault, Reply, ScriptedServer, command

DOWN = Fault(503, "down for maintenance")
LATER = Fault(503, "down for maintenance", headers={"retry-after": "50"})
RUN = (*GOAL, "-m", "none")
DO_NOTHING = command("do_nothing")


@pytest.fixture
def away() -> Iterator[str]:
    """The base URL of a server that is not there."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    yield f"http://127.0.0.1:{port}/v1"


def answered_once(home: Home, server: ScriptedServer) -> None:
    """Have the program find out how to ask this server."""
    server.add(*FINISH)
    assert home.run(*RUN, "-c").code == 0


@pytest.mark.slow
def test_an_outage_of_many_attempts_is_waited_out_and_the_screen_says_until_when(
    served: Home, server: ScriptedServer
) -> None:
    server.add(DO_NOTHING, *[Fault(503, "down", headers={"retry-after-ms": "1"})] * 8, *FINISH)
    done = served.succeed(*RUN, "-c")
    assert done.text.count("WAITING: 127.0.0.1 answered 503: down; asking again") == 1, "the reason stands there once"
    assert done.text.lower().count("waiting: ") == 8
    assert "until " in done.text
    log = served.log()
    assert sum(event["type"] == "retried" for event in log) == 8


def test_what_a_server_asks_to_wait_is_no_more_than_its_patience(served: Home, server: ScriptedServer) -> None:
    server.add(Fault(429, "busy", headers={"retry-after": "400"}))
    done = served.run(*RUN, "-c", "--patience", "300")
    assert done.code == 1
    assert "it asks to wait 400 s, the patience left is 300 s" in " ".join(done.text.split())
    process = served.start("resume", "-c")  # with 600 s
    server.add(Fault(429, "busy", headers={"retry-after": "400"}))
    assert process.stdout
    line = next(line for line in process.stdout if "WAITING" in line)
    assert "busy" in line
    process.terminate()
    process.communicate(timeout=PATIENCE)
    assert process.returncode == 130


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_wait_at_once(served: Home, server: ScriptedServer, number: int) -> None:
    server.add(LATER)
    process = served.start(*RUN, "-c")
    assert process.stdout
    assert any("WAITING" in line for line in process.stdout)
    process.send_signal(number)
    process.communicate(timeout=PATIENCE)
    assert process.returncode == 130


@pytest.mark.slow
def test_the_limit_of_time_ends_the_wait(served: Home, server: ScriptedServer) -> None:
    server.add(LATER)
    done = served.run(*RUN, "-c", "--max-seconds", "1.5")
    assert done.code == 4, done.text
    assert "The time limit of 1.5 s is reached." in done.text


def test_a_sub_agent_that_is_ended_waits_no_longer(served: Home, server: ScriptedServer) -> None:
    def answer(request: Any) -> Any:
        if "Say hello" in request.body["messages"][0]["content"]:
            return LATER
        steps = [event for event in request.body["messages"] if event["role"] == "assistant"]
        if not steps:
            return command("start_agent", name="Helper", task="Say hello", prompt="Say hello")
        return command("delete_agent", key="1") if len(steps) == 1 else FINISH[0]

    server.script = [answer] * 20
    served.succeed(*RUN, "-c")
    assert "did not stop in time" not in json.dumps(served.log())


@pytest.mark.slow
@pytest.mark.parametrize("variable", ["AUTOAGENT_PATIENCE", "AUTOAGENT_OUTAGE"])
def test_who_is_asked_may_wait_or_leave(served: Home, server: ScriptedServer, variable: str) -> None:
    served.env[variable] = "1"
    server.add(*[DOWN] * 50)
    left = served.run(*RUN, stdin="n\n")
    assert left.code == 6, left.text
    assert "Keep trying? Enter = yes, n = save and stop" in " ".join(left.text.split())
    assert "down for maintenance (tried" in " ".join(left.text.split())

    server.script[:] = [Fault(503, "down", headers={"retry-after": "50"}), *FINISH]
    served.succeed("resume", stdin="\ny -9\n")
    (told,) = [event["reason"] for event in served.log() if event["type"] == "retried"]
    assert told.startswith("The user chose to wait: 127.0.0.1 answered 503: down (it asks to wait 50 s")

    server.script[:] = [Fault(503, "down", headers={"retry-after": "50"})]
    nobody = served.run(*RUN)
    assert nobody.code == 1, "nobody answered, and the reason is the endpoint"


def test_an_address_where_nothing_ever_answered_is_given_up_soon(home: Home, server: ScriptedServer, away: str) -> None:
    home.point_at(server)
    done = home.run(*RUN, "-c", "--patience", "1", env={"OPENAI_BASE_URL": away})
    assert done.code == 1
    assert f"nothing answers at {away} (connection refused); is the server running? (tried" in done.err
    assert done.err.count("\n") == 1
    assert home.runs == []


# Limits ----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_budget_reserves_the_reply_that_is_to_be_expected(home: Home, server: ScriptedServer) -> None:
    usage = {"prompt_tokens": 2000, "completion_tokens": 100}  # $0.0035
    server.add(*[Command("write_to_file", {"filename": f"{i}.txt", "text": "x"}, {}, usage) for i in range(40)])
    home.pay(server, "gpt-5")  # $1.25 and $10 a million tokens
    done = home.run(*RUN, "-c", "--budget", "0.05")
    assert done.code == 7, done.text
    spent = sum(event["usage"]["cost"] for event in home.log() if "usage" in event)
    assert 0.035 < spent <= 0.05


def test_a_reply_is_cut_where_the_ceiling_is(home: Home, server: ScriptedServer) -> None:
    def long(request: Any) -> Reply:
        limit = request.body.get("max_completion_tokens") or request.body["max_tokens"]
        words = min(limit, 5000)
        usage = {"prompt_tokens": 1500, "completion_tokens": words}
        return Reply("x " * 10, finish="length" if words == limit else "stop", usage=usage)

    server.add(long)
    home.pay(server, "gpt-5")  # $1.25 and $10 a million tokens
    done = home.run(*RUN, "-c", "--budget", "0.04")
    assert done.code in (7, 8), done.text
    assert sum(event["usage"]["cost"] for event in home.log() if "usage" in event) <= 0.04


def test_without_usage_of_the_server_tools_and_thoughts_are_counted(served: Home, server: ScriptedServer) -> None:
    def think(_: Any) -> dict[str, Any]:
        arguments = json.dumps({"thoughts": {"text": "t"}})
        call = {"id": "1", "type": "function", "function": {"name": "do_nothing", "arguments": arguments}}
        message = {"role": "assistant", "content": None, "reasoning_content": "hm " * 1000, "tool_calls": [call]}
        return {"choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}]}

    server.add(think)
    done = served.run(*RUN, "-c", "-l", "1")
    assert done.code == 4, done.text
    log = served.log()
    usage = next(event["usage"] for event in log if event["type"] == "thought")
    assert usage["completion"] > 1000
    prompted = next(event["tokens"] for event in log if event["type"] == "prompted")
    assert usage["prompt"] >= 0.95 * prompted


@pytest.mark.slow
def test_a_request_that_is_given_up_after_silence_counts(served: Home, server: ScriptedServer) -> None:
    answered_once(served, server)

    def silent(_: Any) -> Any:
        server.closing.wait(3)
        return DO_NOTHING

    server.add(silent, DO_NOTHING)
    done = served.run(*RUN, "-c", "-l", "1", env={"AUTOAGENT_SILENCE": "1"})
    assert done.code == 4, done.text
    log = served.log()
    cut = next(event["usage"] for event in log if event["type"] == "spent" and event["purpose"].startswith("replies"))
    assert cut["prompt"] >= next(event["tokens"] for event in log if event["type"] == "prompted") * 0.95


@pytest.mark.slow
def test_a_retry_that_would_pass_the_ceiling_is_not_made(served: Home, server: ScriptedServer) -> None:
    answered_once(served, server)
    asked = len(server.requests)

    def silent(_: Any) -> Any:
        server.closing.wait(2)
        return DO_NOTHING

    server.add(*[silent] * 9)
    done = served.run(*RUN, "-c", "--max-tokens", "6500", env={"AUTOAGENT_SILENCE": "1"})
    assert done.code == 7, done.text
    assert 1 <= len(server.requests) - asked <= 2


# The embedder ----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_recall_by_words_goes_on_while_the_embedder_is_down(served: Home, server: ScriptedServer, away: str) -> None:
    note = command("memory_add", text="The zebra key is under the flowerpot.")
    server.add(note, command("recall", query="zebra key"), command("write_to_file", filename="a", text="x"), *FINISH)
    server.embed = lambda text: (_ for _ in ()).throw(ValueError)  # type: ignore[assignment]
    server.embedding_script = [Fault(503, "down")] * 99
    served.succeed(*GOAL, "-c")
    log = served.log()
    recalled = next(event for event in log if event["type"] == "returned" and event["step"] == 2)
    assert "flowerpot" in recalled["text"]
    assert len(server.embeddings) == 1, "what is down is left alone for a while"
    told = [event["reason"] for event in log if event["type"] == "retried"]
    assert len(told) == 1
    assert told[0] == "Memories are recalled by their words alone: 127.0.0.1 answered 503: down (tried once)"


@pytest.mark.slow
def test_the_limit_of_time_ends_a_silence_too(served: Home, server: ScriptedServer) -> None:
    answered_once(served, server)

    def silent(_: Any) -> Command:
        server.closing.wait(PATIENCE)
        return DO_NOTHING

    server.add(silent)
    done = served.run(*RUN, "-c", "--max-seconds", "2")  # the usual silence here is 300 s
    assert done.code == 4, done.text
    assert "The time limit of 2 s is reached." in done.text


@pytest.mark.parametrize("said", ["content", pytest.param("reasoning_content", marks=pytest.mark.slow)])
def test_the_limit_of_time_ends_an_answer_that_goes_on(served: Home, server: ScriptedServer, said: str) -> None:
    piece = json.dumps({"choices": [{"index": 0, "delta": {said: "hm "}}]}).encode()
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
    ended = threading.Event()

    def goes_on(connection: Connection) -> None:
        connection.sendall(head)
        while not ended.wait(0.1):
            connection.sendall(b"data: " + piece + b"\n\n")

    with Relay(server, goes_on) as relay:
        at_it = {"OPENAI_BASE_URL": relay.base_url, "AUTOAGENT_ASKING": "text"}
        done = served.run(*RUN, "-c", "--max-seconds", "1.5", env=at_it)
        ended.set()
    assert done.code == 4, done.text
    assert "The time limit of 1.5 s is reached." in done.text
    (cut,) = [event["usage"] for event in served.log() if event["type"] == "spent"]
    assert cut["completion"] > 0, "what it had said by then is counted"
