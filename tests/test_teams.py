"""Teams made by a Python program, under MetaGPT's names; the endpoint alone is scripted."""

from __future__ import annotations

import asyncio
import json
import re
import threading
from pathlib import Path
from typing import Any

import pytest
from server import Reply, Request, ScriptedServer

from autoagent.core.commands import Call
from autoagent.core.errors import SettingsError, StopRun
from autoagent.core.events import Acted, Answered, Checked, Event, Published, Returned, RoundEnded, Thought
from autoagent.core.model import Thoughts, Usage
from autoagent.core.task import Goal, Task
from autoagent.log.reader import read, run_ids
from autoagent.subagents.subagent_state import SubAgentState
from autoagent.teams.member import file_message
from autoagent.teams.metagpt import (
    Action,
    Context,
    Environment,
    Memory,
    Message,
    NoMoneyException,
    Role,
    RoleReactMode,
    Team,
    UserRequirement,
    any_to_str,
    logger,
)
from autoagent.teams.plan import tasks_in


def log_of(place: Path) -> list[Any]:
    state = place / ".autoagent"
    return list(read(state, run_ids(state)[0]))


# The tutorial's teams, but for their import lines ----------------------------------------------------------------


def parse_code(rsp: str) -> str:
    match = re.search(r"```python(.*)```", rsp, re.DOTALL)
    return match.group(1).strip() if match else rsp


class SimpleWriteCode(Action):
    PROMPT_TEMPLATE: str = """
    Write a python function that can {instruction}.
    Return ```python your_code_here ``` with NO other text,
    your code:
    """
    name: str = "SimpleWriteCode"

    async def run(self, instruction: str) -> str:
        prompt = self.PROMPT_TEMPLATE.format(instruction=instruction)
        rsp = await self._aask(prompt)
        return parse_code(rsp)


class SimpleRunCode(Action):
    name: str = "SimpleRunCode"

    async def run(self, code_text: str) -> str:
        names: dict[str, Any] = {}
        exec(code_text, names)
        result = str(names["total"]([1, 2, 3]))
        logger.info(f"{result=}")
        return result


class RunnableCoder(Role):
    name: str = "Alice"
    profile: str = "RunnableCoder"

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.set_actions([SimpleWriteCode, SimpleRunCode])
        self._set_react_mode(react_mode=RoleReactMode.BY_ORDER.value)

    async def _act(self) -> Message:
        logger.info(f"{self._setting}: to do {self.rc.todo}({self.rc.todo.name})")
        todo = self.rc.todo
        msg = self.get_memories(k=1)[0]
        result = await todo.run(msg.content)
        msg = Message(content=result, role=self.profile, cause_by=type(todo))
        self.rc.memory.add(msg)
        return msg


class SimpleCoder(Role):
    name: str = "Alice"
    profile: str = "SimpleCoder"

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._watch([UserRequirement])
        self.set_actions([SimpleWriteCode])

    async def _act(self) -> Message:
        todo = self.rc.todo
        code = await todo.run(self.rc.news[0].content)
        return Message(content=code, role=self.profile, cause_by=type(todo))


class SimpleWriteTest(Action):
    PROMPT_TEMPLATE: str = "Context: {context}\nWrite {k} unit tests using pytest for the given function."

    async def run(self, context: Any, k: int = 3) -> str:
        return parse_code(await self._aask(self.PROMPT_TEMPLATE.format(context=context, k=k)))


class SimpleTester(Role):
    name: str = "Bob"
    profile: str = "SimpleTester"

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.set_actions([SimpleWriteTest])
        self._watch([SimpleWriteCode, SimpleWriteReview])

    async def _act(self) -> Message:
        todo = self.rc.todo
        context = self.get_memories()
        code_text = await todo.run(context, k=5)
        return Message(content=code_text, role=self.profile, cause_by=type(todo))


class SimpleWriteReview(Action):
    PROMPT_TEMPLATE: str = "Context: {context}\nReview the test cases and provide one critical comment."
    name: str = "SimpleWriteReview"

    async def run(self, context: Any) -> str:
        return await self._aask(self.PROMPT_TEMPLATE.format(context=context))


