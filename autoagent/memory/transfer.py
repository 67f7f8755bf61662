"""Export and import a memory as two files: FILE with the texts, and FILE.npy with their vectors.

FILE is JSON Lines. Its first line is a header with the counts of the rest: the memories, the oldest first, then the
trash, and then the dreams. Row i of FILE.npy is the vector of memory i. A missing vector is a zero row, and its memory
has `"vector": false`. The header has the sha256 of FILE.npy, to recognize a mismatched file. Exports do not depend on
the backend, and ids are not kept.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from io import BufferedRandom, BufferedReader
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from autoagent.core.codec import LATEST_TIME, check_time, from_plain
from autoagent.core.durable_files import replacing
from autoagent.core.errors import ModelError, StateError
from autoagent.core.memory import USER, Change, Dream, RetrievedMemory, plain_sources
from autoagent.core.model import Usage
from autoagent.core.protocols import Embedder, MemoryStore
from autoagent.memory.dreams import Journal, as_state_errors
from autoagent.memory.embedders.lazy import LazyEmbedder
from autoagent.text.sanitize import valid_text
from autoagent.text.text_file import open_regular

VERSION = 1
BATCH = 500  # memories whose vectors or levels are handled at once
MAX_LINE_BYTES = 4_000_000
MAX_FILE_BYTES = 1_000_000_000  # including the holes of a sparse file

Listen = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Vectors:
    """The vectors of one embedder by text: rows of `array`, shape (n, dim)."""

    embedder: str
    dim: int
    array: NDArray[np.float32]
    rows: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Export:
    """The contents of the files. The ids of the memories are -1. `t` in the trash is the time of forgetting."""

    memories: tuple[RetrievedMemory, ...]
    trash: tuple[RetrievedMemory, ...]
    dreams: tuple[Dream, ...]
    vectors: Vectors | None


@dataclass(frozen=True, slots=True)
class Counts:
    """Count exported or imported items, except those that were already stored.

    `doubted` counts items imported as untrusted although the file calls them trusted.
    """

    memories: int
    trash: int
    dreams: int
    vectors: int = 0
    doubted: int = 0


class ImportedVectors(LazyEmbedder):
    """Use the vectors of a file if the same embedder made them, and ask the embedder for others. Satisfies Embedder."""

    def __init__(self, embedder: Embedder, vectors: Vectors) -> None:
        super().__init__(lambda: embedder)
        self._vectors = vectors

    def embed(self, texts: Sequence[str]) -> tuple[list[bytes], Usage]:
        file = self._vectors
        is_same = (file.embedder, file.dim) == (self.name, self.dim)
        by_text = {text: file.array[file.rows[text]].tobytes() for text in texts if is_same and text in file.rows}
        others = [text for text in texts if text not in by_text]
        vectors, usage = super().embed(others) if others else ([], Usage())
        by_text |= dict(zip(others, vectors, strict=True))
        return [by_text[text] for text in texts], usage


def export(
    store: MemoryStore, embedder: Embedder, journal: Journal | None, path: Path, listen: Listen = lambda line: None
) -> Counts:
    """Write a memory to `path`, and its vectors by `embedder` next to it. Each file is complete or missing.

    Only their owner can read the files. Raises StateError if the memory cannot be read or a file cannot be written.
    """
    memories = sorted(store.listed(), key=lambda memory: (memory.t, memory.text))
    trash = sorted(store.listed(trash=True), key=lambda memory: (memory.t, memory.text))
    dreams = journal.dreams() if journal is not None else []
    vectors_file = vectors_path(path)
    with as_state_errors(f"{path} cannot be used"), contextlib.ExitStack() as stack:
        has_vectors, identity = [False] * len(memories), None
        if memories:
            try:
                vectors = stack.enter_context(replacing(vectors_file))
                has_vectors = _write_vectors(store, embedder, memories, vectors)
            except ModelError as error:
                listen(f"The vectors are not exported, as the embedder that identifies them cannot be used: {error}")
        if any(has_vectors):
            vectors.flush()
            vectors.seek(0)
            digest = hashlib.file_digest(vectors, "sha256").hexdigest()
            identity = {"embedder": embedder.name, "dim": embedder.dim, "sha256": digest}
        counts = {"memories": len(memories), "trash": len(trash), "dreams": len(dreams)}
        records: Iterable[dict[str, Any]] = chain(
            [{"autoagent_memory": VERSION, **counts, "vectors": identity}],
            (
                {"t": memory.t, **_fields_of(memory), **({} if has_vector else {"vector": False})}
                for memory, has_vector in zip(memories, has_vectors, strict=True)
            ),
            ({"forgotten": memory.t, **_fields_of(memory)} for memory in trash),
            ({"dream": dataclasses.asdict(dream)} for dream in dreams),
        )
        lines = stack.enter_context(replacing(path))
        for record in records:
            line = json.dumps(record, ensure_ascii=False).translate(_LINE_ENDS)
            lines.write(f"{line}\n".encode())
    if identity is None:
        with as_state_errors(f"{path} cannot be used"):
            vectors_file.unlink(missing_ok=True)
    return Counts(len(memories), len(trash), len(dreams), sum(has_vectors))


def vectors_path(path: Path) -> Path:
    """Return the path of the vectors of an export."""
    return path.with_name(path.name + ".npy")


def _write_vectors(
    store: MemoryStore, embedder: Embedder, memories: Sequence[RetrievedMemory], file: BufferedRandom
) -> list[bool]:
    """Write the vectors. Return for each memory whether it has one."""
    npy.write_array_header_1_0(file, {"descr": "<f4", "fortran_order": False, "shape": (len(memories), embedder.dim)})
    has_vectors = []
    for start in range(0, len(memories), BATCH):
        batch = memories[start : start + BATCH]
        vectors = store.vectors([memory.id for memory in batch])
        for memory in batch:
            file.write(vectors.get(memory.id, bytes(4 * embedder.dim)))
            has_vectors.append(memory.id in vectors)
    return has_vectors


_LINE_ENDS = {ord(mark): f"\\u{ord(mark):04x}" for mark in "\x85\u2028\u2029"}
"""JSON does not require escaping these, but many programs take them for line endings."""

_FIELDS = {"text": str, "kind": str, "source": str, "trusted": bool, "level": int, "run": str, "step": int}
"""The exported fields of a memory other than its times, with their types."""

_MAX_INTEGER = 2**31 - 1  # highest level and step that every backend can store


def _fields_of(memory: RetrievedMemory) -> dict[str, Any]:
    return {"stored": memory.made, **{name: getattr(memory, name) for name in _FIELDS}}


def read(path: Path, listen: Listen = lambda line: None) -> Export:
    """Read a whole export. Missing or damaged vectors are left out and reported.

    Raises StateError with file and line for a file that cannot be read or is incomplete, SettingsError for a special
    file.
    """
    with as_state_errors(f"{path} cannot be used"), open_regular(path) as file:
        _check_size(path, file)
        header = _parse_header(path, file.readline(MAX_LINE_BYTES + 1))
        counts = [header[name] for name in ("memories", "trash", "dreams")]
        lines = enumerate(iter(partial(file.readline, MAX_LINE_BYTES + 1), b""), 2)
        records = ((number, _parse_line(path, number, line)) for number, line in lines)
        pairs = [
            (_parse_memory(path, n, record, "t"), record.get("vector", True))
            for n, record in islice(records, counts[0])
        ]
        trash = [_parse_memory(path, n, record, "forgotten") for n, record in islice(records, counts[1])]
        dreams = [_parse_dream(path, n, record) for n, record in islice(records, counts[2])]
        for number, _ in records:
            raise StateError(f"{path}, line {number}: the header counts fewer lines. Export again.")
    if (count := len(pairs) + len(trash) + len(dreams)) != (total := sum(counts)):
        raise StateError(f"{path} ends after {count} of {total} lines; it is incomplete. Export again.")
    rows = {memory.text: row for row, (memory, embedded) in enumerate(pairs) if embedded}
    vectors = _read_vectors(path, header["vectors"], len(pairs), rows, listen) if header.get("vectors") else None
    return Export(tuple(memory for memory, _ in pairs), tuple(trash), tuple(dreams), vectors)


def import_into(store: MemoryStore, journal: Journal | None, exported: Export, *, trusted: bool = False) -> Counts:
    """Add an export to a memory. Repeating an import, whole or partial, changes nothing more.

    Unless `trusted`, a text counts as untrusted if this memory does not already trust it. A text that is already stored
    keeps the later time and the higher level, and is untrusted if either copy is. The export's trash goes to the trash,
    except texts remembered here.
    """
    count_before = store.stats().count
    exported, doubted = (exported, 0) if trusted else _label_untrusted(store, exported)
    for start in range(0, len(exported.memories), BATCH):
        batch = exported.memories[start : start + BATCH]
        store.change([change for memory in batch for change in _restore(store, memory)])
    new = store.stats().count - count_before
    forgotten_at = {memory.text: memory.t for memory in store.listed(trash=True)}
    trashed = 0
    for memory in exported.trash:
        if forgotten_at.get(memory.text, -math.inf) >= memory.t or store.find(memory.text) is not None:
            continue
        store.change(_restore(store, memory))
        if (found := store.find(memory.text)) is not None:
            trashed += store.change([Change(found.id, (found.t, found.level), memory.t, None)])
    dreams: list[Dream] = []
    if journal is not None:
        known_dreams = set(journal.dreams())
        dreams = [dream for dream in exported.dreams if dream not in known_dreams]
        for dream in dreams:
            journal.append(dream)
    return Counts(new, trashed, len(dreams), doubted=doubted)


def without_untrusted(exported: Export) -> Export:
    """Return the export without memories from outside."""
    memories, trash = (tuple(m for m in part if m.trusted) for part in (exported.memories, exported.trash))
    dreams = tuple(dream for dream in exported.dreams if dream.trusted)
    return dataclasses.replace(exported, memories=memories, trash=trash, dreams=dreams)


def _label_untrusted(store: MemoryStore, exported: Export) -> tuple[Export, int]:
    """Return the export with only the trust that this memory shares, and how many items lost theirs."""

    def label(memory: RetrievedMemory) -> RetrievedMemory:
        local = store.find(memory.text)
        if local is not None and local.trusted:
            return memory
        return dataclasses.replace(memory, trusted=False, kind="note" if memory.kind == USER else memory.kind)

    memories, trash = (tuple(map(label, part)) for part in (exported.memories, exported.trash))
    pairs = zip((*exported.memories, *exported.trash), (*memories, *trash), strict=True)
    doubted = sum(before.trusted and not after.trusted for before, after in pairs)
    return dataclasses.replace(exported, memories=memories, trash=trash), doubted


def _restore(store: MemoryStore, memory: RetrievedMemory) -> list[Change]:
    """Store an exported memory. Return the change that sets its level, if necessary."""
    local = store.find(memory.text)
    newer = local if local is not None and local.t > memory.t else memory
    id = store.put(
        memory.text, t=newer.t, stored=newer.made, kind=memory.kind, source=plain_sources(memory.source),
        trusted=memory.trusted, run=newer.run, step=newer.step,
    )  # fmt: skip
    level = local.level if local is not None else 0
    return [] if id is None or memory.level <= level else [Change(id, (newer.t, level), newer.t, memory.level)]


def _check_size(path: Path, file: BufferedReader) -> None:
    if (size := os.fstat(file.fileno()).st_size) > MAX_FILE_BYTES:
        raise StateError(f"{path} has {size:,} bytes; at most {MAX_FILE_BYTES:,} can be imported.")


def _parse_header(path: Path, line: bytes) -> dict[str, Any]:
    record = _parse_line(path, 1, line)
    version = record.get("autoagent_memory")
    if not isinstance(version, int):
        raise StateError(f"{path} is not an exported memory: its first line is not a header.")
    if version > VERSION:
        raise StateError(
            f"{path} was written by a newer autoagent (version {version}, this one reads {VERSION}); update autoagent."
        )
    counts = [record.get(name) for name in ("memories", "trash", "dreams")]
    if not all(type(count) is int and 0 <= count <= MAX_FILE_BYTES for count in counts):
        raise StateError(f"{path}, line 1: the header must count memories, trash and dreams.")
    return record


def _parse_line(path: Path, number: int, line: bytes) -> dict[str, Any]:
    if len(line) > MAX_LINE_BYTES:
        raise StateError(f"{path}, line {number}: is longer than {MAX_LINE_BYTES:,} bytes.")
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:  # invalid JSON, invalid UTF-8, or endless nesting
        raise StateError(f"{path}, line {number}: this is not valid JSON: {error}.") from error
    if not isinstance(record, dict):
        raise StateError(f"{path}, line {number}: this is not a JSON object.")
    return record


def _parse_memory(path: Path, number: int, record: Mapping[str, Any], time: str) -> RetrievedMemory:
    for name, kind in _FIELDS.items():
        if type(record.get(name)) is not kind:
            raise StateError(f"{path}, line {number}: {name!r} must be a {kind.__name__}.")
        # texts are made valid when stored
        if kind is str and name != "text" and record[name] != valid_text(record[name]):
            raise StateError(f"{path}, line {number}: {name!r} contains a lone surrogate.")
    times = {time: record.get(time), "stored": record.get("stored", 0)}  # older exports have no time of storing
    for name, value in times.items():
        if type(value) not in (int, float) or not 0 <= value <= LATEST_TIME:
            raise StateError(f"{path}, line {number}: {name!r} must be a time, in seconds since 1970.")
    if not 0 <= record["level"] <= _MAX_INTEGER or not record["text"].strip():
        raise StateError(f"{path}, line {number}: a memory needs a text and a level of 0 or more.")
    if not 0 <= record["step"] <= _MAX_INTEGER:
        raise StateError(f"{path}, line {number}: 'step' must be 0 or more.")
    t, stored = map(float, times.values())
    return RetrievedMemory(id=-1, score=0.0, t=t, stored=stored, **{name: record[name] for name in _FIELDS})


def _parse_dream(path: Path, number: int, record: Mapping[str, Any]) -> Dream:
    try:
        dream = from_plain(Dream, record.get("dream"))
        check_time(dream.t)
    except ValueError as error:
        raise StateError(f"{path}, line {number}: this is not a dream: {error}.") from error
    if dream.problem != valid_text(dream.problem):  # the text is made valid when stored
        raise StateError(f"{path}, line {number}: 'problem' contains a lone surrogate.")
    return dream


def _read_vectors(
    path: Path, identity: Mapping[str, Any], memories: int, rows: Mapping[str, int], listen: Listen
) -> Vectors | None:
    vectors_file = vectors_path(path)
    try:
        with open_regular(vectors_file) as file:
            _check_size(vectors_file, file)
            if hashlib.file_digest(file, "sha256").hexdigest() != identity["sha256"]:
                raise ValueError("it is damaged, or from another export")
        array = np.load(vectors_file, mmap_mode="r", allow_pickle=False)
        if array.shape != (memories, identity["dim"]) or array.dtype != np.dtype("<f4"):
            raise ValueError("its shape differs from the header")
        return Vectors(str(identity["embedder"]), int(identity["dim"]), array, rows)
    except (OSError, EOFError, AttributeError, ValueError, KeyError, TypeError, StateError) as error:
        listen(f"The vectors in {vectors_file} cannot be used, so the texts are embedded again: {error}.")
        return None
