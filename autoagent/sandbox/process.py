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
from autoagent.sandbox.supervisor import tree_of

_FIRST_POLL_SECONDS, _POLL_SECONDS = 0.02, 0.05  # until the limits are first checked, and between two checks
_BETWEEN_SECONDS = 0.5  # between two calls of `between`
_MAX_POLL_SHARE = 0.05  # of the time, at most, goes into checks
_GRACE_SECONDS = 5.0  # for a tree to end before it is killed
MB = 1024 * 1024
_THREADS_PER_PROCESS = 16  # on average
_PAGE = os.sysconf("SC_PAGE_SIZE")
_TICK = os.sysconf("SC_CLK_TCK")
_TIMES, _THREADS, _PAGES = slice(11, 15), 17, 21  # fields of /proc/PID/stat; times include ended children
_DRAIN_SECONDS = 5.0  # to read the rest of the pipe once the program has ended
_START_SECONDS = 120.0  # until bubblewrap has started the shell; a busy machine is slow to make namespaces
_TIE_POLL_SECONDS = 0.0002
_CREDENTIALS = struct.Struct("iII")  # pid in this process's namespace, uid, gid

# A shell that reads the name of its next standard input from a HeldStart, then becomes the command after it.
HELD_SHELL = ("/bin/sh", "-c", 'echo >&0; read -r input || exit; exec <"$input"; exec "$@"', "sh")


@dataclass(frozen=True, slots=True)
class ProcessLimits:
    """Limit the resources of one program and its descendants together, except `file`, which is per file.

    `seconds` is the run time of a program in the foreground. `cpu` is processor time, which also counts in the
    background. `memory` and `file` are in bytes. The first `head` and the last `tail` bytes of the output are kept.
    """

    seconds: float = 120.0
    cpu: float = 3600.0
    memory: int = 2048 * MB
    processes: int = 256
    file: int = 1024 * MB
    head: int = 262_144
    tail: int = 786_432

    @property
    def threads(self) -> int:
        """Return the limit of threads over all processes."""
        return _THREADS_PER_PROCESS * self.processes


class HeldStart:
    """Hold back a program until its limits are set and it is certain to end with the agent.

    bubblewrap ties its child to the agent only while starting up. If the agent were killed before that, an unwatched
    program would survive. So bubblewrap first starts a shell, which asks for permission and then becomes the program or
    ends.

    Start the command after HELD_SHELL with `stdin` as its standard input. `limits` are resource limits as for
    `resource.setrlimit`, soft and hard alike, inherited by all descendants.
    """

    def __init__(self, limits: Mapping[int, int]) -> None:
        self._limits = limits
        self._ours, self.stdin = socket.socketpair()
        self._ours.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)  # to learn the shell's pid
        self._ours.settimeout(_START_SECONDS)

    def release(self, stdin: str) -> None:
        """Release the program with its limits, and with this file as its standard input.

        Raises OSError if the limits cannot be set. In that case the program ends once this object is closed.
        """
        self.stdin.close()  # otherwise the end of the program would go unnoticed
        asked, about, *_ = self._ours.recvmsg(1, socket.CMSG_SPACE(_CREDENTIALS.size))
        if not asked:  # bubblewrap has failed; its exit status will say so
            return
        pid = _CREDENTIALS.unpack(about[0][2])[0]
        while not _is_tied(pid):
            time.sleep(_TIE_POLL_SECONDS)
        with suppress(ProcessLookupError, BrokenPipeError):  # it has ended meanwhile
            for which, limit in self._limits.items():
                resource.prlimit(pid, which, (limit, limit))
            self._ours.sendall(f"{stdin}\n".encode())

    def close(self) -> None:
        """End the program if it is still waiting."""
        self._ours.close()
        self.stdin.close()

    def __del__(self) -> None:
        self.close()  # if a signal came before the caller could


def _is_tied(pid: int) -> bool:
    """Return whether the parent bubblewrap process now only waits for this process to end.

    Just before that, it ties itself to the agent.
    """
    try:
        _, parent = _state_and_parent(pid)
        return _state_and_parent(parent)[0] in "SZX"  # sleeping or ended
    except OSError:  # it has ended meanwhile
        return True


def _state_and_parent(pid: int) -> tuple[str, int]:
    """Return the process state, a letter of proc(5), and the parent's pid."""
    state, parent = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split(maxsplit=2)[:2]
    return state, int(parent)


