"""Whether the memory is worth having: the benchmarks' figures, which do not depend on the machine."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from autoagent.memory.embedders.builtin import open_builtin
from autoagent.memory.living_memory import LivingMemory
from autoagent.memory.sqlite.store import LocalStore

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


pytestmark = pytest.mark.slow  # each runs a benchmark


def printed_by(script: str, *arguments: str) -> str:
    command = [sys.executable, BENCHMARKS / script, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_words_and_meaning_together_find_more_than_each_alone() -> None:
    table = printed_by("recall_quality.py")
    line = next(line for line in table.splitlines() if line.startswith("all"))
    found = [float(share) for share in re.findall(r"\d\.\d+", line)]
    cosine, words, hybrid = found[0:3], found[3:6], found[6:9]  # each at 1, 5 and 10
    assert hybrid[1] >= max(cosine[1], words[1]), table
    assert hybrid[1] >= 0.7, table


FAQ = """<div role="main"><section><h1>{0} FAQ</h1><p>About {0}.</p>
<section><h2><a>1.</a> How do ferries {1}?<a>\u00b6</a></h2><p>They {1} at the quay of {0}.</p></section>
<section><h2>2. No question</h2><p>Nobody asks for this.</p></section></section></div>
<div role="navigation"><p>Ferries {1} in the navigation too.</p></div>"""


def test_the_questions_of_a_faq_find_their_answers_among_the_other_pages(tmp_path: Path) -> None:
    for name, pages in {"faq": ("load", "turn", "land"), "library": ("sink",)}.items():
        (tmp_path / name).mkdir()
        for verb in pages:
            (tmp_path / name / f"{verb}.html").write_text(FAQ.format(f"{verb}ing", verb), "utf-8")
    for among in ([], ["--among"]):
        table = printed_by("recall_quality.py", "--faq", str(tmp_path), *among)
        groups = {line.split()[0]: line.split()[-3:] for line in table.splitlines()[1:]}
        assert groups == dict.fromkeys(("lang", "land", "load", "turn", "all"), ["1.000"] * 3), table
        assert re.search(r"^all +3 ", table, re.M), "one question of each page, and none of the other pages"
    nothing = subprocess.run(
        [sys.executable, BENCHMARKS / "recall_quality.py", "--faq", tmp_path / "none"], capture_output=True, text=True
    )
    assert nothing.returncode == 1 and "There is no FAQ in" in nothing.stderr


def test_the_facts_are_what_the_figures_say() -> None:
    facts = [json.loads(line) for line in (BENCHMARKS / "data" / "facts.jsonl").read_text().splitlines()]
    assert Counter(fact["lang"] for fact in facts) == {"en": 100, "de": 100, "fr": 100}
    assert len({fact["text"] for fact in facts}) == len({fact["question"] for fact in facts}) == len(facts)
    shared = [len(words(fact["text"]) & words(fact["question"])) for fact in facts if fact["style"] == "paraphrase"]
    assert sum(shared) / len(shared) < 1, "paraphrases share hardly a word of five letters with their facts"


def words(text: str) -> set[str]:
    return set(re.findall(r"\w{5,}", text.lower()))


def test_after_thirty_days_what_was_used_is_there_and_what_was_not_is_gone() -> None:
    table = printed_by("thirty_days.py")
    used, on_day_0, on_day_30 = re.search(r"used +of (\d+)[\s\S]*: (\d+) on day 0, (\d+) on day 30", table).groups()
    left, early = re.search(r"^day 30 +(\d+) +\(\d\.\d\) +(\d+)", table, re.MULTILINE).groups()
    assert int(left) == int(used) > 0, table
    assert int(early) < int(used) / 2, "what is no longer used fades as well"
    assert int(on_day_30) >= int(on_day_0) > 0, table
    gone, unused, trashed = map(int, re.search(r"gone: (\d+) of (\d+), .*: (\d+)", table).groups())
    assert gone == unused == trashed > 100, table


def test_what_one_run_has_learnt_reaches_the_next_with_thousands_of_steps_in_between() -> None:
    table = printed_by("two_runs.py", "--between", "2000")
    facts, useless = re.findall(r"^ +2000 +([\d ]+) of 6 +([\d ]+)$", table, re.M)[0]
    assert len(facts.split()) == len(useless.split()) == 5, table
    assert min(map(int, facts.split())) >= 5, table
    assert max(map(int, useless.split())) <= 60, table


def test_what_was_corrected_is_told_apart_with_thousands_of_steps_in_between(tmp_path: Path) -> None:
    sys.path.insert(0, str(BENCHMARKS))
    try:
        from two_runs import others, put_at_once
    finally:
        sys.path.remove(str(BENCHMARKS))
    with LivingMemory(LocalStore(tmp_path, open_builtin())) as memory:
        old = memory.add("The address to deploy the shop to is https://alpha.example.org.")
        put_at_once(memory.store, list(others(20_000)))
        new = memory.add("The address to deploy the shop to is https://omega.example.org now.")
        found = memory.recall("Deploy the shop", 8, pushed=True).memories
        assert old is not None
        assert memory.store.of([old])[0].superseded_by == new
    assert found[0].id == new and found[0].superseded_by is None
    assert [other.id for other in found if other.superseded_by is not None] in ([], [old])


def test_thirty_days_of_work_leave_what_was_chosen_and_little_else() -> None:
    told = printed_by("thirty_days.py", "--work")
    lines = told.splitlines()
    assert len(lines) == 2, "with a sleep each night, and without"
    for line in lines:
        found = {kind: (int(left), int(made)) for kind, left, made in re.findall(r"(\w+) (\d+) of (\d+)", line)}
        assert all(found[kind][0] == found[kind][1] > 0 for kind in ("note", "feedback", "pinned")), line
        assert found["step"][0] <= 0.2 * found["step"][1], line
