"""What the sandbox costs: `true` through each kind beside a plain subprocess.

    python benchmarks/sandbox.py [--repeat 200]

Each kind and a plain subprocess take turns, so that a busy moment meets both; the figures are medians. The kinds follow
one another: those that start an interpreter leave cold caches behind. Beside the time stands the work: what processors
spent on us and on what we started, which depends less on what else the machine does. A kind that does not work on this
machine is named with the reason. What is wanted is that the kind which is the default here, the first that works, costs
at most 6 ms more than a plain subprocess.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from autoagent.core.errors import SetupError
from autoagent.core.protocols import Sandbox
from autoagent.sandbox.process import ProcessLimits
from autoagent.sandbox.programs import open_sandbox
from autoagent.workspace.gate import Workspace

DEFAULT_AT_MOST = 6.0  # ms above a plain subprocess


def plain() -> None:
    subprocess.run(["/bin/true"], stdin=subprocess.DEVNULL, capture_output=True, check=True)


def within(sandbox: Sandbox) -> Callable[[], None]:
    """Runs `true` in the sandbox."""

    def run() -> None:
        done = sandbox.run(["/bin/true"])
        assert done.status == 0, done

    return run


def timed(run: Callable[[], None]) -> tuple[float, float]:
    """Milliseconds of time, and of work."""
    begin, worked = time.perf_counter(), work()
    run()
    return 1000 * (time.perf_counter() - begin), 1000 * (work() - worked)


def work() -> float:
    """Seconds of processors that this process and those it waited for have used."""
    uses = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(use.ru_utime + use.ru_stime for use in uses)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--repeat", type=int, default=200, metavar="N", help="turns; default 200")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        workspace = Workspace(Path(folder))
        sandboxes: list[Sandbox] = []
        for kind in ("bubblewrap", "landlock", "none"):
            try:
                sandboxes.append(open_sandbox(workspace, ProcessLimits(), kind=kind))
            except SetupError as error:
                print(f"{kind:12} {error}")
        for number, sandbox in enumerate(sandboxes):
            turns = [(timed(plain), timed(within(sandbox))) for _ in range(options.repeat)]
            show(sandbox, turns, wanted=number == 0)
            sandbox.close()


def show(sandbox: Sandbox, turns: Sequence[tuple[tuple[float, float], tuple[float, float]]], *, wanted: bool) -> None:
    """The medians of the turns, each of a plain subprocess and of one in the sandbox, in a line."""
    columns = [zip(*column, strict=True) for column in zip(*turns, strict=True)]
    (base, base_work), (cost, worked) = (tuple(map(statistics.median, column)) for column in columns)
    verdict = "met" if cost - base <= DEFAULT_AT_MOST else "MISSED"
    asked = f"  (the default; wanted: {DEFAULT_AT_MOST:.2f} ms above plain, {verdict})" if wanted else ""
    above = f"{cost - base:+6.2f} ms  work {worked:6.2f} ms {worked - base_work:+6.2f} ms"
    print(f"{sandbox.name:12} {cost:6.2f} ms {above}, plain {base:.2f} ms{asked}")


if __name__ == "__main__":
    main()
