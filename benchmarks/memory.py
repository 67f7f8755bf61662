"""How fast the memory is: search, add and open, beside faiss, usearch, sqlite-vec, chromadb and AutoGPT's LocalCache.

    python benchmarks/memory.py [--sizes 1000,10000,100000] [--dims 256,1536] [--only search,recall,add,open]

Vectors are those of real sentences, taken from the texts that come with this Python and its packages and embedded by
the embedded embedder; for other dimensions than its own they are projected at random. A search is the whole call, from
a query vector to ids and scores. The contestants take turns, so that a busy moment meets all of them, and answer the
same queries; the figures are medians. What is written goes to a temporary folder (TMPDIR) and is removed.

Time and space: the default is done in some minutes; 1,000,000 x 256 needs 5 GB of memory and disk each, and 3 more
minutes; 1,000,000 x 1536 needs 16 GB each, and is not given to LocalCache, which would need 12 more.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import importlib.util
import json
import os
import random
import re
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autoagent.core.memory import RetrievedMemory
from autoagent.memory.embedders.builtin import WordLlamaEmbedder
from autoagent.memory.living_memory import LivingMemory
from autoagent.memory.sqlite.database import connect, writing
from autoagent.memory.sqlite.store import LocalStore
from autoagent.memory.sqlite.vector_space import VectorSpace

K = 10
QUERIES = 100
BATCH = 20_000  # vectors made and stored together
ADDS = 200
FILTERS = (1, 2, 10, 100)  # of so many memories, one passes
THREADS = 2  # for every contestant that lets itself be told
REST = 0.05  # seconds before each turn: the threads of the last one spin on for some time when they have no work

EXACT_AT_MOST = 1.0  # times faiss flat, from 10,000 on
SMALL_AT_MOST = 0.1  # ms, at 1,000
LIMIT_AT_MOST = 1.3  # times bytes / bandwidth, at 1,000,000
BITS_AT_MOST = 0.25  # times faiss flat, at 1,000,000
RECALL_AT_LEAST = 0.99
FILTERED_AT_MOST = 2.5  # times a recall without a filter, where every second memory passes it
RECALL_AT_MOST = {100_000: 3.0, 1_000_000: 10.0}  # ms, a whole recall
ADD_AT_MOST = 1.0  # ms
GROWTH_AT_MOST = 1.2  # the slowest size's add over the fastest's
OPEN_AT_MOST = {100_000: 50.0, 1_000_000: 150.0}  # ms
RESIDENT_AT_MOST = 100.0  # MB beyond the vectors' own

PEERS = {  # module: what to install, and up to which size it is filled within a minute or two
    "faiss": ("faiss-cpu", 10_000_000),
    "usearch": ("usearch", 100_000),
    "sqlite_vec": ("sqlite-vec apsw", 100_000),
    "chromadb": ("chromadb", 100_000),
}

CACHE_AT_MOST = 500_000_000  # values that AutoGPT's LocalCache is given: it holds them beside all the others

Vectors = NDArray[np.float32]
Search = Callable[[Vectors], Sequence[int]]


@dataclass(frozen=True)
class Corpus:
    """Sentences and their vectors; the last QUERIES of them are the queries."""

    texts: list[str]
    vectors: Vectors

    def batches(self, size: int, dim: int) -> Iterator[Vectors]:
        yield from (in_dimensions(self.vectors[at : min(at + BATCH, size)], dim) for at in range(0, size, BATCH))

    def queries(self, dim: int) -> Vectors:
        return in_dimensions(self.vectors[-QUERIES:], dim)


def corpus(size: int) -> Corpus:
    """So many different sentences, the same ones each time; joined by two where the machine has too few."""
    found: dict[str, None] = {}
    for folder in (sysconfig.get_paths()["stdlib"], sysconfig.get_paths()["purelib"]):
        for path in sorted(Path(folder).rglob("*")):
            if path.suffix in {".py", ".pyi", ".md", ".rst", ".txt"} and len(found) < 2 * size:
                text = path.read_text("utf-8", "replace")
                pieces = (piece.strip(" #*-\t\r\0") for piece in re.split(r"\n|(?<=[.!?]) ", text))
                found.update((piece[:500], None) for piece in pieces if len(piece) >= 25 and piece.count(" ") >= 3)
    texts, dice = list(found), random.Random(1)
    while len(found) < size:
        found[f"{dice.choice(texts)} {dice.choice(texts)}"] = None
    texts = dice.sample(list(found), size)
    embedder = WordLlamaEmbedder()
    vectors = np.empty((size, embedder.dim), np.float32)
    for at in range(0, size, BATCH):
        some, _ = embedder.embed(texts[at : at + BATCH])
        vectors[at : at + len(some)] = np.frombuffer(b"".join(some), "<f4").reshape(-1, embedder.dim)
    return Corpus(texts, vectors)


def in_dimensions(vectors: Vectors, dim: int) -> Vectors:
    if dim == vectors.shape[1]:
        return vectors
    projected = vectors @ np.random.default_rng(3).standard_normal((vectors.shape[1], dim), np.float32)
    unit: Vectors = projected / np.maximum(np.linalg.norm(projected, axis=1, keepdims=True), 1e-12)
    return unit


# The contestants: each is given all vectors, and returns its search ------------------------------------------------


def filled(folder: Path, texts: Sequence[str], batches: Iterator[Vectors], name: str, dim: int) -> VectorSpace:
    """A memory with these texts and vectors, as if each had been added."""
    db = connect(folder)
    space, first = VectorSpace.make(db, folder, name, dim), 1
    for vectors in batches:
        ids = range(first, first + len(vectors))
        rows = [(id, text, hashlib.sha256(text.encode()).digest()) for id, text in zip(ids, texts[first - 1 :])]  # noqa: B905
        with writing(db, folder):
            db.executemany("INSERT INTO memories VALUES (?, ?, ?, 'note', '', 1, 0, 0, '', 0, 0)", rows)
            db.executemany("INSERT INTO vectors (memory, space) VALUES (?, 1)", [(id,) for id in ids])
            space.append(dict(zip(ids, vectors, strict=True)))
        first += len(vectors)
    with writing(db, folder):
        db.execute("INSERT INTO words (rowid, text) SELECT id, spaced(text) FROM memories")
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return space


def ours(space: VectorSpace, exact: bool) -> Search:
    def search(query: Vectors) -> Sequence[int]:
        rows, _ = space.search(query, K, exact=exact)
        at = space.memories(rows.tolist(), "m.id")
        return [at[row][0] - 1 for row in rows.tolist()]

    return search


def faiss_flat(batches: Iterator[Vectors], dim: int, folder: Path) -> Search:
    """With as many threads as suit it: for a single query, one can be quicker than two."""
    faiss: Any = importlib.import_module("faiss")
    index = faiss.IndexFlatIP(dim)
    for vectors in batches:
        index.add(vectors)
    faiss.write_index(index, str(folder / "faiss"))

    def search(query: Vectors) -> Sequence[int]:
        found: Sequence[int] = index.search(query[np.newaxis], K)[1][0].tolist()
        return found

    times = {}
    for threads in range(1, THREADS + 1):
        faiss.omp_set_num_threads(threads)
        time.sleep(REST)
        times[threads] = statistics.median(timed(search, index.reconstruct(row))[0] for row in range(10))
    faiss.omp_set_num_threads(min(times, key=times.__getitem__))
    return search


def usearch_hnsw(batches: Iterator[Vectors], dim: int, folder: Path) -> Search:
    usearch: Any = importlib.import_module("usearch.index")
    index, first = usearch.Index(ndim=dim, metric="ip", dtype="f32"), 0
    for vectors in batches:
        index.add(np.arange(first, first + len(vectors)), vectors, threads=THREADS)
        first += len(vectors)
    return lambda query: index.search(query, K, threads=THREADS).keys.tolist()


def sqlite_vec(batches: Iterator[Vectors], dim: int, folder: Path) -> Search:
    apsw, extension = importlib.import_module("apsw"), importlib.import_module("sqlite_vec")
    db: Any = apsw.Connection(str(folder / "sqlite-vec"))
    db.enable_load_extension(True)
    db.load_extension(extension.loadable_path())
    db.execute(f"CREATE VIRTUAL TABLE v USING vec0(embedding float[{dim}] distance_metric=cosine)")
    first = 0
    for vectors in batches:
        with db:
            rows = [(first + at, vector.tobytes()) for at, vector in enumerate(vectors)]
            db.executemany("INSERT INTO v (rowid, embedding) VALUES (?, ?)", rows)
        first += len(vectors)
    find = f"SELECT rowid, distance FROM v WHERE embedding MATCH ? AND k = {K} ORDER BY distance"
    return lambda query: [row[0] for row in db.execute(find, (query.tobytes(),))]


def chroma(batches: Iterator[Vectors], dim: int, folder: Path) -> Search:
    chromadb: Any = importlib.import_module("chromadb")
    settings = chromadb.Settings(anonymized_telemetry=False)
    client = chromadb.PersistentClient(path=str(folder / "chroma"), settings=settings)
    collection = client.create_collection("memories", configuration={"hnsw": {"space": "ip"}}, embedding_function=None)
    first = 0
    for vectors in batches:
        for at in range(0, len(vectors), 5000):
            some = vectors[at : at + 5000]
            collection.add(ids=[str(first + row) for row in range(len(some))], embeddings=some)
            first += len(some)

    def search(query: Vectors) -> Sequence[int]:
        found = collection.query(query_embeddings=[query], n_results=K, include=["distances"])
        return [int(id) for id in found["ids"][0]]

    return search


def local_cache(batches: Iterator[Vectors], dim: int, folder: Path) -> Search:
    """AutoGPT's way: one array, the query a list as the API gives it, all scores sorted."""
    matrix = np.concatenate(list(batches))
    return lambda query: np.argsort(np.dot(matrix, query.tolist()))[-K:][::-1].tolist()


