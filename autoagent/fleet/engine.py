"""Engines start the workers of a fleet: on this machine (`Engine`), or on a Ray cluster (`ray_engine`).

A worker is this program, `autoagent fleet worker`, wherever it runs. The head sees it as a WorkerProcess.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from autoagent.core.errors import StateError

OUTPUT = "output.txt"  # the output of a worker
GRACE = 5.0  # seconds that a worker has to end after SIGTERM


class WorkerProcess:
    """A worker, as its head sees it: a process of this machine, unless a class says otherwise.

    `connection` is the head's end of a stream of JSON lines, and ends with it. `problem` says why it could not be
    started, '' if it was.
    """

    problem = ""

    def __init__(self, connection: socket.socket, process: subprocess.Popen[bytes]) -> None:
        self.connection = connection
        self._process = process

    def wait(self) -> int | None:
        """Return the exit code, negative for a signal, once the connection is closed. None: nobody can know it.

        A process that outlives its connection is killed.
        """
        with suppress(subprocess.TimeoutExpired):
            return self._process.wait(GRACE)
        self._process.kill()
        return self._process.wait()

    def send_signal(self, number: int) -> None:
        """Send a signal, to end it."""
        self._process.send_signal(number)

    def lose(self) -> None:
        """Give it up, as its node does not answer: close the connection."""
        self._process.kill()


class Engine:
    """Starts workers: processes of this program on this machine, unless a class says otherwise.

    `leases`: they run where the head may not see them end. `beginning`: the words for a new worker.
    """

    leases = False
    beginning = "starts"

    def start(self, folder: Path) -> WorkerProcess:
        """Start a worker for the run in a folder. Raises StateError."""
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                process = spawned(folder, theirs, {})
            except StateError:
                ours.close()
                raise
        ours.setblocking(False)
        return WorkerProcess(ours, process)

    def close(self) -> None:
        """Release the engine's resources."""


def spawned(
    folder: Path, connection: socket.socket, variables: Mapping[str, str], *, cwd: str | None = None, own: str = ""
) -> subprocess.Popen[bytes]:
    """Start a worker that prints to a file of its folder, with `variables` besides those of this process.

    `own`: its folder, if that is not the fleet's. Raises StateError.
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
