"""A scripted OpenAI-compatible server on the loopback interface: the fixture of every test that needs a model.

    with ScriptedServer(command("read_file", filename="a.txt"), Fault(429, "slow down"), Reply("Done.")) as server:
        ...  # point a client, or a whole process, at server.base_url

Each chat request takes the next reply of the script; a callable in it is given the request and returns the reply, and
one callable as the only script answers all. `server.requests` are the chat requests so answered. The probe that finds
out how to ask (tools, schema, text) is answered without the script, as `rejects` and `ignores` tell, and kept apart in
`server.probes`; `server.on_probe` answers it otherwise. A verifier's request is kept in `server.verifications` and
answered by `server.judges`, which finds every goal met. A script that runs out answers 500 and says so.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal

from fakes import all_met, is_verification

THOUGHTS = {"text": "I think.", "reasoning": "Because.", "plan": "- act", "criticism": "None.", "speak": "Acting."}
USAGE = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}


@dataclass(frozen=True)
class Request:
    """One request as it arrived; the names of its headers are in lower case."""

    path: str
    headers: Mapping[str, str]
    body: Mapping[str, Any]

    @property
    def prompt(self) -> str:
        """The content of all messages and the tool calls in them, for assertions about what the model was told."""
        calls = (call["function"] for message in self.body["messages"] for call in message.get("tool_calls", ()))
        called = (f"{function['name']} {function['arguments']}" for function in calls)
        return "\n".join([*(message["content"] or "" for message in self.body["messages"]), *called])

    def asked_by(self, name: str) -> bool:
        """Whether it is the agent of this name that asks."""
        return f"\nYou are {name}, " in self.body["messages"][0]["content"]


@dataclass(frozen=True)
class Reply:
    """A good answer. `calls` are (name, arguments as JSON text); `usage` may be a list of blocks, or None for none."""

    text: str = ""
    calls: tuple[tuple[str, str], ...] = ()
    finish: str = "stop"
    usage: Any = field(default_factory=lambda: dict(USAGE))
    legacy: bool = False  # `function_call` instead of `tool_calls`
    streams: bool = True  # False: one JSON body, also where a stream was asked for


@dataclass(frozen=True)
class Command:
    """A command, written the way the request asks for it: as a tool call, else as JSON text."""

    name: str
    args: Mapping[str, Any]
    thoughts: Mapping[str, str]
    usage: Any = field(default_factory=lambda: dict(USAGE))


@dataclass(frozen=True)
class Fault:
    """An answer that says no, with the usual error object, or with `body` where one is given."""

    status: int
    message: str = "something is wrong"
    code: str | None = None
    param: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None


@dataclass(frozen=True)
class Events:
    """A stream of these events, as they stand: JSON values, or whole lines such as a comment; then `[DONE]`."""

    events: tuple[Any, ...]


@dataclass(frozen=True)
class Broken:
    """A stream that begins well with `text` and then goes wrong.

    drop: the connection is lost · end: it ends in order, but unfinished · silence: nothing more comes ·
    drip: a comment byte at a time for ever · endless: the text for ever · line: the same without an end of the line ·
    garbage: a line that is no JSON · error: an error object ·
    undone: it finished, but says no [DONE] (which is whole)
    """

    how: Literal["drop", "end", "silence", "drip", "endless", "line", "garbage", "error", "undone"]
    text: str = "I will now del"
    error: Mapping[str, Any] = field(default_factory=lambda: {"message": "overloaded", "code": "server_error"})


Answer = Reply | Command | Fault | Broken | Events | dict[str, Any]  # a dict is the JSON body of a 200
Step = Answer | Callable[[Request], Answer]


def command(name: str, /, **args: Any) -> Command:
    """A command with its arguments and some thoughts."""
    return Command(name, args, THOUGHTS)


class ScriptedServer:
    """The server; see the module. It listens from the start until `close`.

    `rejects`: parameters answered with a 400, as servers do that do not know them (tools, response_format, ...).
    `ignores`: of those, what is taken without a word and without effect. `models` is what /models lists, if any.
    `refuses`, where it is set, says of each chat request why it is not taken, or None.
    """

    def __init__(
        self,
        *script: Step,
        rejects: Sequence[str] = (),
        ignores: Sequence[str] = (),
        models: Sequence[Mapping[str, Any]] | None = ({"id": "test-model", "object": "model"},),
    ) -> None:
        self.script = list(script)
        self.rejects = rejects
        self.ignores = ignores
        self.models = models
        self.requests: list[Request] = []
        self.connections = 0
        self.open: set[socket.socket] = set()  # those that clients keep
        self.probes: list[Request] = []
        self.verifications: list[Request] = []
        self.judges: Callable[[str], str | Answer] = all_met
        self.refused: list[Request] = []
        self.refuses: Callable[[Request], Fault | None] = lambda request: None
        self.on_probe: Callable[[Request], Answer] | None = None
        self.embeddings: list[Request] = []
        self.embed: Callable[[str], list[float]] = vector
        self.embedding_script: list[Answer] = []
        self.closing = threading.Event()
        self._lock = threading.Lock()
        self._every = self.script[0] if len(script) == 1 and callable(script[0]) else None
        self._http = _Listening(("127.0.0.1", 0), _Handler)
        self._http.scripted = self
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.005,), daemon=True)
        self._thread.start()

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_address[1]}/v1"

    def __enter__(self) -> ScriptedServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.closing.set()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()
        for connection in list(self.open):
            with contextlib.suppress(OSError):  # the client has just closed it
                connection.shutdown(socket.SHUT_RDWR)

    def add(self, *steps: Step) -> None:
        """More replies at the end of the script."""
        self.script.extend(steps)

    def answer(self, request: Request) -> Answer:
        """What a request gets."""
        with self._lock:
            if request.path.endswith("/embeddings"):
                self.embeddings.append(request)
                return self.embedding_script.pop(0) if self.embedding_script else self._embeddings(request)
            refused = next((name for name in self.rejects if name in request.body), None)
            if refused:
                self.refused.append(request)
                text = f"Unsupported parameter: '{refused}' is not supported with this model."
                return Fault(400, text, "unsupported_parameter", refused)
            if fault := self.refuses(request):
                self.refused.append(request)
                return fault
            if _is_probe(request):
                self.probes.append(request)
                if self.on_probe:
                    return self.on_probe(request)
                return self._probed(request)
            if is_verification(str(request.body["messages"][0]["content"])):
                self.verifications.append(request)
                judged = self.judges(str(request.body["messages"][1]["content"]))
                return Reply(judged) if isinstance(judged, str) else judged
            self.requests.append(request)
            step = self._every or (self.script.pop(0) if self.script else _mistake("the script has run out"))
        answer = step(request) if callable(step) else step  # one that waits does not keep others waiting
        return self._rendered(request, answer)

    def _probed(self, request: Request) -> Reply:
        """Obeys the way in which the probe asks, unless that is ignored here: then it is a chat like any other."""
        ready = '{"ready": "yes"}'
        if "tools" in request.body and "tools" not in self.ignores:
            return Reply("", (("answer", ready),), "tool_calls")
        return Reply(ready if "response_format" in request.body and "response_format" not in self.ignores else "Yes.")

    def _rendered(self, request: Request, answer: Answer) -> Answer:
        """A command as a tool call where the request offers tools, else as JSON text."""
        if not isinstance(answer, Command):
            return answer
        if "tools" in request.body and "tools" not in self.ignores:
            arguments = json.dumps({"thoughts": answer.thoughts, **answer.args}, ensure_ascii=False)
            return Reply("", ((answer.name, arguments),), "tool_calls", answer.usage)
        reply = {"thoughts": answer.thoughts, "command": {"name": answer.name, "args": answer.args}}
        return Reply(json.dumps(reply, ensure_ascii=False), usage=answer.usage)

    def _embeddings(self, request: Request) -> dict[str, Any]:
        texts = request.body["input"]
        data = [{"object": "embedding", "index": i, "embedding": self.embed(text)} for i, text in enumerate(texts)]
        usage = {"prompt_tokens": sum(len(text.split()) for text in texts)}
        return {"data": data, "usage": usage}


def _mistake(text: str) -> Fault:
    """A fault of the test itself, which no client is to try again."""
    return Fault(500, text, headers={"x-should-retry": "false"})


def vector(text: str, dim: int = 32) -> list[float]:
    """A deterministic unit vector; texts that share words have near ones."""
    values = [0.0] * dim
    for word in text.lower().split():
        digest = hashlib.sha256(word.encode()).digest()
        values[digest[0] % dim] += 1.0 if digest[1] % 2 else -1.0
        values[digest[2] % dim] += 1.0
    length = math.hypot(*values) or 1.0
    return [value / length for value in values] if any(values) else [1.0, *values[1:]]


def _is_probe(request: Request) -> bool:
    return '"ready"' in json.dumps([request.body.get("tools"), request.body.get("response_format")])


class _Listening(ThreadingHTTPServer):
    daemon_threads = True
    scripted: ScriptedServer

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that left in the middle is what some tests are about; anything else is shown."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    """Answers from the script; http.server makes an instance for each connection."""

    server: _Listening
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # or each small chunk waits 40 ms for the last one's acknowledgement

    def setup(self) -> None:
        super().setup()
        self.server.scripted.connections += 1
        self.server.scripted.open.add(self.connection)

    def finish(self) -> None:
        self.server.scripted.open.discard(self.connection)
        super().finish()

    def log_message(self, *_: object) -> None:
        """Tests say themselves what went wrong."""

    def do_GET(self) -> None:
        models = self.server.scripted.models
        if self.path.endswith("/models") and models is not None:
            self._json(200, json.dumps({"object": "list", "data": list(models)}).encode())
        else:
            self._json(404, b'{"error": {"message": "no such page"}}')

    def do_POST(self) -> None:
        sent = self.rfile.read(int(self.headers["Content-Length"]))
        if len(sent) < int(self.headers["Content-Length"]):  # whoever asked was killed
            return
        body = json.loads(sent)
        request = Request(self.path, {name.lower(): value for name, value in self.headers.items()}, body)
        try:
            answer = self.server.scripted.answer(request)
        except Exception as error:  # a mistake in a callable script, or an assertion in it: the test is to see it
            answer = _mistake(f"the script failed: {error!r}")
        self._send(answer, body)

    def _send(self, answer: Answer, body: Mapping[str, Any]) -> None:
        if isinstance(answer, Fault):
            error = {"message": answer.message, "type": "error", "code": answer.code, "param": answer.param}
            self._json(answer.status, answer.body or json.dumps({"error": error}).encode(), answer.headers)
        elif isinstance(answer, dict):
            self._json(200, json.dumps(answer).encode())
        elif isinstance(answer, Broken):
            self._break(answer)
        elif isinstance(answer, Reply) and not (answer.streams and body.get("stream")):
            self._json(200, json.dumps(_whole(answer)).encode())
        else:
            assert isinstance(answer, Reply | Events)
            self._begin_stream()
            for event in answer.events if isinstance(answer, Events) else _stream(answer, body):
                self._chunk(f"{event}\n\n".encode()) if isinstance(event, str) else self._event(json.dumps(event))
            self._event("[DONE]")
            self._chunk(b"")

    def _break(self, answer: Broken) -> None:
        self._begin_stream()
        events = list(_stream(Reply(answer.text), {}))
        for event in events if answer.how == "undone" else events[:-1]:
            self._event(json.dumps(event))
        if answer.how == "drop":
            self.close_connection = True
            return
        if answer.how == "garbage":
            self._event('{"choices": [{"delta": {"content": "ete all')
        if answer.how == "error":
            self._event(json.dumps({"error": answer.error}))
        if answer.how == "silence":
            self.server.scripted.closing.wait(60)
        while answer.how == "drip" and not self.server.scripted.closing.wait(0.02):
            self._chunk(b":")
        while answer.how == "endless" and not self.server.scripted.closing.is_set():
            self._event(json.dumps(_chunk_of({"content": answer.text})))
        while answer.how == "line" and not self.server.scripted.closing.is_set():
            self._chunk(answer.text.encode())
        self._chunk(b"")

    def _json(self, status: int, body: bytes, headers: Mapping[str, str] | None = None) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def _begin_stream(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()

    def _event(self, data: str) -> None:
        self._chunk(f"data: {data}\n\n".encode())

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()


def _stream(reply: Reply, body: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The chunks of a reply; the one with the reason it finished comes last but for the usage."""
    yield _chunk_of({"role": "assistant", "content": ""})
    for piece in _pieces(reply.text):
        yield _chunk_of({"content": piece})
    for index, (name, arguments) in enumerate(reply.calls):
        if reply.legacy:
            yield _chunk_of({"function_call": {"name": name, "arguments": ""}})
        else:
            function = {"name": name, "arguments": ""}
            yield _chunk_of({"tool_calls": [{"index": index, "id": f"call_{index}", "function": function}]})
        for piece in _pieces(arguments):
            part = {"arguments": piece}
            call = {"function_call": part} if reply.legacy else {"tool_calls": [{"index": index, "function": part}]}
            yield _chunk_of(call)
    yield _chunk_of({}, reply.finish)
    if body.get("stream_options", {}).get("include_usage") and reply.usage is not None:
        for usage in reply.usage if isinstance(reply.usage, list) else [reply.usage]:
            yield {"object": "chat.completion.chunk", "choices": [], "usage": usage}


def _chunk_of(delta: Mapping[str, Any], finish: str | None = None) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return {"object": "chat.completion.chunk", "model": "another-name", "choices": [choice]}


def _whole(reply: Reply) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": reply.text or None}
    functions = [{"name": name, "arguments": arguments} for name, arguments in reply.calls]
    if reply.legacy:
        message["function_call"] = functions[0]
    elif functions:
        message["tool_calls"] = [{"id": f"call_{i}", "function": f} for i, f in enumerate(functions)]
    answer = {"object": "chat.completion", "choices": [{"index": 0, "message": message, "finish_reason": reply.finish}]}
    return answer if reply.usage is None else {**answer, "usage": reply.usage}


def _pieces(text: str, size: int = 7) -> Iterator[str]:
    return (text[start : start + size] for start in range(0, len(text), size))
