"""How a test puts a text into a store, and takes it out: all that it does not say has a default."""

from typing import Any

from autoagent.core.memory import GONE, Change
from autoagent.core.protocols import MemoryStore


def put(store: MemoryStore, text: str, t: float = 0.0, **given: Any) -> int | None:
    """`given` may hold kind, source, trusted, run and step."""
    said = {"kind": "note", "source": "", "trusted": True, "run": "", "step": 0, **given}
    return store.put(text, t=t, **said)


def restore(store: MemoryStore, id: int, t: float) -> bool:
    return store.change([Change(m.id, (m.t, m.level), t, 0, trash=True) for m in store.of([id], trash=True)]) > 0


def forget(store: MemoryStore, id: int) -> bool:
    """Delete a memory for good."""
    return store.change([Change(m.id, (m.t, m.level), m.t, GONE) for m in store.of([id])]) > 0
