"""Sub-agents with their real rooms around them: threads, log, guard, workspace; only models and person are scripted."""

from __future__ import annotations

import re
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from fakes import Allow, ScriptedModel, Silent, nobody_asked, say

from autoagent.agent.budget import Budget, RunLimits
from autoagent.agent.state import Policy, Tools
from autoagent.agent.stats import RunStats
from autoagent.commands.context import Context
from autoagent.commands.registry import Registry
from autoagent.commands.selection import all_commands, all_specs
from autoagent.core.commands import Proposal, Verdict
from autoagent.core.errors import CommandError, SetupError
from autoagent.core.events import AgentMessage, Event, Feedback, Prompted, Resumed, Returned, RunStarted, Thought
from autoagent.core.memory import Origin
from autoagent.core.model import Message, Usage
from autoagent.core.protocols import Authorizer, Inbox, Listener, Recorder
from autoagent.core.task import Goal, Task
from autoagent.log.event_log import EventLog
from autoagent.loop import Agent
from autoagent.memory.none import NoMemory
from autoagent.prompt import system_prompt
from autoagent.safety.exfiltration_guard import ExfiltrationGuard
from autoagent.safety.tainted_files import TaintedFiles
from autoagent.subagents.pool import Leader, LeaderAuthorizer, Oversight, WorkerPool
from autoagent.subagents.worker import Mailbox, RunningWorker
from autoagent.terminal.signals import Interrupts
from autoagent.text.tokens import counter
from autoagent.workspace.gate import Workspace

PATIENCE = 30  # seconds, on a machine that does much else
TASK = Task("Boss", "who has others do the work", (Goal("Get it done"),))
COUNT = counter("scripted")
DONE = (say("task_complete", reason="all done"),)
ANNA = say("start_agent", name="Anna", task="writing", prompt="Write a.txt")
WAIT = say("list_agents", wait=PATIENCE)

Script = Any


def registry() -> Registry:
    return Registry(all_commands())


def after(event: threading.Event, *replies: str) -> Iterator[str]:
    """These replies, the first one but after the event."""
    assert event.wait(PATIENCE)
    yield from replies


def told_by(messages: Sequence[Message]) -> str:
    return "\n".join(message.content for message in messages)


