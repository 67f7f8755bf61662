"""The limits on a program."""

from __future__ import annotations

from dataclasses import dataclass

MB = 1024 * 1024
_THREADS_EACH = 16  # of a process, in the mean


@dataclass(frozen=True, slots=True)
class ProcessLimits:
    """The resources that one program and its descendants may take
    together. `file` is for each file. Two programs may take them twice.

    `seconds` is the time from start to end of a program that is waited for. `cpu` that of processors, which counts in
    the background too. `memory` and `file` are bytes. Of the output, the first `head` and the last `tail` bytes are
    kept.
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
        """The most threads that the processes may have together."""
        return _THREADS_EACH * self.processes
