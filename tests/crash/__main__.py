"""The whole proof; see the package."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from crash import boundaries, power, sub_agents, trial
from crash.boundaries import Boundary
from crash.trial import Outcome

ERRORS = ("ENOSPC", "EIO", "EINTR")

Trial = tuple[str, Callable[[], Outcome]]


def trials(kind: str, found: Iterable[Boundary]) -> Iterator[Trial]:
    """What is to be tried, and how it is called."""
    for boundary in power.cuts(found) if kind == "power" else found:
        name = f"{boundary} {boundary.about[:100]}"
        if kind == "kill":
            yield name, partial(trial.kill_at, boundary)
        elif kind == "agents":
            yield name, partial(sub_agents.kill_at, boundary)
        elif kind == "power":
            yield name, partial(power.cut_at, boundary)
        else:
            for error in ERRORS:
                yield f"{error} {name}", partial(trial.fail_at, boundary, error)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m crash", description="Prove that a run cannot be lost.")
    parser.add_argument("kind", choices=["kill", "power", "fail", "agents"])
    parser.add_argument("--every", type=int, default=1, metavar="N")
    parser.add_argument("--from", type=int, default=0, dest="first", metavar="N")
    parser.add_argument("--jobs", type=int, default=2, metavar="N")
    given = parser.parse_args()
    if reason := boundaries.missing() or (power.missing() if given.kind == "power" else ""):
        sys.exit(f"This cannot be tried here: {reason}.")
    found = sub_agents.record() if given.kind == "agents" else trial.record()
    return run(list(trials(given.kind, found))[given.first :: given.every], given.jobs)


def run(wanted: list[Trial], jobs: int) -> int:
    """Try all, print what fails and the counts; the exit code."""
    counts: Counter[str] = Counter()
    began = time.monotonic()

    def one(attempt: Trial) -> tuple[str, Outcome | str]:
        name, tried = attempt
        try:
            return name, tried()
        except Exception as error:  # whatever went wrong, the others are still to be tried
            return name, f"{type(error).__name__}: {error}"

    with ThreadPoolExecutor(jobs) as pool:
        for number, (name, outcome) in enumerate(pool.map(one, wanted), 1):
            if isinstance(outcome, str):
                counts["failed"] += 1
                print(f"FAILED {name}\n    {outcome}", flush=True)
            else:
                counts["cut off" if outcome.cut else "went through"] += 1
                counts["with a command that may have run"] += outcome.unknown
            if number % 50 == 0:
                print(f"{number} of {len(wanted)}, {time.monotonic() - began:.0f} s: {dict(counts)}", flush=True)
    print(f"{len(wanted)} trials in {time.monotonic() - began:.0f} s: {dict(counts)}")
    return 1 if counts["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