@dataclass
class Bench:
    """Builds a run whose agents answer with `scripts`, by key; '' is the run's own."""

    folder: Path
    scripts: dict[str, Script] = field(default_factory=dict)
    limits: RunLimits = field(default_factory=RunLimits)
    at_once: int = 5
    depth: int = 2
    asks: Callable[[Proposal], bool] = lambda proposal: False
    authorizer: Callable[[], Authorizer] = Allow
    usage: Usage = field(default_factory=Usage)
    origins: dict[str, Origin] = field(default_factory=dict)
    patience: float = PATIENCE
    listener: Silent = field(default_factory=Silent)
    shown: list[Event] = field(default_factory=list)
    models: dict[str, ScriptedModel] = field(default_factory=dict)
    orders: dict[str, RunningWorker] = field(default_factory=dict)
    guards: dict[str, ExfiltrationGuard] = field(default_factory=dict)
    put_away: list[str] = field(default_factory=list)
    interrupts: Interrupts = field(default_factory=Interrupts)
    run: str = ""

    @property
    def workspace(self) -> Path:
        return self.folder / "workspace"

    def go(self, *scripts: Script, resume: bool = False) -> list[Event]:
        """The run from its start, or from where it was left, to its end: the events of its own agent.

        `scripts` are that of its own agent and of those that it starts, in this order.
        """
        self.scripts |= zip(("", "1", "2", "3"), scripts, strict=False)
        state = self.folder / "state"
        opened = EventLog.open(state, self.run) if resume else EventLog.create(state)
        with self.interrupts.installed(), opened as log:
            self.run = log.run
            budget = Budget(self.limits)
            with WorkerPool(
                self.build,
                Leader(log, budget, registry().specs, TASK.name),
                Oversight(
                    authorizer=self.authorizer, asks=self.asks, listener=self.listener, show=self.shown.append,
                    interruptible=self.allowed, uninterruptible=self.interrupts.deferred,
                ),
                at_once=self.at_once, depth=self.depth, patience=self.patience,
            ) as pool:  # fmt: skip
                agent = self._agent(
                    "", TASK, registry(), budget, log, pool.mailbox, LeaderAuthorizer(self.authorizer(), pool),
                    Silent(), resume=resume, interruptible=self.interrupts.allowed,
                )  # fmt: skip
                events = []
                for event in agent.run():
                    pool.show(event)
                    events.append(event)
        return events

    def allowed(self) -> AbstractContextManager[None]:
        """Where the pool lets signals through."""
        return self.interrupts.allowed()

    @contextmanager
    def build(self, order: RunningWorker) -> Iterator[Callable[[], Iterator[Event]]]:
        self.orders[order.key] = order
        if isinstance(self.scripts.get(order.key), Exception):
            raise self.scripts[order.key]
        offered = registry().only(order.commands, "it is not handed on")
        try:
            agent = self._agent(
                order.key, order.task, offered, order.budget, order.log, order.mailbox, order.authorizer,
                order.listener, interruptible=order.interruptible, origin=order.task_origin,
            )  # fmt: skip
            order.origin = lambda: self.guards[order.key].origin
            yield agent.run
        finally:
            self.put_away.append(order.key)

    def _agent(
        self, key: str, task: Task, offered: Registry, budget: Budget, log: Recorder, mailbox: Mailbox,
        authorizer: Authorizer, listener: Listener, *, resume: bool = False, origin: Origin | None = None,
        **options: Any,
    ) -> Agent:  # fmt: skip
        model = ScriptedModel(self.scripts[key], report=lambda messages: self.usage)
        self.models[key] = model
        system = system_prompt(task, offered.specs, model.asking, model.style)
        start = (Resumed if resume else RunStarted)(
            version="test", task=task, model=model.name, window=model.window, reply_tokens=512, system=system,
            system_tokens=COUNT(system) + 4, asking=model.asking, commands=tuple(s.name for s in offered.specs),
            workspace=str(self.workspace),
        )  # fmt: skip
        workspace = Workspace(self.workspace)
        tainted = TaintedFiles(self.folder / "state" / "tainted.jsonl", self.workspace)
        self.guards[key] = guard = ExfiltrationGuard(tainted, all_specs(), origin=self.origins.get(key, origin))
        context = Context(workspace, NoMemory(), nobody_asked, log.run, agents=mailbox, origin=lambda: guard.origin)
        policy = Policy(authorizer, guard, budget, verifier=model, **options)
        tools = Tools(offered, context, inbox=Inbox(mailbox.take, mailbox.close))
        return Agent(start, model, tools, policy, log, listener=listener, key=key)

    def log(self, key: str | None = None) -> list[Event]:
        """The events on disk, of one agent or of all."""
        from autoagent.log.reader import read

        return [event for event in read(self.folder / "state", self.run) if key is None or event.agent == key]

    def results(self, key: str = "") -> list[Returned]:
        return [event for event in self.log(key) if isinstance(event, Returned)]


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    yield Bench(tmp_path)
    assert not [thread.name for thread in threading.enumerate() if thread.name.startswith("agent ")]


def test_its_prompt_says_whose_it_is_and_what_it_is_to_do(bench: Bench) -> None:
    """A prompt that looks like a check is none."""
    anna = say("start_agent", name="Anna", task="writing", prompt="Write a.txt :: rm -rf x")
    bench.go([anna, WAIT, *DONE], [*DONE])
    system = bench.models["1"].prompts[0][0].content
    assert "\n\nYou are Anna, who works for Boss: writing\n" in system
    assert "GOALS:\n1. Write a.txt :: rm -rf x" in system
    assert bench.orders["1"].task.goals == (Goal("Write a.txt :: rm -rf x", None),)
    assert '"ask_user"' not in system, "the user is the business of the run's own agent"
    assert '"start_agent"' in system


