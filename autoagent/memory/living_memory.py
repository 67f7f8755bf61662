"""The rules by which memories strengthen with use and fade without it, the same for all stores.

The rules for a memory's time and level, with `now` from a clock:

- Stored: time = now, level 0. - Returned by a recall: level 0 rises to 1. A higher level rises by one if now - time
exceeds the level's threshold; then time = now. - A candidate not returned, or met by a sleep: if now - time exceeds the
threshold, the level falls by one and time = now, so it falls at most once per threshold. Below level 0 it is forgotten.
- The threshold grows exponentially with the level, up to a cap. Beyond the cap a memory is long-term: its level is
fixed and it never fades.

A change of the time alone is written only if it is at least a minute, to save a write per step.

A clock that runs backwards counts as no time passed.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Self

from autoagent.core.errors import ForModel, ForUser, ModelError, StateError
from autoagent.core.memory import (
    FROM_OUTSIDE,
    PINNED,
    RUN_RECORD,
    USER,
    Change,
    Dream,
    LeftOut,
    Recall,
    RetrievedMemory,
    linked,
    origin_of,
    set_aside,
)
from autoagent.core.model import Usage
from autoagent.core.protocols import MemoryStore
from autoagent.memory import duplicates, texts
from autoagent.memory.asking import Journal, dream_prompt, reranked
from autoagent.memory.evidence import ENOUGH, ENOUGH_ASKED, PART, USED, WORDS_ENOUGH, Question, terms
from autoagent.memory.ranking import DAY, Candidate, RankingWeights, rank

CHOSEN = ("note", "fact", "feedback", USER)  # kinds of what somebody chose to keep: one may supersede another
SUPERSEDABLE = 12  # memories by meaning, and as many by words, that a new one is compared with
DRAWN = 3  # memories drawn for each that is to fade, as some do not
WIDEST = 5000  # memories looked at for those that are wanted
PASSAGE = 400  # characters of a memory that a prompt shows


@dataclass(frozen=True, slots=True)
class LifeRules:
    """The parameters of the rules. Times are in seconds.

    `base`: the threshold of level 0. `growth`: its factor per level. `cap`: the last level with a threshold. `trash`:
    how long a forgotten memory can be restored. `sleep`: how many memories a sleep meets. `alike`: the cosine of
    near-duplicates. `lives`: the factor of the thresholds by kind, default 1. `pushed_is_use`: being pushed into a
    prompt counts as use. `grain`: the smallest change of the time alone that is written.
    """

    base: float = 7 * DAY
    growth: float = 2.0
    cap: int = 3
    trash: float = 30 * DAY
    sleep: int = 100
    alike: float = 0.97
    lives: Mapping[str, float] = field(default_factory=dict)
    pushed_is_use: bool = False
    grain: float = 60.0

    def fades(self, memory: RetrievedMemory) -> bool:
        """Return whether it can fade: it is not long-term, and its kind fades."""
        return not self.is_long_term(memory.level) and self._life(memory) < math.inf

    def _life(self, memory: RetrievedMemory) -> float:
        return self.lives.get(memory.kind, 1.0)

    def threshold(self, level: int) -> float:
        """Return the seconds after which a memory of this level
        rises by being returned, and falls by not being returned.
        """
        return self.base * self.growth ** min(level, self.cap)

    def is_long_term(self, level: int) -> bool:
        return level > self.cap

    def strengthened(self, memory: RetrievedMemory, now: float) -> tuple[float, int]:
        """Return time and level of a memory that was returned."""
        level = memory.level
        if level == 0 or (not self.is_long_term(level) and now - memory.t > self.threshold(level)):
            level += 1
        return max(memory.t, now), level

    def weakened(self, memory: RetrievedMemory, now: float) -> tuple[float, int | None]:
        """Return the time and level of a memory that was met but not returned. Level None: it is forgotten."""
        if not self.fades(memory) or now - memory.t <= self.threshold(memory.level) * self._life(memory):
            return memory.t, memory.level
        return now, memory.level - 1 if memory.level else None

    def dies_at(self, memory: RetrievedMemory) -> float:
        """Return the earliest time at which an unused memory is forgotten, or infinity for a long-term memory."""
        if not self.fades(memory):
            return math.inf
        return memory.t + self._life(memory) * sum(self.threshold(level) for level in range(memory.level + 1))


@dataclass(frozen=True, slots=True)
class ForgettingForecast:
    """The forecast for a memory that is not used: after how
    many sleeps that meet it, and from when, it is forgotten.

    `now`: the next sleep that meets it forgets it. `sleeps`: as many are to be expected until then, as each meets but
    some of the memories.
    """

    memory: RetrievedMemory
    now: bool
    meetings: int
    sleeps: int
    at: float


class LivingMemory:
    """Satisfies Memory: a store whose memories follow the rules.

    `clock` returns seconds since the epoch. `journal` keeps the dreams. With
    `trusted_only`, memories from outside are not recalled. `rerank` asks a model to order the results of a query, but
    not of a push. Methods raise as those of the store do.
    """

    def __init__(
        self,
        store: MemoryStore,
        journal: Journal | None = None,
        *,
        rules: LifeRules | None = None,
        weights: RankingWeights | None = None,
        clock: Callable[[], float] = time.time,
        trusted_only: bool = False,
        rerank: Callable[[str], str] | None = None,
    ) -> None:
        self.store = store
        self.journal = journal
        self.rules = rules or LifeRules()
        self.weights = weights or RankingWeights()
        self._clock = clock
        self._trusted_only = trusted_only
        self.hides: Callable[[str], bool] = lambda place: False  # those stored by an agent of this place
        self._rerank = rerank
        self.core_changes = 0

    def close(self) -> None:
        self.store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __len__(self) -> int:
        return len(self.store)

    def take_usage(self) -> Usage:
        return self.store.take_usage()

    # Remembering and recalling ----------------------------------------------------------------------------------

    def add(
        self,
        text: str,
        *,
        kind: str = "note",
        source: str = "",
        trusted: bool = True,
        run: str = "",
        step: int = 0,
        durable: bool = True,
    ) -> int | None:
        """Store a text. A repeated text counts as used: it is strengthened, and its time is now."""
        known = [memory for part in texts.parts(text) if (memory := self.store.find(part))]
        now = max([self._clock(), *(memory.t for memory in known)])
        id = self.store.put(text, t=now, kind=kind, source=source, trusted=trusted, run=run, step=step, durable=durable)
        changes = [Change(m.id, (now, m.level), *self.rules.strengthened(m, now)) for m in known]
        self.store.change(changes, durable=durable)
        if id is not None and trusted and kind in CHOSEN:
            self.core_changes += 1
            self._supersede(id, text, "user" if kind == "feedback" else source)
        return id

    @property
    def store_id(self) -> str:
        return self.store.id

    def has_lost(self, memory: int, run: str, text: str = "") -> bool:
        return not self.store.has_assigned(memory, run, text)

    def _supersede(self, id: int, text: str, source: str) -> None:
        """Link the memories for which this one has another value to it. Both are kept.

        What the user said or pinned gives way to his own words alone. A link that pointed the other way is undone.
        """
        near, _ = self._near(text, SUPERSEDABLE)
        of_user = "user" in source.split(", ")
        others = {m.id: m for m in (*near, *self.store.worded(text, SUPERSEDABLE)) if m.id != id and m.kind in CHOSEN}
        replaced = [m for m in others.values() if duplicates.corrects(text, m.text)]
        if any(_is_users(m) and not of_user for m in replaced):
            return
        links: list[tuple[RetrievedMemory, int | None]] = [(m, id) for m in replaced if m.superseded_by != id]
        links += [(m, None) for m in self.store.of([id]) if m.superseded_by is not None]
        self.store.change([Change(m.id, (m.t, m.level), m.t, m.level, linked(m.source, to)) for m, to in links])

    def supersede(self, old: int, new: int) -> bool:
        """Link a memory to the newer one that takes its place, unless it is the user's, pinned, or better trusted."""
        [*there] = self.store.of([old, new])
        if len(there) < 2 or old == new:
            return False
        was, now = sorted(there, key=lambda memory: memory.id != old)
        if was.kind not in CHOSEN or _is_users(was) or (was.trusted and not now.trusted):
            return False
        return self.store.change([Change(old, (was.t, was.level), was.t, was.level, linked(was.source, new))]) == 1

    def recall(
        self,
        query: str,
        k: int = 10,
        *,
        skip: Collection[tuple[str, int]] = (),
        pushed: bool = False,
        meant: Callable[[RetrievedMemory], bool] | None = None,
    ) -> Recall:
        """Return the memories as they were found. The changes to them are then written, but not synced.

        Only `meant` memories are considered; with an empty query, the newest of those are returned. If the embedder
        fails, words alone decide and no candidate fades. A `pushed` memory is strengthened only when the agent asks for
        it or acts on it (`use`).
        """
        if k < 1:
            return Recall()
        now, breadth = self._clock(), k * self.weights.breadth
        outside: dict[int, RetrievedMemory] = {}

        def wanted(memory: RetrievedMemory) -> bool:
            if (meant is not None and not meant(memory)) or self.hides(memory.run):
                return False
            if self._trusted_only and not memory.trusted:
                outside.setdefault(memory.id, memory)
                return False
            return True

        if meant is not None and not query.strip():
            newest = [memory for memory in self.store.listed(WIDEST) if wanted(memory)][:k]
            barred = list(outside.values())[:breadth]
            return Recall(tuple(newest), tuple(LeftOut(memory.id, 0.0, FROM_OUTSIDE) for memory in barred))
        near, problem = self._near(query, breadth, skip, wanted)
        worded = _first(lambda count: self.store.worded(query, count, skip), breadth, wanted)
        near, worded = self._without_dead_links(near), self._without_dead_links(worded)
        candidates = {memory.id: memory for memory in (*near, *worded)}
        telling = terms(texts.query(query))
        asked = Question(*self.store.word_counts(telling)) if telling else Question({}, 0)
        barred = list(outside.values())[:breadth]
        vectors = {} if problem else self.store.vectors([*candidates, *(memory.id for memory in barred)])
        meaning = self.store.meaning(query, vectors) if vectors else {}
        weighed = {
            memory.id: round(meaning.get(memory.id, 0.0) + asked.coverage(memory.text) / WORDS_ENOUGH, 4)
            for memory in (*candidates.values(), *barred)
        }
        by_words = {memory.id: memory.score for memory in worded}
        found = [
            Candidate(m, meaning.get(id, 0.0), by_words.get(id, 0.0), weighed[id], m.text.startswith(RUN_RECORD))
            for id, m in candidates.items()
        ]
        enough, part = (ENOUGH, PART) if pushed else (ENOUGH_ASKED, 0.0)
        model = self._rerank if not pushed else None
        recall = rank(
            found, n=breadth if model else k, now=now, weights=self.weights, vectors=vectors, enough=enough, part=part,
        )  # fmt: skip
        if model is not None:
            recall = reranked(recall, k, query, model)
        used = [candidates.pop(memory.id) for memory in recall.memories if weighed[memory.id] >= USED]
        if pushed and not self.rules.pushed_is_use:
            used = []
        fading = self._fading([] if problem else candidates.values(), now)
        forgets = any(change.level is None for change in fading)
        self.store.change(self._rising(used, now) + fading, durable=forgets)
        if forgets:
            self.store.empty_trash(now - self.rules.trash)
        kept_out = [LeftOut(memory.id, memory.score, FROM_OUTSIDE) for memory in barred if weighed[memory.id] >= enough]
        shown = recall.memories
        if pushed:
            shown = tuple(replace(memory, text=asked.passage(memory.text, PASSAGE)) for memory in shown)
        shown = tuple(replace(memory, evidence=weighed[memory.id]) for memory in shown)
        others = tuple(replace(one, evidence=weighed[one.id]) for one in (*recall.left_out, *kept_out))
        return replace(recall, memories=shown, left_out=others, problem=problem, gate=enough)

    def _without_dead_links(self, memories: list[RetrievedMemory]) -> list[RetrievedMemory]:
        """Return the memories. One whose newer one is gone counts again."""
        links = {m.superseded_by for m in memories} - {None}
        gone = links - {m.id for m in self.store.of([link for link in links if link is not None])} if links else set()
        return [replace(m, source=linked(m.source)) if m.superseded_by in gone else m for m in memories]

    def _rising(self, used: Iterable[RetrievedMemory], now: float) -> list[Change]:
        """Return the changes of memories that were used, less those that would move but a time, and by seconds."""
        changes = (Change(m.id, (m.t, m.level), *self.rules.strengthened(m, now)) for m in used)
        grain = self.rules.grain
        return [change for change in changes if change.level != change.seen[1] or change.t >= change.seen[0] + grain]

    def _near(
        self,
        query: str,
        k: int,
        skip: Collection[tuple[str, int]] = (),
        wanted: Callable[[RetrievedMemory], bool] = lambda memory: True,
    ) -> tuple[list[RetrievedMemory], str]:
        """Return the memories near in meaning, or why they cannot be found."""
        try:
            return _first(lambda count: self.store.near(query, count, skip), k, wanted), ""
        except ModelError as error:
            return [], str(error)

    def _fading(self, memories: Iterable[RetrievedMemory], now: float) -> list[Change]:
        """Return the changes of those memories that fall a level or are forgotten."""
        weakened = ((memory, self.rules.weakened(memory, now)) for memory in memories)
        return [Change(m.id, (m.t, m.level), t, level) for m, (t, level) in weakened if level != m.level]

    # The core ---------------------------------------------------------------------------------------------------

    def core(self) -> list[RetrievedMemory]:
        """Return the memories of a rank in the core, the most important and newest first."""
        there = self._without_dead_links(self.store.listed(WIDEST, of_user=True))
        return sorted((m for m in there if m.core_rank and not self.hides(m.run)), key=lambda m: m.core_rank)

    def keep_in_core(self, memory: int, *, kept: bool) -> bool:
        """Pin a memory into the core, or take it out, unpinned."""
        found = self.store.of([memory])
        if kept and any(not m.trusted for m in found):
            raise StateError(f"Memory {memory} comes from outside; the core takes no such text.")
        changes = []
        for m in found:
            level = PINNED if kept else 0 if m.pinned else m.level
            changes.append(Change(m.id, (m.t, m.level), m.t, level, set_aside(m.source, aside=not kept)))
        self.core_changes += 1
        return bool(found) and self.store.change(changes) == len(changes)

    # Forgetting -------------------------------------------------------------------------------------------------

    def forget(self, memory: int) -> bool:
        """Delete a memory for good, bypassing the trash."""
        self.core_changes += 1
        return self.store.forget(memory)

    def restore(self, memory: int) -> bool:
        """Restore a forgotten memory as if stored now. Return False if it is not in the trash."""
        return self.store.restore(memory, self._clock())

    def sleep(self, n: int | None, dream: Callable[[str], str]) -> Dream:
        """Let n random memories fade, dream of the forgotten ones, and empty the trash of expired memories.

        The changes are on disk before `dream` is asked: a crash may cost the dream, but never a second level.
        """
        now = self._clock()
        self.store.empty_trash(now - self.rules.trash)
        met = self._drawn(self.rules.sleep if n is None else n)
        changes = self._fading(met.values(), now)
        if self.store.change(changes) < len(changes):  # others have used some of them since
            left = {change.id: self.store.find(met[change.id].text) for change in changes}
            now_at = {id: (m.t, m.level) if m else (now, None) for id, m in left.items()}
            changes = [change for change in changes if now_at[change.id] == (change.t, change.level)]
        forgotten = tuple(change.id for change in changes if change.level is None)
        fallen = tuple(change.id for change in changes if change.level is not None)
        if not forgotten:
            return Dream(fallen=fallen, t=now)
        lost = [met[id] for id in forgotten]
        text, problem = "", ""
        try:
            text = dream(dream_prompt(lost)).strip()
        except (ForUser, ForModel) as error:  # no model, or one that fails: the sleep still took place
            problem = str(error)
        trusted, private = all(memory.trusted for memory in lost), any(memory.private for memory in lost)
        found = Dream(text, forgotten, fallen, now, trusted, problem, private)
        if self.journal is not None:
            self.journal.append(found)
        return found

    def _drawn(self, n: int) -> dict[int, RetrievedMemory]:
        """Draw n random memories of those that can fade, or a few less where many others are among them."""
        drawn = self.store.sample(DRAWN * n, self.rules.cap + 1)
        return {memory.id: memory for memory in [m for m in drawn if self.rules.fades(m)][:n]}

    def nap(self) -> None:
        """Let as many random memories fade as in a sleep, without a dream."""
        if self.rules.pushed_is_use:  # the source's rules know no such thing
            return
        self.store.change(self._fading(self._drawn(self.rules.sleep).values(), self._clock()))

    def use(self, memories: Collection[int]) -> None:
        """Strengthen memories that the agent has acted on."""
        self.store.change(self._rising(self.store.of(memories), self._clock()), durable=False)

    def pin(self, memory: int, *, pinned: bool = True) -> bool:
        """Pin a memory so that it never fades, or unpin it to level 0. Return False for an unknown id."""
        found = self.store.of([memory])
        level = PINNED if pinned else 0
        changes = [Change(m.id, (m.t, m.level), m.t, level) for m in found if m.pinned != pinned]
        self.core_changes += 1
        return bool(found) and self.store.change(changes) == len(changes)

    def edit(self, memory: int, text: str) -> int | None:
        """Replace the text of a memory, which gets a new id. Return None for an unknown id or an empty text.

        The new text is stored before the old text is deleted, so a crash in between leaves both.
        """
        found = self.store.of([memory])
        if not found or not texts.parts(text):
            return None
        [old] = found
        if old.text == text:
            return old.id
        now = max(self._clock(), old.t)
        self.core_changes += 1
        id = self.store.put(
            text, t=now, kind=old.kind, source=origin_of(old.source), trusted=old.trusted, run=old.run, step=old.step
        )
        if id is not None:
            new = [m for m in self.store.of([id]) if m.level < old.level]
            self.store.change([Change(m.id, (m.t, m.level), m.t, old.level) for m in new])
            self.store.forget(memory)
        return id

    def forecast(self, n: int | None = None) -> list[ForgettingForecast]:
        """Forecast for n unused memories when sleeping forgets them, the earliest first."""
        now = self._clock()
        mortal = [memory for memory in self.store.listed() if self.rules.fades(memory)]
        met = min(self.rules.sleep if n is None else n, len(mortal))
        forecasts = []
        for memory in mortal:
            meetings = memory.level + 1
            dies = self.rules.weakened(memory, now)[1] is None
            sleeps = -(-meetings * len(mortal) // met) if met else 0
            forecasts.append(ForgettingForecast(memory, dies, meetings, sleeps, self.rules.dies_at(memory)))
        return sorted(forecasts, key=lambda f: (not f.now, f.meetings, f.at, f.memory.id))

    # Consolidation ----------------------------------------------------------------------------------------------

    def consolidate(self) -> list[duplicates.DuplicateGroup]:
        """Merge near-duplicates: keep the firmest with the sources of all, and move the others to the trash.

        Each group is merged as a whole, or not at all if any member has changed meanwhile.
        """
        now = self._clock()
        memories = self.store.listed()
        vectors = self.store.vectors([memory.id for memory in memories])
        merged = []
        for group in duplicates.groups(memories, vectors, self.rules.alike):
            kept, others = group.kept, group.others
            newest = max(memory.t for memory in (kept, *others))
            changes = [Change(kept.id, (kept.t, kept.level), newest, kept.level, group.sources)]
            changes += [Change(other.id, (other.t, other.level), now, None) for other in others]
            if self.store.change(changes, whole=True):
                merged.append(group)
        return merged


def _is_users(memory: RetrievedMemory) -> bool:
    return memory.pinned or memory.kind in ("feedback", USER) or "user" in memory.source.split(", ")


def _first(
    best: Callable[[int], list[RetrievedMemory]], k: int, wanted: Callable[[RetrievedMemory], bool]
) -> list[RetrievedMemory]:
    """Return the first k wanted memories among the best of `best(count)`, asking for more until there are enough.

    The search ends after the first WIDEST.
    """
    count = k
    while True:
        found = best(count)
        kept = [memory for memory in found if wanted(memory)]
        if len(kept) >= k or len(found) < count or count >= WIDEST:
            return kept[:k]
        count = min(4 * count, max(WIDEST, k))
