"""Files to import that were damaged, or written by a stranger: what is wrong is named, and nothing of it is kept."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from bag_of_words import BagOfWords
from fuzzing import MANY, perhaps_spoilt
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from autoagent.core.errors import StateError
from autoagent.memory import transfer
from autoagent.memory.dreams import Journal
from autoagent.memory.sqlite.store import LocalStore

MEMORY: dict[str, Any] = {
    "t": 1.7e9, "text": "red apples", "kind": "note", "source": "user", "trusted": True, "level": 2, "run": "r",
    "step": 3,
}  # fmt: skip
DREAM: dict[str, Any] = {
    "text": "of bread", "forgotten": [1], "fallen": [], "t": 1.7e9, "trusted": True, "problem": "", "private": False,
}  # fmt: skip
ODD: list[Any] = [
    None, True, -1, 0, 1.5, 2**31, 2**63, 10**400, 1e300, float("nan"), float("inf"), "", " ", "x", "\ud800", "\0", [],
    {}, [None], {"a": 1}, ["x"], [2**70],
]  # fmt: skip


def lines(memory: object, forgotten: object, dream: object, **header: object) -> list[str]:
    first = {"autoagent_memory": 1, "memories": 1, "trash": 1, "dreams": 1, "vectors": None, **header}
    return [json.dumps(record) for record in (first, memory, forgotten, {"dream": dream})]


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """An export with one to three values in it replaced, and perhaps cut, or with bytes that are no text."""
    forgotten = {"forgotten": MEMORY["t"], **{key: value for key, value in MEMORY.items() if key != "t"}}
    records = [dict(MEMORY), {**forgotten, "text": "old bread"}, dict(DREAM)]
    header: dict[str, Any] = {}
    for _ in range(draw(st.integers(1, 3))):
        record = draw(st.sampled_from([*records, header]))
        keys = ["memories", "trash", "dreams", "vectors", "autoagent_memory"] if record is header else sorted(record)
        record[draw(st.sampled_from(keys))] = draw(st.sampled_from(ODD))
    return draw(perhaps_spoilt("\n".join([*lines(*records, **header), ""]).encode()))


def import_or_refuse(folder: Path, store: LocalStore, data: bytes) -> None:
    """What is imported can be listed, shown and exported again; what cannot be is refused before anything is kept."""
    path, journal = folder / "in.jsonl", Journal(folder / "dreams.jsonl")
    path.write_bytes(data)
    before = store.stats().count, len(store.listed(trash=True)), len(journal.dreams())
    try:
        exported = transfer.read(path)
    except StateError as error:
        assert str(path) in str(error)
        assert before == (store.stats().count, len(store.listed(trash=True)), len(journal.dreams()))
        return
    transfer.import_into(store, journal, exported)
    for memory in (*store.listed(), *store.listed(trash=True)):
        assert time.strftime("%Y", time.localtime(memory.t))
    for dream in journal.dreams():
        assert time.strftime("%Y", time.localtime(dream.t))
    transfer.export(store, BagOfWords(), journal, folder / "out.jsonl")
    transfer.read(folder / "out.jsonl")


@pytest.mark.parametrize("examples", [100, pytest.param(MANY, marks=pytest.mark.slow)], ids=["few", "many"])
def test_a_damaged_import_is_taken_or_refused(tmp_path: Path, examples: int) -> None:
    with LocalStore(tmp_path / "memory", BagOfWords()) as store:

        @given(damaged())
        @settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck))
        def run(data: bytes) -> None:
            (tmp_path / "dreams.jsonl").unlink(missing_ok=True)
            import_or_refuse(tmp_path, store, data)

        run()
