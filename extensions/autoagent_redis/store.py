"""The memory in Redis, found by vector sets (Redis 8) or the search module. `records` says how it lies there.

What the index finds is ranked by the exact cosine of the vectors in `e`. Words are ranked by BM25 (Robertson and
Zaragoza, 2009), the average length taken as constant, so that a weight never has to be written again. The store is as
durable as the server: without its append-only file a crash costs the last minutes.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from autoagent.extension import GONE, Change, Embedder, RetrievedMemory, StateError, Stats
from autoagent.memory.store_base import BATCH, FLOAT, Skip, StoreBase, Vector, search_wider, texts, valid_text
from autoagent_redis.records import Fields, Records, flat, member_of
from autoagent_redis.session import CommandGroup, RedisSession, VectorIndex

VERSION = 1
PINNED = 1_000_000  # from this level, a memory is pinned
SLACK = 32  # candidates ranked beyond those requested
MAX_WORDS = 64  # words of a query; a long one is described by fewer
MAX_MATCHES = (
    20_000  # memories that are ranked by a word, counted for each word, as the server does nothing else meanwhile
)


class RedisStore(StoreBase):
    """Satisfies MemoryStore. Any number of machines may use it at once.

    Raises SettingsError for an address that is none; nothing is connected before something is asked.
    """

    def __init__(
        self, url: str, index: str, embedder: Embedder, listen: Callable[[str], None] = lambda line: None
    ) -> None:
        super().__init__(embedder, listen)
        self._session = RedisSession(url, index)
        self._client = self._session.client
        self._key = self._session.key
        self._own_space: int | None = None
        self._opened: Records | None = None

    def close(self) -> None:
        self._session.close()

    @contextmanager
    def _storage(self) -> Iterator[None]:
        """Return Redis, its errors made ours. Looked at before it
        is first used: what it cannot find it is not to be given.
        """
        with self._session.ours():
            if self._opened is None:
                self._opened = Records(self._session, self._looked_at())
            yield

    def _looked_at(self) -> VectorIndex:
        version = int(self._client.hget(self._key("about"), "version") or 0)
        if version > VERSION:
            raise StateError(
                f"The memory in {self._session.where} was written by a newer autoagent (version {version}, this one "
                f"reads {VERSION}); update autoagent or choose another MEMORY_INDEX."
            )
        index = self._session.vector_index()
        self._client.hset(self._key("about"), "version", VERSION)
        if not self._client.info("persistence").get("aof_enabled"):
            self._listen(
                f"{self._session.where} keeps no append-only file: if it crashes, the newest memories are lost; "
                "set `appendonly yes` in its configuration."
            )
        return index

    @property
    def _records(self) -> Records:
        assert self._opened is not None, "only within `_storage`"
        return self._opened

    # What is kept -----------------------------------------------------------------------------------------------

    def _missing(self, parts: Sequence[str]) -> list[str]:
        there = self._client.hmget(self._key("ids"), [texts.hash_of(part) for part in parts])
        return [part for part, id in zip(parts, there, strict=True) if id is None]

    def _put(
        self, parts: Sequence[str], known: Mapping[str, Any], vectors: Mapping[str, Vector], *, durable: bool
    ) -> int:
        times = {name: repr(float(known[name])) for name in ("t", "stored")}
        known = {**known, "trusted": int(known["trusted"]), **times}
        own = self._space() if vectors else None
        ids: dict[str, int] = {}
        while left := [part for part in parts if part not in ids]:
            groups = [self._putting(part, known, own, vectors.get(part)) for part in left]
            done = self._session.run([group for _, group in groups])
            ids |= {part: id for part, (id, _), kept in zip(left, groups, done, strict=True) if kept}
        return ids[parts[0]]

    def _putting(
        self, text: str, known: Mapping[str, str | int], own: int | None, vector: Vector | None
    ) -> tuple[int, CommandGroup]:
        """Return the commands that put one text as things are now; refused if they have changed meanwhile."""
        group, hash = CommandGroup(), texts.hash_of(text)
        old, trashed = (self._client.hget(self._key(name), hash) for name in ("ids", "trashed"))
        group.expected += [(self._key("ids"), hash, old or ""), (self._key("trashed"), hash, trashed or "")]
        if old is not None:
            id = int(old)
            names = ("trusted", "kind", "source")
            seen = [value or b"" for value in self._client.hmget(self._key("m", id), names)]
            group.expected += [(self._key("m", id), name, value) for name, value in zip(names, seen, strict=True)]
            new = {name: known[name] for name in ("t", "stored", "run", "step")}
            if seen[0] == b"1" and not known["trusted"]:
                new |= {"trusted": 0, "source": known["source"]}
            elif not seen[2]:
                new |= {"source": known["source"]}
            if seen[1] in (b"step", b"fact"):
                new |= {"kind": known["kind"]}
            group.do("HSET", self._key("m", id), *flat(new))
            group.do("ZADD", self._key("alive"), known["t"], member_of(id))
            self._index_of_user(group, id, known)
            return id, group
        id = int(self._client.hincrby(self._key("about"), "next", 1))
        if trashed is not None:
            self._records.do_delete(group, int(trashed), hash)
        group.do("HSET", self._key("m", id), *flat({**known, "text": text, "level": 0}))
        self._records.do_index(group, id, text, str(known["t"]))
        self._index_of_user(group, id, known)
        if own is not None and vector is not None:
            self._records.do_set_vector(group, own, id, vector)
        return id, group

    def _index_of_user(self, group: CommandGroup, id: int, known: Mapping[str, str | int]) -> None:
        if known["kind"] in ("feedback", "user") or "user" in str(known["source"]).split(", "):
            group.do("SADD", self._key("of_user"), member_of(id))

    def find(self, text: str) -> RetrievedMemory | None:
        with self._storage():
            id = self._client.hget(self._key("ids"), texts.hash_of(valid_text(text)))
            found = self._memories([int(id)] if id is not None else [])
            return next(iter(found.values()), None)

    def _change(self, changes: Sequence[Change], *, whole: bool, durable: bool, expired: float | None) -> int:
        if expired is not None:
            old = self._client.zrange(self._key("trash"), "-inf", f"({float(expired)!r}", byscore=True)
            groups = []
            for id, seen in self._records.fields(map(int, old)).items():
                if b"forgotten" in seen:
                    groups.append(CommandGroup([(self._key("m", id), "forgotten", seen[b"forgotten"])]))
                    self._records.do_delete(groups[-1], id, texts.hash_of(seen[b"text"].decode()))
            self._session.run(groups)
        there = self._records.fields([change.id for change in changes])
        as_seen = [change for change in changes if _is_as_seen(change, there[change.id])]
        if whole and len(as_seen) < len(changes):
            return 0
        return sum(self._session.run([self._changing(change, there[change.id]) for change in as_seen], whole))

    def _changing(self, change: Change, seen: Fields) -> CommandGroup:
        key = self._key("m", change.id)
        group = CommandGroup([(key, name, seen.get(name.encode(), b"")) for name in ("t", "level", "forgotten")])
        text, t = seen[b"text"].decode(), repr(float(change.t))
        group.do("HSETNX", key, "stored", repr(_recollection(change.id, seen, "t").made))  # of an older autoagent
        if change.level is None:
            self._records.do_unindex(group, change.id, text)
            group.do("HSET", key, "forgotten", t)
            group.do("ZADD", self._key("trash"), t, member_of(change.id))
            group.do("HSET", self._key("trashed"), texts.hash_of(text), change.id)
            return group
        if change.level == GONE:
            self._records.do_unindex(group, change.id, text)
            group.do("DEL", key)
            return group
        if change.trash:
            group.do("HDEL", key, "forgotten")
            group.do("HSET", key, "t", t, "level", change.level)
            group.do("ZREM", self._key("trash"), member_of(change.id))
            group.do("HDEL", self._key("trashed"), texts.hash_of(text))
            self._records.do_index(group, change.id, text, t)
            group.do("ZADD", self._key("levels"), change.level, member_of(change.id))
            return group
        source = {} if change.source is None else {"source": valid_text(change.source)}
        group.do("HSET", key, *flat({"t": t, "level": change.level, **source}))
        group.do("ZADD", self._key("alive"), t, member_of(change.id))
        group.do("ZADD", self._key("levels"), change.level, member_of(change.id))
        return group

    def sample(self, n: int, below: int) -> list[RetrievedMemory]:
        with self._storage():
            count = int(self._client.zcount(self._key("levels"), "-inf", f"({below}"))
            pipeline = self._client.pipeline(transaction=False)
            for rank in random.sample(range(count), min(max(n, 0), count)):
                pipeline.zrange(self._key("levels"), rank, rank)
            found = self._memories({int(member) for members in pipeline.execute() for member in members})
            return [memory for memory in found.values() if memory.level < below]

    def of(self, ids: Collection[int], *, trash: bool = False) -> list[RetrievedMemory]:
        with self._storage():
            return list(self._memories(sorted(ids), trash=trash).values())

    def listed(
        self, limit: int = -1, offset: int = 0, *, of_user: bool = False, trash: bool = False
    ) -> list[RetrievedMemory]:
        with self._storage():
            if of_user:
                pinned = self._client.zrange(self._key("levels"), PINNED, "+inf", byscore=True)
                theirs = {int(member) for member in (*pinned, *self._client.smembers(self._key("of_user")))}
                newest = sorted(self._memories(theirs).values(), key=lambda memory: (-memory.t, -memory.id))
                return newest[offset : None if limit < 0 else offset + limit]
            last = -1 if limit < 0 else offset + limit - 1
            if limit == 0:
                return []
            members = self._client.zrange(self._key("trash" if trash else "alive"), offset, last, desc=True)
            return list(self._memories(map(int, members), trash=trash).values())

    def _count(self) -> int:
        return int(self._client.zcard(self._key("alive")))

    def stats(self) -> Stats:
        """Return the figures; the bytes are estimated from the
        newest memories and their vectors, without the word index.
        """
        with self._storage():
            spaces = {int(number): name.decode() for name, number in self._client.hgetall(self._key("spaces")).items()}
            newest = max(spaces, default=0)
            embedder, _, dim = spaces.get(newest, " 0").rpartition(" ")
            count, looked_at = self._count(), self.listed(20)
            pipeline = self._client.pipeline(transaction=False)
            for memory in looked_at:
                pipeline.memory_usage(self._key("m", memory.id))
                pipeline.memory_usage(self._key("e", newest, member_of(memory.id)))
            size = sum(size or 0 for size in pipeline.execute())
            return Stats(count, size * count // max(len(looked_at), 1), embedder, int(dim), self._session.where)

    # What is found ----------------------------------------------------------------------------------------------

    def _nearest(self, vector: Vector, k: int, skip: Skip) -> list[RetrievedMemory]:
        return search_wider(lambda count: self._best(vector, count), k, skip, SLACK)

    def _best(self, vector: Vector, count: int) -> tuple[list[RetrievedMemory], bool]:
        members = self._records.index.near(self._space(), vector.tobytes(), count)
        kept = self._kept_vectors([int(member) for member in members])
        scores = {id: float(np.frombuffer(kept[id], FLOAT) @ vector) for id in sorted(kept)}
        return self._in_order({id: score for id, score in scores.items() if score > 0}), len(members) < count

    def _matching(self, query: str, k: int, skip: Skip) -> list[RetrievedMemory]:
        counts, total = self._word_counts(list(dict.fromkeys(texts.words(query)))[:MAX_WORDS])
        there = {word: n for word, n in counts.items() if n}
        weights = {self._key("w", word): w for word, w in texts.weights(there, MAX_MATCHES, total).items()}
        return search_wider(lambda count: self._best_worded(weights, count), k, skip, SLACK) if weights else []

    def _best_worded(self, weights: Mapping[str, float], count: int) -> tuple[list[RetrievedMemory], bool]:
        union = self._key("asked", uuid.uuid4().hex)
        pipeline = self._client.pipeline(transaction=True)  # so that the union is never left behind
        pipeline.zunionstore(union, dict(weights), aggregate="SUM")
        pipeline.zrange(union, 0, count - 1, desc=True, withscores=True)
        pipeline.delete(union)
        found = pipeline.execute()[1]
        return self._in_order({int(member): float(score) for member, score in found}), len(found) < count

    def _in_order(self, scores: Mapping[int, float]) -> list[RetrievedMemory]:
        """Return these memories with their scores, the best first."""
        return list(self._memories(sorted(scores, key=lambda id: (-scores[id], id)), scores).values())

    def _word_counts(self, words: Collection[str]) -> tuple[dict[str, int], int]:
        pipeline = self._client.pipeline(transaction=False)
        for word in words:
            pipeline.zcard(self._key("w", word))
        return dict(zip(words, map(int, pipeline.execute()), strict=True)), self._count()

    def vectors(self, ids: Sequence[int]) -> dict[int, bytes]:
        with self._storage():
            return self._kept_vectors(ids)

    def _kept_vectors(self, ids: Sequence[int]) -> dict[int, bytes]:
        pipeline, space = self._client.pipeline(transaction=False), self._space()
        for id in ids:
            pipeline.hget(self._key("e", space, member_of(id)), "v")
        return {id: vector for id, vector in zip(ids, pipeline.execute(), strict=True) if vector is not None}

    # Texts to vectors -------------------------------------------------------------------------------------------

    def _without_vector(self, after: int) -> dict[int, str]:
        key = self._key("want", self._space())
        if not after:
            self._client.zunionstore(key, {key: 0})  # the copies that older versions made have other scores
        start = f"({member_of(after)}"  # all have the score 0, so that they lie in the order of their ids
        members = self._client.zrange(key, start, "+", bylex=True, offset=0, num=BATCH)
        return {id: memory.text for id, memory in self._memories(map(int, members)).items()}

    def _store_vectors(self, vectors: Mapping[int, Vector]) -> None:
        space, groups = self._space(), []
        for id, memory in self._memories(vectors).items():
            key = self._key("m", id)
            group = CommandGroup([(key, "forgotten", ""), (key, "text", memory.text)])
            self._records.do_set_vector(group, space, id, vectors[id])
            groups.append(group)
        self._session.run(groups)

    def _space(self) -> int:
        """Return the number of this embedder's space; one made now wants a vector for every memory there is."""
        while self._own_space is None:
            name, dim = self._embedding.name, self._embedding.dim
            count, spaces = self._records.count_spaces(), self._client.hgetall(self._key("spaces"))
            if (found := spaces.get(f"{name} {dim}".encode())) is not None:
                self._own_space = int(found)
                break
            space = count + 1
            group = CommandGroup([(self._key("about"), "spaces", count or "")])
            group.do("HSET", self._key("about"), "spaces", space)
            group.do("HSET", self._key("spaces"), f"{name} {dim}", space)
            group.do("ZUNIONSTORE", self._key("want", space), 1, self._key("alive"), "WEIGHTS", 0)
            for command in self._records.index.make(space, dim):
                group.do(*command)
            if self._session.run([group])[0]:
                self._own_space = space
                if count and (there := self._count()):
                    before = max(spaces, key=lambda name: int(spaces[name])).decode()
                    old, _, old_dim = before.rpartition(" ")
                    self._embedding.report_change(old, int(old_dim), there)
        return self._own_space

    # Redis ------------------------------------------------------------------------------------------------------

    def _memories(
        self, ids: Iterable[int], scores: Mapping[int, float] | None = None, *, trash: bool = False
    ) -> dict[int, RetrievedMemory]:
        """Return the memories with these ids that exist, and are in the trash or not, in the same order."""
        scores = scores or {}
        return {
            id: _recollection(id, seen, "forgotten" if trash else "t", scores.get(id, 0.0))
            for id, seen in self._records.fields(ids).items()
            if seen and (b"forgotten" in seen) == trash
        }


def _is_as_seen(change: Change, fields: Fields) -> bool:
    if not fields or (b"forgotten" in fields) != change.trash:
        return False
    return (float(fields[b"forgotten" if change.trash else b"t"]), int(fields[b"level"])) == tuple(change.seen)


def _recollection(id: int, fields: Fields, time: str, score: float = 0.0) -> RetrievedMemory:
    known = {name.decode(): value.decode() for name, value in fields.items()}
    return RetrievedMemory(
        id, known["text"], score, known["kind"], known["source"], known["trusted"] == "1", float(known[time]),
        known["run"], int(known["step"]), int(known["level"]), stored=float(known.get("stored", 0)),
    )  # fmt: skip
