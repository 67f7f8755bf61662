"""Start one program, read its output, watch its limits, and end it. A boundary confines it."""

from __future__ import annotations

import os
import re
import resource
import select
import signal
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Protocol

from autoagent.core.errors import CommandError
from autoagent.core.frozen import dataclass
from autoagent.core.services import ProcessExit
from autoagent.sandbox.supervisor import PARENT, stat_fields, tree_of

_FIRST_POLL_SECONDS = 0.02  # until the limits are first checked
_POLL_SECONDS = 0.05  # between two checks
_TICK_SECONDS = 0.5  # between two calls of `on_tick`
_MAX_POLL_SHARE = 0.05  # the part of the time that may go into checks
_GRACE_SECONDS = 5.0  # for a tree to end before it is killed
MB = 1024 * 1024
_THREADS_PER_PROCESS = 16  # on average
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_CLOCK_TICKS = os.sysconf("SC_CLK_TCK")  # per second of processor time
_TIMES, _THREADS, _PAGES = slice(11, 15), 17, 21  # of the `stat_fields`; times include ended children
_DRAIN_SECONDS = 5.0  # to read the rest of the pipe once the program has ended
_START_SECONDS = 120.0  # until bubblewrap has started the shell; a busy machine is slow to make namespaces
_TIE_POLL_SECONDS = 0.0002
_CREDENTIALS = struct.Struct("iII")  # pid in this process's namespace, uid, gid

# A shell that reads the name of its next standard input from a StartGate, then becomes the command after it.
GATED_SHELL = ("/bin/sh", "-c", 'echo >&0; read -r input || exit; exec <"$input"; exec "$@"', "sh")


@dataclass(frozen=True, slots=True)
class ProcessLimits:
    """The limits of one program and its descendants together, except `file_bytes`, which is per file.

    `seconds` is the run time of a program in the foreground. `cpu_seconds` is processor time, which also counts in the
    background. Of the output, only the first `head_bytes` and the last `tail_bytes` are kept.
    """

    seconds: float = 120.0
    cpu_seconds: float = 3600.0
    memory_bytes: int = 2048 * MB
    processes: int = 256
    file_bytes: int = 1024 * MB
    head_bytes: int = 262_144
    tail_bytes: int = 786_432

    @property
    def threads(self) -> int:
        return _THREADS_PER_PROCESS * self.processes


class StartGate:
    """Hold back a program until its limits are set and it is certain to end with the agent.

    bubblewrap ties its child to the agent only while starting up. If the agent were killed before that, an unwatched
    program would survive. So bubblewrap first starts a shell, which asks for permission and then becomes the program or
    ends.

    Start the command after GATED_SHELL with `stdin` as its standard input. `limits` are resource limits as for
    `resource.setrlimit`, soft and hard alike, inherited by all descendants.
    """

    def __init__(self, limits: Mapping[int, int]) -> None:
        self._limits = limits
        self._socket, self.stdin = socket.socketpair()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)  # to learn the shell's pid
        self._socket.settimeout(_START_SECONDS)

    def release(self, input_path: str) -> None:
        """Release the program with its limits, and with this file as its standard input.

        Raises OSError if the limits cannot be set. In that case the program ends once this object is closed.
        """
        self.stdin.close()  # otherwise the end of the program would go unnoticed
        request, ancillary, *_ = self._socket.recvmsg(1, socket.CMSG_SPACE(_CREDENTIALS.size))
        if not request:  # bubblewrap has failed; its exit status will say so
            return
        pid = _CREDENTIALS.unpack(ancillary[0][2])[0]
        while not _is_tied(pid):
            time.sleep(_TIE_POLL_SECONDS)
        with suppress(ProcessLookupError, BrokenPipeError):  # the program has ended meanwhile
            for resource_id, limit in self._limits.items():
                resource.prlimit(pid, resource_id, (limit, limit))
            self._socket.sendall(f"{input_path}\n".encode())

    def close(self) -> None:
        """End the program if it is still waiting."""
        self._socket.close()
        self.stdin.close()

    def __del__(self) -> None:
        self.close()  # if a signal has kept the caller from it


def _is_tied(pid: int) -> bool:
    """Return whether the parent bubblewrap process now only waits for this process to end.

    Just before that, it ties itself to the agent.
    """
    try:
        parent = int(stat_fields(pid)[PARENT])
        return stat_fields(parent)[0] in (b"S", b"Z", b"X")  # sleeping or ended
    except OSError:  # the process has ended meanwhile
        return True


@dataclass(frozen=True, slots=True)
class Launch:
    """Describe how to start a program within a boundary: the actual command and its environment.

    The program is ended by sending `end_signal` to its process group, and it ends with the thread that started it.
    Either way all its descendants end too, even those in other sessions. It inherits `descriptors`, which are then
    closed here, as is `start_gate`. With `shell_status`, an exit status of 128 + n stands for signal n, as in a shell.
    """

    argv: Sequence[str]
    env: Mapping[str, str]
    descriptors: Sequence[int] = ()
    start_gate: StartGate | None = None
    end_signal: signal.Signals = signal.SIGTERM
    shell_status: bool = False


