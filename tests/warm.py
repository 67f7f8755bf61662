"""The program as a process of its own, without the second of work that an interpreter takes to load what it imports.

A stem has loaded it all and runs nothing of it. For each run it forks, and the fork becomes the program as `python -m
autoagent` would: with its own folder, environment, input and output, through the same `__main__`, to its own exit.

Not shown by such a process: what goes wrong while modules load, and what depends on the order in which they do.
"""

from __future__ import annotations

import atexit
import functools
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
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

ROOT = Path(__file__).parent.parent
LOADED_WITH = {"LANG": "C.UTF-8", "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "error"}  # variables read at the start
_READ_AT_THE_START = ("PYTHON", "LANG", "LC_", "LD_")
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
) -> tuple[int, str, str]:
    """Run the program to its end: the exit code, or the negative number of the signal that ended it; what it wrote."""
    order = json.dumps({"arguments": arguments, "folder": str(folder), "environment": dict(environment)}).encode()
    assert len(order) < _ORDER and len(stdin) < _ORDER
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        reads, writes = os.pipe()
        os.write(writes, stdin.encode())
        os.close(writes)
        socket.send_fds(_stem(), [order], [reads, stdout.fileno() if stdout else out.fileno(), err.fileno()])
        os.close(reads)
        status = _status(patience)
        out.seek(0)
        err.seek(0)
        return os.waitstatus_to_exitcode(status), out.read().decode(), err.read().decode()


def _status(patience: float) -> int:
    """The status with which the program that was just started ends."""
    channel = _stem()
    pid = int(channel.recv(_ORDER))
    channel.settimeout(patience)
    try:
        return int(channel.recv(_ORDER))
    except TimeoutError:
        os.kill(pid, signal.SIGKILL)
        channel.settimeout(None)
        channel.recv(_ORDER)
        raise AssertionError(f"the program did not end within {patience:g} s") from None
    finally:
        channel.settimeout(None)


@functools.cache
def _stem() -> socket.socket:
    """The stem of this test process, which ends with it, as the channel on which it takes orders."""
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with its:
        stem = subprocess.Popen(
            [sys.executable, __file__, str(its.fileno())],
            env={**LOADED_WITH, "PATH": os.environ["PATH"], "OPENBLAS_NUM_THREADS": "1"},  # what forks has no threads
            stdin=subprocess.PIPE,  # pipes, as the streams of a fork are no files either; nothing goes through them
            stdout=subprocess.PIPE,
            pass_fds=[its.fileno()],
        )

    def end() -> None:
        ours.close()
        stem.communicate()

    atexit.register(end)
    return ours


# In the stem -----------------------------------------------------------------------------------------------------


def _load() -> None:
    """Import what a run imports, and do what it does once."""
    package = ROOT / "autoagent"
    for path in sorted(package.rglob("*.py")):
        name = path.relative_to(ROOT).with_suffix("").as_posix().replace("/", ".")
        if not name.endswith(("__main__", "__init__")):
            importlib.import_module(name)
    from autoagent.models import endpoint
    from autoagent.tokens import counter

    endpoint.preload()
    counter("")("warm")
    gc.collect()
    gc.freeze()  # what is shared with the forks stays so


def _order(channel: socket.socket) -> dict[str, Any]:
    """In the stem this never returns; in each fork it returns what that is to run."""
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


if __name__ == "__main__":
    _load()
    _become(_order(socket.socket(fileno=int(sys.argv[1]))))
