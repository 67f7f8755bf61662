"""Talk to Redis for the store: the connection, guarded changes, both kinds of vector index, and Redis's errors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol
from urllib.parse import urlsplit

from autoagent.extension import SettingsError, StateError

try:
    import redis
except ImportError as error:
    raise SettingsError("MEMORY_BACKEND=redis needs a package: pip install 'autoagent[redis]'.") from error

_CONNECTION = (redis.ConnectionError, redis.TimeoutError)

EF_SEARCH = 200  # neighbours that HNSW keeps track of
MAX_INDEXED_NEIGHBOURS = 1000  # beyond this, an index does not help

Argument = str | bytes | int | float

# Groups of commands, each with the hash fields it expects ('' for one that is missing): all are compared first, then
# those that hold are carried out, without anybody in between. With `whole`, none is unless all hold.
GUARDED = """
local at = 0
local function take() at = at + 1; return ARGV[at] end
local whole, groups, all = take() == '1', {}, true
for g = 1, tonumber(take()) do
    local holds, group = true, {}
    for _ = 1, tonumber(take()) do
        local key, name, expected = take(), take(), take()
        if (redis.call('HGET', key, name) or '') ~= expected then holds = false end
    end
    for c = 1, tonumber(take()) do
        group[c] = {}
        for a = 1, tonumber(take()) do group[c][a] = take() end
    end
    groups[g], all = holds and group, all and holds
end
local done = {}
for g, group in ipairs(groups) do
    done[g] = 0
    if group and (all or not whole) then
        for _, command in ipairs(group) do redis.call(unpack(command)) end
        done[g] = 1
    end
end
return done
"""


@dataclass(slots=True)
class CommandGroup:
    """Commands that are carried out together, if these fields (key, name, value) are as they were seen."""

    expected: list[tuple[str, Argument, Argument]] = field(default_factory=list)
    commands: list[Sequence[Argument]] = field(default_factory=list)

    def do(self, *command: Argument) -> None:
        self.commands.append(command)


class VectorIndex(Protocol):
    """The vector index of a server. The vectors are also in hashes `PREFIX + member`, field `v`."""

    def make(self, space: int, dim: int) -> list[Sequence[Argument]]:
        """Return the commands that make the index of a space; they can be repeated."""

    def add(self, space: int, member: str, vector: bytes) -> list[Sequence[Argument]]: ...

    def drop(self, space: int, member: str) -> list[Sequence[Argument]]: ...

    def near(self, space: int, vector: bytes, count: int) -> list[str]:
        """Return the members of at most so many vectors that are near, in any order."""


class RedisSession:
    """A connection that is opened when it is needed. Raises SettingsError for an invalid address.

    `ours()` makes StateError of all that Redis raises.
    """

    def __init__(self, url: str, index: str) -> None:
        try:
            # Any: the package's types leave open whether an answer is text or bytes, and here it is always bytes.
            self.client: Any = redis.Redis.from_url(
                url, socket_connect_timeout=10, socket_timeout=60, client_name="autoagent", decode_responses=False
            )
            parts = urlsplit(url)
            self.where = f"Redis on {parts.hostname or parts.path or 'localhost'}, port {parts.port or 6379}"
            self.client.connection_pool.make_connection()  # only now are the options of the address looked at
        except (ValueError, TypeError, AttributeError, LookupError):  # its text may quote the password
            raise SettingsError(
                "MEMORY_URL is not an address of Redis; write redis://:PASSWORD@HOST:PORT/0 (rediss:// for TLS)."
            ) from None
        self._prefix = f"autoagent:{{{index}}}:"  # in braces, so that a cluster keeps it all on one node
        self._guarded = self.client.register_script(GUARDED)

    def close(self) -> None:
        self.client.close()

    def key(self, *names: object) -> str:
        return self._prefix + ":".join(map(str, names))

    def run(self, groups: Sequence[CommandGroup], whole: bool = False) -> list[bool]:
        """Carry out the groups whose expectations hold; which did."""
        words: list[Argument] = [int(whole), len(groups)]
        for group in groups:
            words += [len(group.expected), *(word for expected in group.expected for word in expected)]
            words += [len(group.commands)]
            for command in group.commands:
                words += [len(command), *command]
        return [bool(done) for done in self._guarded(keys=[self._prefix], args=words)]

    def vector_index(self) -> VectorIndex:
        """Return the vector index of this server. Raises StateError if it has none."""
        indexes = self._answer("FT._LIST")
        if indexes is not None and any(name.startswith(self.key("search", "").encode()) for name in indexes):
            return SearchModule(self)  # where the vectors are: made before this server had vector sets
        if self._answer("VCARD", self.key("v", 0)) is not None:
            return VectorSets(self)
        if indexes is not None:
            return SearchModule(self)
        version = self.client.info("server").get("redis_version", "?")
        raise StateError(
            f"{self.where} (version {version}) cannot search vectors: it has neither vector sets nor the search "
            "module; use Redis 8 or newer, or set MEMORY_BACKEND to local or postgres."
        )

    def _answer(self, *command: Argument) -> Any:
        """Return the answer to a command, or None if the server does not know it."""
        try:
            return self.client.execute_command(*command)
        except redis.ResponseError as error:
            if "unknown command" not in str(error).lower():
                raise
            return None

    @contextmanager
    def ours(self) -> Iterator[None]:
        """Turn Redis's errors into StateError, on one line, with what to do."""
        try:
            yield
        except (redis.RedisError, UnicodeError) as error:  # the second: a host's name with an empty label
            said = " ".join(str(error).split()).removesuffix(".")
            lost = isinstance(error, (*_CONNECTION, UnicodeError))
            advice = "Check MEMORY_URL and that the server is up." if lost else ""
            raise StateError(f"The memory in {self.where} cannot be used: {said}. {advice}".rstrip()) from None


