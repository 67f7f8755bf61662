"""The long-term memory in a step: recall before the model is asked, and storing afterwards.

There are two recalls, each with its own quota and share of the prompt: by the goals and the last feedback, which stays
near the beginning of all prompts of the run, and by the newest step, which changes each time. Before both stands the
core: what the user said, pinned or prefers, whatever the goals are.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, zip_longest
from typing import Any

from autoagent.agent.authorize import Authorization
from autoagent.agent.history import History
from autoagent.agent.side_call import SECONDS, Question, SideCall
from autoagent.agent.state import Events, Policy, State
from autoagent.core.errors import ModelError, StateError
from autoagent.core.events import (
    AgentMessage,
    Answered,
    Event,
    Feedback,
    Recalled,
    Remembered,
    Retried,
    Returned,
    Rewound,
    Tainted,
    Thought,
)
from autoagent.core.memory import PRIVATE, RUN_RECORD, LeftOut, Origin, Recall, RetrievedMemory
from autoagent.core.model import Message
from autoagent.core.protocols import Memory
from autoagent.core.task import Outcome, Status, Task
from autoagent.log.reader import effective
from autoagent.prompt import core_fitting, recollection_lines
from autoagent.text.facts import MOST, PURPOSE, facts_in, replaced_by
from autoagent.text.quoting import EXPLANATION, marked
from autoagent.text.sanitize import shorten
from autoagent.text.tokens import Count

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

    def __init__(self, state: State, memory: Memory, user: Authorization, clock: Callable[[], float]) -> None:
        self._state = state
        self._memory = memory
        self._user = user
        self._clock = clock
        self._problem = ""  # why the last recall found nothing by its meaning
        self._core_changes = -1  # as the memory counted them when the core was last read
        self._asked: tuple[str, ...] = ()  # goals and feedback that were recalled by last
        self._shown: tuple[RetrievedMemory, ...] = ()  # recalled by the newest step
        self._used: set[int] = set()  # memories that this run has acted on

    def recall(self) -> Generator[Event, None, tuple[RetrievedMemory, ...]]:
        """Retrieve the memories that fit what is going on. Return those by the newest step, the others stay."""
        history = self._state.history
        yield from self._read_core()
        asked = tuple(dict.fromkeys(goal.text for goal in self._state.start.task.goals))
        asked = (*asked, history.feedback) if history.feedback else asked
        if asked != self._asked:
            self._asked = asked
            yield from self._recall(asked, BY_GOALS, {memory.id for memory in history.core}, lasting=True)
        self._shown = ()
        if history.topic:
            there = {memory.id for memory in (*history.core, *history.lasting)}
            self._shown = yield from self._recall((history.topic,), BY_STEP, there)
        return self._shown

    def _read_core(self) -> Events:
        """Put what the user keeps in every prompt into this one, if it has changed."""
        state, history, memory = self._state, self._state.history, self._memory
        if memory.core_changes == self._core_changes:
            return
        self._core_changes = memory.core_changes
        try:
            core = [one for one in memory.core() if one.id not in history.dropped]
        except StateError as error:
            yield state.record(Retried(reason=f"What you want kept in mind cannot be read: {error}"))
            return
        fitting = core_fitting(core, history.shares.core, state.count, self._clock())
        if [(one.id, one.text) for one in core[:fitting]] == [(one.id, one.text) for one in history.core]:
            return
        cut = tuple(LeftOut(one.id, 0.0, "no room in the core") for one in core[fitting:])
        yield from self._recorded(Recalled(query="", memories=tuple(core[:fitting]), left_out=cut, core=True))

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
        event = Recalled(query=query, memories=memories, left_out=left_out, lasting=lasting, gate=gate)
        return (yield from self._recorded(event))

    def _recorded(self, event: Recalled) -> Generator[Event, None, tuple[RetrievedMemory, ...]]:
        """Record what was recalled, and the labels that it brings. Return it as it is in the log: without secrets."""
        recalled = self._state.record(event)
        yield recalled
        assert isinstance(recalled, Recalled)
        for memory in recalled.memories:
            if labels := self._state.guard.new_labels(memory).to_json():
                yield self._state.record(Tainted(memory=memory.id, data=labels))
        return recalled.memories

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
        return self._state.work.remembers and not self._state.key and outcome.status.is_conclusion

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
        text = f"{RUN_RECORD}{goals}\n{came_to}" + (f"\nFiles: {made}" if made else "")
        kept = state.work.kept if state.work.distilled else 0
        known = {memory.id for memory in replaceable(state.history)}
        for fact in [*facts, text][kept:]:
            old, new = replaced_by(fact)
            yield from self._add(new, "fact", state.guard.origin, replaces=old if old in known else None)
        yield from self._keep(self._memory.nap)

    def _acted_on(self) -> set[int]:
        """Return the memories in the prompt of which the newest thought or call names something that only they said."""
        if not (thought := self._state.history.thought):
            return set()
        known = " ".join(goal.text for goal in self._state.start.task.goals)
        said = f"{thought.thoughts.text} {' '.join(map(str, thought.call.args.values()))}"
        found = set()
        for memory in (*self._state.history.core, *self._state.history.lasting, *self._shown):
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
            newest = state.work.newest_memory.get(store) if store else None
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

    def _add(
        self,
        text: str,
        kind: str,
        origin: Origin,
        *,
        durable: bool = True,
        step: int | None = None,
        replaces: int | None = None,
    ) -> Events:
        state, place = self._state, self._state.place_in(self._state.log.run)
        known: dict[str, Any] = {
            "kind": kind,
            "run": place,
            "step": state.step if step is None else step,
            "durable": durable,
        }

        def add() -> int | None:
            id = self._memory.add(text, source=origin.source, trusted=origin.trusted, **known)
            if id is not None and replaces is not None:
                self._memory.supersede(replaces, id)
            return id

        yield from self._keep(add)

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


ROOM = 6000  # tokens of the run's steps that the model is shown
SHARE = 4  # of the window, one part may be these
REPLY = 500  # tokens


class Distillation:
    """Has the model extract facts from a run, if the policy asks for it and the model's style allows it."""

    def __init__(self, state: State, policy: Policy, call: SideCall) -> None:
        self._state = state
        self._wanted = policy.distils
        self._call = call

    def facts(self, outcome: Outcome) -> Generator[Event, None, list[str]]:
        """Return the facts of the run that ends so. Those that an earlier process was told are not asked for again."""
        state = self._state
        if not self._wanted or not state.start.style.reasons:
            return []
        answered = state.work.distilled
        if answered is None:
            answered = yield from self._ask(outcome)
        return facts_in(answered.text, truncated=answered.truncated) if answered else []

    def _ask(self, outcome: Outcome) -> Generator[Event, None, Answered | None]:
        state = self._state
        rewinds = [event for event in state.log.events() if isinstance(event, Rewound)]
        own = (event for event in effective(state.log.events(), rewinds) if event.agent == state.key)
        room = min(ROOM, state.start.window // SHARE)
        known = replaceable(state.history)
        prompt = facts_prompt(state.start.task, outcome.reason, own, known, room, state.count)
        doing = "what the run found out is put down in facts"
        asked = Question([Message("user", prompt)], PURPOSE, doing, REPLY, seconds=SECONDS)
        answered = yield from self._call.ask(asked)
        if isinstance(answered, str):
            yield state.record(Retried(reason=f"What the run found out is not put down in facts: {answered}"))
            return None
        return answered


_STEP_SHOWN = 500  # characters of what came of a step
_OLDEST = 3  # the first steps have this part of the room where there is not enough for all

_ASKED = """\
You keep the long-term memory of an agent. Below is what it did in one run, which is over. Put down what later runs \
will be glad to know: what it found out about files, systems, people and the world, what was decided, and what works \
or does not.
- At most {most} facts, each on a line of its own that begins with "- ".
- Each can be understood by itself: it names files, hosts, versions and figures, and says what was so before if that \
has changed.
- Nothing that only repeats the goals, and nothing about how the run went.
If there is nothing to put down, answer: none
{known}{explained}

The goals of the run:
{goals}
It came to: {came_to}

What it did:
{steps}"""


_KNOWN = """\
Earlier runs put down the following, each with its number. What still holds is not put down again. A fact that takes \
the place of one of these begins with "- [replaces N] ", with its number for N.
{lines}
"""


def replaceable(history: History) -> list[RetrievedMemory]:
    """Return the memories before a run that its facts may take the place of: none of the user's, none from outside."""
    return [
        memory
        for memory in history.lasting
        if memory.kind in ("fact", "note") and memory.trusted and not memory.of_user and not memory.core_rank
    ]


def facts_prompt(
    task: Task, came_to: str, events: Iterable[Event], known: Sequence[RetrievedMemory], room: int, count: Count
) -> str:
    """Ask for the facts of a run, given its events and the memories that a fact may replace.

    Its steps take at most `room` tokens, some are left out if need be. Text from outside stands between marks.
    """
    lines = "\n".join(f"[{memory.id}] {' '.join(memory.text.split())}" for memory in known)
    return _ASKED.format(
        most=MOST,
        known=_KNOWN.format(lines=lines) if known else "",
        explained=EXPLANATION,
        goals="\n".join(f"- {goal.text}" for goal in task.goals),
        came_to=came_to,
        steps="\n".join(_fitting(list(_steps(events)), room, count)) or "nothing",
    )


def _steps(events: Iterable[Event]) -> Iterator[str]:
    """Yield a line or two for each notable step, and for feedback and notices."""
    asked: Thought | None = None
    for event in events:
        match event:
            case Thought():
                asked = event
            case Feedback():
                yield f"The user said: {shorten(event.text, _STEP_SHOWN)}"
            case AgentMessage():
                yield f"{event.heading} {_told(event.text, event.meta.untrusted, event)}"
            case Returned() if asked is not None:
                meta = event.meta
                if meta.repeat or meta.kept or meta.finished is not None or event.put_off:
                    continue
                thought = " ".join(asked.thoughts.text.split())
                done = shorten(f"{thought} {asked.call}", _STEP_SHOWN)
                yield f"{event.step}. {done} {event.outcome}: {_told(event.text, meta.untrusted, event)}"


def _told(text: str, source: str, event: Event) -> str:
    shown = shorten(text, _STEP_SHOWN)
    return marked(shown, source, run=event.run, step=event.step) if source else shown


def _fitting(lines: Sequence[str], room: int, count: Count) -> list[str]:
    """Return the lines, or the first and the last of them that fit, with a note between them."""
    costs = [count(line) + 1 for line in lines]
    if sum(costs) <= room:
        return list(lines)
    first = _as_many(costs, room // _OLDEST)
    last = _as_many(costs[first:][::-1], room - sum(costs[:first]))
    left_out = len(lines) - first - last
    return [*lines[:first], f"({left_out} steps are left out here)", *lines[len(lines) - last :]]


def _as_many(costs: Sequence[int], room: int) -> int:
    taken = 0
    for number, cost in enumerate(costs):
        taken += cost
        if taken > room:
            return number
    return len(costs)
