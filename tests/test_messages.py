"""Events: the log's lines say all that the records hold, and docs/events.md says all that the lines hold."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path

import pytest

from autoagent.core.codec import event_from_line, event_to_dict
from autoagent.core.commands import Call
from autoagent.core.events import EVENTS, Decided, Event, Recalled, Returned, RunStarted, Thought
from autoagent.core.memory import RetrievedMemory
from autoagent.core.model import Message, Thoughts, ToolCall, Usage, cached_by_message
from autoagent.core.task import Goal, Task

DOCS = (Path(__file__).parent.parent / "docs" / "events.md").read_text()

EXAMPLES: list[Event] = [
    RunStarted(
        run="r", seq=0, t=1.5, version="0.1", task=Task("N", "R", (Goal("a", "test -s a"), Goal("b")), 2.5),
        model="m", window=8192, reply_tokens=1024, system="You are", system_tokens=3, asking="schema",
        commands=("read_file",), workspace="/w", settings={"model": "m"},
    ),
    Recalled(step=1, query="q", memories=(RetrievedMemory(7, "text", 0.5, source="page", trusted=False),)),
    Thought(thoughts=Thoughts("ä"), call=Call("1", "x", {"n": [1, None]}), text="{}", usage=Usage(1, 2, 3, None)),
    Decided(call_id="1", allowed=True, by="user", args={"a": 1}),
    Returned(call_id="1", ok=False, text="\ud800", data={"changed": ["a.txt"]}, known=False),
]  # fmt: skip


@pytest.mark.parametrize("event", EXAMPLES, ids=lambda event: event.type)
def test_an_event_comes_back_from_its_line(event: Event) -> None:
    assert event_from_line(json.dumps(event_to_dict(event)).encode()) == event


def test_fields_of_a_later_minor_version_are_passed_over() -> None:
    line = {**event_to_dict(EXAMPLES[3]), "mood": "good"}
    assert event_from_line(json.dumps(line).encode()) == EXAMPLES[3]
    nested = event_to_dict(EXAMPLES[1])
    nested["memories"][0]["mood"] = "good"
    assert event_from_line(json.dumps(nested).encode()) == EXAMPLES[1]


@pytest.mark.parametrize(
    "line", [{}, {"v": 1, "type": "decided"}, {"v": 9, "type": "decided"}, {"type": "thought", "call": 3}]
)
def test_what_is_no_event_is_refused(line: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"event"):
        event_from_line(json.dumps(line).encode())


@pytest.mark.parametrize("kind", EVENTS.values(), ids=lambda kind: kind.type)
def test_the_docs_name_every_event_and_every_field(kind: type[Event]) -> None:
    row = next((line for line in DOCS.splitlines() if line.startswith(f"| `{kind.type}` |")), "")
    assert row, f"docs/events.md lacks {kind.type}"
    envelope = {field.name for field in dataclasses.fields(Event)}
    if "as `run_started`" in row:  # what it has of that stands there
        envelope |= {field.name for field in dataclasses.fields(RunStarted)}
    for field in dataclasses.fields(kind):
        assert field.name in envelope or re.search(rf"`{field.name}`", row), f"{kind.type}: {field.name}"


def test_a_goal_is_shown_with_its_check() -> None:
    assert str(Goal("Write report.md", "test -s report.md")) == "Write report.md :: test -s report.md"
    assert str(Goal("Implement add :: Int")) == "Implement add :: Int"


def test_a_function_of_a_message_is_cached_for_the_newest_of_them() -> None:
    made: list[Message] = []

    @cached_by_message
    def length(message: Message) -> int:
        made.append(message)
        return message.size

    prompt = [Message("user", f"{n:05}" * 100) for n in range(1000)]
    for _ in range(3):
        assert [length(message) for message in prompt] == [500] * 1000
    assert made == prompt
    long = [Message("assistant", "", (ToolCall("write_to_file", f"{n:05}" * 1000, f"{n}"),)) for n in range(1000)]
    assert [length(message) for message in long] == [5000] * 1000
    assert [length(message) for message in long[-200:]] == [5000] * 200
    assert len(made) == 2000, "of five million characters, the last million are there"
    assert length(prompt[0]) == 500
    assert made[-1] is prompt[0] and len(made) == 2001, "and what was not used for long is not"
