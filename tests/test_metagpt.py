"""Programs in the forms that MetaGPT's examples have, old and new; the endpoint alone is scripted."""

from __future__ import annotations

import asyncio
import io
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import pytest
from pydantic import BaseModel
from server import Reply, ScriptedServer, command

from autoagent.commands.context import Context
from autoagent.commands.registry import command as command_made_of
from autoagent.core.commands import Effects
from autoagent.core.errors import CommandError, ModelError, SettingsError, StateError
from autoagent.log.reader import run_ids
from autoagent.teams.metagpt import (
    LLM,
    MESSAGE_ROUTE_TO_ALL,
    MESSAGE_ROUTE_TO_NONE,
    Action,
    ActionNode,
    ActionOutput,
    BossRequirement,
    Config,
    Environment,
    Message,
    Role,
    Team,
    UserRequirement,
)


def words(server: ScriptedServer) -> None:
    server._every = lambda request: Reply(f"word {len(server.requests)}")


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


def test_a_debate_as_version_0_4_wrote_it(place: Path, server: ScriptedServer) -> None:
    words(server)
    team = Team()
    team.hire([Speaker("Ann", "Left", "Ben"), Speaker("Ben", "Right", "Ann")])
    team.start_project("Tea or coffee", send_to="Ann")
    asyncio.run(team.run(n_round=3))
    assert [message.sent_from for message in team.env.history] == ["", "Ann", "Ben", "Ann"]
    assert [request.body["messages"][-1]["content"] for request in server.requests] == [
        "You heard: Tea or coffee", "You heard: word 1", "You heard: Tea or coffee; word 1; word 2",
    ]  # fmt: skip


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


class Asks(Action):
    """Asks by a model of its own, which is the role's while that is at work."""

    async def run(self, *_: Any) -> ActionNode:
        return await ActionNode.from_pydantic(Chapter).fill(req="Write a chapter", llm=LLM())


def test_a_node_is_filled_with_a_pydantic_class(place: Path, server: ScriptedServer) -> None:
    server.add(Reply("A chapter!"), Reply('```json\n{"title": "One", "pages": 2}\n```'))
    team = Team(roles=[Role("Ann", actions=[Asks])])
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
        with pytest.raises(StateError, match=r"holds a test_metagpt:Chapter, which is not defined: define it before"):
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


@command_made_of("shout", "Shout a word", risk="read", effects=Effects())
def shout(context: Context, word: Annotated[str, "what to shout"]) -> str:
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
