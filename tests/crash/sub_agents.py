"""Kills at the durable calls of a sub-agent, which lives in a thread: strace counts the calls of each thread alone.

While the sub-agent waits for its first reply, strace is attached to all threads of the process but the agent's own; of
them only that of the sub-agent writes anything.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from processes import wait_for
from server import Answer, Request

from crash.boundaries import CALLS, Boundary, injecting
from crash.trial import Outcome, finish
from crash.world import GOAL, HELPER, PATIENCE, PROGRAM, Ended, World, world


def record() -> list[Boundary]:
    """The boundaries of a sub-agent from its first reply on."""
    with tempfile.TemporaryDirectory(prefix="crash") as folder, world(Path(folder, "home").resolve()) as home:
        file = Path(folder, "record")
        ended = _run(home, ["-y", "-s", "0", "-e", f"trace={','.join(CALLS)}", "-o", str(file)])
        home.check_end(home.check_crash(ended), ended)
        counts: Counter[str] = Counter()
        found = []
        for call, about in re.findall(r"^(?:\d+ +)?(\w+)\((.*)", file.read_text(), re.M):
            counts[call] += 1
            found.append(Boundary(call, counts[call], about))
        return found


def kill_at(boundary: Boundary) -> Outcome:
    """Kill the process there, resume the run, and check. Raises AssertionError."""
    with tempfile.TemporaryDirectory(prefix="crash") as folder, world(Path(folder, "home").resolve()) as home:
        cut = _run(home, ["-o", "/dev/null", *injecting(boundary, "signal=KILL")])
        before = home.check_crash(cut)
        assert cut.code in (0, -9), cut.err
        return finish(home, before, cut)


def _run(home: World, options: Sequence[str]) -> Ended:
    """The run, with strace attached as described above."""
    process = subprocess.Popen(
        [*PROGRAM, *GOAL, "-c", "--json"],
        cwd=home.folder,
        env=home.env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    with _attached(home, process.pid, options):
        try:
            out, err = process.communicate(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    return Ended(process.returncode, out, err)


@contextmanager
def _attached(home: World, pid: int, options: Sequence[str]) -> Iterator[None]:
    """While entered, the sub-agent's first reply waits until its thread is traced."""
    usual, first = home.model, threading.Lock()
    tracers: list[subprocess.Popen[bytes]] = []

    def model(request: Request) -> Answer:
        if request.asked_by(HELPER) and first.acquire(blocking=False):
            threads = [task for task in Path(f"/proc/{pid}/task").iterdir() if task.name != str(pid)]
            attach = [part for thread in threads for part in ("-p", thread.name)]
            tracer = subprocess.Popen(["strace", *attach, *options], stderr=subprocess.DEVNULL)
            tracers.append(tracer)
            wait_for(lambda: all(_is_traced(thread) for thread in threads))
        return usual(request)

    home.model = model  # type: ignore[method-assign]
    yield
    home.model = usual  # type: ignore[method-assign]
    for tracer in tracers:
        tracer.wait(PATIENCE)


def _is_traced(thread: Path) -> bool:
    try:
        return "TracerPid:\t0\n" not in (thread / "status").read_text()
    except OSError:  # it has ended
        return True
