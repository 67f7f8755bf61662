"""The endpoint is not trusted: not with memory or time, not with the type of what it sends, not with other servers.

Through the real program, in little memory where it matters; each case is one that once took gigabytes, ended in an
internal error, or sent the prompt to somebody else.
"""

from __future__ import annotations

import contextlib
import json
import resource
import socket
import zlib
from typing import Any

import pytest
from driver import FINISH, GOAL, PATIENCE, Done, Home
from raw_endpoint import Connection, RawFault, Relay, says
from server import Fault, Reply, ScriptedServer, command

RUN = (*GOAL, "-c", "-m", "none")
ROOM = 1_200 * 2**20  # bytes of address space for the whole program
KEY = "sk-test-1234567890abcdef"


def run_in_little_memory(home: Home, base_url: str) -> Done:
    process = home.start(*RUN, env={"OPENAI_BASE_URL": base_url})
    resource.prlimit(process.pid, resource.RLIMIT_AS, (ROOM, ROOM))
    out, err = process.communicate(timeout=PATIENCE)
    return Done(process.returncode, out, err)


def reason(home: Home) -> str:
    """Why the run ended, in one line of the log."""
    ended = home.log()[-1]
    assert ended["type"] == "ended", ended
    assert "\n" not in ended["reason"]
    return str(ended["reason"])


# Bodies without end ----------------------------------------------------------------------------------------------


class Endless:
    """Sends a head and then `block` again and again, until the client goes; `sent` counts the bytes."""

    def __init__(self, status: str, block: bytes, *headers: str) -> None:
        lines = [f"HTTP/1.1 {status}", "Content-Type: application/json", "Connection: close", *headers]
        self._head = "\r\n".join(lines).encode() + b"\r\n\r\n"
        self._block = block
        self.sent = 0

    def __call__(self, connection: Connection) -> None:
        connection.sendall(self._head)
        with contextlib.suppress(OSError):
            while True:
                connection.sendall(self._block)
                self.sent += len(self._block)


def bomb(megabytes: int) -> bytes:
    """So many megabytes of spaces as gzip; they may be repeated behind it."""
    packing = zlib.compressobj(9, zlib.DEFLATED, zlib.MAX_WBITS | 16)
    return packing.compress(b" " * megabytes * 2**20) + packing.flush(zlib.Z_FULL_FLUSH)


class Bomb:
    """A body of a few megabytes that unpacks to gigabytes."""

    def __init__(self, status: str, media_type: str = "application/json") -> None:
        begun = bomb(64)
        head, block = begun[:10], begun[10:]  # the header of gzip comes once
        body = head + block * 64
        lines = [f"HTTP/1.1 {status}", f"Content-Type: {media_type}", "Content-Encoding: gzip", "Connection: close"]
        self._answer = "\r\n".join([*lines, f"Content-Length: {len(body)}"]).encode() + b"\r\n\r\n" + body

    def __call__(self, connection: Connection) -> None:
        with contextlib.suppress(OSError):
            connection.sendall(self._answer)


def test_a_refusal_without_end_is_cut(served: Home, server: ScriptedServer) -> None:
    endless = Endless("400 Bad Request", b'{"error": "no" ' * 4096)
    with Relay(server, endless, spared=1) as relay:
        done = run_in_little_memory(served, relay.base_url)
    assert done.code == 1, done.text
    assert "answered 400: {" in reason(served)
    assert endless.sent < 20 * 2**20, "what was on its way when the program had read enough"


def test_a_fault_without_end_is_cut_and_asked_again(served: Home, server: ScriptedServer) -> None:
    endless = Endless("500 Oh", b"no, " * 4096, "Retry-After: 0")
    server.add(*FINISH)
    with Relay(server, endless, spared=1) as relay:
        done = run_in_little_memory(served, relay.base_url)
    assert done.code == 0, done.text
    assert endless.sent < 20 * 2**20


