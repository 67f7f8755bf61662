"""A program that waits within its sandbox until it has its limits, and until the sandbox is sure to end with the agent.

bubblewrap ties itself to the agent step by step while it starts. An agent that is killed meanwhile would leave behind a
program that nobody watches. So what bubblewrap starts is a shell that asks for leave, and becomes the program when it
is answered. Where the agent is gone it ends instead.
"""

from __future__ import annotations

import resource
import socket
import struct
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

_START_SECONDS = 120.0  # until bubblewrap has begun the shell; a very busy machine takes long for namespaces
_LOOK_EVERY = 0.0002  # seconds
_CREDENTIALS = struct.Struct("iII")  # pid as this process knows it, uid, gid

# On its standard input it asks, and is told which file to have as standard input from then on.
_SHELL = ("/bin/sh", "-c", 'echo >&0; read -r input || exit; exec <"$input"; exec "$@"', "sh")


class HeldStart:
    """A program that begins when it is released.

    It must be started by the command that `command` gives, with `stdin` as its standard input. `limits` are those of
    `resource.setrlimit`, soft and hard in one, for the program and all that comes from it.
    """

    def __init__(self, limits: Mapping[int, int]) -> None:
        self._limits = limits
        self._ours, self.stdin = socket.socketpair()
        self._ours.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)  # to learn who asks
        self._ours.settimeout(_START_SECONDS)

    def command(self, argv: Sequence[str]) -> Sequence[str]:
        """Return the command that waits, and then becomes this one."""
        return (*_SHELL, *argv)

    def release(self, stdin: str) -> None:
        """Let it begin, with its limits and with this file as its standard input.

        Raises OSError if it cannot have its limits. It ends when this is closed.
        """
        self.stdin.close()  # or its end would not be seen
        asked, about, *_ = self._ours.recvmsg(1, socket.CMSG_SPACE(_CREDENTIALS.size))
        if not asked:  # bubblewrap has failed; its end will say so
            return
        pid = _CREDENTIALS.unpack(about[0][2])[0]
        while not _is_tied(pid):
            time.sleep(_LOOK_EVERY)
        with suppress(ProcessLookupError, BrokenPipeError):  # it was ended meanwhile
            for which, limit in self._limits.items():
                resource.prlimit(pid, which, (limit, limit))
            self._ours.sendall(f"{stdin}\n".encode())

    def close(self) -> None:
        """End the program that still waits."""
        self._ours.close()
        self.stdin.close()

    def __del__(self) -> None:
        self.close()  # where a signal came before anybody could


def _is_tied(pid: int) -> bool:
    """Return whether the process of bubblewrap that started this one has only to wait for its end.

    Its last step before that is to tie itself to the agent.
    """
    try:
        _, parent = _state_and_parent(pid)
        return _state_and_parent(parent)[0] in "SZX"  # it sleeps, or has ended
    except OSError:  # it was ended meanwhile
        return True


def _state_and_parent(pid: int) -> tuple[str, int]:
    """Return proc(5)'s letter for the state of a process, and the pid of its parent."""
    state, parent = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split(maxsplit=2)[:2]
    return state, int(parent)
