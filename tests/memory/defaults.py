"""How a test puts a text into a store: all that it does not say has a default."""

from typing import Any

from autoagent.core.protocols import MemoryStore


def put(store: MemoryStore, text: str, t: float = 0.0, **given: Any) -> int | None:
    """`given` may hold kind, source, trusted, run and step."""
    said = {"kind": "note", "source": "", "trusted": True, "run": "", "step": 0, **given}
    return store.put(text, t=t, **said)
