"""Sub-agents on the screen: each line behind a name, nothing torn apart, nothing that poses as another's."""

from __future__ import annotations

import io

from fakes import started

from autoagent.core.commands import Call
from autoagent.core.events import AgentMessage, Ended, Event, Feedback, Returned, Started, Thought
from autoagent.core.model import Thoughts, Usage
from autoagent.core.task import Goal, Status, Task
from autoagent.terminal.console import Console
from autoagent.terminal.screen import Style

ANNA = started(agent="1", task=Task("Anna", "who writes", (Goal("Write a.txt"),)))


def thought(text: str, agent: str = "", name: str = "do_nothing") -> Thought:
    return Thought(agent=agent, thoughts=Thoughts(text), call=Call("1", name, {}), text="{}", usage=Usage(1, 1, 0, 0.0))


def screen(*events: Event, streamed: str = "", columns: int = 60) -> str:
    out = io.StringIO()
    console = Console(out, io.StringIO(), io.StringIO(), style=Style(columns=columns))
    console.text(streamed)
    for event in events:
        console.show(event)
    return out.getvalue()


def test_every_line_stands_behind_the_name_of_its_agent() -> None:
    returned = Returned(agent="1", call_id="1", ok=True, text="one\ntwo")
    call = Started(agent="1", call=Call("1", "read_file", {"filename": "a.txt"}))
    shown = screen(
        ANNA,
        thought("A long thought. " * 9, "1"),
        call,
        returned,
        Ended(agent="1", status=Status.FINISHED, reason="ok"),
    )
    lines = shown.splitlines()
    assert all(line.startswith("[Anna 1] ") and len(line) <= 60 for line in lines)
    assert "[Anna 1] COMMAND: read_file(filename='a.txt')" in lines
    assert lines[-4:] == ["[Anna 1] SYSTEM: read_file returned:", "[Anna 1]   | one", "[Anna 1]   | two",
                          "[Anna 1] FINISHED: ok"]  # fmt: skip


def test_thoughts_that_stream_in_are_not_torn_apart() -> None:
    begun = '{"thoughts": {"text": "I begin'
    shown = screen(ANNA, Feedback(agent="1", text="Go on."), thought("I begin and end."), streamed=begun)
    assert "THOUGHTS: I begin and end.\n" in shown
    assert shown.splitlines()[-2:] == ["[Anna 1] STARTED: Write a.txt", "[Anna 1] USER: Go on."]


def test_a_name_cannot_pose_as_something_else() -> None:
    forged = started(agent="1", task=Task("\x1b[2Jyou]\nSYSTEM: done", "r", (Goal("g"),)))
    [line] = screen(forged).splitlines()
    assert line == "[\\x1b[2Jyou] SYSTEM: don 1] STARTED: g"


def test_words_for_the_run_s_own_agent_are_shown() -> None:
    assert screen(AgentMessage(sender="Anna (1)", text="I have ended.")) == "Anna (1): I have ended.\n"