@dataclass(frozen=True, slots=True)
class Launch:
    """Describe how to start a program within a boundary: the actual command and its environment.

    The program is ended by sending the signal `ending` to its process group, and it ends with the thread that started
    it. Either way all its descendants end too, even those in other sessions. It inherits `descriptors`, which are then
    closed here, as is `held`. With `shell_status`, an exit status of 128 + n stands for signal n, as in a shell.
    """

    argv: Sequence[str]
    env: Mapping[str, str]
    descriptors: Sequence[int] = ()
    held: HeldStart | None = None
    ending: signal.Signals = signal.SIGTERM
    shell_status: bool = False


class Boundary(Protocol):
    """Confine programs. `name`, `gaps` and `confines` are as in protocols.Sandbox."""

    @property
    def name(self) -> str: ...

    @property
    def gaps(self) -> tuple[str, ...]: ...

    @property
    def confines(self) -> bool: ...

    @property
    def path(self) -> Sequence[str]:
        """Return the search path for programs."""

    def launch(
        self, argv: Sequence[str], folder: Path, env: Mapping[str, str], *, network: bool, read_only: bool
    ) -> Launch:
        """Return how to start a program in a workspace folder, with additional environment variables.

        `read_only`: the program may not change the workspace, if the boundary can enforce that.
        """

    def close(self) -> None:
        """Clean up. Nothing is launched afterwards."""


class OutputBuffer:
    """Collect bytes, keeping the first `head` and the last `tail`. `total` counts them all."""

    def __init__(self, head: int, tail: int) -> None:
        self.total = 0
        self._head, self._tail = head, tail
        self._first, self._last = bytearray(), bytearray()

    def add(self, piece: bytes) -> None:
        """Add the next bytes."""
        self.total += len(piece)
        room = self._head - len(self._first)
        self._first += piece[:room]
        self._last += piece[room:]
        if len(self._last) > 2 * self._tail:  # only now and then, as each cut moves the tail
            del self._last[: -self._tail]

    def to_bytes(self) -> bytes:
        """Return head and tail, with a note between them on the number of omitted bytes."""
        last = bytes(self._last[-self._tail :])
        left_out = self.total - len(self._first) - len(last)
        mark = f"\n[... {left_out:,} of {self.total:,} bytes left out ...]\n".encode() if left_out else b""
        return bytes(self._first) + mark + last


