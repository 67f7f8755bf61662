"""Run a role in its own thread: it asks its model, works as an agent and publishes messages. All of it is logged.

A turn begun by an earlier process starts over, with the answers from the log. No answer is paid for twice, and no
message is published twice. Any other effects of a role's Python function are repeated.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import queue
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from autoagent.agent.budget import Budget, estimated_cost
from autoagent.core.commands import Question
from autoagent.core.errors import CommandError, ModelError, NoMoneyException, SettingsError, StopRun
from autoagent.core.events import Acted, Answered, Asked, Event, Published, Spent
from autoagent.core.memory import Origin
from autoagent.core.model import Completion, Usage, reply_tokens
from autoagent.core.model import Message as PromptMessage
from autoagent.core.protocols import Model
from autoagent.core.task import Goal, Outcome, Status, Task
from autoagent.models.forwarding import LimitedListener
from autoagent.reply.file_reply import in_block
from autoagent.session import build
from autoagent.subagents.subagent_state import FINAL_STATUSES, SubAgentState
from autoagent.subagents.worker import NO_ISOLATION, Isolation, RunningWorker
from autoagent.teams.llm import CURRENT_TURN, Turn
from autoagent.teams.memory import Memory
from autoagent.teams.message import Message
from autoagent.teams.role import Role
from autoagent.teams.tools import NO_WRITER, ends_run, specs_of, writes_whole
from autoagent.terminal.console import Console
from autoagent.text.tokens import TOKENS_PER_MESSAGE, counter

if TYPE_CHECKING:
    from autoagent.session.drive import OpenedRun
    from autoagent.teams.copies import Copies

BUDGET_USED_UP = Outcome(Status.BUDGET, "The budget is used up.")
_REPORTABLE_STATUSES = (*FINAL_STATUSES, Status.FAILED)  # of an agent, whose role can report them


@dataclass(slots=True)
class AssignedTurn:
    """A turn for a role to take: its round, its budget, and the answers and messages of an earlier process.

    `is_over` is set at the end. `messages` then holds those of the turn, and `problem` the error that ended it, if any.
    `received` are all answers so far. `is_parallel` tells whether other roles act in the same round.
    """

    number: int
    budget: Budget
    answers: deque[Answered] = field(default_factory=deque)
    messages: dict[str, Message] = field(default_factory=dict)
    received: list[Answered] = field(default_factory=list)
    problem: BaseException | None = None
    is_over: bool = False
    is_parallel: bool = False


class Member:
    """Run a role in its thread, as the source of a worker's events."""

    key: str
    worker: RunningWorker
    assignment: AssignedTurn

    def __init__(self, role: Role, run: OpenedRun, copies: Copies) -> None:
        self.role = role
        self.turn = Turn(self._aask, self._use_commands, self._publish)
        self.turns: queue.SimpleQueue[AssignedTurn | None] = queue.SimpleQueue()  # the turns to take; None ends them
        self._run = run
        self._copies = copies
        specs = run.plan.registry.specs
        self._writer = next(filter(writes_whole, specs), None)
        self._writing_specs = tuple(spec for spec in specs if writes_whole(spec) or ends_run(spec))
        self._models: dict[str, list[Model]] = {}  # idle models, by name
        self._pending: list[tuple[asyncio.Future[str], tuple[str, str, str, str]]] = []  # unanswered questions
        self._lock = threading.Lock()  # guards the answers of an earlier process
        self._message_count = self._agent_count = 0  # in this turn

    @contextmanager
    def build(self, worker: RunningWorker) -> Iterator[Callable[[], Iterator[Event]]]:
        """Attach the role to its worker, in the worker's thread."""
        self.worker, self.key = worker, worker.key
        worker.when_stopped(lambda: self.turns.put(None))
        self.role.active_turn = self.turn
        yield self.run

    def run(self) -> Iterator[Event]:
        """Take turns until stopped. Wake the run's own agent after each.

        Yield nothing: each event is passed on as it is recorded.
        """
        with asyncio.Runner() as runner:
            while (turn := self.turns.get()) is not None:
                self.assignment, self._message_count, self._agent_count = turn, 0, 0
                try:
                    runner.run(self._turn())
                except BaseException as error:  # TeamRun decides what to do
                    self.role.rc.memory.undo()
                    turn.problem = error
                turn.is_over = True
                self._run.pool.mailbox.wake()
        yield from ()

    async def _turn(self) -> None:
        memory = self.role.rc.memory
        CURRENT_TURN.set(self.turn)
        await self.role.run()
        changes: list[dict[str, Any]] = []
        for kind, message in memory.changes:
            if message is None:
                changes.append({"do": kind})
                continue
            self._identify(message)
            is_logged = message.id in self.assignment.messages or kind == "delete" or message in self._published
            changes.append({"do": kind, **({"id": message.id} if is_logged else {"message": message.to_json()})})
        self.record(Acted(memory=tuple(changes)))
        memory.keep()
        self.role.rc.news.clear()

    def _publish(self, message: Message) -> None:
        self._identify(message)
        if message.id in self.assignment.messages or message in self._published:
            return
        message.sent_from = message.sent_from or self.role.name
        if message.origin == Origin():
            message.origin = self.role.rc.memory.origin
        recorded = self.record(event_of(message))
        assert isinstance(recorded, Published)
        message.content = recorded.content  # as logged, with secrets masked
        self.assignment.messages[message.id] = message

    async def _aask(self, prompt: str, system: str, purpose: str, model: str) -> str:
        answer = asyncio.get_running_loop().create_future()
        self._pending.append((answer, (prompt, system, purpose, model)))
        await asyncio.sleep(0)  # so that all simultaneous questions arrive
        if self._pending:
            batch, self._pending = self._pending, []
            await self._answer(batch)
        return str(await answer)

    async def _answer(self, batch: Sequence[tuple[asyncio.Future[str], tuple[str, str, str, str]]]) -> None:
        """Answer simultaneous questions in parallel. Ask those that were short of money again, after the others."""
        unaffordable = list(batch)
        if len(batch) > 1 and not self.role.is_human:
            shares = [self.assignment.budget.share(1 / left, time.time()) for left in range(len(batch), 0, -1)]
            calls = [asyncio.to_thread(self._ask, *args, share) for (_, args), share in zip(batch, shares, strict=True)]
            results = await asyncio.gather(*calls, return_exceptions=True)
            for share in filter(None, shares):
                share.give_back()
            unaffordable = []
            for (answer, args), result in zip(batch, results, strict=True):
                if isinstance(result, NoMoneyException):
                    unaffordable.append((answer, args))
                elif isinstance(result, BaseException):
                    answer.set_exception(result)
                else:
                    answer.set_result(result)
        for answer, args in unaffordable:
            try:
                answer.set_result(self._ask(*args, self.assignment.budget))
            except (Exception, StopRun) as error:  # to be raised where the answer is awaited
                answer.set_exception(error)

    def _ask(self, prompt: str, system: str, purpose: str, model: str, budget: Budget | None) -> str:
        self.worker.check()
        prompt, system = self.worker.log.masked(prompt), self.worker.log.masked(system)
        sha256 = hashlib.sha256(json.dumps([system, prompt]).encode("utf-8", "backslashreplace")).hexdigest()
        with self._lock:
            if logged_answer := next((answer for answer in self.assignment.answers if answer.sha256 == sha256), None):
                self.assignment.answers.remove(logged_answer)
                self.assignment.received.append(logged_answer)
                return logged_answer.text
        if budget is None:
            raise NoMoneyException(BUDGET_USED_UP)
        if self.role.is_human:
            console, unanswered = self._run.plan.console, self._run.plan.settings.unanswered_text
            text = self._run.pool.ask_user(self.worker, lambda: ask_person(console, self.role, prompt, unanswered))
            answer = Answered(purpose=purpose, sha256=sha256, text=str(text), usage=Usage(), human=True)
        else:
            reply = self._complete(prompt, system, purpose, sha256, model or self.role.model, budget)
            answer = Answered(
                purpose=purpose, sha256=sha256, text=reply.text, usage=reply.usage, truncated=reply.truncated
            )
        recorded = self.record(answer, budget)
        assert isinstance(recorded, Answered)
        return recorded.text

    def _use_commands(self, goal: Goal, commands: Sequence[str], purpose: str, file: str, model: str) -> str:
        if self.role.is_human:
            note = f"\n\n{file} is yours to write, in the workspace." if file else ""
            return self._ask(f"{goal.text}{note}", self.role.prefix, purpose, "", self.assignment.budget)
        if file and self._writer is None:  # the file of an action is checked before the team starts
            raise SettingsError(f"{self.role}, {purpose}: {NO_WRITER}")
        self._agent_count += 1
        key = f"{self.key}.{self.assignment.number}.{self._agent_count}"
        state = self._run.pool.unfinished.get(key)
        if state is not None and state.is_decided:
            outcome = state.outcome
        else:
            worker = self._start_agent(key, goal, commands, file, model or self.role.model)
            assert worker.thread is not None
            worker.thread.join()
            state, outcome = worker.state, worker.outcome
        assert outcome is not None
        if outcome.status == Status.BUDGET:
            raise NoMoneyException(outcome)
        if outcome.status not in _REPORTABLE_STATUSES:
            raise StopRun(outcome)
        is_finished = outcome.status == Status.FINISHED
        arguments = state.newest_args.get(self._writer.name, {}) if state.task.file and self._writer else {}
        if self._writer and (written := str(arguments.get(self._writer.parameters[1].name, ""))):
            problem = "" if is_finished else f"This is not right yet ({outcome.status}): {outcome.reason}"
            text = file_message(state, written, problem)
        else:
            text = state.last_message if is_finished else f"This was not done ({outcome.status}): {outcome.reason}"
            text += f"\nFiles changed: {', '.join(state.changed)}." if state.changed else ""
        if state.origin != Origin():  # the role has read what its agent has
            message = Message(text, self.role.profile, "commands", self.role)
            message.origin = state.origin
            self.role.rc.memory.add(message)
        return text

    def record(self, event: Event, budget: Budget | None = None) -> Event:
        """Log an event of this role. Charge its cost to the turn's budget, or to `budget`, a share of it."""
        recorded = self.worker.log.append(replace(event, step=self.assignment.number))
        (budget or self.assignment.budget).add(recorded)
        if isinstance(recorded, Answered):
            self.assignment.received.append(recorded)
        return recorded

    @property
    def _published(self) -> Memory:
        assert self.role.rc.env is not None
        return self.role.rc.env.history

    def _identify(self, message: Message) -> None:
        """Give a message an id that stays the same if the turn is repeated."""
        if not message.id:
            self._message_count += 1
            self.role.rc.memory.name(message, f"{self.assignment.number}.{self.key}.{self._message_count}")

    def _complete(self, prompt: str, system: str, purpose: str, sha256: str, name: str, budget: Budget) -> Completion:
        """Ask the model of this name within the remaining budget. Raises ModelError if the prompt is too long."""
        plan, idle = self._run.plan, self._models.setdefault(name, [])
        model = idle.pop() if idle else build.model_of_worker(plan.settings, plan.console, plan.model, self.key, name)
        count = counter(model.name)
        messages = [PromptMessage("system", system)] * bool(system) + [PromptMessage("user", prompt)]
        size = sum(count(message.content) + TOKENS_PER_MESSAGE for message in messages)
        room = min(plan.settings.reply_tokens, model.window // 2) or reply_tokens(model.window)
        if size + room > model.window:
            raise ModelError(
                f"The prompt of {self.role} has {size:,} tokens; the window of {model.name} holds {model.window:,}, of "
                f"which {room:,} are for the answer. Let it read fewer messages, or use a model with a larger window."
            )
        reply = min(room + model.reasoning_room, budget.expected_reply)
        budget.check(size, reply, model.price, time.time())
        estimate = estimated_cost(size, reply, model.price)
        self.record(Asked(purpose=purpose, sha256=sha256, tokens=size, estimate=estimate), budget)

        def charge() -> None:
            """Record usage that was paid for outside of the answers."""
            if (usage := model.take_usage()) != Usage():
                self.record(Spent(purpose=purpose, usage=usage), budget)

        def before_retry(reason: str) -> None:
            charge()
            budget.check_size(size, reply, model.price)

        show_text, check_time = partial(plan.console.role_text, self.role.name), lambda: budget.check_time(time.time())
        try:
            return model.complete(
                messages,
                max_tokens=room,
                at_most=budget.allowance(size, model.price),
                listener=LimitedListener(self.worker.listener, check_time, before_retry, on_text=show_text),
            )
        finally:  # a reply cut short by a stop was paid for, too
            charge()
            idle.append(model)

    def _start_agent(self, key: str, goal: Goal, commands: Sequence[str], file: str, model: str) -> RunningWorker:
        """Start an agent under this role, with all of the turn's remaining budget."""
        budget = self.assignment.budget.share(1.0, time.time())
        if budget is None:
            raise NoMoneyException(BUDGET_USED_UP)
        specs = self._writing_specs if file else specs_of(self._run.plan.registry, commands)
        description = self.role.prefix.removeprefix(f"You are a {self.role.profile}, named {self.role.name}, ")
        task = Task(self.role.name, f"{self.role.profile}; {description}", (goal,), budget.limits.usd, file, model)
        try:
            self.worker.mailbox.isolation = NO_ISOLATION
            if self.assignment.is_parallel:  # hide the work of the round's other roles from it
                number, may_change = self.assignment.number, any(spec.risk != "read" for spec in specs)
                copy = self._copies.open(f"{number}.{self.key}") if may_change else None
                others = re.compile(rf"{re.escape(self.worker.log.run)}:(?!{self.key}\.)\d+\.{number}\..*")
                self.worker.mailbox.isolation = Isolation(copy, lambda place: others.fullmatch(place) is not None)
            origin = self.role.rc.memory.origin
            return self._run.pool.start(RunningWorker(self.worker.mailbox, key, task, specs, budget, origin))
        except CommandError as error:
            budget.give_back()
            raise ModelError(f"{self.role} cannot work with commands: {error}") from None


def file_message(state: SubAgentState, text: str, problem: str) -> str:
    """Return the file written by an agent, with the results of its checks and the `problem` with it, if any."""
    lines = [f"{state.task.file}:", in_block(text), problem]
    for number, goal in enumerate(state.task.goals):
        check, result = state.checks.get(number), "was not run."
        if check is not None:  # the output is left out if it may come from outside
            result = "passes." if check.met else "fails." if check.meta.untrusted else f"fails: {check.output}"
        lines += [f"Its check `{goal.check}` {result}"] * bool(goal.check)
    return "\n".join(filter(None, lines))


def event_of(message: Message) -> Published:
    """Return the event that publishes a message."""
    return Published(
        id=message.id,
        content=message.content,
        role=message.role,
        sent_from=message.sent_from,
        cause_by=message.cause_by,
        send_to=tuple(sorted(message.send_to)),
        data=message.origin.labels.to_json(),
        extra=message.extra,
    )


# A person in the place of a role's model ------------------------------------------------------------------------------

EXIT_WORDS = ("exit", "quit")
QUOTES = '"""'
_INSTRUCTIONS = f"Your answer; an empty line ends it, or {QUOTES} if it began with {QUOTES}. `exit` saves and ends."


def ask_person(console: Console, role: Role, prompt: str, unanswered: str) -> str:
    """Show the prompt and return the person's answer, given here or in another terminal.

    If nobody answers in time and the run is to continue, return `unanswered`.

    Raises:
        StopRun: the person ends the work, or nobody is there.
        KeyboardInterrupt: Ctrl-C.
    """
    console.discard_typeahead()
    console.say(prompt)
    question = Question(text=prompt)
    while True:
        try:
            text = console.ask(
                f"You are {role.name}, {role.profile}. {_INSTRUCTIONS}", question=question, is_unfinished=_is_unfinished
            )
        except EOFError:
            reason = f"{role} is a person, and nobody is there to answer; run it in a terminal, or pipe the answer in."
            raise StopRun(Outcome(Status.UNANSWERED, reason)) from None
        except TimeoutError:
            return unanswered
        if text.strip().lower() in EXIT_WORDS:
            raise StopRun(Outcome(Status.STOPPED, f"Ended by {role}."))
        text = text.strip()
        if answer := text.removeprefix(QUOTES).removesuffix(QUOTES).strip() if text.startswith(QUOTES) else text:
            return answer


def _is_unfinished(text: str) -> bool:
    answer = text.strip()
    if answer.startswith(QUOTES):
        return not answer.removeprefix(QUOTES).endswith(QUOTES)
    return answer.lower() not in ("", *EXIT_WORDS) and bool(text.rpartition("\n")[2].strip())
