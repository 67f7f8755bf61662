"""Strengthen memories with use and let them fade without it, by the same rules for all stores.

A memory is stored with the current time at level 0. A recall that returns it sets its time to now. It raises level 0 to
1, and a higher level by 1 if more than its threshold has passed. A candidate that is not returned, or a memory that a
sleep draws, loses a level if more than its threshold has passed, at most once per threshold. Below level 0 it is
forgotten. Thresholds grow exponentially up to a cap. Beyond the cap, a memory is long-term and never fades.

A change of only the time is written only if it is at least a minute, to save a write per step. If the clock runs
backwards, no time counts as passed.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import field, replace
from functools import cached_property, partial

from autoagent.core.errors import ForModel, ForUser, StateError
from autoagent.core.frozen import dataclass
from autoagent.core.memory import (
    FROM_OUTSIDE,
    GONE,
    PINNED,
    PUBLIC,
    SET_ASIDE,
    USER,
    Change,
    Dream,
    Filter,
    Found,
    LeftOut,
    Recall,
    RecallHooks,
    RetrievedMemory,
    link_to_newer,
    plain_sources,
    with_mark,
)
from autoagent.core.model import Usage
from autoagent.core.protocols import MemoryStore
from autoagent.memory import duplicates, texts
from autoagent.memory.dreams import Journal, dream_prompt
from autoagent.memory.evidence import MIN_ASKED, MIN_COVERAGE, MIN_PUSHED, MIN_PUSHED_SHARE, MIN_USED, Query
from autoagent.memory.ranking import DAY, MAX_SEARCHED, RankingWeights, rank, rerank
from autoagent.memory.store_base import Skip

DELIBERATE_KINDS = ("note", "fact", "feedback", USER)  # stored deliberately; only these can supersede one another
MAX_COMPARED = 12  # memories compared with a new one, by meaning and again by words
CANDIDATES_PER_MEMORY = 4  # of each search, for a requested memory
SLEEP_SIZE = 100  # memories that a sleep draws
DRAWS_PER_MEMORY = 3  # as some memories never fade
MIN_DUPLICATE_COSINE = 0.97
_MAX_TRIES = 10  # attempts to delete a memory despite concurrent changes
MAX_PASSAGE = 400  # characters of a memory in a prompt
NO_HOOKS = RecallHooks()


@dataclass(frozen=True, slots=True)
class LifeRules:
    """The parameters of the rules. Times are in seconds.

    `base` is the threshold of level 0, `growth` its factor per level, and `cap` the last level with a threshold.
    `trash` is how long a forgotten memory can be restored. `lives` is the life by kind in thresholds of level 0, by
    default 1. With `pushed_is_use`, being pushed into a prompt counts as use. `grain` is the smallest change of only
    the time that is written.
    """

    base: float = 7 * DAY
    growth: float = 2.0
    cap: int = 3
    trash: float = 30 * DAY
    lives: Mapping[str, float] = field(default_factory=dict)
    pushed_is_use: bool = False
    grain: float = 60.0

    def fades(self, memory: RetrievedMemory) -> bool:
        """Return whether the memory can fade: it is not long-term, and its kind fades."""
        return memory.level <= self.cap and self.lives.get(memory.kind, 1.0) < math.inf

    def threshold(self, level: int, kind: str = "") -> float:
        """Return the seconds of use or disuse after which a memory of this level and kind rises or falls.

        A life below 1 shortens all thresholds. A longer life is their minimum, and does not lengthen the others.
        """
        life = self.lives.get(kind, 1.0)
        return self.base * max(life, min(life, 1.0) * self.growth ** min(level, self.cap))

    def strengthened(self, memory: RetrievedMemory, now: float) -> tuple[float, int]:
        """Return the new time and level of a returned memory."""
        level = memory.level
        if level == 0 or (level <= self.cap and now - memory.t > self.threshold(level, memory.kind)):
            level += 1
        return max(memory.t, now), level

    def weakened(self, memory: RetrievedMemory, now: float) -> tuple[float, int | None]:
        """Return the new time and level of a memory that was drawn but not returned. Level None means forgotten."""
        if not self.fades(memory) or now - memory.t <= self.threshold(memory.level, memory.kind):
            return memory.t, memory.level
        return now, memory.level - 1 if memory.level else None


@dataclass(frozen=True, slots=True)
class ForgettingForecast:
    """Forecast when an unused memory is forgotten: after being drawn by how many sleeps, and at the earliest when.

    `now` tells whether the next sleep that draws it forgets it. `sleeps` is the expected number until then, as each
    draws only some memories.
    """

    memory: RetrievedMemory
    now: bool
    draws: int
    sleeps: int
    at: float


class LivingMemory(AbstractContextManager["LivingMemory"]):
    """Apply the rules to a store. Satisfies Memory.

    `clock` returns seconds since the epoch. `journal` keeps the dreams. With `trusted_only`, memories from outside are
    not recalled. `hooks` take part in a recall. `notify` is called with `"forget", ids` and `"sleep", ids, dream`.
    Methods raise what those of the store raise.
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
        hooks: RecallHooks = NO_HOOKS,
        notify: Callable[..., object] = lambda place, ids, *dream: None,
    ) -> None:
        self.take_usage: Callable[[], Usage] = Usage  # replaced by the embedder's, if it is metered
        self.store = store
        self.journal = journal
        self.rules = rules or LifeRules()
        self.weights = weights or RankingWeights()
        self._clock = clock
        self._trusted_only = trusted_only
        self.hides: Callable[[str], bool] = lambda place: False  # whether to hide memories of this agent's run
        self._hooks = hooks
        self._notify = notify
        self.core_changes = 0
        self.superseded: tuple[RetrievedMemory, ...] = ()  # by the newest memory

    def close(self) -> None:
        self.store.close()

    def __exit__(self, *_: object) -> None:
        self.store.close()

    def __len__(self) -> int:
        return self.store.stats().count

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
        """Store a text. A text that is already stored counts as used now."""
        repeated = [memory for part in texts.parts(text) if (memory := self.store.find(part))]
        now = max([self._clock(), *(memory.t for memory in repeated)])
        id = self.store.put(text, t=now, kind=kind, source=source, trusted=trusted, run=run, step=step, durable=durable)
        changes = [Change(m.id, (now, m.level), *self.rules.strengthened(m, now)) for m in repeated]
        self.store.change(changes, durable=durable)
        self.superseded = ()
        if id is not None and trusted and kind in DELIBERATE_KINDS:
            self.core_changes += 1
            self._link_corrected(id, text, source)
        return id

    @cached_property
    def store_id(self) -> str:
        return self.store.stats().id

    def has_lost(self, memory: int, run: str, text: str = "") -> bool:
        """See Memory. A power cut loses the last non-durable changes, and their ids are reused."""
        stats = self.store.stats()
        if not stats.id:  # such a store never loses acknowledged changes
            return False
        first = next(iter(texts.parts(text)), None)
        present = (*self.store.of([memory]), *self.store.of([memory], trash=True))
        return memory > stats.last or any(m.run != run and m.text != first for m in present)

    def _link_corrected(self, id: int, text: str, source: str) -> None:
        """Link the memories corrected by this one to it, keeping both.

        The user's own and pinned memories are superseded only by what the user adds. A reverse link is removed.
        """
        found = self.store.search(text, MAX_COMPARED)
        of_user = "user" in source.split(", ")
        others = {m.id: m for m in (*found.near, *found.worded) if m.id != id and m.kind in DELIBERATE_KINDS}
        replaced = [m for m in others.values() if duplicates.corrects(text, m.text)]
        if any(_belongs_to_user(m) and not of_user for m in replaced):
            return
        self.superseded = tuple(m for m in replaced if m.superseded_by != id)
        links = [_link_change(m, id) for m in self.superseded]
        links += [_link_change(m, None) for m in self.store.of([id]) if m.superseded_by is not None]
        self.store.change(links)

    def supersede(self, old: int, new: int) -> bool:
        found = {memory.id: memory for memory in self.store.of({old, new})}
        if len(found) < 2:
            return False
        older, newer = found[old], found[new]
        if older.kind not in DELIBERATE_KINDS or _belongs_to_user(older) or (older.trusted and not newer.trusted):
            return False
        return self.store.change([_link_change(older, new)]) == 1

    def recall(
        self, query: str, k: int = 10, *, skip: Skip = (), pushed: bool = False, wanted: Filter | None = None
    ) -> Recall:
        """Return the matching memories, and then write the changes to them, without a sync.

        If the embedder fails, only words decide, and no candidate fades. A `pushed` memory is strengthened only when
        the agent asks for it or acts on it (`use`).
        """
        if k < 1:
            return Recall()
        breadth = k * CANDIDATES_PER_MEMORY
        outside: dict[int, RetrievedMemory] = {}

        def is_wanted(memory: RetrievedMemory) -> bool:
            return (wanted is None or wanted(memory)) and not self.hides(memory.run)

        def is_allowed(memory: RetrievedMemory) -> bool:
            allowed = memory.trusted or not self._trusted_only
            return allowed or not outside.setdefault(memory.id, memory)

        if wanted is not None and not query.strip():
            newest = [memory for memory in self.store.listed(MAX_SEARCHED) if is_wanted(memory) and is_allowed(memory)]
            return Recall(tuple(newest[:k]), tuple(LeftOut(id, 0.0, FROM_OUTSIDE) for id in [*outside][:breadth]))
        candidates, found = self._candidates(query, breadth, skip, is_wanted, is_allowed)
        untrusted = list(outside.values())[:breadth]
        words = Query(found.counts, found.total)
        evidence = self._evidence(query, words, (*candidates.values(), *untrusted), found.meaning)
        minimum, min_share = (MIN_PUSHED, MIN_PUSHED_SHARE) if pushed else (MIN_ASKED, 0.0)
        on_request = () if pushed else self._hooks.on_request
        recall = rank(
            list(candidates.values()), found, evidence, n=breadth if on_request or self._hooks.rerankers else k,
            now=self._clock(), weights=self.weights, min_evidence=minimum, min_share=min_share,
        )  # fmt: skip
        if rerankers := (*self._hooks.rerankers, *(on_request if len(recall.memories) > k else ())):
            recall = rerank(recall, k, query, rerankers)
        returned = [candidates.pop(memory.id) for memory in recall.memories]
        used = [memory for memory in returned if evidence[memory.id] >= MIN_USED]
        now = self._clock()
        rising = self._changes_by_use(used, now) if self.rules.pushed_is_use or not pushed else []
        fading = [] if found.problem else self._changes_by_disuse(candidates.values(), now)
        self._change(rising + fading, durable=any(change.level is None for change in fading))
        left_out = [LeftOut(m.id, m.score, FROM_OUTSIDE) for m in untrusted if evidence[m.id] >= minimum]
        passages = (
            replace(m, text=words.passage(m.text, MAX_PASSAGE) if pushed else m.text, evidence=evidence[m.id])
            for m in recall.memories
        )
        others = (replace(o, evidence=evidence[o.id]) for o in (*recall.left_out, *left_out))
        return replace(recall, memories=tuple(passages), left_out=tuple(others), problem=found.problem, gate=minimum)

    def _evidence(
        self, query: str, words: Query, memories: Sequence[RetrievedMemory], meaning: Mapping[int, float]
    ) -> dict[int, float]:
        """Return by id the evidence that each memory fits the query. Gates may replace it."""
        evidence = {m.id: round(meaning.get(m.id, 0.0) + words.coverage(m.text) / MIN_COVERAGE, 4) for m in memories}
        for weigh in self._hooks.gates:
            weighed = weigh(query, [replace(memory, evidence=evidence[memory.id]) for memory in memories])
            evidence |= {id: round(max(0.0, value), 4) for id, value in weighed.items() if id in evidence}
        return evidence

    def _without_dead_links(self, memories: list[RetrievedMemory]) -> list[RetrievedMemory]:
        """Return the memories, removing links to deleted newer memories."""
        links = {m.superseded_by for m in memories if m.superseded_by is not None}
        dead = links - {m.id for m in self.store.of(links)} if links else set()
        return [replace(m, source=link_to_newer(m.source)) if m.superseded_by in dead else m for m in memories]

    def _changes_by_use(self, used: Iterable[RetrievedMemory], now: float) -> list[Change]:
        """Return the changes of used memories. Omit a change of only the time that is below the grain."""
        changes = (Change(m.id, (m.t, m.level), *self.rules.strengthened(m, now)) for m in used)
        grain = self.rules.grain
        return [change for change in changes if change.level != change.seen[1] or change.t >= change.seen[0] + grain]

    def _candidates(
        self, query: str, k: int, skip: Skip, wanted: Filter, allowed: Filter
    ) -> tuple[dict[int, RetrievedMemory], Found]:
        """Return the first k wanted and allowed memories of each search by id, and everything wanted.

        Widen the search until there are enough, up to MAX_SEARCHED.
        """
        count = k
        while True:
            found = self.store.search(query, count, skip, wanted)
            pairs = [(part, [m for m in part if allowed(m)]) for part in (found.near, found.worded)]
            if count >= MAX_SEARCHED or all(len(eligible) >= k or len(part) < count for part, eligible in pairs):
                break
            count = min(4 * count, max(MAX_SEARCHED, k))
        memories = [m for _, eligible in pairs for m in eligible[:k]]
        for retrieve in self._hooks.retrievers:
            related = retrieve(query, partial(self.store.listed, MAX_SEARCHED))
            others = (m for m in self.store.of(related) if (m.run, m.step) not in skip and wanted(m) and allowed(m))
            memories += sorted(others, key=lambda m: -related[m.id])[:k]
            nearer = {id: max(found.meaning.get(id, 0.0), min(value, 1.0)) for id, value in related.items()}
            found = replace(found, meaning={**found.meaning, **nearer})
        return {m.id: m for m in self._without_dead_links(memories)}, found

    def _change(self, changes: Sequence[Change], *, expire: bool = False, **options: bool) -> int:
        """Apply the changes. If any of them forgets, or with `expire`, delete expired memories from the trash."""
        forgotten_ids = [change.id for change in changes if change.level in (None, GONE)]
        expired = self._clock() - self.rules.trash if forgotten_ids or expire else None
        change_count = self.store.change(changes, expired=expired, **options)
        if forgotten_ids and change_count < len(changes):
            remaining = {memory.id for memory in self.store.of(forgotten_ids)}
            forgotten_ids = [id for id in forgotten_ids if id not in remaining]
        if forgotten_ids and change_count:
            self._notify("forget", forgotten_ids)
        return change_count

    def _changes_by_disuse(self, memories: Iterable[RetrievedMemory], now: float) -> list[Change]:
        """Return the changes of the memories that lose a level or are forgotten."""
        weakened = ((memory, self.rules.weakened(memory, now)) for memory in memories)
        return [Change(m.id, (m.t, m.level), t, level) for m, (t, level) in weakened if level != m.level]

    def core(self) -> list[RetrievedMemory]:
        found = self._without_dead_links(self.store.listed(MAX_SEARCHED, of_user=True))
        return sorted((m for m in found if m.core_rank and not self.hides(m.run)), key=lambda m: m.core_rank)

    def keep_in_core(self, memory: int, *, kept: bool, public: bool = False) -> bool:
        return self.pin(memory, pinned=kept, public=public, aside=not kept)

    def forget(self, memory: int) -> bool:
        """Delete a memory for good, in one step."""
        self.core_changes += 1
        for _ in range(_MAX_TRIES):  # others may change it between read and change
            current = self.store.of([memory])
            if not current:
                return False
            if self._change([Change(m.id, (m.t, m.level), m.t, GONE) for m in current]):
                return True
        raise StateError(f"The memory {memory} could not be deleted: other processes keep changing it. Try again.")

    def restore(self, memory: int) -> bool:
        """Restore a forgotten memory as if stored now. Return False if it is not in the trash."""
        now, trashed = self._clock(), self.store.of([memory], trash=True)
        return self.store.change([Change(m.id, (m.t, m.level), now, 0, trash=True) for m in trashed]) > 0

    def sleep(self, n: int | None, dream: Callable[[str], str]) -> Dream:
        """Let n random memories fade, dream of the forgotten ones, and empty the trash of expired memories.

        The changes are on disk before `dream` is asked: a crash may cost the dream, but never a second level.
        """
        now = self._clock()
        sample = self._draw(SLEEP_SIZE if n is None else n)
        changes = self._changes_by_disuse(sample.values(), now)
        if self._change(changes, expire=True) < len(changes):  # others have used some of them meanwhile
            states = {m.id: (m.t, m.level) for m in self.store.of([change.id for change in changes])}
            changes = [change for change in changes if states.get(change.id, (now, None)) == (change.t, change.level)]
        forgotten = tuple(change.id for change in changes if change.level is None)
        lowered = tuple(change.id for change in changes if change.level is not None)
        if not forgotten:
            self._notify("sleep", forgotten, "")
            return Dream(fallen=lowered, t=now)
        fragments = [sample[id] for id in forgotten]
        try:
            text, problem = dream(dream_prompt(fragments)).strip(), ""
        except (ForUser, ForModel) as error:  # without a dream, the sleep still took place
            text, problem = "", str(error)
        trusted, private = all(memory.trusted for memory in fragments), any(memory.private for memory in fragments)
        result = Dream(text, forgotten, lowered, now, trusted, problem, private)
        if self.journal is not None:
            self.journal.append(result)
        self._notify("sleep", forgotten, text)
        return result

    def _draw(self, n: int) -> dict[int, RetrievedMemory]:
        """Draw n random memories that can fade, or a few less if many cannot."""
        drawn = self.store.sample(DRAWS_PER_MEMORY * n, self.rules.cap + 1)
        return {memory.id: memory for memory in [m for m in drawn if self.rules.fades(m)][:n]}

    def nap(self) -> None:
        if not self.rules.pushed_is_use:  # MEMORY_LIFE=source has no naps
            self._change(self._changes_by_disuse(self._draw(SLEEP_SIZE).values(), self._clock()))

    def use(self, memories: Collection[int]) -> None:
        self.store.change(self._changes_by_use(self.store.of(memories), self._clock()), durable=False)

    def pin(self, memory: int, *, pinned: bool = True, public: bool = False, aside: bool | None = None) -> bool:
        """Pin a memory so that it never fades, or unpin it to level 0. Return False for an unknown id.

        With `public`, it may be treated like a goal. With `aside`, it is not part of the core (None: as before). A
        memory that becomes part of the core is no longer superseded. Raises StateError if an untrusted text would
        become public or part of the core.
        """
        changes = []
        for m in self.store.of([memory]):
            if (public or aside is False) and not m.trusted:
                raise StateError(
                    f"Memory {memory} comes from outside; such a text can be neither in the core nor public."
                )
            level = PINNED if pinned else 0 if m.pinned else m.level
            source = with_mark(m.source, PUBLIC, on=public)
            source = source if aside is None else with_mark(source, SET_ASIDE, on=aside)
            source = link_to_newer(source) if aside is False else source
            changes.append(Change(m.id, (m.t, m.level), m.t, level, source))
        self.core_changes += 1
        return bool(changes) and self.store.change(changes) == len(changes)

    def edit(self, memory: int, text: str) -> int | None:
        """Replace the text of a memory and return its new id, or None for an unknown id or an empty text.

        The new text is stored before the old text is deleted, so a crash in between leaves both.
        """
        old = next(iter(self.store.of([memory])), None)
        if old is None or not texts.parts(text):
            return None
        if old.text == text:
            return old.id
        now = max(self._clock(), old.t)
        source = with_mark(plain_sources(old.source), SET_ASIDE, on=SET_ASIDE in old.sources)
        self.core_changes += 1
        id = self.store.put(
            text, t=now, stored=old.made, kind=old.kind, source=source, trusted=old.trusted, run=old.run, step=old.step
        )
        if id is not None:
            new = self.store.of([id])
            self.store.change([Change(m.id, (m.t, m.level), m.t, old.level) for m in new if m.level < old.level])
            found = self.store.search(old.text, MAX_COMPARED)  # what the old text superseded stays superseded
            linked = {m.id: m for m in (*found.near, *found.worded) if m.superseded_by == memory}
            self.store.change([_link_change(m, id) for m in linked.values()])
            if old.text not in texts.parts(text):
                self.forget(memory)
        return id

    def forecast(self, n: int | None = None) -> list[ForgettingForecast]:
        """Forecast when sleeps of n memories forget each unused memory, the earliest first."""
        now = self._clock()
        fading = [memory for memory in self.store.listed() if self.rules.fades(memory)]
        sample = min(SLEEP_SIZE if n is None else n, len(fading))
        forecasts = []
        for memory in fading:
            draws = memory.level + 1
            dies_now = self.rules.weakened(memory, now)[1] is None
            sleeps = -(-draws * len(fading) // sample) if sample else 0
            at = memory.t + sum(self.rules.threshold(level, memory.kind) for level in range(draws))
            forecasts.append(ForgettingForecast(memory, dies_now, draws, sleeps, at))
        return sorted(forecasts, key=lambda f: (not f.now, f.draws, f.at, f.memory.id))

    def consolidate(self) -> list[duplicates.DuplicateGroup]:
        """Merge near-duplicates: keep the firmest, with the sources of all, and move the others to the trash.

        Each group is merged as a whole, or not at all if any member has changed meanwhile.
        """
        now = self._clock()
        memories = self.store.listed()
        vectors = self.store.vectors([memory.id for memory in memories])
        merged = []
        for group in duplicates.find_groups(memories, vectors, MIN_DUPLICATE_COSINE):
            kept, others = group.kept, group.others
            newest = max(memory.t for memory in (kept, *others))
            changes = [Change(kept.id, (kept.t, kept.level), newest, kept.level, group.sources)]
            changes += [Change(other.id, (other.t, other.level), now, None) for other in others]
            if self._change(changes, whole=True):
                merged.append(group)
        return merged


def _link_change(memory: RetrievedMemory, newer: int | None) -> Change:
    """Return the change of a memory's link to a newer memory, which alters only the memory's source."""
    return Change(memory.id, (memory.t, memory.level), memory.t, memory.level, link_to_newer(memory.source, newer))


def _belongs_to_user(memory: RetrievedMemory) -> bool:
    return memory.pinned or memory.kind in ("feedback", USER) or "user" in memory.source.split(", ")
