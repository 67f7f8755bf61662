"""Store the memory in Redis, with vector sets or the search module: `MEMORY_BACKEND=redis`."""

from __future__ import annotations

from autoagent.extension import Backend, MemoryStore, StoreOpening


def _open(opening: StoreOpening) -> MemoryStore:
    from autoagent_redis.store import RedisStore

    return RedisStore(opening.url, opening.index, opening.embedder, opening.listen)


BACKEND = Backend(
    name="redis",
    summary="Redis 8, with its search",
    open=_open,
    needs_url=True,
    package="redis",
    extra="redis",
    usual_url="redis://localhost:6379/0",
)
