"""The agents that get the tasks: autoagent as a user runs it, the peers with what they ship, and the model for them."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import threading
import time
import venv
from collections.abc import Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from ability_checks import Task

HERE = Path(__file__).parent
OURS = "autoagent"
WINDOW = 8192  # tokens, autoagent's own for this model
REPLY = 1000  # tokens, where an agent sets no limit of its own: a small model may never end by itself


@dataclass(frozen=True)
class Peer:
    """An agent that is installed on its own: its driver in `peers/`, and its packages."""

    name: str
    driver: str
    packages: tuple[str, ...]


PEERS = (
    Peer("mini-swe-agent", "mini_swe_agent_task.py", ("mini-swe-agent", "mcp")),
    Peer("smolagents", "smolagents_task.py", ("smolagents[openai]",)),
    Peer("autogpt-0.2-loop", "autogpt_loop.py", ("openai",)),
)


@dataclass(frozen=True)
class Run:
    """What one run of an agent came to, apart from its files."""

    code: int  # its exit code; 0 says that all is done, -1 stands for a peer that had no time left
    ended: str  # how the agent itself says it ended
    steps: int
    tokens: int
    generated: int
    seconds: float
    unparseable: int
    shown: tuple[str, ...] = ()  # of each goal of a finished run, how autoagent knows that it is met


class Runtime:
    """The embedded model behind an OpenAI-compatible address on loopback, which counts what it is asked."""

    def __init__(self, path: Path) -> None:
        import xllamacpp

        params = xllamacpp.CommonParams()
        params.model.path = str(path)
        params.n_ctx = WINDOW
        params.n_parallel = 1
        params.verbosity = -1
        self.model = path.stem
        self._server = xllamacpp.Server(params)
        self._turn = threading.Lock()
        self.left = self.prompt = self.generated = self.asked = 0
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                status, answer = outer.answer(body)
                sent = json.dumps(answer).encode()
                with contextlib.suppress(ConnectionError):  # the agent's time was up
                    self.send_response(status)
                    self.send_header("Content-Type", "application/json")
                    self.send_header("Content-Length", str(len(sent)))
                    self.end_headers()
                    self.wfile.write(sent)

            def log_message(self, *_: Any) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._http.server_port}/v1"
        threading.Thread(target=self._http.serve_forever, daemon=True).start()

    def reset(self, steps: int) -> None:
        """Count anew, and answer so many requests."""
        self.left, self.prompt, self.generated, self.asked = steps, 0, 0, 0

    def answer(self, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """Return the status and the body of the answer to one chat completion, which is never streamed."""
        with self._turn:
            if not self.left:
                return 400, {"error": {"message": "the benchmark's limit of steps", "type": "invalid_request_error"}}
            self.left -= 1
            self.asked += 1
            said: list[dict[str, Any]] = []
            limit = min(REPLY, body.get("max_tokens") or body.get("max_completion_tokens") or REPLY)
            request = {"temperature": 0, **body, "stream": False, "max_tokens": limit}
            self._server.handle_chat_completions(request, lambda chunk: bool(said.append(chunk)))
            if error := said[0].get("error"):
                return int(error.get("code", 400)), said[0]
            self.prompt += said[0]["usage"]["prompt_tokens"]
            self.generated += said[0]["usage"]["completion_tokens"]
            return 200, said[0]


def run_ours(task: Task, home: Path, steps: int, seconds: float) -> Run:
    """autoagent in its own process, with the model inside it."""
    goals = [part for goal in task.goals for part in ("--ai-goal", goal)]
    named = ["--ai-name", "Helper", "--ai-role", "an assistant that works on files", *goals]
    bound = ["--model", "local", "-c", "-l", str(steps), "--max-seconds", str(seconds), "--json"]
    folders = ["-w", str(home / "workspace"), "--state-dir", str(home / "state")]
    env = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    env |= {"XDG_CONFIG_HOME": str(home / "user"), "XDG_STATE_HOME": str(home / "user")}  # nothing of this user's
    began = time.monotonic()
    ran = subprocess.run(
        [sys.executable, "-m", "autoagent", *named, *bound, *folders],
        cwd=home, env=env, capture_output=True, text=True, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    took = time.monotonic() - began
    events = [json.loads(line) for line in ran.stdout.splitlines() if line.startswith("{")]
    used = [event["usage"] for event in events if event.get("usage")]
    generated = sum(usage["completion"] for usage in used)
    end = events[-1] if events else {}
    return Run(
        code=ran.returncode,
        ended=f"{end.get('status', '')}: {end.get('reason', '')}" if events else ran.stderr.strip()[-200:],
        steps=max((event["step"] for event in events), default=0),
        tokens=generated + sum(usage["prompt"] for usage in used),
        generated=generated,
        seconds=took,
        unparseable=sum(event["type"] == "rejected" for event in events),
        shown=tuple(end.get("goals", ())),
    )


def run_peer(peer: Peer, python: Path, task: Task, home: Path, runtime: Runtime, steps: int, seconds: float) -> Run:
    """A peer in its own process, which asks the runtime over HTTP. Its exit code is 0 where it says that it is done."""
    runtime.reset(steps)
    env = {
        "PATH": f"{python.parent}:{os.environ['PATH']}",
        "HOME": str(home),
        "LANG": "C.UTF-8",
        "OPENAI_API_KEY": "sk-for-a-benchmark",
        "OPENAI_BASE_URL": runtime.url,
        "OPENAI_API_BASE": runtime.url,
        "MODEL": runtime.model,
        "STEPS": str(steps),
        "TASK": "\n".join(task.goals),
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "MSWEA_CONFIGURED": "true",
        "MSWEA_COST_TRACKING": "ignore_errors",
        "MSWEA_SILENT_STARTUP": "1",
    }
    began = time.monotonic()
    try:
        ran = subprocess.run(
            [str(python), str(HERE / "peers" / peer.driver)],
            cwd=home / "workspace", env=env, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=seconds,
        )  # fmt: skip
        code, printed, ended = ran.returncode, ran.stdout, ran.stderr.strip()[-200:]
    except subprocess.TimeoutExpired:
        code, printed, ended = -1, "", "its time was up"
    found = re.search(r"^unparseable (\d+)$", printed, re.MULTILINE)
    return Run(
        code=code,
        ended="done" if code == 0 else ended,
        steps=runtime.asked,
        tokens=runtime.prompt + runtime.generated,
        generated=runtime.generated,
        seconds=time.monotonic() - began,
        unparseable=int(found[1]) if found else 0,
    )


def install(folder: Path, wanted: Sequence[Peer]) -> None:
    """Make a virtual environment for each peer that has none yet."""
    for peer in wanted:
        place = folder / peer.name
        if not place.exists():
            print(f"installing {' '.join(peer.packages)} in {place}", flush=True)
            venv.create(place, with_pip=True)
            subprocess.run([str(place / "bin" / "python"), "-m", "pip", "install", "-q", *peer.packages], check=True)
