"""What a step that writes costs in a folder of few and of many files.

    python benchmarks/folders.py [--files 10,1000,10000] [--steps 30] [--new 1500] [--repeat 3]

Each run writes a new note a step (see loop.py), and they take turns. `step` is the fastest of the medians of the
turns, as the work of others only makes one slower; `first` is the first step, before which the folder is looked at
and kept for the first time. `growth` is the last ten steps beside the second to the tenth.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from loop import OURS, Figures, run, verdict

AT_MOST, FIRST_AT_MOST, GROWTH_AT_MOST = 1.3, 500.0, 1.2
WINDOW = 8192


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--files", default="10,1000,10000", metavar="N,...", help="in the folder")
    parser.add_argument("--steps", type=int, default=30, metavar="N")
    parser.add_argument(
        "--new", type=int, default=1500, metavar="N", help="steps of the run that shows growth; 0: none"
    )
    parser.add_argument("--repeat", type=int, default=3, metavar="N", help="turns; default 3")
    options = parser.parse_args()
    numbers = [int(number) for number in options.files.split(",")]
    turns: dict[int, list[Figures]] = {number: [] for number in numbers}
    for _ in range(options.repeat):
        for number in numbers:
            turns[number].append(run(OURS, options.steps, Path(sys.executable), WINDOW, "write", number))
    print(f"{'files':>8} {'step ms':>8} {'first ms':>9}")
    steps = {number: min(figures.median for figures in found) for number, found in turns.items()}
    for number, found in turns.items():
        print(f"{number:8,} {steps[number]:8.2f} {min(figures.steps[0] for figures in found):9.1f}")
    for number in numbers[1:]:
        verdict(f"a step beside the one at {numbers[0]}, {number:,} files", steps[number] / steps[numbers[0]], AT_MOST)
        first = min(figures.steps[0] for figures in turns[number])
        verdict(f"the first step, {number:,} files", first, FIRST_AT_MOST, " ms")
    if options.new:
        figures = run(OURS, options.new, Path(sys.executable), WINDOW, "write")
        verdict(f"growth, {options.new:,} steps with a new file each", figures.last / figures.first, GROWTH_AT_MOST)


if __name__ == "__main__":
    main()
