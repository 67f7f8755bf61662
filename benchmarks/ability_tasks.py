"""Draw tasks on files: families of them, in three languages, with parameters that hang on a seed.

The families are split in two by lot, once: `families_dev` is for developing, `families_test` only for reporting. Who
changes the agent looks at no file, goal or run of the second half, so that its figures cannot be tuned. The same holds
for the halves `wide-dev` and `wide-test` of `families_wide`, which came later and differ more among themselves.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping

import families_dev
import families_test
import families_wide
from ability_checks import LANGUAGES, Draw, Task

LOT, WIDE_LOT = 1, 2811  # the seeds by which the families were split
Family = Callable[[Draw], Task]


def by_lot(families: Iterable[str], lot: int) -> set[str]:
    """Draw half of the families that are possible, and half of those that are not (`no_...`)."""
    names, chance = sorted(families), random.Random(lot)
    drawn: set[str] = set()
    for impossible in (False, True):
        kind = [name for name in names if name.startswith("no_") == impossible]
        drawn.update(chance.sample(kind, len(kind) // 2))
    return drawn


_WIDE_DEV = by_lot(families_wide.FAMILIES, WIDE_LOT)
SPLITS: Mapping[str, Mapping[str, Family]] = {
    "dev": families_dev.FAMILIES,
    "test": families_test.FAMILIES,
    "wide-dev": {name: family for name, family in families_wide.FAMILIES.items() if name in _WIDE_DEV},
    "wide-test": {name: family for name, family in families_wide.FAMILIES.items() if name not in _WIDE_DEV},
}


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