@pytest.mark.slow
@pytest.mark.parametrize(
    ("status", "media_type", "says"),
    [
        ("400 Bad Request", "application/json", "answered 400"),
        ("200 OK", "application/json", "more than 32 MB"),
        ("200 OK", "text/event-stream", "more than 32 MB"),
    ],
)
def test_what_unpacks_to_gigabytes_is_left(
    served: Home, server: ScriptedServer, status: str, media_type: str, says: str
) -> None:
    with Relay(server, Bomb(status, media_type), spared=1) as relay:
        done = run_in_little_memory(served, relay.base_url)
    assert done.code == 1, done.text
    assert says in reason(served)


# Other servers ---------------------------------------------------------------------------------------------------


def redirect(status: int, location: str) -> RawFault:
    """The relay closes behind it and says so: a client that kept the connection would come back from the start."""
    lines = [f"HTTP/1.1 {status} Go", f"Location: {location}", "Content-Length: 0", "Connection: close"]
    return says("\r\n".join([*lines, "", ""]).encode())


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_no_redirect_takes_the_prompt_to_another_server(served: Home, server: ScriptedServer, status: int) -> None:
    with ScriptedServer(lambda request: Reply("Thank you.")) as stranger:
        with Relay(server, redirect(status, f"{stranger.base_url}/chat/completions"), spared=1) as relay:
            done = served.run(*RUN, env={"OPENAI_BASE_URL": relay.base_url, "OPENAI_API_KEY": KEY})
        assert stranger.requests == stranger.probes == []
    assert done.code == 3, done.text
    other = stranger.base_url.removesuffix("/v1")
    assert f"127.0.0.1 redirects to {other}" in reason(served)
    assert "OPENAI_BASE_URL" in reason(served)


@pytest.mark.parametrize(
    "location",
    ["https://127.0.0.1/v1", "http://[", pytest.param("//evil.example/v1", marks=pytest.mark.slow), "http://x:99999/"],
)
def test_neither_another_scheme_nor_an_address_that_is_none(
    served: Home, server: ScriptedServer, location: str
) -> None:
    with Relay(server, redirect(307, location), spared=1) as relay:
        done = served.run(*RUN, env={"OPENAI_BASE_URL": relay.base_url})
    assert done.code == 3, done.text
    assert "127.0.0.1 redirects to" in reason(served)


def test_a_redirect_on_the_same_server_is_followed(served: Home, server: ScriptedServer) -> None:
    server.add(*FINISH)
    with Relay(server, redirect(307, "/elsewhere/chat"), redirect(308, "chat/completions/"), spared=1) as relay:
        done = served.run(*RUN, env={"OPENAI_BASE_URL": relay.base_url})
    assert done.code == 0, done.text
    assert server.requests[0].path == "/elsewhere/chat"


def test_a_redirect_that_would_drop_the_prompt_is_not_followed(served: Home, server: ScriptedServer) -> None:
    with Relay(server, redirect(302, "/v2/chat"), spared=1) as relay:
        done = served.run(*RUN, env={"OPENAI_BASE_URL": relay.base_url})
    assert done.code == 3, done.text
    assert "redirects to '/v2/chat'; check the path in OPENAI_BASE_URL" in reason(served)


# Malformed answers -----------------------------------------------------------------------------------------------


def choice(**fields: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "finish_reason": "stop", **fields}]}


def deep(fill: str) -> bytes:
    """A whole answer with this in place of its content, for what is no value of Python's."""
    return b'{"choices": [{"message": {"content": %s}, "finish_reason": "stop"}]}' % fill.encode()


