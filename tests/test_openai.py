"""The OpenAI-compatible model: the real `openai` package against a scripted server on loopback."""

from __future__ import annotations

import json
import math
import socket
import stat
import struct
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fakes import Heard
from raw_answers import Listening
from server import Broken, Command, Fault, Reply, Request, ScriptedServer, command

from autoagent.core.commands import CommandSpec, Parameter
from autoagent.core.errors import (
    ContextOverflow,
    ModelError,
    QuotaExceeded,
    SettingsError,
    SetupError,
    StopRun,
    Unreachable,
)
from autoagent.core.model import Message, Price, ToolCall, Usage
from autoagent.core.task import Outcome, Status
from autoagent.models import pricing
from autoagent.models.openai.chat import UNKNOWN_WINDOW, OpenAIModel, Overrides
from autoagent.models.openai.embeddings import OpenAIEmbedder
from autoagent.models.openai.endpoint import Endpoint, RequestTimeouts
from autoagent.models.openai.retry import RetryPolicy

KEY = "sk-test-1234567890abcdef"
HELLO = (Message("system", "You are Bob."), Message("user", "Say hello."))
READING = (Parameter("filename", "string"), Parameter("lines", "integer", required=False))
READ = CommandSpec("read_file", "Read a file", "files", "read", READING)


def words(text: str) -> int:
    return len(text.split())


def at_once() -> RetryPolicy:
    """The usual policy on a clock that stands still but for its sleeping, which takes no time."""
    slept: list[float] = []
    return RetryPolicy(attempts=3, sleep=slept.append, timer=lambda: sum(slept))


def endpoint(server: ScriptedServer | str, **more: Any) -> Endpoint:
    base_url = server if isinstance(server, str) else server.base_url
    more.setdefault("timeouts", RequestTimeouts(connect=2.0, silence=0.3, total=3.0))
    more.setdefault("policy", at_once())
    return Endpoint(api_key=KEY, base_url=base_url, **more)


def model(server: ScriptedServer | str, name: str = "test-model", **more: Any) -> OpenAIModel:
    said = {key: more.pop(key) for key in ("temperature", "window", "asking") if key in more}
    return OpenAIModel(name=name, endpoint=endpoint(server), count=words, overrides=Overrides(**said), **more)


# A good answer ---------------------------------------------------------------------------------------------------


def test_text_streams_to_the_listener_and_comes_back_whole(server: ScriptedServer) -> None:
    server.add(Reply("Hello there, this is a longer answer — with ünïcödé."))
    heard = Heard()
    asked = model(server, temperature=0.5)
    done = asked.complete(HELLO, max_tokens=50, listener=heard)
    assert done.text == heard.streamed == "Hello there, this is a longer answer — with ünïcödé."
    assert (done.calls, done.truncated, done.retries) == ((), False, ())
    assert (done.usage.prompt, done.usage.completion) == (100, 10)
    sent = server.requests[0]
    assert sent.body["messages"][1] == {"role": "user", "content": "Say hello."}
    assert (sent.body["model"], sent.body["max_tokens"], sent.body["temperature"]) == ("test-model", 50, 0.5)
    assert sent.body["stream_options"] == {"include_usage": True}
    assert sent.headers["authorization"] == f"Bearer {KEY}"
    assert "tools" not in sent.body and "response_format" not in sent.body
    assert asked.name == "test-model", "the chunks say another name"


def test_one_connection_serves_all_requests(server: ScriptedServer) -> None:
    server.add(*(Reply("Hello.") for _ in range(3)))
    asked = model(server)
    for _ in range(3):
        asked.complete(HELLO, max_tokens=50)
    assert (len(server.requests), server.connections) == (3, 1)


def test_a_server_that_does_not_stream_is_understood(server: ScriptedServer) -> None:
    server.add(Reply("Hi.", streams=False), Reply("", (("read_file", "{}"),), streams=False))
    heard = Heard()
    assert model(server).complete(HELLO, max_tokens=5, listener=heard).text == heard.streamed == "Hi."
    assert model(server).complete(HELLO, max_tokens=5).calls == (ToolCall("read_file", "{}"),)


def test_an_answer_is_marked_where_it_runs_into_the_limit_and_not_where_done_is_missing(server: ScriptedServer) -> None:
    server.add(Reply("Hello th", finish="length"), Broken("undone", "All of it."))
    asked = model(server)
    assert asked.complete(HELLO, max_tokens=2).truncated
    done = asked.complete(HELLO, max_tokens=5)
    assert (done.text, done.truncated) == ("All of it.", False)


