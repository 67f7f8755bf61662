"""How well a question finds the memory that answers it: cosine alone, words alone, and the two together.

    python benchmarks/recall_quality.py [--facts FILE] [--embedder embedded]

The facts are 300 memories as an agent keeps them, 100 each in English, German and French, many of them near one
another; every one of them has a question. A third of the questions are paraphrases that share almost no word with
their fact, a third are such as people ask, a third name a rare word or number. All 300 facts are in one memory, which
is asked each question once; recall@k is the share of the questions whose fact is among the first k. The embedder is
the embedded one, the two searches are the local store's, `hybrid` is the ranking of the memory with its default
weights. All facts are of one age and level, so that age and level decide nothing here.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from autoagent.config.settings import Settings
from autoagent.core.memory import RetrievedMemory
from autoagent.memory.ranking import RankingWeights, rank
from autoagent.memory.sqlite.store import LocalStore
from autoagent.registry.embedders import EMBEDDERS, EmbedderOpening

FACTS = Path(__file__).parent / "data" / "facts.jsonl"
DEPTHS = (1, 5, 10)
NOW = 1_700_000_000.0  # seconds since the epoch


@dataclass(frozen=True, slots=True)
class Fact:
    """A memory and the question that it answers; `style`: paraphrase, ordinary or named."""

    id: str
    lang: str
    style: str
    text: str
    question: str


Search = Callable[[str], Sequence[RetrievedMemory]]
"""The best memories for a question, at least the deepest of DEPTHS where there are so many."""


def read_facts(path: Path) -> list[Fact]:
    return [Fact(**json.loads(line)) for line in path.read_text().splitlines()]


def searches(store: LocalStore, words: float | None = None) -> Mapping[str, Search]:
    """The contestants by name; `words` is their weight where it is not the usual one."""
    weights, n = RankingWeights(), max(DEPTHS)
    weights = weights if words is None else replace(weights, words=words)

    def hybrid(question: str) -> Sequence[RetrievedMemory]:
        near, worded = (search(question, n * weights.breadth) for search in (store.near, store.worded))
        vectors = store.vectors([memory.id for memory in (*near, *worded)])
        return rank(near, worded, n=n, now=NOW, weights=weights, vectors=vectors).memories

    return {"cosine": lambda q: store.near(q, n), "words": lambda q: store.worded(q, n), "hybrid": hybrid}


def places(facts: Sequence[Fact], search: Search) -> dict[str, int]:
    """By the fact's id, its place among what its question found, from 1; none where it is not among them."""
    found = {fact.id: [memory.text for memory in search(fact.question)] for fact in facts}
    return {fact.id: found[fact.id].index(fact.text) + 1 for fact in facts if fact.text in found[fact.id]}


def recall(places: Mapping[str, int], facts: Sequence[Fact], depth: int) -> float:
    return sum(places.get(fact.id, depth + 1) <= depth for fact in facts) / len(facts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--facts", type=Path, default=FACTS, metavar="FILE", help="JSON lines; default: ours")
    parser.add_argument("--embedder", default="embedded", help="default %(default)s")
    options = parser.parse_args()
    facts, kind = read_facts(options.facts), EMBEDDERS.find(options.embedder)
    embedder = kind.open(EmbedderOpening(Settings(), "", None))
    with tempfile.TemporaryDirectory() as folder, LocalStore(Path(folder), embedder) as store:
        for fact in facts:
            store.put(fact.text, t=NOW, kind="note", source="", trusted=True, run="", step=0)
        found = {name: places(facts, search) for name, search in searches(store, kind.words).items()}
    groups = {f"lang {lang}": [f for f in facts if f.lang == lang] for lang in dict.fromkeys(f.lang for f in facts)}
    groups |= {style: [f for f in facts if f.style == style] for style in dict.fromkeys(f.style for f in facts)}
    groups["all"] = facts
    depths = "  ".join(f"@{depth:<4}" for depth in DEPTHS)
    print(f"{'recall':12}{'n':>5}   " + "   ".join(f"{name:8}{depths}" for name in found))
    for group, members in groups.items():
        columns = (
            f"{'':8}" + "  ".join(f"{recall(at, members, depth):.3f}" for depth in DEPTHS) for at in found.values()
        )
        print(f"{group:12}{len(members):5}   " + "   ".join(columns))


if __name__ == "__main__":
    main()
