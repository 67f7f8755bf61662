"""Open the store's SQLite database, create and upgrade its tables, and lock writes between processes.

`memories` has the texts and their fields, and is the source of truth. Everything else can be rebuilt. `words` is the
stemmed full-text index of the texts after `pair_unspaced`, updated in the same transactions. `trash` has forgotten
memories, with the time they were forgotten. `spaces` has every embedder ever used, its vectors in `vectors-ID.f32`.
`vectors` has the row of a memory's vector in a space, NULL while it is missing. `blocks` has the checksum of each block
of rows of a space.
"""

from __future__ import annotations

import errno
import os
import secrets
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from urllib.parse import quote

from autoagent.core.durable_files import sole_writer_of
from autoagent.core.errors import StateError
from autoagent.core.services import Finding
from autoagent.memory.texts import pair_unspaced

FILE = "memory.db"
LOCK_FILE = "lock"
PAGE_BYTES = 1024  # small, as a new memory changes scattered rows, and whole pages are written
CACHE_KIB = 16_384  # of cached pages, as the texts and words of a recall lie far apart
VERSION = 4  # of the tables, in SQLite's user_version; a newer version is refused, and an older one upgraded

TABLES = """
CREATE TABLE memories (
    id INTEGER PRIMARY KEY AUTOINCREMENT, text TEXT NOT NULL, hash BLOB NOT NULL UNIQUE, kind TEXT NOT NULL,
    source TEXT NOT NULL, trusted INTEGER NOT NULL, t REAL NOT NULL, level INTEGER NOT NULL DEFAULT 0,
    run TEXT NOT NULL, step INTEGER NOT NULL
);
CREATE INDEX memories_by_time ON memories (t, id);
CREATE TABLE spaces (
    id INTEGER PRIMARY KEY, embedder TEXT NOT NULL, dim INTEGER NOT NULL, rows INTEGER NOT NULL DEFAULT 0,
    UNIQUE (embedder, dim)
);
CREATE TABLE vectors (
    memory INTEGER NOT NULL, space INTEGER NOT NULL, row INTEGER, PRIMARY KEY (memory, space), UNIQUE (space, row)
) WITHOUT ROWID;
CREATE TABLE blocks (
    space INTEGER NOT NULL, block INTEGER NOT NULL, checksum INTEGER NOT NULL, PRIMARY KEY (space, block)
) WITHOUT ROWID;
"""

TRASH = """
CREATE TABLE trash (
    id INTEGER PRIMARY KEY, text TEXT NOT NULL, hash BLOB NOT NULL UNIQUE, kind TEXT NOT NULL, source TEXT NOT NULL,
    trusted INTEGER NOT NULL, t REAL NOT NULL, level INTEGER NOT NULL, run TEXT NOT NULL, step INTEGER NOT NULL,
    forgotten REAL NOT NULL
);
CREATE INDEX trash_by_time ON trash (forgotten);
"""

OF_USER = "(level >= 1000000 OR kind IN ('feedback', 'user') OR instr(', ' || source || ',', ', user,'))"
BY_USER = f"CREATE INDEX IF NOT EXISTS memories_of_user ON memories (t, id) WHERE {OF_USER}"

WORDS_STEMMED = """
DROP TABLE IF EXISTS words;
CREATE VIRTUAL TABLE words USING fts5(text, content = '', tokenize = 'porter unicode61 remove_diacritics 2');
INSERT INTO words (rowid, text) SELECT id, spaced(text) FROM memories;
"""

TIME_STORED = "".join(  # unknown for older memories, and then taken from the name of their run or their time
    f"""
ALTER TABLE {table} ADD COLUMN stored REAL NOT NULL DEFAULT 0;
UPDATE {table} SET stored = t WHERE run NOT GLOB '[0-9]*-[0-9]*';
"""  # noqa: S608 - our names
    for table in ("memories", "trash")
)

STEPS = (TABLES, TRASH, WORDS_STEMMED, TIME_STORED)  # each upgrades by one version, 0 being an empty file


def connect(folder: Path) -> sqlite3.Connection:
    """Open the database of a memory folder, creating it if necessary: the folder with mode 0700, files with 0600.

    Raises StateError if the folder is another user's, or the file is from a newer program.
    """
    for parent in reversed([path for path in (folder, *folder.parents) if not path.exists()]):
        parent.mkdir(mode=0o700, exist_ok=True)
    if (owner := folder.stat().st_uid) != os.geteuid():
        raise StateError(
            f"The memory folder {folder} belongs to another user (id {owner}); choose one of your own with --state-dir."
        )
    path = folder / FILE
    if (not path.exists() or path.stat().st_size == 0) and any(folder.glob("vectors-*.f32")):
        raise _damage(f"{FILE} is {'empty' if path.exists() else 'missing'}, but its vectors are there")
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))  # SQLite gives its other files the same mode
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EROFS) and path.exists():
            return _connect_read_only(path)
        raise
    # The memory may be opened in one thread and used in another, but never by two at once.
    db = sqlite3.connect(path, timeout=30, isolation_level=None, check_same_thread=False)
    try:
        with suppress(sqlite3.DatabaseError):  # this reads the tables, whose damage is reported when they are used
            db.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
        _prepare(db, folder)
    except BaseException:  # Ctrl-C too
        db.close()
        raise
    return db


