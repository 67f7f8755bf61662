"""The backends of the long-term memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from autoagent.registry.plugins import imported_when_called
from autoagent.registry.table import Table

if TYPE_CHECKING:
    from pathlib import Path

    from autoagent.core.finding import Finding
    from autoagent.core.protocols import Embedder, MemoryStore


@dataclass(frozen=True, slots=True)
class StoreOpening:
    """What a backend is given to open a store.

    `url` is MEMORY_URL, `index` the name of the memory ('' the default one), `folder` what is its own on this machine;
    `listen` hears, a line each, what the user should know.
    """

    url: str
    index: str
    folder: Path
    embedder: Embedder
    listen: Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Backend:
    """All that is true of a memory backend.

    Attributes:
        name: what `--use-memory` calls it.
        summary: one line of help.
        open: opens the store; None: it keeps nothing. Raises StateError.
        aliases: further names, AutoGPT's.
        needs_url: it is elsewhere, where MEMORY_URL says.
        package: what it imports beside the program, and the `extra` of the program that brings that.
        examine: what `autoagent doctor` looks at, given the memory's folder.
    """

    name: str
    summary: str
    open: Callable[[StoreOpening], MemoryStore] | None
    aliases: tuple[str, ...] = ()
    needs_url: bool = False
    package: str = ""
    extra: str = ""
    examine: Callable[[Path], Iterable[Finding]] | None = None


LOCAL = Backend(
    name="local",
    summary="SQLite in the state folder",
    open=imported_when_called("autoagent.memory.sqlite.store:open_store"),
    aliases=("json_file",),
    examine=imported_when_called("autoagent.memory.sqlite.database:examine"),
)
POSTGRES = Backend(
    name="postgres",
    summary="PostgreSQL with pgvector",
    open=imported_when_called("autoagent.memory.postgres.store:open_store"),
    needs_url=True,
    package="psycopg",
    extra="postgres",
)
REDIS = Backend(
    name="redis",
    summary="Redis 8, with its search",
    open=imported_when_called("autoagent.memory.redis.store:open_store"),
    needs_url=True,
    package="redis",
    extra="redis",
)
NOTHING = Backend(name="none", summary="nothing is remembered", open=None, aliases=("no_memory",))

BACKENDS = Table("memory", Backend, (LOCAL, POSTGRES, REDIS, NOTHING))

GONE = ("pinecone", "milvus", "weaviate")
"""AutoGPT's backends that there are not here."""


def parse_backend(text: str) -> str:
    """Parse the name of a backend. Raises ValueError, which names all there are."""
    if text.lower() in GONE and not BACKENDS.knows(text):
        raise ValueError(
            f"{text} is not supported any more: use local (on this machine, nothing to install), redis or postgres; "
            "`autoagent migrate` takes over AutoGPT's JSON memories, and `autoagent memory import` exported texts."
        )
    return BACKENDS.canonical(text)