def test_it_may_be_handed_fewer_commands_and_never_more_than_its_starter_has(bench: Bench) -> None:
    narrow = say("start_agent", name="A", task="t", prompt="p", commands=["list_files", "start_agent", "list_agents"])
    deeper = say("start_agent", name="B", task="t", prompt="p", commands=["write_to_file"])
    bench.scripts = {"1.1": [*DONE]}
    bench.go([narrow, WAIT, *DONE], [deeper, say("start_agent", name="B", task="t", prompt="p"), WAIT, *DONE])
    assert set(bench.orders["1"].commands) == {"list_files", "task_complete", "start_agent", "list_agents"}
    assert "You have no command 'write_to_file' to hand on" in bench.results("1")[0].text
    assert set(bench.orders["1.1"].commands) == {"list_files", "task_complete"}, "the deepest ones start no others"


def test_depth_is_a_limit_of_code_whatever_is_offered(bench: Bench) -> None:
    bench.depth = 1
    bench.go([ANNA, WAIT, *DONE], [*DONE])
    with pytest.raises(CommandError, match="at most 1 deep"):
        bench.orders["1"].mailbox.start("B", "t", "p")


def test_no_more_run_at_once_than_may(bench: Bench) -> None:
    bench.at_once = 1
    gate = threading.Event()

    def anna(messages: Sequence[Message]) -> str:
        assert gate.wait(PATIENCE)
        return DONE[0]

    def boss() -> Iterator[str]:
        yield ANNA
        yield say("start_agent", name="Bea", task="t", prompt="p")
        gate.set()
        yield WAIT
        yield say("start_agent", name="Cleo", task="t", prompt="p")
        yield WAIT
        yield from DONE

    bench.go(boss(), anna, None, [*DONE])
    refused = [result for result in bench.results() if not result.ok and "agents are running" in result.text]
    assert len(refused) == 1
    assert "AUTOAGENT_AGENTS" in refused[0].text
    assert "Cleo has the key 3" in "".join(result.text for result in bench.results())


def test_with_an_agent_end_those_it_has_started(bench: Bench) -> None:
    deepest = threading.Event()

    def endless(messages: Sequence[Message]) -> str:
        deepest.set()
        time.sleep(0.01)
        return say("do_nothing")

    boss = chain([ANNA], after(deepest, say("delete_agent", key="1"), *DONE))
    bench.scripts = {"1.1": endless}
    bench.go(boss, [ANNA, WAIT, WAIT])
    assert re.match(r"1\. Anna: ended \(stopped\) after \d steps?: Ended by Boss\.", bench.results()[1].text)
    assert [bench.log(key)[-1].type for key in ("1", "1.1")] == ["ended", "ended"]
    assert sorted(bench.put_away) == ["1", "1.1"]


def test_what_does_not_let_go_is_left_and_records_nothing_more(bench: Bench) -> None:
    bench.patience = 0.1
    gate, asked = threading.Event(), threading.Event()

    def hanging(messages: Sequence[Message]) -> str:
        asked.set()
        gate.wait(PATIENCE)
        return say("write_to_file", filename="late.txt", text="x")

    bench.go(chain([ANNA], after(asked, say("delete_agent", key="1"), *DONE)), hanging)
    gate.set()
    for thread in threading.enumerate():
        if thread.name == "agent 1":
            thread.join(PATIENCE)
    assert "did not stop in time" in bench.log("1")[-1].reason
    assert not (bench.workspace / "late.txt").exists()


def test_what_an_agent_waits_for_is_let_go_when_it_is_to_end(bench: Bench) -> None:
    gate, asked = threading.Event(), threading.Event()

    def hanging(messages: Sequence[Message]) -> str:
        bench.orders["1"].when_stopped(gate.set)
        asked.set()
        assert gate.wait(PATIENCE)
        return say("do_nothing")

    began = time.monotonic()
    bench.go(chain([ANNA], after(asked, *DONE)), hanging)
    assert time.monotonic() - began < PATIENCE / 2
    assert bench.log("1")[-1].status == "stopped"


def talk(bench: Bench, *messages: str) -> None:
    """Anna goes on once she has been sent the first message, and is sent the others when she has ended."""
    told, asked = threading.Event(), threading.Event()
    first, *others = (say("message_agent", key="1", message=message) for message in messages)

    def anna() -> Iterator[str]:
        asked.set()
        yield from after(told, say("do_nothing"), *DONE)

    def boss() -> Iterator[str]:
        yield ANNA
        yield from after(asked, first)
        told.set()
        yield from (WAIT, *others, *DONE)

    bench.go(boss(), anna())