class SimpleReviewer(Role):
    name: str = "Charlie"
    profile: str = "SimpleReviewer"

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.set_actions([SimpleWriteReview])
        self._watch([SimpleWriteTest])


def test_the_tutorials_single_role_runs(place: Path, server: ScriptedServer) -> None:
    server.add(Reply("```python\ndef total(numbers):\n    return sum(numbers)\n```"))
    role = RunnableCoder(context=Context())
    result = asyncio.run(role.run("write a function that calculates the sum of a list"))
    assert (result.content, result.role, result.cause_by) == ("6", "RunnableCoder", any_to_str(SimpleRunCode))
    assert "can write a function that calculates the sum of a list." in server.requests[0].prompt
    assert [message.content[:5] for message in role.get_memories()] == ["write", "def t", "6"]


def test_the_tutorials_three_roles_run(place: Path, server: ScriptedServer, capsys: pytest.CaptureFixture[str]) -> None:
    server.add(*(Reply(text) for text in ("```python\ncode\n```", "tests", "One comment.", "better tests")))

    async def main(idea: str, investment: float = 3.0, n_round: int = 4) -> Memory:
        team = Team()
        team.hire([SimpleCoder(), SimpleTester(), SimpleReviewer(is_human=False)])
        team.invest(investment=investment)
        team.run_project(idea)
        return await team.run(n_round=n_round)

    history = asyncio.run(main("write a function that calculates the product of a list"))
    written = [(message.role, message.content) for message in history.get()]
    assert written == [
        ("Human", "write a function that calculates the product of a list"),
        ("SimpleCoder", "code"), ("SimpleTester", "tests"), ("SimpleReviewer", "One comment."),
        ("SimpleTester", "better tests"),
    ]  # fmt: skip
    assert "Write 5 unit tests" in server.requests[1].prompt
    assert "Bob (SimpleTester), SimpleWriteTest:\n  | better tests" in capsys.readouterr().out
    assert [event.agent for event in log_of(place) if isinstance(event, Answered)] == ["1", "2", "3", "2"]


def test_an_environment_runs_round_by_round(place: Path, server: ScriptedServer) -> None:
    server._every = lambda request: Reply(f"word {len(server.requests)}")
    env = Environment()
    env.add_roles([SimpleCoder(), SimpleTester(), SimpleReviewer()])
    env.publish_message(Message("write a function", "Human", UserRequirement))

    async def main() -> None:
        for _ in range(2):
            await env.run()

    asyncio.run(main())
    assert [message.sent_from for message in env.history] == ["", "Alice", "Bob"]


class SpeakAloud(Action):
    async def run(self, context: str, name: str, opponent_name: str) -> str:
        return await self._aask(f"You are {name}, against {opponent_name}. So far:\n{context}\nYour turn:")


class Debater(Role):
    name: str = ""
    profile: str = ""
    opponent_name: str = ""

    def __init__(self, **data: Any) -> None:
        super().__init__(**data)
        self.set_actions([SpeakAloud])
        self._watch([UserRequirement, SpeakAloud])

    async def _observe(self) -> int:
        await super()._observe()
        self.rc.news = [msg for msg in self.rc.news if msg.send_to == {self.name}]
        return len(self.rc.news)

    async def _act(self) -> Message:
        todo = self.rc.todo
        context = "\n".join(f"{msg.sent_from}: {msg.content}" for msg in self.get_memories())
        rsp = await todo.run(context=context, name=self.name, opponent_name=self.opponent_name)
        msg = Message(
            content=rsp, role=self.profile, cause_by=type(todo), sent_from=self.name, send_to=self.opponent_name
        )
        self.rc.memory.add(msg)
        return msg


