"""What the agent gets of its memory: by `recall`, and in its prompt without asking, on data that nobody here wrote.

    python benchmarks/memory_quality.py [--faq [FOLDER]] [--locomo FOLDER] [--nl2bash FOLDER] [--squad FILE[:FILE]]
                                        [--prefeval FOLDER] [--noise 2000]
                                        [--split dev|test|all] [--embedder embedded,minilm] [--most 300]

Each set is a memory and questions whose answers are known:

- `faq`: Python's FAQ, each answer a memory (`apt-get install python3-doc`)
- `locomo`: the dialogues of LoCoMo (snap-research/locomo), each turn a memory, each dialogue a memory of its own
- `nl2bash`: the commands of NL2Bash (`all.nl`, `all.cm`), asked for by their descriptions
- `squad`: the paragraphs of a file in SQuAD's format, such as XQuAD's (google-deepmind/xquad), asked by its questions,
  or by those of a second file in another language (`xquad.de.json:xquad.en.json`)
- `prefeval`: the preferences of PrefEval (amazon-science/PrefEval), each a memory, asked by requests they matter to
- `noise`: the six facts of `two_runs.py` among real steps made of what the other sets hold; asked by its goals

For `recall(question)`: the share of the right memories among the first ten, and of the ten how many are right
(precision). For the prompt: how much of the answers is pushed for each goal, and how many others. Beside it the same
for words alone, stemmed (FTS5 with Porter), for the embedder's cosine alone, and for chromadb and mem0 (without its
model: each text as it is, with the same embedder) where they are installed. Each question belongs to one of two halves
by its digest: choose numbers on `dev`, and tell those of `test`. No number was chosen on `squad` or `prefeval`.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sqlite3
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from recall_quality import DOCS, read_faq
from two_runs import GOALS, put_at_once

from autoagent.core.memory import LIVES
from autoagent.core.model import Usage
from autoagent.core.protocols import Embedder
from autoagent.memory.embedders.lazy import scale_of
from autoagent.memory.living_memory import LifeRules, LivingMemory
from autoagent.memory.ranking import RankingWeights
from autoagent.memory.sqlite.store import LocalStore
from autoagent.memory.texts import PART
from autoagent.registry.embedders import EMBEDDERS, EmbedderOpening
from autoagent.settings import Settings

DEPTH = 10
PUSHED = 8  # memories by the goals
SIX = (
    "read_file returned: Each request to the API of Meridian names the tenant in a header, X-Meridian-Tenant: acme-7.",
    "The staging database of the orders service listens on port 5433, not on 5432.",
    "The accountant wants the totals of invoices rounded half up, to whole cents.",
    "read_file returned: 02:03 error E1187: the nightly export stops at names with accents. 02:03 remedy: run the "
    "nightly export with LC_ALL=C.UTF-8",
    "The weekly report of the orders goes to out/weekly.md, in British English.",
    "read_file returned: files.example holds the archive, omega.example is the build server; alpha was switched off",
)
ANSWERS = ((0,), (1,), (2,), (3,), (4, 5))  # the facts that each of GOALS needs


@dataclass(frozen=True)
class Questions:
    """A memory's texts, and for each question the places of the texts that answer it."""

    name: str
    texts: list[str]
    asked: list[tuple[str, frozenset[int]]]


def faq(folder: Path) -> Iterator[Questions]:
    facts = read_faq(folder)
    yield Questions("faq", [f.text for f in facts], [(f.question, frozenset((n,))) for n, f in enumerate(facts)])


