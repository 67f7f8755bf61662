"""A program that was run: how it ended, and one that runs in the background."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ProcessExit:
    """How a program ended: both its streams in order, head and tail of `total` bytes where there were more.

    One of the three says how: its exit `status`, the `signal` that ended it (`SIGKILL`), or the `limit` of ours that
    did (`120 s`, `2,048 MB of memory`); the others are None and ''.
    """

    output: bytes
    total: int
    status: int | None = None
    signal: str = ""
    limit: str = ""


@dataclass(frozen=True, slots=True)
class BackgroundProcess:
    """A program that runs on: its pid as the agent's machine counts, what it is, and where its output goes.

    `output` is a path in the workspace; `exit` is None while it runs.
    """

    pid: int
    command: str
    output: str
    exit: ProcessExit | None = None
