"""Whether a step gets slower, or the process larger, the longer a run is: one run of many steps, as a user runs it.

    python benchmarks/long_run.py [--steps 10000] [--window 8192]

The agent reads a small note a step; the server answers at once (zero_latency.py). The time of a step is that from the
answer to the next request, compared as medians of the first and of the last tenth, without the first ten steps; the
memory is the growth of VmRSS from the end of the first tenth to the end.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent

GROWTH_AT_MOST = 1.2
MEMORY_AT_MOST = 40.0  # MB
WARM = 10  # steps that are not counted
LOOK = 0.05  # seconds between two looks at the process


@dataclass(frozen=True)
class LongRun:
    """Medians of ms a step of each tenth, and the resident MB at the end of the first tenth and of the run."""

    tenths: list[float]
    early: float
    late: float

    @property
    def growth(self) -> float:
        return self.tenths[-1] / self.tenths[0]

    @property
    def memory(self) -> float:
        """MB that were added."""
        return self.late - self.early


def run(steps: int, window: int) -> LongRun:
    """One run of so many steps, in a temporary folder. Raises RuntimeError where it ends before."""
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        notes = home / "workspace" / "notes"
        notes.mkdir(parents=True)
        for n in range(1, steps + 1):
            (notes / f"{n}.txt").write_text(f"Note {n} says that the ferry number {n} leaves at {n % 24}:00.\n")
        argv = [sys.executable, str(HERE / "zero_latency.py"), str(steps), "read_file", "filename"]
        with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
            assert server.stdin and server.stdout
            env = {
                **os.environ,
                "HOME": str(home),
                "OPENAI_API_KEY": "sk-for-a-benchmark",
                "OPENAI_BASE_URL": f"http://127.0.0.1:{int(server.stdout.readline())}/v1",
                "AUTOAGENT_WINDOW": str(window),
                "MEMORY_DISTIL": "off",  # the steps are measured
            }
            task = ["--ai-name", "Reader", "--ai-role", "a reader", "--ai-goal", "Read the notes"]
            limits = ["-c", "-l", str(steps), "-w", "workspace", "--state-dir", "state", "--model", "gpt-4o-mini"]
            with (home / "output").open("w") as output:
                argv = [sys.executable, "-m", "autoagent", *limits, *task]
                program = subprocess.Popen(argv, cwd=home, env=env, stdout=output, stderr=output)
                sizes = watched(program)
            server.stdin.close()
            *_, figures = server.stdout.read().splitlines()
        requests = json.loads(figures)["steps"]
        if len(requests) < steps:
            raise RuntimeError(f"it ended after {len(requests)} steps: …{(home / 'output').read_text()[-600:]}")
    gaps = [1000 * (later[0] - earlier[1]) for earlier, later in itertools.pairwise(requests)][WARM:]
    tenth = len(gaps) // 10
    first_tenth = requests[steps // 10][0]
    return LongRun(
        [statistics.median(gaps[n * tenth : (n + 1) * tenth]) for n in range(10)],
        next(size for at, size in sizes if at >= first_tenth),
        sizes[-1][1],
    )


def watched(program: subprocess.Popen[bytes]) -> list[tuple[float, float]]:
    """When, by the clock the server has too, the process was how large (MB), until it ends."""
    sizes = []
    while program.poll() is None:
        try:
            found = re.search(r"^VmRSS:\s+(\d+) kB", Path(f"/proc/{program.pid}/status").read_text(), re.MULTILINE)
        except OSError:  # it has just ended
            break
        if found:
            sizes.append((time.perf_counter(), int(found[1]) / 1000))
        time.sleep(LOOK)
    program.wait()
    return sizes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--steps", type=int, default=10_000, metavar="N", help="default 10000")
    parser.add_argument("--window", type=int, default=8192, metavar="TOKENS", help="default 8192")
    options = parser.parse_args()
    found = run(options.steps, options.window)
    print("ms a step, tenth by tenth:", " ".join(f"{tenth:.2f}" for tenth in found.tenths))
    for what, value, limit, unit in (
        ("last tenth beside the first", found.growth, GROWTH_AT_MOST, ""),
        ("memory added", found.memory, MEMORY_AT_MOST, " MB"),
    ):
        word = "met" if value <= limit else "MISSED"
        print(f"{what:30} {value:8.2f}{unit} (wanted: at most {limit:.2f}{unit}, {word})")


if __name__ == "__main__":
    main()
