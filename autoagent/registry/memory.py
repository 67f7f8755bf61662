"""Register the backends of the long-term memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from autoagent.core.frozen import dataclass
from autoagent.registry.plugins import Registered, Table, join_with_or, lazy_function

if TYPE_CHECKING:
    from pathlib import Path

    from autoagent.core.protocols import Embedder, MemoryStore
    from autoagent.core.services import Finding


@dataclass(frozen=True, slots=True)
class StoreOpening:
    """The arguments for opening a store."""

    url: str  # MEMORY_URL
    index: str  # the name of the memory, '' for the default
    folder: Path  # its local folder
    embedder: Embedder
    listen: Callable[[str], None]  # receives messages for the user, one per line


@dataclass(frozen=True, slots=True, kw_only=True)
class Backend(Registered):
    """Declare the properties of a memory backend."""

    open: Callable[[StoreOpening], MemoryStore] | None  # raises StateError; None for a backend that stores nothing
    needs_url: bool = False  # whether it requires MEMORY_URL, or else uses its `usual_url`
    usual_url: str = ""
    package: str = ""  # the additional package it imports
    extra: str = ""  # the extra that installs the package
    examine: Callable[[Path], Iterable[Finding]] | None = None  # for `doctor`, given the memory's folder


LOCAL = Backend(
    name="local",
    summary="SQLite in the state folder",
    open=lazy_function("autoagent.memory.sqlite.store:open_store"),
    aliases=("json_file",),
    examine=lazy_function("autoagent.memory.sqlite.database:examine"),
)
NOTHING = Backend(name="none", summary="nothing is remembered", open=None, aliases=("no_memory",))

BACKENDS = Table("memory", Backend, (LOCAL, NOTHING))

EXTENSION_BACKENDS = ("postgres", "redis")  # shipped with the program, in `extensions/`
UNSUPPORTED = ("pinecone", "milvus", "weaviate")  # backends of AutoGPT


def backend_names() -> str:
    """List the memory backends of the program."""
    return join_with_or((*(backend.name for backend in BACKENDS.builtin), *EXTENSION_BACKENDS))


def parse_backend(text: str) -> str:
    """Parse the name of a backend. Raises ValueError, which lists the valid names."""
    if text.lower() in UNSUPPORTED and not BACKENDS.knows(text):
        raise ValueError(
            f"{text} is not supported any more: use local (on this machine, nothing to install), redis or postgres; "
            "`autoagent migrate` takes over AutoGPT's JSON memories, and `autoagent memory import` exported texts."
        )
    return BACKENDS.canonical(text)
