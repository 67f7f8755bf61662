"""Recall memories before the model is asked, and store them afterwards.

There are two recalls, each with its own quota and share of the prompt: by the goals and the latest feedback, near the
beginning of every prompt, and by the newest step. The core precedes both: what the user said, pinned or prefers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, zip_longest

from autoagent.agent.authorize import Authorization
from autoagent.agent.history import History
from autoagent.agent.state import Events, State
from autoagent.core.errors import ModelError, StateError
from autoagent.core.events import Event, Recalled, Remembered, Retried, Rewound, Tainted
from autoagent.core.memory import PRIVATE, RUN_RECORD, LeftOut, Origin, Recall, RetrievedMemory
from autoagent.core.protocols import Memory
from autoagent.core.task import Outcome, Status
from autoagent.log.reader import effective
from autoagent.prompt import core_fitting, recollection_lines
from autoagent.text.facts import split_fact

GOALS_QUOTA = 8  # memories that stay in the prompt for the run
STEP_QUOTA = 5
MAX_QUERIES = 16  # queries: goals, feedback, and their clauses
MIN_EVIDENCE = 0.6  # in the whole query, for a memory found by one of its clauses
MIN_CLAUSE_WORDS = 3  # words in a clause that is queried by itself
MIN_FEEDBACK_WORDS = 4  # words in feedback worth remembering, unlike "go on"
MAX_FILES = 12  # files listed in a run's summary
MAX_QUERY_CHARACTERS = 400  # in the log
MAX_LEFT_OUT = 20  # rejected candidates in the log

_NAME = re.compile(r"[\w./:@-]{3,}\w")
_DISTINCTIVE = re.compile(r"\d|\w[./:@_-]\w|[a-z][A-Z]")  # unlikely to be written by chance: a figure, a path, a name


class StepMemory:
    """Recall and store a run's memories. Failures are recorded, not raised."""

    def __init__(self, state: State, user: Authorization) -> None:
        self._state = state
        self._memory: Memory = state.tools.context.memory
        self._user = user
        self._clock = state.policy.clock
        self._problem = ""  # why the last recall by meaning found nothing
        self._core_changes = -1  # the memory's change count when the core was last read
        self._queries: tuple[str, ...] = ()  # queries of the last recall by goals and feedback
        self._step_memories: tuple[RetrievedMemory, ...] = ()  # recalled for the newest step
        self._used_ids: set[int] = set()  # memories that this run has acted on
        self._is_closing = False

    def recall(self) -> Generator[Event, None, tuple[RetrievedMemory, ...]]:
        """Recall memories for the present step and return those recalled for the newest step."""
        history = self._state.history
        yield from self._read_core()
        queries = tuple(dict.fromkeys(goal.text for goal in self._state.start.task.goals))
        queries = (*queries, history.feedback) if history.feedback else queries
        if queries != self._queries:
            self._queries = queries
            yield from self._recall(queries, GOALS_QUOTA, {memory.id for memory in history.core}, lasting=True)
        self._step_memories = ()
        if history.topic:
            known_ids = {memory.id for memory in (*history.core, *history.lasting)}
            self._step_memories = yield from self._recall((history.topic,), STEP_QUOTA, known_ids)
        return self._step_memories

    def _read_core(self) -> Events:
        """Update the core in the prompt if it has changed."""
        state, history, memory = self._state, self._state.history, self._memory
        if memory.core_changes == self._core_changes:
            return
        self._core_changes = memory.core_changes
        try:
            core = [remembered for remembered in memory.core() if remembered.id not in history.dropped_ids]
        except StateError as error:
            yield state.record(Retried(reason=f"The core of the memory cannot be read: {error}"))
            return
        room = core_fitting(core, history.shares.core, state.count, self._clock())
        fitting = core[:room]
        if [(m.id, m.text) for m in fitting] == [(m.id, m.text) for m in history.core]:
            return
        left_out = tuple(LeftOut(m.id, 0.0, "no room in the core") for m in core[room:])
        yield from self._record(Recalled(query="", memories=tuple(fitting), left_out=left_out, core=True))

    def _recall(
        self, queries: Sequence[str], quota: int, exclude: Collection[int], *, lasting: bool = False
    ) -> Generator[Event, None, tuple[RetrievedMemory, ...]]:
        """Recall by each query and record the best of all, without those in `exclude`."""
        state, history = self._state, self._state.history
        exclude = {*exclude, *history.dropped_ids}
        room = history.shares.goal_memories if lasting else history.shares.step_memories
        shown_steps = {(state.memory_run(run), step) for run, step in history.steps}
        recalls: list[Recall] = []
        try:
            with self._user.interruptible():  # the embedding endpoint may not answer
                ask = partial(self._memory.recall, k=quota + len(exclude), skip=shown_steps, pushed=True)
                for query in queries[:MAX_QUERIES]:
                    recalls.append(whole_recall := ask(query))
                    clauses = _clauses(query)[: max(0, MAX_QUERIES - len(recalls))] if lasting else []
                    recalls += [_drop_unsupported(ask(clause), whole_recall) for clause in clauses if clause != query]
        except (ModelError, StateError) as error:
            yield state.record(Retried(reason=f"Nothing is recalled: {error}"))
            return ()
        except KeyboardInterrupt:
            yield from self._user.interrupted()
            return ()
        yield from self.charge()
        problem = next((recall.problem for recall in recalls if recall.problem), "")
        if problem and problem != self._problem:
            yield state.record(Retried(reason=f"Memories are recalled by their words alone: {problem}"))
        self._problem = problem
        best = [memory for memory in _interleave(recalls) if memory.id not in exclude][:quota]
        fit_count = len(recollection_lines(best, room, state.count, now=self._clock()))
        cut = [LeftOut(other.id, other.score, "no room in the prompt", other.evidence) for other in best[fit_count:]]
        memories = tuple(sorted(best[:fit_count], key=lambda memory: -memory.t))  # newest first
        candidates = {candidate.id: candidate for recall in recalls for candidate in recall.left_out}
        for memory in best:
            candidates.pop(memory.id, None)
        rejected = (*cut, *sorted(candidates.values(), key=lambda candidate: -candidate.score))[:MAX_LEFT_OUT]
        if not memories and not rejected and not (lasting and history.lasting):
            return ()
        query, gate = " ".join(queries)[:MAX_QUERY_CHARACTERS], max((recall.gate for recall in recalls), default=0.0)
        event = Recalled(query=query, memories=memories, left_out=rejected, lasting=lasting, gate=gate)
        return (yield from self._record(event))

    def _record(self, event: Recalled) -> Generator[Event, None, tuple[RetrievedMemory, ...]]:
        """Record the recalled memories with their labels, and return them with secrets masked."""
        recalled = self._state.record(event)
        yield recalled
        assert isinstance(recalled, Recalled)
        for memory in recalled.memories:
            if labels := self._state.guard.new_labels(memory).to_json():
                yield self._state.record(Tainted(memory=memory.id, data=labels))
        return recalled.memories

    def remember(self) -> Events:
        """Store the step if it is worth it, and the user's feedback. Mark the memories it acted on as used."""
        history, origin = self._state.history, self._state.guard.origin
        if used_ids := self._used_memories():
            self._used_ids |= used_ids
            failure = "The memories that were used are not strengthened"
            yield from self._change(lambda: self._memory.use(used_ids), failure)
        if text := history.memorable:
            yield from self._add(text, "step", origin, durable=False)  # the log holds it: see `restore_lost_steps`
        feedback = history.feedback_in(self._state.step)
        if len(feedback.split()) >= MIN_FEEDBACK_WORDS:
            yield from self._add(feedback, "feedback", Origin(PRIVATE if self._state.guard.private else ""))

    def should_distill(self, outcome: Outcome) -> bool:
        """Return whether a run that ends so has facts worth keeping."""
        return self._state.continuation.has_memories and not self._state.key and outcome.status.is_conclusion

    def close(self, outcome: Outcome, facts: Sequence[str]) -> Events:
        """Store the facts and a summary line of the run, and let other memories fade.

        A claimed end is stored as a claim, with the steps taken, because later runs believe it. A run resumed while
        storing its facts continues with the next fact.
        """
        state, self._is_closing = self._state, True
        goals = "; ".join(goal.text for goal in state.start.task.goals)
        files = ", ".join(list(state.work.changed)[:MAX_FILES])
        status = "" if outcome.status == Status.FINISHED else f" ({outcome.status.words.lower()})"
        conclusion = f"It came to{status}: {outcome.reason}"  # common words, which no recall weighs
        if claims := [str(number) for number, proof in enumerate(outcome.goals, 1) if proof == "claimed"]:
            unverified = "nothing" if len(claims) == len(outcome.goals) else f"goal {', '.join(claims)} not"
            calls = "; ".join(call for step, call in state.history.successes if step < state.step)
            conclusion = f"Claimed, {unverified} checked: {outcome.reason}\nDone: {calls or 'nothing'}"
        text = f"{RUN_RECORD}{goals}\n{conclusion}" + (f"\nFiles: {files}" if files else "")
        stored_count = state.continuation.facts_stored if state.continuation.facts_answer else 0
        replaceable_ids = {memory.id for memory in replaceable_memories(state.history)}
        for fact in [*facts, text][stored_count:]:
            old_id, new_text = split_fact(fact)
            replaced_id = old_id if old_id in replaceable_ids else None
            yield from self._add(new_text, "fact", state.guard.origin, replaced_id=replaced_id)
        yield from self._change(self._memory.nap, "No memories could fade")

    def _used_memories(self) -> set[int]:
        """Return the memories in the prompt whose distinctive words the newest thought or call uses."""
        if not (newest := self._state.history.thought):
            return set()
        goals = " ".join(goal.text for goal in self._state.start.task.goals)
        text = f"{newest.thoughts.text} {' '.join(map(str, newest.call.args.values()))}"
        used_ids = set()
        for memory in (*self._state.history.core, *self._state.history.lasting, *self._step_memories):
            names = (name for name in _NAME.findall(memory.text) if _DISTINCTIVE.search(name) and name not in goals)
            if memory.id not in self._used_ids and any(name in text for name in names):
                used_ids.add(memory.id)
        return used_ids

    def restore_lost_steps(self) -> Events:
        """Store steps that the log holds but the memory lost in a power cut.

        They are labelled with everything that the run had read by its end.
        """
        state, place = self._state, self._state.memory_run(self._state.log.run)
        try:
            store = self._memory.store_id
            newest_id = state.continuation.newest_memories.get(store) if store else None
            if not newest_id or not self._memory.has_lost(newest_id, place):
                return
        except StateError as error:
            yield state.record(Retried(reason=f"The memory cannot be checked: {error}"))
            return
        history = History(state.count)
        lost_steps: dict[str, int] = {}  # by text
        for event in effective_events(state):
            history.add(event)
            if isinstance(event, Remembered) and event.store == store:
                text = history.memorable
                if text and self._memory.has_lost(event.memory, place, text):
                    lost_steps.setdefault(text, event.step)
        for text, step in lost_steps.items():
            yield from self._add(text, "step", state.guard.origin, step=step)

    def _add(
        self,
        text: str,
        kind: str,
        origin: Origin,
        *,
        durable: bool = True,
        step: int | None = None,
        replaced_id: int | None = None,
    ) -> Events:
        state = self._state

        def add() -> int | None:
            id = self._memory.add(
                text,
                kind=kind,
                source=origin.source,
                trusted=origin.trusted,
                run=state.memory_run(state.log.run),
                step=state.step if step is None else step,
                durable=durable,
            )
            if id is not None and replaced_id is not None:
                self._memory.supersede(replaced_id, id)
            return id

        yield from self._change(add, f"The {kind} is not remembered")

    def _change(self, change: Callable[[], int | None], failure: str) -> Events:
        """Change the memory, and record the result, or the `failure` with its reason."""
        state, store = self._state, ""
        try:
            with self._user.interruptible():
                memory_id = change()
                store = self._memory.store_id if memory_id is not None else ""
        except (ModelError, StateError) as error:
            yield state.record(Retried(reason=f"{failure}: {error}"))
        except KeyboardInterrupt:
            if self._is_closing:  # the run has ended: nobody is asked how to go on
                yield state.record(Retried(reason=f"{failure}: interrupted"))
            else:
                yield from self._user.interrupted()
        else:
            if memory_id is not None:
                yield state.record(Remembered(memory=memory_id, store=store))
        yield from self.charge()

    def charge(self) -> Events:
        """Record the costs of embedding."""
        yield from self._state.charge("embedding", self._memory.take_usage())