def test_halves_of_a_surrogate_pair_are_joined_and_lone_ones_replaced(server: ScriptedServer) -> None:
    server.add(Reply("seven..\ud83d\ude00", finish="stop"), Reply("6 long\ud83d\ude00!"), Reply("lone \ud83d."))
    asked, heard = model(server), Heard()
    assert [asked.complete(HELLO, max_tokens=5, listener=heard).text for _ in range(3)] == [
        "seven..\U0001f600",
        "6 long\U0001f600!",  # the pair comes in two pieces
        "lone \ufffd.",
    ]
    heard.streamed.encode()
    server.add(Reply("Hi."))
    asked.complete([Message("user", "a \udcff b")], max_tokens=5)
    assert server.requests[-1].prompt == "a \ufffd b"


# Asking for a command --------------------------------------------------------------------------------------------


def test_tools_are_found_by_a_probe_and_required(server: ScriptedServer) -> None:
    server.add(command("read_file", filename="a.txt"))
    heard = Heard()
    asked = model(server)
    done = asked.complete(HELLO, commands=[READ], max_tokens=99, listener=heard)
    assert asked.asking == "tools"
    assert [call.name for call in done.calls] == ["read_file"]
    assert json.loads(done.calls[0].arguments)["filename"] == "a.txt"
    assert heard.streamed == done.calls[0].arguments, "the call streams; the probe is not heard"
    body = server.requests[0].body
    assert (body["tool_choice"], body["parallel_tool_calls"]) == ("required", False)
    assert [tool["function"]["name"] for tool in body["tools"]] == ["read_file"]
    assert len(server.probes) == 1


@pytest.mark.parametrize(
    ("rejects", "ignores", "asking"),
    [
        ((), (), "tools"), (("tools",), (), "schema"), ((), ("tools",), "schema"),
        (("tools", "response_format"), (), "text"), ((), ("tools", "response_format"), "text"),
        (("tools",), ("response_format",), "text"), (("tool_choice", "parallel_tool_calls"), (), "tools"),
    ],
)  # fmt: skip
def test_what_a_server_takes_decides(rejects: tuple[str, ...], ignores: tuple[str, ...], asking: str) -> None:
    with ScriptedServer(command("read_file", filename="a.txt"), rejects=rejects, ignores=ignores) as server:
        asked = model(server)
        assert asked.asking == asking
        done = asked.complete(HELLO, commands=[READ], max_tokens=99)
        body = server.requests[0].body
        assert ("tools" in body, "response_format" in body) == (asking == "tools", asking == "schema")
        if asking == "tools":
            assert done.calls[0].name == "read_file"
        else:
            assert json.loads(done.text)["command"] == {"name": "read_file", "args": {"filename": "a.txt"}}


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (400, "registry.example/library/tiny does not support tools"),
        (500, "tools param requires --jinja flag"),
        (404, "No endpoints found that support tool use. Try another model."),
        (400, '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'),
        (422, "Extra inputs are not permitted: body.tools"),
        (501, "Function calling is not implemented"),
    ],
)
def test_how_real_servers_refuse_tools(server: ScriptedServer, status: int, message: str) -> None:
    server.on_probe = lambda request: Fault(status, message) if "tools" in request.body else Reply('{"ready": "yes"}')
    assert model(server).asking == "schema"
    assert len(server.probes) <= 3, "a refusal is not retried"


def test_strict_schemas_require_every_property_also_of_a_servers_schema_that_requires_nothing() -> None:
    place = Parameter("place", "object", schema={"type": "object", "properties": {"x": {"type": "number"}}})
    move = CommandSpec("move", "Move", "files", "read", (place,))
    with ScriptedServer(command("read_file", filename="a", lines=None), rejects=["tools"]) as server:
        model(server).complete(HELLO, commands=[READ, move], max_tokens=99)
        bound = server.requests[0].body["response_format"]["json_schema"]
        of_read, of_move = (form["properties"]["args"] for form in bound["schema"]["properties"]["command"]["anyOf"])
        assert bound["strict"] is True
        assert of_read["required"] == ["filename", "lines"]
        assert of_read["properties"]["lines"] == {"anyOf": [{"type": "integer"}, {"type": "null"}]}
        assert of_move["properties"]["place"]["required"] == ["x"]


def test_the_way_is_probed_once_and_kept_private(tmp_path: Path) -> None:
    ways = tmp_path / "state" / "ways.json"
    with ScriptedServer(rejects=["tools", "temperature"]) as server:
        assert model(server, cache=ways, temperature=0.0).asking == "schema"
        probes = len(server.probes)
        assert model(server, cache=ways).asking == "schema"
        assert len(server.probes) == probes
        assert model(server, "other-model", cache=ways).asking == "schema"
        assert len(server.probes) > probes, "another model is probed for itself"
    assert stat.S_IMODE(ways.stat().st_mode) == 0o600
    kept = json.loads(ways.read_text())
    assert kept[f"{server.base_url} test-model"]["without"] == ["temperature"]
    assert KEY not in ways.read_text()
    assert [file.name for file in ways.parent.iterdir()] == ["ways.json"]


