"""How soon the first request is there, from the start of the process: autoagent beside `llm`, each in its own home.

    python benchmarks/first_request.py [--peers FOLDER] [--repeat 9] [--json FILE]

The homes have been used before, as they are but for one day: autoagent knows how the endpoint takes tools, as its port
stays the same, and llm has its database. The agents take turns, and the figures are medians. `--peers` is the folder
of loop.py's environments.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from loop import OURS, PATIENCE, PEERS, RANKS, Agent, command, keep_ranks, verdict, world

HERE = Path(__file__).parent
AT_MOST = 0.9  # times llm


def first_request(agent: Agent, python: Path, home: Path, port: int) -> float:
    """Seconds from the start of the process to its first request for a step."""
    argv = [sys.executable, str(HERE / "zero_latency.py"), "0", agent.tool, agent.argument]
    environ = {**os.environ, "PORT": str(port)}
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environ) as server:
        assert server.stdin and server.stdout
        env = world(home, f"http://127.0.0.1:{int(server.stdout.readline())}/v1", 0)
        with (home / "output").open("w+") as output:
            begin = time.perf_counter()
            program = subprocess.Popen(
                command(agent, python, 1),
                cwd=home / "workspace",
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
            try:
                ready, _, _ = select.select([server.stdout], [], [], PATIENCE)
                seconds = time.perf_counter() - begin
                if not ready or server.stdout.readline() != "done\n":
                    sys.exit(f"{agent.name}: {(home / 'output').read_text()[-1000:]}")
            finally:
                program.kill()
                program.wait()
        server.stdin.close()
        server.stdout.read()
    return seconds


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        port: int = found.getsockname()[1]
        return port


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--peers", type=Path, metavar="FOLDER", help="where the peers' environments are")
    parser.add_argument("--repeat", type=int, default=9, metavar="N", help="turns after the first; default 9")
    parser.add_argument("--json", type=Path, metavar="FILE", help="keep the figures there, for report.py")
    options = parser.parse_args()
    agents = [(OURS, Path(sys.executable))]
    for peer in PEERS:
        place = options.peers / peer.name if options.peers else None
        if peer.name == "llm" and place and place.exists():
            agents.append((peer, place / "bin" / "python"))
    ports = {agent.name: free_port() for agent, _ in agents}
    found: dict[str, list[float]] = {agent.name: [] for agent, _ in agents}
    with tempfile.TemporaryDirectory() as name:
        for agent, _ in agents:
            (Path(name) / agent.name / "workspace").mkdir(parents=True)
            keep_ranks(Path(name) / agent.name / RANKS)
        for turn in range(options.repeat + 1):
            for agent, python in agents:
                seconds = first_request(agent, python, Path(name) / agent.name, ports[agent.name])
                if turn:
                    found[agent.name].append(seconds)
    medians = {agent: statistics.median(seconds) for agent, seconds in found.items()}
    for agent_name, seconds in medians.items():
        print(f"{agent_name:20} {seconds:6.2f} s to the first request")
    if "llm" in medians:
        verdict("autoagent beside llm", medians[OURS.name] / medians["llm"], AT_MOST)
    if options.json:
        options.json.write_text(json.dumps(medians) + "\n")


if __name__ == "__main__":
    main()
