"""Lines of a log that were damaged, or written by a stranger: what is wrong is named, and nothing else suffers."""

from __future__ import annotations

import copy
import json
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from fuzzing import MANY, perhaps_spoilt
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_messages import EXAMPLES

from autoagent.agent.stats import RunStats
from autoagent.core.codec import LATEST_TIME, event_from_line, event_to_dict
from autoagent.core.commands import Call
from autoagent.core.errors import StateError
from autoagent.core.events import Checked, Event, Feedback, Forked, Prompted, Snapshot, Started
from autoagent.log.event_log import EventLog
from autoagent.log.reader import read

HUGE = 10**400
ODD: list[Any] = [
    None, True, -1, 0, 1.5, 2**63, HUGE, 1e300, -1e300, float("nan"), float("inf"), "", "x", "\ud800", "\x1b[2J",
    [], {}, [None], {"a": 1}, [[[]]], {"text": 1}, [{"id": "x"}],
]  # fmt: skip
LINES = [
    event_to_dict(event)
    for event in (
        *EXAMPLES,
        Prompted(sha256="0" * 64, tokens=10, messages=2, at=1.5, estimate=0.01),
        Checked(goal=0, met=True, output="ok"),
        Forked(origin="r", at=3),
        Snapshot(tree="t"),
    )
]


def paths(value: Any, here: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place in a JSON value."""
    if here:
        yield here
    items = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield from paths(item, (*here, key))


def put(line: dict[str, Any], path: tuple[Any, ...], value: Any) -> dict[str, Any]:
    changed: dict[str, Any] = copy.deepcopy(line)
    place: Any = changed
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return changed


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A line of a log with one to three values in it replaced, and perhaps cut, or with bytes that are no text."""
    line = draw(st.sampled_from(LINES))
    for _ in range(draw(st.integers(1, 3))):
        line = put(line, draw(st.sampled_from(list(paths(line)))), draw(st.sampled_from(ODD) | anything))
    return draw(perhaps_spoilt(json.dumps(line).encode()))


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


def assert_read_or_refused(data: bytes) -> None:
    """What is read can be written again, folded and shown; what cannot is a ValueError that says why."""
    try:
        event = event_from_line(data)
    except ValueError as error:
        assert str(error)
        return
    assert isinstance(event, Event)
    json.dumps(event_to_dict(event), allow_nan=True)
    stats = RunStats()
    stats.add(event)


@given(damaged())
@settings(max_examples=300, deadline=None)
def test_a_damaged_line_is_read_or_refused(data: bytes) -> None:
    assert_read_or_refused(data)


@pytest.mark.slow
@given(damaged())
@settings(max_examples=MANY, deadline=None, suppress_health_check=list(HealthCheck))
def test_many_damaged_lines_are_read_or_refused(data: bytes) -> None:
    assert_read_or_refused(data)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("t",), 1e300), (("t",), -1), (("t",), HUGE), (("t",), float("nan")), (("step",), -1), (("step",), HUGE),
        (("step",), True), (("usage", "prompt"), HUGE), (("usage", "cost"), float("inf")), (("usage", "prompt"), "1"),
        (("call", "args"), []), (("call",), None), (("thoughts", "text"), 3), (("v",), "1"), (("v",), HUGE),
        (("type",), []), (("seq",), 1.0), (("agent",), "\u202e"), (("agent",), "\x1b[2J"), (("run",), "../x"),
    ],
)  # fmt: skip
def test_a_value_that_no_event_has_is_named(path: tuple[str, ...], value: object) -> None:
    thought = next(line for line in LINES if line["type"] == "thought")
    with pytest.raises(ValueError, match=r"event"):
        event_from_line(json.dumps(put(thought, path, value)).encode())


def test_json_that_is_too_deep_is_no_event() -> None:
    call = json.dumps(event_to_dict(Feedback(text="DEEP"))).replace('"DEEP"', "[" * 100_000 + "]" * 100_000)
    with pytest.raises(ValueError, match="event"):
        event_from_line(call.encode())


def test_what_the_program_writes_it_reads_again(tmp_path: Path) -> None:
    """Lone surrogates come from names of files; numbers of any size from the arguments of a model."""
    with EventLog.create(tmp_path) as log:
        for text in ("\ud800", "\x00", "\u2028", "x" * 100_000):
            log.append(Feedback(text=text))
        run = log.run
        log.append(Started(call=Call("1", "f", {"n": HUGE, "\udfff": [1e308, {"a": None}]})))
    events = list(read(tmp_path, run))
    assert [event.text for event in events if isinstance(event, Feedback)][:3] == ["\ud800", "\x00", "\u2028"]
    assert isinstance(events[-1], Started)
    assert events[-1].call.args == {"n": HUGE, "\udfff": [1e308, {"a": None}]}


def test_the_latest_time_can_be_shown() -> None:
    assert time.localtime(LATEST_TIME).tm_year == 9999
    recalled = next(line for line in LINES if line["type"] == "recalled")
    with pytest.raises(ValueError, match="not a time"):
        event_from_line(json.dumps(put(recalled, ("memories", 0, "t"), 1e300)).encode())


def test_a_damaged_log_keeps_the_others_listed(tmp_path: Path) -> None:
    with EventLog.create(tmp_path) as good, EventLog.create(tmp_path) as bad:
        good.append(Feedback(text="good"))
        bad.append(Feedback(text="bad"))
    lines = bad.path.read_bytes().splitlines(keepends=True)
    bad.path.write_bytes(lines[0].replace(b'"t":', b'"t":1e300, "was":'))
    assert [event.text for event in read(tmp_path, good.run) if isinstance(event, Feedback)] == ["good"]
    with pytest.raises(StateError, match=r"events\.jsonl:1: .*not a time"):
        list(read(tmp_path, bad.run))
