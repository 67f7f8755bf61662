"""Watching processes that tests started, and limiting their own."""

from __future__ import annotations

import os
import resource
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

PATIENCE = 60  # seconds, on a machine that does much else

Value = TypeVar("Value")


def wait_for(look: Callable[[], Value]) -> Value:
    """Look until there is something, or until it is true: what was found."""
    end = time.monotonic() + PATIENCE
    while not (found := look()):
        assert time.monotonic() < end, f"it did not happen within {PATIENCE} s"
        time.sleep(0.02)
    return found


@contextmanager
def full_disk(room: int) -> Iterator[None]:
    """A limit on the size of files stands in for the disk: none grows beyond this many bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def processes_with(mark: str) -> list[int]:
    """The processes in whose command line this stands, its words separated by spaces."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if mark.encode().replace(b" ", b"\0") in entry.read_bytes() and entry.parent.name != str(os.getpid()):
                found.append(int(entry.parent.name))
        except OSError:  # it ended just now
            continue
    return found


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
