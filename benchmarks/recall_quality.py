"""How well a question finds the memory that answers it: cosine alone, words alone, and the two together.

    python benchmarks/recall_quality.py [--facts FILE | --faq [FOLDER] [--among]] [--embedder minilm] [--words WEIGHT]

The facts are 300 memories as an agent keeps them, 100 each in English, German and French, many of them near one
another; every one of them has a question. A third of the questions are paraphrases that share almost no word with
their fact, a third are such as people ask, a third name a rare word or number. All 300 facts are in one memory, which
is asked each question once; recall@k is the share of the questions whose fact is among the first k. The embedder is
the embedded one, the two searches are the local store's, `hybrid` is the ranking of the memory with its default
weights. All facts are of one age and level, so that age and level decide nothing here.

`--faq` asks the questions of Python's own FAQ instead, which nobody here wrote, of its answers, as Debian has them
(`apt-get install python3-doc`) or any other copy of the HTML documentation (FOLDER, with `faq` in it). An answer is a
memory without its question. With `--among` the paragraphs of all other pages are memories, too, some 30,000.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from html.parser import HTMLParser
from pathlib import Path

from autoagent.core.memory import LIVES, RetrievedMemory
from autoagent.memory.living_memory import LifeRules, LivingMemory
from autoagent.memory.ranking import RankingWeights
from autoagent.memory.sqlite.store import LocalStore
from autoagent.memory.texts import PART
from autoagent.registry.embedders import EMBEDDERS, EmbedderOpening
from autoagent.settings import Settings

FACTS = Path(__file__).parent / "data" / "facts.jsonl"
DOCS = max(Path("/usr/share/doc").glob("python3*/html/faq/.."), default=Path("/usr/share/doc/python3/html"))  # Debian's
HEADINGS = ("h2", "h3")
PARAGRAPHS = ("p", "dd", "li")
LENGTHS = range(80, 1500)  # characters of a paragraph that is taken
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


class _Answers(HTMLParser):
    """Collects the headings of a page, each with the text below it up to the next one."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[list[str], list[str]]] = []
        self._in_heading, self._in_body = False, False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in HEADINGS:
            self.found.append(([], []))
            self._in_heading = self._in_body = True
        elif dict(attrs).get("role") == "navigation":
            self._in_body = False

    def handle_endtag(self, tag: str) -> None:
        self._in_heading = self._in_heading and tag not in HEADINGS

    def handle_data(self, data: str) -> None:
        if self._in_body:
            self.found[-1][not self._in_heading].append(data)


class _Paragraphs(HTMLParser):
    """Collects the paragraphs of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[list[str]] = [[]]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in PARAGRAPHS:
            self.found.append([])

    def handle_data(self, data: str) -> None:
        self.found[-1].append(data)


def paragraphs(folder: Path) -> list[str]:
    """Return the paragraphs of all pages but those of the FAQ, each once."""
    found: dict[str, None] = {}
    for page in sorted(folder.glob("*/*.html")):
        if page.parent.name != "faq":
            parser = _Paragraphs()
            parser.feed(page.read_text("utf-8"))
            texts = (" ".join("".join(part).split()) for part in parser.found)
            found.update((text, None) for text in texts if len(text) in LENGTHS)
    return list(found)


def read_faq(folder: Path) -> list[Fact]:
    """Return the questions of the FAQ, in style its pages, and their answers as facts."""
    facts = []
    for page in sorted((folder / "faq").glob("*.html")):
        parser = _Answers()
        parser.feed(page.read_text("utf-8"))
        for number, (heading, body) in enumerate(parser.found):
            question, answer = (" ".join("".join(part).split()).rstrip("\u00b6") for part in (heading, body))
            if question.endswith("?") and answer:
                question = re.sub(r"^[\d.]+ ", "", question)
                facts.append(Fact(f"{page.stem} {number}", "en", page.stem, answer[:PART], question))
    if not facts:
        sys.exit(f"There is no FAQ in {folder}: apt-get install python3-doc, or name a copy of Python's documentation.")
    return facts


def searches(store: LocalStore, words: float | None = None) -> Mapping[str, Search]:
    """The contestants by name; `words` is their weight where it is not the usual one."""
    weights, n = RankingWeights(), max(DEPTHS)
    weights = weights if words is None else replace(weights, words=words)

    memory = LivingMemory(store, rules=LifeRules(lives=LIVES), weights=weights, clock=lambda: NOW)
    return {
        "cosine": lambda q: store.search(q, n).near,
        "words": lambda q: store.search(q, n).worded,
        "hybrid": lambda q: memory.recall(q, n).memories,
    }


def places(facts: Sequence[Fact], search: Search) -> dict[str, int]:
    """By the fact's id, its place among what its question found, from 1; none where it is not among them."""
    found = {fact.id: [memory.text for memory in search(fact.question)] for fact in facts}
    return {fact.id: found[fact.id].index(fact.text) + 1 for fact in facts if fact.text in found[fact.id]}


def recall(places: Mapping[str, int], facts: Sequence[Fact], depth: int) -> float:
    return sum(places.get(fact.id, depth + 1) <= depth for fact in facts) / len(facts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--facts", type=Path, default=FACTS, metavar="FILE", help="JSON lines; default: ours")
    parser.add_argument("--faq", type=Path, nargs="?", const=DOCS, metavar="FOLDER", help="Python's FAQ")
    parser.add_argument(
        "--among", action="store_true", help="with all paragraphs of the documentation as memories, too"
    )
    parser.add_argument("--words", type=float, metavar="WEIGHT", help="of words beside meaning; default: as ever")
    parser.add_argument("--embedder", default="embedded", help="default %(default)s")
    options = parser.parse_args()
    facts = read_faq(options.faq) if options.faq else read_facts(options.facts)
    kind = EMBEDDERS.find(options.embedder)
    words = kind.words if options.words is None else options.words
    embedder = kind.open(EmbedderOpening(Settings().model_settings, "", None))
    with tempfile.TemporaryDirectory() as folder, LocalStore(Path(folder), embedder) as store:
        others = paragraphs(options.faq) if options.faq and options.among else []
        for text in (*(fact.text for fact in facts), *others):
            store.put(text, t=NOW, kind="note", source="", trusted=True, run="", step=0)
        found = {name: places(facts, search) for name, search in searches(store, words).items()}
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
