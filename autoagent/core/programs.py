"""Programs that were run, and programs that run in the background."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ProcessExit:
    """The end of a program: both output streams in order, shortened to head and tail of `total` bytes.

    Exactly one field says how it ended: its exit `status`, the `signal` that ended it (`SIGKILL`), or the exceeded
    `limit` (`120 s`, `2,048 MB of memory`). The others are None and ''. `put_back` has a line for each
    guarded file that it changed and that was restored.
    """

    output: bytes
    total: int
    status: int | None = None
    signal: str = ""
    limit: str = ""
    put_back: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class BackgroundProcess:
    """A running program: its pid on the agent's machine, its description, and its output file.

    `output` is a workspace path. `exit` is None while it runs.
    """

    pid: int
    command: str
    output: str
    exit: ProcessExit | None = None
