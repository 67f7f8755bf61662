"""What servers do beside what OpenAI's documentation says: each item of the table in docs/models.md is a test here.

Each server is the scripted one that refuses, ignores and answers as the real one was seen to, in its own words.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from server import Events, Fault, Reply, Request, ScriptedServer

from autoagent.core.commands import CommandSpec, Parameter
from autoagent.core.errors import ModelError
from autoagent.core.model import Message, ToolCall
from autoagent.models.openai.chat import OpenAIModel, Overrides
from autoagent.models.openai.endpoint import Endpoint, RequestTimeouts
from autoagent.models.openai.retry import RetryPolicy

READ = CommandSpec("read_file", "Read a file", "files", "read", (Parameter("filename", "string"),))
HELLO = (Message("system", "You are Bob."), Message("user", "Say hello."))
CALL = ToolCall("read_file", '{"thoughts": {"text": "Look."}, "filename": "a.txt"}', "call00001")
LATER = (*HELLO, Message("assistant", "", (CALL,)), Message("tool", "one", answers=CALL.id), Message("user", "Go on."))
USAGE = {"prompt_tokens": 9, "completion_tokens": 2}


def model(server: ScriptedServer, name: str = "test-model", **more: Any) -> OpenAIModel:
    at = Endpoint(
        api_key="sk-test-1234567890abcdef",
        base_url=server.base_url,
        timeouts=RequestTimeouts(connect=5.0, silence=20.0, total=60.0),
        policy=RetryPolicy(attempts=3, sleep=lambda seconds: None),
    )
    said = {key: more.pop(key) for key in ("temperature", "window", "asking") if key in more}
    return OpenAIModel(
        name=name, endpoint=at, count=lambda text: len(text.split()), overrides=Overrides(**said), **more
    )


def asked(model: OpenAIModel, messages: tuple[Message, ...] = HELLO) -> tuple[str, tuple[ToolCall, ...]]:
    done = model.complete(messages, commands=[READ], max_tokens=100)
    return done.text, done.calls


def chunk(delta: Any, finish: str | None = None, **more: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish, **more}]}


def part(name: str, arguments: str, **more: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "arguments": arguments}, **more}


def sent(request: Request) -> list[tuple[str, str | None]]:
    return [(message["role"], message["content"]) for message in request.body["messages"]]


def says(request: Request, fault: Fault, *roles: str) -> Fault | None:
    """The fault, where one of these roles is in the messages."""
    return fault if any(message["role"] in roles for message in request.body["messages"]) else None


def without_tools(status: int, message: str, code: str | None = None) -> Callable[[Request], Fault | None]:
    """A server that refuses tools in these words."""
    return lambda request: Fault(status, message, code) if "tools" in request.body else None


def test_openai_wants_other_parameters_of_models_that_reason(server: ScriptedServer) -> None:
    server.rejects = ("max_tokens", "temperature")
    server.add(Reply("", (("read_file", "{}"),), "tool_calls"))
    assert asked(model(server, "o3-mini", temperature=0.0))[1] == (ToolCall("read_file", "{}"),)
    assert server.refused == [], "the one thing that is known by the name"


def test_azure_filters_in_chunks_without_choices_and_without_a_delta(server: ScriptedServer) -> None:
    filtered = {"hate": {"filtered": False, "severity": "safe"}}
    events = (
        {"choices": [], "prompt_filter_results": [{"prompt_index": 0, "content_filter_results": filtered}]},
        chunk({"role": "assistant", "content": "Hi."}, content_filter_results=filtered),
        {"choices": [{"index": 0, "finish_reason": None, "content_filter_results": filtered}], "usage": None},
        chunk({}, "stop"),
    )
    server.add(Events(events))
    assert asked(model(server)) == ("Hi.", ())


def test_llama_cpp_without_jinja_takes_no_tools_and_thinks_apart(server: ScriptedServer) -> None:
    server.refuses = without_tools(500, "tools param requires --jinja flag", "500")
    server.add(Events((chunk({"reasoning_content": "Hm."}), chunk({"content": "Hi."}), chunk({}, "stop"))))
    thinking = model(server, window=32_000)
    assert (thinking.asking, thinking.reasoning_room) == ("schema", 0)
    assert asked(thinking) == ("Hi.", ())
    assert thinking.reasoning_room == 8_000


def test_llama_cpp_reports_an_error_in_a_stream_as_a_field_of_its_own(server: ScriptedServer) -> None:
    server.add(Events(('error: {"code":500,"message":"out of memory"}',)), Reply("Hi."))
    done = model(server).complete(HELLO, max_tokens=100)
    assert (done.text, len(done.retries)) == ("Hi.", 1)
    assert "out of memory" in done.retries[0]


def test_llama_cpp_says_with_a_500_what_a_template_cannot_render(server: ScriptedServer) -> None:
    fault = Fault(500, "Conversation roles must alternate user/assistant/user/assistant/...")
    server.refuses = lambda request: says(request, fault, "tool", "system")
    server.add(Reply("Hi."))
    assert asked(model(server), LATER)[0] == "Hi."
    assert [role for role, _ in sent(server.requests[0])] == ["user", "assistant", "user"]


def test_ollama_gives_each_call_whole_and_all_with_one_index(server: ScriptedServer) -> None:
    calls = [part("read_file", '{"filename":"a"}', index=0), part("read_file", '{"filename":"b"}', index=0)]
    with_ids = [{**call, "id": f"call_{number}"} for number, call in enumerate(calls)]
    without_index = [{key: value for key, value in call.items() if key != "index"} for call in calls]
    for listed in (calls, with_ids, without_index):
        server.add(Events((*(chunk({"content": "", "tool_calls": [call]}) for call in listed), chunk({}, "stop"))))
        _, found = asked(model(server))
        assert [json.loads(call.arguments)["filename"] for call in found] == ["a", "b"]


def test_ollama_says_of_a_model_that_it_takes_no_tools_and_thinks_as_reasoning(server: ScriptedServer) -> None:
    server.refuses = without_tools(400, "registry.ollama.ai/library/x does not support tools")
    server.on_probe = lambda request: {
        "choices": [{"message": {"content": '{"ready": "yes"}', "reasoning": "Hm."}, "finish_reason": "stop"}]
    }
    thinking = model(server, window=32_000)
    assert (thinking.asking, thinking.reasoning_room) == ("schema", 8_000)


def test_vllm_has_no_system_role_for_gemma(server: ScriptedServer, tmp_path: Path) -> None:
    server.refuses = lambda request: says(request, Fault(400, "System role not supported"), "system")
    reads = Reply("", (("read_file", "{}"),), "tool_calls")
    server.add(reads, reads)
    first, second = (model(server, cache=tmp_path / "models.json") for _ in range(2))
    assert asked(first)[1] == (ToolCall("read_file", "{}"),)
    assert sent(server.requests[0]) == [("user", "You are Bob.\n\nSay hello.")]
    assert asked(second)[1] == (ToolCall("read_file", "{}"),)
    assert len(server.refused) == 1, "it is kept"


def test_vllm_keeps_strict_turns_for_mistral(server: ScriptedServer) -> None:
    said = "After the optional system message, conversation roles must alternate user/assistant/user/assistant/..."
    server.refuses = lambda request: says(request, Fault(400, said), "tool")
    server.add(Reply("Hi."))
    assert asked(model(server), LATER)[0] == "Hi."
    assert [role for role, _ in sent(server.requests[0])] == ["system", "user", "assistant", "user"]
    assert sent(server.requests[0])[3] == ("user", "read_file: one\n\nGo on.")
    assert json.loads(sent(server.requests[0])[2][1] or "")["command"]["name"] == "read_file"


def test_vllm_without_a_parser_takes_no_tools(server: ScriptedServer) -> None:
    server.refuses = without_tools(400, '"required" tool choice requires --tool-call-parser to be set')
    assert model(server).asking == "schema"


def test_lm_studio_ignores_that_a_tool_is_required_and_says_errors_as_a_text(server: ScriptedServer) -> None:
    server.on_probe = lambda request: (
        Reply("<tool_call>\n<function=answer>\n</function>\n</tool_call>")
        if "tools" in request.body
        else Fault(400, body=b"{\"error\":\"'response_format.type' must be 'text'\"}")
    )
    assert model(server).asking == "text"
    server.models = [{"id": "test-model", "loaded_context_length": 4096}]
    assert model(server).window == 4096


def test_openrouter_comments_while_it_waits_and_ends_with_an_error(server: ScriptedServer) -> None:
    error = {"code": 502, "message": "Provider disconnected unexpectedly"}
    broken = Events((": OPENROUTER PROCESSING", chunk({"content": "H"}), {"error": error, **chunk({}, "error")}))
    unsaid = Events((chunk({"content": "H"}), chunk({}, "error")))
    server.add(broken, unsaid, Events((": OPENROUTER PROCESSING", chunk({"content": "Hi."}), chunk({}, "stop"))))
    done = model(server).complete(HELLO, max_tokens=100)
    assert done.text == "Hi.", "nothing of a reply that ended with an error is used"
    assert ["Provider disconnected" in done.retries[0], "an error without a reason" in done.retries[1]] == [True, True]


def test_openrouter_says_an_error_in_a_200(server: ScriptedServer) -> None:
    server.add({"error": {"code": 429, "message": "rate limited upstream"}}, Reply("Hi."))
    assert "rate limited upstream" in model(server).complete(HELLO, max_tokens=100).retries[0]


def test_mistral_wants_a_word_of_the_assistant_between_a_tool_and_the_user(server: ScriptedServer) -> None:
    def refuses(request: Request) -> Fault | None:
        roles = [message["role"] for message in request.body["messages"]]
        wrong = any(pair == ("tool", "user") for pair in itertools.pairwise(roles))
        body = {"object": "error", "message": "Unexpected role 'user' after role 'tool'", "code": "3230"}
        return Fault(400, body=json.dumps(body).encode()) if wrong else None

    server.refuses = refuses
    server.add(Reply("Hi."))
    assert asked(model(server), LATER)[0] == "Hi."
    roles = [role for role, _ in sent(server.requests[0])]
    assert roles == ["system", "user", "assistant", "tool", "assistant", "user"]
    (call,) = server.requests[0].body["messages"][2]["tool_calls"]
    assert call["id"] == server.requests[0].body["messages"][3]["tool_call_id"] == "call00001"


def test_mistral_refuses_each_parameter_that_it_does_not_know(server: ScriptedServer) -> None:
    def refuses(request: Request) -> Fault | None:
        detail = {"type": "extra_forbidden", "loc": ["body", "stream_options"], "msg": "Extra inputs are not permitted"}
        body = {"object": "error", "message": {"detail": [detail]}, "type": "invalid_request_error"}
        return Fault(422, body=json.dumps(body).encode()) if "stream_options" in request.body else None

    server.refuses = refuses
    server.add(Reply("", (("read_file", "{}"),), "tool_calls"))
    assert asked(model(server))[1] == (ToolCall("read_file", "{}"),)
    assert len(server.refused) == 1


def test_mistral_thinks_in_a_part_of_the_content(server: ScriptedServer) -> None:
    thinking = [{"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]}]
    server.add(Events((chunk({"content": thinking}), chunk({"content": [{"type": "text", "text": "Hi."}]}, "stop"))))
    reasons = model(server, window=32_000)
    assert asked(reasons) == ("Hi.", ())
    assert reasons.reasoning_room == 8_000


def test_gemini_wants_signatures_with_its_calls_and_gets_them_as_text(server: ScriptedServer) -> None:
    said = "Function call is missing a thought_signature in functionCall parts. This is required for tools to work."
    body = json.dumps([{"error": {"code": 400, "message": said, "status": "INVALID_ARGUMENT"}}]).encode()
    server.refuses = lambda request: says(request, Fault(400, body=body), "tool")
    server.add(Reply("", (("read_file", "{}"),), "tool_calls"))
    assert asked(model(server), LATER)[1] == (ToolCall("read_file", "{}"),)
    assert [role for role, _ in sent(server.requests[0])] == ["system", "user", "assistant", "user"]


def test_gemini_wraps_its_errors_in_a_list(server: ScriptedServer) -> None:
    body = b'[{"error": {"code": 400, "message": "Unsupported region.", "status": "FAILED_PRECONDITION"}}]'
    server.refuses = lambda request: Fault(400, body=body)
    with pytest.raises(ModelError, match=r"answered 400: Unsupported region"):
        asked(model(server))


def test_anthropic_ignores_the_bound_schema_but_takes_tools(server: ScriptedServer) -> None:
    server.ignores = ("response_format", "parallel_tool_calls")
    server.add(Reply("Both.", (("read_file", '{"filename": "a"}'), ("read_file", '{"filename": "b"}')), "tool_calls"))
    claude = model(server)
    assert claude.asking == "tools"
    assert len(asked(claude)[1]) == 2


@pytest.mark.parametrize(
    "delta",
    ["Hi.", {"content": "Hi.", "tool_calls": [None]}, {"content": "Hi.", "tool_calls": None, "function_call": None}],
)
def test_a_delta_that_is_a_text_and_calls_that_are_none(server: ScriptedServer, delta: Any) -> None:
    server.add(Events((chunk(delta), chunk({}, "stop"))))
    assert asked(model(server)) == ("Hi.", ())


@pytest.mark.parametrize("repeated", [False, True], ids=["its name once", "its name with each piece"])
def test_one_call_in_pieces_stays_one_call(server: ScriptedServer, repeated: bool) -> None:
    pieces = ['{"filename"', ': "a.', 'txt", "lines": {"', 'from": 1}', "}"]
    names = ["read_file"] + ["read_file" if repeated else ""] * 4
    calls = (part(name, piece, index=0) for name, piece in zip(names, pieces, strict=True))
    server.add(Events((*(chunk({"tool_calls": [call]}) for call in calls), chunk({}, "tool_calls"))))
    assert asked(model(server))[1] == (ToolCall("read_file", "".join(pieces)),)


@pytest.mark.parametrize(
    "thought",
    [
        {"content": "<think>Hm.</think>Hi."},
        {"content": "Hm, the opening mark is in the template.</think>Hi."},
        {"reasoning_content": "Hm.", "content": "Hi."},
        {"reasoning": "Hm.", "reasoning_content": "Hm.", "content": "Hi."},
    ],
)
def test_that_a_model_thinks_is_seen_by_the_probe_whatever_its_name(
    server: ScriptedServer, tmp_path: Path, thought: dict[str, str]
) -> None:
    server.on_probe = lambda request: {"choices": [{"message": thought, "finish_reason": "stop"}], "usage": USAGE}
    kept = tmp_path / "models.json"
    seen = model(server, "qwen-of-mine", window=32_000, cache=kept)
    assert seen.asking == "text"
    assert (seen.reasoning_room, seen.window) == (8_000, 24_000)
    again = model(server, "qwen-of-mine", window=32_000, cache=kept)
    server.add(Reply("Hi."))
    assert again.complete(HELLO, max_tokens=1000).text == "Hi."
    assert server.requests[0].body["max_tokens"] == 9_000


def test_a_model_whose_server_counts_reasoning_tokens_thinks(server: ScriptedServer) -> None:
    usage = {**USAGE, "completion_tokens_details": {"reasoning_tokens": 64}}
    server.add(Reply("Hi.", usage=usage))
    counted = model(server, window=100_000)
    assert counted.complete(HELLO, max_tokens=100).text == "Hi."
    assert counted.reasoning_room == 16_000
