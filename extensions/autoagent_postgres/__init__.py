"""Store the memory in PostgreSQL with pgvector, shared by many machines: `MEMORY_BACKEND=postgres`."""

from __future__ import annotations

from autoagent.extension import Backend, MemoryStore, StoreOpening


def _open(opening: StoreOpening) -> MemoryStore:
    from autoagent_postgres.store import PostgresStore

    return PostgresStore(opening.url, opening.index, opening.embedder, opening.listen)


BACKEND = Backend(
    name="postgres", summary="PostgreSQL with pgvector", open=_open, needs_url=True, package="psycopg", extra="postgres"
)
