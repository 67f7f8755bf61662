"""What agents get done with the same small model, and whether their ends are true: drawn tasks with a check.

    python benchmarks/ability.py [--split dev|test|both] [--runs 12] [--seed 1] [--agents autoagent,...]
                                 [--install FOLDER | --peers FOLDER] [--steps 12] [--seconds 900]
                                 [--json FILE] [--keep DIR] [--look]

Every agent gets the same goals, files, embedded model, steps and seconds for each task, and a workspace with nothing
but its files. autoagent runs as a user runs it, unattended (`autoagent --model local -c -l STEPS`). The peers run with
what they ship, and ask the same runtime of the same weights over HTTP on loopback.

The outcome of a run hangs on its exit code and its files, never on its words:

- right: finished (exit 0) with the right files, or unmet (exit 10) where the task is impossible;
- false finish: finished, but the files are wrong or the task is impossible;
- unverified: the files are right, but the agent does not say that it finished;
- failed: all others.

A peer is finished where the agent itself says that it is done. `right files` counts possible tasks alone. `tokens` are
those of prompts and replies, cached ones too, of all runs for each right end. Intervals are Wilson's, at 95 %.

The families of tasks are split in two, once, by lot (`ability_tasks.py`). Those of `test` are for reporting: of their
runs only the summary is printed, without `--look`. Other loads on the machine change the seconds only.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from ability_agents import OURS, PEERS, Runtime, install, run_ours, run_peer
from ability_checks import LANGUAGES, Task
from ability_results import FALSE, HEAD, RIGHT, Figures, Record, cells, gap, read_records, record
from ability_tasks import SPLITS, draw

from autoagent.models.local import weights

FALSE_AT_MOST = 0.05  # of the runs of test
RIGHT_AT_LEAST = 0.4
AS_MANY = 2.0  # right ends as the best peer
TOKENS_AT_MOST = 0.5  # for a right end, beside that peer


@contextmanager
def place(keep: Path | None, agent: str, split: str, seed: int, task: Task) -> Iterator[Path]:
    """Make the folder of a run, with the files of the start in `before` and `workspace`."""
    with tempfile.TemporaryDirectory() as passing:
        home = keep / agent / f"{split}-{seed}-{task.name}" if keep else Path(passing)
        shutil.rmtree(home, ignore_errors=True)
        for name in ("before", "workspace"):
            (home / name).mkdir(parents=True)
            task.lay_out(home / name)
        yield home.absolute()


def say(split: str, done: Record, number: int, runs: int, look: bool) -> None:
    """Print a line for a run; of the test families only that there was one."""
    if split.endswith("test") and not look:
        print(f"{split} {number} of {runs} {done.agent}", flush=True)
        return
    print(
        f"{split} {done.task:16} {done.agent:18} {done.outcome:17} {done.steps:3} steps {done.tokens:7,} tokens "
        f"{done.seconds:5.0f} s  exit {done.code} {' '.join(done.ended.split())[:70]}",
        flush=True,
    )


def print_rows(rows: Sequence[tuple[str, Sequence[Record]]]) -> None:
    """Print a table with a row for each name."""
    lines = [["", *HEAD], *([name, *cells(records)] for name, records in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    for line in lines:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def summary(records: Sequence[Record], look: bool) -> None:
    """Print the figures of each split and agent, and how ours stands beside the best of the others."""
    agents, splits = (list(dict.fromkeys(getattr(one, name) for one in records)) for name in ("agent", "split"))

    def of(split: str, agent: str) -> list[Record]:
        return [one for one in records if one.split == split and one.agent == agent]

    for split in splits:
        print(f"\n{split}:")
        print_rows([(agent, of(split, agent)) for agent in agents])
        ours = of(split, OURS)
        if ours and (split.endswith("dev") or look):
            for name, values in (("family", sorted(SPLITS[split])), ("language", LANGUAGES)):
                parts = [(value, [one for one in ours if getattr(one, name) == value]) for value in values]
                print()
                print_rows([(value, part) for value, part in parts if part])
    if OURS not in agents:
        return
    print()
    if {"dev", "test"} == set(splits):
        for name, outcome in (("false finishes", FALSE), ("right ends", RIGHT)):
            found, low, high = gap(of("dev", OURS), of("test", OURS), outcome)
            print(f"{name}, dev - test: {100 * found:+.0f} points ({100 * low:+.0f} to {100 * high:+.0f})")
    for split in splits:
        if split.endswith("test"):
            verdicts({agent: Figures(of(split, agent)) for agent in agents})


def verdicts(figures: dict[str, Figures]) -> None:
    """Say whether the figures of test are those that are wanted."""
    ours = figures[OURS]
    verdict("false finishes", ours.share(FALSE), FALSE_AT_MOST, at_most=True)
    verdict("right ends", ours.share(RIGHT), RIGHT_AT_LEAST)
    if others := {name: each for name, each in figures.items() if name != OURS}:
        best = max(others, key=lambda name: (others[name].count(RIGHT), -others[name].tokens_for_one))
        theirs = others[best]
        ratio = ours.count(RIGHT) / theirs.count(RIGHT) if theirs.count(RIGHT) else float("inf")
        verdict(f"right ends, beside {best}", ratio, AS_MANY)
        verdict(
            f"tokens for a right end, beside {best}",
            ours.tokens_for_one / theirs.tokens_for_one,
            TOKENS_AT_MOST,
            at_most=True,
        )


def verdict(what: str, value: float, wanted: float, *, at_most: bool = False) -> None:
    met = value <= wanted if at_most else value >= wanted
    bound = "at most" if at_most else "at least"
    print(f"{what:50} {value:7.2f} (wanted: {bound} {wanted:g}, {'met' if met else 'MISSED'})")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--split", choices=[*SPLITS, "both"], default="dev")
    parser.add_argument("--runs", type=int, default=12, metavar="N", help="tasks drawn of each split; default 12")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="of what is drawn; default 1")
    parser.add_argument(
        "--tasks", default="", metavar="NAME,...", help="only these families or tasks; default all drawn"
    )
    parser.add_argument("--agents", default="", metavar="NAME,...", help="only these; default all")
    parser.add_argument("--steps", type=int, default=12, metavar="N")
    parser.add_argument("--seconds", type=float, default=900.0, metavar="S", help="for one task")
    parser.add_argument("--install", type=Path, metavar="FOLDER", help="make the peers' environments there")
    parser.add_argument("--peers", type=Path, metavar="FOLDER", help="where the peers' environments are")
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="add each run as a line of JSON; those in it are not run again"
    )
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep the files and the log of each run there")
    parser.add_argument("--look", action="store_true", help="print the runs of the test families too")
    return parser.parse_args()


def main() -> None:
    options = arguments()
    names = options.agents.split(",") if options.agents else [OURS, *(peer.name for peer in PEERS)]
    peers = {peer.name: peer for peer in PEERS if peer.name in names}
    if options.install:
        install(options.install, list(peers.values()))
    folder = options.install or options.peers
    names = [name for name in names if name not in peers or (folder and (folder / name).exists())]
    only = set(options.tasks.split(",")) - {""}
    splits = ["dev", "test"] if options.split == "both" else [options.split]
    tasks = [(split, task) for split in splits for task in draw(split, options.runs, options.seed)]
    tasks = [(split, task) for split, task in tasks if not only or only & {task.family, task.name}]
    runtime = Runtime(weights.locate()) if any(name in peers for name in names) else None
    old = {one.key: one for one in read_records(options.json)}
    records = []
    for number, (split, task) in enumerate(tasks, 1):
        for name in names:
            if one := old.get((name, split, options.seed, task.name)):
                records.append(one)
                continue
            with place(options.keep, name, split, options.seed, task) as home:
                if name in peers:
                    python = folder.absolute() / name / "bin" / "python"
                    assert runtime is not None
                    run = run_peer(peers[name], python, task, home, runtime, options.steps, options.seconds)
                else:
                    run = run_ours(task, home, options.steps, options.seconds)
                one = record(name, split, options.seed, task, run, home / "workspace")
                line = json.dumps(asdict(one), ensure_ascii=False)
                (home / "record.json").write_text(line)
            records.append(one)
            say(split, one, number, len(tasks), options.look)
            if options.json:
                with options.json.open("a") as file:
                    file.write(line + "\n")
    summary(records, options.look)


if __name__ == "__main__":
    main()