def test_a_message_is_read_before_the_next_step_and_is_no_word_of_the_user(bench: Bench) -> None:
    talk(bench, "Write it in French.", "Too late.")
    assert "From Boss, who started you: Write it in French." in told_by(bench.models["1"].prompts[1])
    assert not [event for event in bench.log("1") if isinstance(event, Feedback)]
    too_late = bench.results()[3]
    assert not too_late.ok
    assert too_late.text == "Anna (1) has ended (finished); start another agent."


def test_what_a_sub_agent_says_is_as_untrusted_as_what_it_has_read(bench: Bench) -> None:
    bench.origins = {"1": Origin("private, https://evil.example/", trusted=False)}
    events = bench.go([ANNA, WAIT, say("list_agents"), *DONE], [*DONE])
    news = next(event for event in events if isinstance(event, AgentMessage))
    labels = {"untrusted": "https://evil.example/", "private": True}
    assert labels.items() <= news.data.items()
    assert labels.items() <= bench.results()[2].data.items()
    heard = told_by(bench.models[""].prompts[-1])
    assert "From Anna (1):" in heard and 'from "https://evil.example/">\nI have ended' in heard, "between marks"
    assert bench.guards[""].origin == bench.origins["1"]


def test_what_is_said_to_a_sub_agent_carries_on_what_its_starter_has_read(bench: Bench) -> None:
    bench.origins = {"": Origin("https://evil.example/", trusted=False)}
    talk(bench, "Go on.")
    assert bench.orders["1"].task_origin == bench.guards["1"].origin == bench.origins[""]
    heard = next(event for event in bench.log("1") if isinstance(event, AgentMessage))
    assert heard.data == {"untrusted": "https://evil.example/"}


# Questions ---------------------------------------------------------------------------------------------------------


class Person(Allow):
    """Answers in the thread that asks, and keeps which that was."""

    def __init__(self, answers: list[Verdict], threads: list[str]) -> None:
        super().__init__()
        self._answers, self._threads = answers, threads

    def decide(self, proposal: Proposal) -> Verdict:
        if not proposal.agent:
            return Verdict(True, "user")
        self._threads.append(threading.current_thread().name)
        return self._answers.pop(0)


def test_its_questions_are_asked_in_the_thread_of_the_run_and_name_it(bench: Bench) -> None:
    threads: list[str] = []
    answers = [Verdict(False, "user", "Use b.txt."), *[Verdict(True, "user")] * 3]
    bench.asks = lambda proposal: True
    bench.authorizer = lambda: Person(answers, threads)
    writes = (say("write_to_file", filename=name, text="x") for name in ("a.txt", "b.txt"))
    bench.go([ANNA, WAIT, *DONE], [*writes, *DONE])
    assert [path.name for path in bench.workspace.iterdir()] == ["b.txt"]
    assert {proposal.agent for proposal in bench.listener.proposals} == {"Anna (1)"}
    assert set(threads) == {threading.current_thread().name}
    assert "Human feedback: Use b.txt." in told_by(bench.models["1"].prompts[1])


def test_one_that_waits_for_an_answer_is_ended_with_the_run(bench: Bench) -> None:
    thinking, proposed = threading.Event(), threading.Event()

    def asks(proposal: Proposal) -> bool:
        proposed.set()
        return True

    def boss() -> Iterator[str]:
        yield ANNA
        yield say("list_files")
        thinking.set()
        assert proposed.wait(PATIENCE)
        raise SetupError("the key was withdrawn")

    def anna(messages: Sequence[Message]) -> str:
        assert thinking.wait(PATIENCE)
        return say("do_nothing")

    bench.asks = asks
    events = bench.go(boss(), anna)
    assert events[-1].status == "setup"
    assert bench.log("1")[-1].status == "stopped"
    assert not bench.results("1")


