"""Run the loop: think, parse, authorize, execute, store.

The agent folds all its state from the events it records, so a resumed run equals an uninterrupted one. Each event is
written before it is yielded, and synced before anything irreversible follows.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import suppress
from dataclasses import replace

from autoagent.agent.authorize import Authorization
from autoagent.agent.drafts import Drafts
from autoagent.agent.execute import Execution
from autoagent.agent.remember import StepMemory
from autoagent.agent.side_call import SideCall
from autoagent.agent.state import Events, Policy, State, Tools
from autoagent.agent.think import ModelTurn
from autoagent.agent.verify import Verification
from autoagent.core.commands import PLAIN, Call, ResultMeta
from autoagent.core.errors import ModelError, ReplyError, SetupError, StopRun
from autoagent.core.events import Decided, Ended, Event, Rejected, Resumed, RunStarted, SystemNotice, Thought
from autoagent.core.model import Completion, Reply, Usage
from autoagent.core.protocols import Listener, Model, Recorder
from autoagent.core.task import Outcome, Status
from autoagent.reply.file_reply import parse_file
from autoagent.reply.parser import parse, written
from autoagent.text.redaction import MASK, holds_mask

MAX_UNUSABLE_REPLIES = 3  # in a row; then the run ends
LOST_SECRET = (
    f"{MASK} stands in it for a secret, which only the process knew that has ended. Give the command again, with what "
    "belongs there."
)


class Agent:
    """Run one agent on one run.

    `start` determines everything that shapes the prompts. A `Resumed` start continues the run in `log`. `setup_usage`
    is the model's usage before the run began. `key` identifies a sub-agent, whose events are in its parent's log.
    """

    def __init__(
        self,
        start: RunStarted,
        model: Model,
        tools: Tools,
        policy: Policy,
        log: Recorder,
        *,
        listener: Listener,
        setup_usage: Usage | None = None,
        key: str = "",
    ) -> None:
        self._registry = tools.registry
        self._inbox = tools.inbox
        self._run_part = tools.part
        self._clock = policy.clock
        self._state = State(start, tools, policy, log, key)
        self._authorization = Authorization(self._state, listener)
        self._memory = StepMemory(self._state, self._authorization)
        self._model = ModelTurn(self._state, model, self._authorization, listener, setup_usage or Usage())
        self._side_call = SideCall(self._state, model, listener)
        self._drafts = Drafts(self._state, self._side_call, self._authorization)
        judge = None
        if policy.verifier is not None:
            judge = Verification(self._state, SideCall(self._state, policy.verifier, listener)).judge
        self._execution = Execution(self._state, self._authorization, judge)
        self._further_calls: tuple[str, ...] = ()  # the remaining calls of a reply, with their secrets
        self._masked_calls: frozenset[str] = frozenset()  # those of an earlier process, as logged

    def run(self) -> Iterator[Event]:
        """Yield the events of the run as they happen, ending with `Ended`.

        Raises:
            StateError: the log, a snapshot or the record of tainted files cannot be written. Events yielded before
                that are on disk.
        """
        try:
            call = yield from self._begin()
            while True:
                if call is None:
                    completion = yield from self._think()
                    call = yield from self._parse(completion)
                proposal = None if call is None else (yield from self._authorization.authorize(call))
                meta = PLAIN if proposal is None else (yield from self._execution.run(proposal))
                yield from self._store(meta)
                call = None
        except StopRun as stop:
            yield from self._end(stop.outcome)
        except (SetupError, ModelError) as error:
            status = Status.SETUP if isinstance(error, SetupError) else Status.FAILED
            yield from self._end(Outcome(status, str(error)))

    # The parts of a step -----------------------------------------------------------------------------------------

    def _think(self) -> Generator[Event, None, Completion]:
        """Ask the model, unless its last reply still holds further calls."""
        state = self._state
        yield from self._receive()
        state.budget.check_command()
        state.step += 1
        if waiting := state.continuation.further_calls:
            state.budget.check_time(self._clock())  # no request is needed, so only the time counts
            pending = self._further_calls[-len(waiting) :]
            return Completion((pending or waiting)[0], Usage())
        memories = yield from self._memory.recall()
        if (draft := (yield from self._drafts.reply())) is not None:
            return draft
        completion = yield from self._model.ask(memories)
        return self._run_part.reply(completion)

    def _parse(self, completion: Completion) -> Generator[Event, None, Call | None]:
        """Record the reply and return its first call, or None if it holds no valid call."""
        state = self._state
        try:
            if completion.text in self._masked_calls:
                raise ReplyError(LOST_SECRET)
            reply = self._parse_reply(completion)
            reply = replace(reply, call=self._apply_plugins(reply.call))
        except ReplyError as error:
            yield state.record(
                Rejected(
                    problem=str(error),
                    text=written(completion),
                    truncated=completion.truncated,
                    command=error.command,
                    off=error.off,
                    usage=completion.usage,
                )
            )
            if state.continuation.unusable_replies < MAX_UNUSABLE_REPLIES:
                return None
            reason = f"{MAX_UNUSABLE_REPLIES} unusable replies in a row; the last one: {error}"
            raise StopRun(Outcome(Status.STUCK, reason)) from None
        thought = Thought(
            thoughts=reply.thoughts, call=reply.call, text=reply.text, usage=completion.usage, more=reply.more
        )
        yield state.record(thought)
        self._further_calls = reply.more or self._further_calls
        return reply.call

    def _parse_reply(self, completion: Completion) -> Reply:
        """Parse a completion into a reply. Raises ReplyError."""
        file, check, call_id = self._state.start.task.file, self._registry.check, f"{self._state.step}"
        if not file:
            return parse(completion, check, call_id)
        writer = next(spec for spec in self._registry.specs if spec.effects is not None and spec.effects.writes_whole)
        return parse_file(completion, file, writer, check, call_id)

    def _apply_plugins(self, call: Call) -> Call:
        """Return the call after the plug-ins' changes. Raises ReplyError if it is no longer valid."""
        new_call = self._run_part.call(call)
        if (new_call.name, new_call.args) == (call.name, call.args):
            return call
        try:
            return self._registry.check(new_call)
        except ReplyError as error:
            raise ReplyError(f"A plug-in has changed this call to one that cannot be run: {error}") from None

    def _store(self, meta: ResultMeta) -> Events:
        """Remember the step, and end the run on a final result or a standstill."""
        yield from self._memory.remember()
        if meta.finished is not None:
            raise StopRun(self._execution.outcome(meta))
        standstill = self._state.standstill
        if alarm := standstill.alarm:
            text = standstill.message
            # an agent that writes one file has no alternative to try
            if alarm == "stop" or self._state.start.task.file:
                raise StopRun(Outcome(Status.STUCK, text))
            advice = "The user has been told." if alarm == "user" else "Try something else."
            yield self._state.record(SystemNotice(text=f"{text} {advice}"))

    # The beginning and the end -----------------------------------------------------------------------------------

    def _begin(self) -> Generator[Event, None, Call | None]:
        """Record the start and return a call left open by a crash, to be authorized again."""
        state = self._state
        if isinstance(state.start, Resumed):
            state.replay()
            self._masked_calls = frozenset(filter(holds_mask, state.continuation.further_calls))
        resumed = state.continuation
        open_call, was_started, result = resumed.open_call, resumed.has_started, resumed.open_result
        if isinstance(state.start, Resumed):
            state.start = replace(state.start, edited=self._execution.edited_files())
        logged_start = state.record(state.start)
        assert isinstance(logged_start, RunStarted)
        state.start = logged_start  # with secrets masked
        yield logged_start
        yield from self._model.charge("set-up")
        yield from self._memory.restore_lost_steps()
        read_only = {spec.name for spec in self._registry.specs if spec.risk == "read"}
        if open_call is not None and (not was_started or open_call.name in read_only):
            return (yield from self._reopen(open_call))
        if open_call is not None:
            yield from self._execution.record_crash(open_call)
            yield from self._store(PLAIN)
        elif result is not None:
            yield from self._store((yield from self._execution.end_if_written(result.ok, result.meta)))
        return None

    def _reopen(self, call: Call) -> Generator[Event, None, Call | None]:
        """Return an open call if this run still offers its command. Otherwise record a refusal."""
        try:
            if holds_mask(call.args):
                raise ReplyError(LOST_SECRET)
            return self._registry.check(call)
        except ReplyError as error:
            yield self._state.record(Decided(call_id=call.id, allowed=False, by="resume", reason=str(error)))
            yield from self._store(PLAIN)
            return None

    def _receive(self) -> Events:
        """Record messages from other agents."""
        while self._inbox is not None:
            try:
                messages = self._inbox.take()
            except KeyboardInterrupt:  # pressed before another agent's question was shown
                yield from self._authorization.interrupted()
                continue
            for event in messages:
                yield self._state.record(event)
            return

    def _end(self, outcome: Outcome) -> Events:
        """Record the remaining usage, stop workers and programs, and log the end."""
        yield from self._model.charge()
        yield from self._memory.charge()
        for event in self._inbox.close() if self._inbox else ():
            yield self._state.record(event)
        yield from self._execution.close()
        if self._memory.should_distill(outcome):
            from autoagent.agent.distill import distill  # only at the end of a run

            facts = yield from distill(self._state, self._side_call, outcome)
            with suppress(StopRun):  # a signal ends the run without them
                yield from self._memory.close(outcome, facts)
        yield self._state.record(Ended(status=outcome.status, reason=outcome.reason, goals=outcome.goals))