def effective_events(state: State) -> Iterator[Event]:
    """Return this agent's events in the log, without those of steps that were taken back."""
    rewinds = [event for event in state.log.events() if isinstance(event, Rewound)]
    return (event for event in effective(state.log.events(), rewinds) if event.agent == state.key)


def replaceable_memories(history: History) -> list[RetrievedMemory]:
    """Return the memories that new facts may replace, but none of the user's and none from outside."""
    return [
        memory
        for memory in history.lasting
        if memory.kind in ("fact", "note") and memory.trusted and not memory.of_user and not memory.core_rank
    ]


def _clauses(text: str) -> list[str]:
    """Split a goal into clauses, since a memory seldom fits all of it."""
    parts = re.split(r"[.;:,\n]\s+|\s(?:and|und|et)\s", text)
    return [part for part in parts if len(part.split()) >= MIN_CLAUSE_WORDS] or ([text] if text else [])


def _drop_unsupported(part: Recall, whole: Recall) -> Recall:
    """Return a clause's recall without memories that hardly fit the whole query: "save it as a.txt" fits many."""
    evidence = {memory.id: memory.evidence for memory in whole.memories}
    evidence |= {candidate.id: candidate.evidence for candidate in whole.left_out}
    fitting = tuple(memory for memory in part.memories if evidence.get(memory.id, 0.0) >= MIN_EVIDENCE)
    others = (memory for memory in part.memories if memory not in fitting)
    rejected = (LeftOut(memory.id, memory.score, "fits a clause alone", memory.evidence) for memory in others)
    return replace(part, memories=fitting, left_out=(*part.left_out, *rejected))


def _interleave(recalls: Sequence[Recall]) -> list[RetrievedMemory]:
    """Return the best memory of each recall, then the second best, and so on, without duplicates."""
    ranks = zip_longest(*(recall.memories for recall in recalls))
    memories: dict[int, RetrievedMemory] = {}
    for memory in filter(None, chain.from_iterable(ranks)):
        memories.setdefault(memory.id, memory)
    return list(memories.values())