def test_what_was_authorized_in_advance_is_forfeited_for_all_at_ctrl_c(bench: Bench) -> None:
    made: list[Allow] = []

    def authorizer() -> Allow:
        made.append(Allow())
        return made[-1]

    bench.authorizer = authorizer
    pool = WorkerPool(
        bench.build,
        Leader(EventLog.create(bench.folder / "state"), Budget(RunLimits()), registry().specs, "Boss"),
        Oversight(authorizer=authorizer, asks=bench.asks, listener=Silent(), show=bench.shown.append),
        at_once=1, depth=1,
    )  # fmt: skip
    bench.scripts = {"1": [*DONE]}
    with pool:
        pool.mailbox.start("Anna", "t", "p")
        before = len(made)
        LeaderAuthorizer(Allow(), pool).interrupted()
    assert len(made) == before + 1, "an authorizer that has been told nothing takes its place"


# Money and failures ------------------------------------------------------------------------------------------------


def test_a_share_is_kept_back_while_it_runs_and_given_back_at_its_end() -> None:
    budget = Budget(RunLimits(usd=1.0, tokens=1000, commands=9))
    share = budget.share(0.25, 0.0)
    assert share is not None
    assert share.limits == RunLimits(usd=0.25, tokens=250, commands=2)
    assert budget.describe_remaining(0.0) == "You have left: 7 of 9 commands, $0.750 of $1, 750 tokens."
    share.add(Thought(thoughts=None, call=None, text="", usage=Usage(60, 40, 0, 0.1)))  # type: ignore[arg-type]
    assert budget.describe_remaining(0.0) == "You have left: 7 of 9 commands, $0.750 of $1, 750 tokens."
    share.give_back()
    assert budget.describe_remaining(0.0) == "You have left: 9 of 9 commands, $0.900 of $1, 900 tokens."
    assert (budget.tokens, budget.usd) == (100, 0.1)


def test_a_budget_without_ceilings_gives_shares_without_and_one_that_is_used_up_gives_none() -> None:
    free = Budget(RunLimits()).share(0.25, 0.0)
    assert free is not None
    assert free.limits == RunLimits()
    used = Budget(RunLimits(usd=1.0))
    used.add(Thought(thoughts=None, call=None, text="", usage=Usage(0, 0, 0, 1.0)))  # type: ignore[arg-type]
    assert used.share(0.25, 0.0) is None
    assert Budget(RunLimits(commands=1)).share(0.25, 0.0) is None, "the last command is one's own"


def test_the_ceiling_of_the_run_holds_over_all_and_a_share_over_its_agent(bench: Bench) -> None:
    bench.limits = RunLimits(tokens=40_000)
    bench.usage = Usage(1000, 0, 0, 0.0)
    many = [say("write_to_file", filename=f"{n}.txt", text="x") for n in range(40)]
    events = bench.go([ANNA, WAIT, *many], many)
    assert bench.log("1")[-1].status == "budget"
    assert events[-1].status == "budget"
    stats = RunStats()
    for event in bench.log():
        stats.add(event)
    assert 20_000 < stats.tokens <= 40_000
    spent = [event.usage for event in bench.log() if isinstance(event, Thought)]
    assert stats.usage.prompt == sum(usage.prompt for usage in spent), "each call counts once"
    assert stats.step == max(event.step for event in bench.log(""))