@pytest.mark.parametrize("text", ["", "[]", "{", '{"x": 1}', '{"%s test-model": {"asking": "magic", "without": 5}}'])
def test_a_damaged_record_of_ways_costs_a_probe(server: ScriptedServer, tmp_path: Path, text: str) -> None:
    ways = tmp_path / "ways.json"
    ways.write_text(text.replace("%s", server.base_url))
    assert model(server, cache=ways).asking == "tools"
    assert len(server.probes) == 1


def test_what_the_probe_cost_is_counted_beside_the_answers(server: ScriptedServer) -> None:
    server.add(command("read_file", filename="a"), command("read_file", filename="b"))
    asked = model(server)
    assert asked.complete(HELLO, commands=[READ], max_tokens=9).usage.prompt == 100
    assert asked.take_usage().prompt == 100
    assert asked.complete(HELLO, commands=[READ], max_tokens=9).usage.prompt == 100
    assert asked.take_usage() == Usage()


def test_an_error_that_is_not_about_the_way_is_raised_and_not_recorded(server: ScriptedServer, tmp_path: Path) -> None:
    server.on_probe = lambda request: Fault(400, "the model is still being installed")
    asked = model(server, cache=tmp_path / "ways.json")
    with pytest.raises(ModelError, match="still being installed"):
        _ = asked.asking
    assert not (tmp_path / "ways.json").exists()
    server.on_probe = None
    assert asked.asking == "tools"


def test_a_model_that_thinks_aloud_gets_room_in_the_probe(server: ScriptedServer) -> None:
    thinks = Reply("<think>Well, let me see", finish="length")
    ready = Reply("", (("answer", '{"ready": "no"}'),), "tool_calls")
    server.on_probe = lambda request: thinks if request.body["max_tokens"] < 1000 else ready
    assert model(server).asking == "tools"


def test_a_model_that_rambles_is_not_waited_for(server: ScriptedServer) -> None:
    server.on_probe = lambda request: Reply('{{"name": "answer"}}' + "\n" * 50, finish="length")
    assert model(server).asking == "text"
    assert [request.body["max_tokens"] for request in server.probes] == [64, 64]


def test_several_tool_calls_and_the_legacy_one_all_come_back(server: ScriptedServer) -> None:
    calls = (("read_file", '{"filename": "a"}'), ("write_to_file", '{"filename": "b", "text": "c"}'))
    server.add(Reply("I do both.", calls, "tool_calls"), Reply("", calls[:1], "function_call", legacy=True))
    asked = model(server)
    both = asked.complete(HELLO, max_tokens=9)
    assert (both.text, both.calls) == ("I do both.", tuple(ToolCall(*call) for call in calls))
    assert asked.complete(HELLO, max_tokens=9).calls == (ToolCall(*calls[0]),)


# Parameters ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["o3", "gpt-5.1", "gpt-5", "gpt-5-mini-2025-08-07", "openai/gpt-5.4", "gpt-6.1-sol"])
def test_models_that_reason_get_their_own_limit_and_no_temperature(server: ScriptedServer, name: str) -> None:
    server.add(Reply("Hi."))
    asked = model(server, name, temperature=0.0)
    asked.complete(HELLO, max_tokens=500)
    body = server.requests[0].body
    assert "max_tokens" not in body and "temperature" not in body
    assert body["max_completion_tokens"] == 16_500, "what it needs to reason is not taken from its reply"
    table = pricing.find_model(name)
    assert table and asked.window == table.window - 16_000


@pytest.mark.parametrize("name", ["gpt-4o", "gpt-5-chat-latest", "llama3", "qwen2.5-coder", "phi-o3"])
def test_models_that_do_not_reason_get_a_temperature(server: ScriptedServer, name: str) -> None:
    server.add(Reply("Hi."), Reply("Hi."))
    model(server, name, temperature=0.0).complete(HELLO, max_tokens=500)
    assert (server.requests[0].body["temperature"], server.requests[0].body["max_tokens"]) == (0.0, 500)
    model(server, name, temperature=0.0).complete(HELLO, max_tokens=500, temperature=0.7)
    assert server.requests[1].body["temperature"] == 0.7


