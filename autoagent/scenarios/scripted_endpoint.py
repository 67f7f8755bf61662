"""Serve scripted replies, as an OpenAI-compatible endpoint on the loopback interface."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from autoagent.core.task import VERIFIER

_POLL_SECONDS = 0.01  # until the server notices that it should stop
_REJECTED_PARAMETERS = ("tools", "response_format")  # other ways of asking than plain text


class ScriptedEndpoint:
    """Answer each chat request with the next reply of a script, until `close`.

    Commands are requested in plain text, so the messages contain everything the model is told. `prompts` has the text
    of each request, and `replies` the rest of the script. `surplus` counts the requests for which no reply was left. A
    verifier is answered without the script, and finds every goal met.
    Not covered: sub-agents take replies from the same script, in whatever order they ask.
    """

    def __init__(self) -> None:
        self.prompts: list[str] = []
        self.surplus = 0
        self.replies: list[str] = []
        self._lock = threading.Lock()
        self._http = _Server(("127.0.0.1", 0), _Request)
        self._http.endpoint = self
        self.base_url = f"http://127.0.0.1:{self._http.server_address[1]}/v1"
        self._thread = threading.Thread(target=self._http.serve_forever, args=(_POLL_SECONDS,), daemon=True)
        self._thread.start()

    def load(self, replies: Iterable[str]) -> None:
        """Replace the script, and forget earlier requests."""
        with self._lock:
            self.replies, self.prompts, self.surplus = list(replies), [], 0

    def answer(self, body: Mapping[str, Any]) -> tuple[int, dict[str, Any]]:
        """Return the status and JSON answer to a chat request."""
        if parameter := next((name for name in _REJECTED_PARAMETERS if name in body), None):
            return 400, _error(f"Unsupported parameter: '{parameter}' is not supported with this model.", parameter)
        if str(body["messages"][0]["content"]).startswith(VERIFIER):
            return 200, _completion(all_met(str(body["messages"][1]["content"])))
        with self._lock:
            self.prompts.append("\n".join(str(message["content"]) for message in body["messages"]))
            if not self.replies:
                self.surplus += 1
                return 500, _error("the replies of the scenario have run out")
            return 200, _completion(self.replies.pop(0))

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()


def all_met(prompt: str) -> str:
    """Return a verifier's answer that finds each goal met, with evidence from its prompt."""
    goals, _, evidence = prompt.partition("\n\n")
    quote = next((line for line in evidence.splitlines() if line.strip()), "")
    numbers = re.findall(r"^(\d+)\. ", goals, re.MULTILINE)
    verdict = {"why": "It is there.", "verdict": "met", "evidence": quote}
    return json.dumps({"goals": [{"n": int(number), **verdict} for number in numbers]})


def _completion(text: str) -> dict[str, Any]:
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    return {"object": "chat.completion", "choices": [choice]}


def _error(message: str, parameter: str | None = None) -> dict[str, Any]:
    return {"error": {"message": message, "type": "invalid_request_error", "param": parameter, "code": None}}


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    endpoint: ScriptedEndpoint

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore the error: a client that ended in the middle of a request is no failure of the scenario."""


class _Request(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Server

    def log_message(self, *_: object) -> None:
        """Ignore the message: the log of the run has the requests."""

    def do_GET(self) -> None:
        self._send(404, _error("there is no such page"))

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path.endswith("/chat/completions"):
            self._send(*self.server.endpoint.answer(body))
        else:
            self._send(404, _error("there is no such page"))

    def _send(self, status: int, answer: Mapping[str, Any]) -> None:
        body = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("X-Should-Retry", "false")  # as a repeated request would get the same answer
        self.end_headers()
        self.wfile.write(body)