def test_one_for_which_there_is_no_thread_takes_no_place(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left(thread: threading.Thread) -> None:
        monkeypatch.undo()
        raise RuntimeError("can't start new thread")

    def boss() -> Iterator[str]:
        monkeypatch.setattr(threading.Thread, "start", none_left)
        yield ANNA
        yield ANNA
        yield WAIT
        yield from DONE

    bench.at_once = 1
    bench.go(boss(), None, [*DONE])
    assert bench.results()[0].text == "The agent cannot be started: can't start new thread."
    assert bench.results()[1].ok


def test_one_that_cannot_be_built_never_was(bench: Bench) -> None:
    bench.go([ANNA, say("list_agents"), *DONE], SetupError("there is no key"))
    assert bench.results()[0].text == "The agent cannot be started: there is no key"
    assert bench.results()[1].text == "You have started no agent."
    assert not bench.log("1")


class InterruptedBench(Bench):
    """Ctrl-C comes while a sub-agent is built, which takes until it is told to end."""

    @contextmanager
    def build(self, order: RunningWorker) -> Iterator[Callable[[], Iterator[Event]]]:
        stopped = threading.Event()
        order.when_stopped(stopped.set)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        stopped.wait(PATIENCE)
        with super().build(order) as built:
            yield built


class InterruptedOnceBuiltBench(Bench):
    """Ctrl-C comes when a sub-agent has just been built and begins to run."""

    @contextmanager
    def allowed(self) -> Iterator[None]:
        with self.interrupts.allowed():
            yield
        signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize(
    ("kind", "listed", "end"),
    [(InterruptedBench, "You have started no agent.", ("stopped", "Its start was interrupted.")),
     (InterruptedOnceBuiltBench, r"1\. Anna.*", ("finished", "all done"))],
)  # fmt: skip
def test_one_whose_start_is_interrupted_does_not_run_on_unknown(
    tmp_path: Path, kind: type[Bench], listed: str, end: tuple[str, str]
) -> None:
    bench = kind(tmp_path)
    bench.go([ANNA, WAIT, *DONE], [*DONE])
    assert bench.results()[0].text == "Interrupted by the user; it may have run in part."
    assert re.fullmatch(listed, bench.results()[1].text, re.DOTALL)
    assert (bench.log("1")[-1].status, bench.log("1")[-1].reason) == end


@pytest.mark.parametrize("fault", [ZeroDivisionError, SystemExit])
def test_a_fault_in_one_agent_ends_that_one_alone(bench: Bench, fault: type[BaseException]) -> None:
    def broken(messages: Sequence[Message]) -> str:
        raise fault("a fault of ours")

    events = bench.go([ANNA, WAIT, *DONE], broken)
    assert events[-1].status == "finished"
    assert (bench.log("1")[-1].status, bench.log("1")[-1].reason) == ("failed", f"{fault.__name__}: a fault of ours")


def test_an_unknown_key_is_told_together_with_those_there_are(bench: Bench) -> None:
    bench.go([say("delete_agent", key="7"), ANNA, say("delete_agent", key="7"), *DONE], [*DONE])
    assert bench.results()[0].text == "There is no agent '7'; you have started none."
    assert bench.results()[2].text == "There is no agent '7'; the keys are 1."


# After a crash -----------------------------------------------------------------------------------------------------


def test_a_resumed_run_lists_those_that_ended_with_the_program_and_counts_what_they_spent(bench: Bench) -> None:
    bench.usage = Usage(100, 0, 0, 0.25)
    bench.go([ANNA, WAIT, *DONE], [say("do_nothing", "Half of it is there."), *DONE])
    path = bench.folder / "state" / "runs" / bench.run / "events.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    second = next(n for n, event in enumerate(bench.log()) if event.agent == "1" and event.step == 2)
    path.write_text("".join(lines[:second]))  # as a crash leaves it
    spent = sum(event.usage.cost or 0.0 for event in bench.log() if isinstance(event, Thought))
    bench.limits = RunLimits(usd=100.0)
    bench.scripts = {"": [say("list_agents"), say("start_agent", name="Bea", task="t", prompt="p"), WAIT, *DONE],
                     "2": [*DONE]}  # fmt: skip
    events = bench.go(resume=True)
    said = next(r.text for r in bench.results() if r.text.startswith("1. Anna"))
    assert "ended (interrupted) after 1 step: It ended when the program did. It said last: Half of it is there." in said
    told = next(event for event in events if isinstance(event, AgentMessage))
    assert (told.sender, told.text) == ("Anna (1)", "I was cut off: I ended when the program did.")
    assert bench.log("1")[-1].status == "interrupted"
    assert "Bea has the key 2" in "".join(result.text for result in bench.results())
    first = next(m for m in bench.models[""].prompts[0] if "You have left" in m.content)
    assert f"${100 - spent:.3f} of $100" in first.content
    stats = RunStats()
    for event in bench.log():
        stats.add(event)
    total = sum(event.usage.cost or 0.0 for event in bench.log() if isinstance(event, Thought))
    assert stats.usage.cost == total
    assert any(isinstance(event, Prompted) for event in events)