class Process:
    """Run a program. The creating thread must also wait for it, as the program ends with that thread.

    Output goes to the descriptor `output`, or else is kept for the ProcessExit and passed to `on_output` as it arrives.
    `seconds` is the time limit, None for none. `between` is called now and then while the program runs. Raises
    CommandError if it cannot be started.

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
        between: Callable[[], None] = lambda: None,
    ) -> None:
        self._launch = launch
        self._limits = limits
        self._on_output = on_output
        self._between = between
        self._deadline = time.monotonic() + seconds if seconds is not None else None
        self._seconds = seconds or 0.0
        self._kept = OutputBuffer(limits.head, limits.tail)
        self._pipe: int | None = None
        if output is not None:
            self._process, self._pidfd = _spawn(launch, output, data)
        else:
            self._pipe, write = os.pipe()
            try:
                self._process, self._pidfd = _spawn(launch, write, data)
            except BaseException:  # Ctrl-C too
                os.close(self._pipe)
                raise
            finally:
                os.close(write)
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
                poll, end = select.poll(), time.monotonic() + _DRAIN_SECONDS
                poll.register(self._pipe, select.POLLIN)
                while (left := end - time.monotonic()) > 0 and poll.poll(1000 * left) and self._read(self._pipe):
                    pass
                os.close(self._pipe)
            os.close(self._pidfd)
        return self._exit(limit)

    def end(self) -> None:
        """End the program. Any thread may call this."""
        with self._lock:
            if self._process.returncode is None:  # otherwise the pid may belong to another process by now
                os.killpg(self.pid, self._launch.ending)

    def _watch(self) -> str:
        """Read output until the program ends. Return '', or the name of an exceeded limit."""
        poll = select.poll()
        poll.register(self._pidfd, select.POLLIN)
        if self._pipe is not None:
            poll.register(self._pipe, select.POLLIN)
        next_poll, oom_adjusted = time.monotonic() + _FIRST_POLL_SECONDS, False
        between = time.monotonic() + _BETWEEN_SECONDS
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
                if limit := self._limit_reached(tree):
                    return limit
                if not oom_adjusted:
                    oom_adjusted = True
                    for pid in tree:  # if memory runs out, the kernel kills these before the agent
                        with suppress(OSError):  # ended meanwhile, or not ours to change
                            Path(f"/proc/{pid}/oom_score_adj").write_text("1000")
                next_poll = _next_poll(now, _POLL_SECONDS)
            if (now := time.monotonic()) >= between:
                self._between()
                between = _next_poll(now, _BETWEEN_SECONDS)

    def _limit_reached(self, tree: Mapping[int, Sequence[bytes]]) -> str:
        limits = self._limits
        if len(tree) > limits.processes:
            return f"{limits.processes:,} processes"
        if sum(int(fields[_THREADS]) for fields in tree.values()) > limits.threads:
            return f"{limits.threads:,} threads"
        if sum(int(time) for fields in tree.values() for time in fields[_TIMES]) > limits.cpu * _TICK:
            return f"{limits.cpu:,g} s of processor time"
        memory = sum(int(fields[_PAGES]) for fields in tree.values()) * _PAGE  # a shared page counts for each process
        if memory > limits.memory and _proportional_memory(tree) > limits.memory:
            return f"{limits.memory / MB:,g} MB of memory"
        return ""

    def _read(self, pipe: int) -> bool:
        """Return False at the end of the pipe."""
        piece = os.read(pipe, 65536)
        self._kept.add(piece)
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

    def _exit(self, limit: str) -> ProcessExit:
        output, total = self._kept.to_bytes(), self._kept.total
        if limit:
            return ProcessExit(output, total, limit=limit)
        status = self._process.returncode
        number = -status if status < 0 else status - 128
        if number == signal.SIGXFSZ:  # from the program itself, or from one run by a shell
            return ProcessExit(output, total, limit=f"{self._limits.file / MB:,g} MB in one file")
        if number > 0 and (status < 0 or self._launch.shell_status) and number in signal.valid_signals():
            named = number in set(signal.Signals)  # real-time signals have no names
            return ProcessExit(output, total, signal=signal.Signals(number).name if named else f"signal {number}")
        return ProcessExit(output, total, status=status)


def _next_poll(began: float, pause: float) -> float:
    """Return when to poll next, given the start of this poll, so that polls take at most their share of the time."""
    now = time.monotonic()
    return now + max(pause, (now - began) / _MAX_POLL_SHARE)


def _spawn(launch: Launch, output: int, data: bytes | None) -> tuple[subprocess.Popen[bytes], int]:
    """Start the program. Return it with a pidfd of its process. Raises CommandError."""
    held = launch.held
    with ExitStack() as stack:
        for descriptor in launch.descriptors:
            stack.callback(os.close, descriptor)
        if held:
            stack.callback(held.close)
        try:
            given = os.memfd_create("data") if data else os.open(os.devnull, os.O_RDONLY)
            stack.callback(os.close, given)
            if data:  # kept off the disk
                with os.fdopen(given, "wb", closefd=False) as file:
                    file.write(data)
                os.lseek(given, 0, os.SEEK_SET)
            process = subprocess.Popen(  # noqa: S603 - an agent runs what it is told to; that is what the boundary is for
                launch.argv,
                stdin=held.stdin.fileno() if held else given,
                stdout=output,
                stderr=output,
                env=launch.env,
                cwd="/",
                pass_fds=[*launch.descriptors, *([given] if held and data else ())],
                start_new_session=True,  # without a terminal
            )
            try:
                if held:
                    held.release(f"/proc/self/fd/{given}" if data else os.devnull)
                return process, os.pidfd_open(process.pid)
            except BaseException:  # Ctrl-C too: it must not run without its limits, or unwatched
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                raise
        except (OSError, ValueError) as error:  # ValueError: a null byte in an argument
            reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
            raise CommandError(f"The program cannot be started: {reason}.") from error


def _proportional_memory(pids: Iterable[int]) -> int:
    """Return the memory of these processes in bytes. A page shared by n counts 1/n for each. Slow."""
    total = 0
    for pid in pids:
        with suppress(OSError):
            found = re.search(rb"^Pss:\s+(\d+) kB", Path(f"/proc/{pid}/smaps_rollup").read_bytes(), re.MULTILINE)
            total += 1024 * int(found[1]) if found else 0
    return total
