"""The report of a run: one HTML file, made from the log, in which nothing from a run is more than text."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from chromium import CHROMIUM, in_a_browser
from driver import FINISH, Home
from fakes import started
from server import ScriptedServer, command

from autoagent.core.commands import Call
from autoagent.core.events import Ended, Event, Proposed, Resumed
from autoagent.core.task import Goal, Status, Task
from autoagent.log.reader import read
from autoagent.web.page import report_page, with_colours
from autoagent.web.report import Report

SCRIPT = "document.title = 'PWNED'"
HOSTILE = f'</script><script>{SCRIPT}</script><img src=x onerror="{SCRIPT}">\u202e\x1b[31m'
WRITE = command("write_to_file", filename="a.txt", text=f"one\n{HOSTILE}\n")
CHECK = "Write a.txt :: grep -q one a.txt"


@pytest.fixture
def ran(served: Home, server: ScriptedServer) -> Home:
    """A run of a hostile model."""
    server.add(WRITE, command("read_file", filename="a.txt"), *FINISH)
    goals = ("--ai-goal", CHECK, "--ai-goal", f"Say {HOSTILE}", "--ai-name", "<b>Ann</b>")
    served.succeed("-c", "-y", "-m", "none", "--accept-claims", *goals)
    return served


def facts_of(page: str) -> dict[str, object]:
    (found,) = re.findall(r'<script type="application/json" id="facts">(.*?)</script>', page, re.DOTALL)
    return json.loads(found)  # type: ignore[no-any-return]


def dom_of(page: Path) -> str:
    """The document as Chromium has it once the script has run."""
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=5000", "--dump-dom"]
    done = subprocess.run([CHROMIUM, *flags, page.as_uri()], capture_output=True, check=True, timeout=120)
    return done.stdout.decode()


def test_it_has_the_goals_with_their_evidence_and_every_step(ran: Home) -> None:
    done = ran.run("report", ran.runs[0][:12], "-o", "page.html")
    assert (done.code, done.err) == (0, "Written to page.html.\n")
    assert (ran.folder / "page.html").stat().st_mode & 0o777 == 0o600
    facts = facts_of(ran.read("page.html"))
    checked, shown = facts["goals"]  # type: ignore[misc]
    assert (checked["text"], checked["check"], checked["proof"]) == ("Write a.txt", "grep -q one a.txt", "checked")
    assert [entry["state"] for entry in checked["ledger"]] == ["checked"]
    assert [entry["state"] for entry in shown["ledger"]] == ["shown"]
    assert facts["files"] == [["a.txt", 2, 0]]
    first, second, *_ = [step for step in facts["steps"] if "call" in step]  # type: ignore[attr-defined]
    assert (first["call"]["name"], first["decided"]["by"]) == ("write_to_file", "continuous mode")
    assert first["preview"].startswith("--- ") and first["result"]["ok"] and first["changed"] == ["a.txt"]
    assert "\\x1b[31m" in second["result"]["text"] and "\u202e" not in json.dumps(facts, ensure_ascii=False)
    assert first["prompt"]["tokens"] > 100 and facts["tokens"][0] > 0  # type: ignore[index]


def test_it_has_what_each_prompt_held_and_the_files_at_each_step(ran: Home) -> None:
    assert ran.run("report", ran.runs[0], "-o", "page.html").code == 0
    facts: Any = facts_of(ran.read("page.html"))
    assert HOSTILE[:9] + "<" not in ran.read("page.html")
    prompts = list(facts["prompts"].values())
    assert len(prompts) == 3 and all(prompt["same"] for prompt in prompts)
    second = [
        [facts["texts"][n] for first, last in part for n in range(first, last + 1)] for part in prompts[1]["texts"]
    ]
    system, *_, result, _, goals = ["\n".join(map(str, part)) for part in second]
    assert "You are" in system and "\nWrote" in result and "Write a.txt" in goals
    assert "\u202e" not in str(facts["texts"]) and "\x1b" not in str(facts["texts"])
    (changed,) = [found for _, found in facts["states"]["changes"] if found]
    ((path, state, id),) = changed
    assert (path, state) == ("a.txt", "made"), changed
    assert facts["texts"][facts["states"]["contents"][id][0]].startswith("one\n</script>")
    shown = ran.run("show", ran.runs[0], "--step", "2", "--prompt")
    assert shown.code == 0 and "--- system" in shown.out and "\nWrote" in shown.out
    assert "\u202e" not in shown.out and "\x1b" not in shown.out
    assert ran.run("show", ran.runs[0], "--prompt").code == 2


@pytest.mark.slow
def test_a_fleet_has_a_page_with_one_for_each_run(home: Home, server: ScriptedServer) -> None:
    home.point_at(server)
    server.add(*[*FINISH] * 2)
    tasks = "\n".join(json.dumps({"id": id, "goal": f"Say {HOSTILE}"}) for id in ("one", "two"))
    head = home.start("fleet", "-", "-c", "--out", "out", "--accept-claims", "--no-verify")
    assert head.communicate(tasks)[1] is not None and head.returncode == 0
    done = home.run("report", "--fleet", "out", "-o", "all #1.html")
    assert done.err == "Written to all #1.html, with the pages of 2 runs in all #1-runs.\n", done.text
    rows: Any = facts_of(home.read("all #1.html"))["rows"]
    assert [(row["id"], row["status"], row["link"]) for row in rows] == [
        ("one", "finished", "all%20%231-runs/one.html"), ("two", "finished", "all%20%231-runs/two.html")
    ]  # fmt: skip
    assert facts_of(home.read("all #1-runs/two.html"))["goals"]
    assert home.run("report", "--fleet", "nowhere").code == 2
    refused = home.run("report", "--team", "nothing")
    assert refused.code == 1 and "Traceback" not in refused.text


def test_an_edited_call_is_shown_without_the_change_of_the_first() -> None:
    report, call = Report(), Call("1", "write_to_file", {"filename": "a.txt"})
    report.add(Proposed(call=call, preview="--- a/a.txt\n+++ b/a.txt\n", warning="Look.", step=1))
    report.add(Proposed(call=call, preview="Not changed: there is no such folder.", step=1))
    (step,) = report.steps
    assert (step["preview"].text, step["diff"], step["warning"]) == ("Not changed: there is no such folder.", False, "")
    assert with_colours(step, 400) is step


def test_the_evidence_of_a_later_task_outlasts_a_resume() -> None:
    report, task = Report(), Task("A", "B", (Goal("Write b.txt"),))
    for event in (started(), started(Resumed, task=task), Ended(status=Status.FINISHED, reason="", goals=("shown",))):
        report.add(event)
    report.add(started(Resumed, task=task))
    (goal,) = report.head["goals"]
    assert [entry["state"] for entry in goal["ledger"]] == ["shown"]


def test_without_a_name_the_file_has_that_of_the_run_and_a_missing_run_is_named(ran: Home) -> None:
    assert ran.run("report", ran.runs[0]).err == f"Written to {ran.runs[0]}.html.\n"
    assert ran.run("report", "nothing").code == 1
    assert ran.run("report", ran.runs[0], "-o", "no/such/folder.html").code == 2


def test_nothing_of_a_run_ends_the_facts_and_the_policy_names_what_may_run(ran: Home) -> None:
    found = read(ran.folder / ".autoagent", ran.runs[0])
    page = report_page(
        replace(event, run="</title><meta http-equiv=refresh content='0;url=//evil.example'>") for event in found
    )
    assert page.count("</title>") == 1 and page.count("<meta http-equiv") == 1, "whoever edits a log"
    assert page.count("<script") == page.count("</script>") == 2
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)
    assert policy is not None
    assert re.fullmatch(r"default-src 'none'; style-src 'sha256-\S{44}'; script-src 'sha256-\S{44}'", policy[1])


def long_run(events: list[Event], steps: int) -> Iterator[Event]:
    """The events of a run whose second step is there many times."""
    yield from (event for event in events if event.step < 2)
    for step in range(2, steps):
        for event in events:
            if event.step == 2:
                text = {"text": "a long line\n" * 500} if event.type == "returned" else {}
                yield replace(event, step=step, t=event.t + step, **text)  # type: ignore[arg-type]
    yield from (event for event in events if event.step > 2)


@pytest.mark.slow
def test_a_thousand_steps_fit_into_two_megabytes(ran: Home) -> None:
    events = list(read(ran.folder / ".autoagent", ran.runs[0]))
    page = report_page(long_run(events, 1_000))
    assert len(page.encode()) < 2_000_000
    assert "more characters are in the log" in page


@pytest.fixture
def forked(ran: Home, server: ScriptedServer) -> str:
    """The id of a fork of the run after its first step, which does something else there."""
    server.add(command("list_files"), *FINISH)
    ran.succeed("fork", ran.runs[0], "--at", "1", "-c", "--accept-claims")
    return ran.runs[-1]


def test_two_runs_stand_side_by_side_from_where_they_part(ran: Home, forked: str) -> None:
    ran.succeed("report", forked, "--compare", ran.runs[0], "-o", "both.html")
    facts = facts_of(ran.read("both.html"))
    one, other = facts["runs"]  # type: ignore[misc]
    assert (one["run"], other["run"]) == (ran.runs[0], forked), "a fork has its own name, and place"
    assert one["workspace"] != other["workspace"]
    parted = [run["steps"][facts["alike"]]["call"]["name"] for run in (one, other)]  # type: ignore[index]
    assert parted == ["read_file", "list_files"]
    assert ran.run("report", forked, "--compare", "nothing").code == 1


@in_a_browser
def test_in_a_browser_the_step_is_named_at_which_two_runs_part(ran: Home, forked: str) -> None:
    ran.run("report", forked, "--compare", ran.runs[0], "-o", "both.html")
    dom = dom_of(ran.folder / "both.html")
    assert "They differ from step 2" in dom and "<img" not in dom
    assert 'id="other-step-2"' in dom and dom.count('id="step-2"') == 1


@in_a_browser
def test_in_a_browser_it_is_text_whatever_it_holds(ran: Home) -> None:
    ran.run("report", ran.runs[0], "-o", "page.html")
    dom = dom_of(ran.folder / "page.html")
    assert f"<title>Run {ran.runs[0]}</title>" in dom, "no script of the run has run"
    assert "<img" not in dom and "<b>Ann" not in dom
    assert "&lt;b&gt;Ann&lt;/b&gt;: Write a.txt" in dom
    for words in ("its check passed", "Allowed by continuous mode", "Goals, with their evidence", 'id="step-2"'):
        assert words in dom, words
    assert dom.count('<td class="add"') == 2


@in_a_browser
def test_in_a_browser_a_run_of_a_thousand_steps_is_whole(ran: Home) -> None:
    events = list(read(ran.folder / ".autoagent", ran.runs[0]))
    page = ran.folder / "long.html"
    page.write_text(report_page(long_run(events, 1_000)))
    dom = dom_of(page)
    assert dom.count("<article") >= 1_000 and 'id="step-999"' in dom
