"""A server that answers a chat request at once with the next step of a script, and keeps when each came.

    python benchmarks/zero_latency.py STEPS TOOL ARGUMENT [VALUE [ARGUMENT VALUE ...]]

It speaks what OpenAI's chat completions speak, streamed or not, on connections that are kept alive. Step N calls TOOL
with ARGUMENT set to VALUE (`notes/N.txt`, where `{}` stands for N), natively where the request offers tools, else by
what a markdown agent writes for it: a code block in the language TOOL that holds VALUE. The request after the last
step is not answered: whoever drives this ends the agent then.

It prints its port on a line, $PORT or a free one, and one more as soon as all steps are through. When its standard
input ends it prints its figures as JSON: `steps`, for each request the seconds at which it was whole, the seconds at
which its answer was sent, the tokens and bytes in it, and how many of the tokens a prefix cache has: those of the tools
and messages from the beginning that are the same as in the request before; `others`, how many requests were not of a
step.
"""

from __future__ import annotations

import itertools
import json
import os
import socket
import sys
import threading
import time
from dataclasses import dataclass, field
from typing import Any

from autoagent.text.tokens import Count, counter

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n"
MODELS = json.dumps({"object": "list", "data": [{"id": "gpt-4o-mini", "object": "model"}]}).encode()
TOKENS = {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120}
compact = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode  # as the requests have it
THOUGHTS = {"reasoning": "", "plan": "", "criticism": "", "speak": ""}  # what autoagent's tools ask for beside the text


@dataclass
class Script:
    """What is answered, and what has come in."""

    steps: int
    tool: str
    arguments: dict[str, str]
    count: Count
    figures: list[tuple[float, float, int, int, int]] = field(default_factory=list)
    before: list[str] = field(default_factory=list)
    others: int = 0
    counted: dict[str, int] = field(default_factory=dict)
    turn: threading.Lock = field(default_factory=threading.Lock)

    def tokens(self, request: dict[str, Any]) -> tuple[int, int]:
        """Of the tools and messages of a request, and of those that are cached; each text is counted once."""
        parts = [compact(part) for part in (*request.get("tools", ()), *request["messages"])]
        for part in parts:
            if part not in self.counted:
                self.counted[part] = self.count(part)
        same = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(parts, self.before, strict=False))
        cached = sum(self.counted[part] for part, _ in same)
        self.before = parts
        return sum(self.counted[part] for part in parts), cached

    def message(self, step: int, tools: list[str]) -> dict[str, Any]:
        """The assistant's message of a step."""
        text, values = f"Step {step}: look at the next note.", self.arguments.items()
        args: dict[str, Any] = {name: value.replace("{}", str(step)) for name, value in values}
        if not tools:
            return {"role": "assistant", "content": f"{text}\n\n```{self.tool}\n{next(iter(args.values()), '')}\n```\n"}
        if "task_complete" in tools:
            args = {"thoughts": {"text": text, **THOUGHTS}, **args}
        function = {"name": self.tool, "arguments": json.dumps(args)}
        call = {"id": f"call_{step}", "type": "function", "function": function}
        return {"role": "assistant", "content": text, "tool_calls": [call]}


def response(request: dict[str, Any], message: dict[str, Any]) -> bytes:
    """The whole HTTP response that carries the message, as the request wants it: streamed, or in one piece."""
    base = {"id": "c", "created": 0, "model": request.get("model", "m")}
    finish = "tool_calls" if "tool_calls" in message else "stop"
    if not request.get("stream"):
        choice = {"index": 0, "message": message, "finish_reason": finish}
        body = json.dumps({**base, "object": "chat.completion", "choices": [choice], "usage": TOKENS}).encode()
        return HEAD % (b"application/json", len(body)) + body
    delta = message
    if "tool_calls" in message:
        delta = {**message, "tool_calls": [{"index": i, **call} for i, call in enumerate(message["tool_calls"])]}
    chunks: list[dict[str, Any]] = [
        {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]},
        {"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]},
        {"choices": [], "usage": TOKENS},
    ]
    lines = [json.dumps({**base, "object": "chat.completion.chunk", **chunk}) for chunk in chunks]
    body = "".join(f"data: {line}\n\n" for line in [*lines, "[DONE]"]).encode()
    return HEAD % (b"text/event-stream", len(body)) + body


def answer(script: Script, request: dict[str, Any], came: float, size: int, connection: socket.socket) -> None:
    """Answer one chat request; the one after the last step waits for the end of its sender."""
    tools = [tool["function"]["name"] for tool in request.get("tools", ())]
    if tools == ["answer"]:  # how autoagent finds out whether tools are understood
        script.others += 1
        call = {"id": "c", "type": "function", "function": {"name": "answer", "arguments": '{"ready": "yes"}'}}
        connection.sendall(response(request, {"role": "assistant", "content": "", "tool_calls": [call]}))
        return
    if tools and script.tool not in tools:  # what an agent asks beside its steps
        script.others += 1
        connection.sendall(response(request, {"role": "assistant", "content": "Reading notes."}))
        return
    step, (tokens, cached) = len(script.figures) + 1, script.tokens(request)
    if step > script.steps:
        script.figures.append((came, came, tokens, size, cached))
        if step == script.steps + 1:
            print("done", flush=True)
        return
    whole = response(request, script.message(step, tools))
    connection.sendall(whole)
    script.figures.append((came, time.perf_counter(), tokens, size, cached))


def serve(script: Script, connection: socket.socket) -> None:
    """Answer the requests of one connection."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with connection, connection.makefile("rb") as stream:
        while request_line := stream.readline():
            length = 0
            while (header := stream.readline()) not in (b"\r\n", b""):
                if header.lower().startswith(b"content-length:"):
                    length = int(header.split(b":")[1])
            body = stream.read(length)
            came = time.perf_counter()
            if request_line.startswith(b"POST") and b"/chat/completions" in request_line:
                with script.turn:
                    answer(script, json.loads(body), came, len(body), connection)
            else:
                connection.sendall(HEAD % (b"application/json", len(MODELS)) + MODELS)


def accept(script: Script, listening: socket.socket) -> None:
    while True:
        connection, _ = listening.accept()
        threading.Thread(target=serve, args=(script, connection), daemon=True).start()


def main() -> None:
    """See the module."""
    steps, tool, pairs = int(sys.argv[1]), sys.argv[2], sys.argv[3:]
    pairs = pairs if len(pairs) > 1 else [*pairs, "notes/{}.txt"]
    arguments = dict(zip(pairs[::2], pairs[1::2], strict=True))
    count = counter("gpt-4o-mini")
    count("loaded before the first request")
    script = Script(steps, tool, arguments, count)
    listening = socket.create_server(("127.0.0.1", int(os.environ.get("PORT", "0"))))
    print(listening.getsockname()[1], flush=True)
    threading.Thread(target=accept, args=(script, listening), daemon=True).start()
    sys.stdin.read()
    print(json.dumps({"steps": script.figures, "others": script.others}))


if __name__ == "__main__":
    main()
