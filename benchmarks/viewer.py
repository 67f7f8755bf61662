"""How much a live page slows the run that it shows: the same run with and without one, in turns.

    python benchmarks/viewer.py [--steps 400] [--turns 8]

The server of the page is a process of its own, as `autoagent view` starts it; a client follows the list of all runs and
the events of this one. The model answers at once, so that nothing but our own work is measured.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from loop import OURS, RANKS, command, keep_ranks, verdict
from resume import until_done

SLOWED_AT_MOST = 1.02


def follow(host: str, cookie: str, path: str, seen: list[int]) -> None:
    """Read a stream to its end. Follow the first run that the list of runs names as well."""
    connection = http.client.HTTPConnection(host)
    connection.request("GET", path, headers={"Cookie": cookie})
    inner: threading.Thread | None = None
    for line in connection.getresponse():
        if not line.startswith(b"data: "):
            continue
        seen[0] += 1
        runs = json.loads(line[6:]).get("runs") if path == "/events" else None
        if runs and inner is None:
            inner = threading.Thread(target=follow, args=(host, cookie, f"/runs/{runs[0]['id']}/events", seen))
            inner.start()
    if inner is not None:
        inner.join()


@contextmanager
def viewed(home: Path) -> Iterator[list[int]]:
    """Show the runs of a home on a page that is open. Yields how many messages have come, at its place 0."""
    environment = {**os.environ, "HOME": str(home)}
    argv = [sys.executable, "-m", "autoagent", "--state-dir", "../state", "view"]
    with subprocess.Popen(
        argv, cwd=home / "workspace", env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout and server.stderr
        link = urlsplit(server.stdout.readline().strip())
        if not link.netloc:
            sys.exit(server.stderr.read())
        connection = http.client.HTTPConnection(link.netloc)
        connection.request("GET", f"{link.path}?{link.query}")
        cookie = str(connection.getresponse().headers["set-cookie"]).partition(";")[0]
        seen = [0]
        reader = threading.Thread(target=follow, args=(link.netloc, cookie, "/events", seen))
        reader.start()
        yield seen
        server.send_signal(signal.SIGINT)
        reader.join()


def seconds(steps: int, *, watched: bool) -> tuple[float, int]:
    """Run so many steps in a new home. Return how long they took, and how many messages the page had of them."""
    with tempfile.TemporaryDirectory() as name:
        home, argv = Path(name), command(OURS, Path(sys.executable), steps)
        notes = home / "workspace" / "notes"
        notes.mkdir(parents=True)
        keep_ranks(home / RANKS)
        for n in range(1, steps + 1):
            (notes / f"{n}.txt").write_text(f"Note {n}.\n")
        if not watched:
            return until_done(argv, home, steps), 0
        (home / "state").mkdir(mode=0o700)
        with viewed(home) as seen:
            return until_done(argv, home, steps), seen[0]


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--steps", type=int, default=400, metavar="N", help="default 400")
    parser.add_argument("--turns", type=int, default=8, metavar="N", help="default 8")
    options = parser.parse_args()
    pairs = [
        (seconds(options.steps, watched=False)[0], *seconds(options.steps, watched=True)) for _ in range(options.turns)
    ]
    alone, watched, messages = (statistics.median(column) for column in zip(*pairs, strict=True))
    ratio = statistics.median(with_page / without for without, with_page, _ in pairs)
    print(f"{options.steps} steps: {alone:.2f} s alone, {watched:.2f} s with a page of {messages:.0f} messages")
    verdict("  with the page, by turns", ratio, SLOWED_AT_MOST, " x")


if __name__ == "__main__":
    main()
