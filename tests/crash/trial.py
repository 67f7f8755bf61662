"""Single trials: kill a run at a boundary, resume it, and check the promise."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from crash.boundaries import Boundary, boundaries, killing, recording
from crash.world import world


@dataclass(frozen=True)
class Outcome:
    """What came of a trial: whether the run was cut off at all, its events on disk then, and what was left open."""

    killed: bool
    events: int
    unknown: bool


def record() -> list[Boundary]:
    """The boundaries of one run that nothing happens to."""
    with tempfile.TemporaryDirectory(prefix="crash") as folder, world(Path(folder, "home").resolve()) as home:
        file = Path(folder, "record").resolve()
        ended = home.begin(*recording(file))
        home.check_end(home.check_crash(ended), ended)
        return list(boundaries(file, home.folder))


def kill_at(boundary: Boundary) -> Outcome:
    """Kill a run there, resume it, and check what must hold. Raises AssertionError where it does not."""
    with tempfile.TemporaryDirectory(prefix="crash") as folder, world(Path(folder, "home").resolve()) as home:
        cut = home.begin(*killing(boundary))
        before = home.check_crash(cut)
        if cut.code == 0:  # this run made fewer such calls
            home.check_end(before, cut)
            return Outcome(False, len(before), False)
        assert cut.code == -9, cut.err
        home.check_end(before, home.go_on())
        unknown = any(event["type"] == "returned" and not event["known"] for event in home.log())
        return Outcome(True, len(before), unknown)


def spread(found: Sequence[Boundary], count: int) -> list[Boundary]:
    """So many of them, evenly over the run."""
    step = max(1.0, len(found) / count)
    return [found[int(place * step)] for place in range(min(count, len(found)))]