def locomo(folder: Path) -> Iterator[Questions]:
    """Yield each dialogue; questions whose evidence is not in it, or that have no answer, are left out."""
    for path in sorted(folder.rglob("[0-9]*.json")):
        dialogue = json.loads(path.read_text("utf-8"))
        turns: dict[str, str] = {}
        for name, said in dialogue.items():
            if name.startswith("session_") and name.count("_") == 1 and isinstance(said, list):
                when = dialogue.get(f"{name}_date_time", "")
                turns |= {turn["dia_id"]: f"{turn['speaker']} ({when}): {turn['text']}" for turn in said}
        places = {id: place for place, id in enumerate(turns)}
        asked = []
        for one in dialogue["qa"]:
            evidence = frozenset(places[id] for id in one.get("evidence", ()) if id in places)
            if evidence and one.get("answer"):
                asked.append((one["question"], evidence))
        yield Questions("locomo", list(turns.values()), asked)


def nl2bash(folder: Path, most: int = 3000) -> Iterator[Questions]:
    pairs: dict[str, list[str]] = {}
    described = (folder / "all.nl").read_text("utf-8").splitlines()
    for text, command in zip(described, (folder / "all.cm").read_text("utf-8").splitlines(), strict=False):
        pairs.setdefault(command.strip()[:PART], []).append(text)
    commands = sorted(pairs, key=_digest)[:most]
    yield Questions(
        "nl2bash", commands, [(pairs[command][0], frozenset((place,))) for place, command in enumerate(commands)]
    )


def squad(texts: Path, questions: Path) -> Iterator[Questions]:
    def paragraphs(path: Path) -> list[dict[str, Any]]:
        return [one for article in json.loads(path.read_text("utf-8"))["data"] for one in article["paragraphs"]]

    asked = [(qa["question"], frozenset((n,))) for n, one in enumerate(paragraphs(questions)) for qa in one["qas"]]
    name = texts.stem if texts == questions else f"{texts.stem}:{questions.suffixes[0][1:]}"
    yield Questions(name, [one["context"] for one in paragraphs(texts)], sorted(asked, key=lambda one: _digest(one[0])))


def prefeval(folder: Path) -> Iterator[Questions]:
    pairs = [
        (one["preference"], one["question"])
        for path in sorted((folder / "benchmark_dataset" / "explicit_preference").glob("*.json"))
        for one in json.loads(path.read_text("utf-8"))
    ]
    places = {text: place for place, text in enumerate(dict.fromkeys(text for text, _ in pairs))}
    asked = [(question, frozenset((places[text],))) for text, question in pairs]
    yield Questions("prefeval", list(places), sorted(asked, key=lambda one: _digest(one[0])))


def noise(sets: Sequence[Questions], count: int) -> Iterator[Questions]:
    """Yield the six facts among texts of the other sets, as an agent's steps have them."""
    steps = [f"I go on. {_step(one.name, text)}" for one in sets for text in one.texts]
    some = sorted(dict.fromkeys(steps), key=_digest)[:count]
    asked = [(goal, frozenset(facts)) for goal, facts in zip(GOALS, ANSWERS, strict=True)]
    yield Questions(f"six+{len(some)}", [*SIX, *some], asked)


def _step(name: str, text: str) -> str:
    if name == "nl2bash":
        return f"execute_shell(command_line={text!r})\nexecute_shell returned: exit code 0"
    return f"read_file(filename='{name}.txt')\nread_file returned: {text[:600]}"


def _digest(text: str) -> int:
    return zlib.crc32(text.encode())


class Once:
    """An embedder that keeps the vectors of the texts that it has seen, as each contestant asks for the same ones."""

    def __init__(self, embedder: Embedder) -> None:
        self.name, self.dim, self.scale = embedder.name, embedder.dim, scale_of(embedder)
        self._embedder = embedder
        self._vectors: dict[str, bytes] = {}

    def embed(self, texts: Sequence[str]) -> tuple[list[bytes], Usage]:
        new = [text for text in dict.fromkeys(texts) if text not in self._vectors]
        self._vectors |= dict(zip(new, self._embedder.embed(new)[0], strict=True))
        return [self._vectors[text] for text in texts], Usage()


# Contestants -----------------------------------------------------------------------------------------------------

Search = Callable[[str], list[int]]
"""The places of the first DEPTH texts for a question."""


