"""Print docs/performance.md from what the benchmarks have measured.

    python benchmarks/loop.py --peers FOLDER --steps 50,500 --peer-steps 500 --json loop.json
    python benchmarks/report.py loop.json > docs/performance.md

Every figure stands beside those of the same run of the benchmark, with its date and the kind of machine.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HEAD = """# What a step costs

Printed by `benchmarks/report.py` from one run of `benchmarks/loop.py`, in which the agents took turns against a
server that answers at once. Timings depend on the machine and on what else it does: compare the rows of one table.
"""

COLUMNS = """\
| agent | steps | ms a step | steps 2-10 → last 10 | tokens | cached | priced | MB written | MiB resident |
|---|---|---|---|---|---|---|---|---|"""

FOOT = """\
A step reads a small note, or writes a new one; *ms a step* is the time from the answer to the next request. Tokens
are counted alike for all; *cached* are those of the tools and messages from the beginning that are the same as in the
request before; *priced* is what all of them cost as OpenAI prices gpt-4o-mini, cached and not. *MB written* is what
reached the file system, programs that were started among it.
"""


def lines(measured: dict[str, Any]) -> Iterator[str]:
    """Yield the lines of the page."""
    machine = measured["machine"]
    yield HEAD
    yield (
        f"Measured on {measured['date']}: {machine['cpus']} CPUs ({machine['kind']}), Python {machine['python']}; to "
        f"make 500 bytes durable takes this disk {measured['disk_ms']:.2f} ms."
    )
    for kind, what in (("read", "reads a note"), ("write", "writes a note")):
        rows = [row for row in measured["rows"] if row["kind"] == kind]
        if not rows:
            continue
        yield f"\n## A step that {what}\n"
        yield COLUMNS
        for row in sorted(rows, key=lambda row: (row["steps"], row["agent"], row["window"] or 1 << 30)):
            window = (
                "" if row["window"] is None else f", window {row['window']:,}" if row["window"] else ", default window"
            )
            yield (
                f"| {row['agent']}{window} | {row['steps']:,} | {row['ms']:.1f} | {row['first']:.1f} → "
                f"{row['last']:.1f} | {row['tokens']:,} | {row['cached']:.2f} | ${row['dollars']:.4f} "
                f"| {row['written']:.1f} | {row['resident']:.0f} |"
            )
    yield f"\n{FOOT}"


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("file", type=Path, help="what loop.py has kept with --json")
    print("\n".join(lines(json.loads(parser.parse_args().file.read_text()))), end="")


if __name__ == "__main__":
    main()
