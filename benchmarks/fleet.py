"""The work of a fleet itself: the same scripted runs by `autoagent fleet` and by a plain pool of processes.

    python benchmarks/fleet.py [--tasks 10 100] [--parallel 2] [--json]

Each task is the demo, in a process of its own both ways. The pool (`multiprocessing`) starts `autoagent --demo` and
waits, with no budget, no record and no resume. Printed: seconds a task, their ratio, and the most memory of the head.
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
from multiprocessing.pool import ThreadPool
from pathlib import Path

PROGRAM = [sys.executable, "-m", "autoagent"]


def environment(folder: Path) -> dict[str, str]:
    """A user's home that is empty."""
    own = {"HOME": str(folder), "MEMORY_DISTIL": "off", "PYTHONUTF8": "1"}
    return {**{name: os.environ[name] for name in ("PATH",)}, **own}


def by_pool(number: int, parallel: int) -> float:
    """Seconds for so many runs, each started and awaited by a pool."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)

        def one(task: int) -> None:
            place = folder / f"t{task}"
            flags = ["-c", "--demo", "--plain", "--state-dir", str(place / "state"), "-w", str(place / "workspace")]
            place.mkdir()
            done = subprocess.run(
                [*PROGRAM, *flags], cwd=folder, env=environment(folder), stdin=subprocess.DEVNULL, capture_output=True
            )
            assert done.returncode == 0, done.stderr

        began = time.monotonic()
        with ThreadPool(parallel) as pool:
            pool.map(one, range(number), chunksize=1)
        return time.monotonic() - began


def by_fleet(number: int, parallel: int) -> tuple[float, float]:
    """Seconds for a fleet of so many runs, and the most memory of its head in MB."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        goals = ["Write a haiku about autumn to haiku.txt", "Read it back before you finish"]
        tasks = "\n".join(json.dumps({"id": f"t{n}", "goals": goals}) for n in range(number))
        began = time.monotonic()
        head = subprocess.Popen(
            [*PROGRAM, "fleet", "-", "-c", "--model", "demo", "--out", "out", "--parallel", str(parallel)],
            cwd=folder,
            env=environment(folder),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        most: list[float] = [0.0]

        def watch() -> None:
            while head.poll() is None:
                status = dict(line.split(":", 1) for line in Path(f"/proc/{head.pid}/status").read_text().splitlines())
                most[0] = max(most[0], int(status.get("VmRSS", "0").split()[0]) / 1e3)
                time.sleep(0.1)

        threading.Thread(target=watch, daemon=True).start()
        said, _ = head.communicate(tasks.encode())
        assert head.returncode == 0, said.decode()[-2000:]
        return time.monotonic() - began, most[0]


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, nargs="+", default=[10, 100])
    parser.add_argument("--parallel", type=int, default=2)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    rows = []
    for number in given.tasks:
        plain, (ours, memory) = by_pool(number, given.parallel), by_fleet(number, given.parallel)
        figures = {"pool": plain / number, "fleet": ours / number, "ratio": ours / plain, "MB": memory}
        rows.append({"tasks": number, **figures})
        if not given.json:
            seconds = "pool {pool:.2f} s, fleet {fleet:.2f} s a task, {ratio:.2f} x".format(**figures)
            print(f"{number:6} tasks: {seconds}, head {memory:.0f} MB")
    if given.json:
        print(json.dumps(rows, indent=2))


if __name__ == "__main__":
    main()
