"""What is PostgreSQL's own: its errors in our words, lost connections, the index, many writers at once."""

from __future__ import annotations

import contextlib
import socket
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from bag_of_words import BagOfWords

psycopg = pytest.importorskip("psycopg")

from autoagent_postgres import session  # noqa: E402
from autoagent_postgres import store as module  # noqa: E402
from autoagent_postgres.session import escaped, plain, schema_name  # noqa: E402
from autoagent_postgres.store import PostgresStore  # noqa: E402

from autoagent.core.errors import SettingsError, StateError  # noqa: E402
from autoagent.core.memory import Change  # noqa: E402
from autoagent.memory.living_memory import LivingMemory  # noqa: E402


@pytest.fixture
def index() -> str:
    return f"test-{uuid.uuid4().hex}"


@pytest.fixture
def opened(postgres_url: str, index: str) -> Iterator[Callable[..., PostgresStore]]:
    stores: list[PostgresStore] = []

    def opener(dim: int = 64, listen: Callable[[str], None] = lambda line: None) -> PostgresStore:
        stores.append(PostgresStore(postgres_url, index, BagOfWords(dim), listen))
        return stores[-1]

    yield opener
    for store in stores:
        store.close()


def put(store: PostgresStore, text: str) -> int:
    id = store.put(text, t=1.0, kind="note", source="", trusted=True, run="", step=0)
    assert id is not None
    return id


@pytest.mark.slow
def test_a_memory_of_an_older_autoagent_gets_the_time_of_storing(
    postgres_url: str, index: str, opened: Callable[..., PostgresStore]
) -> None:
    opened().put("the oak", t=2.0, kind="note", source="", trusted=True, run="", step=0)
    with psycopg.connect(postgres_url) as db:
        db.execute(f'ALTER TABLE "{schema_name(index)}".memories DROP COLUMN stored'.encode())
    store = opened()
    [found] = store.listed()
    store.change([Change(found.id, (2.0, 0), 3.0, 1)])
    assert [(memory.t, memory.made) for memory in store.listed()] == [(3.0, 2.0)]


def test_a_word_that_no_query_can_hold_is_passed_over(opened: Callable[..., PostgresStore]) -> None:
    store = opened()
    put(store, f"the oak {'x' * 3_000}")
    assert [found.text[:7] for found in store.search(f"{'x' * 3_000} oak", 3).worded] == ["the oak"]
    assert store.search("x" * 3_000, 3).counts == {"x" * 3_000: 0}


def test_no_server_is_one_line_without_the_password() -> None:
    store = PostgresStore("postgresql://me:geheim@127.0.0.1:1/memory", "", BagOfWords())
    with pytest.raises(StateError) as caught:
        store.stats()
    line = str(caught.value)
    assert line.startswith("The memory in PostgreSQL on 127.0.0.1, port 1 cannot be used: ")
    assert line.endswith("Check MEMORY_URL and that the server is up.")
    assert "\n" not in line and "geheim" not in line
    assert caught.value.__cause__ is None and caught.value.__suppress_context__


@pytest.mark.slow
def test_a_server_that_never_answers_is_tried_once_for_all_that_a_search_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "CONNECT_SECONDS", 1)
    monkeypatch.setattr(session, "RETRY_SECONDS", 3600.0)
    with socket.create_server(("127.0.0.1", 0)) as silent:  # the system takes the connection, and nobody answers
        port = silent.getsockname()[1]
        with LivingMemory(PostgresStore(f"postgresql://me@127.0.0.1:{port}/memory", "", BagOfWords())) as memory:
            for use in (lambda: memory.recall("where?"), lambda: memory.recall("when?"), lambda: memory.add("here")):
                with pytest.raises(StateError, match=f"port {port} cannot be used: .*timeout"):
                    use()
        assert tried(silent) == 1


def test_a_server_that_refuses_is_given_up_at_once() -> None:
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))  # and never listens
        port = deaf.getsockname()[1]
        with LivingMemory(PostgresStore(f"postgresql://me@127.0.0.1:{port}/memory", "", BagOfWords())) as memory:
            for _ in range(2):
                with pytest.raises(StateError, match=f"port {port} cannot be used: .*refused"):
                    memory.recall("where?")


def tried(server: socket.socket) -> int:
    """Count the connections that came in."""
    server.setblocking(False)
    count = 0
    with contextlib.suppress(BlockingIOError):
        while True:
            server.accept()[0].close()
            count += 1
    return count


@pytest.mark.parametrize(
    "url", ["geheim", "postgresql://me:geheim@host/memory?no_such_option=1", "redis://:geheim@host"]
)
def test_an_address_that_is_none_is_not_repeated(url: str) -> None:
    with pytest.raises(SettingsError, match="MEMORY_URL is not an address of PostgreSQL") as caught:
        PostgresStore(url, "", BagOfWords())
    assert "geheim" not in str(caught.value)


