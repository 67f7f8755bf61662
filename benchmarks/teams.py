"""What a message of a team costs beside the model, and whether it grows over a thousand rounds.

    python benchmarks/teams.py [--rounds 1000]

Two roles speak in turn, one message a round, to a server on this machine that answers at once. A message's work is the
time from the answer of the server to the next request: the message is published, the round ends, all read it, the next
round begins, its prompt is made of the newest message. It is durable by then: a round waits once for the disk.

MetaGPT does not install beside autoagent's dependencies; its own minimal role (which keeps two messages) was measured
the same way on the same kind of machine at 2.8 ms at 50 messages, and 3.0 to 3.7 ms over 500.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import multiprocessing
import os
import statistics
import tempfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

PEER = "MetaGPT's minimal role: 2.8 ms at 50 messages, 3.0 -> 3.7 over 500 (measured elsewhere)"
AROUND = 20  # rounds of which the median stands for one


class Endpoint(BaseHTTPRequestHandler):
    """Answers each request with a word; keeps when each was whole and when its answer was sent."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    asked: ClassVar[list[float]] = []
    answered: ClassVar[list[float]] = []

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        self._send("application/json", b'{"object": "list", "data": [{"id": "test-model", "object": "model"}]}')

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        asked = time.perf_counter()
        choice = {"index": 0, "delta": {"role": "assistant", "content": "A word."}, "finish_reason": "stop"}
        said = {"choices": [choice]}
        usage = {"choices": [], "usage": {"prompt_tokens": 10, "completion_tokens": 3, "total_tokens": 13}}
        lines = [f"data: {json.dumps(event)}\n\n" for event in (said, usage)]
        self._send("text/event-stream", "".join([*lines, "data: [DONE]\n\n"]).encode())
        self.asked.append(asked)
        self.answered.append(time.perf_counter())

    def _send(self, kind: str, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def serve(pipe: Any) -> None:
    """Serve in a process of its own until something comes through the pipe; then tell the times."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Endpoint)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    pipe.send(server.server_address[1])
    pipe.recv()
    pipe.send((Endpoint.asked, Endpoint.answered))


def work(rounds: int) -> list[float]:
    """Return the milliseconds of each message after the first."""
    here, there = multiprocessing.Pipe()
    server = multiprocessing.get_context("spawn").Process(target=serve, args=(there,), daemon=True)
    server.start()
    port = here.recv()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        os.environ |= {
            "HOME": folder, "OPENAI_BASE_URL": f"http://127.0.0.1:{port}/v1",
            "SMART_LLM": "test-model", "EMBEDDING_MODEL": "test-embedder", "MEMORY_BACKEND": "none",
        }  # fmt: skip
        with contextlib.redirect_stdout(io.StringIO()):
            speak(rounds)
        os.chdir("/")
    here.send("stop")
    asked, answered = here.recv()
    return [(later - earlier) * 1000 for earlier, later in zip(answered, asked[1:], strict=False)]


def speak(rounds: int) -> None:
    """Let two roles speak for so many rounds."""
    import asyncio

    from autoagent.teams.metagpt import Action, Role, Team

    first, second = (Action(name=name, instruction="{last} Your turn.") for name in ("First", "Second"))
    roles = [
        Role("Ann", "Speaker", actions=[first], watch=["UserRequirement", second]),
        Role("Ben", "Speaker", actions=[second], watch=[first]),
    ]
    team = Team(roles=roles)
    team.run_project("Speak")
    asyncio.run(team.run(rounds))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    took = work(given.rounds)
    tenth = max(1, len(took) // 10)
    first, last = statistics.median(took[:AROUND]), statistics.median(took[-AROUND:])
    figures: dict[str, Any] = {
        "messages": len(took) + 1,
        "median_ms": round(statistics.median(took), 2),
        "first_tenth_ms": round(statistics.median(took[:tenth]), 2),
        "last_tenth_ms": round(statistics.median(took[-tenth:]), 2),
        "round_10_ms": round(first, 2),
        "last_round_ms": round(last, 2),
        "growth": round(last / first, 2),
        "load": round(os.getloadavg()[0], 1),
    }
    if given.json:
        print(json.dumps(figures))
        return
    print(f"{figures['messages']:,} messages: {figures['median_ms']} ms of own work each (median)")
    print(f"first tenth {figures['first_tenth_ms']} ms, last tenth {figures['last_tenth_ms']} ms")
    print(f"round 10 {figures['round_10_ms']} ms, round {figures['messages']:,} {figures['last_round_ms']} ms,")
    print(f"{figures['growth']} times as long (medians of {AROUND} rounds; load {figures['load']})")
    print(PEER)


if __name__ == "__main__":
    main()
