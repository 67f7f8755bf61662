"""Start the workers of a fleet on the nodes of a Ray cluster. Needs `ray`.

Ray finds a node with a free CPU for a relay, an actor that starts the worker there and forwards the lines of its
connection in both directions. A relay serves one worker after another. On the head's side, one thread serves all
relays. The head reads and writes a socket, as with a worker on its own machine.

Secrets reach the worker's environment only as arguments of one call of the relay, which Ray sends to the actor's
process alone. The cluster would keep the arguments of its constructor or a `runtime_env`, and show them on its
dashboard.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import shutil
import socket
import subprocess
import tempfile
import threading
from collections.abc import Mapping
from contextlib import chdir, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from autoagent import __version__
from autoagent.core.errors import StateError
from autoagent.fleet.engine import GRACE_SECONDS, Engine, WorkerProcess, socket_pair, spawn_worker
from autoagent.text.sanitize import shorten

NONCE_FILE = "fleet.nonce"  # a node that finds it with the head's content shares the folder
CHUNK_BYTES = 65_536  # of a call: below 100 KB, Ray sends it with the call, not through the object store
CPUS = 1  # reserved by a relay for its worker and the run's programs
CONNECT_SECONDS = 10.0  # for a cluster to answer
MAX_VARIABLES_BYTES = 64_000  # in total, so that the variables are sent with the call, too


class Relay:
    """Start a worker on this node, and forward its lines. This runs in a process that Ray starts."""

    async def start(self, folder: str, nonce: str, variables: Mapping[str, str], cwd: str) -> None:
        """Start a worker for the run in `folder`, or in a temporary folder if this node does not share that."""
        is_shared = shares_folder(Path(folder).parent, nonce)
        self._local_folder = "" if is_shared else tempfile.mkdtemp(prefix="autoagent-fleet-")
        ours, theirs = socket.socketpair()
        run_folder = Path(self._local_folder or folder)
        with theirs:
            cwd = cwd if Path(cwd).is_dir() and not self._local_folder else str(run_folder)
            self._process = spawn_worker(run_folder, theirs, variables, cwd=cwd, local=self._local_folder)
        self._lines, self._to_worker = await asyncio.open_connection(sock=ours)

    async def read(self) -> bytes:
        """Return the next bytes from the worker, or none once it has closed its connection."""
        data = b""
        with suppress(ConnectionError):
            data = await self._lines.read(CHUNK_BYTES)
        return data

    async def write(self, data: bytes) -> None:
        """Send data to the worker, if it is still there."""
        self._to_worker.write(data)
        with suppress(ConnectionError):
            await self._to_worker.drain()

    async def signal(self, number: int) -> None:
        self._process.send_signal(number)

    async def end(self) -> int:
        """Close the connection. Kill the worker if it does not end. Return its exit code."""
        self._to_worker.close()
        try:
            return await asyncio.to_thread(self._process.wait, GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return await asyncio.to_thread(self._process.wait)
        finally:
            if self._local_folder:
                shutil.rmtree(self._local_folder, ignore_errors=True)


def shares_folder(out: Path, nonce: str) -> bool:
    """Return whether `out` is the head's folder, whatever its path here."""
    for folder in (out, *out.parents):
        with suppress(OSError):
            return (folder / NONCE_FILE).read_text() == nonce
    return False


class RayProcess(WorkerProcess):
    """Represent a worker on a node to the head. `_serve` talks to its relay, in the engine's thread."""

    def __init__(self, engine: RayEngine, folder: Path) -> None:
        self.connection, self._theirs = socket_pair()
        for end in (self.connection, self._theirs):
            end.setblocking(False)
        self.problem = ""
        self._engine = engine
        self._folder = folder
        self._relay: Any = None  # set once it has started the worker
        self._code: int | None = None
        self._over = threading.Event()
        self._serve_task = asyncio.run_coroutine_threadsafe(self._serve(), engine.loop)

    def wait(self) -> int | None:
        self._over.wait(3 * GRACE_SECONDS)
        return self._code

    def send_signal(self, number: int) -> None:
        """See WorkerProcess. Abandon a worker that still waits for a node."""
        if self._relay is not None:
            self._relay.signal.remote(number)
        else:
            self.abandon()

    def abandon(self) -> None:
        self._engine.loop.call_soon_threadsafe(self._serve_task.cancel)

    async def _serve(self) -> None:
        """Use a relay for as long as its worker runs."""
        import ray
        from ray.exceptions import RayError

        engine = self._engine
        relay: Any = None
        forward_task: asyncio.Future[None] | None = None
        try:
            relay = engine.idle_relays.pop() if engine.idle_relays else engine.relay_class.remote()
            await relay.start.remote(str(self._folder), engine.nonce, engine.variables, str(Path.cwd()))
            self._relay = relay
            forward_task = asyncio.ensure_future(self._forward(relay))
            loop = asyncio.get_running_loop()
            while data := await relay.read.remote():
                with suppress(OSError):  # the head has closed the connection, and waits for the end
                    await loop.sock_sendall(self._theirs, data)
            self._code = await relay.end.remote()
            engine.idle_relays.append(relay)
        except (RayError, asyncio.CancelledError) as error:
            self.problem = failure_reason(error, has_started=self._relay is not None)
            if relay is not None:
                ray.kill(relay)
        finally:
            if forward_task is not None:
                forward_task.cancel()
                await asyncio.gather(forward_task, return_exceptions=True)  # before another socket reuses its number
            self._theirs.close()
            self._over.set()

    async def _forward(self, relay: Any) -> None:
        """Forward the head's messages until it closes the connection."""
        from ray.exceptions import RayError

        loop = asyncio.get_running_loop()
        with suppress(OSError, RayError):
            while data := await loop.sock_recv(self._theirs, CHUNK_BYTES):
                await relay.write.remote(data)
            await relay.end.remote()


