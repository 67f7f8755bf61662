"""The loop: think, parse, authorize, execute, store.

The Agent keeps nothing that is not folded from the events it records, so a resumed run is the same as one that never
stopped. Each event is on disk before it is yielded, and `Started` is on disk before a command runs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import replace

from autoagent.commands.context import Context
from autoagent.commands.registry import Registry
from autoagent.core.commands import PLAIN, Call, CommandSpec, Proposal, Result, ResultMeta, Verdict
from autoagent.core.errors import (
    CommandError,
    ContextOverflow,
    ModelError,
    ReplyError,
    SetupError,
    StateError,
    StopRun,
    Unreachable,
)
from autoagent.core.events import (
    Decided,
    Ended,
    Event,
    Feedback,
    Outcome,
    Prompted,
    Proposed,
    Recalled,
    Rejected,
    Remembered,
    Resumed,
    Retried,
    Returned,
    RunStarted,
    Snapshot,
    Spent,
    Started,
    Status,
    SystemNotice,
    Tainted,
    Thought,
)
from autoagent.core.memory import RetrievedMemory
from autoagent.core.model import Completion, Usage
from autoagent.core.protocols import Authorizer, Listener, Memory, Model, Post, Recorder, Snapshots
from autoagent.models.watch import Watch
from autoagent.prompt import Prompt, build
from autoagent.reply.parser import parse, written
from autoagent.runs.budget import Budget, estimated_cost
from autoagent.runs.final_review import FinalReview
from autoagent.runs.goal_checks import GoalChecks
from autoagent.runs.history import History
from autoagent.runs.loop_guard import LoopGuard, refusal, shown_before
from autoagent.runs.resume_state import ResumeState
from autoagent.runs.standstill import Standstill
from autoagent.safety.exfiltration_guard import ExfiltrationGuard
from autoagent.text.redaction import MASK, holds_mask
from autoagent.text.sanitize import shorten
from autoagent.text.tokens import Count
from autoagent.workspace.gate import Workspace

RECALLED = 10  # memories asked for at every step
UNUSABLE_REPLIES = 3  # in a row, then the run ends
LOGGED_PREVIEW = 100_000  # characters of what a call would change
LEFT_OUT = 20  # of the candidates a recall left out: as many are worth a line of the log
RECALLED_CHARACTERS = 400  # of each memory; a prompt shows no more
REVIEWED_BYTES = 100_000  # of each file the agent made, before the end
CUT_SHORT = "replies that were cut short"
SHORTENINGS = 4  # of the history in one step, when the endpoint says that the prompt does not fit


MAY_HAVE_RUN = (
    "The program ended while this command ran: it may have run, wholly or in part. Look before you repeat it."
)
SECRET_GONE = (
    f"{MASK} stands in it for a secret, which only the process knew that has ended. Give the command again, with what "
    "belongs there."
)


class Agent:
    """One agent at work on one run.

    `start` says what shapes its prompts; a `Resumed` takes up the run that `log` already holds. `interruptible` is
    entered around everything that may be cut short by Ctrl-C: model, command and question, never a write. `owed` is
    what the model was paid before the run began. `snapshots` keeps the workspace as it was around each change, where
    that is wanted. `post` brings what other agents have to say. `key` is that of a sub-agent, whose events stand in the
    log of the run that started it.
    """

    def __init__(
        self,
        start: RunStarted,
        model: Model,
        registry: Registry,
        context: Context,
        authorizer: Authorizer,
        budget: Budget,
        log: Recorder,
        memory: Memory,
        guard: ExfiltrationGuard,
        *,
        listener: Listener,
        count: Count,
        clock: Callable[[], float] = time.time,
        interruptible: Callable[[], AbstractContextManager[object]] = nullcontext,
        setup_usage: Usage | None = None,
        snapshots: Snapshots | None = None,
        post: Post | None = None,
        key: str = "",
    ) -> None:
        self._start = start
        self._model = model
        self._registry = registry
        self._context = replace(context, pause=self._pause)
        self._let_pass = context.pause
        self._authorizer = authorizer
        self._budget = budget
        self._log = log
        self._memory = memory
        self._guard = guard
        self._listener = listener
        self._count = count
        self._clock = clock
        self._interruptible = interruptible
        self._owed = setup_usage or Usage()  # paid, and not yet in the log
        self._snapshots = snapshots
        self._post = post
        self._key = key
        self._place = self._place_in(log.run)
        self._history = History(count, registry.pages_results)
        specs = {spec.name: spec for spec in registry.specs}
        self._repeats = LoopGuard(specs)
        self._standstill = Standstill(specs)
        self._review = FinalReview()
        self._ledger = GoalChecks()
        self._progress = ResumeState()
        self._folds = (
            self._history, self._budget, self._repeats, self._standstill, self._review, self._progress, self._ledger,
            self._guard,
        )  # fmt: skip
        self._step = 0
        self._unembedded = ""  # why the last recall found nothing by its meaning
        self._further: tuple[str, ...] = ()  # the further commands of a reply, with their secrets
        self._unknown: frozenset[str] = frozenset()  # those of a reply to an earlier process, where it had secrets

    def run(self) -> Iterator[Event]:
        """Yield the events of the run as they happen; the last is an `Ended`.

        Raises:
            StateError: the log, a snapshot or the record of tainted files cannot be written. What was yielded before is
                on disk.
        """
        try:
            call = yield from self._begin()
            while True:
                if call is None:
                    completion = yield from self._think()
                    call = yield from self._parse(completion)
                proposal = None if call is None else (yield from self._authorize(call))
                meta = PLAIN if proposal is None else (yield from self._execute(proposal)).meta
                yield from self._store(meta)
                call = None
        except StopRun as stop:
            yield from self._leave(stop.outcome)
        except (SetupError, ModelError) as error:
            status: Status = "setup" if isinstance(error, SetupError) else "failed"
            yield from self._leave(Outcome(status, str(error)))

    # The parts of a step -----------------------------------------------------------------------------------------

    def _begin(self) -> Generator[Event, None, Call | None]:
        """Record the start. Of a resumed run, take up what a crash left open: the call to ask about again, if any."""
        resumed = isinstance(self._start, Resumed)
        if resumed:
            for event in self._log.effective():
                if event.agent == self._key:
                    self._fold(event)
            self._step = self._progress.step
            self._unknown = frozenset(filter(holds_mask, self._progress.waiting))
        open_call, began, returned = self._progress.call, self._progress.started, self._progress.returned
        started = self._record(self._start)
        assert isinstance(started, RunStarted)
        self._start = started  # as it is in the log: without secrets
        yield started
        yield from self._charge("set-up", self._take_owed())
        if open_call is not None and (not began or self._only_looks(open_call)):
            return (yield from self._take_up(open_call))
        if open_call is not None:
            yield from self._cut_off(open_call)
            yield from self._store(PLAIN)
        elif returned is not None:
            yield from self._store(returned.meta)
        return None

    def _take_up(self, call: Call) -> Generator[Event, None, Call | None]:
        """A call that waited when the program ended, or that may as well run again, if this run still offers it."""
        try:
            if holds_mask(call.args):
                raise ReplyError(SECRET_GONE)
            return self._registry.check(call)
        except ReplyError as error:
            yield self._record(Decided(call_id=call.id, allowed=False, by="resume", reason=str(error)))
            yield from self._store(PLAIN)
            return None

    def _cut_off(self, call: Call) -> Generator[Event, None, None]:
        """A call that was running when the program ended: nobody knows its result, but what it left can be seen."""
        before, changed = self._progress.before, []
        if self._snapshots is not None and before:
            yield from self._snapshot()
            with suppress(StateError):  # the user has deleted the snapshots since
                changed = self._snapshots.changed(before, self._progress.tree)
        data = self._guard.cut_off(call, changed).to_json()
        yield self._record(Returned(call_id=call.id, ok=False, text=MAY_HAVE_RUN, data=data, known=False))

    def _think(self) -> Generator[Event, None, Completion]:
        """Ask the model with all that fits; cut the history where the endpoint finds the prompt too long.

        Where its last reply holds further commands, these come first.
        """
        yield from self._hear()
        self._budget.check_command()
        self._step += 1
        if self._progress.waiting:
            self._budget.check_time(self._clock())  # it is paid for already
            known = self._further[-len(self._progress.waiting) :]
            return Completion((known or self._progress.waiting)[0], Usage())
        memories = yield from self._recall()
        shortened = 0
        while True:
            prompt = yield from self._prompt(memories)
            try:
                with self._interruptible():
                    completion = self._complete(prompt)
                break
            except KeyboardInterrupt:
                yield from self._interrupted()
            except Unreachable as error:
                yield from self._charge(CUT_SHORT, self._take_owed())
                if not self._waits_on(str(error)):
                    raise
                yield self._record(Retried(reason=f"The user waits on: {error}"))
            except ContextOverflow as error:
                if shortened == SHORTENINGS:
                    raise
                shortened += 1
                yield self._record(Retried(reason=f"{str(error).rstrip('.')}; the history is cut", shortened=True))
        for reason in completion.retries:
            yield self._record(Retried(reason=reason))
        yield from self._charge(CUT_SHORT, self._take_owed())
        return completion

    def _parse(self, completion: Completion) -> Generator[Event, None, Call | None]:
        """The call in the reply, the first of several; None where there is none to run, which the model reads next."""
        try:
            if completion.text in self._unknown:
                raise ReplyError(SECRET_GONE)
            reply = parse(completion, self._registry.check, call_id=f"{self._step}")
        except ReplyError as error:
            yield self._record(
                Rejected(
                    problem=str(error),
                    text=written(completion),
                    truncated=completion.truncated,
                    command=error.command,
                    usage=completion.usage,
                )
            )
            if self._progress.unusable < UNUSABLE_REPLIES:
                return None
            reason = f"{UNUSABLE_REPLIES} unusable replies in a row; the last one: {error}"
            raise StopRun(Outcome("stuck", reason)) from None
        thought = self._record(
            Thought(thoughts=reply.thoughts, call=reply.call, text=reply.text, usage=completion.usage, more=reply.more)
        )
        yield thought
        self._further = reply.more or self._further
        return reply.call

    def _authorize(self, call: Call) -> Generator[Event, None, Proposal | None]:
        """The call to run, perhaps with arguments the user changed; None where it may not run."""
        proposal = self._propose(call)
        if earlier := self._repeats.barred(replace(proposal, call=self._logged(call))):
            reason = refusal(earlier, self._failing())
            yield self._record(Decided(call_id=call.id, allowed=False, by="loop guard", reason=reason))
            return None
        asked = call
        verdict = yield from self._decide(proposal)
        while verdict.args is not None:
            try:
                call = self._registry.check(replace(call, args=verdict.args))
                shown = proposal = self._propose(call)
            except ReplyError as error:
                shown = replace(proposal, preview=f"Not changed: {error}")
            verdict = yield from self._decide(shown)
        by_user = verdict.by == "user"
        yield self._record(
            Decided(
                call_id=call.id,
                allowed=verdict.allowed,
                by=verdict.by,
                reason="" if by_user else verdict.reason,
                args=None if call is asked else call.args,
            )
        )
        if by_user and verdict.reason:
            yield self._record(Feedback(text=verdict.reason))
        return proposal if verdict.allowed else None

    def _execute(self, proposal: Proposal) -> Generator[Event, None, Result]:
        """Run the command. Before the first end of a run, what was made is shown to the agent instead of ending."""
        call = proposal.call
        changing = proposal.risk != "read"
        if changing:
            yield from self._snapshot()
        before = self._progress.tree
        yield self._record(Started(call=call), passing=not changing)  # a look that a power cut hides is taken again
        began = self._clock()
        interrupted = False
        seen = self._guard.observe(call)
        workspace = self._context.workspace.observed(seen)
        try:
            with self._interruptible():
                result = self._registry.execute(call, self._context_of(proposal, workspace))
        except KeyboardInterrupt:
            interrupted = True
            result = Result(call.id, False, "Interrupted by the user; it may have run in part.")
        if (text := self._log.masked(result.text)) != result.text or self._logged(call) is not call:
            result = replace(result, text=text, meta=replace(result.meta, masked=True))
        if result.meta.finished is not None and (unmet := (yield from self._unmet())):
            result = Result(call.id, False, unmet, ResultMeta(unmet=True))
        elif result.meta.finished is not None and (look := self._reviewed(workspace)):
            result = Result(call.id, False, look, ResultMeta(review=True))
        elif (earlier := self._repeats.same(self._logged(call), result.text)) and self._history.shows(earlier.step):
            result = Result(call.id, result.ok, shown_before(earlier, self._failing()), ResultMeta(repeat=True))
        seconds = self._clock() - began
        if changing and self._snapshots is not None:
            yield from self._snapshot()
            if changed := self._snapshots.changed(before, self._progress.tree):
                if proposal.risk != "write":  # programs sync nothing, and what a step is said to have done shall last
                    self._context.workspace.sync(changed)
                result = replace(result, meta=replace(result.meta, changed=tuple(changed)))
        result = self._guard.label(call, result, seen)
        data = result.meta.to_json()
        yield self._record(Returned(call_id=call.id, ok=result.ok, text=result.text, data=data, seconds=seconds))
        yield from self._charge(call.name, self._context.take_usage())
        if self._ledger.stale and not interrupted:
            yield from self._check_goals()
            if self._progress.tree:  # checks are programs too: what they leave was not changed by hand
                yield from self._snapshot()
        if interrupted:
            yield from self._interrupted()
        return result

    def _store(self, meta: ResultMeta) -> Generator[Event, None, None]:
        """Remember the step, end the run where the result says so, look whether it gets anywhere."""
        text = self._history.newest
        if text:
            try:
                origin = self._guard.origin
                with self._interruptible():
                    memory = self._memory.add(
                        text,
                        kind="step",
                        source=origin.source,
                        trusted=origin.trusted,
                        run=self._place,
                        step=self._step,
                    )
            except (ModelError, StateError) as error:
                yield self._record(Retried(reason=f"This step is not remembered: {error}"))
            except KeyboardInterrupt:
                yield from self._interrupted()
            else:
                if memory is not None:
                    yield self._record(Remembered(memory=memory))
            yield from self._charge("embedding", self._memory.take_usage())
        if meta.finished is not None:
            raise StopRun(Outcome("finished", meta.finished))
        if alarm := self._standstill.alarm:
            text = self._standstill.says
            if alarm == "stop":
                raise StopRun(Outcome("stuck", text))
            advice = "The user has been told." if alarm == "user" else "Try something else."
            yield self._record(SystemNotice(text=f"{text} {advice}"))

    def _leave(self, outcome: Outcome) -> Generator[Event, None, None]:
        """Pay for what was cut short, end whom and what this agent has started, and record the end."""
        yield from self._charge(CUT_SHORT, self._take_owed())
        for event in self._post.close() if self._post else ():
            yield self._record(event)
        if self._snapshots is not None and self._progress.tree:
            with suppress(CommandError):  # there is no sandbox
                for program in self._context.sandbox.programs():
                    if program.exit is None:
                        self._context.sandbox.stop(program.pid)
            with suppress(StateError):  # the end is recorded all the same, and undo names what differs
                yield from self._snapshot()
        yield self._record(Ended(status=outcome.status, reason=outcome.reason))

    # What the parts use ------------------------------------------------------------------------------------------

    def _hear(self) -> Generator[Event, None, None]:
        """Record what other agents have to say to this one."""
        while self._post is not None:
            try:
                news = self._post.take()
            except KeyboardInterrupt:  # before the question of another agent could be put
                yield from self._interrupted()
                continue
            for event in news:
                yield self._record(event)
            return

    def _place_in(self, run: str) -> str:
        """The name of this agent of a run in the memory: each agent counts its own steps."""
        return f"{run}:{self._key}" if self._key else run

    def _recall(self) -> Generator[Event, None, tuple[RetrievedMemory, ...]]:
        """The memories nearest to what is going on, cut to what a prompt shows of them."""
        query = self._history.newest or " ".join(goal.text for goal in self._start.task.goals)
        try:
            shown = {(self._place_in(run), step) for run, step in self._history.steps}
            with self._interruptible():  # an endpoint may embed, and be silent
                found = self._memory.recall(query, RECALLED, room=self._history.shares.recollections, skip=shown)
        except (ModelError, StateError) as error:
            yield self._record(Retried(reason=f"Nothing is recalled: {error}"))
            return ()
        except KeyboardInterrupt:
            yield from self._interrupted()
            return ()
        yield from self._charge("embedding", self._memory.take_usage())
        if found.problem and found.problem != self._unembedded:
            yield self._record(Retried(reason=f"Memories are recalled by their words alone: {found.problem}"))
        self._unembedded = found.problem
        memories = tuple(replace(memory, text=memory.text[:RECALLED_CHARACTERS]) for memory in found.memories)
        if not memories and not found.left_out:
            return ()
        left_out = found.left_out[:LEFT_OUT]
        recalled = self._record(Recalled(query=query[:RECALLED_CHARACTERS], memories=memories, left_out=left_out))
        yield recalled
        assert isinstance(recalled, Recalled)
        for memory in recalled.memories:
            if labels := self._guard.new_labels(memory).to_json():
                yield self._record(Tainted(memory=memory.id, data=labels))
        return recalled.memories  # as they are in the log: without secrets

    def _prompt(self, memories: tuple[RetrievedMemory, ...]) -> Generator[Event, None, Prompt]:
        """The prompt of this step, within the window and the budget, announced in the log."""
        history, now = self._history, self._clock()
        left = self._budget.left(now)
        zone = time.localtime(now).tm_gmtoff
        prompt = build_step_prompt(self._start, history, memories, left, now=now, zone=zone, count=self._count)
        expected, reply_tokens = self._expected(prompt)
        price = self._model.price
        self._budget.check(expected, reply_tokens, price, now)
        yield self._record(
            Prompted(
                sha256=prompt.sha256,
                tokens=prompt.tokens,
                messages=len(prompt.messages),
                at=now,
                estimate=estimated_cost(expected, reply_tokens, price),
                left=left,
                zone=zone,
            )
        )
        return prompt

    def _expected(self, prompt: Prompt) -> tuple[int, int]:
        """The tokens of a prompt as the endpoint may count them, and of the reply to it."""
        most = self._history.reply_tokens + self._model.reasoning_room
        return int(prompt.tokens * self._history.scale), min(most, self._budget.expected_reply)

    def _complete(self, prompt: Prompt) -> Completion:
        """Ask the model within what the limits leave; a retry that would pass them ends the run."""
        sent, reply = self._expected(prompt)

        def before_retry() -> None:
            self._owed += self._model.take_usage()
            self._budget.check_size(self._owed.prompt + sent, self._owed.completion + reply, self._model.price)

        return self._model.complete(
            prompt.messages,
            commands=self._offered,
            max_tokens=self._history.reply_tokens,
            at_most=self._budget.allowance(sent, self._model.price),
            listener=Watch(self._listener, lambda: self._budget.check_time(self._clock()), before_retry),
        )

    def _take_owed(self) -> Usage:
        """What was paid beside the completions, to be put into the log."""
        setup_usage, self._owed = self._owed + self._model.take_usage(), Usage()
        return setup_usage

    def _waits_on(self, reason: str) -> bool:
        """Whether the user has a model that does not answer asked again."""
        try:
            with self._interruptible(), self._budget.time.idle():
                return self._authorizer.waits_on(reason)
        except KeyboardInterrupt:
            raise StopRun(Outcome("interrupted", "Ended by Ctrl-C.")) from None

    def _propose(self, call: Call) -> Proposal:
        """A checked call as it is decided on: with what it would change, its risk, and what there is to warn of."""
        return self._guard.examine(self._registry.propose(call, self._context))

    def _context_of(self, proposal: Proposal, workspace: Workspace) -> Context:
        return replace(
            self._context,
            workspace=workspace,
            shown=proposal.preview,
            ask=self._ask,
            has_room=self._history.has_room,
            returned=lambda step: self._log.returned(step, self._key),
        )

    def _logged(self, call: Call) -> Call:
        """A call as the log has it, without secrets; the call itself where it has none."""
        args = self._log.masked(call.args)
        return call if args == call.args else replace(call, args=args)

    def _pause(self, seconds: float) -> None:
        """Let time pass in a command that waits. Raises StopRun where the run's time is up."""
        self._budget.check_time(self._clock())
        self._let_pass(seconds)

    def _only_looks(self, call: Call) -> bool:
        """Whether the command is declared to change nothing."""
        return any(spec.name == call.name and spec.risk == "read" for spec in self._registry.specs)

    @property
    def _offered(self) -> list[CommandSpec]:
        specs = self._registry.specs
        return [spec for spec in specs if spec.name not in self._repeats.barred_names] or list(specs)

    def _check_goals(self) -> Generator[Event, None, bool]:
        """Run the checks of the goals, and tell model and user what is new; False where Ctrl-C cut them short."""
        try:
            with self._interruptible():
                outcomes = list(
                    self._ledger.check(
                        lambda check: self._context.sandbox.run(["/bin/sh", "-c", check]), lambda: self._guard.printed
                    )
                )
        except KeyboardInterrupt:
            yield from self._interrupted()
            return False
        for outcome in outcomes:
            news = self._ledger.news(outcome, self._guard.quote)
            yield self._record(outcome)
            if news:
                yield self._record(SystemNotice(text=news))
        return True

    def _reviewed(self, workspace: Workspace) -> str:
        """What has to be looked at before the run may end; '' once it was."""

        def read(path: str) -> str:
            return workspace.read(path, limit=REVIEWED_BYTES).decode("utf-8", "replace")

        def is_there(path: str) -> bool:
            with suppress(CommandError):
                found = workspace.find(path)
                return found is not None and found.kind == "file"
            return False

        return self._review.text(self._start.task.goals, read, is_there, self._guard.quote)

    def _unmet(self) -> Generator[Event, None, str]:
        """Why the run may not be finished, as the checks of its goals say now."""
        if not (yield from self._check_goals()):
            return "Not ended yet: the user interrupted the checks of the goals, so nobody knows whether they are met."
        return self._ledger.unmet(self._guard.quote)

    def _failing(self) -> str:
        return self._ledger.failing(self._guard.quote)

    def _snapshot(self) -> Generator[Event, None, None]:
        """Keep the workspace as it is, where it is not as it was when this was last done."""
        if self._snapshots is not None and (tree := self._snapshots.take()) != self._progress.tree:
            yield self._record(Snapshot(tree=tree))

    def _decide(self, proposal: Proposal) -> Generator[Event, None, Verdict]:
        logged = self._logged(proposal.call)
        event = Proposed(
            call=logged,
            preview=shorten(proposal.preview, LOGGED_PREVIEW),
            warning=proposal.warning,
            masked=logged is not proposal.call,
        )
        while True:
            yield self._record(event)
            self._listener.proposed(proposal)
            if (by := self._review.allowed_by(proposal.call)) and not proposal.warning:
                return Verdict(True, by)
            try:
                with self._interruptible(), self._budget.time.idle():
                    return self._authorizer.decide(proposal)
            except KeyboardInterrupt:  # it came before there was a question
                yield from self._interrupted()

    def _ask(self, question: str, timeout: float | None) -> str:
        with self._budget.time.idle():
            return self._context.ask(question, timeout)

    def _interrupted(self) -> Generator[Event, None, None]:
        """Ctrl-C came: what was allowed in advance is forfeited, and the user has the word."""
        try:
            with self._interruptible(), self._budget.time.idle():
                feedback = self._authorizer.interrupted()
        except KeyboardInterrupt:
            raise StopRun(Outcome("interrupted", "Ended by Ctrl-C.")) from None
        if feedback:
            yield self._record(Feedback(text=feedback))

    def _charge(self, purpose: str, usage: Usage) -> Generator[Event, None, None]:
        """Record what was spent beside the steps."""
        if usage != Usage():
            yield self._record(Spent(purpose=purpose, usage=usage))

    def _record(self, event: Event, *, passing: bool = False) -> Event:
        """On disk first, then in every fold, then to whoever drives the loop."""
        worked = round(self._budget.time.seconds, 3)
        stamped = self._log.append(replace(event, step=self._step, agent=self._key, worked=worked), passing=passing)
        self._fold(stamped)
        return stamped

    def _fold(self, event: Event) -> None:
        for fold in self._folds:
            fold.add(event)


def build_step_prompt(
    start: RunStarted,
    history: History,
    memories: Sequence[RetrievedMemory],
    left: str,
    *,
    now: float,
    zone: int | None,
    count: Count,
) -> Prompt:
    """The prompt of a step; `left` is its line of what is left of the limits, `zone` as in Prompted.

    All it is made of is in the log, from which it can be built again (see retrace).
    """
    return build(
        start.system,
        history.messages,
        memories,
        "\n".join(line for line in (history.standing, left) if line),
        goals=start.task.goals,
        met=history.met,
        failing=history.failing,
        now=now,
        zone=zone,
        shares=history.shares,
        count=count,
        fixed_tokens=history.fixed_tokens,
    )
