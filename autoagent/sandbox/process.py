"""Start, read, watch and end one program. A boundary provides its surroundings."""

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
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from autoagent.core.errors import CommandError
from autoagent.core.services import ProcessExit
from autoagent.sandbox.supervisor import tree_of

_FIRST_POLL_SECONDS, _POLL_SECONDS = 0.02, 0.05  # seconds until the limits are looked at, and between two looks
_BETWEEN_SECONDS = 0.5  # seconds between two calls of `between`
_MAX_POLL_SHARE = 0.05  # of the time at most goes into looking
_END_SECONDS = 5.0  # seconds that ending a tree may take by itself
MB = 1024 * 1024
_THREADS_EACH = 16  # of a process, in the mean
_PAGE = os.sysconf("SC_PAGE_SIZE")
_TICK = os.sysconf("SC_CLK_TCK")
_TIMES, _THREADS, _PAGES = slice(11, 15), 17, 21  # of the fields of /proc/PID/stat; times also of ended children
_LAST_WORDS = 5.0  # seconds that what is left in the pipe may take once the program has ended
_START_SECONDS = 120.0  # until bubblewrap has begun the shell; a very busy machine takes long for namespaces
_TIED_EVERY = 0.0002  # seconds
_CREDENTIALS = struct.Struct("iII")  # pid as this process knows it, uid, gid

# Becomes the command after it, once a HeldStart at its standard input has told which file is to take that place.
HELD_SHELL = ("/bin/sh", "-c", 'echo >&0; read -r input || exit; exec <"$input"; exec "$@"', "sh")