@pytest.mark.parametrize("name", ["temperature", "stream_options", "stream", "max_tokens"])
def test_a_refused_parameter_is_dropped_and_remembered(tmp_path: Path, name: str) -> None:
    with ScriptedServer(Reply("Hi."), Reply("Ho."), Reply("Ha."), rejects=[name]) as server:
        asked = model(server, temperature=0.0, cache=tmp_path / "ways.json")
        assert asked.complete(HELLO, max_tokens=9).text == "Hi."
        assert asked.complete(HELLO, max_tokens=9).text == "Ho."
        again = model(server, temperature=0.0, cache=tmp_path / "ways.json")
        assert again.complete(HELLO, max_tokens=9).text == "Ha."
        assert len(server.refused) == 1
        assert name not in server.requests[0].body
        if name == "max_tokens":
            assert server.requests[0].body["max_completion_tokens"] == 9


def test_all_that_can_be_dropped_is_and_then_it_stops(tmp_path: Path) -> None:
    everything = ["temperature", "stream_options", "stream", "max_tokens", "max_completion_tokens", "messages"]
    with ScriptedServer(rejects=everything) as server:
        with pytest.raises(ModelError, match="Unsupported parameter: 'messages'"):
            model(server, temperature=0.0, cache=tmp_path / "ways.json").complete(HELLO, max_tokens=9)
        assert len(server.refused) == len(everything)
    assert not (tmp_path / "ways.json").exists(), "what did not help is not remembered"


def test_strict_is_dropped_where_a_server_does_not_know_it() -> None:
    def answer(request: Request) -> Fault | Command:
        if "strict" in request.body["response_format"]["json_schema"]:
            return Fault(422, body=b'{"detail": [{"loc": ["json_schema", "strict"], "msg": "extra inputs"}]}')
        return command("read_file", filename="a.txt")

    with ScriptedServer(answer, rejects=["tools"]) as server:
        done = model(server).complete(HELLO, commands=[READ], max_tokens=99)
        assert json.loads(done.text)["command"]["name"] == "read_file"
        assert server.requests[-1].body["response_format"]["json_schema"]["name"] == "reply"


# Faults ----------------------------------------------------------------------------------------------------------

PASSING = {
    "408": Fault(408), "409": Fault(409), "429": Fault(429, "slow down", "rate_limit_exceeded"),
    "429 with Retry-After": Fault(429, headers={"Retry-After": "2"}), "500": Fault(500),
    "502 with a page": Fault(502, body=b"<html><h1>Bad Gateway</h1></html>"), "503 empty": Fault(503, body=b""),
    "504": Fault(504), "529": Fault(529, "overloaded_error"),
    "400 that may be retried": Fault(400, headers={"x-should-retry": "true"}), "lost connection": Broken("drop"),
    "ends unfinished": Broken("end"), "silence": Broken("silence"), "malformed event": Broken("garbage"),
    "error in the stream": Broken("error"), "empty stream": Broken("end", ""),
    "200 with a page": {"choices": "none"}, "error in a 200": {"error": {"message": "backend is starting"}},
}  # fmt: skip


@pytest.mark.parametrize("fault", PASSING.values(), ids=PASSING)
def test_what_may_pass_is_asked_again_and_a_part_is_never_the_answer(server: ScriptedServer, fault: Any) -> None:
    server.add(fault, fault, Reply("Whole."))
    heard = Heard()
    done = model(server).complete(HELLO, max_tokens=9, listener=heard)
    assert done.text == "Whole."
    assert [reason for reason, _ in heard.waits] == list(done.retries)
    assert len(done.retries) == 2 and all("127.0.0.1" in reason for reason in done.retries)
    assert "\n" not in done.retries[0] and KEY not in done.retries[0]


@pytest.mark.parametrize("fault", PASSING.values(), ids=PASSING)
def test_what_does_not_pass_ends_in_one_line(server: ScriptedServer, fault: Any) -> None:
    server.add(*[fault] * 99)
    asked = model(server)
    with pytest.raises(Unreachable, match=r"tried \d+ times in \d+ s|it asks to wait 2 s") as caught:
        asked.complete(HELLO, max_tokens=9)
    assert "127.0.0.1" in str(caught.value) and "\n" not in str(caught.value)
    may_cost = isinstance(fault, Broken | dict | Reply)
    assert len(server.requests) == 3 if may_cost else len(server.requests) > 3
    assert bool(asked.take_usage().prompt) is may_cost


