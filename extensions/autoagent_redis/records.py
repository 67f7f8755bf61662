"""Define the layout of a memory in Redis, and the commands that store and delete it. All keys begin with the prefix.

about        hash: `version` of this layout, `spaces` (how many), `next` id
m:ID         hash: a memory; `forgotten` is when it went to the trash, `stored` when its text was stored
ids          hash: the memory of a text, by the sha256 of it; `trashed` is the same for the trash
alive        sorted set: memories by their time; `trash` is the same by when they were forgotten
levels       sorted set: memories by their level
of_user      set: memories of the user's words and notes that were ever put; some may be gone
w:WORD       sorted set: memories by how much the word weighs in them
spaces       hash: the number of an embedder's space
e:SPACE:ID   hash: the vector (`v`) of a memory in a space
v:SPACE      vector set; search:SPACE with the search module
want:SPACE   sorted set: memories whose vector is still to be made
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from autoagent.memory.store_base import Vector, texts
from autoagent_redis.session import CommandGroup, RedisSession, VectorIndex

FETCH = 500  # memories looked up in one round trip
K1, B, AVERAGE = 1.2, 0.75, 60  # of BM25; the average length of a text, in words

Fields = Mapping[bytes, bytes]


class Records:
    """The memories of one index. Methods named `do_` add commands to a group, and what these rely on."""

    def __init__(self, session: RedisSession, index: VectorIndex) -> None:
        self._client = session.client
        self._key = session.key
        self.index = index

    def fields(self, ids: Iterable[int]) -> dict[int, Fields]:
        """Return the fields of each memory, or {} if it does not exist."""
        wanted = list(ids)
        found: dict[int, Fields] = {}
        for start in range(0, len(wanted), FETCH):
            pipeline = self._client.pipeline(transaction=False)
            for id in wanted[start : start + FETCH]:
                pipeline.hgetall(self._key("m", id))
            found |= dict(zip(wanted[start : start + FETCH], pipeline.execute(), strict=True))
        return found

    def count_spaces(self) -> int:
        return int(self._client.hget(self._key("about"), "spaces") or 0)

    def do_index(self, group: CommandGroup, id: int, text: str, t: str) -> None:
        """Let a memory of level 0 be found: by text, time, level and words now, by its vectors once they are made."""
        member, spaces = member_of(id), self.count_spaces()
        group.expected.append((self._key("about"), "spaces", spaces or ""))  # a space made meanwhile needs it, too
        group.do("HSET", self._key("ids"), texts.hash_of(text), id)
        group.do("ZADD", self._key("alive"), t, member)
        group.do("ZADD", self._key("levels"), 0, member)
        for word, weight in weights_of(text).items():
            group.do("ZADD", self._key("w", word), weight, member)
        for space in range(1, spaces + 1):
            group.do("ZADD", self._key("want", space), 0, member)

    def do_unindex(self, group: CommandGroup, id: int, text: str) -> None:
        member, spaces = member_of(id), self.count_spaces()
        group.expected.append((self._key("about"), "spaces", spaces or ""))
        group.do("HDEL", self._key("ids"), texts.hash_of(text))
        group.do("ZREM", self._key("alive"), member)
        group.do("ZREM", self._key("levels"), member)
        for word in weights_of(text):
            group.do("ZREM", self._key("w", word), member)
        for space in range(1, spaces + 1):
            group.do("ZREM", self._key("want", space), member)
            group.do("DEL", self._key("e", space, member))
            group.commands += self.index.drop(space, member)

    def do_delete(self, group: CommandGroup, id: int, hash: bytes) -> None:
        """Delete a memory that is in the trash."""
        group.do("DEL", self._key("m", id))
        group.do("ZREM", self._key("trash"), member_of(id))
        group.do("HDEL", self._key("trashed"), hash)

    def do_set_vector(self, group: CommandGroup, space: int, id: int, vector: Vector) -> None:
        member, data = member_of(id), vector.tobytes()
        group.do("ZREM", self._key("want", space), member)
        group.do("HSET", self._key("e", space, member), "v", data)
        if vector.any():  # nothing is near a zero vector
            group.commands += self.index.add(space, member, data)


def weights_of(text: str) -> dict[str, float]:
    """Weigh each word of a text within it: the part of BM25 that does not depend on the other texts."""
    counts = Counter(texts.words(text))
    length = K1 * (1 - B + B * counts.total() / AVERAGE)
    return {word: n * (K1 + 1) / (n + length) for word, n in counts.items()}


def member_of(id: int) -> str:
    """Render an id as a member of a sorted set, so that members of equal score sort by id."""
    return f"{id:016d}"


def flat(fields: Mapping[str, str | int]) -> list[str | int]:
    """Return names and values in turn, as HSET takes them."""
    return [word for pair in fields.items() for word in pair]
