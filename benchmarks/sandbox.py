"""What the sandbox costs: `true` through each kind beside a plain subprocess.

    python benchmarks/sandbox.py [--repeat 200]

The contestants take turns, so that a busy moment meets all of them; the figures are medians. Beside the time stands
the work: what processors spent on us and on what we started, which depends less on what else the machine does. A kind
that does not work on this machine is named with the reason. What is wanted is that the kind which is the default here,
the first that works, costs at most 6 ms more than a plain subprocess.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from autoagent.errors import SetupError
from autoagent.protocols import Sandbox
from autoagent.sandbox.choose import open_sandbox
from autoagent.sandbox.limits import Limits
from autoagent.workspace import Workspace

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
                sandboxes.append(open_sandbox(workspace, Limits(), kind=kind))
            except SetupError as error:
                print(f"{kind:12} {error}")
        runs = [plain, *map(within, sandboxes)]
        turns = [[timed(run) for run in runs] for _ in range(options.repeat)]
        for sandbox in sandboxes:
            sandbox.close()
    columns = list(zip(*turns, strict=True))
    (base, base_work), *costs = [tuple(map(statistics.median, zip(*column, strict=True))) for column in columns]
    print(f"{'plain':12} {base:6.2f} ms{'':13} work {base_work:6.2f} ms")
    for number, (sandbox, (cost, worked)) in enumerate(zip(sandboxes, costs, strict=True)):
        verdict = "met" if cost - base <= DEFAULT_AT_MOST else "MISSED"
        wanted = f"  (the default; wanted: {DEFAULT_AT_MOST:.2f} ms above plain, {verdict})" if number == 0 else ""
        above = f"{cost - base:+6.2f} ms  work {worked:6.2f} ms {worked - base_work:+6.2f} ms"
        print(f"{sandbox.name:12} {cost:6.2f} ms  {above}{wanted}")


if __name__ == "__main__":
    main()