def test_what_the_user_must_not_create_the_administrator_is_asked_for(postgres_url: str, index: str) -> None:
    role, database = f"guest_{uuid.uuid4().hex}", f"guests_{uuid.uuid4().hex}"
    with psycopg.connect(postgres_url, autocommit=True) as admin:
        admin.execute(f"CREATE ROLE {role} LOGIN")
        admin.execute(f"CREATE DATABASE {database}")
    url = postgres_url.replace("/postgres?", f"/{database}?").replace("postgres:@", f"{role}:@")
    store = PostgresStore(url, index, BagOfWords())
    with pytest.raises(StateError, match="CREATE EXTENSION vector"):
        put(store, "a fact")
    with psycopg.connect(postgres_url.replace("/postgres?", f"/{database}?"), autocommit=True) as admin:
        admin.execute("CREATE EXTENSION vector")
        admin.execute(f"GRANT CREATE ON DATABASE {database} TO {role}")
    assert put(store, "a fact")
    store.close()


def test_a_newer_memory_is_refused(opened: Callable[..., PostgresStore], postgres_url: str, index: str) -> None:
    opened().listed()
    with psycopg.connect(postgres_url, autocommit=True) as admin:
        admin.execute(f'UPDATE "{schema_name(index)}".about SET version = 99')
    with pytest.raises(StateError, match="newer autoagent"):
        opened().listed()


def test_a_lost_connection_is_made_anew(opened: Callable[..., PostgresStore], postgres_url: str) -> None:
    store = opened()
    put(store, "before")
    with psycopg.connect(postgres_url, autocommit=True) as admin:
        query = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = 'autoagent'"
        assert admin.execute(query).fetchone()[0] >= 1
    put(store, "after")
    assert [memory.text for memory in store.search("after", 1).near] == ["after"]
    assert store.stats().count == 2


def test_indexes_do_not_mix(postgres_url: str, index: str, opened: Callable[..., PostgresStore]) -> None:
    other = PostgresStore(postgres_url, index + "-other", BagOfWords())
    put(other, "mine")
    assert opened().listed() == []
    other.close()


@pytest.mark.parametrize("index", ["", "plain", "ünïcode-" * 8, "x" * 64])
def test_every_index_has_a_schema_of_a_name_that_fits(index: str) -> None:
    assert len(schema_name(index).encode()) <= 63
    assert schema_name(index) != schema_name(index + "y")


@pytest.mark.parametrize("text", ["", "a", "\0", "\x1a", "\x1a0", "\x1a1\0\x1a", "\x1a\x1a00"])
def test_every_text_survives_escaping(text: str) -> None:
    assert "\0" not in escaped(text)
    assert plain(escaped(text)) == text


def test_vectors_too_large_for_the_index_are_searched_exactly(opened: Callable[..., PostgresStore]) -> None:
    lines: list[str] = []
    store = opened(4100, lines.append)
    for number in range(5):
        put(store, f"fact {number}")
    assert [memory.text for memory in store.search("fact 3", 1).near] == ["fact 3"]
    assert len(lines) == 1 and "4100 values" in lines[0] and "looks at every memory" in lines[0]


def test_the_index_serves_the_search(opened: Callable[..., PostgresStore], postgres_url: str, index: str) -> None:
    store = opened()
    put(store, "a fact")
    store.search("a fact", 1)
    query = module.NEAR.format(space=1, cast="vector(64)")
    values = {"query": str([1.0] * 64), "k": 1, "wanted": 33, "runs": [], "steps": []}
    with psycopg.connect(postgres_url, autocommit=True) as admin:
        admin.execute(f'SET search_path TO "{schema_name(index)}", public')
        admin.execute("SET enable_seqscan = off")  # with one memory PostgreSQL reads the table instead,
        admin.execute("SET enable_sort = off")  # or sorts the rows of the space
        plan = "\n".join(line for (line,) in admin.execute("EXPLAIN " + query, values))
    assert "Index Scan using vectors_vector_idx" in plan


def test_of_many_who_saw_the_same_one_changes_it(opened: Callable[..., PostgresStore]) -> None:
    stores = [opened() for _ in range(6)]
    ids = [put(stores[0], f"fact {number}") for number in range(20)]

    def strengthen(store: PostgresStore, order: int) -> int:
        changes = [Change(id, (1.0, 0), 2.0 + order, 1) for id in ids]
        return store.change(changes[::-1] if order % 2 else changes)

    with ThreadPoolExecutor(6) as pool:
        done = list(pool.map(strengthen, stores, range(6)))
    assert sorted(done) == [0, 0, 0, 0, 0, 20]
    assert {memory.level for memory in stores[0].listed()} == {1}


def test_no_memory_is_missed_by_a_space_made_meanwhile(opened: Callable[..., PostgresStore]) -> None:
    writers = [opened(64) for _ in range(3)]
    put(writers[0], "the first")

    def write(number: int) -> None:
        for fact in range(40):
            put(writers[number], f"writer {number} fact {fact}")

    def read(dim: int) -> int:
        store = opened(dim)
        return len(store.search("fact", 10).near)

    with ThreadPoolExecutor(6) as pool:
        writing = [pool.submit(write, number) for number in range(3)]
        reading = [pool.submit(read, dim) for dim in (16, 24, 32)]
        for future in (*writing, *reading):
            future.result()
    for dim in (16, 24, 32, 64):
        store = opened(dim)
        store.search("fact", 1)
        assert len(store.vectors([memory.id for memory in store.listed()])) == 121
