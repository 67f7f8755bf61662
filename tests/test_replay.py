"""A recording answers in order and says when it has ended; the demo is a recording whose commands really run."""

from __future__ import annotations

from pathlib import Path

import pytest
from fakes import Heard, started

from autoagent.commands import files, system
from autoagent.commands.context import Context
from autoagent.commands.registry import Registry
from autoagent.core.commands import Call, CommandSpec
from autoagent.core.errors import ModelError
from autoagent.core.events import Ended, Event, Rejected, Thought
from autoagent.core.model import Completion, Message, Thoughts, Usage
from autoagent.core.protocols import Model
from autoagent.core.task import Status
from autoagent.memory.none import NoMemory
from autoagent.models.demo import demo_model, demo_task
from autoagent.models.replay import ReplayModel
from autoagent.reply.parser import parse
from autoagent.workspace.gate import Workspace

COMMANDS = [CommandSpec("do_nothing", "Do nothing", "system", "read")]
PROMPT = [Message("user", "Go on.")]


class Listening(Heard):
    """Counts the pieces it hears."""

    pieces = 0

    def text(self, delta: str) -> None:
        super().text(delta)
        self.pieces += 1


def said(model: Model, listener: Listening | None = None) -> Completion:
    return model.complete(PROMPT, commands=COMMANDS, max_tokens=100, listener=listener)


def test_replies_come_in_order_and_free_of_charge() -> None:
    cut = Completion("half", Usage(), truncated=True)
    model: Model = ReplayModel(["one", cut], name="tape")
    assert (model.name, model.asking) == ("tape", "text")
    assert model.price is not None
    assert model.price.prompt == model.price.completion == 0
    first = said(model)
    assert (first.text, first.truncated, first.usage.cost) == ("one", False, 0)
    assert said(model) is cut


def test_a_recording_says_that_it_has_ended() -> None:
    model = ReplayModel(["one"], name="tape")
    said(model)
    with pytest.raises(ModelError, match="'tape' ended after 1 replies"):
        said(model)


def test_a_reply_streams_in_pieces() -> None:
    listener = Listening()
    text = "a reply of some length, with ümlauts and 漢字" * 3
    assert said(ReplayModel([text]), listener).text == text
    assert listener.streamed == text
    assert listener.pieces > 5
    assert listener.waits == listener.works == [], "a recording is there at once"


def test_a_question_that_is_no_step_uses_up_no_reply() -> None:
    model = ReplayModel(["one"])
    assert model.complete(PROMPT, max_tokens=100).text == ""
    assert said(model).text == "one"


def test_a_runs_events_become_its_replies_usable_or_not() -> None:
    thought = Thought(thoughts=Thoughts(), call=Call("1", "do_nothing", {}), text="first", usage=Usage(9, 9, 0, 1.0))
    start = started(task=demo_task(), window=4096, asking="tools", commands=("do_nothing",))
    ended = Ended(status=Status.STOPPED, reason="enough")
    events: list[Event] = [start, thought, Rejected(problem="no JSON", text="second", usage=Usage(1, 1)), ended]
    model = ReplayModel.from_events(events)
    assert (model.window, model.name) == (4096, "replay")
    assert [said(model).text, said(model).text] == ["first", "second"]
    with pytest.raises(ModelError, match="'replay' ended after 2"):
        said(model)


def test_the_demo_really_writes_reads_lists_and_finishes(tmp_path: Path) -> None:
    registry = Registry([*files.COMMANDS, *system.COMMANDS])
    context = Context(Workspace(tmp_path), NoMemory(), ask=lambda question, timeout: "")
    model = demo_model()
    replies = [parse(said(model), registry.check, str(step)) for step in range(4)]
    results = [registry.execute(reply.call, context) for reply in replies]
    names = [reply.call.name for reply in replies]
    assert names == ["write_to_file", "read_file", "list_files", "task_complete"]
    assert all(result.ok for result in results)
    haiku = (tmp_path / "haiku.txt").read_text(encoding="utf-8")
    assert len(haiku.splitlines()) == 3
    assert haiku.splitlines()[0] in results[1].text
    assert "haiku.txt" in results[2].text
    assert all(reply.thoughts.text and reply.thoughts.plan and reply.thoughts.speak for reply in replies)
    with pytest.raises(ModelError, match="'demo' ended"):
        said(model)


def test_the_demos_task_is_what_it_does_and_each_model_starts_anew() -> None:
    assert "haiku.txt" in demo_task().goals[0].text
    assert len(demo_task().goals) <= 5
    assert said(demo_model()).text == said(demo_model()).text