# Measuring ----------------------------------------------------------------------------------------------------------


def by_turns(searches: dict[str, Search], queries: Vectors) -> tuple[dict[str, float], dict[str, list[set[int]]]]:
    """Median milliseconds and the answers. A turn is several queries, and one before them that warms the caches."""
    times: dict[str, list[float]] = {name: [] for name in searches}
    answers: dict[str, list[set[int]]] = {name: [] for name in searches}
    for turn in np.array_split(queries, len(queries) // 10):
        for name, search in searches.items():
            time.sleep(REST)
            search(turn[0])
            for query in turn:
                took, found = timed(search, query)
                times[name].append(took)
                answers[name].append(set(found))
    return {name: 1000 * statistics.median(all) for name, all in times.items()}, answers


def timed(search: Search, query: Vectors) -> tuple[float, Sequence[int]]:
    begin = time.perf_counter()
    found = search(query)
    return time.perf_counter() - begin, found


def truth(texts: Corpus, size: int, dim: int) -> list[set[int]]:
    """The nearest by numpy, batch by batch, as numbers of the corpus."""
    queries, first = texts.queries(dim), 0
    best = [np.empty((0, 2))] * len(queries)
    for vectors in texts.batches(size, dim):
        for number, scores in enumerate(queries @ vectors.T):
            rows = np.argsort(scores)[-K:]
            both = np.concatenate([best[number], np.column_stack([scores[rows], rows + first])])
            best[number] = both[np.argsort(both[:, 0])[-K:]]
        first += len(vectors)
    return [set(rows[:, 1].astype(int).tolist()) for rows in best]


def bandwidth(megabytes: int = 1024) -> float:
    """Bytes per second that two threads read from memory: the best of several passes of numpy."""
    halves = np.array_split(np.ones(megabytes << 18, np.float32), THREADS)
    seconds = []
    with ThreadPoolExecutor(THREADS) as threads:
        for read in (np.max, np.sum, lambda half: np.dot(half, half)) * 5:
            begin = time.perf_counter()
            list(threads.map(read, halves))
            seconds.append(time.perf_counter() - begin)
    return (megabytes << 20) / min(seconds)


def row(what: str, figure: str, note: str, met: bool | None = None) -> None:
    print(f"  {what:34} {figure:>12}  {note}" + ("" if met is None else f" ({'met' if met else 'MISSED'})"), flush=True)


def peers(size: int) -> dict[str, Callable[[Iterator[Vectors], int, Path], Search]]:
    known = {"faiss": faiss_flat, "usearch": usearch_hnsw, "sqlite_vec": sqlite_vec, "chromadb": chroma}
    return {module: make for module, make in known.items() if size <= PEERS[module][1] and installed(module)}


def installed(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


# What is shown ------------------------------------------------------------------------------------------------------


def show_search(texts: Corpus, size: int, dim: int, space: VectorSpace, folder: Path) -> None:
    names = {"faiss": "faiss-cpu IndexFlatIP", "usearch": "usearch HNSW", "sqlite_vec": "sqlite-vec"}
    searches = {"autoagent": ours(space, exact=False), "autoagent, exact": ours(space, exact=True)}
    for module, make in peers(size).items():
        searches[names.get(module, module)] = make(texts.batches(size, dim), dim, folder)
    if size * dim <= CACHE_AT_MOST:
        searches["AutoGPT's LocalCache"] = local_cache(texts.batches(size, dim), dim, folder)
    right = truth(texts, size, dim)
    times, answers = by_turns(searches, texts.queries(dim))
    faiss = times.get("faiss-cpu IndexFlatIP")
    print(f"top {K} of {size:,} x {dim}, ms, recall@{K}")
    for name, ms in times.items():
        pairs = zip(answers[name], right, strict=True)
        recall = statistics.mean(len(found & wanted) / K for found, wanted in pairs)
        ratio = f"{ms / faiss:5.2f} x faiss" if faiss else ""
        met = None
        if name == "autoagent, exact" and (faiss or size <= 1000):
            met = ms <= SMALL_AT_MOST if size <= 1000 else ms / (faiss or ms) <= EXACT_AT_MOST
        if name == "autoagent":
            met = recall >= RECALL_AT_LEAST and (size < 1_000_000 or not faiss or ms / faiss <= BITS_AT_MOST)
        row(name, f"{ms:.3f}", f"recall {recall:.4f}  {ratio}", met)
    if size >= 100_000:
        speed = bandwidth()
        limit = 1000 * size * dim * 4 / speed
        over = times["autoagent, exact"] / limit
        note = f"at {speed / 1e9:.0f} GB/s; exact takes {over:.2f} x that"
        row("bytes / memory bandwidth", f"{limit:.3f}", note, over <= LIMIT_AT_MOST if size >= 1_000_000 else None)


def show_recall(texts: Corpus, size: int, folder: Path) -> None:
    """Whole recalls, as a step does them: embedding, both searches, evidence, ranking, passages, and what fades.

    Each query is new to the process as it is recalled by. Beside it what its two searches cost alone.
    """
    times: dict[str, list[float]] = {"a whole recall": [], "words and vectors (`search`)": []}
    filtered: dict[int, list[float]] = {each: [] for each in FILTERS}
    store, asked = LocalStore(folder, WordLlamaEmbedder()), texts.texts[-QUERIES:]
    with LivingMemory(store, clock=lambda: 1.0) as memory:  # at the time they were stored: nothing fades
        memory.recall("what an earlier step has recalled by", K // 2, pushed=True)
        for query in asked:
            begin = time.perf_counter()
            memory.recall(query, K // 2, pushed=True)
            times["a whole recall"].append(time.perf_counter() - begin)
        for query in asked[: QUERIES // 2]:  # beside each other, so that a busy moment meets all of them
            for each in FILTERS:
                begin = time.perf_counter()
                memory.recall(query, K, wanted=partial(_passes, each))
                filtered[each].append(time.perf_counter() - begin)
        for query in asked:
            begin = time.perf_counter()
            memory.store.search(query, 2 * K)
            times["words and vectors (`search`)"].append(time.perf_counter() - begin)
    if installed("faiss"):
        search = faiss_flat(texts.batches(size, texts.vectors.shape[1]), texts.vectors.shape[1], folder)
        times["vectors alone (faiss, flat)"] = [timed(search, query)[0] for query in texts.vectors[-QUERIES:]]
    print(f"recall from {size:,}, ms (median of {QUERIES})")
    for name, seconds in times.items():
        ms = 1000 * statistics.median(seconds)
        most = RECALL_AT_MOST.get(size) if name == "a whole recall" else None
        row(name, f"{ms:.2f}", "", ms <= most if most else None)
    unfiltered = statistics.median(filtered[1])
    for each, seconds in filtered.items():
        median = statistics.median(seconds)
        note = f"{median / unfiltered:.2f} x the filter that all pass" if each > 1 else ""
        met = median / unfiltered <= FILTERED_AT_MOST if each == 2 else None
        row(f"`recall`, a filter that 1 in {each} passes", f"{1000 * median:.2f}", note, met)


def _passes(each: int, memory: RetrievedMemory) -> bool:
    return memory.id % each == 0


def show_add(texts: Corpus, folders: dict[int, Path], scratch: Path) -> None:
    """Adding at each size, by turns; the embedding of the text is part of it."""
    print(f"add one, durable, ms (median of {ADDS})")
    stores = {size: LocalStore(folder, WordLlamaEmbedder()) for size, folder in folders.items()}
    times: dict[int, list[float]] = {size: [] for size in folders}
    least = []
    with (scratch / "log").open("wb", buffering=0) as log:
        for number in range(ADDS + 1):
            text = f"{number}: {texts.texts[-1 - number]}"
            for size, store in stores.items():
                begin = time.perf_counter()
                store.put(text, t=1.0, kind="note", source="", trusted=True, run="", step=0)
                times[size].append(time.perf_counter() - begin)
            begin = time.perf_counter()
            log.write(b"x" * 4096)
            os.fdatasync(log.fileno())
            least.append(time.perf_counter() - begin)
    for store in stores.values():
        store.close()
    medians = {size: 1000 * statistics.median(all[1:]) for size, all in times.items()}
    for size, ms in medians.items():
        ratio = ms / medians[min(medians)]
        met = ms < ADD_AT_MOST and ratio <= GROWTH_AT_MOST
        row(f"autoagent at {size:,}", f"{ms:.3f}", f"{ratio:.2f} x the smallest's", met)
    row("append and fdatasync of 4 kB", f"{1000 * statistics.median(least):.3f}", "the least that durable costs")
    for size in (size for size in folders if size <= 10_000):
        ms = 1000 * local_cache_add(scratch, texts, size)
        row(f"AutoGPT's LocalCache at {size:,}", f"{ms:.3f}", f"{ms / medians[size]:.1f} x autoagent; not durable")


def local_cache_add(folder: Path, texts: Corpus, size: int) -> float:
    """AutoGPT's way: the vector is joined to a copy of all, and the file of all texts and vectors written anew."""
    try:
        dump: Callable[[Any], bytes] = importlib.import_module("orjson").dumps  # as AutoGPT does
    except ImportError:
        dump = lambda value: json.dumps(value).encode()  # noqa: E731
    embedder, kept, matrix, times = WordLlamaEmbedder(), texts.texts[:size], texts.vectors[:size], []
    for number in range(5):
        begin = time.perf_counter()
        text = f"{number}: {texts.texts[-1 - number]}"
        vector = np.frombuffer(embedder.embed([text])[0][0], "<f4")
        kept, matrix = [*kept, text], np.concatenate([matrix, vector[np.newaxis]])
        (folder / "cache.json").write_bytes(dump({"texts": kept, "embeddings": matrix.tolist()}))
        times.append(time.perf_counter() - begin)
    return statistics.median(times)


CHILD = """
import sys, time
from pathlib import Path
import numpy as np
from autoagent.memory.sqlite.database import connect
from autoagent.memory.sqlite.vector_space import VectorSpace
from autoagent.memory.sqlite.store import LocalStore
from autoagent.memory.embedders.builtin import WordLlamaEmbedder

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 1e6

folder, name, dim = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
query = np.fromfile(folder / "query", "<f4")
begin = time.perf_counter()
store = LocalStore(folder, None)
space = VectorSpace.find(connect(folder), folder, name, dim)
opened = time.perf_counter()
space.search(query, 10)
asked = time.perf_counter()
print(1000 * (opened - begin), 1000 * (asked - opened), resident())
"""

FAISS = """
import sys, time, faiss, numpy as np
begin = time.perf_counter()
index = faiss.read_index(sys.argv[1])
print(1000 * (time.perf_counter() - begin))
"""


def show_open(texts: Corpus, size: int, dim: int, folder: Path, name: str) -> None:
    """In a process of its own each time; the file cache is warm."""
    texts.queries(dim)[0].tofile(folder / "query")
    samples = [figures(CHILD, str(folder), name, str(dim)) for _ in range(5)]
    opened, asked, resident = (statistics.median(column) for column in zip(*samples, strict=True))
    own = size * dim * 4 / 1e6
    most = OPEN_AT_MOST.get(size)
    print(f"open {size:,} x {dim}")
    row("autoagent, open", f"{opened:.1f} ms", "", opened <= most if most else None)
    row("autoagent, first search", f"{asked:.1f} ms", "checksums of what it searches included")
    row(
        "autoagent, resident after it", f"{resident:.0f} MB", f"the vectors' own: {own:.0f} MB",
        resident <= own + RESIDENT_AT_MOST,
    )  # fmt: skip
    if (folder / "faiss").exists():
        ms = statistics.median(figures(FAISS, str(folder / "faiss"))[0] for _ in range(3))
        row("faiss, read_index", f"{ms:.1f} ms", f"autoagent's open is {opened / ms:.2f} x that")


def figures(program: str, *arguments: str) -> list[float]:
    done = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr)
    return [float(figure) for figure in done.stdout.split()]


def main() -> None:
    def numbers(text: str) -> list[int]:
        return sorted({int(number) for number in text.split(",")})

    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sizes", type=numbers, default=[1000, 10_000, 100_000], help="default 1000,10000,100000")
    parser.add_argument("--dims", type=numbers, default=[256, 1536], help="default 256,1536")
    parser.add_argument("--only", default="search,recall,add,open", help="default search,recall,add,open")
    options = parser.parse_args()
    try:
        name, own = WordLlamaEmbedder.name, WordLlamaEmbedder().dim
    except ImportError:
        sys.exit("The sentences are embedded by wordllama: pip install 'autoagent[local]'")
    for module, (packages, _) in PEERS.items():
        if not installed(module):
            print(f"{module} is not here, and left out; to see it: pip install {packages}")
    texts = corpus(max(options.sizes) + QUERIES + ADDS + 1)
    with tempfile.TemporaryDirectory(prefix="autoagent-memory-") as scratch:
        folders: dict[int, Path] = {}
        for dim in options.dims:
            for size in options.sizes:
                folder = Path(scratch, f"{size}x{dim}")
                space = filled(folder, texts.texts, texts.batches(size, dim), name, dim)
                if "search" in options.only:
                    show_search(texts, size, dim, space, folder)
                if "open" in options.only:
                    show_open(texts, size, dim, folder, name)
                if dim == own:
                    folders[size] = folder
                    if "recall" in options.only:
                        show_recall(texts, size, folder)
        if "add" in options.only and folders:
            folders[100] = Path(scratch, "100")
            filled(folders[100], texts.texts, texts.batches(100, own), name, own)
            show_add(texts, dict(sorted(folders.items())), Path(scratch))


if __name__ == "__main__":
    main()
