"""The program as a process of its own, without the second of work that an interpreter takes to load what it imports.

A stem has loaded it all and has run it once. For each run it forks, and the fork becomes the program as `python -m
autoagent` would: with its own folder, environment, input and output, through the same `__main__`, to its own exit.

Not shown by such a process: what goes wrong while modules load, or at the first use of them, and what depends on the
order in which they do.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import fcntl
import functools
import gc
import importlib
import inspect
import io
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import termios
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from pexpect.fdpexpect import fdspawn

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
    """Whether a fork of the stem can have this environment. Its PYTHONPATH may go on behind ours."""
    given = {name: text for name, text in environment.items() if name.startswith(_READ_AT_THE_START)}
    given["PYTHONPATH"], *_ = given.get("PYTHONPATH", "").split(os.pathsep)
    return given == LOADED_WITH


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
    assert len(stdin) < _ORDER
    stem = _take_stem()
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        reads, writes = os.pipe()
        os.write(writes, stdin.encode())
        os.close(writes)
        streams = [reads, stdout.fileno() if stdout else out.fileno(), err.fileno()]
        with stem.traced(tracer) if tracer else contextlib.nullcontext():
            running = Running(stem, _ordered(arguments, folder, environment), streams)
            code = running.wait(patience)
        os.close(reads)
        out.seek(0)
        err.seek(0)
        return code, out.read().decode(), err.read().decode()


class Process(subprocess.Popen[str]):
    """The program under way, with pipes."""

    def __init__(
        self, arguments: Sequence[str], folder: Path, environment: Mapping[str, str], stdout: IO[str] | None
    ) -> None:
        self._order = _ordered(arguments, folder, environment)
        out = stdout or subprocess.PIPE
        pipe = subprocess.PIPE
        super().__init__(["autoagent"], stdin=pipe, stdout=out, stderr=pipe, text=True, encoding="utf-8")

    def _execute_child(self, *given: Any) -> None:
        """Have a stem start what Popen would have started itself."""
        named = inspect.signature(subprocess.Popen._execute_child).bind(self, *given).arguments
        ends = [named[name] for name in ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")]
        self._running = Running(_take_stem(), self._order, [ends[0], ends[3], ends[5]])
        self.pid = self._running.pid
        self._child_created = True
        self._close_pipe_fds(*ends)

    def _internal_poll(self, *_: Any, **__: Any) -> int | None:
        with contextlib.suppress(TimeoutError):
            self.returncode = self._running.ended(0.0)
        return self.returncode

    def _wait(self, timeout: float | None) -> int:
        try:
            self.returncode = self._running.ended(timeout)
        except TimeoutError:
            assert timeout is not None
            raise subprocess.TimeoutExpired("autoagent", timeout) from None
        return self.returncode


class Terminal(fdspawn):
    """The program under way in a terminal of its own, as `pexpect.spawn` has it."""

    def __init__(
        self,
        arguments: Sequence[str],
        folder: Path,
        environment: Mapping[str, str],
        size: tuple[int, int],
        patience: float,
    ) -> None:
        master, slave = os.openpty()
        termios.tcsetwinsize(slave, size)
        self._running = Running(_take_stem(), _ordered(arguments, folder, environment, terminal=True), [slave] * 3)
        os.close(slave)
        super().__init__(master, encoding="utf-8", timeout=patience)
        self.pid = self._running.pid
        self.exitstatus: int | None = None
        self.signalstatus: int | None = None

    def isalive(self) -> bool:
        """Whether it still runs."""
        try:
            self.wait(0.0)
        except TimeoutError:
            return True
        return False

    def kill(self, number: int) -> None:
        """Send it a signal."""
        if self.isalive():
            os.kill(self.pid, number)

    def wait(self, timeout: float | None = None) -> None:
        """Wait for its end. Raises TimeoutError."""
        code = self._running.ended(timeout)
        self.exitstatus, self.signalstatus = (code, None) if code >= 0 else (None, -code)

    def hang_up(self) -> None:
        """Close the window, as when a connection is lost."""
        super().close()

    def close(self) -> None:
        """Close the window, and wait until the program has ended."""
        if self.child_fd != -1:
            super().close()
        self.wait()


class Running:
    """A fork of a stem, from its start to its end; then the stem is free for the next one."""

    def __init__(self, stem: Stem, order: bytes, streams: Sequence[int]) -> None:
        self._stem: Stem | None = stem
        self._code = 0
        self.pid = stem.start(order, streams)

    def ended(self, timeout: float | None) -> int:
        """Its exit code, or the negative number of the signal that ended it. Raises TimeoutError."""
        if self._stem is not None:
            self._code = os.waitstatus_to_exitcode(self._stem.ended(timeout))
            _idle.append(self._stem)
            self._stem = None
        return self._code

    def wait(self, patience: float) -> int:
        """As `ended`; what does not end in time is killed, and the test fails."""
        try:
            return self.ended(patience)
        except TimeoutError:
            os.kill(self.pid, signal.SIGKILL)
            self.ended(None)
            raise AssertionError(f"the program did not end within {patience:g} s") from None


def _ordered(
    arguments: Sequence[str], folder: Path, environment: Mapping[str, str], *, terminal: bool = False
) -> bytes:
    order = {"arguments": arguments, "folder": str(folder), "environment": dict(environment), "terminal": terminal}
    packed = json.dumps(order).encode()
    assert len(packed) < _ORDER
    return packed


def _take_stem() -> Stem:
    return _idle.pop() if _idle else Stem()


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
        assert self._channel.recv(_ORDER), "the program cannot be loaded and run once; stderr says why"

    def start(self, order: bytes, streams: Sequence[int]) -> int:
        """Start the program: its pid."""
        socket.send_fds(self._channel, [order], list(streams))
        return int(self._channel.recv(_ORDER))

    def ended(self, timeout: float | None) -> int:
        """The status with which it ends. Raises TimeoutError."""
        if timeout is not None and not select.select([self._channel], [], [], timeout)[0]:
            raise TimeoutError
        return int(self._channel.recv(_ORDER))

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
    """Import what a run imports, and do what it does once: a quarter of the time that a short run would take."""
    for name in ("encodings.idna", "prompt_toolkit.input.vt100", "prompt_toolkit.output.vt100", "requests"):
        importlib.import_module(name)
    for package in (ROOT / "autoagent", *(ROOT / "extensions").glob("autoagent_*")):
        for path in sorted(package.rglob("*.py")):
            name = path.relative_to(package.parent).with_suffix("").as_posix().replace("/", ".")
            if not name.endswith(("__main__", "__init__")):
                with contextlib.suppress(ImportError):  # an extension whose package is not installed here
                    importlib.import_module(name)
    from autoagent.models.openai import endpoint
    from autoagent.terminal import markup
    from autoagent.text.tokens import counter

    endpoint.preload()
    markup.preload()
    _run_once()
    counter("")("warm")
    gc.collect()
    gc.freeze()  # what is shared with the forks stays so


def _run_once() -> None:
    """Run the program here, which compiles, imports and finds out much at first use."""
    from server import ScriptedServer, command

    from autoagent import cli

    steps = command("write_to_file", filename="a.txt", text="a"), command("task_complete", reason="Done.")
    here, outside, said = Path.cwd(), dict(os.environ), io.StringIO()
    with tempfile.TemporaryDirectory() as folder, ScriptedServer(*steps) as server, contextlib.redirect_stdout(said):
        model = {"OPENAI_BASE_URL": server.base_url, "SMART_LLM": "test-model", "EMBEDDING_MODEL": "test-embedder"}
        os.environ.update(model, HOME=folder, AUTOAGENT_WINDOW="32000", MEMORY_DISTIL="off")
        os.chdir(folder)
        code = cli._main(["--ai-goal", "Do the thing", "-c"])
        os.chdir(here)
    assert code == 0, said.getvalue()
    os.environ.clear()
    os.environ.update(outside)


def _forget() -> None:
    """Forget what the program found out: what is installed differs where PYTHONPATH goes on."""
    for module in [module for name, module in sys.modules.items() if name.startswith("autoagent")]:
        for kept in vars(module).values():
            if isinstance(kept, functools._lru_cache_wrapper):
                kept.cache_clear()


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
            if order["terminal"]:
                os.setsid()
                fcntl.ioctl(0, termios.TIOCSCTTY, 0)
                signal.signal(signal.SIGHUP, signal.SIG_DFL)  # a terminal that is closed ends it
                signal.signal(signal.SIGINT, signal.default_int_handler)
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
    tempfile.tempdir = None  # TMPDIR may be another
    sys.path[0] = order["folder"]
    if more := os.environ["PYTHONPATH"].split(os.pathsep)[1:]:
        behind = sys.path.index(str(ROOT)) + 1
        sys.path[behind:behind] = more
        _forget()
    sys.argv[1:] = order["arguments"]
    for number, name in enumerate(("stdin", "stdout", "stderr")):  # as what they are now: a file, a pipe, a terminal
        was = getattr(sys, name)
        by_line = number == 2 or (number == 1 and os.isatty(1))
        now = open(number, "w" if number else "r", 1 if by_line else -1, was.encoding, was.errors, closefd=False)  # noqa: SIM115
        setattr(sys, name, now)
        setattr(sys, f"__{name}__", now)
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
