"""Draw tasks on files: families of them, in three languages, with parameters that hang on a seed.

The families are split in two by lot, once: `families_dev` is for developing, `families_test` only for reporting. Who
changes the agent looks at no file, goal or run of the second half, so that its figures cannot be tuned.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping

import families_dev
import families_test
from ability_checks import LANGUAGES, Draw, Task

LOT = 1  # the seed by which the families were split
Family = Callable[[Draw], Task]
SPLITS: Mapping[str, Mapping[str, Family]] = {"dev": families_dev.FAMILIES, "test": families_test.FAMILIES}


def by_lot() -> set[str]:
    """The families of dev: half of those that are possible and half of those that are not (`no_...`)."""
    names = sorted(name for families in SPLITS.values() for name in families)
    chance = random.Random(LOT)
    drawn: set[str] = set()
    for impossible in (False, True):
        kind = [name for name in names if name.startswith("no_") == impossible]
        drawn.update(chance.sample(kind, len(kind) // 2))
    return drawn


def draw(split: str, runs: int, seed: int) -> list[Task]:
    """Draw tasks of a split: each family in turn, in the next language each time. More runs begin with the same."""
    families = list(SPLITS[split].items())
    random.Random(f"{seed}/{split}").shuffle(families)
    tasks = []
    for index in range(runs):
        number, place = divmod(index, len(families))
        name, family = families[place]
        tasks.append(family(Draw(seed, name, number, list(LANGUAGES)[(number + place) % len(LANGUAGES)])))
    return tasks