def stemmed(texts: Sequence[str]) -> Search:
    db = sqlite3.connect(":memory:")
    db.execute("CREATE VIRTUAL TABLE t USING fts5(text, tokenize = 'porter unicode61 remove_diacritics 2')")
    db.executemany("INSERT INTO t (rowid, text) VALUES (?, ?)", list(enumerate(texts)))

    def search(question: str) -> list[int]:
        words = " OR ".join(f'"{word}"' for word in dict.fromkeys(question.replace('"', " ").split()))
        query = "SELECT rowid FROM t WHERE t MATCH ? ORDER BY rank LIMIT ?"
        return [row[0] for row in db.execute(query, (words, DEPTH))] if words else []

    return search


def cosine(texts: Sequence[str], embedder: Embedder) -> Search:
    vectors = np.frombuffer(b"".join(embedder.embed(list(texts))[0]), "<f4").reshape(len(texts), -1)

    def search(question: str) -> list[int]:
        near = vectors @ np.frombuffer(embedder.embed([question])[0][0], "<f4")
        return list(map(int, np.argsort(-near, kind="stable")[:DEPTH]))

    return search


def chroma(texts: Sequence[str], embedder: Embedder) -> Search:
    import chromadb

    def vectors(some: Sequence[str]) -> list[Any]:
        return [np.frombuffer(vector, "<f4").tolist() for vector in embedder.embed(list(some))[0]]

    client: Any = chromadb.EphemeralClient()
    collection = client.get_or_create_collection(f"texts-{_digest(texts[0])}", metadata={"hnsw:space": "cosine"})
    for start in range(0, len(texts), 1000):
        some = list(texts[start : start + 1000])
        ids = [str(n) for n in range(start, start + len(some))]
        collection.add(ids=ids, embeddings=vectors(some), documents=some)
    return lambda question: [
        int(id) for id in collection.query(query_embeddings=vectors([question]), n_results=DEPTH)["ids"][0]
    ]


def mem0(texts: Sequence[str], embedder: Embedder, folder: Path) -> Search:
    from mem0 import Memory

    class Same:
        """The embedder of the others, as mem0 asks for it."""

        def embed(self, text: str, *_: object) -> list[float]:
            return self.embed_batch([text])[0]

        def embed_batch(self, some: Sequence[str], *_: object) -> list[list[float]]:
            return [np.frombuffer(vector, "<f4").tolist() for vector in embedder.embed(list(some))[0]]

    vectors = {"path": str(folder / "vectors"), "embedding_model_dims": embedder.dim}
    no_key = {"provider": "openai", "config": {"api_key": "none"}}  # neither is ever asked
    memory: Any = Memory.from_config(
        {
            "vector_store": {"provider": "qdrant", "config": vectors},
            "embedder": no_key,
            "llm": no_key,
            "history_db_path": str(folder / "history.db"),
        }
    )
    memory.embedding_model = Same()
    for place, text in enumerate(texts):
        memory.add(text, user_id="user", metadata={"place": place}, infer=False)

    def search(question: str) -> list[int]:
        found = memory.search(question, top_k=DEPTH, filters={"user_id": "user"})
        return [one["metadata"]["place"] for one in found["results"]]

    return search


# Measuring -------------------------------------------------------------------------------------------------------


@dataclass
class Score:
    """Sums over questions: the part of the right ones found, and how many were shown and right."""

    asked: int = 0
    found: float = 0.0
    first: int = 0
    right: int = 0
    shown: int = 0

    def add(self, places: Sequence[int], right: frozenset[int]) -> None:
        hits = right & set(places)
        self.asked += 1
        self.found += len(hits) / len(right)
        self.first += bool(places) and places[0] in right
        self.right += len(hits)
        self.shown += len(places)

    def line(self) -> str:
        asked, shown = max(self.asked, 1), max(self.shown, 1)
        wrong = (self.shown - self.right) / asked
        return (
            f"found {self.found / asked:.3f}  first {self.first / asked:.3f}  precision {self.right / shown:.3f}"
            f"  others a question {wrong:.2f}"
        )


