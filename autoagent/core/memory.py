"""Define the records of the long-term memory: memories recalled, left out, dreamt and counted."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NotRequired, TypedDict

from autoagent.core.frozen import dataclass

if TYPE_CHECKING:
    from autoagent.core.commands import ResultMeta

# Labels in the source of a memory, beside others:
PRIVATE = "private"  # it may hold the user's own data
PRIVATE_SOURCES = frozenset({PRIVATE, "user"})  # it is private: from a run with such data, or the user's own words
SET_ASIDE = "set aside"  # the user has taken it out of the core
PUBLIC = "public"  # the user has said that it may be treated like a goal
_SUPERSEDED = re.compile(r"superseded(?: by (-?\d+))?")  # a newer memory contradicts it; without an id it is a guess

RUN_RECORD = "A run for: "  # begins the fact that summarizes a run and its result
PINNED = 1_000_000  # the level of a pinned memory, beyond reach of use, so that it never changes
USER = "user"  # the kind of the user's own memories: facts and preferences, for runs in all folders
BEYOND = "beyond the number asked for"  # why a fitting memory is left out
FROM_OUTSIDE = "from outside"  # why a fitting memory is left out where only trusted ones are recalled
GONE = -1  # the level, in a change, of a memory that is deleted for good

# How long each kind of memory lives, as a multiple of the threshold of level 0. The default is 1, and with infinity it
# does not fade, as it was stored on purpose. Steps are many, and facts are extracted from them at the end of a run. By
# the default thresholds, facts live for at least 91 days after each use.
LIVES = {"step": 0.5, "fact": 13.0, "note": math.inf, "feedback": math.inf, USER: math.inf}


def plain_sources(source: str) -> str:
    """Return the sources alone, without a link to a newer memory and without the marks of the user's."""
    return link_to_newer(with_mark(with_mark(source, SET_ASIDE, on=False), PUBLIC, on=False))


def link_to_newer(source: str, superseded_by: int | None = None) -> str:
    """Return the source with this link to a newer memory, replacing any other."""
    parts = [part for part in source.split(", ") if part and not _SUPERSEDED.fullmatch(part)]
    return ", ".join(parts if superseded_by is None else [*parts, f"superseded by {superseded_by}"])


def with_mark(source: str, mark: str, *, on: bool) -> str:
    """Return the source with a mark of the user's, or without it."""
    parts = [part for part in source.split(", ") if part and part != mark]
    return ", ".join([*parts, mark] if on else parts)


@dataclass(frozen=True, slots=True)
class Origin:
    """The sources of a memory."""

    source: str = ""  # comma-separated
    trusted: bool = True  # none of them is outside

    @property
    def labels(self) -> ResultMeta:
        """Return the labels `untrusted` and `private`, as far as they apply."""
        from autoagent.core.commands import ResultMeta

        outside = "" if self.trusted else with_mark(plain_sources(self.source), PRIVATE, on=False) or "outside"
        return ResultMeta(untrusted=outside, private=PRIVATE in self.source.split(", "))


@dataclass(frozen=True, slots=True)
class RetrievedMemory:
    """A memory found by a query."""

    id: int  # in a run, a negative id belongs to the user's own memory: -3 is its memory 3
    text: str
    score: float  # the scale depends on the search
    kind: str = "step"
    source: str = ""
    trusted: bool = True
    t: float = 0.0  # when it was stored or last recalled, in seconds since the epoch
    run: str = ""
    step: int = 0
    level: int = 0  # how firmly it is kept
    evidence: float = 0.0  # its own weight, once a recall has computed it
    stored: float = 0.0  # when its text was last stored, which no use changes; 0: unknown

    @property
    def sources(self) -> frozenset[str]:
        """Return the sources, and the marks of the user."""
        return frozenset(self.source.split(", "))

    @property
    def private(self) -> bool:
        """Return whether it may hold the user's own data."""
        return not self.public and not PRIVATE_SOURCES.isdisjoint(self.sources)

    @property
    def public(self) -> bool:
        """Return whether the user allows it to be treated like a goal. Text from outside cannot claim that."""
        return self.trusted and self.pinned and PUBLIC in self.sources

    @property
    def of_user(self) -> bool:
        """Return whether it is in the user's own memory instead of the folder's."""
        return self.id < 0

    @property
    def superseded_by(self) -> int | None:
        """Return the id of the newer memory that contradicts it, or None."""
        links = map(_SUPERSEDED.fullmatch, self.sources)
        return next((int(link[1]) for link in links if link and link[1]), None)

    @property
    def core_rank(self) -> int:
        """Return its rank in the core: 1 pinned, 2 the user's own, 3 notes, 4 feedback in a run; 0: excluded.

        Outside text is excluded, as is anything corrected by a newer memory or removed by the user.
        """
        if not self.trusted or self.superseded_by is not None or SET_ASIDE in self.sources:
            return 0
        ranks = (self.pinned, self.kind == USER, "user" in self.sources, self.kind == "feedback")
        return ranks.index(True) + 1 if any(ranks) else 0

    @property
    def pinned(self) -> bool:
        return self.level >= PINNED

    @property
    def made(self) -> float:
        """Return when it was stored. If unknown, the start of its run, from the run's name, else `t`."""
        if self.stored:
            return self.stored
        import calendar  # rarely needed, and slow to import

        try:
            return min(calendar.timegm(time.strptime(self.run[:15], "%Y%m%d-%H%M%S")), self.t)
        except ValueError:
            return self.t


