"""Run a role in its own thread: it asks its model, works as an agent, and writes messages, all of it logged.

A turn begun by an earlier process starts again from its beginning with the answers in the log. No paid answer is asked
for again, and no message is written twice. Any other effects of a role's Python function are repeated.
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
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from autoagent.agent.budget import Budget
from autoagent.core.commands import Question
from autoagent.core.errors import CommandError, ModelError, NoMoneyException, SettingsError, StopRun
from autoagent.core.events import CUT_SHORT, Acted, Answered, Event, Published, Spent
from autoagent.core.memory import Origin
from autoagent.core.model import Completion, Usage, reply_tokens
from autoagent.core.model import Message as PromptMessage
from autoagent.core.protocols import Model
from autoagent.core.task import Goal, Outcome, Status, Task
from autoagent.models.forwarding import LimitedListener
from autoagent.reply.file_reply import in_block
from autoagent.session import build
from autoagent.subagents.subagent_state import DECIDED, SubAgentState
from autoagent.subagents.worker import TOGETHER, Apart, RunningWorker, Worker
from autoagent.teams.llm import WORKING, Turn
from autoagent.teams.memory import Memory
from autoagent.teams.message import Message
from autoagent.teams.role import Role
from autoagent.teams.tools import NO_WRITER, ends_run, specs_of, writes_whole
from autoagent.terminal.console import Console
from autoagent.text.tokens import PER_MESSAGE, counter

if TYPE_CHECKING:
    from autoagent.session.drive import OpenedRun
    from autoagent.teams.copies import Copies

NOTHING_LEFT = Outcome(Status.BUDGET, "The budget is used up.")
_CARRIED_ON = (*DECIDED, Status.FAILED)  # outcomes of an agent that its role can report


@dataclass(slots=True)
class Round:
    """Hold a turn: its round, its budget, and the answers and messages of an earlier process.

    `over` is set at the end. `written` then holds the turn's messages, and `problem` the error that has ended it, if
    any. `given` are all answers so far. `beside`: whether other roles act in the same round.
    """

    number: int
    budget: Budget
    answers: deque[Answered] = field(default_factory=deque)
    written: dict[str, Message] = field(default_factory=dict)
    given: list[Answered] = field(default_factory=list)
    problem: BaseException | None = None
    over: bool = False
    beside: bool = False


class Member:
    """Run a role in its thread, as the source of a worker's events."""

    key: str
    worker: RunningWorker
    now: Round  # the present turn

    def __init__(self, role: Role, run: OpenedRun, copies: Copies) -> None:
        self.role = role
        self.turn = Turn(self._aask, self._use_commands, self._publish)
        self.rounds: queue.SimpleQueue[Round | None] = queue.SimpleQueue()  # the turns to take; None ends them
        self._run = run
        self._copies = copies
        specs = run.plan.registry.specs
        self._writer = next(filter(writes_whole, specs), None)
        self._writing = tuple(spec for spec in specs if writes_whole(spec) or ends_run(spec))
        self._models: dict[str, list[Model]] = {}  # idle models, by name
        self._asked: list[tuple[asyncio.Future[str], tuple[str, str, str, str]]] = []  # and not answered yet
        self._lock = threading.Lock()  # of the answers of an earlier process
        self._named = self._agents = 0  # messages and agents of this turn

    @contextmanager
    def build(self, worker: RunningWorker) -> Iterator[Worker]:
        """Take up its worker, in its own thread."""
        self.worker, self.key = worker, worker.key
        worker.when_stopped(lambda: self.rounds.put(None))
        self.role.at_work = self.turn
        yield Worker(self.run)

    def run(self) -> Iterator[Event]:
        """Take turns until it is stopped. Wake the run's own agent after each.

        Yield nothing, as events are passed on when they are recorded.
        """
        env = self.role.rc.env
        assert env is not None
        env.turns[threading.get_ident()] = self.turn
        with asyncio.Runner() as runner:
            while (work := self.rounds.get()) is not None:
                self.now, self._named, self._agents = work, 0, 0
                try:
                    runner.run(self._turn())
                except BaseException as error:  # for the TeamRun to decide on
                    self.role.rc.memory.undo()
                    work.problem = error
                work.over = True
                self._run.pool.mailbox.wake()
        yield from ()

    async def _turn(self) -> None:
        memory = self.role.rc.memory
        WORKING.set(self.turn)
        await self.role.run()
        self.record(Acted(memory=tuple(self._noted(memory))))
        memory.keep()
        self.role.rc.news.clear()

    def _noted(self, memory: Memory) -> Iterator[dict[str, Any]]:
        """Yield the changes to the role's memory in the form of the log, with the id alone for a published message."""
        for kind, message in memory.changes:
            if message is None:
                yield {"do": kind}
                continue
            self._identify(message)
            known = message.id in self.now.written or kind == "delete" or message in self._published
            yield {"do": kind, "id": message.id} if known else {"do": kind, "message": message.to_json()}

    def _publish(self, message: Message) -> None:
        self._identify(message)
        if message.id in self.now.written or message in self._published:
            return
        message.sent_from = message.sent_from or self.role.name
        if message.origin == Origin():
            message.origin = self.role.rc.memory.origin
        recorded = self.record(published(message))
        assert isinstance(recorded, Published)
        message.content = recorded.content  # as it is in the log: without secrets
        self.now.written[message.id] = message

    async def _aask(self, prompt: str, system: str, purpose: str, model: str) -> str:
        answer = asyncio.get_running_loop().create_future()
        self._asked.append((answer, (prompt, system, purpose, model)))
        await asyncio.sleep(0)  # until all simultaneous questions are asked
        if self._asked:
            batch, self._asked = self._asked, []
            await self._answer(batch)
        return str(await answer)

    async def _answer(self, batch: Sequence[tuple[asyncio.Future[str], tuple[str, str, str, str]]]) -> None:
        """Answer simultaneous questions side by side. Ask again, after the others, those with too little money."""
        short = list(batch)
        if len(batch) > 1 and not self.role.is_human:
            shares = [self.now.budget.share(1 / (len(batch) - number), time.time()) for number in range(len(batch))]
            asked = [asyncio.to_thread(self._ask, *asks, share) for (_, asks), share in zip(batch, shares, strict=True)]
            found = await asyncio.gather(*asked, return_exceptions=True)
            for share in filter(None, shares):
                share.give_back()
            short = []
            for (answer, asks), said in zip(batch, found, strict=True):
                if isinstance(said, NoMoneyException):
                    short.append((answer, asks))
                elif isinstance(said, BaseException):
                    answer.set_exception(said)
                else:
                    answer.set_result(said)
        for answer, asks in short:
            try:
                answer.set_result(self._ask(*asks, self.now.budget))
            except (Exception, StopRun) as error:  # raised where the answer is awaited
                answer.set_exception(error)

    def _ask(self, prompt: str, system: str, purpose: str, model: str, budget: Budget | None) -> str:
        self.worker.check()
        prompt, system = self.worker.log.masked(prompt), self.worker.log.masked(system)
        sha256 = hashlib.sha256(json.dumps([system, prompt]).encode("utf-8", "backslashreplace")).hexdigest()
        with self._lock:
            if known := next((answer for answer in self.now.answers if answer.sha256 == sha256), None):
                self.now.answers.remove(known)
                self.now.given.append(known)
                return known.text
        if budget is None:
            raise NoMoneyException(NOTHING_LEFT)
        if self.role.is_human:
            console, unanswered = self._run.plan.console, self._run.plan.settings.unanswered_text
            said = self._run.pool.ask_user(self.worker, lambda: ask_person(console, self.role, prompt, unanswered))
            answer = Answered(purpose=purpose, sha256=sha256, text=str(said), usage=Usage(), human=True)
        else:
            found = self._complete(prompt, system, model or self.role.model, budget)
            answer = Answered(
                purpose=purpose, sha256=sha256, text=found.text, usage=found.usage, truncated=found.truncated
            )
        recorded = self.record(answer, budget)
        assert isinstance(recorded, Answered)
        return recorded.text

    def _use_commands(self, goal: Goal, commands: Sequence[str], purpose: str, file: str, model: str) -> str:
        if self.role.is_human:
            yours = f"\n\n{file} is yours to write, in the workspace." if file else ""
            return self._ask(f"{goal.text}{yours}", self.role.prefix, purpose, "", self.now.budget)
        if file and self._writer is None:  # a file that its action names is looked at before the team begins
            raise SettingsError(f"{self.role}, {purpose}: {NO_WRITER}")
        self._agents += 1
        key = f"{self.key}.{self.now.number}.{self._agents}"
        state = self._run.pool.former.get(key)
        if state is not None and state.is_decided:
            outcome = state.outcome
        else:
            worker = self._hire(key, goal, commands, file, model or self.role.model)
            assert worker.thread is not None
            worker.thread.join()
            state, outcome = worker.state, worker.outcome
        assert outcome is not None
        if outcome.status == Status.BUDGET:
            raise NoMoneyException(outcome)
        if outcome.status not in _CARRIED_ON:
            raise StopRun(outcome)
        return self._result(state, outcome.status, outcome.reason)

    def record(self, event: Event, budget: Budget | None = None) -> Event:
        """Write an event of this role. Charge its cost to the turn's budget, or to this share of it."""
        recorded = self.worker.log.append(replace(event, step=self.now.number))
        (budget or self.now.budget).add(recorded)
        if isinstance(recorded, Answered):
            self.now.given.append(recorded)
        return recorded

    @property
    def _published(self) -> Memory:
        assert self.role.rc.env is not None
        return self.role.rc.env.history

    def _identify(self, message: Message) -> None:
        """Give a message its id, the same if the turn is repeated."""
        if not message.id:
            self._named += 1
            self.role.rc.memory.name(message, f"{self.now.number}.{self.key}.{self._named}")

    def _complete(self, prompt: str, system: str, named: str, budget: Budget) -> Completion:
        """Ask the model of this name within the remaining budget. Raises ModelError for a prompt too long for it."""
        plan, free = self._run.plan, self._models.setdefault(named, [])
        model = free.pop() if free else build.model_of_worker(plan.settings, plan.console, plan.model, self.key, named)
        count = counter(model.name)
        messages = [PromptMessage("system", system)] * bool(system) + [PromptMessage("user", prompt)]
        sent = sum(count(message.content) + PER_MESSAGE for message in messages)
        room = min(plan.settings.reply_tokens, model.window // 2) or reply_tokens(model.window)
        if sent + room > model.window:
            raise ModelError(
                f"The prompt of {self.role} has {sent:,} tokens; the window of {model.name} holds {model.window:,}, of "
                f"which {room:,} are for the answer. Let it read fewer messages, or use a model with a larger window."
            )
        reply = min(room + model.reasoning_room, budget.expected_reply)
        budget.check(sent, reply, model.price, time.time())

        def charge() -> None:
            """Record the usage paid for besides the answers."""
            if (usage := model.take_usage()) != Usage():
                self.record(Spent(purpose=CUT_SHORT, usage=usage), budget)

        def before_retry(reason: str) -> None:
            charge()
            budget.check_size(sent, reply, model.price)

        hear, heed = partial(plan.console.overhear, self.role.name), lambda: budget.check_time(time.time())
        try:
            return model.complete(
                messages,
                max_tokens=room,
                at_most=budget.allowance(sent, model.price),
                listener=LimitedListener(self.worker.listener, heed, before_retry, on_text=hear),
            )
        finally:  # a reply cut short by a stop was paid for, too
            charge()
            free.append(model)

    def _hire(self, key: str, goal: Goal, commands: Sequence[str], file: str, model: str) -> RunningWorker:
        """Start an agent under this role, with the whole remaining budget of the turn."""
        budget = self.now.budget.share(1.0, time.time())
        if budget is None:
            raise NoMoneyException(NOTHING_LEFT)
        offered = self._writing if file else specs_of(self._run.plan.registry, commands)
        role = self.role.prefix.removeprefix(f"You are a {self.role.profile}, named {self.role.name}, ")
        described = Task(self.role.name, f"{self.role.profile}; {role}", (goal,), budget.limits.usd, file, model)
        try:
            self.worker.mailbox.apart = TOGETHER
            if self.now.beside:  # the work of other roles in this round is hidden from it
                number, changes = self.now.number, any(spec.risk != "read" for spec in offered)
                copy = self._copies.open(f"{number}.{self.key}") if changes else None
                others = re.compile(rf"{re.escape(self.worker.log.run)}:(?!{self.key}\.)\d+\.{number}\..*")
                self.worker.mailbox.apart = Apart(copy, lambda place: others.fullmatch(place) is not None)
            origin = self.role.rc.memory.origin
            return self._run.pool.start(self.worker.mailbox, key, described, offered, budget, origin)
        except CommandError as error:
            budget.give_back()
            raise ModelError(f"{self.role} cannot work with commands: {error}") from None

    def _result(self, state: SubAgentState, status: str, reason: str) -> str:
        """Return the result of an agent of this role, in words. Add the origin of its reading to the role's memory."""
        files = f"\nFiles changed: {', '.join(state.changed)}." if state.changed else ""
        said = f"{state.said}{files}" if status == Status.FINISHED else f"This was not done ({status}): {reason}{files}"
        writer = self._writer
        wrote = state.done.get(writer.name, {}) if state.task.file and writer else {}
        if writer and (text := str(wrote.get(writer.parameters[1].name, ""))):
            problem = "" if status == Status.FINISHED else f"This is not right yet ({status}): {reason}"
            said = file_message(state, text, problem)
        if state.origin != Origin():
            noted = Message(said, self.role.profile, "commands", self.role)
            noted.origin = state.origin
            self.role.rc.memory.add(noted)
        return said


def file_message(state: SubAgentState, text: str, problem: str) -> str:
    """Return the file written by an agent, with the results of its checks, or the `problem` with it."""
    lines = [f"{state.task.file}:", in_block(text), problem]
    for number, goal in enumerate(state.task.goals):
        check, said = state.checked.get(number), "was not run."
        if check is not None:  # its output is left out if it may come from outside
            said = "passes." if check.met else "fails." if check.meta.untrusted else f"fails: {check.output}"
        lines += [f"Its check `{goal.check}` {said}"] * bool(goal.check)
    return "\n".join(filter(None, lines))


def published(message: Message) -> Published:
    """Return the event of a message."""
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

LEAVING = ("exit", "quit")
QUOTES = '"""'
_HOW = f"Your answer; an empty line ends it, or {QUOTES} if it began with {QUOTES}. `exit` saves and ends."


def ask_person(console: Console, role: Role, prompt: str, unanswered: str) -> str:
    """Show the prompt and return the person's answer, given here or in another terminal.

    If nobody answers in time and the run is to continue, return `unanswered`.

    Raises:
        StopRun: the person ends the work, or nobody is there.
        KeyboardInterrupt: Ctrl-C.
    """
    console.discard_typeahead()
    console.say(prompt)
    asked = Question(text=prompt)
    while True:
        try:
            text = console.ask(f"You are {role.name}, {role.profile}. {_HOW}", question=asked, goes_on=_goes_on)
        except EOFError:
            reason = f"{role} is a person, and nobody is there to answer; run it in a terminal, or pipe the answer in."
            raise StopRun(Outcome(Status.UNANSWERED, reason)) from None
        except TimeoutError:
            return unanswered
        if text.strip().lower() in LEAVING:
            raise StopRun(Outcome(Status.STOPPED, f"Ended by {role}."))
        text = text.strip()
        if answer := text.removeprefix(QUOTES).removesuffix(QUOTES).strip() if text.startswith(QUOTES) else text:
            return answer


def _goes_on(text: str) -> bool:
    begun = text.strip()
    if begun.startswith(QUOTES):
        return not begun.removeprefix(QUOTES).endswith(QUOTES)
    return begun.lower() not in ("", *LEAVING) and bool(text.rpartition("\n")[2].strip())
