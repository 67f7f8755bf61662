"""What a run costs, beside the peers and beside itself: each benchmark behind docs/performance.md, one after the other.

    python benchmarks/compare.py [--peers FOLDER] [--only loop,first_request] [--json FOLDER]

`--peers` is a folder of environments as `loop.py --install FOLDER` makes it. Everything is said as it is measured, with
what is wanted beside it; `--json` keeps what report.py prints the page from. It takes about half an hour. The programs
run at a higher priority where that is permitted: other work on the machine still shows in every figure.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

HERE = Path(__file__).parent
PRIORITY = -10

PARTS = {
    "loop": "--steps 50,300,500,5000 --peer-steps 300,500 --windows 0 --kinds read",
    "first_request": "",
    "startup": "",
    "folders": "",
    "long_run": "",
    "resume": "",
    "viewer": "",
    "memory": "--only recall --sizes 100000 --dims 256",
    "local_step": "",
}
"""The arguments of each benchmark by its name."""

WITH_PEERS = ("loop", "first_request")
WITH_JSON = ("loop", "first_request", "resume")


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--peers", type=Path, metavar="FOLDER", help="where the peers' environments are")
    parser.add_argument("--only", default=",".join(PARTS), metavar="NAME,...", help="these benchmarks; default all")
    parser.add_argument("--json", type=Path, metavar="FOLDER", help="keep the figures there, a file each")
    options = parser.parse_args()
    with suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, 0, PRIORITY)
    if options.json:
        options.json.mkdir(parents=True, exist_ok=True)
    failed = []
    for name in options.only.split(","):
        argv = [sys.executable, str(HERE / f"{name}.py"), *PARTS[name].split()]
        if options.peers and name in WITH_PEERS:
            argv += ["--peers", str(options.peers)]
        if name == "startup" and options.peers and (mini := options.peers / "mini-swe-agent/bin/mini").exists():
            argv += ["--mini", str(mini)]
        if options.json and name in WITH_JSON:
            argv += ["--json", str(options.json / f"{name}.json")]
        print(f"\n== {' '.join(argv[1:])}", flush=True)
        if subprocess.run(argv).returncode:
            failed.append(name)
    if failed:
        sys.exit(f"Not measured: {', '.join(failed)}.")


if __name__ == "__main__":
    main()
