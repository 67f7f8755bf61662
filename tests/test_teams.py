"""Teams made by a Python program, under MetaGPT's names; the endpoint alone is scripted."""

from __future__ import annotations

import asyncio
import io
import json
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import pytest
from pydantic import BaseModel
from server import Reply, Request, ScriptedServer, command

from autoagent.commands import registry
from autoagent.commands.context import Context as CommandContext
from autoagent.core.commands import Call, Effects
from autoagent.core.errors import CommandError, ModelError, SettingsError, StateError, StopRun
from autoagent.core.events import Acted, Answered, Checked, Event, Published, Returned, RoundEnded, Thought
from autoagent.core.model import Thoughts, Usage
from autoagent.core.task import Goal, Task
from autoagent.log.reader import read, run_ids
from autoagent.subagents.subagent_state import SubAgentState
from autoagent.teams.member import file_message
from autoagent.teams.metagpt import (
    LLM,
    MESSAGE_ROUTE_TO_ALL,
    MESSAGE_ROUTE_TO_NONE,
    Action,
    ActionNode,
    ActionOutput,
    BossRequirement,
    Config,
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


def words(server: ScriptedServer) -> None:
    server._every = lambda request: Reply(f"word {len(server.requests)}")


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


# The forms that other examples of MetaGPT's have, old and new -------------------------------------------------------


class Speak(Action):
    """As version 0.4 wrote it: name, context and model in this order."""

    def __init__(self, name: str = "Speak", context: Any = None, llm: LLM | None = None) -> None:
        super().__init__(name, context, llm)

    async def run(self, heard: str) -> str:
        return await self._aask(f"You heard: {heard}")


class Speaker(Role):
    def __init__(self, name: str, profile: str, opponent: str, **kwargs: Any) -> None:
        super().__init__(name, profile, **kwargs)
        self._init_actions([Speak])
        self._watch([BossRequirement, Speak])
        self.opponent = opponent

    async def _observe(self) -> int:
        await super()._observe()
        self._rc.news = [message for message in self._rc.news if message.send_to == self.name]
        return len(self._rc.news)

    async def _act(self) -> Message:
        todo = self._rc.todo
        said = await todo.run("; ".join(message.content for message in self.get_memories()))
        message = Message(said, self.profile, type(todo), self.name, send_to=self.opponent)
        self._rc.memory.add(message)
        return message


class SpeakAloud(Action):
    async def run(self, context: str, name: str, opponent_name: str) -> str:
        return await self._aask(f"{name}, against {opponent_name}: {context}")


class Debater(Role):
    """As the tutorial of version 0.8 writes it: all by name."""

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
        context = "; ".join(f"{msg.sent_from}: {msg.content}" for msg in self.get_memories())
        rsp = await todo.run(context=context, name=self.name, opponent_name=self.opponent_name)
        msg = Message(
            content=rsp, role=self.profile, cause_by=type(todo), sent_from=self.name, send_to=self.opponent_name
        )
        self.rc.memory.add(msg)
        return msg


@pytest.mark.parametrize(
    ("speaker", "heard"),
    [(lambda name, other: Speaker(name, "Speaker", other),
      ["You heard: Tea or coffee", "You heard: word 1", "You heard: Tea or coffee; word 1; word 2"]),
     (lambda name, other: Debater(name=name, profile="Speaker", opponent_name=other),
      ["Ann, against Ben: : Tea or coffee", "Ben, against Ann: Ann: word 1",
       "Ann, against Ben: : Tea or coffee; Ann: word 1; Ben: word 2"])],
)  # fmt: skip
def test_a_debate_by_address_goes_to_and_fro(
    place: Path, server: ScriptedServer, speaker: Callable[[str, str], Role], heard: list[str]
) -> None:
    words(server)
    team = Team()
    team.hire([speaker("Ann", "Ben"), speaker("Ben", "Ann")])
    team.start_project("Tea or coffee", send_to="Ann")
    asyncio.run(team.run(n_round=3))
    assert [(message.sent_from, message.content) for message in team.env.history][1:] == [
        ("Ann", "word 1"), ("Ben", "word 2"), ("Ann", "word 3"),
    ]  # fmt: skip
    assert [request.body["messages"][-1]["content"] for request in server.requests] == heard
    asyncio.run(team.run(n_round=1))
    assert team.env.history.get()[-1].content == "word 4", "a further run goes on"


def test_a_debate_without_a_class(place: Path, server: ScriptedServer) -> None:
    words(server)
    small, large = Config.default(), Config.default()
    small.llm.model = "m-small"
    one = Action(config=small, name="AnnSays", instruction="Say it in your own words.")
    two = Action(config=large, name="BenSays", instruction="Say it in your own words.")
    ann = Role(name="Ann", profile="Left", goal="win", actions=[one], watch=[two])
    ben = Role(name="Ben", profile="Right", goal="win", actions=[two], watch=[one])
    team = Team(investment=10.0, env=Environment(desc="a radio studio"), roles=[ann, ben])
    asyncio.run(team.run(idea="Tea or coffee", send_to="Ann", n_round=2))
    first, second = (request.prompt for request in server.requests)
    assert "named Ann, your goal is win. You are in a radio studio, with Ben." in first and "Tea or coffee" in first
    assert [request.body["model"] for request in server.requests] == ["m-small", "test-model"]
    assert "Tea or coffee" not in second and "Ann (Left): word 1" in second


class Opens(Action):
    async def run(self, *_: Any) -> str:
        return await self._aask("Open")


class Closes(Action):
    async def run(self, *_: Any) -> str:
        return await self._aask("Close")


class Closer(Role):
    async def _act(self) -> Message:
        text = await self.rc.todo.run(self.rc.history)
        return Message(text, self.profile, self.rc.todo, send_to=MESSAGE_ROUTE_TO_NONE)


def test_an_environment_runs_until_it_is_idle(place: Path, server: ScriptedServer) -> None:
    words(server)
    env = Environment()
    last = Role("Last", watch=[Closes], actions=[Opens])
    env.add_roles([Role("Ann", actions=[Opens]), Closer("Ben", watch=[Opens], actions=[Closes]), last])
    assert env.is_idle
    env.publish_message(Message(content="begin", send_to=MESSAGE_ROUTE_TO_ALL), peekable=False)

    async def main() -> None:
        while not env.is_idle:
            await env.run()

    asyncio.run(main())
    assert env.round == 2, "one with each call"
    assert repr(env.history.get()) == "[user: begin, Ann: word 1, Ben: word 2]"
    assert [len(env.history.index[f"{__name__}.{name}"]) for name in ("Opens", "Closes", "Other")] == [1, 1, 0]
    assert last.rc.memory.get() == [], "what is for nobody wakes nobody"


def test_a_message_can_be_put_before_one_role(place: Path, server: ScriptedServer) -> None:
    words(server)
    role, other = Role("Ann", actions=[Opens]), Role("Ben", actions=[Opens])
    env = Environment(roles=[role, other])
    role.put_message(Message("for you"))
    assert (role.is_idle, other.is_idle) == (False, True)
    asyncio.run(env.run())
    assert [message.sent_from for message in env.history] == ["", "Ann"]


def test_what_a_message_names_can_be_set_later() -> None:
    message = Message("x", sent_from=Role("Ann"))
    message.send_to, message.cause_by = "Ben", Opens
    assert (message.sent_from, message.send_to, message.cause_by) == ("Ann", {"Ben"}, f"{__name__}.Opens")


def test_a_model_without_a_role(place: Path, server: ScriptedServer) -> None:
    words(server)
    llm = LLM()

    async def main() -> list[Any]:
        chat = [{"role": "system", "content": "Be brief"}, {"role": "user", "content": "count"}]
        return [
            await llm.aask("ping?", system_msgs=["Say pong."], stream=True),
            await llm.aask_batch(["hi", "and on"]),
            (await llm.acompletion(chat)).choices[0].message.content,
            await llm.acompletion_text(chat, stream=True),
        ]

    assert asyncio.run(main()) == ["word 1", "word 2\nword 3", "word 4", "word 5"]
    sent = [[(each["role"], each["content"]) for each in request.body["messages"]] for request in server.requests]
    assert sent[0] == [("system", "Say pong."), ("user", "ping?")]
    assert sent[2] == [("user", "user: hi\n\nassistant: word 2\n\nuser: and on")]
    assert sent[4] == [("system", "Be brief"), ("user", "count")]
    assert len(run_ids(place / ".autoagent")) == 5, "each question is a run, with its log and its budget"


class Chapter(BaseModel):
    title: str
    pages: int = 1


class FillsNode(Action):
    """FillsNode by a model of its own, which is the role's while that is at work."""

    async def run(self, *_: Any) -> ActionNode:
        return await ActionNode.from_pydantic(Chapter).fill(req="Write a chapter", llm=LLM())


def test_a_node_is_filled_with_a_pydantic_class(place: Path, server: ScriptedServer) -> None:
    server.add(Reply("A chapter!"), Reply('```json\n{"title": "One", "pages": 2}\n```'))
    team = Team(roles=[Role("Ann", actions=[FillsNode])])
    history = asyncio.run(team.run(1, "Write"))
    assert history.get()[-1].instruct_content == Chapter(title="One", pages=2)
    assert json.loads(history.get()[-1].content) == {"title": "One", "pages": 2}
    assert '"title"' in server.requests[0].prompt and "does not fit" in server.requests[1].prompt
    assert len(run_ids(place / ".autoagent")) == 1
    server.add(*[Reply('{"pages": "many"}')] * 3)
    with pytest.raises(ModelError, match="Chapter: the model gave no answer that fits in 3 tries"):
        asyncio.run(ActionNode.from_pydantic(Chapter).fill(req="Write", llm=LLM()))


class Gives(Action):
    def run(self, *_: Any) -> ActionOutput:
        return ActionOutput("a chapter", Chapter(title="One"))


class Takes(Action):
    def run(self, messages: list[Message]) -> Message:
        found = messages[-1].instruct_content
        return Message(found.title, cause_by=Takes, instruct_content={"pages": [found.pages]}, metadata={"by": "Ben"})


def pair() -> Team:
    return Team(roles=[Role("Ann", actions=[Gives]), Role("Ben", watch=[Gives], actions=[Takes])])


def test_what_a_message_holds_besides_its_text_survives_a_resume(place: Path, server: ScriptedServer) -> None:
    asyncio.run(pair().run(1, "Go"))
    [run] = run_ids(place / ".autoagent")
    Chapter.__qualname__ = "Renamed"
    try:
        with pytest.raises(StateError, match=r"holds a test_teams:Chapter, which is not defined: define it before"):
            asyncio.run(pair().run(1, resume=run))
    finally:
        Chapter.__qualname__ = "Chapter"
    asyncio.run(pair().run(1, resume=run))
    history = asyncio.run(pair().run(1, resume=run)).get()
    assert [message.instruct_content for message in history] == [None, Chapter(title="One"), {"pages": [1]}]
    assert (history[2].content, history[2].metadata) == ("One", {"by": "Ben"})


@dataclass
class Plain:
    x: int


@pytest.mark.parametrize("value", [Plain(1), {1, 2}, (1, 2), {1: "x"}, float("nan")])
def test_what_a_resumed_run_could_not_have_is_refused_at_once(value: Any) -> None:
    with pytest.raises(SettingsError, match=rf"instruct_content holds a {type(value).__name__} that a resumed run"):
        Message("x", instruct_content=value)
    with pytest.raises(SettingsError, match="metadata holds a dict that a resumed run"):
        Message("x", metadata={"x": value})


def total(first: int, *, second: int = 1) -> str:
    """Add two numbers."""
    return f"{first} and {second} are {first + second}"


@registry.command("shout", "Shout a word", risk="read", effects=Effects())
def shout(context: CommandContext, word: Annotated[str, "what to shout"]) -> str:
    raise CommandError(f"too late for {word}")


def test_plain_functions_are_tools_of_a_role(
    place: Path, server: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that declares no effects is asked about at each call; what it raises, the model reads."""
    done = command("task_complete", reason="3")
    server.add(command("total", first=1, second=2), command("shout", word="Hey"), done)
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n" * 3))
    role = Role("Ann", actions=[Action("Sum", instruction="Sum 1 and 2")], tools=(total, shout, "read_file"))
    history = asyncio.run(Team(roles=[role]).run(1, "Sum"))
    assert history.get()[-1].content == "3"
    offered = {tool["function"]["name"]: tool["function"] for tool in server.requests[0].body["tools"]}
    asked = offered["total"]["parameters"]
    assert (asked["properties"]["first"], asked["properties"]["second"]) == ({"type": "integer"}, {"type": "integer"})
    assert "first" in asked["required"] and "second" not in asked["required"]
    assert offered["total"]["description"] == "Add two numbers" and "read_file" in offered
    assert "1 and 2 are 3" in server.requests[1].prompt and "too late for Hey" in server.requests[2].prompt


def test_tools_that_no_model_can_use_are_refused(place: Path, server: ScriptedServer) -> None:
    def untyped(x) -> str:  # type: ignore[no-untyped-def]
        return str(x)

    def read_file(filename: str) -> str:
        return filename

    for tool, problem in (
        (untyped, "The tool untyped has an argument that a model cannot"),
        (read_file, "'read_file' has"),
    ):
        team = Team(roles=[Role("Ann", actions=[Action("Sum", instruction="Sum", commands=[tool])])])
        with pytest.raises(SettingsError, match=problem):
            asyncio.run(team.run(1, "Sum"))


PROGRAM = """\
import asyncio
from autoagent.teams.metagpt import Action, Message, Role, Team


class Write(Action):
    async def run(self, messages):
        return await self._aask("Write it")


class Judge(Action):
    async def run(self, messages):
        return await self._aask(f"Judge {messages[-1].content}")


team = Team()
team.hire([Role("Ann", actions=[Write]), Role("Ben", "Judge", watch=[Write], actions=[Judge], is_human=True)])
team.run_project("a poem")
print(asyncio.run(team.run(n_round=2)).get())
"""


@pytest.mark.slow
def test_a_person_takes_a_role_of_a_program(place: Path, server: ScriptedServer) -> None:
    server.add(Reply("A poem."))
    (place / "program.py").write_text(PROGRAM)
    started = [sys.executable, "program.py"]
    done = subprocess.run(started, cwd=place, input="It will do.\n\n", capture_output=True, text=True, check=False)
    assert "Judge A poem." in done.stdout, done.stderr
    assert "[Human: a poem, Ann: A poem., Judge: It will do.]" in done.stdout
    assert UserRequirement is BossRequirement


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
        return self.as_message(f"{first} {second} {len(self.get_memories())}", self.actions[0])


def keepers() -> Team:
    team = Team(roles=[Keeper(name="A"), Keeper(name="B")])
    team.run_project("Keep")
    return team


@pytest.mark.parametrize("every", [4, pytest.param(1, marks=pytest.mark.slow)])
def test_a_run_that_was_cut_anywhere_goes_on_as_if_it_was_not(place: Path, server: ScriptedServer, every: int) -> None:
    """Cut after lines of its log: the same messages, nothing asked that was answered, nothing paid twice."""

    server._every = lambda request: Reply(f"<{len(request.prompt)}>")
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


def test_questions_of_a_turn_are_asked_side_by_side(
    place: Path, server: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SMART_LLM", "gpt-4o-mini")  # which has a price
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
    asyncio.run(team.run(1, resume=run))
    costs = [event.usage.cost or 0.0 for event in log_of(place) if isinstance(event, Answered)]
    assert team.spent == pytest.approx(sum(costs)) and all(costs), "what it had spent before counts once"


def test_an_output_may_be_a_pydantic_class(place: Path, server: ScriptedServer) -> None:
    server.add(Reply('{"pages": 2}'), Reply('{"title": "One", "pages": 2}'))
    role = Role("A", "Asker", actions=[Action("Tell", instruction="Name a chapter", output=Chapter)])
    said = asyncio.run(role.run("Go"))
    assert (said.instruct_content.pages, json.loads(said.content)["title"]) == (2, "One")


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
