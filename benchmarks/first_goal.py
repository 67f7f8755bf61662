"""How long it is from a clone to the first goal that is reached and right, with the weights of the model there already.

    python benchmarks/first_goal.py [--tries 3]

In a fresh clone of what is committed here: the README's first command as far as it installs, then its example, word
for word, on the embedded model, until the run finishes and its file holds the facts of the notes.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

Result = TypeVar("Result")

ROOT = Path(__file__).parent.parent
AT_MOST = 180.0  # seconds
SUMMARY = Path("examples/summary/autoagent_workspace/summary.txt")
FACTS = ("7:40", "18")


def readme_command(name: str) -> str:
    """The command line under a marker in README.md."""
    found = re.search(rf"<!-- {name} -->\n```\n(.+)\n", (ROOT / "README.md").read_text(encoding="utf-8"))
    assert found, f"README.md has no command under {name}"
    return found[1]


def is_right(clone: Path) -> bool:
    """Run the example; say whether it finished and its file holds the facts."""
    (clone / SUMMARY).unlink(missing_ok=True)
    done = subprocess.run(["bash", "-c", readme_command("example")], cwd=clone, stdin=subprocess.DEVNULL)
    written = (clone / SUMMARY).read_text(encoding="utf-8") if (clone / SUMMARY).exists() else ""
    return done.returncode == 0 and all(fact in written for fact in FACTS)


def timed(what: str, part: Callable[[], Result]) -> tuple[float, Result]:
    """Do a part and print how long it took; the seconds, and what came of it."""
    began = time.monotonic()
    result = part()
    seconds = time.monotonic() - began
    print(f"{what:20} {seconds:6.1f} s", flush=True)
    return seconds, result


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tries", type=int, default=3, help="how often the example may be run")
    tries: int = parser.parse_args().tries
    install = readme_command("run").rpartition(" && ")[0]
    with tempfile.TemporaryDirectory() as name:
        clone = Path(name) / "autoagent"
        cloned, _ = timed("clone", lambda: subprocess.run(["git", "clone", "-q", ROOT, clone], check=True))
        installed, _ = timed("install", lambda: subprocess.run(["bash", "-c", install], cwd=clone, check=True))
        seconds, right = cloned + installed, False
        while tries and not right:
            took, right = timed("example", lambda: is_right(clone))
            seconds, tries = seconds + took, tries - 1
    print(f"{'in all':20} {seconds:6.1f} s, at most {AT_MOST:g}: {'right' if right else 'not right'}")
    return 0 if right and seconds <= AT_MOST else 1


if __name__ == "__main__":
    sys.exit(main())
