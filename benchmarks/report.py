"""Print docs/performance.md from what the benchmarks have measured.

    python benchmarks/loop.py --peers FOLDER --steps 50,500 --peer-steps 500 --json loop.json
    python benchmarks/first_request.py --peers FOLDER --json first.json
    python benchmarks/resume.py --json resume.json
    python benchmarks/local_step.py --json local.json
    python benchmarks/ability.py --split both --runs 60 --json ability.jsonl
    python benchmarks/report.py loop.json --first first.json --resume resume.json --local local.json \\
        --ability ability.jsonl > docs/performance.md

Every figure stands beside those of the same run of its benchmark. A section whose file is not given is left out.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ability_results import HEAD as COLUMNS_OF_ABILITY
from ability_results import Record, cells, read_records

HEAD = """# What a step costs

Printed by `benchmarks/report.py` from one run of `benchmarks/loop.py`, in which the agents took turns against a server
that answers at once, and from the benchmarks that the other sections name. Timings depend on the machine and its load:
compare rows of the same table.
"""

COLUMNS = """\
| agent | steps | ms a step | steps 2-10 → last 10 | tokens | cached | priced | MB written | MiB resident |
|---|---|---|---|---|---|---|---|---|"""

FOOT = """\
A step reads a small note, or writes a new one; *ms a step* is the time from the answer to the next request. Tokens are
counted the same way for all. *cached* is the share of tokens, from the beginning of tools and messages, that repeat
the request before. *priced* is their cost at OpenAI's prices of gpt-4o-mini, cached and not. *MB written* is what
reached the file system, including the programs that were started.
"""


def lines(measured: dict[str, Any]) -> Iterator[str]:
    """Yield the lines of the page."""
    machine = measured["machine"]
    yield HEAD
    yield (
        f"Measured on {measured['date']}: {machine['cpus']} CPUs ({machine['kind']}), Python {machine['python']}; this "
        f"disk takes {measured['disk_ms']:.2f} ms to sync 500 bytes."
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
    yield f"\n{FOOT}".rstrip("\n")


def first(found: dict[str, float]) -> Iterator[str]:
    """Yield the section on the first request."""
    yield "\n## Time to the first request\n"
    yield "From the start of the process, in a home that was used before (`benchmarks/first_request.py`).\n"
    yield "| agent | seconds |\n|---|---|"
    yield from (f"| {agent} | {seconds:.2f} |" for agent, seconds in found.items())


def resume(found: dict[str, float]) -> Iterator[str]:
    """Yield the section on going on with a long run."""
    yield f"\n## Resuming a run of {found['steps']:,} steps\n"
    yield f"Its log has {found['log_mb']:.0f} MB (`benchmarks/resume.py`). To the first request:\n"
    yield "| | seconds |\n|---|---|"
    yield f"| `autoagent resume`, from the checkpoint | {found['resumed']:.2f} |"
    yield f"| the same without it | {found['without']:.2f} |"
    yield f"| a new run in a new home | {found['new']:.2f} |"


def local(found: dict[str, dict[str, float]]) -> Iterator[str]:
    """Yield the section on the embedded model."""
    yield "\n## A step of the embedded model\n"
    yield "The same prompts, grammar and window, in turns (`benchmarks/local_step.py`). The first step reads its whole"
    yield "prompt, a later step only the new part.\n"
    yield "| | first step, s | a later step, s |\n|---|---|---|"
    yield from (f"| {name} | {row['first']:.1f} | {row['later']:.1f} |" for name, row in found.items())


def ability(records: Sequence[Record]) -> Iterator[str]:
    """Yield the section on solved tasks and false finishes."""
    yield "\n## Tasks with a check\n"
    yield "On the embedded model, each agent with the same limits of steps and tokens (`benchmarks/ability.py`). The"
    yield "families of *test* were hidden from the agent's developers. Intervals are Wilson's, at 95 %.\n"
    yield f"| agent | families | {' | '.join(COLUMNS_OF_ABILITY)} |\n|---|---|{'---|' * len(COLUMNS_OF_ABILITY)}"
    for split in ("test", "dev"):
        for agent in dict.fromkeys(one.agent for one in records):
            if own := [one for one in records if (one.agent, one.split) == (agent, split)]:
                yield f"| {agent} | {split} | {' | '.join(cells(own))} |"


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("file", type=Path, help="what loop.py has kept with --json")
    sections = {"first": first, "resume": resume, "local": local}
    for name in sections:
        parser.add_argument(f"--{name}", type=Path, metavar="FILE", help="a section more; see the module")
    parser.add_argument("--ability", type=Path, metavar="FILE", help="the outcomes of ability.py, a line each")
    options = parser.parse_args()
    text = list(lines(json.loads(options.file.read_text())))
    for name, section in sections.items():
        if kept := getattr(options, name):
            text += section(json.loads(kept.read_text()))
    if options.ability:
        text += ability(read_records(options.ability))
    print("\n".join(text).rstrip("\n"))


if __name__ == "__main__":
    main()
