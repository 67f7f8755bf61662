"""The long-term memory in a step: recall before the model is asked, and storing afterwards.

There are two recalls, each with its own quota and share of the prompt: by the goals and the last feedback, which stays
near the beginning of all prompts of the run, and by the newest step, which changes each time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Generator, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, zip_longest

from autoagent.core.errors import ModelError, StateError
from autoagent.core.events import Event, Recalled, Remembered, Retried, Rewound, Tainted
from autoagent.core.memory import PRIVATE, LeftOut, Origin, Recall, RetrievedMemory
from autoagent.core.outcome import Outcome, Status
from autoagent.core.protocols import Memory
from autoagent.prompt import recollection_lines
from autoagent.runs.history import History
from autoagent.runs.log_reader import effective
from autoagent.steps.authorization import Authorization
from autoagent.steps.run_state import Events, RunState

BY_GOALS = 8  # memories that stay for the run
BY_STEP = 5
ASKED = 16  # goals, feedback, and clauses of these that are recalled by
CARRIED = 0.6  # evidence that the whole has to give for what one of its clauses finds
CLAUSE = 3  # words that a part of a sentence has at least to be recalled by alone
SAID = 4  # words of a feedback that is worth remembering: "go on" is not
MADE = 12  # files that are named then
QUERY_SHOWN = 400  # characters of a query that the log has
LEFT_OUT = 20  # candidates left out of a recall that the log names

_NAME = re.compile(r"[\w./:@-]{3,}\w")
_TELLING = re.compile(r"\d|\w[./:@_-]\w|[a-z][A-Z]")  # what is hardly written by chance: a figure, a path, a name


class StepMemory:
    """The memory of a run. Failures are recorded, not raised: then nothing is recalled or kept."""

    def __init__(self, state: RunState, memory: Memory, user: Authorization, clock: Callable[[], float]) -> None:
        self._state = state
        self._memory = memory
        self._user = user
        self._clock = clock
        self._problem = ""  # why the last recall found nothing by its meaning
        self._asked: tuple[str, ...] = ()  # goals and feedback that were recalled by last
        self._shown: tuple[RetrievedMemory, ...] = ()  # recalled by the newest step
        self._used: set[int] = set()  # memories that this run has acted on

    def recall(self) -> Generator[Event, None, tuple[RetrievedMemory, ...]]:
        """Retrieve the memories that fit what is going on. Return those by the newest step, the others stay."""
        history = self._state.history
        asked = tuple(dict.fromkeys(goal.text for goal in self._state.start.task.goals))
        asked = (*asked, history.feedback) if history.feedback else asked
        if asked != self._asked:
            self._asked = asked
            yield from self._recall(asked, BY_GOALS, (), lasting=True)
        self._shown = ()
        if history.topic:
            there = {memory.id for memory in history.lasting}
            self._shown = yield from self._recall((history.topic,), BY_STEP, there)
        return self._shown

    def _recall(
        self, queries: Sequence[str], quota: int, there: Collection[int], *, lasting: bool = False
    ) -> Generator[Event, None, tuple[RetrievedMemory, ...]]:
        """Recall by each query, and record the best of all. Those that are `there` already are left out."""
        state, history = self._state, self._state.history
        there = {*there, *history.dropped}
        room = history.shares.lasting if lasting else history.shares.recollections
        shown = {(state.place_in(run), step) for run, step in history.steps}
        found: list[Recall] = []
        try:
            with self._user.interruptible():  # an endpoint may embed, and be silent
                ask = partial(self._memory.recall, k=quota + len(there), skip=shown, pushed=True)
                for query in queries[:ASKED]:
                    found.append(whole := ask(query))
                    clauses = _clauses(query)[: max(0, ASKED - len(found))] if lasting else []
                    found += [_carried(ask(clause), whole) for clause in clauses if clause != query]
        except (ModelError, StateError) as error:
            yield state.record(Retried(reason=f"Nothing is recalled: {error}"))
            return ()
        except KeyboardInterrupt:
            yield from self._user.interrupted()
            return ()
        yield from state.charge("embedding", self._memory.take_usage())
        problem = next((recall.problem for recall in found if recall.problem), "")
        if problem and problem != self._problem:
            yield state.record(Retried(reason=f"Memories are recalled by their words alone: {problem}"))
        self._problem = problem
        best = [memory for memory in _in_turn(found) if memory.id not in there][:quota]
        fitting = len(recollection_lines(best, room, state.count, now=self._clock()))
        cut = [LeftOut(memory.id, memory.score, "no room in the prompt", memory.evidence) for memory in best[fitting:]]
        memories = tuple(sorted(best[:fitting], key=lambda memory: -memory.t))  # the newer above the older
        kept = {memory.id for memory in best}
        others = {other.id: other for recall in found for other in recall.left_out if other.id not in kept}
        left_out = (*cut, *sorted(others.values(), key=lambda other: -other.score))[:LEFT_OUT]
        if not memories and not left_out and not (lasting and history.lasting):
            return ()
        query, gate = " ".join(queries)[:QUERY_SHOWN], max((recall.gate for recall in found), default=0.0)
        recalled = state.record(Recalled(query=query, memories=memories, left_out=left_out, lasting=lasting, gate=gate))
        yield recalled
        assert isinstance(recalled, Recalled)
        for memory in recalled.memories:
            if labels := state.guard.new_labels(memory).to_json():
                yield state.record(Tainted(memory=memory.id, data=labels))
        return recalled.memories  # as they are in the log: without secrets

    def remember(self) -> Events:
        """Keep the step, if it is worth it, and what the user said of it. A memory that it acts on was used."""
        history, origin = self._state.history, self._state.guard.origin
        if acted_on := self._acted_on():
            self._used |= acted_on
            yield from self._keep(lambda: self._memory.use(acted_on))
        if text := history.memorable:
            yield from self._add(text, "step", origin, durable=False)  # the log has it, see `regain`
        said = history.feedback_in(self._state.step)
        if len(said.split()) >= SAID:
            yield from self._add(said, "feedback", Origin(PRIVATE if self._state.guard.private else ""))

    def keeps_facts(self, outcome: Outcome) -> bool:
        """Return whether a run that ends so is one to keep the facts of: it has come to an end, and did something."""
        return self._state.resume.remembers and not self._state.key and outcome.status.is_conclusion

    def close(self, outcome: Outcome, facts: Sequence[str]) -> Events:
        """Keep the facts of the run, and in a line what it came to. Let other memories fade.

        Of an end that was only claimed it is kept that it was, and what was done: a later run believes what it reads.
        A run whose facts an earlier process had begun to keep goes on with the next one.
        """
        state = self._state
        goals = "; ".join(goal.text for goal in state.start.task.goals)
        made = ", ".join(list(state.work.changed)[:MADE])
        how = "" if outcome.status == Status.FINISHED else f" ({outcome.status.words.lower()})"
        came_to = f"It came to{how}: {outcome.reason}"
        if claimed := [str(number) for number, proof in enumerate(outcome.goals, 1) if proof == "claimed"]:
            unchecked = "nothing" if len(claimed) == len(outcome.goals) else f"goal {', '.join(claimed)} not"
            done = "; ".join(call for step, call in state.history.done if step < state.step)
            came_to = f"Claimed, {unchecked} checked: {outcome.reason}\nDone: {done or 'nothing'}"
        text = f"A run for: {goals}\n{came_to}" + (f"\nFiles: {made}" if made else "")
        kept = state.resume.kept if state.resume.distilled else 0
        for fact in [*facts, text][kept:]:
            yield from self._add(fact, "fact", state.guard.origin)
        yield from self._keep(self._memory.nap)

    def _acted_on(self) -> set[int]:
        """Return the memories in the prompt of which the newest thought or call names something that only they said."""
        if not (thought := self._state.history.thought):
            return set()
        known = " ".join(goal.text for goal in self._state.start.task.goals)
        said = f"{thought.thoughts.text} {' '.join(map(str, thought.call.args.values()))}"
        found = set()
        for memory in (*self._state.history.lasting, *self._shown):
            own = (name for name in _NAME.findall(memory.text) if _TELLING.search(name) and name not in known)
            if memory.id not in self._used and any(name in said for name in own):
                found.add(memory.id)
        return found

    def regain(self) -> Events:
        """Remember those steps again that a power cut took from the memory: a step is in the log before it is there.

        They count as having read all that the run had read by its end.
        """
        state, place = self._state, self._state.place_in(self._state.log.run)
        try:
            store = self._memory.store_id
            newest = state.resume.newest_memory.get(store) if store else None
            if not newest or not self._memory.has_lost(newest, place):
                return
        except StateError as error:
            yield state.record(Retried(reason=f"What was remembered cannot be looked at: {error}"))
            return
        past = History(state.count)
        lost: dict[str, int] = {}
        rewinds = [event for event in state.log.events() if isinstance(event, Rewound)]
        for event in effective(state.log.events(), rewinds):
            if event.agent == state.key:
                past.add(event)
                text = past.memorable
                if not isinstance(event, Remembered) or event.store != store or not text:
                    continue
                if self._memory.has_lost(event.memory, place, text):
                    lost.setdefault(text, event.step)
        for text, step in lost.items():
            yield from self._add(text, "step", state.guard.origin, step=step)

    def _add(self, text: str, kind: str, origin: Origin, *, durable: bool = True, step: int | None = None) -> Events:
        state, place = self._state, self._state.place_in(self._state.log.run)
        yield from self._keep(
            lambda: self._memory.add(
                text,
                kind=kind,
                source=origin.source,
                trusted=origin.trusted,
                run=place,
                step=state.step if step is None else step,
                durable=durable,
            )
        )

    def _keep(self, change: Callable[[], int | None]) -> Events:
        """Change the memory, and record what is remembered by that, or why it is not."""
        state = self._state
        try:
            with self._user.interruptible():
                memory = change()
        except (ModelError, StateError) as error:
            yield state.record(Retried(reason=f"This step is not remembered: {error}"))
        except KeyboardInterrupt:
            yield from self._user.interrupted()
        else:
            if memory is not None:
                yield state.record(Remembered(memory=memory, store=self._memory.store_id))
        yield from state.charge("embedding", self._memory.take_usage())


def _clauses(text: str) -> list[str]:
    """Split a goal into clauses: a memory fits one of them, hardly ever all."""
    parts = re.split(r"[.;:,\n]\s+|\s(?:and|und|et)\s", text)
    return [part for part in parts if len(part.split()) >= CLAUSE] or ([text] if text else [])


def _carried(part: Recall, whole: Recall) -> Recall:
    """Return what was found by a clause, less what hardly fits the whole: "save it as a.txt" fits many a memory."""
    known = {memory.id: memory.evidence for memory in whole.memories}
    known |= {other.id: other.evidence for other in whole.left_out}
    fitting = tuple(memory for memory in part.memories if known.get(memory.id, 0.0) >= CARRIED)
    others = (memory for memory in part.memories if memory not in fitting)
    left_out = (LeftOut(memory.id, memory.score, "fits a clause alone", memory.evidence) for memory in others)
    return replace(part, memories=fitting, left_out=(*part.left_out, *left_out))


def _in_turn(recalls: Sequence[Recall]) -> list[RetrievedMemory]:
    """Return the best of each recall, then the second best, and so on, each memory once."""
    ranks = zip_longest(*(recall.memories for recall in recalls))
    found: dict[int, RetrievedMemory] = {}
    for memory in chain.from_iterable(ranks):
        if memory is not None:
            found.setdefault(memory.id, memory)
    return list(found.values())