class MemoryFields(TypedDict):
    """The fields of a memory that a store keeps beside its text."""

    t: float  # its time, in seconds since the epoch
    kind: str
    source: str
    trusted: bool
    run: str
    step: int
    stored: NotRequired[float]  # when its text was stored, by default `t`


Filter = Callable[[RetrievedMemory], bool]  # whether a recall may return a memory
Retriever = Callable[[str, Callable[[], Sequence[RetrievedMemory]]], Mapping[int, float]]  # see extension.Host
Gate = Callable[[str, Sequence[RetrievedMemory]], Mapping[int, float]]
Reranker = Callable[[str, Sequence[RetrievedMemory]], Iterable[int]]


@dataclass(frozen=True, slots=True)
class RecallHooks:
    """The functions that take part in a recall: they find further candidates, weigh their evidence, and order them."""

    retrievers: Sequence[Retriever] = ()
    gates: Sequence[Gate] = ()
    rerankers: Sequence[Reranker] = ()
    on_request: Sequence[Reranker] = ()  # for explicit queries that leave memories out, as each call costs money


def memory_name(id: int) -> str:
    """Return the displayed id of a memory: `12`, or `user:3` in the user's own memory."""
    return str(id) if id >= 0 else f"user:{-id}"


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A candidate that a recall rejected, and why: a poor fit, too similar, or beyond the limit."""

    id: int
    score: float
    reason: str
    evidence: float = 0.0


@dataclass(frozen=True, slots=True)
class Recall:
    """The outcome of a recall: the memories returned, best first, and the candidates left out."""

    memories: tuple[RetrievedMemory, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    problem: str = ""  # why the search by meaning failed, so that words alone decided
    ranking_problem: str = ""  # why the ranking model did not order them
    gate: float = 0.0  # the evidence that was needed


@dataclass(frozen=True, slots=True)
class Change:
    """A change of a memory, applied only if its time and level are still as `seen`."""

    id: int
    seen: tuple[float, int]
    t: float
    level: int | None  # None: it is forgotten, and goes to the trash; GONE: it is deleted for good
    source: str | None = None  # None: it stays
    trash: bool = False  # it was seen there, forgotten at `seen[0]`, and is restored


@dataclass(frozen=True, slots=True)
class Found:
    """The candidates that a store has for a query."""

    near: Sequence[RetrievedMemory]  # by the cosine of their vectors to the query's, best first, none of 0 or below
    worded: Sequence[RetrievedMemory]  # by the words shared with the query (`score`: BM25 or similar)
    vectors: Mapping[int, bytes]  # of the candidates that have one, by id
    meaning: Mapping[int, float]  # by id: 0 as near as unrelated texts, 1 as texts that certainly belong together
    counts: Mapping[str, int]  # about how many memories have each content word of the query
    total: int  # about how many memories there are
    problem: str = ""  # why nothing was searched by meaning


@dataclass(frozen=True, slots=True)
class Dream:
    """The outcome of a sleep: memories that fell a level, forgotten ids, and the dream made from those memories."""

    text: str = ""  # of the dream, '' if nothing was forgotten or it failed
    forgotten: tuple[int, ...] = ()
    fallen: tuple[int, ...] = ()
    t: float = 0.0
    trusted: bool = True  # no fragment came from an untrusted source
    problem: str = ""  # why the dream failed
    private: bool = False  # a fragment was the user's own


@dataclass(frozen=True, slots=True)
class Stats:
    """The figures of a store."""

    count: int  # of texts
    bytes: int
    embedder: str  # the newest, '' for none
    dim: int
    place: str
    id: str = ""  # as `Memory.store_id`
    last: int = 0  # the highest id that was ever given to a memory there
