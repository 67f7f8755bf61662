"""When a run gets nowhere: each mix of steps without progress ends within a bound, and honest work is left alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import count
from random import Random
from typing import Any

import pytest
from fakes import started
from hypothesis import given, settings
from hypothesis import strategies as st

from autoagent.agent.progress import NUMBERS_PER_STEP, STEP_LIMITS, WAITS_PER_STEP, Standstill, strip_varying
from autoagent.core.commands import Call, CommandSpec, Risk
from autoagent.core.events import (
    AgentMessage,
    Checked,
    Decided,
    Event,
    Feedback,
    Prompted,
    Rejected,
    Resumed,
    Returned,
    Snapshot,
    Started,
    SystemNotice,
    Thought,
)
from autoagent.core.model import Thoughts, Usage

RISKS: dict[str, Risk] = {"read_file": "read", "edit_file": "write", "execute_shell": "run", "task_complete": "read"}
SPECS = {name: CommandSpec(name, name, "test", risk) for name, risk in RISKS.items()}

Step = list[Event]
ids = iter(range(10**9))


def did(
    name: str, text: str, /, *, ok: bool = True, data: dict[str, Any] | None = None, tree: str = "", **args: Any
) -> Step:
    """The events of a step whose command has run."""
    call = Call(str(next(ids)), name, args)
    thought = Thought(thoughts=Thoughts(), call=call, text="", usage=Usage())
    after = [Snapshot(tree=tree)] if tree else []
    return [thought, Started(call=call), *after, Returned(call_id=call.id, ok=ok, text=text, data=data or {})]


def shell(line: str, printed: str, status: int = 0, **more: Any) -> Step:
    data = {"exit": status, "failed": bool(status), **more.pop("data", {})}
    return did("execute_shell", f"Exit status {status}. It printed:\n{printed}", data=data, command_line=line, **more)


def edited(path: str, old: str, new: str, tree: str = "") -> Step:
    return did("edit_file", "Done.", data={"changed": [path]}, tree=tree, filename=path, old=old, new=new)


def refused(name: str = "edit_file", by: str = "loop guard", **args: Any) -> Step:
    call = Call(str(next(ids)), name, args)
    thought = Thought(thoughts=Thoughts(), call=call, text="", usage=Usage())
    return [thought, Decided(call_id=call.id, allowed=False, by=by, reason="no")]


def unusable(text: str = "I will.") -> Step:
    return [Rejected(problem="no JSON", text=text, usage=Usage())]


def put_off(reason: str, text: str = "Goal 1 is not met.") -> Step:
    return did("task_complete", text, ok=False, data={"put_off": True}, reason=reason)


def alarms(steps: Iterator[Step] | Sequence[Step], most: int = 10_000) -> list[tuple[int, str, str]]:
    """The alarms of a run: after which step, who is to hear, and what is said."""
    guard, heard = Standstill(SPECS), []
    for number, events in enumerate(steps, 1):
        assert number <= most, "no end"
        for event in events:
            guard.add(event)
        if guard.alarm:
            heard.append((number, guard.alarm, guard.message))
        if guard.alarm == "stop":
            break
    return heard


def endless(*makers: Callable[[int], Step]) -> Iterator[Step]:
    """Steps in turn, for ever."""
    return (makers[number % len(makers)](number) for number in count())


# What gets nowhere -----------------------------------------------------------------------------------------------

PYTEST = "FAILED test_a.py::test_b - assert 1 == 2\n1 failed, 3 passed in {:.2f}s"
NOWHERE: dict[str, tuple[tuple[Callable[[int], Step], ...], int]] = {  # and after how many steps it has ended
    "the same look": ((lambda n: did("read_file", "x", filename="a"),), 6),
    "a red pytest whose seconds vary": ((lambda n: shell("pytest -q", PYTEST.format(n / 7), 1),), 6),
    "a red pytest that leaves traces": (
        (lambda n: shell("pytest", PYTEST.format(n), 1, data={"changed": ["c.pyc"]}, tree=f"{n}"),), 21),
    "other arguments with the same failure": (
        (lambda n: shell(f"true {n}; echo 'Error: file not found'; exit 1", "Error: file not found", 1),), 6),
    "other names that are not there": (
        (lambda n: did("read_file", f"There is no file m-{n}.", ok=False, filename=f"m-{n}"),), 21),
    "a counter": ((lambda n: shell("./count", f"done {n} times"),), 1 + NUMBERS_PER_STEP * STEP_LIMITS[2]),
    "a barred repeat and an unusable reply in turn": (
        (lambda n: refused(filename="a"), lambda n: unusable(f"{n}")), 11),
    "a call nobody may allow, each time another": (
        (lambda n: refused("execute_shell", "guard", command_line=f"curl {n}"),), 20),
    "an end that is put off again and again": ((lambda n: put_off(f"done {n}", f"not met: {n} of 9"),), 6),
    "an end that is put off, and a look": (
        (lambda n: put_off(f"done {n}"), lambda n: did("read_file", "x", filename="a")), 12),
    "an edit back and forth": (
        (lambda n: edited("a", "1", "2", "two"), lambda n: edited("a", "2", "1", "one")), 12),
    "an edit back and forth, with a test each time": (
        (lambda n: edited("a", "1", "2", "two"), lambda n: shell("pytest", PYTEST.format(n), 1),
         lambda n: edited("a", "2", "1", "one"), lambda n: shell("pytest", PYTEST.format(n), 1)), 14),
    "an edit back and forth in other words": (
        (lambda n: shell(f"sed 1 # {n}x{n * n}", "", data={"changed": ["a"]}, tree="one"),
         lambda n: shell(f"sed 2 # {n}y{n * n}", "", data={"changed": ["a"]}, tree="two")), 22),
    "the same line added for ever": (
        (lambda n: did("edit_file", "Added.", data={"changed": ["log"]}, tree=f"{n}", text="x"),), 21),
    "two commands in turn that print the time": (
        (lambda n: shell("date", f"Sun Nov 22 02:{n % 60:02}:37 UTC 2026"),
         lambda n: shell("date; ls", f"2026-11-22T02:41:{n % 60:02}.{n:03}Z\na.txt")), 12),
    "five calls in turn": (tuple((lambda n, k=k: did("read_file", "x", filename=f"{k}")) for k in range(5)), 25),
    "a program that goes on for ever": (
        (lambda n: did("list_programs", "7: running", data={"waits": True}),), 1 + WAITS_PER_STEP * STEP_LIMITS[2]),
    "a program that has ended": ((lambda n: did("list_programs", "7: ended", data={"waits": False}),), 21),
}  # fmt: skip


@pytest.mark.parametrize("name", NOWHERE)
def test_what_gets_nowhere_is_told_to_the_model_then_to_the_user_then_ends(name: str) -> None:
    makers, end = NOWHERE[name]
    heard = alarms(endless(*makers))
    assert [who for _, who, _ in heard] == ["model", "user", "stop"]
    assert heard[-1][0] == end, heard
    assert heard[0][0] < heard[1][0] < heard[2][0]


def test_what_is_said_tells_a_circle_from_a_standstill() -> None:
    def said(*makers: Callable[[int], Step]) -> list[str]:
        return [text for _, _, text in alarms(endless(*makers))]

    assert said(*NOWHERE["the same look"][0])[0] == "The same call with the same results, 3 times over."
    assert said(*NOWHERE["an edit back and forth"][0])[-1] == "The same 2 steps with the same results, 6 times over."
    assert said(*NOWHERE["five calls in turn"][0])[0] == "8 steps in a row have brought nothing new."
    assert said(*NOWHERE["an end that is put off again and again"][0])[1] == (
        "The run was not ended 4 times, and nothing is new since."
    )


# What gets somewhere ---------------------------------------------------------------------------------------------


def fixing(number: int) -> Iterator[Step]:
    """Fix one test after the other, looking at the same files between."""
    for left in range(number, 0, -1):
        yield shell("pytest -q", f"{left} failed, {number - left} passed in {left / 7:.2f}s", 1)
        for name in ("a", "b", "c"):
            yield did("read_file", f"content of {name}", filename=name)
        yield edited("a", f"bug {left}", "no bug", f"tree {left}")
    yield shell("pytest -q", f"{number} passed in 1.0s")


def hard(number: int) -> Iterator[Step]:
    """Always another edit, and the same test is red."""
    for n in range(number):
        yield edited("a", f"try {n}", f"try {n + 1}", f"tree {n}")
        yield shell("pytest -q", PYTEST.format(n / 7), 1)
        yield put_off(f"try {n}")


SOMEWHERE: dict[str, Callable[[], Iterator[Step]]] = {
    "60 files are read": lambda: (did("read_file", f"text {n}", filename=f"{n}.txt") for n in range(60)),
    "60 files with nothing in them are read": lambda: (did("read_file", "", filename=f"{n}") for n in range(60)),
    "60 places are searched in vain": lambda: (
        did("execute_shell", "Exit status 1; nothing was printed.", data={"failed": False}, command_line=f"grep x {n}")
        for n in range(60)
    ),
    "one test after the other is fixed": lambda: fixing(40),
    "one hard test": lambda: hard(40),
    "one line mends one test after the other": lambda: (
        step
        for n in range(60)
        for step in (
            shell("sed -i 0,/bug/s//fix/ a", "", data={"changed": ["a"]}, tree=f"{n}"),
            shell("pytest -q", f"{60 - n} failed, {n} passed in {n / 7:.2f}s", 1),
        )
    ),
    "after a change all is looked at again": lambda: (
        step
        for n in range(10)
        for step in (edited("a", f"{n}", "", f"{n}"), *(did("read_file", "x", filename=f"{k}") for k in range(40)))
    ),
    "a file that grows is watched": lambda: (did("read_file", f"{n} %", filename="progress") for n in range(100)),
    "a program is polled": lambda: (
        step
        for n in range(100)
        for step in (
            shell("sleep 1", "", data={"waits": True, "changed": ["background/log"]}, tree=f"{n}"),
            did("list_programs", "7: running", data={"waits": True}),
        )
    ),
    "a state is committed, gone back to, and gone on from": lambda: (
        step
        for n in range(40)
        for step in (edited("a", f"{n}", f"{n + 1}", f"{n}"), shell(f"git stash; pytest {n}", "ok", tree="base"))
    ),
}


@pytest.mark.parametrize("name", SOMEWHERE)
def test_honest_work_raises_no_alarm(name: str) -> None:
    assert alarms(SOMEWHERE[name]()) == []


@pytest.mark.parametrize("word", [Feedback(text="Go on."), started(Resumed)], ids=["feedback", "resume"])
def test_a_word_of_the_user_starts_the_count_again(word: Event) -> None:
    look = did("read_file", "x", filename="a")
    assert alarms([look, look, [word], look, look]) == []
    assert [number for number, _, _ in alarms([look, look, [word], look, look, look])] == [6]


def waited(seconds: float) -> Step:
    step = did("wait_until", "It is 2026-11-22 08:00:00.", data={"waits": False}, when="08:00")
    return [*step[:-1], replace(step[-1], t=seconds)]


def test_a_standing_goal_may_be_looked_after_for_ever_if_it_waits_in_between() -> None:
    checked = did("execute_task", "Nothing is new.", task="Look after the report")
    assert alarms([checked, waited(3600.0)] * 500) == []
    hurried = alarms([checked, waited(1.0)] * 500)
    assert [who for _, who, _ in hurried] == ["model", "user", "stop"]


def test_news_beside_the_steps_starts_the_count_again_once() -> None:
    look, met = did("read_file", "x", filename="a"), [Checked(goal=0, met=True)]
    told: Step = [AgentMessage(sender="Anna", text="I have it.")]
    assert alarms([look, look, met, look, look, told, look, look]) == []
    assert [number for number, _, _ in alarms([look, met, look, look, met, told, look, look, told, look])] == [9 + 1]


def test_words_of_the_program_are_no_news() -> None:
    prompted = Prompted(sha256="", tokens=1, messages=1, at=0.0, estimate=None)
    step: Step = [SystemNotice(text="Try something else."), prompted, *did("read_file", "x", filename="a")]
    assert [who for _, who, _ in alarms([step] * 9)] == ["model", "user", "stop"]


def test_the_log_folded_anew_gives_the_same_verdict() -> None:
    steps = endless(*NOWHERE["five calls in turn"][0])
    events = [event for _ in range(50) for event in next(steps)]
    one = Standstill(SPECS)
    for number, event in enumerate(events):
        one.add(event)
        if number % 10 == 0:
            two = Standstill(SPECS)
            for earlier in events[: number + 1]:
                two.add(earlier)
            assert (two.alarm, two.message) == (one.alarm, one.message)


NO_PROGRESS: tuple[Callable[[Random], Step], ...] = (  # but the first time of each
    lambda random: unusable(f"{random.random()}"),
    lambda random: refused(filename=f"{random.randrange(9)}"),
    lambda random: refused("execute_shell", "guard", command_line=f"curl {random.random()}"),
    lambda random: put_off(f"{random.random()}", f"{random.random()}"),
    lambda random: shell(f"pytest {random.random()}", PYTEST.format(random.random()), 1),
    lambda random: did("read_file", "x", filename=f"{random.randrange(9)}"),
    lambda random: did("read_file", "The same as in step 1.", data={"repeat": True}, filename=f"{random.randrange(9)}"),
    lambda random: did("read_file", (name := f"no file {random.random()}"), ok=False, filename=name),
    lambda random: edited("a", f"{(new := random.randrange(2))}", f"{1 - new}", f"tree {new}"),
    lambda random: shell("./count", f"done {random.randrange(10**9)} times"),
    lambda random: shell("sleep 1", "", data={"waits": True}),
)
NEW = 40  # so many of these steps are new at most
LONGEST = max(NUMBERS_PER_STEP, WAITS_PER_STEP) * STEP_LIMITS[2]  # a standstill in which no other step comes


@given(st.lists(st.sampled_from(NO_PROGRESS), min_size=1, max_size=8), st.randoms(use_true_random=False), st.booleans())
@settings(max_examples=60, deadline=None)
def test_every_mix_of_steps_without_progress_ends_within_a_bound(
    makers: list[Callable[[Random], Step]], random: Random, in_turn: bool
) -> None:
    seeded = Random(random.getrandbits(64))  # quicker than to have each number drawn by itself
    steps = (makers[n % len(makers) if in_turn else seeded.randrange(len(makers))](seeded) for n in count())
    assert alarms(steps, NEW * LONGEST)[-1][1] == "stop"


# What varies -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("1 failed in 3.32s", "1 failed in 12.04s"),
        ("real\t0m3.120s", "real\t1m0.004s"),
        ("took 37 ms", "took 1,204 ms"),
        ("Sun Nov 22 02:41:37 UTC 2026", "Mon Nov 23 12:01:07 UTC 2026"),
        ("[2026-11-22T02:03:04.123Z] no", "[2026-11-22 02:03:05+00:00] no"),
        ("at 1763779297.33", "at 1763779298.1"),
        ("<Cell object at 0x7f3a2c>", "<Cell object at 0x55d0>"),
        ("pid 123 died", "pid 45678 died"),
        ("Process 12: gone", "Process 9: gone"),
        ("attempt #3", "attempt #14"),
        ("/tmp/tmpab12/x.py", "/tmp/tmpzz99/x.py"),
        ("id 123e4567-e89b-12d3-a456-426614174000", "id 123e4567-e89b-12d3-a456-426614174fff"),
        ("using seed=123", "using seed=9"),
    ],
)
def test_what_varies_by_itself_is_set_aside(one: str, other: str) -> None:
    assert strip_varying(one) == strip_varying(other) != one


@pytest.mark.parametrize("text", ["4 failed, 3 passed", "epoch 5/100", "45 %", "a.txt:12: error", "v1.2.3", "x1y2"])
def test_other_numbers_are_news(text: str) -> None:
    assert strip_varying(text) == text


def test_to_set_aside_takes_no_longer_where_a_text_is_made_for_that() -> None:
    for piece in ("1", "1 ", "1m", "1:", "/tmp/", "pid ", "1.", "0x", "1 s"):
        assert strip_varying(piece * 1_000_000)


def test_a_run_that_begins_is_no_step() -> None:
    assert alarms([[started()]] * 30) == []
