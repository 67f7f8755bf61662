"""A year of work over the real store, by a clock that the test sets: a run every third day, and a nap after it."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from bag_of_words import BagOfWords

from autoagent.core.memory import LIVES, RUN_RECORD
from autoagent.memory.living_memory import LifeRules, LivingMemory
from autoagent.memory.ranking import DAY
from autoagent.memory.sqlite.store import LocalStore

QUARTER = 91  # days
DAYS = range(0, 4 * QUARTER, 3)  # a project is worked on every sixth day, and two at a time
USED = "The staging database listens on port 5433."
PINNED = "The build of the installer took nine minutes."
NOTES = [f"The key of cupboard {number} hangs behind door {number}." for number in range(20)]
UNUSED = [f"A lecture on bird number {number} filled hall {number}." for number in range(30)]


@pytest.mark.slow
def test_a_year_of_use_is_bounded_and_keeps_what_is_used(tmp_path: Path) -> None:
    day = 0
    store = LocalStore(tmp_path, BagOfWords(), random=Random(1))
    with LivingMemory(store, rules=LifeRules(lives=LIVES), clock=lambda: (20_000 + day) * DAY) as memory:
        assert memory.pin(memory.add(PINNED, kind="step") or 0)
        for text in (USED, *UNUSED, *NOTES):
            memory.add(text, kind="note" if text in NOTES else "fact", durable=False)
        counts = []
        for day in DAYS:
            project = f"{day // QUARTER}x{day % 6}"
            goal = f"novel{project} painter{project} harbour{project}"
            step = f"{goal}: write_to_file page {day}"
            memory.recall(step, 5, pushed=True)
            memory.add(step, run=f"run-{day}", step=1, kind="step", durable=False)
            assert USED in {found.text for found in memory.recall("the port of the staging database", 3).memories}
            memory.recall(goal)
            memory.add(f"{RUN_RECORD}{goal}\nIt came to: day {day}", kind="fact", run=f"run-{day}", durable=False)
            memory.nap()
            counts.append(len(memory))
        texts = {found.text for found in store.listed()}
    assert texts >= {USED, PINNED, *NOTES} and texts.isdisjoint(UNUSED)
    records = {int(text.rpartition(" day ")[2]) for text in texts if text.startswith(RUN_RECORD)}
    assert min(records) >= QUARTER, "those of the first quarter were used, and nobody has asked for them since"
    assert {day for day in DAYS if day >= 3 * QUARTER} <= records, "a record lives for 91 days in any case"
    assert max(counts) <= 110, f"a record for each of 61 runs, and the rest: {counts[30::30]}"
