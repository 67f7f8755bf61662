"""The verifier alone: does it accept right ends of runs, and only those?

    python benchmarks/verifier.py [--split dev|test] [--tasks 72] [--seed 1] [--recorded DIR]
                                  [--models NAME,... --endpoint URL] [--json FILE] [--look]

The ends come from two sources (`ability_ends.py`): *recorded* are those of real runs that `ability.py --keep DIR` has
kept, *generated* are a reference solution (right) and a plausible mistake or a damaged solution (wrong) of each drawn
task. The task's check says which are right.

For each end, autoagent runs as a user runs it, with a scripted model that gives the end's commands and then says that
all is done, and `VERIFIER_LLM` set to the model that is measured. An end is accepted where its goals are all found met.
The embedded model answers on loopback; other models are asked at `--endpoint`, with OPENAI_API_KEY.

*Precision* is the share of right ends among those accepted, *recall* the share of right ends that are accepted; with
Wilson's 95 % intervals. Of ends of the test families only the summary is printed, without `--look`.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import zero_latency
from ability_agents import WINDOW, Runtime
from ability_checks import apply
from ability_ends import Command, End, balance, files_in, generated, recorded
from ability_results import share

from autoagent.models.local import weights

SCRIPT = "script"  # the name of the scripted model
Answer = Callable[[dict[str, Any]], dict[str, Any]]  # of a request, the assistant's message


@dataclass(frozen=True)
class Verdict:
    """What the verifier says of an end. `findings` are `met`, `not met` or `cannot tell`, one for each goal."""

    findings: tuple[str, ...]
    reasons: tuple[str, ...]
    reproduced: bool  # whether the commands led to the files of the end
    requests: int
    seconds: float

    @property
    def accepted(self) -> bool:
        return bool(self.findings) and set(self.findings) == {"met"}


class Endpoint:
    """An OpenAI-compatible endpoint on loopback: the scripted agent, and the verifier that is measured."""

    def __init__(self, verifier: str, answer: Answer) -> None:
        self.verifier = verifier
        self.script: list[Command] = []
        self.requests, self.seconds = 0, 0.0
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                listed = [{"id": SCRIPT, "object": "model", "context_length": 128_000}]
                listed.append({"id": verifier, "object": "model", "context_length": WINDOW})
                body = json.dumps({"object": "list", "data": listed}).encode()
                self.wfile.write(zero_latency.HEAD % (b"application/json", len(body)) + body)

            def do_POST(self) -> None:
                request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                message = outer.verified(request, answer) if request["model"] == verifier else outer.step()
                self.wfile.write(zero_latency.response(request, message))

            def log_message(self, *_: Any) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._http.server_port}/v1"
        threading.Thread(target=self._http.serve_forever, daemon=True).start()

    def verified(self, request: dict[str, Any], answer: Answer) -> dict[str, Any]:
        began = time.monotonic()
        message = answer(request)
        self.requests, self.seconds = self.requests + 1, self.seconds + time.monotonic() - began
        return message

    def step(self) -> dict[str, Any]:
        """Return the next command of the script; behind its end the agent says that it is done."""
        name, args = self.script.pop(0) if self.script else ("task_complete", {"reason": "All goals are met."})
        thoughts = {"text": "On.", **zero_latency.THOUGHTS}
        return {
            "role": "assistant",
            "content": json.dumps({"thoughts": thoughts, "command": {"name": name, "args": args}}),
        }


def judge(end: End, endpoint: Endpoint) -> Verdict:
    """Have the program come to an end, and return what its verifier says of it."""
    endpoint.script, endpoint.requests, endpoint.seconds = list(end.commands), 0, 0.0
    goals = [part for goal in end.goals for part in ("--ai-goal", goal)]
    with tempfile.TemporaryDirectory() as home:
        workspace = Path(home, "workspace")
        workspace.mkdir()
        apply(end.before, workspace)
        bound = ["--model", SCRIPT, "-c", "-l", str(len(end.commands) + 4), "--json", "-m", "none", "--distil", "off"]
        named = ["--ai-name", "Helper", "--ai-role", "an assistant that works on files", *goals]
        env = {
            "PATH": os.environ["PATH"],
            "HOME": home,
            "OPENAI_API_KEY": "sk-for-a-benchmark",
            "OPENAI_BASE_URL": endpoint.url,
            "VERIFIER_LLM": endpoint.verifier,
            "AUTOAGENT_ASKING": "schema",
        }
        ran = subprocess.run(
            [sys.executable, "-m", "autoagent", *named, *bound, "-w", str(workspace), "--state-dir", f"{home}/state"],
            cwd=home, env=env, capture_output=True, text=True, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        events = [json.loads(line) for line in ran.stdout.splitlines() if line.startswith("{")]
        judged: list[dict[str, Any]] = next((e["verdicts"] for e in events if e["type"] == "verified"), [])
        if not judged and endpoint.requests == 0:
            sys.exit(f"{end.name}: nothing was verified: {ran.stderr.strip()[-400:]}")
        return Verdict(
            findings=tuple(one["finding"] for one in judged),
            reasons=tuple(one["why"] for one in judged),
            reproduced=files_in(workspace) == dict(end.after),
            requests=endpoint.requests,
            seconds=endpoint.seconds,
        )


def verifiers(options: argparse.Namespace) -> list[Endpoint]:
    """Make an endpoint for each model that is to be measured."""
    if not options.endpoint:
        runtime = Runtime(weights.locate())

        def embedded(request: dict[str, Any]) -> dict[str, Any]:
            runtime.reset(1)
            status, answer = runtime.answer(request)
            if status != 200:
                sys.exit(f"the embedded model: {answer}")
            return {"role": "assistant", "content": answer["choices"][0]["message"]["content"]}

        return [Endpoint(runtime.model, embedded)]

    def asked(request: dict[str, Any]) -> dict[str, Any]:
        body = json.dumps({**request, "stream": False, "stream_options": None}).encode()
        headers = {
            "Content-Type": "application/json",
            "Authorization": f"Bearer {os.environ.get('OPENAI_API_KEY', '')}",
        }
        to = urllib.request.Request(f"{options.endpoint.rstrip('/')}/chat/completions", body, headers)
        with urllib.request.urlopen(to, timeout=600) as answer:
            message: dict[str, Any] = json.load(answer)["choices"][0]["message"]
        return {"role": "assistant", "content": message.get("content") or ""}

    return [Endpoint(name, asked) for name in options.models.split(",")]


def summary(records: Sequence[dict[str, Any]], look: bool) -> None:
    """Print precision and recall by model, and what was accepted by source, kind, family and language."""
    for model in dict.fromkeys(record["model"] for record in records):
        own = [record for record in records if record["model"] == model]
        used = [record for record in own if record["reproduced"]]
        accepted = [record for record in used if record["accepted"]]
        right = [record for record in used if record["right"]]
        both = sum(record["right"] for record in accepted)
        print(f"\n{model}: {len(used)} ends, {len(right)} right; {len(own) - len(used)} could not be reproduced")
        print(f"  precision of accepted   {share(both, len(accepted))}")
        print(f"  recall of right ends    {share(both, len(right))}")
        print(f"  wrong ends accepted     {share(len(accepted) - both, len(used) - len(right))}")
        print(f"  seconds for an end      {sum(record['seconds'] for record in used) / max(len(used), 1):.1f}")
        for column in ("source", "kind", "language", *(["family"] if look else [])):
            print(f"\n  accepted by {column:20} right            wrong")
            for value in sorted({record[column] for record in used}):
                part = [record for record in used if record[column] == value]
                counts = [[record["accepted"] for record in part if record["right"] is kind] for kind in (True, False)]
                print(f"  {value:32}" + "".join(f"{f'{sum(c)} of {len(c)}':17}" for c in counts).rstrip())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--split", choices=["dev", "test"], default="dev")
    parser.add_argument("--tasks", type=int, default=72, metavar="N", help="drawn for generated ends; default 72")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="of what is drawn; default 1")
    parser.add_argument(
        "--recorded", type=Path, action="append", default=[], metavar="DIR", help="of ability.py --keep"
    )
    parser.add_argument("--endpoint", default="", metavar="URL", help="OpenAI-compatible, for --models")
    parser.add_argument("--models", default="", metavar="NAME,...", help="default: the embedded model")
    parser.add_argument("--json", type=Path, metavar="FILE", help="add each verdict; those in it are not asked again")
    parser.add_argument("--look", action="store_true", help="print the ends of the test families too")
    options = parser.parse_args()
    look = options.look or options.split == "dev"
    ends = [end for folder in options.recorded for end in recorded(folder, options.split)]
    ends += generated(options.split, options.tasks, options.seed)
    print(balance(ends), flush=True)
    old = [json.loads(line) for line in options.json.open()] if options.json and options.json.exists() else []
    known = {(record["model"], record["seed"], record["name"]): record for record in old}
    records = []
    for endpoint in verifiers(options):
        for end in ends:
            record = known.get((endpoint.verifier, options.seed, end.name))
            if record is None:
                verdict = judge(end, endpoint)
                record = {"model": endpoint.verifier, "seed": options.seed, "accepted": verdict.accepted}
                parts = ("name", "source", "kind", "family", "language", "right")
                record |= asdict(verdict) | {part: getattr(end, part) for part in parts}
                if options.json:
                    with options.json.open("a") as file:
                        file.write(json.dumps(record, ensure_ascii=False) + "\n")
                if look:
                    word = "right" if end.right else "wrong"
                    said = f"{'accepted' if verdict.accepted else 'refused'} {' '.join(verdict.reasons)[:80]}"
                    print(f"{end.name:44} {word} {verdict.seconds:5.1f} s {said}", flush=True)
            records.append(record)
    summary(records, look)


if __name__ == "__main__":
    main()
