"""Thirty days of use and sleep: whether what is used survives, and what is not is gone.

    python benchmarks/thirty_days.py [--days 30] [--asked 30] [--work]

The 300 facts of recall_quality.py are remembered on day 0. Then, day by day by a clock that is handed in, questions are
asked, each recall returns five memories, and the day ends with a sleep. The rules and weights are the default ones.
Every fact belongs to one group: `used`, its own question was asked every third day; `early`, its question was asked
in the first days only; `along`, it was returned to the questions of others; `unused`, it was never returned. Of the
used ones it is shown, too, how many of their questions find them among the first five, on day 0 in the memory of all
facts and at the end in what is left of it.

With --work an agent works instead: five runs of eight steps a day, each of which the program recalls by and remembers,
and now and then a note, a word of the user or a pinned step; at the end of each run it naps. Nobody asks for anything.
It is shown what is left of each, with a sleep every night and without one.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Collection, Mapping
from pathlib import Path
from random import Random

from recall_quality import FACTS, Fact, read_facts
from two_runs import others

from autoagent.core.memory import LIVES
from autoagent.memory.embedders.builtin import HashEmbedder, open_builtin
from autoagent.memory.living_memory import LifeRules, LivingMemory
from autoagent.memory.ranking import DAY
from autoagent.memory.sqlite.store import LocalStore

START = 20_000 * DAY  # seconds since the epoch
RETURNED = 5
EVERY = 3  # days from one time a question is asked to the next
RUNS, STEPS = 5, 8  # of a day, and of a run
EARLY = 3  # days in which the questions of the early ones are asked


class Life:
    """A memory of the facts, its clock, and which of them were ever returned."""

    def __init__(self, folder: Path, facts: Collection[Fact]) -> None:
        self.day = 0.0
        self.returned: set[str] = set()
        store = LocalStore(folder, open_builtin(), random=Random(1))
        self._memory = LivingMemory(store, rules=LifeRules(), clock=lambda: START + self.day * DAY)
        self._of_text = {fact.text: fact for fact in facts}
        for fact in facts:
            self._memory.add(fact.text)

    def ask(self, fact: Fact) -> bool:
        """Whether the fact came back to its question; whatever came back is noted."""
        returned = {self._of_text[memory.text].id for memory in self._memory.recall(fact.question, RETURNED).memories}
        self.returned |= returned
        return fact.id in returned

    def sleep(self) -> None:
        self._memory.sleep(None, lambda fragments: "")

    def levels(self) -> dict[str, int]:
        """The level of each fact that is still there."""
        return {self._of_text[memory.text].id: memory.level for memory in self._memory.store.listed()}

    def trash(self) -> set[str]:
        return {self._of_text[memory.text].id for memory in self._memory.store.listed(trash=True)}

    def close(self) -> None:
        self._memory.close()


def live(life: Life, used: list[Fact], early: list[Fact], days: int) -> list[dict[str, int]]:
    """The levels at the end of each day."""
    found = []
    for day in range(1, days + 1):
        life.day = float(day)
        for fact in (*used[day % EVERY :: EVERY], *(early if day <= EARLY else ())):
            life.ask(fact)
        life.sleep()
        found.append(life.levels())
    return found


def show(days: list[dict[str, int]], groups: Mapping[str, set[str]]) -> None:
    print("facts left " + "".join(f"{name:>9}{f'of {len(ids)}':>8}" for name, ids in groups.items()) + "   (level)")
    for day, levels in enumerate(days, 1):
        if day % 5 and day != len(days):
            continue
        columns = []
        for ids in groups.values():
            left = [levels[id] for id in ids if id in levels]
            level = f"({sum(left) / len(left):.1f})" if left else ""
            columns.append(f"{len(left):>9}{level:>8}")
        print(f"day {day:<7}" + "".join(columns))


def work(days: int, nightly: bool) -> dict[str, tuple[int, int]]:
    """Let an agent work for so many days; return by kind how many memories were made and how many are left."""
    dice, day, made, kept = Random(7), 0.0, dict.fromkeys(("step", "note", "feedback", "pinned"), 0), dict[int, str]()
    steps = others(days * RUNS * STEPS)
    with tempfile.TemporaryDirectory() as folder:
        store = LocalStore(Path(folder), HashEmbedder(), random=Random(1))
        rules = LifeRules(lives=LIVES)
        with LivingMemory(store, rules=rules, clock=lambda: START + day * DAY) as memory:
            for number, text in enumerate(steps):
                day = number / (RUNS * STEPS)
                memory.recall(text, RETURNED, pushed=True)
                kind, said = "step", text
                if (chance := dice.random()) < 0.03:
                    kind, said = "note", f"Note {number}: {text.splitlines()[-1]}"
                elif chance < 0.05:
                    kind, said = "feedback", f"Say {number}: {text.splitlines()[0]}"
                id = memory.add(said, kind=kind, run=f"run-{number // STEPS}", step=number % STEPS)
                assert id is not None
                if kind == "step" and chance > 0.99:
                    memory.pin(id)
                    kind = "pinned"
                made[kind] += 1
                kept[id] = kind
                if number % STEPS == STEPS - 1:
                    memory.nap()
                if nightly and number % (RUNS * STEPS) == RUNS * STEPS - 1:
                    memory.sleep(None, lambda fragments: "")
            left = [kept[m.id] for m in store.listed()]
    return {kind: (count, left.count(kind)) for kind, count in made.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--days", type=int, default=30, metavar="N")
    parser.add_argument("--asked", type=int, default=30, metavar="N", help="used facts, and early ones; default 30")
    parser.add_argument("--work", action="store_true", help="let an agent work instead")
    options = parser.parse_args()
    if options.work:
        for nightly in (True, False):
            found = work(options.days, nightly)
            told = ", ".join(f"{kind} {left} of {made}" for kind, (made, left) in found.items())
            print(f"left after {options.days} days, {'a sleep each night' if nightly else 'no sleep'}: {told}")
        return
    facts = read_facts(FACTS)
    asked = Random(2).sample([fact for fact in facts if fact.style != "paraphrase"], 2 * options.asked)
    used, early = asked[: options.asked], asked[options.asked :]
    with tempfile.TemporaryDirectory() as folder:
        life = Life(Path(folder), facts)
        first = sum(life.ask(fact) for fact in used)
        days = live(life, used, early, options.days)
        groups = {"used": {fact.id for fact in used}, "early": {fact.id for fact in early}}
        groups["along"] = life.returned - groups["used"] - groups["early"]
        groups["unused"] = {fact.id for fact in facts} - set.union(*groups.values())
        show(days, groups)
        last = sum(life.ask(fact) for fact in used)
        gone, trash = groups["unused"] - days[-1].keys(), life.trash()
        life.close()
    print(f"used facts found by their questions: {first} on day 0, {last} on day {options.days}")
    print(f"unused facts gone: {len(gone)} of {len(groups['unused'])}, of them in the trash: {len(gone & trash)}")


if __name__ == "__main__":
    main()
