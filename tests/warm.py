"""The program as a process of its own, without the second of work that an interpreter takes to load what it imports.

A stem has loaded it all and runs nothing of it. For each run it forks, and the fork becomes the program as `python -m
autoagent` would: with its own folder, environment, input and output, through the same `__main__`, to its own exit.

Not shown by such a process: what goes wrong while modules load, and what depends on the order in which they do.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import gc
import importlib
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

ROOT = Path(__file__).parent.parent
LOADED_WITH = {  # variables read at the start
    "LANG": "C.UTF-8",
    "PYTHONHASHSEED": "0",
    "PYTHONPATH": str(ROOT),
    "PYTHONWARNINGS": "error",
}
_READ_AT_THE_START = ("PYTHON", "LANG", "LC_", "LD_")
_OUTLIVED = 60.0  # seconds that what a killed program had started may take to end
_ORDER = 1 << 16  # bytes of an order, and of what is typed, at most


def fits(environment: Mapping[str, str]) -> bool:
    """Whether a fork of the stem can have this environment."""
    return {name: text for name, text in environment.items() if name.startswith(_READ_AT_THE_START)} == LOADED_WITH


def run(
    arguments: Sequence[str],
    folder: Path,
    environment: Mapping[str, str],
    stdin: str,
    stdout: IO[str] | None,
    patience: float,
    *,
    tracer: Sequence[str] = (),
) -> tuple[int, str, str]:
    """Run the program to its end: the exit code, or the negative number of the signal that ended it; what it wrote.

    `tracer` is a command (strace with its options) that follows the program and all that it starts. From any thread.
    """
    order = json.dumps({"arguments": arguments, "folder": str(folder), "environment": dict(environment)}).encode()
    assert len(order) < _ORDER and len(stdin) < _ORDER
    stem = _idle.pop() if _idle else Stem()
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        reads, writes = os.pipe()
        os.write(writes, stdin.encode())
        os.close(writes)
        with stem.traced(tracer) if tracer else contextlib.nullcontext():
            status = stem.run(order, [reads, stdout.fileno() if stdout else out.fileno(), err.fileno()], patience)
        os.close(reads)
        out.seek(0)
        err.seek(0)
        _idle.append(stem)
        return os.waitstatus_to_exitcode(status), out.read().decode(), err.read().decode()


class Stem:
    """A process that has the program loaded, and runs one fork at a time. It ends with the test process."""

    def __init__(self) -> None:
        self._channel, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with its:
            self._process = subprocess.Popen(
                [sys.executable, __file__, str(its.fileno())],
                env={**LOADED_WITH, "PATH": os.environ["PATH"], "OPENBLAS_NUM_THREADS": "1"},  # a fork has no threads
                stdin=subprocess.PIPE,  # through these pipes goes nothing; they keep it off our terminal
                stdout=subprocess.PIPE,
                pass_fds=[its.fileno()],
            )
        atexit.register(self._end)
        self._channel.recv(_ORDER)  # it has loaded all

    def run(self, order: bytes, streams: Sequence[int], patience: float) -> int:
        """The status with which the program ends that this starts."""
        socket.send_fds(self._channel, [order], list(streams))
        pid = int(self._channel.recv(_ORDER))
        self._channel.settimeout(patience)
        try:
            return int(self._channel.recv(_ORDER))
        except TimeoutError:
            os.kill(pid, signal.SIGKILL)
            self._channel.settimeout(None)
            self._channel.recv(_ORDER)
            raise AssertionError(f"the program did not end within {patience:g} s") from None
        finally:
            self._channel.settimeout(None)

    @contextlib.contextmanager
    def traced(self, tracer: Sequence[str]) -> Iterator[None]:
        """While entered, what is run is followed by this command."""
        pid = self._process.pid
        with subprocess.Popen([*tracer, "-p", str(pid)]) as process:
            try:
                while "TracerPid:\t0\n" in Path(f"/proc/{pid}/status").read_text():
                    assert process.poll() is None, "the tracer may not trace"
                    time.sleep(0.002)
                yield
                end = time.monotonic() + _OUTLIVED
                while len(left := _followed_by(process.pid)) > 1:  # or it would hang on letting go of what just ends
                    assert time.monotonic() < end, f"the program has ended, and of {left} only the stem should be left"
                    time.sleep(0.005)
            finally:
                process.terminate()  # it lets go of the stem

    def _end(self) -> None:
        self._channel.close()
        self._process.communicate()


_idle: list[Stem] = []


def _followed_by(tracer: int) -> list[str]:
    """The processes that it traces."""
    found = []
    for place in Path("/proc").glob("[0-9]*/status"):
        with contextlib.suppress(OSError):  # it has ended
            if f"TracerPid:\t{tracer}\n" in place.read_text():
                found.append(place.parent.name)
    return found


# In the stem -----------------------------------------------------------------------------------------------------


def _load() -> None:
    """Import what a run imports, and do what it does once."""
    package = ROOT / "autoagent"
    for path in sorted(package.rglob("*.py")):
        name = path.relative_to(ROOT).with_suffix("").as_posix().replace("/", ".")
        if not name.endswith(("__main__", "__init__")):
            importlib.import_module(name)
    from autoagent.models.openai import endpoint
    from autoagent.text.tokens import counter

    endpoint.preload()
    counter("")("warm")
    gc.collect()
    gc.freeze()  # what is shared with the forks stays so


def _order(channel: socket.socket) -> dict[str, Any]:
    """In the stem this never returns; in each fork it returns what that is to run."""
    channel.send(b"ready")
    while True:
        message, streams, _, _ = socket.recv_fds(channel, _ORDER, 3)
        if not message:
            os._exit(0)  # the tests have ended
        child = os.fork()
        if child == 0:
            for number, stream in enumerate(streams):
                os.dup2(stream, number)
                os.close(stream)
            channel.close()
            order: dict[str, Any] = json.loads(message)
            return order
        for stream in streams:
            os.close(stream)
        channel.send(str(child).encode())
        channel.send(str(os.waitpid(child, 0)[1]).encode())


def _become(order: Mapping[str, Any]) -> None:
    """What `python -m autoagent` does once it has begun."""
    os.chdir(order["folder"])
    os.environ.clear()
    os.environ.update(order["environment"])
    time.tzset()
    sys.path[0] = order["folder"]
    sys.argv[1:] = order["arguments"]
    try:
        runpy.run_module("autoagent", run_name="__main__", alter_sys=True)
    except SystemExit as end:
        if isinstance(end.code, int):
            _leave(end.code)
        raise


def _leave(code: int) -> None:
    """End as an interpreter does, but for taking all that was loaded to pieces, which takes longer than a run."""
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


_SET_TRACER, _ANYBODY = 0x59616D61, -1  # prctl(2): a tracer need not have started us

if __name__ == "__main__":
    ctypes.CDLL(None).prctl(_SET_TRACER, _ANYBODY, 0, 0, 0)
    _load()
    _become(_order(socket.socket(fileno=int(sys.argv[1]))))
