"""Single trials: kill a run at a boundary, or let a call fail there, resume it, and check the promise."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crash.boundaries import Boundary, boundaries, failed_to_speak, failing, killing, recording
from crash.world import Ended, World, world

CAUSES = {  # as the system says it, and as SQLite does
    "ENOSPC": (os.strerror(errno.ENOSPC), "disk is full", "disk I/O error"),
    "EIO": (os.strerror(errno.EIO), "disk I/O error"),
    "EINTR": (os.strerror(errno.EINTR), "disk I/O error"),
}


@dataclass(frozen=True)
class Outcome:
    """What came of a trial: whether it cut the run off, the events on disk then, whether a command may have run."""

    cut: bool
    events: int
    unknown: bool


def record() -> list[Boundary]:
    """The boundaries of one run that nothing happens to."""
    with tempfile.TemporaryDirectory(prefix="crash") as folder, world(Path(folder, "home").resolve()) as home:
        file = Path(folder, "record").resolve()
        ended = home.begin(*recording(file))
        home.check_end(home.check_crash(ended), ended)
        return list(boundaries(file, home.folder))


def finish(home: World, before: list[dict[str, Any]], ended: Ended) -> Outcome:
    """Resume a run that was cut off, and check what must hold at its end. `before` is the log as the crash left it."""
    cut = ended.code != 0  # 0: this run made fewer such calls
    home.check_end(before, home.go_on() if cut else ended)
    return Outcome(cut, len(before), cut and any(not event.get("known", True) for event in home.log()))


def kill_at(boundary: Boundary) -> Outcome:
    """Kill a run there, resume it, and check what must hold. Raises AssertionError where it does not."""
    with tempfile.TemporaryDirectory(prefix="crash") as folder, world(Path(folder, "home").resolve()) as home:
        cut = home.begin(*killing(boundary))
        before = home.check_crash(cut)
        assert cut.code in (0, -9), cut.err
        return finish(home, before, cut)


def fail_at(boundary: Boundary, error: str) -> Outcome:
    """Let one call fail with an error (`ENOSPC`): the run goes on, or ends with a line; then resume it, and check.

    Raises AssertionError.
    """
    with tempfile.TemporaryDirectory(prefix="fault") as folder, world(Path(folder, "home").resolve()) as home:
        file = Path(folder, "record")
        ended = home.begin(*failing(boundary, error, file))
        assert ended.code >= 0, f"killed by signal {-ended.code}"
        assert "Traceback" not in ended.err, ended.err
        assert "internal error" not in ended.err, ended.err
        before = home.check_crash(ended)
        lines = [line for line in ended.err.splitlines() if line.startswith("autoagent: ")]
        if ended.code and not failed_to_speak(file):
            assert len(lines) == 1, ended.err
            assert any(cause in lines[0] for cause in CAUSES[error]), f"exit code {ended.code}: {lines[0]}"
        return finish(home, before, ended)


def spread(found: Sequence[Boundary], count: int) -> list[Boundary]:
    """So many of them, evenly over the run."""
    step = max(1.0, len(found) / count)
    return [found[int(place * step)] for place in range(min(count, len(found)))]