def test_a_debate_by_address_goes_to_and_fro(place: Path, server: ScriptedServer) -> None:
    server._every = lambda request: Reply(f"word {len(server.requests)}")
    one = Debater(name="Ann", profile="Speaker", opponent_name="Ben")
    two = Debater(name="Ben", profile="Speaker", opponent_name="Ann")
    team = Team(roles=[one, two])
    team.run_project("Tea or coffee", send_to="Ann")
    asyncio.run(team.run(n_round=3))
    assert [(message.sent_from, message.content) for message in team.env.history][1:] == [
        ("Ann", "word 1"), ("Ben", "word 2"), ("Ann", "word 3"),
    ]  # fmt: skip
    assert "Tea or coffee" not in server.requests[1].prompt, "that was not sent to Ben"
    assert "So far:\nAnn: word 1\nYour turn:" in server.requests[1].prompt
    asyncio.run(team.run(n_round=1))
    assert team.env.history.get()[-1].content == "word 4", "a further run goes on"


# What a program may do besides -----------------------------------------------------------------------------------


class Notes(Action):
    """A Python function: asks no model."""

    def run(self, messages: list[Message]) -> str:
        return f"{len(messages)} read"


class Keeper(Role):
    """Keeps private notes, asks, publishes on the way."""

    name: str = "Keeper"
    profile: str = "Keeper"

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.set_actions([Notes])
        self.watch([UserRequirement, Notes])

    async def _act(self) -> Message:
        assert self.rc.env is not None
        self.rc.memory.add(Message("note to myself", cause_by=Notes))
        first = await self.llm.aask("first?")
        message = Message(f"on the way: {first}", cause_by=Action, sent_from=self)
        await asyncio.to_thread(self.rc.env.publish_message, message)  # the thread belongs to the same turn
        second = await self.llm.aask("second?")
        return self.said(f"{first} {second} {len(self.get_memories())}", self.actions[0])


def keepers() -> Team:
    team = Team(roles=[Keeper(name="A"), Keeper(name="B")])
    team.run_project("Keep")
    return team


@pytest.mark.parametrize("every", [4, pytest.param(1, marks=pytest.mark.slow)])
def test_a_run_that_was_cut_anywhere_goes_on_as_if_it_was_not(place: Path, server: ScriptedServer, every: int) -> None:
    """Cut after lines of its log: the same messages, nothing asked that was answered, nothing paid twice."""

    def answer(request: Request) -> Reply:
        return Reply(f"<{len(request.prompt)}>")

    server._every = answer
    asyncio.run(keepers().run(2))
    state = place / ".autoagent"
    [run] = run_ids(state)
    log = state / "runs" / run / "events.jsonl"
    whole = log.read_bytes().splitlines(keepends=True)
    events = list(read(state, run))
    expected = [(e.agent, e.id, e.content) for e in sorted_by_role(events)]
    assert sum(content.startswith("on the way: ") for _, _, content in expected) == 4
    asked = len(server.requests)
    assert asked == 8
    for cut in range(1, len(whole) - 1, every):
        log.write_bytes(b"".join(whole[:cut]))
        answered = sum(isinstance(event, Answered) for event in events[:cut])
        before = len(server.requests)
        asyncio.run(keepers().run(2, resume=run))
        now = list(read(state, run))
        assert [(e.agent, e.id, e.content) for e in sorted_by_role(now)] == expected, cut
        assert len(server.requests) - before == asked - answered, cut
        assert sum(isinstance(event, Acted) for event in now) == 4
        assert sum(event.usage.prompt for event in now if isinstance(event, Answered)) == 100 * asked


def sorted_by_role(events: list[Any]) -> list[Published]:
    """The messages, those of each role in order: roles of one round write at the same time."""
    return sorted((e for e in events if isinstance(e, Published)), key=lambda e: (e.step, e.agent))


def test_money_ends_a_program_by_an_exception(place: Path, server: ScriptedServer) -> None:
    team = keepers()
    team.invest(0)
    with pytest.raises(NoMoneyException, match="Insufficient funds: 0") as caught:
        asyncio.run(team.run())
    assert isinstance(caught.value, Exception)  # a signal's is none
    assert not server.requests


