"""Engines start the workers of a fleet: on this machine (`LocalEngine`), or on a Ray cluster (`ray_engine`).

A worker is this program, `autoagent fleet worker`, wherever it runs. The head knows of it what WorkerProcess has.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from autoagent.core.errors import StateError

OUTPUT = "output.txt"  # what a worker prints
GRACE = 5.0  # seconds that a worker has to end after SIGTERM


class WorkerProcess(Protocol):
    """A worker, as its head sees it. `connection` is the head's end of a stream of JSON lines, and ends with it.

    `problem` says why it could not be started, '' if it was.
    """

    connection: socket.socket
    problem: str

    def wait(self) -> int | None:
        """Return the exit code, negative for a signal, once the connection is closed. None: nobody can know it."""
        ...

    def send_signal(self, number: int) -> None:
        """Send a signal, to end it."""
        ...

    def lose(self) -> None:
        """Give it up, as its node does not answer: close the connection."""
        ...


class Engine(Protocol):
    """Starts workers. `leases`: they run where the head may not see them end. `beginning`: the words for a new one."""

    leases: bool
    beginning: str

    def start(self, folder: Path) -> WorkerProcess:
        """Start a worker for the run in a folder. Raises StateError."""
        ...

    def close(self) -> None:
        """Give back what workers were started with."""
        ...


class LocalProcess:
    """A worker on this machine."""

    problem = ""

    def __init__(self, process: subprocess.Popen[bytes], connection: socket.socket) -> None:
        self.connection = connection
        self.send_signal, self.lose = process.send_signal, process.kill
        self._process = process

    def wait(self) -> int | None:
        """See WorkerProcess. A process that outlives its socket is killed."""
        with suppress(subprocess.TimeoutExpired):
            return self._process.wait(GRACE)
        self._process.kill()
        return self._process.wait()


class LocalEngine:
    """Starts processes of this program on this machine."""

    leases = False
    beginning = "starts"

    def start(self, folder: Path) -> LocalProcess:
        """See Engine."""
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                process = spawned(folder, theirs, {})
            except StateError:
                ours.close()
                raise
        ours.setblocking(False)
        return LocalProcess(process, ours)

    def close(self) -> None:
        """Nothing is left to close."""


def spawned(
    folder: Path, connection: socket.socket, variables: Mapping[str, str], *, cwd: str | None = None, own: str = ""
) -> subprocess.Popen[bytes]:
    """Start a worker that prints to a file of its folder, with `variables` besides those of this process.

    `own`: its folder, if that is not the one of the fleet. Raises StateError.
    """
    output, number = folder / OUTPUT, connection.fileno()
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        with os.fdopen(os.open(output, flags, 0o600), "ab") as file:
            return subprocess.Popen(  # noqa: S603 - this program itself
                [sys.executable, "-P", "-m", "autoagent", "fleet", "worker", str(number), own],
                pass_fds=[number],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                start_new_session=True,  # Ctrl-C at the terminal is for the head
                env={**os.environ, **variables, "PYTHONUTF8": "1"},
                cwd=cwd,
            )
    except OSError as error:
        raise StateError(f"{output}: no worker can be started: {error.strerror}.") from error
