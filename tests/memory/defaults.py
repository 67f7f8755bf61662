"""How a test puts a text into a store, and takes it out: all that it does not say has a default."""

from typing import Any

from autoagent.core.memory import GONE, Change
from autoagent.core.protocols import MemoryStore


def put(store: MemoryStore, text: str, t: float = 1.0, **given: Any) -> int:
    """`given` may hold kind, source, trusted, run and step."""
    fields = {"kind": "note", "source": "", "trusted": True, "run": "", "step": 0, **given}
    id = store.put(text, t=t, **fields)
    assert id is not None
    return id


def restore(store: MemoryStore, id: int, t: float) -> bool:
    return store.change([Change(m.id, (m.t, m.level), t, 0, trash=True) for m in store.of([id], trash=True)]) > 0


def forget(store: MemoryStore, id: int) -> bool:
    """Delete a memory for good."""
    return store.change([Change(m.id, (m.t, m.level), m.t, GONE) for m in store.of([id])]) > 0
