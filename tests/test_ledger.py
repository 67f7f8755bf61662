"""Goals with checks: run after changes and before the end, told when they turn, in the way of an early end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from fakes import ScriptedModel, ctrl_c_at, of_type, say, started
from test_loop import Bench, bench

from autoagent.agent.work import Work
from autoagent.core.events import AgentMessage, Checked, Event, Returned, SystemNotice, Verified
from autoagent.core.model import BRIEF, FULL, PromptStyle
from autoagent.core.services import ProcessExit
from autoagent.core.task import Goal, GoalVerdict, Task
from autoagent.sandbox.process import ProcessLimits
from autoagent.sandbox.programs import open_sandbox
from autoagent.workspace.gate import Workspace

__all__ = ["bench"]

GOALS = (Goal("Write a.txt", "test -s a.txt"), Goal("Keep it short", "test $(wc -c < a.txt) -lt 9"), Goal("Be kind"))
CHANGED = Returned(call_id="1", ok=True, text="", data={"changed": ["a.txt"]})


@pytest.fixture
def run(bench: Bench) -> Iterator[Any]:
    """Runs a script of replies to its end: the model, which has seen the prompts, and the events."""
    with closing(open_sandbox(Workspace(bench.workspace), ProcessLimits(), kind="none")) as sandbox:

        def run(*replies: str, goals: tuple[Goal, ...] = GOALS, **options: Any) -> tuple[ScriptedModel, list[Event]]:
            model = ScriptedModel(replies, style=options.pop("style", FULL))
            return model, bench.run(model, goals=goals, context={"sandbox": sandbox}, **options)

        yield run


def outcomes(events: list[Event]) -> list[tuple[int, int, bool]]:
    return [(event.step, event.goal, event.met) for event in events if isinstance(event, Checked)]


DONE = say("task_complete", reason="done")


def test_checks_run_after_each_change_and_before_the_end(run: Any) -> None:
    _, events = run(say("list_files"), say("write_to_file", filename="a.txt", text="short"), DONE)
    assert outcomes(events) == [(2, 0, True), (2, 1, True), (3, 0, True), (3, 1, True)]
    assert events[-1].status == "finished"


def test_a_goal_that_turns_is_told_at_once_with_what_its_check_printed(run: Any) -> None:
    goals = (Goal("Keep a.txt short", "wc -c < a.txt; test $(wc -c < a.txt) -lt 9"),)
    write = [say("write_to_file", filename="a.txt", text=text) for text in ("short", "much too long", "again")]
    model, events = run(*write, DONE, goals=goals)
    told = [(event.step, event.text) for event in events if isinstance(event, SystemNotice)]
    assert [step for step, _ in told] == [1, 2, 3]
    assert told[1][1] == (
        "Goal 1 (Keep a.txt short) was met and is not any more since this step. Its check says: exit status 1. 13"
    )
    assert told[1][1] in model.prompts[2][-1].content


def test_the_prompt_says_which_goals_are_met_and_that_all_are(run: Any) -> None:
    model, _ = run(say("write_to_file", filename="a.txt", text="short"), DONE)
    assert model.prompts[0][-1].content.count("(met)") == 0
    assert "1. Write a.txt (met)\n2. Keep it short (met)\n3. Be kind\n" in model.prompts[1][-1].content
    model, _ = run(say("write_to_file", filename="b.txt", text="x"), DONE, goals=GOALS[:2])
    assert "2. Keep it short (met)\nUse task_complete." in model.prompts[1][-1].content


def test_the_prompt_says_at_its_end_which_checks_fail_and_how(run: Any) -> None:
    wrong, right = (say("write_to_file", filename="a.txt", text=text) for text in ("wrong " * 50, "right"))
    model, _ = run(wrong, right, DONE, goals=(Goal("Write a.txt", "cat a.txt; grep right a.txt"), Goal("Rest")))
    assert f"1. Write a.txt (its check fails: …{('wrong ' * 50).strip()[-160:]})\n2. Rest\n" in (
        model.prompts[1][-1].content
    )
    assert "1. Write a.txt (met)\n2. Rest\n" in model.prompts[2][-1].content


def test_the_prompt_names_the_checks(run: Any) -> None:
    model, _ = run(say("write_to_file", filename="a.txt", text="short"), DONE)
    assert "1. Write a.txt (checked with: `test -s a.txt`)\n" in model.prompts[0][0].content
    assert model.prompts[0][0].content.endswith("\n3. Be kind")


def test_a_small_model_is_not_offered_the_end_while_a_check_fails(run: Any) -> None:
    wrong, right = (say("write_to_file", filename="a.txt", text=text) for text in ("An elm.", "An oak."))
    model, _ = run(wrong, right, DONE, goals=(Goal("Write of trees", "grep -q oak a.txt"),), style=BRIEF)
    assert ["task_complete" in offered for offered in model.offered[:3]] == [True, False, True]
    assert "write_to_file" in model.offered[1]


def test_a_small_model_does_not_try_the_end_twice_in_a_row_while_a_check_fails(run: Any) -> None:
    looks = [say("search_in_files", pattern=str(number)) for number in range(5)]
    write = say("write_to_file", filename="a.txt", text="An oak.")
    goals = (Goal("Write of trees", "date +%N; grep -q oak a.txt"),)  # which says something else each time
    model, events = run(DONE, *looks, DONE, write, DONE, goals=goals, style=BRIEF)
    offered = ["task_complete" in specs for specs in model.offered]
    assert (offered[0], offered[1], offered[6], offered[7], offered[8]) == (True, False, True, False, True)
    assert events[-1].status == "finished"


def test_what_a_check_says_is_told_when_it_says_something_new(run: Any) -> None:
    write = [say("write_to_file", filename=name, text="x") for name in ("b.txt", "c.txt")]
    done = say("write_to_file", filename="d.txt", text="x")
    goals = (Goal("Count", "ls | wc -l; test -e d.txt"), Goal("End", "test -e d.txt"))
    _, events = run(*write, done, DONE, goals=goals)
    told = [event.text for event in events if isinstance(event, SystemNotice)]
    assert told[:3] == [
        "Goal 1 (Count) is not met yet. Its check says: exit status 1. 1",
        "Goal 2 (End) is not met yet. Its check says: exit status 1.",
        "Goal 1 (Count) is not met yet. Its check says: exit status 1. 2",
    ]


def test_a_repeat_while_a_check_fails_is_told_what_the_check_says(run: Any) -> None:
    """A model that was told to use task_complete there took the goal for met."""
    write, look = say("write_to_file", filename="a.txt", text="wrong"), say("read_file", filename="a.txt")
    goals = (Goal("Write a.txt", "cat a.txt; grep right a.txt"),)
    right = say("write_to_file", filename="a.txt", text="right")
    model, _ = run(write, write, look, look, right, DONE, goals=goals)
    fails = "The check of goal 1 fails: exit status 1. wrong"
    assert f"nothing has changed since. It gave: Wrote 5 characters (1 line) to a.txt. {fails} Use it with other" in (
        model.prompts[2][-1].content
    )
    assert f"[the same as in step 3] {fails} Use another command." in model.prompts[4][-1].content


def test_a_run_whose_last_checks_were_interrupted_does_not_end(run: Any) -> None:
    at_checks = ctrl_c_at(5)  # after recall, model, question and command of the first step
    _, events = run(DONE, DONE, goals=(Goal("Be there", "true"),), interruptible=at_checks)
    first, *_ = of_type(events, Returned)
    interrupted = "the user interrupted the checks of the goals, so nobody knows if they pass."
    assert first.text == f"Not ended yet: {interrupted}"
    assert outcomes(events) == [(2, 0, True)]


def folded(*events: Event) -> Work:
    ledger = Work({})
    for event in (started(task=Task("Scribe", "a writer", GOALS)), *events):
        ledger.add(event)
    return ledger


def test_what_stopped_a_check_is_named() -> None:
    ends = {
        "exit status 2. no": ProcessExit(b"no\n", 3, status=2),
        "SIGKILL": ProcessExit(b"", 0, signal="SIGKILL"),
        "stopped at the limit of 9 s": ProcessExit(b"", 0, limit="9 s"),
    }
    for said, end in ends.items():
        assert said in next(folded(CHANGED).check(lambda check, end=end: end)).output


def test_a_long_output_keeps_its_end() -> None:
    outcome = next(folded().check(lambda check: ProcessExit(b"x" * 5000 + b"the reason", 5010, status=1)))
    assert outcome.output.endswith("the reason")
    assert len(outcome.output) < 1300


def test_changed_goals_are_checked_anew() -> None:
    ledger = folded(Checked(goal=0, met=False, output="no"))
    assert "not met" in ledger.unmet()
    ledger.add(started(task=Task("Scribe", "a writer", (Goal("Something else"),))))
    assert ledger.unmet() == ""


def test_what_a_sub_agent_has_changed_is_checked_and_judged_anew() -> None:
    judged = Verified(model="m", verdicts=(GoalVerdict(2, "met"),))
    for changed in ([], ["a.txt"]):
        ledger = folded(Checked(goal=0, met=True, output=""), judged)
        ledger.add(AgentMessage(sender="Anna", text="Done.", data={"changed": changed}))
        assert (ledger.has_stale_checks, not ledger.verdicts) == (bool(changed), bool(changed))


@pytest.mark.parametrize(("style", "shown"), [(BRIEF, "…"), (FULL, "total = 1 / 0")], ids=["brief", "full"])
def test_a_small_model_sees_of_a_program_that_failed_the_error_and_not_the_code_it_would_write_again(
    run: Any, style: PromptStyle, shown: str
) -> None:
    placed = '{"command": {"name": "execute_python_code", "args": {"code": "```", "name": "count"}}}'
    fails, works = (f"{placed}\n```python\n{code}\n```" for code in ("total = 1 / 0", 'print("two oaks")'))
    end = say("task_complete", reason="counted")
    model, _ = run(fails, works, end, end, goals=(Goal("Count the oaks"),), style=style)
    first, second = model.prompts[1], model.prompts[2]
    assert "ZeroDivisionError" in first[-1].content
    assert first[-2].content.endswith(f'"code": "```", "name": "count"}}}}}}\n```python\n{shown}\n```')
    assert "now holds" not in first[-1].content
    assert ("now holds:" in second[-1].content) is style.guided, "what works is shown"
    assert 'print("two oaks")' in second[-2].content