class RayEngine(Engine):
    """Start workers on the nodes of the cluster at an address, with `variables` in their environment.

    Raises StateError if the cluster cannot be joined, ModuleNotFoundError without Ray.
    """

    needs_leases = True
    initial_state = "waiting for a node"

    def __init__(self, address: str, out: Path, variables: Mapping[str, str]) -> None:
        import ray

        if sum(len(name) + len(value) for name, value in variables.items()) > MAX_VARIABLES_BYTES:
            raise StateError(f"The settings are more than {MAX_VARIABLES_BYTES:,} bytes, too large for a worker.")
        self.variables = dict(variables)
        self.idle_relays: list[Any] = []
        self.nonce, self._is_marked = secrets.token_hex(16), False
        self._has_joined = not ray.is_initialized()
        if self._has_joined:
            join_cluster(address)
        self._nonce_file = out / NONCE_FILE
        self.relay_class = ray.remote(num_cpus=CPUS, scheduling_strategy="SPREAD")(Relay)
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="relays", daemon=True)
        self._thread.start()

    def start(self, folder: Path) -> RayProcess:
        if not self._is_marked:
            self._nonce_file.write_text(self.nonce)
            self._is_marked = True
        return RayProcess(self, folder.absolute())

    def close(self) -> None:
        """Leave the cluster, which ends the relays."""
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()
        if self._has_joined:
            import ray

            ray.shutdown()


def join_cluster(address: str) -> None:
    """Join a cluster. If that fails, raises StateError with the reason in a line."""
    import ray
    from ray._private import worker as ray_worker
    from ray.exceptions import RayError

    # Whatever the settings, Ray reports the end of its processes on standard output, which is for the table or JSON.
    if hasattr(ray_worker, "print_to_stdstream"):
        ray_worker.print_to_stdstream = lambda *args, **kwargs: None
    try:
        if address == "auto" and not os.environ.get("RAY_ADDRESS"):
            address = find_trusted_cluster()
        parts = urlsplit(address if "://" in address else f"//{address}")
        if parts.hostname and parts.port:  # Ray itself would try for minutes
            socket.create_connection((parts.hostname, parts.port), CONNECT_SECONDS).close()
        with chdir("/"):  # Ray's workers import modules from the driver's folder, which may be a stranger's
            ray.init(address, log_to_driver=False, logging_level=logging.ERROR)
    except OSError as error:  # ConnectionError too
        reason = shorten(" ".join(str(error).split()), 300)
        start = "start one with `ray start --head`, or name another with --address"
        raise StateError(f"No Ray cluster answers at {address!r} ({reason}); {start}.") from error
    except ImportError as error:  # from Ray's client
        raise StateError(f'{address}: needs more of Ray ({error}); pip install "ray[client]".') from error
    except (RuntimeError, ValueError, RayError) as error:
        reason = shorten(" ".join(str(error).split()), 500)
        raise StateError(f"The Ray cluster at {address!r} cannot be joined: {reason}") from error


def find_trusted_cluster() -> str:
    """Return the address of a cluster that this user or root runs on this machine. Raises ConnectionError if none.

    Ray itself would accept any user's cluster, found by a world-writable file or by any process, and send it the keys.
    """
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            name, *flags = (process / "cmdline").read_bytes().split(b"\0")
            addresses = [flag for flag in flags if flag.startswith(b"--gcs-address=")]
            if addresses and name.endswith(b"/raylet") and process.stat().st_uid in (0, os.geteuid()):
                return os.fsdecode(addresses[0].partition(b"=")[2])
    raise ConnectionError("neither you nor root runs one on this machine")


def failure_reason(error: BaseException, *, has_started: bool) -> str:
    """Return why a relay failed. `has_started` is whether it had started its worker."""
    if isinstance(error, asyncio.CancelledError):
        return "The worker's node does not answer." if has_started else "The fleet was stopped before a node was free."
    if "No module named 'autoagent" in str(error):
        return f"A node of the cluster lacks this version; install autoagent {__version__} on all of them."
    if isinstance(cause := getattr(error, "cause", None), StateError):
        return str(cause)
    return f"The worker's node or its relay is gone ({type(error).__name__})."
