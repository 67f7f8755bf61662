"""The durable system calls of a run, and a run that ends, or meets an error, at the n-th of one of them: by strace.

A boundary is the instant before a call on the run's own files, its workspace or its output. strace counts the calls
of each name in each thread by itself, and kills, or injects an error, when a thread enters its n-th. Its count of the
agent's own thread is the one that is met: every other thread and program comes later and calls less often.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

CALLS = (
    *("write", "pwrite64", "writev", "pwritev", "fsync", "fdatasync", "ftruncate", "fallocate", "copy_file_range"),
    *("rename", "renameat", "renameat2", "unlink", "unlinkat", "rmdir", "mkdir", "mkdirat", "symlink", "symlinkat"),
    *("link", "linkat", "fchmod", "chmod", "fchmodat"),
)
STRACE = ("strace", "-f", "-qq")  # not --seccomp-bpf: what it lets pass is not counted, and nothing is injected

_LINE = re.compile(r"(\d+) +(\w+)\((.*)")


@dataclass(frozen=True)
class Boundary:
    """The n-th call (from 1) of this name in the agent's own thread; what it is about, as strace shows it."""

    call: str
    n: int
    about: str = ""

    def __str__(self) -> str:
        return f"{self.call}:{self.n}"


@cache
def missing() -> str:
    """Why nothing can be traced here; '' where it can."""
    if sys.platform != "linux" or shutil.which("strace") is None:
        return "there is no strace"
    done = subprocess.run([*killing(Boundary("write", 1)), "/bin/echo", "x"], capture_output=True, check=False)
    if done.returncode != -9:
        return f"strace may not trace here: {done.stderr.decode(errors='replace').strip()[:200]}"
    return ""


def recording(file: Path) -> tuple[str, ...]:
    """What follows a program and writes its durable calls to a file."""
    return (*STRACE, "-y", "-s", "0", "-e", f"trace={','.join(CALLS)}", "-o", str(file))


def killing(boundary: Boundary) -> tuple[str, ...]:
    """What follows a program and kills it at a boundary."""
    return (*STRACE, "-o", "/dev/null", *injecting(boundary, "signal=KILL"))


def failing(boundary: Boundary, error: str, file: Path) -> tuple[str, ...]:
    """What follows a program and lets the call at a boundary fail with this error (`ENOSPC`); `file` tells of it."""
    return (*STRACE, "-y", "-s", "0", "-o", str(file), *injecting(boundary, f"error={error}"))


def failed_to_speak(record: Path) -> bool:
    """Whether what `failing` let fail was a write to the standard error, of which nobody can be told."""
    return re.search(r"\d+ +write\(2<.*\(INJECTED\)", record.read_text("utf-8", "replace")) is not None


def injecting(boundary: Boundary, what: str) -> tuple[str, ...]:
    """The options of strace by which this happens (`signal=KILL`, `error=EIO`) at a boundary."""
    return "-e", f"trace={boundary.call}", "-e", f"inject={boundary.call}:{what}:when={boundary.n}"


def boundaries(record: Path, folder: Path) -> Iterator[Boundary]:
    """Of a record, the boundaries of the agent's own thread, which makes the most calls.

    Each is on a path under `folder` or on the output.
    """
    calls = [
        line.groups()
        for line in map(_LINE.match, record.read_text(encoding="utf-8", errors="replace").splitlines())
        if line and line[2] in CALLS
    ]
    own = Counter(thread for thread, *_ in calls).most_common(1)[0][0]
    counts: Counter[str] = Counter()
    for thread, call, arguments in calls:
        if thread == own:
            counts[call] += 1
            if _counts(arguments, folder):
                yield Boundary(call, counts[call], arguments.replace(f"{folder}/", ""))


def _counts(arguments: str, folder: Path) -> bool:
    """Whether a call is on what is to last, or on the output. SQLite's index of its log is made anew after a crash."""
    if "-shm" in arguments:
        return False
    relative = re.match(r'"(?!/)', arguments) or "AT_FDCWD" in arguments  # the program starts in the folder
    return bool(relative) or str(folder) in arguments or re.match(r"[12]<", arguments) is not None