class VectorSets:
    """Vector sets (Redis 8): HNSW over 8-bit values. Satisfies VectorIndex."""

    def __init__(self, session: RedisSession) -> None:
        self._session = session

    def make(self, space: int, dim: int) -> list[Sequence[Argument]]:
        return []  # a set exists once it contains something

    def add(self, space: int, member: str, vector: bytes) -> list[Sequence[Argument]]:
        return [("VADD", self._session.key("v", space), "FP32", vector, member, "Q8")]

    def drop(self, space: int, member: str) -> list[Sequence[Argument]]:
        return [("VREM", self._session.key("v", space), member)]

    def near(self, space: int, vector: bytes, count: int) -> list[str]:
        how = ("TRUTH",) if count > MAX_INDEXED_NEIGHBOURS else ("EF", max(EF_SEARCH, count))
        found = self._session.client.execute_command(
            "VSIM", self._session.key("v", space), "FP32", vector, "COUNT", count, *how
        )
        return [member.decode() for member in found]


class SearchModule:
    """The search module (Redis Stack, or Redis 8 built with its modules): HNSW. Satisfies VectorIndex."""

    def __init__(self, session: RedisSession) -> None:
        self._session = session

    def make(self, space: int, dim: int) -> list[Sequence[Argument]]:
        index = ("TYPE", "FLOAT32", "DIM", dim, "DISTANCE_METRIC", "COSINE", "EF_RUNTIME", EF_SEARCH)
        hashes = ("ON", "HASH", "PREFIX", 1, self._prefix(space))
        return [("FT.CREATE", self._name(space), *hashes, "SCHEMA", "v", "VECTOR", "HNSW", len(index), *index)]

    def add(self, space: int, member: str, vector: bytes) -> list[Sequence[Argument]]:
        return []  # it indexes the hash itself

    def drop(self, space: int, member: str) -> list[Sequence[Argument]]:
        return []

    def near(self, space: int, vector: bytes, count: int) -> list[str]:
        query = ("*=>[KNN $count @v $vector]", "PARAMS", 4, "count", count, "vector", vector)
        found = self._session.client.execute_command(
            "FT.SEARCH", self._name(space), *query, "NOCONTENT", "LIMIT", 0, count, "DIALECT", 2
        )
        prefix = self._prefix(space)
        keys = _keys_of(found)
        return [key.decode().removeprefix(prefix) for key in keys]

    def _name(self, space: int) -> str:
        return self._session.key("search", space)

    def _prefix(self, space: int) -> str:
        return self._session.key("e", space, "")


def _keys_of(found: Any) -> list[bytes]:
    """Return the keys in an answer of FT.SEARCH: a list after the count, or a map in the newer protocol."""
    if isinstance(found, dict):
        return [result[b"id"] for result in found[b"results"]]
    return list(found[1:])