MALFORMED: dict[str, Any] = {
    "deep content": Fault(200, body=deep("[" * 50_000 + "]" * 50_000)),
    "a deep error": Fault(500, body=b'{"error": %s}' % (b"[" * 50_000 + b"]" * 50_000), headers={"retry-after": "0"}),
    "choices of numbers": {"choices": [1, 2]},
    "choices as an object": {"choices": {"0": "x"}},
    "a choice of lists": {"choices": [[["x"]]]},
    "a message that is a number": choice(message=7),
    "content that is a number": choice(message={"content": 7}),
    "content that is an object": choice(message={"content": {"text": "x"}}),
    "parts without text": choice(message={"content": [{"text": 5}]}),
    "tool calls as a number": choice(message={"tool_calls": 3}),
    "tool calls of texts": choice(message={"tool_calls": ["x"]}),
    "a function that is a text": choice(message={"tool_calls": [{"function": "x"}]}),
    "a name that is a number": choice(message={"tool_calls": [{"function": {"name": 5, "arguments": "{}"}}]}),
    "an index that is a list": choice(message={"tool_calls": [{"index": [1], "function": {"name": "x"}}]}),
    "an id that is an object": choice(message={"tool_calls": [{"id": {}, "index": 0}, {"id": 5, "index": 0}]}),
    "a function call that is a list": choice(message={"function_call": ["x"]}),
    "a reason that is an object": choice(message={"content": "x"}, finish_reason={"why": 1}),
}


@pytest.mark.slow
def test_whatever_has_another_form_is_asked_again(served: Home, server: ScriptedServer) -> None:
    marks = [command("append_to_file", filename="done.txt", text=f"{name}\n") for name in MALFORMED]
    served.write("autoagent_workspace/done.txt", "")
    server.add(*(step for pair in zip(MALFORMED.values(), marks, strict=True) for step in pair), *FINISH)
    served.succeed(*RUN)
    assert served.read("autoagent_workspace/done.txt").splitlines() == list(MALFORMED)
    retried = {event["step"] for event in served.log() if event["type"] == "retried"}
    assert retried == set(range(1, 1 + len(MALFORMED)))


HUGE = 10**400


@pytest.mark.parametrize(
    "usage",
    [
        {"prompt_tokens": HUGE, "completion_tokens": HUGE},
        {"prompt_tokens": 5, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": HUGE}},
        {"prompt_tokens": [1], "completion_tokens": {"a": 1}, "prompt_tokens_details": "none"},
    ],
    ids=["without measure", "cached without measure", "no numbers"],
)
def test_a_usage_that_is_none_is_counted_here(served: Home, server: ScriptedServer, usage: Any) -> None:
    thought = {"text": "I think."}
    reply = Reply("", (("do_nothing", json.dumps({"thoughts": thought})),), "tool_calls", usage)
    server.add(reply, *FINISH)
    served.succeed(*RUN)
    assert all(0 < event["usage"]["prompt"] < 10**6 for event in served.log() if event["type"] == "thought")


def test_a_list_of_models_of_any_form_leaves_the_window_a_guess(served: Home, server: ScriptedServer) -> None:
    server.models = [{"id": "test-model", "max_model_len": HUGE}, 5, {"id": 7}]  # type: ignore[list-item]
    server.add(*FINISH)
    del served.env["AUTOAGENT_WINDOW"]
    served.succeed(*RUN)
    assert served.log()[0]["window"] == 8192


def test_two_hundred_thousand_tool_calls_are_left_at_once(served: Home, server: ScriptedServer) -> None:
    calls = b"".join(
        b'data: {"choices": [{"delta": {"tool_calls": [{"index": %d, "function": {"name": "x"}}]}}]}\n\n' % number
        for number in range(200_000)
    )
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"

    def much(connection: socket.socket) -> None:
        with contextlib.suppress(OSError):
            connection.sendall(head + calls)

    with Relay(server, much, spared=1) as relay:
        done = served.run(*RUN, env={"OPENAI_BASE_URL": relay.base_url})
    assert done.code == 1, done.text
    assert "more than 1,000 tool calls" in reason(served)


def test_embeddings_of_any_form_cost_a_memory_and_no_run(served: Home, server: ScriptedServer) -> None:
    rows: list[Any] = [[HUGE, 1], ["x"], [[1.0]], {"a": 1}, [1e308] * 4, [True, False], []]
    server.embedding_script = [{"data": [{"index": {}, "embedding": row}]} for row in rows]
    server.embedding_script += [{"data": 5}, {"data": [5]}, Fault(200, body=b"[" * 50_000)] * 3
    server.add(*[command("do_nothing")] * 3, *FINISH)
    served.succeed(*GOAL, "-c", "--max-seconds", "30")
    assert any(event["type"] == "retried" for event in served.log())
