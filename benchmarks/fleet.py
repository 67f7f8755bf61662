"""The work of a fleet itself: the same scripted runs by `autoagent fleet` and by a plain pool of processes.

    python benchmarks/fleet.py [--tasks 10 100] [--parallel 2] [--ray] [--json]

Each task is the demo, in a process of its own every way. The pool (`multiprocessing`) starts `autoagent --demo` and
waits, with no budget, no record and no resume. `--ray` does the same on a Ray cluster of this machine that it starts:
plain `ray.remote` functions that start the process, and the fleet on its Ray engine. Printed: seconds a task, their
ratio, and the most memory of the head.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from multiprocessing.pool import ThreadPool
from pathlib import Path

PROGRAM = [sys.executable, "-m", "autoagent"]


def environment(folder: Path) -> dict[str, str]:
    """A user's home that is empty."""
    own = {"HOME": str(folder), "MEMORY_DISTIL": "off", "PYTHONUTF8": "1"}
    return {**{name: os.environ[name] for name in ("PATH",)}, **own}


def run_plain(place: str, env: dict[str, str]) -> None:
    """Run one task in a folder, as anybody would."""
    folder = Path(place)
    flags = ["-c", "--demo", "-m", "local", "--plain", "--state-dir", f"{folder}/state", "-w", f"{folder}/workspace"]
    folder.mkdir()
    done = subprocess.run([*PROGRAM, *flags], cwd=folder, env=env, stdin=subprocess.DEVNULL, capture_output=True)
    assert done.returncode == 0, done.stderr


def by_pool(number: int, parallel: int) -> float:
    """Seconds for so many runs, each started and awaited by a pool."""
    with tempfile.TemporaryDirectory() as name, ThreadPool(parallel) as pool:
        env = environment(Path(name))
        began = time.monotonic()
        pool.starmap(run_plain, [(f"{name}/t{n}", env) for n in range(number)], chunksize=1)
        return time.monotonic() - began


def by_ray(number: int, address: str) -> float:
    """Seconds for so many runs, each started and awaited by a plain remote function. The cluster's CPUs say how many
    at a time.
    """
    import ray

    ray.init(address, log_to_driver=False, logging_level=logging.ERROR)
    try:
        remote = ray.remote(num_cpus=1)(run_plain)
        with tempfile.TemporaryDirectory() as name:
            env = environment(Path(name))
            began = time.monotonic()
            ray.get([remote.remote(f"{name}/t{n}", env) for n in range(number)])
            return time.monotonic() - began
    finally:
        ray.shutdown()


@contextmanager
def cluster(cpus: int) -> Iterator[str]:
    """The address of a Ray cluster of this machine, which ends with the block."""
    with tempfile.TemporaryDirectory(prefix="r-", dir="/tmp") as folder, socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
        one.close()
        ours = ["--head", "--block", "--port", str(port), "--temp-dir", folder, "--num-cpus", str(cpus)]
        more = ["--include-dashboard", "false", "--disable-usage-stats", "--node-ip-address", "127.0.0.1"]
        said = Path(folder) / "said.txt"
        with said.open("wb") as log:
            head = subprocess.Popen(
                [sys.executable, "-m", "ray.scripts.scripts", "start", *ours, *more],
                stdout=log,
                stderr=log,
                env={**os.environ, "RAY_AUTH_MODE": "disabled"},
            )
        os.environ["RAY_AUTH_MODE"] = "disabled"
        try:
            while b"will now block" not in said.read_bytes():
                assert head.poll() is None, said.read_text()
                time.sleep(0.2)
            yield f"127.0.0.1:{port}"
        finally:
            head.terminate()
            head.wait()


def by_fleet(number: int, parallel: int, address: str = "") -> tuple[float, float]:
    """Seconds for a fleet of so many runs, and the most memory of its head in MB."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        goals = ["Write a haiku about autumn to haiku.txt", "Read it back before you finish"]
        tasks = "\n".join(json.dumps({"id": f"t{n}", "goals": goals}) for n in range(number))
        began = time.monotonic()
        engine = ["--engine", "ray", "--address", address] if address else []
        head = subprocess.Popen(
            [*PROGRAM, "fleet", "-", "-c", "--model", "demo", "--out", "out", "--parallel", str(parallel), *engine],
            cwd=folder,
            env=environment(folder) | {"RAY_AUTH_MODE": "disabled"},
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
    parser.add_argument("--ray", action="store_true")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    rows = []
    with cluster(given.parallel) if given.ray else nullcontext("") as address:
        for number in given.tasks:
            ways = [("pool", by_pool(number, given.parallel), by_fleet(number, given.parallel))]
            if address:
                ways.append(("ray", by_ray(number, address), by_fleet(number, given.parallel, address)))
            for name, plain, (ours, memory) in ways:
                row = {"tasks": number, "plain": name, "s": plain / number, "fleet s": ours / number}
                rows.append({**row, "ratio": ours / plain, "MB": memory})
                if not given.json:
                    print("{tasks:6} tasks: {plain} {s:.2f} s, fleet {fleet s:.2f} s a task, {ratio:.2f} x, "
                          "head {MB:.0f} MB".format(**rows[-1]), flush=True)  # fmt: skip
    if given.json:
        print(json.dumps(rows, indent=2))


if __name__ == "__main__":
    main()
