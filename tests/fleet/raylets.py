"""A Ray cluster of several raylets on this machine, with ports and a folder of its own."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from contextlib import AbstractContextManager, suppress
from pathlib import Path

import pytest
from driver import PATIENCE, Home
from fleets import children

RAY = [sys.executable, "-m", "ray.scripts.scripts"]
START_ATTEMPTS = 3  # Ray gives up on a node that is slow to start, as on a busy machine
STORE = 80_000_000  # bytes of a raylet's object store
HIDDEN = 'mount -t tmpfs none "$0" && exec "$@"'  # another file system, in a namespace of its own


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


class Raylets(AbstractContextManager["Raylets"]):
    """`address` is where heads join it. Its nodes have nothing of the settings of that home."""

    def __init__(self, home: Home, *, client: bool = False) -> None:
        pytest.importorskip("ray")
        self.folder = Path(tempfile.mkdtemp(prefix="r-", dir="/tmp"))  # short, as sockets have their names in it
        port, client_port = free_port(), free_port()
        self.address = f"127.0.0.1:{port}"
        self.flags = ("--engine", "ray", "--address", self.address)  # of a fleet on it
        self.client = f"ray://127.0.0.1:{client_port}"
        own = {name: value for name, value in home._environment(None).items() if name not in home.env}
        self._env = {**own, "RAY_AUTH_MODE": "disabled", "RAY_enable_metrics_collection": "0"}
        self._started: list[subprocess.Popen[bytes]] = []
        more = ["--ray-client-server-port", str(client_port)] if client else []
        self.add(
            "--head", "--port", str(port), "--temp-dir", str(self.folder), "--include-dashboard", "false", *more, cpus=0
        )

    def add(self, *flags: str, cpus: int = 2, hides: Path | None = None, **more: str) -> subprocess.Popen[bytes]:
        """Start a raylet. From one that `hides` a folder, it cannot be seen."""
        joins = flags or ("--address", self.address)
        command = [*RAY, "start", *joins, "--block", "--num-cpus", str(cpus), "--object-store-memory", str(STORE)]
        command += ["--disable-usage-stats", "--node-ip-address", "127.0.0.1"]
        if hides:
            command = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", HIDDEN, str(hides), *command]
        for _ in range(START_ATTEMPTS):
            started = self._start(command, more)
            until = time.monotonic() + 2 * PATIENCE
            while started.poll() is None and time.monotonic() < until:
                if b"This command will now block" in self._log.read_bytes():
                    return started
                time.sleep(0.2)
        raise AssertionError(self._log.read_text())

    def _start(self, command: list[str], more: dict[str, str]) -> subprocess.Popen[bytes]:
        with self._log.open("wb") as log:
            started = subprocess.Popen(command, env=self._env | more, cwd=self.folder, stdout=log, stderr=log)
        self._started.append(started)
        return started

    @property
    def _log(self) -> Path:
        return self.folder / "start.txt"

    def kill(self, started: subprocess.Popen[bytes]) -> None:
        """Kill a raylet with everything that it has started, as when a machine loses its power."""
        for pid in [*below(started.pid), started.pid]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        started.wait()

    def __exit__(self, *exc: object) -> None:
        for started in reversed(self._started):
            pids = below(started.pid)
            started.terminate()
            with suppress(subprocess.TimeoutExpired):
                started.wait(10)
            for pid in [started.pid, *pids]:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            started.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


def below(pid: int) -> list[int]:
    """Return the processes that a process has started, and theirs."""
    return [one for child in children(pid) for one in (child, *below(child))]


def named(pids: Iterable[int], words: bytes) -> list[int]:
    """Return the processes whose command line has these words."""
    found = []
    for pid in pids:
        with suppress(OSError):
            if words in Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" "):
                found.append(pid)
    return found


def in_memory(pid: int, words: bytes) -> bool:
    """Return whether a process has these words anywhere in what it can write to."""
    with Path(f"/proc/{pid}/mem").open("rb", buffering=0) as memory:
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            place, rights, *_ = line.split()
            begin, end = (int(part, 16) for part in place.split("-"))
            while rights.startswith("rw") and begin < end:
                piece = b""
                with suppress(OSError):
                    memory.seek(begin)
                    piece = memory.read(min(end - begin, 1 << 24))
                if words in piece:
                    return True
                begin += max(len(piece) - len(words), 1 << 12)
    return False