class Boundary(Protocol):
    """Confine programs. `name`, `confines` and `gaps` are as in protocols.Sandbox, `path` is their search path."""

    name: str
    confines: bool
    path: Sequence[str]

    @property
    def gaps(self) -> tuple[str, ...]: ...

    def launch(
        self, argv: Sequence[str], folder: Path, env: Mapping[str, str], *, network: bool, read_only: bool
    ) -> Launch:
        """Return how to start a program in a workspace folder, with additional environment variables.

        With `read_only`, the program may not change the workspace, if the boundary can enforce that.
        """

    def close(self) -> None:
        """Clean up. Nothing is launched afterwards."""


class OutputBuffer:
    """Collect bytes, keeping the first `head` and the last `tail`. `total` counts them all."""

    def __init__(self, head: int, tail: int) -> None:
        self.total = 0
        self._head_bytes = head
        self._tail_bytes = tail
        self._head = bytearray()
        self._tail = bytearray()  # up to twice its size

    def add(self, piece: bytes) -> None:
        self.total += len(piece)
        room = self._head_bytes - len(self._head)
        self._head += piece[:room]
        self._tail += piece[room:]
        if len(self._tail) > 2 * self._tail_bytes:  # only now and then, as each cut moves the tail
            del self._tail[: -self._tail_bytes]

    def to_bytes(self) -> bytes:
        """Return head and tail, with a note between them on the number of omitted bytes."""
        tail = bytes(self._tail[-self._tail_bytes :])
        left_out = self.total - len(self._head) - len(tail)
        mark = f"\n[... {left_out:,} of {self.total:,} bytes left out ...]\n".encode() if left_out else b""
        return bytes(self._head) + mark + tail


class Process:
    """Run a program. The creating thread must also wait for it, as the program ends with that thread.

    Output goes to the descriptor `output`, or else is kept for the ProcessExit and passed to `on_output` as it arrives.
    `seconds` is the time limit, None for none. `on_tick` is called now and then while the program runs. Raises
    CommandError if the program cannot be started.

    Memory counts mappings, but not unmapped files in memory or pipe buffers. A limit can be exceeded briefly between
    two checks.
    """

    def __init__(
        self,
        launch: Launch,
        limits: ProcessLimits,
        *,
        seconds: float | None = None,
        output: int | None = None,
        data: bytes | None = None,
        on_output: Callable[[bytes], None] = lambda data: None,
        on_tick: Callable[[], None] = lambda: None,
    ) -> None:
        self._launch = launch
        self._limits = limits
        self._on_output = on_output
        self._on_tick = on_tick
        self._deadline = time.monotonic() + seconds if seconds is not None else None
        self._seconds = seconds or 0.0
        self._buffer = OutputBuffer(limits.head_bytes, limits.tail_bytes)
        self._pipe: int | None = None
        if output is not None:
            self._process, self._pidfd = _spawn(launch, output, data)
        else:
            self._pipe, write_end = os.pipe()
            try:
                self._process, self._pidfd = _spawn(launch, write_end, data)
            except BaseException:  # Ctrl-C too
                os.close(self._pipe)
                raise
            finally:
                os.close(write_end)
        self.pid = self._process.pid  # the root process of the tree
        self._lock = threading.Lock()  # so that no signal goes to another process with the same pid

    def wait(self) -> ProcessExit:
        """Wait for the process tree to end, or end it at a limit."""
        limit = ""
        try:
            limit = self._watch()
        finally:
            self._ensure_ended()
            if self._pipe is not None:
                poll = select.poll()
                deadline = time.monotonic() + _DRAIN_SECONDS
                poll.register(self._pipe, select.POLLIN)
                while (left := deadline - time.monotonic()) > 0 and poll.poll(1000 * left) and self._read(self._pipe):
                    pass
                os.close(self._pipe)
            os.close(self._pidfd)
        output, total = self._buffer.to_bytes(), self._buffer.total
        if limit:
            return ProcessExit(output, total, limit=limit)
        status = self._process.returncode
        number = -status if status < 0 else status - 128
        if number == signal.SIGXFSZ:  # from the program itself, or from one run by a shell
            return ProcessExit(output, total, limit=f"{self._limits.file_bytes / MB:,g} MB in one file")
        if number > 0 and (status < 0 or self._launch.shell_status) and number in signal.valid_signals():
            has_name = number in set(signal.Signals)  # real-time signals have none
            return ProcessExit(output, total, signal=signal.Signals(number).name if has_name else f"signal {number}")
        return ProcessExit(output, total, status=status)

    def end(self) -> None:
        """End the program. Any thread may call this."""
        with self._lock:
            if self._process.returncode is None:  # otherwise the pid may belong to another process by now
                os.killpg(self.pid, self._launch.end_signal)

    def _watch(self) -> str:
        """Read output until the program ends. Return '', or the name of an exceeded limit."""
        poll = select.poll()
        poll.register(self._pidfd, select.POLLIN)
        if self._pipe is not None:
            poll.register(self._pipe, select.POLLIN)
        next_poll = time.monotonic() + _FIRST_POLL_SECONDS
        next_tick = time.monotonic() + _TICK_SECONDS
        is_oom_adjusted = False
        while True:
            until = next_poll if self._deadline is None else min(next_poll, self._deadline)
            ready = [descriptor for descriptor, _ in poll.poll(max(0.0, 1000 * (until - time.monotonic())))]
            if self._pidfd in ready:
                return ""
            if self._pipe is not None and ready and not self._read(self._pipe):
                poll.unregister(self._pipe)
            now = time.monotonic()
            if self._deadline is not None and now >= self._deadline:
                return f"{self._seconds:,g} s"
            if now >= next_poll:
                tree = tree_of(self.pid)
                if limit := self._exceeded_limit(tree):
                    return limit
                if not is_oom_adjusted:
                    is_oom_adjusted = True
                    for pid in tree:  # if memory runs out, the kernel kills these before the agent
                        with suppress(OSError):  # ended meanwhile, or not ours to change
                            Path(f"/proc/{pid}/oom_score_adj").write_text("1000")
                next_poll = _next_poll(now, _POLL_SECONDS)
            if (now := time.monotonic()) >= next_tick:
                self._on_tick()
                next_tick = _next_poll(now, _TICK_SECONDS)

    def _exceeded_limit(self, tree: Mapping[int, Sequence[bytes]]) -> str:
        limits = self._limits
        if len(tree) > limits.processes:
            return f"{limits.processes:,} processes"
        if sum(int(fields[_THREADS]) for fields in tree.values()) > limits.threads:
            return f"{limits.threads:,} threads"
        if sum(int(time) for fields in tree.values() for time in fields[_TIMES]) > limits.cpu_seconds * _CLOCK_TICKS:
            return f"{limits.cpu_seconds:,g} s of processor time"
        # A shared page counts for each process here.
        memory = sum(int(fields[_PAGES]) for fields in tree.values()) * _PAGE_BYTES
        if memory > limits.memory_bytes and _proportional_memory(tree) > limits.memory_bytes:
            return f"{limits.memory_bytes / MB:,g} MB of memory"
        return ""

    def _read(self, pipe: int) -> bool:
        """Return False at the end of the pipe."""
        piece = os.read(pipe, 65536)
        self._buffer.add(piece)
        self._on_output(piece)
        return bool(piece)

    def _ensure_ended(self) -> None:
        if not select.select([self._pidfd], [], [], 0)[0]:
            self.end()
            if not select.select([self._pidfd], [], [], _GRACE_SECONDS)[0]:
                for pid in tree_of(self.pid):
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
        with self._lock:
            self._process.wait()


