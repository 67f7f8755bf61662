"""The long-term memory as records: memories recalled, left out, dreamt and counted."""

from __future__ import annotations

import math
import re
import time
from typing import TYPE_CHECKING

from autoagent.core.frozen import dataclass

if TYPE_CHECKING:
    from autoagent.core.commands import ResultMeta

PRIVATE = "private"
"""What the source of a memory names, beside others, where it may hold what is the user's own."""

PRIVATE_SOURCES = frozenset({PRIVATE, "user"})
"""The sources that make a memory private: a run that held such data, or the user's own words."""


_SUPERSEDED = re.compile(r"superseded(?: by (-?\d+))?")
"""What a source names, beside others, once a newer memory has another value. The bare word marked guesses."""

RUN_RECORD = "A run for: "
"""The beginning of the fact that says what a run was for and what it came to."""

_SET_ASIDE = "set aside"
"""What a source names, beside others, where the user has taken the memory out of the core."""

PINNED = 1_000_000
"""The level of a pinned memory: above all that use can reach, so that it never changes."""

USER = "user"
"""The kind of a memory of the user's own: a fact about him or a preference of his, for the runs of all his folders."""

LIVES = {"step": 0.5, "fact": 13.0, "note": math.inf, "feedback": math.inf, USER: math.inf}
"""How slowly a memory of each kind fades, as a multiple of the thresholds; infinity: not by itself. Any other kind: 1.

Steps are many, and at the end of a run the facts are taken from them, which live for 91 days after each use at least
(by the usual thresholds); what somebody chose to keep does not fade.
"""


def origin_of(source: str) -> str:
    """Return the sources alone, without a link to a newer memory and without the mark of one set aside."""
    return linked(", ".join(part for part in source.split(", ") if part != _SET_ASIDE))


def linked(source: str, superseded_by: int | None = None) -> str:
    """Return the source with this link to a newer memory in place of any other."""
    parts = [part for part in source.split(", ") if part and not _SUPERSEDED.fullmatch(part)]
    return ", ".join(parts if superseded_by is None else [*parts, f"superseded by {superseded_by}"])


def set_aside(source: str, *, aside: bool) -> str:
    """Return the source with the mark that keeps a memory out of the core, or without it."""
    parts = [part for part in source.split(", ") if part and part != _SET_ASIDE]
    return ", ".join([*parts, _SET_ASIDE] if aside else parts)


@dataclass(frozen=True, slots=True)
class Origin:
    """The comma-separated sources of a memory. `trusted`: none of them is outside."""

    source: str = ""
    trusted: bool = True

    @property
    def labels(self) -> ResultMeta:
        """`untrusted` and `private`, as far as they hold."""
        from autoagent.core.commands import ResultMeta

        parts = self.source.split(", ")
        outside = (
            ""
            if self.trusted
            else ", ".join(part for part in origin_of(self.source).split(", ") if part and part != PRIVATE) or "outside"
        )
        return ResultMeta(untrusted=outside, private=PRIVATE in parts)


@dataclass(frozen=True, slots=True)
class RetrievedMemory:
    """A memory found by a query. The scale of `score` depends on the search.

    `t` is when it was stored or last recalled (seconds since the epoch), `level` how firmly it is kept. In a run, a
    negative id belongs to the user's own memory: -3 is its memory 3. `evidence` is what speaks for it by itself, once
    a recall has weighed it.
    """

    id: int
    text: str
    score: float
    kind: str = "step"
    source: str = ""
    trusted: bool = True
    t: float = 0.0
    run: str = ""
    step: int = 0
    level: int = 0
    evidence: float = 0.0

    @property
    def private(self) -> bool:
        """Whether it may hold the user's own data."""
        return not PRIVATE_SOURCES.isdisjoint(self.source.split(", "))

    @property
    def of_user(self) -> bool:
        """Whether it is in the user's own memory, not in that of the folder."""
        return self.id < 0

    @property
    def superseded_by(self) -> int | None:
        """The newer memory that says the same with another value. None: there is none."""
        links = (_SUPERSEDED.fullmatch(part) for part in self.source.split(", "))
        return next((int(link[1]) for link in links if link and link[1]), None)

    @property
    def core_rank(self) -> int:
        """The importance in the core: 1 pinned, 2 the user's own, 3 his notes, 4 his words to a run. 0: no part of it.

        Text from outside is no part of it, nor is what a newer memory corrects or the user has set aside.
        """
        sources = self.source.split(", ")
        if not self.trusted or self.superseded_by is not None or _SET_ASIDE in sources:
            return 0
        of_user = (self.pinned, self.kind == USER, "user" in sources, self.kind == "feedback")
        return of_user.index(True) + 1 if any(of_user) else 0

    @property
    def pinned(self) -> bool:
        """Whether the user has pinned it."""
        return self.level >= PINNED

    @property
    def made(self) -> float:
        """The start of its run, taken from the run's name, so that later use does not make it younger; else `t`."""
        import calendar  # few runs need it, and it takes a while

        try:
            return min(calendar.timegm(time.strptime(self.run[:15], "%Y%m%d-%H%M%S")), self.t)
        except ValueError:
            return self.t


FROM_OUTSIDE = "from outside"
"""Why a memory that fits is left out where only trusted ones are recalled."""


def memory_name(id: int) -> str:
    """Return the displayed id of a memory: `12`, or `user:3` in the user's own memory."""
    return str(id) if id >= 0 else f"user:{-id}"


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A candidate that a recall did not return, and why: it fits too little, is too similar, or beyond the number."""

    id: int
    score: float
    reason: str
    evidence: float = 0.0


@dataclass(frozen=True, slots=True)
class Recall:
    """The outcome of a recall: the memories returned, best first, and the candidates left out.

    `problem`: why the search by meaning failed, so that words alone decided, or '' if it worked. `unranked`: why the
    ranking model did not put them in order. `gate`: the evidence that was needed.
    """

    memories: tuple[RetrievedMemory, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    problem: str = ""
    unranked: str = ""
    gate: float = 0.0


@dataclass(frozen=True, slots=True)
class Change:
    """A change of a memory, made only if its time and level are still as they were `seen`.

    `level` None: it is forgotten, and goes to the trash. `source` None: it stays as it is.
    """

    id: int
    seen: tuple[float, int]
    t: float
    level: int | None
    source: str | None = None


@dataclass(frozen=True, slots=True)
class Dream:
    """The outcome of a sleep: the memories that fell a level, the forgotten ids, and the dream made of the latter.

    `text` is '' if nothing was forgotten or the dream failed. `problem` then has the reason. `trusted` is False if any
    fragment came from an untrusted source, `private` True if any was the user's own.
    """

    text: str = ""
    forgotten: tuple[int, ...] = ()
    fallen: tuple[int, ...] = ()
    t: float = 0.0
    trusted: bool = True
    problem: str = ""
    private: bool = False


@dataclass(frozen=True, slots=True)
class Stats:
    """The figures of a store: its texts, bytes, newest embedder ('' for none), dimension, and where it is."""

    count: int
    bytes: int
    embedder: str
    dim: int
    place: str
