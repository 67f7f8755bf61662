"""What the runs of ability.py come to: an outcome for each, and figures with their intervals."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ability_agents import OURS, Run
from ability_checks import Task

FINISHED, UNMET = 0, 10  # exit codes
RIGHT, FALSE, UNVERIFIED, FAILED = "right", "false finish", "right, unverified", "failed"


@dataclass(frozen=True)
class Record:
    """A run with its outcome, as it is kept in a file."""

    agent: str
    split: str
    seed: int
    task: str
    family: str
    language: str
    possible: bool
    outcome: str
    right_files: bool
    code: int
    ended: str
    steps: int
    tokens: int
    generated: int
    seconds: float
    unparseable: int
    shown: tuple[str, ...]

    @property
    def key(self) -> tuple[str, str, int, str]:
        """What the run is known by."""
        return self.agent, self.split, self.seed, self.task


def outcome(agent: str, task: Task, code: int, workspace: Path) -> str:
    """Judge an end by its exit code and its files.

    Peers cannot say that a goal cannot be met. In their favour, an impossible task that they end with all files
    untouched and no new one counts as a right end.
    """
    right_files = task.right_files(workspace)
    if task.possible:
        if code == FINISHED:
            return RIGHT if right_files else FALSE
        return UNVERIFIED if right_files else FAILED
    if code == UNMET:
        return RIGHT if right_files else FAILED
    if code == FINISHED:
        return RIGHT if agent != OURS and task.untouched(workspace) else FALSE
    return FAILED


def record(agent: str, split: str, seed: int, task: Task, run: Run, workspace: Path) -> Record:
    """Judge a run by its exit code and its files."""
    return Record(
        agent, split, seed, task.name, task.family, task.language, task.possible,
        outcome(agent, task, run.code, workspace), task.right_files(workspace), **vars(run),
    )  # fmt: skip


def read_records(file: Path | None) -> list[Record]:
    """Read the runs of an interrupted benchmark."""
    if file is None or not file.exists():
        return []
    return [Record(**{**entry, "shown": tuple(entry["shown"])}) for entry in map(json.loads, file.open())]


def wilson(hits: float, runs: int) -> tuple[float, float]:
    """Return the 95 % interval of a share."""
    if not runs:
        return 0.0, 1.0
    z = 1.96
    share, room = hits / runs, z * z / runs
    middle = (share + room / 2) / (1 + room)
    reach = z / (1 + room) * math.sqrt(share * (1 - share) / runs + room / (4 * runs))
    return max(0.0, middle - reach), min(1.0, middle + reach)


@dataclass(frozen=True)
class Figures:
    """Of some runs: how many ended how, and what they took."""

    records: Sequence[Record]

    def count(self, *outcomes: str) -> int:
        return sum(record.outcome in outcomes for record in self.records)

    def share(self, *outcomes: str) -> float:
        return self.count(*outcomes) / len(self.records) if self.records else 0.0

    @property
    def right_files(self) -> tuple[int, int]:
        """How many of the possible tasks have the right files, and how many there are."""
        possible = [record for record in self.records if record.possible]
        return sum(record.right_files for record in possible), len(possible)

    @property
    def tokens_for_one(self) -> float:
        """Tokens of all runs for each right end."""
        tokens, right = sum(record.tokens for record in self.records), self.count(RIGHT)
        return tokens / right if right else math.inf

    @property
    def seconds(self) -> float:
        return sum(record.seconds for record in self.records) / len(self.records) if self.records else 0.0


def share(hits: int, runs: int) -> str:
    """A count with its share and interval: `24 40 % (29-53)`."""
    low, high = wilson(hits, runs)
    return f"{hits} of {runs}, {100 * hits / max(runs, 1):.0f} % ({100 * low:.0f}-{100 * high:.0f})"


HEAD = ("false finishes", "right ends", "right files", "unverified", "failed", "tokens a right end", "seconds a run")


def cells(records: Sequence[Record]) -> list[str]:
    """The cells under HEAD."""
    figures, runs = Figures(records), len(records)
    return [
        share(figures.count(FALSE), runs),
        share(figures.count(RIGHT), runs),
        share(*figures.right_files),
        str(figures.count(UNVERIFIED)),
        str(figures.count(FAILED)),
        f"{figures.tokens_for_one:,.0f}",
        f"{figures.seconds:.0f}",
    ]


def gap(dev: Sequence[Record], test: Sequence[Record], *outcomes: str) -> tuple[float, float, float]:
    """Return how much the share is greater on dev than on test, with its 95 % interval (Newcombe)."""
    one, other = Figures(dev), Figures(test)
    (low, high), (least, most) = (wilson(each.count(*outcomes), len(each.records)) for each in (one, other))
    first, second = one.share(*outcomes), other.share(*outcomes)
    down, up = math.hypot(first - low, most - second), math.hypot(high - first, second - least)
    return first - second, first - second - down, first - second + up
