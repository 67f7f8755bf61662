"""Watching processes that tests started."""

from __future__ import annotations

import signal
import time
from pathlib import Path

PATIENCE = 60  # seconds, on a machine that does much else


def take_usual_signals() -> None:
    """For a process that begins: what nohup, or a shell that puts the tests in the background, ignores for all."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def wait_until_it_rests(pid: int) -> None:
    """Wait until the process sleeps and uses no time: then it waits for its input."""
    used, end = "", time.monotonic() + PATIENCE
    while time.monotonic() < end:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        before, used = used, " ".join(fields[11:13])
        if fields[0] == "S" and used == before:
            return
        time.sleep(0.05)
    raise AssertionError(f"process {pid} did not come to rest within {PATIENCE} s")
