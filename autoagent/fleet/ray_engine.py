"""Start the workers of a fleet on the nodes of a Ray cluster. Needs `ray`.

Ray finds a node with a free CPU for a relay, an actor that starts the worker there and passes on the lines of its
connection, both ways. A relay serves one worker after another. On the head's side, one thread serves all relays. The
head reads and writes a socket, as with a worker on its own machine.

Secrets reach the worker's environment by one call of the relay and by no other path: arguments of a call to an actor
are sent only to its process, unlike those of its constructor and unlike a `runtime_env`, kept by the cluster and shown
on its dashboard.
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
from autoagent.fleet.engine import GRACE, Engine, WorkerProcess, spawn_worker
from autoagent.text.sanitize import shorten

NONCE = "fleet.nonce"  # a node that finds it, with what the head has put there, shares the folder
PIECE = 65_536  # bytes of a call; what is below 100 KB goes along with it, and not by the object store
CPUS = 1  # that a relay keeps for its worker and the programs of the run
REACH = 10.0  # seconds for a cluster to answer
MOST_VARIABLES = 64_000  # bytes of all together, so that they go along with the call as well


class Relay:
    """Start a worker on this node, and pass on its lines. Runs in a process that Ray starts there."""

    async def start(self, folder: str, nonce: str, variables: Mapping[str, str], cwd: str) -> None:
        """Start a worker for the run in `folder`, in a folder of its own if this node does not share `folder`."""
        self._own = "" if shares(Path(folder).parent, nonce) else tempfile.mkdtemp(prefix="autoagent-fleet-")
        ours, theirs = socket.socketpair()
        place = Path(self._own or folder)
        with theirs:
            here = cwd if Path(cwd).is_dir() and not self._own else str(place)
            self._process = spawn_worker(place, theirs, variables, cwd=here, own=self._own)
        self._lines, self._to_worker = await asyncio.open_connection(sock=ours)

    async def read(self) -> bytes:
        """Return the next bytes from the worker, none once it has closed its connection."""
        said = b""
        with suppress(ConnectionError):
            said = await self._lines.read(PIECE)
        return said

    async def write(self, data: bytes) -> None:
        """Say something to the worker, if it is still there."""
        self._to_worker.write(data)
        with suppress(ConnectionError):
            await self._to_worker.drain()

    async def signal(self, number: int) -> None:
        self._process.send_signal(number)

    async def end(self) -> int:
        """Hang up. Kill the worker if it goes on. Return its exit code."""
        self._to_worker.close()
        try:
            return await asyncio.to_thread(self._process.wait, GRACE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return await asyncio.to_thread(self._process.wait)
        finally:
            if self._own:
                shutil.rmtree(self._own, ignore_errors=True)


def shares(out: Path, nonce: str) -> bool:
    """Return whether OUT here is the same folder as the head's, by whatever path."""
    for folder in (out, *out.parents):
        with suppress(OSError):
            return (folder / NONCE).read_text() == nonce
    return False


class RayProcess(WorkerProcess):
    """Represent a worker on a node to the head. The thread `_keep` talks to its relay."""

    def __init__(self, engine: RayEngine, folder: Path) -> None:
        self.connection, self._theirs = socket.socketpair()
        for end in (self.connection, self._theirs):
            end.setblocking(False)
        self.problem = ""
        self._engine = engine
        self._folder = folder
        self._relay: Any = None  # once it has started the worker
        self._code: int | None = None
        self._over = threading.Event()
        self._keeping = asyncio.run_coroutine_threadsafe(self._keep(), engine.loop)

    def wait(self) -> int | None:
        """See WorkerProcess."""
        self._over.wait(3 * GRACE)
        return self._code

    def send_signal(self, number: int) -> None:
        """See WorkerProcess. Give up a worker that still waits for a node."""
        if self._relay is not None:
            self._relay.signal.remote(number)
        else:
            self.abandon()

    def abandon(self) -> None:
        """See WorkerProcess."""
        self._engine.loop.call_soon_threadsafe(self._keeping.cancel)

    async def _keep(self) -> None:
        """Keep a relay for as long as its worker runs."""
        import ray
        from ray.exceptions import RayError

        engine = self._engine
        relay: Any = None
        writing: asyncio.Future[None] | None = None
        try:
            relay = engine.idle.pop() if engine.idle else engine.relays.remote()
            await relay.start.remote(str(self._folder), engine.nonce, engine.variables, str(Path.cwd()))
            self._relay = relay
            writing = asyncio.ensure_future(self._hand_down(relay))
            loop = asyncio.get_running_loop()
            while data := await relay.read.remote():
                with suppress(OSError):  # the head has hung up, and waits for the end
                    await loop.sock_sendall(self._theirs, data)
            self._code = await relay.end.remote()
            engine.idle.append(relay)
        except (RayError, asyncio.CancelledError) as error:
            self.problem = said_of(error, began=self._relay is not None)
            if relay is not None:
                ray.kill(relay)
        finally:
            if writing is not None:
                writing.cancel()
                await asyncio.gather(writing, return_exceptions=True)  # before another socket has its number
            self._theirs.close()
            self._over.set()

    async def _hand_down(self, relay: Any) -> None:
        """Hand on the head's messages, until it hangs up."""
        from ray.exceptions import RayError

        loop = asyncio.get_running_loop()
        with suppress(OSError, RayError):
            while data := await loop.sock_recv(self._theirs, PIECE):
                await relay.write.remote(data)
            await relay.end.remote()


