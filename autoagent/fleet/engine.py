"""Start the workers of a fleet on this machine (`Engine`) or on a Ray cluster (`ray_engine`).

A worker is this program, run as `autoagent fleet worker`. The head sees it as a WorkerProcess.
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

OUTPUT_FILE, WORKER_LOCK_FILE = "output.txt", "worker.lock"  # in the folder of a run
GRACE_SECONDS = 5.0  # from asking a worker to end, or the end of its connection, to SIGKILL
LEASE_SECONDS = 20.0
"""How long a worker on another machine continues without its head: longer than the network or a busy head may stall,
and no longer than a user would wait for a lost run to resume."""


class WorkerProcess:
    """Represent a worker to the head: by default, a process on this machine.

    `connection` is the head's end of a stream of JSON lines. It closes when the worker ends. `problem` says why the
    worker could not be started, or is ''.
    """

    problem = ""

    def __init__(self, connection: socket.socket, process: subprocess.Popen[bytes]) -> None:
        self.connection = connection
        self._process = process

    def wait(self) -> int | None:
        """Return the exit code, negative for a signal, once the connection is closed, or None if it cannot be known.

        A process that outlives its connection is killed.
        """
        with suppress(subprocess.TimeoutExpired):
            return self._process.wait(GRACE_SECONDS)
        self._process.kill()
        return self._process.wait()

    def send_signal(self, number: int) -> None:
        """Send the worker a signal."""
        self._process.send_signal(number)

    def abandon(self) -> None:
        """Give up on a worker whose node does not answer. Its connection closes as a result."""
        self._process.kill()


class NoWorker(StateError):
    """Report that this machine lacks the processes, memory or descriptors for another worker."""


class Engine:
    """Start workers: by default, processes of this program on this machine.

    `needs_leases` tells whether they run where the head may not see them end. `initial_state` is that of a new worker.
    """

    needs_leases = False
    initial_state = "starting"

    def start(self, folder: Path) -> WorkerProcess:
        """Start a worker for the run in a folder. Raises NoWorker."""
        ours, theirs = socket_pair()
        with theirs:
            try:
                process = spawn_worker(folder, theirs, {})
            except NoWorker:
                ours.close()
                raise
        ours.setblocking(False)
        return WorkerProcess(ours, process)

    def close(self) -> None:
        """Release the engine's resources."""


def socket_pair() -> tuple[socket.socket, socket.socket]:
    """Return a pair of connected sockets. Raises NoWorker."""
    try:
        return socket.socketpair()
    except OSError as error:
        raise NoWorker(f"No worker can be started: {error.strerror}.") from error


def spawn_worker(
    folder: Path, connection: socket.socket, variables: Mapping[str, str], *, cwd: str | None = None, local: str = ""
) -> subprocess.Popen[bytes]:
    """Start a worker that prints to a file in its folder, with `variables` added to this process's environment.

    `local` is the run's folder on this node if it cannot reach the fleet's folder, else ''. Raises NoWorker.
    """
    output, fd = folder / OUTPUT_FILE, connection.fileno()
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        with os.fdopen(os.open(output, flags, 0o600), "ab") as file:
            return subprocess.Popen(  # noqa: S603 - this program itself
                [sys.executable, "-P", "-m", "autoagent", "fleet", "worker", str(fd), local],
                pass_fds=[fd],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                start_new_session=True,  # Ctrl-C at the terminal is for the head
                env={**os.environ, **variables, "PYTHONUTF8": "1"},
                cwd=cwd,
            )
    except OSError as error:
        raise NoWorker(f"{output}: no worker can be started: {error.strerror}.") from error