def _connect_read_only(path: Path) -> sqlite3.Connection:
    """Open a database in a read-only folder or on a read-only file system."""
    place = f"file:{quote(str(path))}?mode=ro"
    if not any(path.with_name(f"{FILE}-{part}").exists() for part in ("wal", "shm")):
        place += "&immutable=1"  # otherwise SQLite creates these files, even for reading
    db = sqlite3.connect(place, timeout=30, isolation_level=None, check_same_thread=False, uri=True)
    if _version(db) != VERSION:
        db.close()
        raise PermissionError(
            errno.EACCES, "it is read-only, and from another version of autoagent; open it once where it is writable"
        )
    return db


def _prepare(db: sqlite3.Connection, folder: Path) -> None:
    if _version(db) < VERSION:
        with sole_writer_of(folder / LOCK_FILE):
            db.create_function("spaced", 1, pair_unspaced, deterministic=True)
            if (version := _version(db)) == 0:
                db.execute(f"PRAGMA page_size = {PAGE_BYTES}")
                db.execute("PRAGMA journal_mode = WAL")
            if version < VERSION:
                db.executescript(f"BEGIN;{''.join(STEPS[version:])}PRAGMA user_version = {VERSION};COMMIT;")
    if (version := _version(db)) > VERSION:
        raise StateError(
            f"{folder / FILE} was written by a newer autoagent (version {version}, this one reads {VERSION}); "
            "update autoagent or choose another --state-dir."
        )
    with suppress(sqlite3.DatabaseError):  # as above
        if not db.execute("SELECT 1 FROM sqlite_master WHERE name = 'memories_of_user'").fetchone():
            with sole_writer_of(folder / LOCK_FILE):
                db.execute(BY_USER)
    if not id_of(db):
        with sole_writer_of(folder / LOCK_FILE):
            if not id_of(db):
                db.execute(f"PRAGMA application_id = {secrets.randbelow(2**31 - 1) + 1}")


def id_of(db: sqlite3.Connection) -> str:
    """Return the random identity of a memory, stored in its file, or '' if it has none."""
    number = int(db.execute("PRAGMA application_id").fetchone()[0])
    return str(number) if number else ""


def _version(db: sqlite3.Connection) -> int:
    return int(db.execute("PRAGMA user_version").fetchone()[0])


@contextmanager
def writing(db: sqlite3.Connection, folder: Path, *, durable: bool = True) -> Iterator[None]:
    """Run a transaction, exclusive among all processes that use the folder.

    Without `durable`, it survives the process, but a power cut only once a durable transaction has followed.
    """
    # SQLite waits by polling, which lets some processes starve, and guards only the database.
    with sole_writer_of(folder / LOCK_FILE):
        db.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
        db.execute("BEGIN IMMEDIATE")
        try:
            yield
            db.execute("COMMIT")
        except BaseException:  # Ctrl-C too
            if db.in_transaction:
                db.execute("ROLLBACK")
            raise


@contextmanager
def as_state_errors(folder: Path) -> Iterator[None]:
    """Turn SQLite's and the file system's errors into StateError."""
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        code = error.sqlite_errorcode & 0xFF if isinstance(error, sqlite3.DatabaseError) else sqlite3.SQLITE_OK
        advice = "Fix that,"
        if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB) or str(error).startswith("no such table: "):
            advice = f"Restore a copy of its {FILE}, move the folder away to start over,"  # a retry cannot help
        problem = f"The memory in {folder} cannot be used: {reason}"
        raise StateError(f"{problem}. {advice} or run without it: -m none.") from error


def _damage(problem: str) -> sqlite3.DatabaseError:
    damage = sqlite3.DatabaseError(problem)
    damage.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
    return damage


def examine(folder: Path) -> Iterator[Finding]:
    """Report for `autoagent doctor` whether all of an existing memory can be read."""
    if not (folder / FILE).exists() and not any(folder.glob("vectors-*.f32")):
        return
    try:
        with as_state_errors(folder), closing(connect(folder)) as db:
            [(verdict,)] = db.execute("PRAGMA quick_check(1)")
            if verdict != "ok":
                raise _damage(verdict.splitlines()[-1])
            [(count,)] = db.execute("SELECT COUNT(*) FROM memories")
        yield Finding("memory", "ok", f"{folder} can be read; memories: {count:,}")
    except StateError as error:
        yield Finding("memory", "fail", str(error))
