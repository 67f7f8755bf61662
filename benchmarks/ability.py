"""What agents get done with the same small model: autoagent and others, on tasks whose result a program can check.

    python benchmarks/ability.py [--install FOLDER | --peers FOLDER] [--tasks when,double] [--agents autoagent,...]
                                 [--steps 12] [--seconds 900] [--json FILE]

Every agent gets the same goals, files, embedded model, steps and seconds for each task, and an empty workspace beside
its files. autoagent runs as a user runs it, unattended (`autoagent --model local -c -l STEPS`); the peers run with what
they ship, and ask the same runtime of the same weights over HTTP on loopback. Whether a task is solved, a check of its
files says. `tokens` are those of prompts and replies, cached ones too; `generated` those of replies; `unparseable` the
replies that an agent could do nothing with. One run each: with fifteen tasks a difference of one or two is chance.

Other loads on the machine change the seconds and nothing else.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
import venv
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from ability_tasks import TASKS, Task

from autoagent.models.local import weights

HERE = Path(__file__).parent
OURS = "autoagent"
WINDOW = 8192  # tokens, autoagent's own for this model
REPLY = 1000  # tokens, where an agent sets no limit of its own: a small model may never end by itself
AS_MANY = 2.0  # tasks as the best peer
TOKENS_AT_MOST = 0.5  # for a solved task, beside that peer
SOLVED_AT_LEAST = 10  # of all fifteen


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
class Outcome:
    """Of one task: see the columns."""

    agent: str
    task: str
    solved: bool
    steps: int
    tokens: int
    generated: int
    seconds: float
    unparseable: int
    ended: str = ""  # how the agent itself says it ended


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


def run_ours(task: Task, home: Path, steps: int, seconds: float) -> Outcome:
    """autoagent in its own process, with the model inside it."""
    goals = [part for goal in task.goals for part in ("--ai-goal", goal)]
    named = ["--ai-name", "Helper", "--ai-role", "an assistant that works on files", *goals]
    bound = ["--model", "local", "-c", "-l", str(steps), "--max-seconds", str(seconds), "--json"]
    folders = ["-w", str(home / "workspace"), "--state-dir", str(home / "state")]
    env = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    began = time.monotonic()
    ran = subprocess.run(
        [sys.executable, "-m", "autoagent", *named, *bound, *folders],
        cwd=home, env=env, capture_output=True, text=True, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    took = time.monotonic() - began
    events = [json.loads(line) for line in ran.stdout.splitlines() if line.startswith("{")]
    used = [event["usage"] for event in events if event.get("usage")]
    ended = events[-1].get("status", "") if events else ran.stderr.strip()[-200:]
    generated = sum(usage["completion"] for usage in used)
    return Outcome(
        OURS,
        task.name,
        task.solved(home / "workspace"),
        max((event["step"] for event in events), default=0),
        generated + sum(usage["prompt"] for usage in used),
        generated,
        took,
        sum(event["type"] == "rejected" for event in events),
        ended,
    )


def run_peer(peer: Peer, python: Path, task: Task, home: Path, runtime: Runtime, steps: int, seconds: float) -> Outcome:
    """A peer in its own process, which asks the runtime over HTTP."""
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
        printed, ended = ran.stdout, "" if ran.returncode == 0 else ran.stderr.strip()[-200:]
    except subprocess.TimeoutExpired:
        printed, ended = "", "its time was up"
    found = re.search(r"^unparseable (\d+)$", printed, re.MULTILINE)
    return Outcome(
        peer.name,
        task.name,
        task.solved(home / "workspace"),
        runtime.asked,
        runtime.prompt + runtime.generated,
        runtime.generated,
        time.monotonic() - began,
        int(found[1]) if found else 0,
        ended,
    )


def install(folder: Path, wanted: Sequence[Peer]) -> None:
    """Make a virtual environment for each peer that has none yet."""
    for peer in wanted:
        place = folder / peer.name
        if not place.exists():
            print(f"installing {' '.join(peer.packages)} in {place}", flush=True)
            venv.create(place, with_pip=True)
            subprocess.run([str(place / "bin" / "python"), "-m", "pip", "install", "-q", *peer.packages], check=True)


def summary(outcomes: Sequence[Outcome]) -> None:
    """Print a row for each agent, and how ours stands beside the best of the others."""
    rows = {name: [one for one in outcomes if one.agent == name] for name in dict.fromkeys(o.agent for o in outcomes)}
    print(f"\n{'':18} {'solved':>9} {'steps':>6} {'tokens':>9} {'generated':>10} {'a solved one':>13} ", end="")
    print(f"{'seconds':>8} {'unparseable':>12}")
    each: dict[str, tuple[int, float]] = {}
    for name, runs in rows.items():
        solved, tokens = sum(one.solved for one in runs), sum(one.tokens for one in runs)
        each[name] = solved, tokens / solved if solved else float("inf")
        print(
            f"{name:18} {solved:3} of {len(runs):2} {sum(o.steps for o in runs):6} {tokens:9,} "
            f"{sum(o.generated for o in runs):10,} {each[name][1]:13,.0f} {sum(o.seconds for o in runs):8.0f} "
            f"{sum(o.unparseable for o in runs):12}"
        )
    print()
    if OURS not in each:
        return
    solved, tokens = each[OURS]
    if len(rows[OURS]) == len(TASKS):
        verdict("tasks solved", solved, SOLVED_AT_LEAST, solved >= SOLVED_AT_LEAST, "at least")
    if others := {name: figures for name, figures in each.items() if name != OURS}:
        best = max(others, key=lambda name: (others[name][0], -others[name][1]))
        most, theirs = others[best]
        ratio = solved / most if most else float("inf")
        verdict(f"tasks solved, beside {best}", ratio, AS_MANY, ratio >= AS_MANY, "at least")
        ratio = tokens / theirs
        verdict(f"tokens for a solved task, beside {best}", ratio, TOKENS_AT_MOST, ratio <= TOKENS_AT_MOST, "at most")


def verdict(what: str, value: float, wanted: float, met: bool, bound: str) -> None:
    print(f"{what:50} {value:7.2f} (wanted: {bound} {wanted:g}, {'met' if met else 'MISSED'})")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--tasks", default="", metavar="NAME,...", help="only these; default all fifteen")
    parser.add_argument("--agents", default="", metavar="NAME,...", help="only these; default all")
    parser.add_argument("--steps", type=int, default=12, metavar="N")
    parser.add_argument("--seconds", type=float, default=900.0, metavar="S", help="for one task")
    parser.add_argument("--install", type=Path, metavar="FOLDER", help="make the peers' environments there")
    parser.add_argument("--peers", type=Path, metavar="FOLDER", help="where the peers' environments are")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write each outcome there as a line of JSON")
    options = parser.parse_args()
    tasks = [task for task in TASKS if not options.tasks or task.name in options.tasks.split(",")]
    names = options.agents.split(",") if options.agents else [OURS, *(peer.name for peer in PEERS)]
    peers = [peer for peer in PEERS if peer.name in names]
    if options.install:
        install(options.install, peers)
    folder = options.install or options.peers
    runtime = Runtime(weights.locate()) if peers and folder else None
    outcomes = []
    for task in tasks:
        for name in names:
            peer = next((peer for peer in peers if peer.name == name), None)
            if peer and (folder is None or not (folder / name).exists()):
                continue
            with tempfile.TemporaryDirectory() as home:
                workspace = Path(home, "workspace")
                workspace.mkdir()
                for file, content in task.files.items():
                    (workspace / file).write_text(content)
                if peer is None:
                    outcome = run_ours(task, Path(home), options.steps, options.seconds)
                else:
                    assert runtime is not None and folder is not None
                    python = folder / name / "bin" / "python"
                    outcome = run_peer(peer, python, task, Path(home), runtime, options.steps, options.seconds)
            outcomes.append(outcome)
            word = "solved" if outcome.solved else "failed"
            print(
                f"{outcome.task:10} {outcome.agent:18} {word} {outcome.steps:3} steps {outcome.tokens:7,} tokens "
                f"{outcome.seconds:5.0f} s  {' '.join(outcome.ended.split())[-60:]}",
                flush=True,
            )
            if options.json:
                with options.json.open("a") as file:
                    file.write(json.dumps(asdict(outcome)) + "\n")
    summary(outcomes)


if __name__ == "__main__":
    main()