class RayEngine(Engine):
    """Start workers on the nodes of the cluster at an address, with `variables` in their environment.

    Raises StateError if the cluster cannot be joined, ModuleNotFoundError without Ray.
    """

    leases = True
    initial_state = "waiting for a node"

    def __init__(self, address: str, out: Path, variables: Mapping[str, str]) -> None:
        import ray

        if sum(len(name) + len(value) for name, value in variables.items()) > MOST_VARIABLES:
            raise StateError(f"The settings are more than {MOST_VARIABLES:,} bytes, too large for a worker.")
        self.variables = dict(variables)
        self.idle: list[Any] = []
        self.nonce, self._is_marked = secrets.token_hex(16), False
        self._joined = not ray.is_initialized()
        if self._joined:
            join(address)
        self._nonce_file = out / NONCE
        self.relays = ray.remote(num_cpus=CPUS, scheduling_strategy="SPREAD")(Relay)
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="relays", daemon=True)
        self._thread.start()

    def start(self, folder: Path) -> RayProcess:
        """See Engine."""
        if not self._is_marked:
            self._nonce_file.write_text(self.nonce)
            self._is_marked = True
        return RayProcess(self, folder.absolute())

    def close(self) -> None:
        """Leave the cluster. Relays end with that."""
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()
        if self._joined:
            import ray

            ray.shutdown()


def join(address: str) -> None:
    """Join a cluster. Raises StateError with the reason in a line if that fails."""
    import ray
    from ray._private import worker as ray_worker
    from ray.exceptions import RayError

    # Ray prints on standard output how its processes end, whatever it is told. Here that is for the table and JSON.
    if hasattr(ray_worker, "print_to_stdstream"):
        ray_worker.print_to_stdstream = lambda *told, **how: None
    try:
        if address == "auto" and not os.environ.get("RAY_ADDRESS"):
            address = own_cluster()
        place = urlsplit(address if "://" in address else f"//{address}")
        if place.hostname and place.port:  # Ray itself tries for minutes
            socket.create_connection((place.hostname, place.port), REACH).close()
        with chdir("/"):  # Ray's workers look for modules where the driver starts, which may be a stranger's folder
            ray.init(address, log_to_driver=False, logging_level=logging.ERROR)
    except OSError as error:  # ConnectionError too
        why = shorten(" ".join(str(error).split()), 300)
        start = "start one with `ray start --head`, or name another with --address"
        raise StateError(f"No Ray cluster answers at {address!r} ({why}); {start}.") from error
    except ImportError as error:  # of Ray's client
        raise StateError(f'{address}: needs more of Ray ({error}); pip install "ray[client]".') from error
    except (RuntimeError, ValueError, RayError) as error:
        why = shorten(" ".join(str(error).split()), 500)
        raise StateError(f"The Ray cluster at {address!r} cannot be joined: {why}") from error


def own_cluster() -> str:
    """Return the address of a cluster that this user or root runs on this machine. Raises ConnectionError if none.

    Ray itself takes any user's, by a file that everyone may write or by any process. The cluster gets the keys.
    """
    for place in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            name, *flags = (place / "cmdline").read_bytes().split(b"\0")
            found = [flag for flag in flags if flag.startswith(b"--gcs-address=")]
            if found and name.endswith(b"/raylet") and place.stat().st_uid in (0, os.geteuid()):
                return os.fsdecode(found[0].partition(b"=")[2])
    raise ConnectionError("neither you nor root runs one on this machine")


def said_of(error: BaseException, *, began: bool) -> str:
    """Return why a relay failed, before or after its worker `began`."""
    if isinstance(error, asyncio.CancelledError):
        return "The worker's node does not answer." if began else "The fleet was stopped before a node was free."
    if "No module named 'autoagent" in str(error):
        return f"A node of the cluster lacks this version; install autoagent {__version__} on all of them."
    if isinstance(cause := getattr(error, "cause", None), StateError):
        return str(cause)
    return f"The worker's node or its relay is gone ({type(error).__name__})."
