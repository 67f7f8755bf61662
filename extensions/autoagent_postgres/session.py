"""Talk to PostgreSQL for the store: the tables, the connection, and PostgreSQL's errors as ours.

    memories   the texts and what is known of them; `forgotten` is when one went to the trash
    spaces     one for each embedder that was ever used
    vectors    the vector of a memory in a space; NULL while it is still to be made; none for what is in the trash
    about      the version of these tables; a newer one is refused

Each memory index has a schema of its own. PostgreSQL keeps no U+0000 in a text: `escaped` and `plain` see to it.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias, TypeVar

from autoagent.extension import SettingsError, StateError

try:
    import psycopg
    from pgvector.psycopg import register_vector
    from psycopg import conninfo, errors, sql
except ImportError as error:
    raise SettingsError("MEMORY_BACKEND=postgres needs packages: pip install 'autoagent[postgres]'.") from error

VERSION = 1
MAX_NAME_BYTES = 63  # of a PostgreSQL name
RETRIES = 3
CONNECT_SECONDS = 4  # for one address of the server
RETRY_SECONDS = 5.0  # before a server that was not reached is tried again
TABLES_LOCK = 0x6175746F  # the advisory lock under which tables are made

TABLES = """
CREATE TABLE memories (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, text text NOT NULL, hash bytea NOT NULL UNIQUE,
    kind text NOT NULL, source text NOT NULL, trusted boolean NOT NULL, t double precision NOT NULL,
    level integer NOT NULL DEFAULT 0, run text NOT NULL, step bigint NOT NULL,
    forgotten double precision, words tsvector NOT NULL
);
CREATE INDEX memories_by_time ON memories (t, id) WHERE forgotten IS NULL;
CREATE INDEX memories_in_trash ON memories (forgotten, id) WHERE forgotten IS NOT NULL;
CREATE INDEX memories_by_word ON memories USING gin (words);
CREATE TABLE spaces (
    id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY, embedder text NOT NULL, dim integer NOT NULL,
    UNIQUE (embedder, dim)
);
CREATE TABLE vectors (
    space integer NOT NULL REFERENCES spaces, memory bigint NOT NULL REFERENCES memories ON DELETE CASCADE,
    vector vector, PRIMARY KEY (space, memory)
);
CREATE INDEX vectors_by_memory ON vectors (memory);
CREATE INDEX vectors_wanting ON vectors (space, memory) WHERE vector IS NULL;
CREATE TABLE about (version integer NOT NULL);
"""

# Unknown in older memories: taken from the name of their run, or else from their time. An older autoagent can go on.
TIME_STORED = """
ALTER TABLE memories ADD COLUMN stored double precision NOT NULL DEFAULT 0;
UPDATE memories SET stored = t WHERE run !~ '^[0-9]+-[0-9]';
"""

Connection: TypeAlias = "psycopg.Connection[tuple[Any, ...]]"
T = TypeVar("T")


class PostgresSession:
    """A connection that is opened when it is needed, and again if it was lost. One thread may use it at a time.

    Raises SettingsError for an address that is none; `run` raises StateError for all that PostgreSQL raises.
    """

    def __init__(self, url: str, index: str) -> None:
        try:
            known = conninfo.conninfo_to_dict(url)
        except psycopg.ProgrammingError:  # its text may quote the password
            raise SettingsError(
                "MEMORY_URL is not an address of PostgreSQL; write postgresql://USER:PASSWORD@HOST:PORT/DATABASE."
            ) from None
        self._url = url
        self._password = str(known.get("password") or "")
        self._schema = schema_name(index)
        host = known.get("host") or known.get("hostaddr") or "this machine"
        self.where = f"PostgreSQL on {host}" + (f", port {known['port']}" if known.get("port") else "")
        self._connection: Connection | None = None
        self._failed: tuple[float, psycopg.OperationalError] | None = None  # until when it is not tried again, and why

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def run(self, work: Callable[[Connection], T]) -> T:
        """Do the work in one transaction; again where others got in the way or the connection was lost.

        So it must be right to do twice: a connection may be lost after the transaction and before its answer.
        """
        with self._our_errors():
            for _ in range(RETRIES):
                try:
                    return self._in_transaction(work)
                except errors.DeadlockDetected:
                    continue
                except psycopg.OperationalError:
                    if self._connection is None or not self._connection.broken:
                        raise
                    self.close()
            return self._in_transaction(work)

    def _in_transaction(self, work: Callable[[Connection], T]) -> T:
        connection = self._connected()
        with connection.transaction():
            return work(connection)

    def _connected(self) -> Connection:
        if self._connection is None or self._connection.closed:
            connection = self._connect()
            try:
                self._prepare(connection)
            except BaseException:  # whatever the reason, do not leave the connection open
                connection.close()
                raise
            self._connection = connection
        return self._connection

    def _connect(self) -> Connection:
        """Connect; what failed just now is not tried again, as each try may take CONNECT_SECONDS for each address."""
        if self._failed is not None and time.monotonic() < self._failed[0]:
            raise self._failed[1]
        try:
            return psycopg.connect(
                self._url, autocommit=True, connect_timeout=CONNECT_SECONDS, fallback_application_name="autoagent"
            )
        except psycopg.OperationalError as error:
            self._failed = (time.monotonic() + RETRY_SECONDS, error)
            raise

    def _prepare(self, connection: Connection) -> None:
        if not self._made(connection):
            with connection.transaction():
                connection.execute("SELECT pg_advisory_xact_lock(%s)", (TABLES_LOCK,))
                if not self._made(connection):
                    self._make(connection)
        self._look_here_first(connection)
        row = connection.execute("SELECT version FROM about").fetchone()
        assert row is not None
        if row[0] > VERSION:
            raise StateError(
                f"The memory in {self.where} was written by a newer autoagent (version {row[0]}, this one reads "
                f"{VERSION}); update autoagent or choose another MEMORY_INDEX."
            )
        if not self._has_time_stored(connection):
            with connection.transaction():
                connection.execute("SELECT pg_advisory_xact_lock(%s)", (TABLES_LOCK,))
                if not self._has_time_stored(connection):
                    connection.execute(TIME_STORED)
        register_vector(connection)

    def _made(self, connection: Connection) -> bool:
        query = "SELECT 1 FROM pg_tables WHERE schemaname = %s AND tablename = 'about'"
        return connection.execute(query, (self._schema,)).fetchone() is not None

    def _has_time_stored(self, connection: Connection) -> bool:
        query = (
            "SELECT 1 FROM information_schema.columns "
            "WHERE table_schema = %s AND table_name = 'memories' AND column_name = 'stored'"
        )
        return connection.execute(query, (self._schema,)).fetchone() is not None

    def _make(self, connection: Connection) -> None:
        # Asked first: a user who may create neither can use what an administrator has made.
        if connection.execute("SELECT 1 FROM pg_extension WHERE extname = 'vector'").fetchone() is None:
            connection.execute("CREATE EXTENSION vector")
        if connection.execute("SELECT 1 FROM pg_namespace WHERE nspname = %s", (self._schema,)).fetchone() is None:
            connection.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(self._schema)))
        self._look_here_first(connection)
        connection.execute(TABLES)
        connection.execute("INSERT INTO about VALUES (%s)", (VERSION,))

    def _look_here_first(self, connection: Connection) -> None:
        """Put our schema first on the path, which otherwise stays as it was: the extension may be anywhere on it."""
        path = "SELECT set_config('search_path', quote_ident(%s) || ', ' || current_setting('search_path'), false)"
        connection.execute(path, (self._schema,))

    @contextmanager
    def _our_errors(self) -> Iterator[None]:
        try:
            yield
        except (psycopg.Error, UnicodeError) as error:  # the second: a host's name with an empty label
            raise StateError(f"The memory in {self.where} cannot be used: {self._error_text(error)}") from None

    def _error_text(self, error: Exception) -> str:
        """Return PostgreSQL's own words on one line, never with the password, and what to do."""
        lines = (line.strip() for line in str(error).splitlines())
        said = " ".join(line for line in lines if line).rstrip(".?")
        if self._password:
            said = said.replace(self._password, "***")
        if isinstance(error, (errors.FeatureNotSupported, errors.UndefinedFile)) and "vector" in said:
            return f"{said}. Install pgvector on that server, or set MEMORY_BACKEND=local."
        if isinstance(error, errors.InsufficientPrivilege) and "must be owner" in said:
            return f"{said}. Let the owner of its tables open it once with this version."
        if isinstance(error, errors.InsufficientPrivilege):
            return (
                f"{said}. Have its administrator run CREATE EXTENSION vector, and allow the user to create in the "
                "database."
            )
        if isinstance(error, (psycopg.OperationalError, UnicodeError)):
            return f"{said}. Check MEMORY_URL and that the server is up."
        return f"{said}."


def schema_name(index: str) -> str:
    """Return the schema of a memory index; a name that would be cut ends in a hash instead."""
    name = f"autoagent_{index}" if index else "autoagent"
    if len(name.encode()) <= MAX_NAME_BYTES:
        return name
    return f"autoagent_{hashlib.sha256(index.encode()).hexdigest()[:32]}"


def escaped(text: str) -> str:
    """Return a text as PostgreSQL can store it: U+0000, and U+001A that marks it, as two characters each."""
    return text.replace("\x1a", "\x1a1").replace("\0", "\x1a0")


def plain(text: str) -> str:
    """Return the text that was `escaped`."""
    return text.replace("\x1a0", "\0").replace("\x1a1", "\x1a")
