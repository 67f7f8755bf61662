"""What is Redis's own: its errors in our words, servers that cannot search, what it does not keep, many writers."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import databases
import pytest
from bag_of_words import BagOfWords

redis = pytest.importorskip("redis")

from autoagent_redis.store import RedisStore  # noqa: E402

from autoagent.core.errors import SettingsError, StateError  # noqa: E402
from autoagent.core.memory import GONE, Change  # noqa: E402


@pytest.fixture
def index() -> str:
    return f"test-{uuid.uuid4().hex}"


@pytest.fixture
def old_server() -> Iterator[str]:
    program = databases.redis_without_vectors()
    if program is None:
        pytest.skip("there is no redis-server of before version 8")
    with databases.redis(program) as url:
        yield url


@pytest.fixture
def locked_server() -> Iterator[str]:
    """A server that wants the password `geheim`, and keeps no append-only file."""
    program = databases.redis_with_vectors()
    if program is None:
        pytest.skip("there is no redis-server with vector sets")
    with databases.redis(program, "--requirepass", "geheim") as url:
        yield url


def put(store: RedisStore, text: str) -> int:
    id = store.put(text, t=1.0, kind="note", source="", trusted=True, run="", step=0)
    assert id is not None
    return id


def test_a_server_that_cannot_search_vectors_is_named(old_server: str) -> None:
    store = RedisStore(old_server, "", BagOfWords())
    for use in (lambda: put(store, "a fact"), lambda: store.search("fact", 1), store.listed):
        with pytest.raises(StateError) as caught:
            use()
        line = str(caught.value)
        assert line.startswith("Redis on 127.0.0.1, port ") and "vector sets" in line and "search module" in line
        assert line.endswith("use Redis 8 or newer, or set MEMORY_BACKEND to local or postgres.")
    assert redis.Redis.from_url(old_server).dbsize() == 0
    store.close()


def test_no_server_is_one_line_without_the_password() -> None:
    store = RedisStore("redis://:geheim@127.0.0.1:1", "", BagOfWords())
    with pytest.raises(StateError) as caught:
        store.stats()
    line = str(caught.value)
    assert line.startswith("The memory in Redis on 127.0.0.1, port 1 cannot be used: ")
    assert line.endswith("Check MEMORY_URL and that the server is up.")
    assert "geheim" not in line and caught.value.__suppress_context__


@pytest.mark.parametrize(
    "url", ["geheim", "postgresql://me:geheim@host", "redis://:x@host:geheim/0", "redis://:geheim@host/0?ssl=true"]
)
def test_an_address_that_is_none_is_not_repeated(url: str) -> None:
    with pytest.raises(SettingsError, match="MEMORY_URL is not an address of Redis") as caught:
        RedisStore(url, "", BagOfWords())
    assert "geheim" not in str(caught.value)


def test_a_wrong_password_is_named_not_shown(locked_server: str) -> None:
    for wrong in ("", ":falsch@"):
        store = RedisStore(locked_server.replace("//", f"//{wrong}"), "", BagOfWords())
        with pytest.raises(StateError, match="cannot be used") as caught:
            put(store, "a fact")
        assert "falsch" not in str(caught.value)
        store.close()


def test_a_server_that_forgets_in_a_crash_is_said_once(locked_server: str) -> None:
    lines: list[str] = []
    store = RedisStore(locked_server.replace("//", "//:geheim@"), "", BagOfWords(), lines.append)
    put(store, "a fact")
    put(store, "another")
    assert len(lines) == 1 and "appendonly yes" in lines[0] and "geheim" not in lines[0]
    store.close()


def test_a_newer_memory_is_refused(redis_url: str, index: str) -> None:
    redis.Redis.from_url(redis_url).hset(f"autoagent:{{{index}}}:about", "version", 99)
    store = RedisStore(redis_url, index, BagOfWords())
    with pytest.raises(StateError, match="newer autoagent"):
        store.listed()
    store.close()


def test_a_memory_of_an_older_autoagent_gets_the_time_of_storing(redis_url: str, index: str) -> None:
    store = RedisStore(redis_url, index, BagOfWords())
    id = put(store, "a fact")
    redis.Redis.from_url(redis_url).hdel(f"autoagent:{{{index}}}:m:{id}", "stored")
    store.change([Change(id, (1.0, 0), 3.0, 1)])
    assert [(memory.t, memory.made) for memory in store.listed()] == [(3.0, 1.0)]
    store.close()


def test_nothing_is_left_of_what_is_forgotten(redis_url: str, index: str) -> None:
    store, client = RedisStore(redis_url, index, BagOfWords()), redis.Redis.from_url(redis_url)
    kept = {"about", "spaces"}
    forgotten, faded = put(store, "a fact to forget"), put(store, "a fact that fades")
    store.search("fact", 1)
    assert store.change([Change(forgotten, (1.0, 0), 1.0, GONE), Change(faded, (1.0, 0), 2.0, None)]) == 2
    store.change([], expired=3.0)
    prefix = f"autoagent:{{{index}}}:"
    left = {key.decode().removeprefix(prefix) for key in client.scan_iter(f"autoagent:{{{index}}}:*")}
    assert {key for key in left if not key.startswith("search:")} == kept
    store.close()


def test_of_many_who_saw_the_same_one_changes_it(redis_url: str, index: str) -> None:
    stores = [RedisStore(redis_url, index, BagOfWords()) for _ in range(6)]
    ids = [put(stores[0], f"fact {number}") for number in range(20)]
    with ThreadPoolExecutor(6) as pool:
        changes = [[Change(id, (1.0, 0), 2.0 + order, 1) for id in ids] for order in range(6)]
        done = list(pool.map(lambda store, wanted: store.change(wanted), stores, changes))
    assert sum(done) == 20
    assert {memory.level for memory in stores[0].listed()} == {1}
    for store in stores:
        store.close()


def test_no_memory_is_missed_by_a_space_made_meanwhile(redis_url: str, index: str) -> None:
    stores = {dim: RedisStore(redis_url, index, BagOfWords(dim)) for dim in (8, 16, 24, 32)}
    put(stores[8], "the first")

    def write() -> None:
        for fact in range(100):
            put(stores[8], f"fact {fact}")

    with ThreadPoolExecutor(4) as pool:
        futures = [pool.submit(write), *(pool.submit(stores[dim].search, "fact", 10) for dim in (16, 24, 32))]
        for future in futures:
            future.result()
    for store in stores.values():
        store.search("fact", 1)
        assert len(store.vectors([memory.id for memory in store.listed()])) == 101
        store.close()