def _next_poll(start: float, pause: float) -> float:
    """Return when to poll next, given the start of this poll, so that polls take at most their share of the time."""
    now = time.monotonic()
    return now + max(pause, (now - start) / _MAX_POLL_SHARE)


def _spawn(launch: Launch, output: int, data: bytes | None) -> tuple[subprocess.Popen[bytes], int]:
    """Start the program. Return it with a pidfd of its process. Raises CommandError."""
    start_gate = launch.start_gate
    with ExitStack() as stack:
        for descriptor in launch.descriptors:
            stack.callback(os.close, descriptor)
        if start_gate:
            stack.callback(start_gate.close)
        try:
            input_fd = os.memfd_create("data") if data else os.open(os.devnull, os.O_RDONLY)
            stack.callback(os.close, input_fd)
            if data:  # kept off the disk
                with os.fdopen(input_fd, "wb", closefd=False) as file:
                    file.write(data)
                os.lseek(input_fd, 0, os.SEEK_SET)
            process = subprocess.Popen(  # noqa: S603 - an agent runs what it is told to; that is what the boundary is for
                launch.argv,
                stdin=start_gate.stdin.fileno() if start_gate else input_fd,
                stdout=output,
                stderr=output,
                env=launch.env,
                cwd="/",
                pass_fds=[*launch.descriptors, *([input_fd] if start_gate and data else ())],
                start_new_session=True,  # without a terminal
            )
            try:
                if start_gate:
                    start_gate.release(f"/proc/self/fd/{input_fd}" if data else os.devnull)
                return process, os.pidfd_open(process.pid)
            except BaseException:  # Ctrl-C too: the program must not run without its limits, or unwatched
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                raise
        except (OSError, ValueError) as error:  # ValueError: a null byte in an argument
            reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
            raise CommandError(f"The program cannot be started: {reason}.") from error


def _proportional_memory(pids: Iterable[int]) -> int:
    """Return the memory of these processes in bytes, slowly. A page shared by n of them counts 1/n for each."""
    total = 0
    for pid in pids:
        with suppress(OSError):
            match = re.search(rb"^Pss:\s+(\d+) kB", Path(f"/proc/{pid}/smaps_rollup").read_bytes(), re.MULTILINE)
            total += 1024 * int(match[1]) if match else 0
    return total