def test_what_a_function_raises_reaches_the_program_and_the_run_is_saved(place: Path, server: ScriptedServer) -> None:
    class Broken(Action):
        def run(self, messages: list[Message]) -> str:
            raise ZeroDivisionError("by zero")

    team = Team(roles=[Role("A", "Breaker", actions=[Broken]), Role("B", "Counter", actions=[Notes])])
    with pytest.raises(ZeroDivisionError):
        asyncio.run(team.run(idea="Break"))
    ended = log_of(place)[-1]
    assert (ended.status, ended.reason) == ("failed", "ZeroDivisionError: by zero")
    assert not any(isinstance(event, RoundEnded) for event in log_of(place))


def test_a_file_that_nothing_can_write_is_refused_in_one_line(
    place: Path, server: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Saves(Action):
        async def run(self, messages: list[Message]) -> str:
            return await self.write_file("Write it", file="a.txt")

    server._every = lambda request: Reply("```\na\n```")
    monkeypatch.setenv("DISABLED_COMMAND_CATEGORIES", "files")
    role = Role("A", "Writer", actions=[Saves])
    with pytest.raises(StopRun, match=r"^A\(Writer\), Saves: no file can be written here; .* says why\.$") as caught:
        asyncio.run(Team(roles=[role]).run(idea="Write"))
    assert isinstance(caught.value, Exception)
    assert not server.requests and not (place / "autoagent_workspace" / "a.txt").exists()


def test_what_is_said_of_a_check_is_what_it_came_to() -> None:
    """It was not run where the end came before it; what it said of an earlier text is not said of this one."""
    state = SubAgentState("1.1.1", Task("A", "Writer", (Goal("Write", "true"),), file="a.txt"))
    call = Call("1", "save", {"name": "a.txt", "whole": "a\n"})

    def message(*events: Event) -> str:
        for event in events:
            state.add(event)
        return file_message(state, state.newest_args["save"]["whole"], "Not right").splitlines()[-1]

    wrote = (
        Thought(thoughts=Thoughts(), call=call, text="", usage=Usage()),
        Returned(call_id="1", ok=True, text="", data={"changed": ["a.txt"]}),
    )
    assert message(*wrote) == "Its check `true` was not run."
    assert message(Checked(goal=0, met=False, output="exit status 1.")) == "Its check `true` fails: exit status 1."
    assert message(*wrote) == "Its check `true` was not run."
    assert message(Checked(goal=0, met=False, output="x", data={"untrusted": "u"})) == "Its check `true` fails."
    assert message(Checked(goal=0, met=True)) == "Its check `true` passes."


class Asks(Action):
    """Asks several things at once."""

    async def run(self, messages: list[Message]) -> str:
        return " ".join(await asyncio.gather(*(self._aask(f"What is {letter}?") for letter in "abc")))


def test_questions_of_a_turn_are_asked_side_by_side(place: Path, server: ScriptedServer) -> None:
    together = threading.Barrier(3, timeout=60)

    def answer(request: Request) -> Reply:
        together.wait()
        return Reply(request.prompt[-2])

    server._every = answer
    role = Role("A", "Asker", actions=[Asks])
    assert asyncio.run(role.run("Ask")).content == "a b c"
    events = log_of(place)
    assert {event.text for event in events if isinstance(event, Answered)} == {"a", "b", "c"}
    [run] = run_ids(place / ".autoagent")
    log = place / ".autoagent" / "runs" / run / "events.jsonl"
    lines = log.read_bytes().splitlines(keepends=True)
    cut = next(number for number, event in enumerate(events) if isinstance(event, Answered)) + 1
    log.write_bytes(b"".join(lines[:cut]))
    server._every = lambda request: Reply(request.prompt[-2])
    before = len(server.requests)
    team = Team("A", roles=[Role("A", "Asker", actions=[Asks])])
    team.run_project("Ask")
    asyncio.run(team.run(1, resume=run))
    assert team.env.history.get()[-1].content == "a b c"
    assert len(server.requests) - before == 2, "what was answered is not asked again"


def test_an_output_may_be_a_pydantic_class(place: Path, server: ScriptedServer) -> None:
    pydantic = pytest.importorskip("pydantic")
    city = pydantic.create_model("City", name=(str, ...), people=(int, ...))
    server.add(Reply('{"name": "Bern"}'), Reply('{"name": "Bern", "people": 134000}'))
    role = Role("A", "Asker", actions=[Action("Tell", instruction="Name a city", output=city)])
    said = asyncio.run(role.run("Go"))
    assert (said.instruct_content.people, json.loads(said.content)["name"]) == (134000, "Bern")


# Roles, messages, memories ---------------------------------------------------------------------------------------


def test_who_a_role_is() -> None:
    role = Role("Ann", "Coder", "write code", "no loops", actions=[SimpleWriteCode, SimpleWriteReview])
    assert role.prefix == "You are a Coder, named Ann, your goal is write code, and the constraint is no loops"
    assert Role("Ann", "Coder", desc="You are the one.").prefix == "You are the one."
    assert role.states == ["0. SimpleWriteCode", "1. SimpleWriteReview"]
    assert role.rc.watch == {"UserRequirement"}
    with pytest.raises(SettingsError, match=r"'slow' is unknown; use react, by_order or plan_and_act"):
        role.set_react_mode("slow")
    with pytest.raises(SettingsError, match=r"Role has no 'gaol'; it has name, profile, goal"):
        Role("Ann", gaol="x")


def test_news_is_what_is_watched_for_and_not_known() -> None:
    role = Role("Ann", "Coder", watch=[SimpleWriteTest])
    other = Role("Ben", "Coder")
    env = Environment(roles=[role, other])
    test, code = Message("t", cause_by=SimpleWriteTest), Message("c", cause_by=SimpleWriteCode)
    secret = Message("s", cause_by=SimpleWriteCode, send_to=other)
    named = Message("n", cause_by=SimpleWriteCode, send_to={"Ann"})
    for message in (test, code, test, secret, named):
        env.publish_message(message)
    assert env.history.get() == [test, code, secret, named], "a duplicate is ignored"
    assert role.read(env.history.get())
    assert role.rc.news == [test, named]
    assert role.get_memories() == [test, named]
    role.read(env.history.get())
    assert role.rc.news == [test, named], "until it acts, and each once"
    assert env.role_names() == ["Ann", "Ben"]
    assert env.get_role("Coder") is role, "two of one profile live"


def test_what_a_memory_can_do() -> None:
    memory, other = Memory(), Message("other", role="Tester", cause_by=Notes, id="7")
    messages = [Message(text, cause_by=cause) for text, cause in (("one", Notes), ("two", Action), ("three", Notes))]
    memory.add_batch([*messages, messages[0]])
    assert memory.get() == messages
    assert memory.get(2) == messages[1:]
    assert memory.get_by_action(Notes) == [messages[0], messages[2]]
    assert memory.get_by_actions({Action}) == [messages[1]]
    assert memory.find_news([*messages, other]) == [other]
    assert memory.find_news([messages[0]], k=1) == [messages[0]]
    assert memory.try_remember("tw") == [messages[1]]
    memory.add(other)
    memory.add(Message("the same", id="7"))
    assert (memory.count(), memory.get_by_role("Tester")) == (4, [other])
    memory.delete(messages[1])
    assert memory.delete_newest() == other
    assert memory.get() == [messages[0], messages[2]]
    memory.clear()
    assert len(memory) == 0
    memory.undo()
    assert set(map(id, memory)) == set()


def test_a_new_plan_of_finished_tasks_alone_is_asked_for_anew() -> None:
    answer = '[{"task_id": "1", "instruction": "Mend it"}, {"task_id": "3", "instruction": "Test it"}]'
    assert [task.task_id for task in tasks_in(answer, {"1"})] == ["3"]
    with pytest.raises(ValueError, match="a new task needs a new task_id"):
        tasks_in(answer, {"1", "3"})
