"""The resources that a process and its descendants use."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from autoagent.sandbox.tree import tree_of

_PAGE = os.sysconf("SC_PAGE_SIZE")
_TICK = os.sysconf("SC_CLK_TCK")
_TIMES, _THREADS, _PAGES = slice(11, 15), 17, 21  # of the fields of /proc/PID/stat; times also of ended children


@dataclass(frozen=True, slots=True)
class Use:
    """The usage of a whole tree: its processes and how many threads they have, bytes of memory, seconds of CPU.

    `memory` counts a page once for each process that maps it. `cpu` includes that of children that have ended.
    """

    pids: tuple[int, ...]
    threads: int
    memory: int
    cpu: float


def use_of(root: int) -> Use:
    """Return the present usage of the process `root` and its descendants, or nothing if it is gone."""
    tree = tree_of(root)
    return Use(
        tuple(tree),
        sum(int(fields[_THREADS]) for fields in tree.values()),
        sum(int(fields[_PAGES]) for fields in tree.values()) * _PAGE,
        sum(int(time) for fields in tree.values() for time in fields[_TIMES]) / _TICK,
    )


def shared_memory(use: Use) -> int:
    """Return the bytes of memory of these processes. A page shared by n counts 1/n for each. Slow.

    A process whose share cannot be read counts for nothing.
    """
    total = 0
    for pid in use.pids:
        with suppress(OSError):
            found = re.search(rb"^Pss:\s+(\d+) kB", Path(f"/proc/{pid}/smaps_rollup").read_bytes(), re.MULTILINE)
            total += 1024 * int(found[1]) if found else 0
    return total
