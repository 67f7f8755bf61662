"""A server that answers a chat request at once with the next step of a script, and keeps when each came.

    python benchmarks/zero_latency.py STEPS TOOL ARGUMENT

It speaks what OpenAI's chat completions speak, streamed or not, on one connection at a time kept alive; step N calls
TOOL with ARGUMENT set to `notes/N.txt`, natively where the request offers tools, and after STEPS steps the tool that
ends a run. It prints its port on a line, and when its standard input ends, its figures as JSON: for each request the
seconds at which it was whole, the seconds at which its answer was sent, and its bytes.
"""

from __future__ import annotations

import json
import socket
import sys
import threading
import time
from typing import Any

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n"


def answer(step: int, steps: int, tool: str, argument: str, request: dict[str, Any]) -> bytes:
    """The whole response to a request."""
    offered = [entry["function"]["name"] for entry in request.get("tools", ())]
    if step <= steps or not offered:
        name, args = tool, {argument: f"notes/{step}.txt"}
    else:
        name, args = ("task_complete", {"reason": "done"}) if "task_complete" in offered else ("final_answer", {})
    thoughts = {"text": f"Step {step}: look at the next note.", "reasoning": "", "plan": "", "criticism": "", "speak": ""}
    if "task_complete" in offered:
        args = {"thoughts": thoughts, **args}
    call = {"id": f"call_{step}", "type": "function", "function": {"name": name, "arguments": json.dumps(args)}}
    message: dict[str, Any] = {"role": "assistant", "content": thoughts["text"], "tool_calls": [call]}
    tokens = {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120}
    base = {"id": "c", "created": 0, "model": request.get("model", "m")}
    if not request.get("stream"):
        choice = {"index": 0, "message": message, "finish_reason": "tool_calls"}
        body = json.dumps({**base, "object": "chat.completion", "choices": [choice], "usage": tokens}).encode()
        return HEAD % (b"application/json", len(body)) + body
    delta = {**message, "tool_calls": [{"index": 0, **call}]}
    chunks: list[dict[str, Any]] = [
        {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]},
        {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]},
        {"choices": [], "usage": tokens},
    ]
    lines = [json.dumps({**base, "object": "chat.completion.chunk", **chunk}) for chunk in chunks]
    body = "".join(f"data: {line}\n\n" for line in [*lines, "[DONE]"]).encode()
    return HEAD % (b"text/event-stream", len(body)) + body


def serve(listening: socket.socket, steps: int, tool: str, argument: str, figures: list[tuple[float, float, int]]) -> None:
    """Answer requests, one connection after the other; each request is kept in `figures`."""
    step = 0
    while True:
        connection, _ = listening.accept()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with connection, connection.makefile("rb") as stream:
            while request_line := stream.readline():
                length = 0
                while (header := stream.readline()) not in (b"\r\n", b""):
                    if header.lower().startswith(b"content-length:"):
                        length = int(header.split(b":")[1])
                body = stream.read(length)
                came = time.perf_counter()
                if not request_line.startswith(b"POST") or b"/chat/completions" not in request_line:
                    listed = b'{"object":"list","data":[{"id":"gpt-4o-mini","object":"model"}]}'
                    connection.sendall(HEAD % (b"application/json", len(listed)) + listed)
                    continue
                request = json.loads(body)
                names = [entry["function"]["name"] for entry in request.get("tools", ())]
                if names == ["answer"]:  # how autoagent finds out whether tools are understood
                    ready = {"stream": request.get("stream"), "tools": request["tools"]}
                    connection.sendall(answer(1, 1, "answer", "ready", ready).replace(b"notes/1.txt", b"yes"))
                    continue
                step += 1
                connection.sendall(answer(step, steps, tool, argument, request))
                figures.append((came, time.perf_counter(), len(body)))


def main() -> None:
    """See the module."""
    steps, tool, argument = int(sys.argv[1]), sys.argv[2], sys.argv[3]
    figures: list[tuple[float, float, int]] = []
    listening = socket.create_server(("127.0.0.1", 0))
    print(listening.getsockname()[1], flush=True)
    threading.Thread(target=serve, args=(listening, steps, tool, argument, figures), daemon=True).start()
    sys.stdin.read()
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
