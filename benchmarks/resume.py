"""How soon a long run goes on: from the start of `autoagent resume` to its first request, beside a start from nothing.

    python benchmarks/resume.py [--steps 10000] [--repeat 5] [--keep FOLDER] [--json FILE]

The run is made as a user makes it, against a server that answers at once (zero_latency.py), and then killed, as a
power cut would end it. It is resumed with the checkpoint beside its log, and without it: the checkpoint is deleted
before each of those turns. `--keep` leaves the run in the folder, and uses the one that is there. The server keeps its
port, so that a resumed run knows the endpoint, as a user's does.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from first_request import free_port
from loop import OURS, PATIENCE, RANKS, command, keep_ranks, verdict, world

HERE = Path(__file__).parent
PORT = free_port()

SECONDS_AT_MOST = 1.0


@contextmanager
def served(steps: int) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A server that says "done" once the request after so many steps is there, and its address."""
    argv = [sys.executable, str(HERE / "zero_latency.py"), str(steps), "read_file", "filename"]
    environ = {**os.environ, "PORT": str(PORT)}
    with subprocess.Popen(argv, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdin and server.stdout
        yield server, f"http://127.0.0.1:{int(server.stdout.readline())}/v1"
        server.stdin.close()
        server.stdout.read()


def until_done(argv: list[str], home: Path, steps: int) -> float:
    """Run the program until the server has the request after so many steps, kill it; return the seconds it took."""
    with served(steps) as (server, url), (home / "output").open("w+") as output:
        assert server.stdout
        begin = time.perf_counter()
        program = subprocess.Popen(
            argv,
            cwd=home / "workspace",
            env=world(home, url, 8192),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
        try:
            ready, _, _ = select.select([server.stdout], [], [], PATIENCE + steps)
            if not ready or server.stdout.readline() != "done\n":
                sys.exit((home / "output").read_text()[-2000:])
            return time.perf_counter() - begin
        finally:
            program.kill()
            program.wait()


def make(home: Path, steps: int) -> None:
    """A run of so many steps, cut off in the next one."""
    notes = home / "workspace" / "notes"
    notes.mkdir(parents=True)
    keep_ranks(home / RANKS)
    for n in range(1, steps + 1):
        (notes / f"{n}.txt").write_text(f"Note {n} says that the ferry number {n} leaves at {n % 24}:00.\n")
    until_done(command(OURS, Path(sys.executable), steps), home, steps)


def go_on(home: Path) -> float:
    """Seconds from the start of a resume to its first request."""
    (run,) = [folder.name for folder in (home / "state" / "runs").iterdir()]
    argv = [sys.executable, "-m", "autoagent", "resume", run, "-c", "--state-dir", "../state"]
    return until_done(argv, home, 0)


def resumed(home: Path, *, checkpoint: bool) -> float:
    """The same; the run is as before afterwards."""
    with tempfile.TemporaryDirectory(dir=home) as kept:
        shutil.copytree(home / "state", Path(kept) / "state")
        try:
            if not checkpoint:
                for file in (home / "state" / "runs").glob("*/checkpoint*"):
                    file.unlink()
            return go_on(home)
        finally:
            shutil.rmtree(home / "state")
            (Path(kept) / "state").rename(home / "state")


def fresh() -> float:
    """Seconds from the start of a new run to its first request."""
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        (home / "workspace").mkdir()
        keep_ranks(home / RANKS)
        return until_done(command(OURS, Path(sys.executable), 1), home, 0)


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--steps", type=int, default=10_000, metavar="N", help="default 10000")
    parser.add_argument("--repeat", type=int, default=5, metavar="N", help="turns; default 5")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="where the run is kept for the next time")
    parser.add_argument("--json", type=Path, metavar="FILE", help="keep the figures there, for report.py")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        home: Path = options.keep or Path(name) / "home"
        if not (home / "state").exists():
            make(home, options.steps)
        go_on(home)  # another program has made the checkpoint that is there, or an earlier version of this one
        turns = [
            (resumed(home, checkpoint=True), resumed(home, checkpoint=False), fresh()) for _ in range(options.repeat)
        ]
        size = sum(file.stat().st_size for file in (home / "state" / "runs").glob("*/events.jsonl")) / 1e6
        cache = sum(file.stat().st_size for file in (home / "state" / "runs").glob("*/checkpoint*")) / 1e6
    with_it, without, new = (statistics.median(column) for column in zip(*turns, strict=True))
    print(f"a log of {options.steps:,} steps, {size:.1f} MB, with a checkpoint of {cache:.2f} MB; first request after")
    print(f"  {new:.2f} s  of a new run in a new home, which first asks how the endpoint takes tools")
    print(f"  {without:.2f} s  resumed without the checkpoint")
    verdict("  resumed", with_it, SECONDS_AT_MOST, " s")
    if options.json:
        figures = {"steps": options.steps, "new": new, "without": without, "resumed": with_it, "log_mb": size}
        options.json.write_text(json.dumps(figures) + "\n")


if __name__ == "__main__":
    main()