@dataclass(frozen=True, slots=True)
class ProcessLimits:
    """Limit the resources of one program and its descendants together, but `file` for each file.

    `seconds` is the run time of a program in the foreground. `cpu` is processor time, which counts in the background
    too. `memory` and `file` are bytes. Of the output, the first `head` and the last `tail` bytes are kept.
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
        """Return the limit of threads for all processes together."""
        return _THREADS_EACH * self.processes


class HeldStart:
    """Hold back a program until it has its limits and is sure to end with the agent.

    bubblewrap ties itself to the agent while it starts, and an agent killed meanwhile would leave behind a program that
    nobody watches. So it starts a shell that asks for leave, and becomes the program or ends.

    The command after HELD_SHELL is started with `stdin` as its standard input. `limits` are those of
    `resource.setrlimit`, soft and hard in one, for the program and all that comes from it.
    """

    def __init__(self, limits: Mapping[int, int]) -> None:
        self._limits = limits
        self._ours, self.stdin = socket.socketpair()
        self._ours.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)  # to learn who asks
        self._ours.settimeout(_START_SECONDS)

    def release(self, stdin: str) -> None:
        """Release the program with its limits, and with this file as its standard input.

        Raises OSError if the limits cannot be set. The program ends when this is closed.
        """
        self.stdin.close()  # or its end would not be seen
        asked, about, *_ = self._ours.recvmsg(1, socket.CMSG_SPACE(_CREDENTIALS.size))
        if not asked:  # bubblewrap has failed; its end will say so
            return
        pid = _CREDENTIALS.unpack(about[0][2])[0]
        while not _is_tied(pid):
            time.sleep(_TIED_EVERY)
        with suppress(ProcessLookupError, BrokenPipeError):  # it was ended meanwhile
            for which, limit in self._limits.items():
                resource.prlimit(pid, which, (limit, limit))
            self._ours.sendall(f"{stdin}\n".encode())

    def close(self) -> None:
        """End the program if it still waits."""
        self._ours.close()
        self.stdin.close()

    def __del__(self) -> None:
        self.close()  # where a signal came before anybody could


def _is_tied(pid: int) -> bool:
    """Return whether the parent bubblewrap process now only waits for the end of this process.

    Its last step before that is to tie itself to the agent.
    """
    try:
        _, parent = _state_and_parent(pid)
        return _state_and_parent(parent)[0] in "SZX"  # it sleeps, or has ended
    except OSError:  # it was ended meanwhile
        return True


def _state_and_parent(pid: int) -> tuple[str, int]:
    """Return the state, as a letter of proc(5), and the pid of the parent."""
    state, parent = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split(maxsplit=2)[:2]
    return state, int(parent)


@dataclass(frozen=True, slots=True)
class Launch:
    """Describe the start of a program within a boundary: the actual command, and its environment.

    It is ended by the signal `ending` to its process group, and ends with the thread that started it. Either way it
    takes all its descendants with it, also those in sessions of their own. `descriptors` are handed to it and then
    closed here, as is what it is `held` by. With `folded`, a status of 128 + n stands for signal n, as with a shell.
    """

    argv: Sequence[str]
    env: Mapping[str, str]
    descriptors: Sequence[int] = ()
    held: HeldStart | None = None
    ending: signal.Signals = signal.SIGTERM
    folded: bool = False


class Boundary(Protocol):
    """Put a sandbox around a program. `name`, `gaps` and `confines` as in protocols.Sandbox."""

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
        """Return how to start a program in a folder of the workspace, with these variables besides the usual ones.

        `read_only`: it may not change the workspace, if the boundary confines it.
        """

    def close(self) -> None:
        """Leave nothing behind. Nothing is launched afterwards."""


class OutputBuffer:
    """Collect bytes, keeping the first `head` and the last `tail` of them. `total` counts all."""

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
        if len(self._last) > 2 * self._tail:  # now and then: to cut each time would move the tail each time
            del self._last[: -self._tail]

    def kept(self) -> bytes:
        """Return head and tail, with a line between them for the number of omitted bytes."""
        last = bytes(self._last[-self._tail :])
        left_out = self.total - len(self._first) - len(last)
        mark = f"\n[... {left_out:,} of {self.total:,} bytes left out ...]\n".encode() if left_out else b""
        return bytes(self._first) + mark + last


class Process:
    """Run a program. The creating thread also waits for it: the program ends with its thread.

    Its output goes to the descriptor `output`, or is kept for its Exit and handed to `printed` as it comes. `seconds`
    bounds the time, None does not. `between` is called now and then while it runs.
    Raises CommandError if it cannot be started.

    Memory counts mappings, but not unmapped files in memory or buffers of pipes. Between two looks at the
    limits they can be exceeded for a moment.
    """

    def __init__(
        self,
        launch: Launch,
        limits: ProcessLimits,
        *,
        seconds: float | None = None,
        output: int | None = None,
        data: bytes | None = None,
        printed: Callable[[bytes], None] = lambda data: None,
        between: Callable[[], None] = lambda: None,
    ) -> None:
        self._launch, self._limits, self._printed, self._between = launch, limits, printed, between
        self._deadline = time.monotonic() + seconds if seconds is not None else None
        self._seconds = seconds or 0.0
        self._kept = OutputBuffer(limits.head, limits.tail)
        self._pipe: int | None = None
        if output is not None:
            self._process = _spawn(launch, output, data)
        else:
            self._pipe, write = os.pipe()
            try:
                self._process = _spawn(launch, write, data)
            except BaseException:  # Ctrl-C too
                os.close(self._pipe)
                raise
            finally:
                os.close(write)
        self.pid = self._process.pid  # the root process of the tree
        self._ended = os.pidfd_open(self.pid)
        self._lock = threading.Lock()  # around what must not meet another process with the same number

    def wait(self) -> ProcessExit:
        """Wait for the end of the tree, or end it at a limit."""
        limit = ""
        try:
            limit = self._watch()
        finally:
            self._end()
            if self._pipe is not None:
                poll, end = select.poll(), time.monotonic() + _LAST_WORDS
                poll.register(self._pipe, select.POLLIN)
                while (left := end - time.monotonic()) > 0 and poll.poll(1000 * left) and self._read(self._pipe):
                    pass
                os.close(self._pipe)
            os.close(self._ended)
        return self._exit(limit)

    def end(self) -> None:
        """End the program. Any thread may call this."""
        with self._lock:
            if self._process.returncode is None:  # or the pid may be another's by now
                os.killpg(self.pid, self._launch.ending)

    def _watch(self) -> str:
        """Read until the program ends, and return '', or the name of an exceeded limit."""
        poll = select.poll()
        poll.register(self._ended, select.POLLIN)
        if self._pipe is not None:
            poll.register(self._pipe, select.POLLIN)
        next_poll, offered = time.monotonic() + _FIRST_POLL_SECONDS, False
        between = time.monotonic() + _BETWEEN_SECONDS
        while True:
            until = next_poll if self._deadline is None else min(next_poll, self._deadline)
            ready = [descriptor for descriptor, _ in poll.poll(max(0.0, 1000 * (until - time.monotonic())))]
            if self._ended in ready:
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
                if not offered:
                    offered = True
                    for pid in tree:  # they, not the agent, are to go first if the machine's memory runs out
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
        if memory > limits.memory and _shared_memory(tree) > limits.memory:
            return f"{limits.memory / MB:,g} MB of memory"
        return ""

    def _read(self, pipe: int) -> bool:
        """Return False at the end of the pipe."""
        piece = os.read(pipe, 65536)
        self._kept.add(piece)
        self._printed(piece)
        return bool(piece)

    def _end(self) -> None:
        if not select.select([self._ended], [], [], 0)[0]:
            self.end()
            if not select.select([self._ended], [], [], _END_SECONDS)[0]:
                for pid in tree_of(self.pid):
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
        with self._lock:
            self._process.wait()

    def _exit(self, limit: str) -> ProcessExit:
        output, total = self._kept.kept(), self._kept.total
        if limit:
            return ProcessExit(output, total, limit=limit)
        status = self._process.returncode
        number = -status if status < 0 else status - 128
        if number == signal.SIGXFSZ:  # of a program, or of one that a shell has run
            return ProcessExit(output, total, limit=f"{self._limits.file / MB:,g} MB in one file")
        if number > 0 and (status < 0 or self._launch.folded) and number in signal.valid_signals():
            named = number in set(signal.Signals)  # the real-time signals have no names
            return ProcessExit(output, total, signal=signal.Signals(number).name if named else f"signal {number}")
        return ProcessExit(output, total, status=status)


def _next_poll(began: float, pause: float) -> float:
    """Return the time of the next poll, given the start of this one, so that polls take at most their share of time."""
    now = time.monotonic()
    return now + max(pause, (now - began) / _MAX_POLL_SHARE)


def _spawn(launch: Launch, output: int, data: bytes | None) -> subprocess.Popen[bytes]:
    held = launch.held
    given = os.memfd_create("data") if data else os.open(os.devnull, os.O_RDONLY)
    if data:  # which is never on a disk
        with os.fdopen(given, "wb", closefd=False) as file:
            file.write(data)
        os.lseek(given, 0, os.SEEK_SET)
    try:
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
        except BaseException:  # Ctrl-C too: it must not begin without its limits
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise
        return process
    except (OSError, ValueError) as error:  # ValueError: a null byte in an argument
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise CommandError(f"The program cannot be started: {reason}.") from error
    finally:
        for descriptor in (*launch.descriptors, given):
            os.close(descriptor)
        if held:
            held.close()


def _shared_memory(pids: Iterable[int]) -> int:
    """Return the bytes of memory of these processes. A page shared by n counts 1/n for each. Slow."""
    total = 0
    for pid in pids:
        with suppress(OSError):
            found = re.search(rb"^Pss:\s+(\d+) kB", Path(f"/proc/{pid}/smaps_rollup").read_bytes(), re.MULTILINE)
            total += 1024 * int(found[1]) if found else 0
    return total