LASTING = {
    "400": (Fault(400, "the seed is odd"), ModelError, "the seed is odd"),
    "400 without a body": (Fault(400, body=b"{}"), ModelError, "answered 400"),
    "401": (Fault(401, f"Incorrect API key provided: {KEY}."), SetupError, "OPENAI_API_KEY"),
    "401 with part of the key": (Fault(401, "Incorrect key: sk-test-***cdef"), SetupError, r"sk-\*\*\*"),
    "403": (Fault(403, "country not supported"), SetupError, "country not supported"),
    "404 model": (Fault(404, "The model does not exist", "model_not_found"), SetupError, "no model 'test-model'"),
    "404 page": (Fault(404, body=b"404 page not found"), SetupError, "/v1 has no model .* OPENAI_BASE_URL"),
    "402": (Fault(402, "Insufficient credits"), QuotaExceeded, "no credit left"),
    "422": (Fault(422, body=b'{"detail": [{"loc": ["body", "n"], "msg": "bad"}]}'), ModelError, "bad"),
    "429 quota": (Fault(429, "You exceeded your current quota", "insufficient_quota"), QuotaExceeded, "no credit left"),
    "429 quota in a stream": (Broken("error", error={"code": "insufficient_quota"}), QuotaExceeded, "no credit"),
    "context": (Fault(400, "Too long.", "context_length_exceeded"), ContextOverflow, "too long"),
    "context, llama.cpp": (Fault(400, "the request exceeds the available context size"), ContextOverflow, "too long"),
    "413": (Fault(413, body=b"Payload Too Large"), ContextOverflow, "too long"),
    "500 not to be retried": (Fault(500, "broken", headers={"x-should-retry": "false"}), ModelError, "broken"),
    "429 with a long wait": (Fault(429, headers={"retry-after": "3600"}), ModelError, "asks to wait 3600 s"),
    "drip": (Broken("drip"), ModelError, "did not finish its answer within 0.6 s"),
}

ENDLESS = {
    "words": (Broken("endless", "and on " * 2000), "keeps sending: the reply has more than 8,000,000 characters"),
    "a line": (Broken("line", ":" * 2**16), "keeps sending: the answer has more than 32 MB"),
}


@pytest.mark.parametrize(("fault", "error", "says"), LASTING.values(), ids=LASTING)
def test_what_will_not_pass_is_said_at_once(server: ScriptedServer, fault: Any, error: Any, says: str) -> None:
    server.add(fault, Reply("Never asked for."))
    at = endpoint(server, timeouts=RequestTimeouts(connect=2.0, silence=0.3, total=0.6))
    asked = OpenAIModel(name="test-model", endpoint=at, count=words, overrides=Overrides(temperature=0.0))
    heard = Heard()
    with pytest.raises(error, match=says) as caught:
        asked.complete(HELLO, max_tokens=9, listener=heard)
    assert (heard.waits, len(server.requests)) == ([], 1)
    assert "\n" not in str(caught.value)
    assert KEY not in "".join(traceback.format_exception(caught.value)), "--debug shows what led to it, too"


@pytest.mark.parametrize(("fault", "says"), ENDLESS.values(), ids=ENDLESS)
def test_an_endless_answer_is_left_once_it_is_longer_than_any_reply(
    server: ScriptedServer, fault: Broken, says: str
) -> None:
    server.add(fault, Reply("Never asked for."))
    began = time.process_time()
    with pytest.raises(ModelError, match=says):
        OpenAIModel(name="m", endpoint=endpoint(server, timeouts=RequestTimeouts()), count=words).complete(
            HELLO, max_tokens=9
        )
    assert len(server.requests) == 1
    assert time.process_time() - began < 10, "a long line is joined once"


def test_a_server_that_has_answered_is_waited_for_also_where_the_way_is_set() -> None:
    with ScriptedServer(command("read_file", filename="a.txt")) as server:
        forced = model(server, asking="tools")
        assert forced.complete(HELLO, commands=[READ], max_tokens=100).calls
    with pytest.raises(Unreachable, match=r"connection refused.* in 60 s; try again later"):
        forced.complete(HELLO, commands=[READ], max_tokens=100)


def test_a_name_that_does_not_resolve_is_named_and_tls_against_a_plain_server_not_retried(
    server: ScriptedServer,
) -> None:
    with pytest.raises(ModelError, match=r"no-such-host\.invalid cannot be resolved; check OPENAI_BASE_URL"):
        model("http://no-such-host.invalid/v1").complete(HELLO, max_tokens=9)
    heard, insecure = Heard(), model(server.base_url.replace("http:", "https:"))
    with pytest.raises(ModelError, match=r"no secure connection to 127\.0\.0\.1"):
        insecure.complete(HELLO, max_tokens=9, listener=heard)
    assert (heard.waits, insecure.take_usage()) == ([], Usage())


def test_a_handshake_that_is_cut_off_is_tried_again() -> None:
    class Cutting(Listening):
        def _serve(self, connection: socket.socket) -> None:
            with connection:
                connection.recv(99_999)

    heard = Heard()
    with Cutting() as cutting, pytest.raises(Unreachable, match=r"no connection to 127\.0\.0\.1: .*EOF"):
        model(cutting.base_url.replace("http:", "https:")).complete(HELLO, max_tokens=9, listener=heard)
    assert heard.waits