def measure(sets: Sequence[Questions], name: str, embedder: Embedder, words: float | None, most: int) -> None:
    """Print what each contestant finds in sets of one name."""
    scores: dict[str, Score] = {}
    for one in sets:
        with tempfile.TemporaryDirectory() as folder, LocalStore(Path(folder), embedder) as store:
            put_at_once(store, list(dict.fromkeys(one.texts)))
            places = {text: place for place, text in enumerate(one.texts)}
            weights = RankingWeights() if words is None else RankingWeights(words=words)
            living = LivingMemory(store, rules=LifeRules(lives=LIVES), weights=weights)

            def ours(question: str, pushed: bool, memory: LivingMemory, places: dict[str, int]) -> list[int]:
                found = memory.recall(question, PUSHED if pushed else DEPTH, pushed=pushed).memories
                texts = {whole.id: whole.text for whole in memory.store.of([part.id for part in found])}
                return [places[texts[part.id]] for part in found]

            searches: dict[str, Search] = {
                "recall": partial(ours, pushed=False, memory=living, places=places),
                "pushed": partial(ours, pushed=True, memory=living, places=places),
                "stemmed words": stemmed(one.texts),
                "cosine": cosine(one.texts, embedder),
            }
            if importlib.util.find_spec("chromadb"):
                searches["chromadb"] = chroma(one.texts, embedder)
            if importlib.util.find_spec("mem0"):
                searches["mem0"] = mem0(one.texts, embedder, Path(folder) / "mem0")
            for question, right in one.asked[:most]:
                for contestant, search in searches.items():
                    scores.setdefault(contestant, Score()).add(search(question), right)
    for contestant, score in scores.items():
        print(f"{name:10} {embedder.name[:18]:18} {score.asked:5}  {contestant:14} {score.line()}", flush=True)


def half(one: Questions, split: str) -> Questions:
    kept = [(q, right) for q, right in one.asked if split == "all" or (_digest(q) & 1) == (split == "test")]
    return Questions(one.name, one.texts, kept)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--faq", type=Path, nargs="?", const=DOCS, metavar="FOLDER")
    parser.add_argument("--locomo", type=Path, metavar="FOLDER")
    parser.add_argument("--nl2bash", type=Path, metavar="FOLDER")
    parser.add_argument("--squad", action="append", default=[], metavar="FILE[:FILE]", help="texts, and questions")
    parser.add_argument("--prefeval", type=Path, metavar="FOLDER")
    parser.add_argument("--noise", default="", metavar="COUNTS", help="real steps around the six facts: 0,200,2000")
    parser.add_argument("--split", choices=("dev", "test", "all"), default="test", help="default %(default)s")
    parser.add_argument("--embedder", default="embedded", help="names, by commas; default %(default)s")
    parser.add_argument("--most", type=int, default=300, metavar="N", help="questions of a set; default %(default)s")
    options = parser.parse_args()
    sets = [*(faq(options.faq) if options.faq else ()), *(locomo(options.locomo) if options.locomo else ())]
    sets += nl2bash(options.nl2bash) if options.nl2bash else ()
    for texts, _, questions in (named.partition(":") for named in options.squad):
        sets += squad(Path(texts), Path(questions or texts))
    sets += prefeval(options.prefeval) if options.prefeval else ()
    groups: dict[str, list[Questions]] = {}
    for one in sets:
        groups.setdefault(one.name, []).append(half(one, options.split))
    for count in filter(None, options.noise.split(",")):
        [one] = noise(sets, int(count))
        groups[one.name] = [one]
    if not groups:
        parser.error("name at least one set: --faq, --locomo, --nl2bash or --noise 0")
    for name in options.embedder.split(","):
        kind = EMBEDDERS.find(name)
        embedder = Once(kind.open(EmbedderOpening(Settings().model_settings, "", None)))
        for group, members in groups.items():
            measure(members, group, embedder, kind.words, max(1, options.most // len(members)))


if __name__ == "__main__":
    main()
