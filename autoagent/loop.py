"""The loop: think, parse, authorize, execute, store.

All state of the Agent is folded from the events it records, so a resumed run is the same as one that never stopped.
Each event is written before it is yielded, and synced before anything that cannot be repeated follows.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import replace

from autoagent.agent.authorize import Authorization
from autoagent.agent.execute import Execution
from autoagent.agent.remember import Distillation, StepMemory
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

UNUSABLE_REPLIES = 3  # in a row, then the run ends
SECRET_GONE = (
    f"{MASK} stands in it for a secret, which only the process knew that has ended. Give the command again, with what "
    "belongs there."
)


class Agent:
    """One agent at work on one run.

    `start` holds everything that shapes its prompts. A `Resumed` continues the run that `log` already holds.
    `setup_usage` is the model's usage before the run began. `key` names a sub-agent, whose events are in the log of the
    run that started it.
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
        self._part = tools.part
        self._clock = policy.clock
        self._state = State(start, tools, policy, log, key)
        self._user = Authorization(self._state, tools, policy, listener)
        self._memory = StepMemory(self._state, tools.context.memory, self._user, policy.clock)
        self._model = ModelTurn(self._state, model, tools, policy, self._user, listener, setup_usage or Usage())
        judge = None
        if policy.verifier is not None:
            asked = SideCall(self._state, policy.verifier, policy, listener)
            judge = Verification(self._state, asked, tools, policy).judge
        self._execution = Execution(self._state, tools, policy, self._user, judge)
        self._distillation = Distillation(self._state, policy, SideCall(self._state, model, policy, listener))
        self._further: tuple[str, ...] = ()  # the further commands of a reply, with their secrets
        self._unknown: frozenset[str] = frozenset()  # those of a reply to an earlier process, where it had secrets

    def run(self) -> Iterator[Event]:
        """Yield the events of the run as they happen. The last is an `Ended`.

        Raises:
            StateError: the log, a snapshot or the record of tainted files cannot be written. Events yielded before that
                are on disk.
        """
        try:
            call = yield from self._begin()
            while True:
                if call is None:
                    completion = yield from self._think()
                    call = yield from self._parse(completion)
                proposal = None if call is None else (yield from self._user.authorize(call))
                meta = PLAIN if proposal is None else (yield from self._execution.run(proposal))
                yield from self._store(meta)
                call = None
        except StopRun as stop:
            yield from self._leave(stop.outcome)
        except (SetupError, ModelError) as error:
            status = Status.SETUP if isinstance(error, SetupError) else Status.FAILED
            yield from self._leave(Outcome(status, str(error)))

    # The parts of a step -----------------------------------------------------------------------------------------

    def _think(self) -> Generator[Event, None, Completion]:
        """Ask the model with all that fits. Where its last reply holds further commands, these come first."""
        state = self._state
        yield from self._hear()
        state.budget.check_command()
        state.step += 1
        if waiting := state.work.waiting:
            state.budget.check_time(self._clock())  # already paid for
            known = self._further[-len(waiting) :]
            return Completion((known or waiting)[0], Usage())
        memories = yield from self._memory.recall()
        completion = yield from self._model.ask(memories)
        return self._part.reply(completion)

    def _parse(self, completion: Completion) -> Generator[Event, None, Call | None]:
        """Return the call in the reply, the first of several, or
        None if there is none to run. The model reads why next.
        """
        state = self._state
        try:
            if completion.text in self._unknown:
                raise ReplyError(SECRET_GONE)
            reply = self._understood(completion)
            reply = replace(reply, call=self._rewritten(reply.call))
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
            if state.work.unusable < UNUSABLE_REPLIES:
                return None
            reason = f"{UNUSABLE_REPLIES} unusable replies in a row; the last one: {error}"
            raise StopRun(Outcome(Status.STUCK, reason)) from None
        thought = Thought(
            thoughts=reply.thoughts, call=reply.call, text=reply.text, usage=completion.usage, more=reply.more
        )
        yield state.record(thought)
        self._further = reply.more or self._further
        return reply.call

    def _understood(self, completion: Completion) -> Reply:
        """Parse a reply into its command. Raises ReplyError."""
        file, check, call_id = self._state.start.task.file, self._registry.check, f"{self._state.step}"
        if not file:
            return parse(completion, check, call_id)
        writer = next(spec for spec in self._registry.specs if spec.effects is not None and spec.effects.writes_whole)
        return parse_file(completion, file, writer, check, call_id)

    def _rewritten(self, call: Call) -> Call:
        """Return the call as the plug-ins change it, to be authorized and run. Raises ReplyError if invalid."""
        other = self._part.call(call)
        if (other.name, other.args) == (call.name, call.args):
            return call
        try:
            return self._registry.check(other)
        except ReplyError as error:
            raise ReplyError(f"A plug-in has changed this call to one that cannot be run: {error}") from None

    def _store(self, meta: ResultMeta) -> Events:
        """Remember the step. End the run if the result or a standstill says so."""
        yield from self._memory.remember()
        if meta.finished is not None:
            raise StopRun(self._execution.ending.outcome(meta))
        standstill = self._state.standstill
        if alarm := standstill.alarm:
            text = standstill.says
            if alarm == "stop" or self._state.start.task.file:  # who writes one file can try nothing else
                raise StopRun(Outcome(Status.STUCK, text))
            advice = "The user has been told." if alarm == "user" else "Try something else."
            yield self._state.record(SystemNotice(text=f"{text} {advice}"))

    # The beginning and the end -----------------------------------------------------------------------------------

    def _begin(self) -> Generator[Event, None, Call | None]:
        """Record the start. After a crash, return the call that was left open, to be asked about again."""
        state = self._state
        if isinstance(state.start, Resumed):
            state.replay()
            self._unknown = frozenset(filter(holds_mask, state.work.waiting))
        open_call, began, returned = state.work.call, state.work.started, state.work.returned
        started = state.record(state.start)
        assert isinstance(started, RunStarted)
        state.start = started  # as it is in the log: without secrets
        yield started
        yield from self._model.charge("set-up")
        yield from self._memory.regain()
        if open_call is not None and (not began or self._only_looks(open_call)):
            return (yield from self._take_up(open_call))
        if open_call is not None:
            yield from self._execution.cut_off(open_call)
            yield from self._store(PLAIN)
        elif returned is not None:
            yield from self._store((yield from self._execution.ended(returned.ok, returned.meta)))
        return None

    def _take_up(self, call: Call) -> Generator[Event, None, Call | None]:
        """Return a call that was waiting when the program ended,
        or that can safely run again, if this run still offers it.
        """
        try:
            if holds_mask(call.args):
                raise ReplyError(SECRET_GONE)
            return self._registry.check(call)
        except ReplyError as error:
            yield self._state.record(Decided(call_id=call.id, allowed=False, by="resume", reason=str(error)))
            yield from self._store(PLAIN)
            return None

    def _only_looks(self, call: Call) -> bool:
        """Return whether the command is declared to change nothing."""
        return any(spec.name == call.name and spec.risk == "read" for spec in self._registry.specs)

    def _hear(self) -> Events:
        """Record messages from other agents."""
        while self._inbox is not None:
            try:
                arrived = self._inbox.take()
            except KeyboardInterrupt:  # before another agent's question could be asked
                yield from self._user.interrupted()
                continue
            for event in arrived:
                yield self._state.record(event)
            return

    def _leave(self, outcome: Outcome) -> Events:
        """Record unbilled usage, stop the workers and programs that this agent started, and record the end."""
        yield from self._model.charge()
        for event in self._inbox.close() if self._inbox else ():
            yield self._state.record(event)
        yield from self._execution.close()
        if self._memory.keeps_facts(outcome):
            facts = yield from self._distillation.facts(outcome)
            yield from self._memory.close(outcome, facts)
        yield self._state.record(Ended(status=outcome.status, reason=outcome.reason, goals=outcome.goals))