def test_a_request_that_the_proxy_does_not_pass_on_costs_nothing(
    server: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("https_proxy", server.base_url)
    behind = model("https://models.example/v1")
    with pytest.raises(Unreachable, match=r"no connection to models\.example: 501"):
        behind.complete(HELLO, max_tokens=9)
    assert behind.take_usage() == Usage()


def test_a_server_that_takes_the_connection_and_says_nothing() -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        url = f"http://127.0.0.1:{mute.getsockname()[1]}/v1"
        began = time.monotonic()
        with pytest.raises(ModelError, match=r"127\.0\.0\.1 said nothing for 0\.3 s"):
            model(url).complete(HELLO, max_tokens=9)
        assert time.monotonic() - began < 30, "it is asked once, and not left to the client's own ten minutes"


# Usage and cost --------------------------------------------------------------------------------------------------


def test_usage_is_priced_and_the_cached_part_is_cheaper(server: ScriptedServer) -> None:
    usage = {"prompt_tokens": 1000, "completion_tokens": 100, "prompt_tokens_details": {"cached_tokens": 800}}
    server.add(Reply("Hi.", usage=usage))
    priced = model(server)
    priced.price = Price(10.0, 20.0, 1.0)
    spent = priced.complete(HELLO, max_tokens=9).usage
    assert (spent.prompt, spent.completion, spent.cached) == (1000, 100, 800)
    assert spent.cost == pytest.approx((200 * 10 + 800 * 1 + 100 * 20) / 1e6)


@pytest.mark.parametrize(
    "usage", [None, {}, {"prompt_tokens": -5, "completion_tokens": -1}, {"prompt_tokens": 0, "completion_tokens": None}]
)
def test_missing_and_senseless_usage_is_counted_here(server: ScriptedServer, usage: Any) -> None:
    server.add(Reply("one two three", usage=usage))
    priced = model(server)
    priced.price = Price(1e6, 1e6, 0.0)
    spent = priced.complete(HELLO, max_tokens=9).usage
    assert (spent.prompt, spent.completion, spent.cost) == (13, 3, 16.0)


def test_a_cut_answer_is_paid_for_too(server: ScriptedServer) -> None:
    server.add(Broken("drop", "one two three"), Reply("Hi."))
    asked = model(server)
    spent = asked.complete(HELLO, max_tokens=9).usage
    assert (spent.prompt, spent.completion) == (100, 10)
    cut = asked.take_usage()
    assert (cut.prompt, cut.completion) == (13, 3)


@pytest.mark.parametrize("reason", [StopRun(Outcome(Status.STOPPED, "The fleet stops.")), KeyboardInterrupt()])
def test_a_request_that_ends_while_it_waits_for_its_turn_costs_nothing(
    server: ScriptedServer, reason: BaseException
) -> None:
    def no_turn(check_time_left: Callable[[], float], send: Callable[[], Any]) -> Any:
        raise reason

    waiting = OpenAIModel(name="m", endpoint=endpoint(server, request_hook=no_turn), count=words)
    with pytest.raises(type(reason)):
        waiting.complete(HELLO, max_tokens=9)
    assert (waiting.take_usage(), server.requests) == (Usage(), [])


def test_prices_known_unknown_and_none() -> None:
    def price(name: str, url: str = "") -> Price | None:
        return OpenAIModel(name=name, endpoint=Endpoint(api_key=KEY, base_url=url), count=words).price

    assert price("gpt-4o") == price("gpt-4o-2024-08-06") == Price(2.5, 10.0, 1.25)
    assert price("gpt-99") is None, "unknown is not free"
    for name in ("claude-sonnet-4-5", "claude-sonnet-4-5-20250929", "anthropic/claude-sonnet-4.5"):
        assert price(name, "https://openrouter.ai/api/v1") == Price(3.0, 15.0, 0.3), "by its name, wherever it is"
    assert price("openai/gpt-4o", "http://127.0.0.1:4000/v1") == price("gpt-4o"), "a proxy costs what it passes on to"
    assert price("gpt-3.5-turbo") is None, "OpenAI has shut it down"
    assert price("llama3", "https://llm.example.com/v1") is None
    for url in ("http://localhost:11434/v1", "http://[::1]:80/v1", "http://192.168.1.7/v1", "http://ollama:11434/v1"):
        assert price("llama3", url) == Price(0.0, 0.0, 0.0)
    assert pricing.cost_of(None, 1000, 1000, 0) is None, "an unknown price gives an unknown cost"


# The endpoint ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("listed", [{"max_model_len": 4096}, {"context_length": 4096}, {"meta": {"n_ctx": 4096}}])
def test_the_window_is_asked_of_the_server_once(tmp_path: Path, listed: dict[str, Any]) -> None:
    ways = tmp_path / "ways.json"
    with ScriptedServer(models=[{"id": "other"}, {"id": "test-model", **listed}]) as server:
        assert model(server, cache=ways).window == 4096
        assert model(server, window=999).window == 999
    assert model(server, cache=ways).window == 4096, "kept: the server is gone"


@pytest.mark.parametrize(
    ("parameters", "style"),
    [(1_543_714_304, "brief"), (32e9, "full"), ("many", "full"), pytest.param(10**400, "full", id="huge")],
)
def test_a_server_of_one_model_tells_window_and_style_of_any_name(parameters: Any, style: str) -> None:
    with ScriptedServer(models=[{"id": "/models/a.gguf", "meta": {"n_ctx": 2048, "n_params": parameters}}]) as server:
        asked = model(server, "any")
        assert (asked.window, asked.style.name) == (2048, style)


def test_an_unknown_window_is_guessed_low(server: ScriptedServer) -> None:
    assert [listed["id"] for listed in endpoint(server).models()] == ["test-model"]
    assert model(server).window == UNKNOWN_WINDOW
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        assert model(f"http://127.0.0.1:{free.getsockname()[1]}/v1").window == UNKNOWN_WINDOW


def test_an_empty_base_url_is_openais() -> None:
    assert Endpoint(api_key=KEY, base_url="").base_url == "https://api.openai.com/v1"


@pytest.mark.parametrize(
    "url", ["localhost:8080/v1", "file:///etc/passwd", "http://", "v1", "http://[::1/v1", "http://a:99999"]
)
def test_a_base_url_that_is_none_is_named(url: str) -> None:
    with pytest.raises(SettingsError, match="OPENAI_BASE_URL is"):
        Endpoint(api_key=KEY, base_url=url)


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_server_of_ones_own_is_reached_past_the_proxy_also_by_an_ipv6_address(
    server: ScriptedServer, monkeypatch: pytest.MonkeyPatch, scheme: str
) -> None:
    monkeypatch.setenv(f"{scheme}_proxy", server.base_url)
    with pytest.raises(ModelError, match=r"nothing answers at|no connection to"):
        endpoint(f"{scheme}://[::1]:9/v1").models()
    assert server.connections == 0


@pytest.mark.parametrize(
    ("name", "value"),
    [("ALL_PROXY", "socks5://127.0.0.1:9"), ("https_proxy", "socks4://127.0.0.1:9"), ("HTTPS_PROXY", "http://[::1:9"),
     ("SSL_CERT_FILE", "/no/such/file")],
)  # fmt: skip
def test_a_proxy_that_cannot_be_used_is_named_and_does_not_matter_to_a_server_of_ones_own(
    server: ScriptedServer, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    assert endpoint(server).models()
    with pytest.raises(SetupError, match=r"the variables for a proxy or certificates cannot be used \(.*; check ALL"):
        endpoint("https://models.example/v1").models()


@pytest.mark.parametrize("key", ["sk-a b", "sk-“a”", "sk-a\nsk-b", "sk-ключ"])
def test_a_secret_that_cannot_be_used_is_refused_and_not_shown(key: str) -> None:
    with pytest.raises(SetupError, match="OPENAI_API_KEY holds a space") as caught:
        Endpoint(api_key=key)
    assert key not in str(caught.value)
    with pytest.raises(SettingsError, match="holds a name or a password") as told:
        Endpoint(api_key=KEY, base_url="http://bob:hunter2@example.com/v1")
    assert "hunter2" not in str(told.value)


def test_openais_own_endpoint_needs_a_key_and_a_server_of_ones_own_none(server: ScriptedServer) -> None:
    with pytest.raises(SetupError, match="OPENAI_API_KEY is not set; set it"):
        Endpoint(api_key=" ")
    server.add(Reply("Hi."))
    at = Endpoint(api_key="", base_url=server.base_url)
    assert OpenAIModel(name="m", endpoint=at, count=words).complete(HELLO, max_tokens=9).text == "Hi."


@pytest.mark.slow
def test_openai_is_imported_with_the_first_request_only() -> None:
    code = """
import sys
from autoagent.models.openai.embeddings import OpenAIEmbedder
from autoagent.models.openai.endpoint import Endpoint, preload
from autoagent.models.openai.chat import OpenAIModel, Overrides
model = OpenAIModel(name="gpt-5", endpoint=Endpoint(api_key="sk-x"), count=len)
assert model.window and model.price
assert not {"openai", "httpx2"} & set(sys.modules)
preload()
assert "openai" in sys.modules
"""
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True, timeout=60)


# Embeddings ------------------------------------------------------------------------------------------------------


def unpacked(vector: bytes) -> tuple[float, ...]:
    return struct.unpack(f"<{len(vector) // 4}f", vector)


def embedder(server: ScriptedServer) -> OpenAIEmbedder:
    return OpenAIEmbedder(model="embed-1", endpoint=endpoint(server), count=words)


def test_embeddings_are_unit_vectors_in_the_order_of_the_texts(server: ScriptedServer) -> None:
    server.embed = lambda text: [3.0, 4.0] if text == "a b" else [0.0, 2.0]
    made = embedder(server)
    vectors, usage = made.embed(["a b", "", "c"])
    assert [unpacked(v) for v in vectors] == [pytest.approx((0.6, 0.8)), (0.0, 0.0), pytest.approx((0.0, 1.0))]
    assert (made.name, made.dim, usage.prompt, usage.cost) == ("127.0.0.1/embed-1", 2, 3, 0.0)
    assert server.embeddings[0].body["input"] == ["a b", "c"], "a text without content is not sent"


def test_the_dimension_is_learned_and_its_cost_is_not_lost(server: ScriptedServer) -> None:
    made = embedder(server)
    assert made.dim == 32
    assert made.embed(["one two"])[1].prompt == 3
    assert made.embed([""])[0] == [bytes(128)]


def test_many_texts_go_in_batches_and_a_huge_one_by_its_beginning(server: ScriptedServer) -> None:
    vectors, _ = embedder(server).embed([f"text {i}" for i in range(300)] + ["word " * 50_000])
    assert len(vectors) == 301 and all(math.hypot(*unpacked(v)) == pytest.approx(1.0, abs=1e-6) for v in vectors)
    assert [len(request.body["input"]) for request in server.embeddings] == [128, 128, 45]
    assert len(server.embeddings[2].body["input"][44]) == 8000


def test_what_a_call_that_failed_has_cost_is_told_by_the_next_one(server: ScriptedServer) -> None:
    made = embedder(server)
    good = {"data": [{"index": i, "embedding": [1.0] * 32} for i in range(128)], "usage": {"prompt_tokens": 700}}
    server.embedding_script = [good, {"data": [], "usage": {"prompt_tokens": 30}}]
    with pytest.raises(ModelError, match="0 embeddings for 1 texts"):
        made.embed(["text"] * 129)
    assert made.embed(["one two"])[1].prompt == 732
    assert made.embed(["one two"])[1].prompt == 2


def row(embedding: Any) -> dict[str, Any]:
    return {"data": [{"index": 0, "embedding": embedding}]}


@pytest.mark.parametrize("values", [[5e-324, 5e-324], [1e300, 1e300], [3.0, -4.0]])
def test_an_embedding_of_any_length_becomes_a_unit_vector(server: ScriptedServer, values: list[float]) -> None:
    server.embedding_script = [row(values)]
    [vector], _ = embedder(server).embed(["text"])
    assert math.hypot(*unpacked(vector)) == pytest.approx(1.0, abs=1e-6)


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        *((row(values), "that is not numbers") for values in ([1.0, math.nan], ["a"], "AAAA")),
        *((row(values), "empty embedding") for values in ([], [0.0, 0.0])),
        (row([1.0, 2.0, 3.0]), "3 values instead of 2"),
        *((answer, "0 embeddings for 1 texts") for answer in ({"data": []}, {"data": None}, {})),
        (Fault(500), r"tried \d+ times"),
        (Fault(200, body=b"<html>"), "not valid JSON"),
        (Fault(404, "no such model"), "no model 'embed-1'"),
    ],
)
def test_an_embedding_that_cannot_be_used_is_an_error(server: ScriptedServer, answer: Any, says: str) -> None:
    made = embedder(server)
    server.embedding_script = [row([0.0, 1.0]), *[answer] * 99]
    assert made.dim == 2
    with pytest.raises((ModelError, SetupError), match=says):
        made.embed(["text"])


# The server itself -----------------------------------------------------------------------------------------------


def test_a_script_that_runs_out_or_has_a_mistake_says_so(server: ScriptedServer) -> None:
    server.add(lambda request: Reply(request.body["no such key"]))
    for problem in ("the script failed: KeyError", "the script has run out"):
        with pytest.raises(ModelError, match=problem):
            model(server).complete(HELLO, max_tokens=9)


def test_a_script_may_answer_by_the_request(server: ScriptedServer) -> None:
    def echo(request: Request) -> Reply:
        return Reply(request.prompt.upper())

    server.add(echo, Reply("Then this."))
    assert model(server).complete(HELLO, max_tokens=9).text == "YOU ARE BOB.\nSAY HELLO."
    assert model(server).complete(HELLO, max_tokens=9).text == "Then this."
    with ScriptedServer(echo) as always:
        assert {model(always).complete(HELLO, max_tokens=9).text for _ in range(3)} == {"YOU ARE BOB.\nSAY HELLO."}
