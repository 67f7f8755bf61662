"""Thirty days of recalls and sleep over the real store, by a clock that the test sets: in days, and in ticks.

What the table of docs/memory.md says is written here once more; both must agree on every level on every day.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from bag_of_words import BagOfWords

from autoagent.core.commands import Call
from autoagent.core.events import Thought
from autoagent.core.model import Thoughts, Usage
from autoagent.memory.living_memory import LifeRules, LivingMemory
from autoagent.memory.none import TickClock
from autoagent.memory.ranking import DAY, RankingWeights
from autoagent.memory.sqlite.store import LocalStore

BASE, LAST = 3.0, 1  # days, or ticks, of level 0; the last level that has a threshold
ASKED = {"apples": range(1, 31, 3), "pears": (2, 9), "figs": (1, 2)}  # on these days
UNUSED = ("nettles", "thistles", "burdock")
REPLY = Thought(thoughts=Thoughts(text="on"), call=Call("c", "do_nothing", {}), text="", usage=Usage())


def by_days(store: LocalStore) -> tuple[float, Callable[[], float], Callable[[], object]]:
    now = [20_000 * DAY]
    return DAY, lambda: now[0], lambda: now.append(now.pop() + DAY)


def by_ticks(store: LocalStore) -> tuple[float, Callable[[], float], Callable[[], object]]:
    ticks = TickClock()
    return 1.0, ticks.over(store), lambda: ticks.add(REPLY)


@pytest.mark.parametrize("counted", [by_days, by_ticks])
def test_thirty_days_of_recalls_and_sleep_go_by_the_table(tmp_path: Path, counted: Callable[..., tuple]) -> None:
    store = LocalStore(tmp_path, BagOfWords(), random=Random(1))
    unit, clock, next_day = counted(store)
    rules = LifeRules(base=BASE * unit, cap=LAST, grain=unit)
    expected: dict[int, tuple[float, int]] = {}  # time and level
    dreamt_of: list[str] = []

    def threshold(level: int) -> float:
        return BASE * 2**level * unit

    def returned(id: int) -> None:
        t, level = expected[id]
        rises = level == 0 or (level <= LAST and clock() - t > threshold(level))
        expected[id] = (clock(), level + rises)

    def passed_over(id: int) -> None:
        t, level = expected[id]
        if level > LAST or clock() - t <= threshold(level):
            return
        expected[id] = (clock(), level - 1)
        if level == 0:
            del expected[id]

    weights = RankingWeights(diversity=0)
    with LivingMemory(store, rules=rules, weights=weights, clock=clock) as memory:
        for name in (*ASKED, *UNUSED):
            id = memory.add(f"the harvest of {name}")
            assert id is not None
            expected[id] = (clock(), 0)
        lived = []
        for day in range(1, 31):
            next_day()
            for name in (name for name, days in ASKED.items() if day in days):
                recall = memory.recall(f"harvest of {name}", 1)
                for found in recall.memories:
                    returned(found.id)
                for other in recall.left_out:
                    passed_over(other.id)
            forgotten = memory.sleep(None, lambda fragments: dreamt_of.append(fragments) or "a dream").forgotten
            before = set(expected)
            for id in before:
                passed_over(id)
            assert set(forgotten) == before - expected.keys(), f"day {day}"
            assert {m.id: (m.t, m.level) for m in store.listed()} == expected, f"day {day}"
            lived.append({m.text.rpartition(" ")[2]: m.level for m in store.listed()})
        trash = {m.text.rpartition(" ")[2] for m in store.listed(trash=True)}
    levels = {name: [day.get(name) for day in lived] for name in (*ASKED, *UNUSED)}
    assert set(levels["apples"]) == {1}, "what comes back often stays where it is"
    assert levels["pears"][0::7] == [0, 1, 2, 2, 2], "what comes back after a pause is kept for good"
    assert levels["figs"] == [1] * 8 + [0] * 4 + [None] * 18, "what is not used any more falls, and is forgotten"
    assert all(levels[name] == [0] * 3 + [None] * 27 for name in UNUSED)
    assert trash == {"figs", *UNUSED}
    assert dreamt_of and not any("apples" in fragments or "pears" in fragments for fragments in dreamt_of)
