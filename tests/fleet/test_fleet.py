"""Fleets of real workers on this machine."""

from __future__ import annotations

import json
import os
import platform
import random
import resource
import signal
import time
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from driver import PATIENCE, ROOT, Hanging, Home
from fakes import ScriptedModel, all_met
from fleets import (
    CALLS,
    CENTS,
    SMALL_CENTS,
    assert_done_once,
    assert_paced,
    assert_survives_kills,
    assert_used_up,
    children,
    lead,
    other_version,
    record,
    results,
    run,
    tasks,
    worked,
)
from processes import full_disk
from server import Fault, Reply, ScriptedServer, command

from autoagent.core.errors import SettingsError, StateError
from autoagent.core.model import Price, Usage
from autoagent.fleet import Fleet
from autoagent.fleet.fleet_run import variables_of
from autoagent.fleet.fleet_worker import exclusive_lock
from autoagent.fleet.ledger import Call, Ceilings, Ledger
from autoagent.fleet.metered_model import MeteredModel
from autoagent.fleet.task_list import read_tasks
from autoagent.settings import Settings


def test_all_tasks_are_done_each_in_a_folder_of_its_own(home: Home, server: ScriptedServer) -> None:
    text = run(home, tasks(3), "--parallel", "2")
    assert "3/3" in text and "3 runs: 3 finished" in text
    out = home.folder / "out"
    assert_done_once(out, ("t000", "t001", "t002"))
    found = results(home)
    assert found["summary"]["usd"] == pytest.approx(3 * CALLS * CENTS)
    assert [run["known"] for run in found["runs"]] == [["checked"]] * 3
    assert len(server.requests) == 3 * CALLS
    assert [line["type"] for line in record(out)].count("ended") == 3


def by_turns(head: int, turn: int, chance: random.Random) -> None:
    """Kill a worker or the head."""
    with suppress(IndexError):
        os.kill(head if turn % 2 else chance.choice(children(head)), signal.SIGKILL)


def test_a_fleet_outlives_kills_of_workers_and_of_its_head(home: Home, server: ScriptedServer) -> None:
    assert_survives_kills(home, server, by_turns, number=3, kills=2, seed=1, longest=2)


@pytest.mark.slow
def test_many_tasks_outlive_many_kills(home: Home, server: ScriptedServer) -> None:
    kills = int(os.environ.get("FLEET_KILLS", "10"))
    assert_survives_kills(home, server, by_turns, number=2 * kills, kills=kills, seed=2)


@pytest.mark.slow
@pytest.mark.parametrize(("number", "paid"), [(3, 6), (20, 12 * CALLS)])
def test_a_budget_is_used_to_the_cent_and_never_exceeded(
    home: Home, server: ScriptedServer, number: int, paid: int
) -> None:
    text = run(home, tasks(number), "--parallel", "8", "--budget", f"{paid * CENTS:.6f}", code=9)
    assert f"of the fleet's budget of ${paid * CENTS:g}" in text
    assert_used_up(home, server, paid)
    home.succeed("fleet", "resume", "out", "-c", "--budget", "none")
    assert_done_once(home.folder / "out", [f"t{n:03}" for n in range(number)])
    assert len(server.requests) == number * CALLS


@pytest.mark.slow
def test_tokens_are_shared_out_as_money_is(home: Home, server: ScriptedServer) -> None:
    text = run(home, tasks(2), "--parallel", "2", "--max-tokens", str(5 * 3100 + 400), code=9)
    assert "of the fleet's 15900 (--max-tokens)" in text
    assert 4 <= len(server.requests) <= 5


@pytest.mark.slow
def test_requests_are_paced_for_all_runs_together(home: Home, server: ScriptedServer) -> None:
    assert_paced(home, server)


@pytest.mark.slow
def test_ctrl_c_stops_at_the_next_call_and_resume_goes_on(home: Home, server: ScriptedServer) -> None:
    hanging = Hanging(command("write_to_file", filename="part-1.txt", text="1\n"))
    server.script, server._every = [hanging], None
    head = lead(home, tasks(4, check=""), "-c", "--parallel", "1", "--accept-claims")
    hanging.is_asked()
    status = json.loads(home.run("fleet", "status", "out", "--json").out)
    assert status["head"] == head.pid and status["summary"]["running"] == 1
    second = home.run("fleet", "resume", "out", "-c")
    assert second.code == 1 and "another process leads this fleet" in second.err
    head.send_signal(signal.SIGINT)
    time.sleep(0.3)
    server._every = worked
    hanging.leave()
    out, err = head.communicate(timeout=PATIENCE)
    assert head.returncode == 9, err
    assert "autoagent fleet resume out` continues" in err and "The fleet is stopped" in out
    assert len([line for line in record(home.folder / "out") if line["type"] == "started"]) == 1
    assert home.run("fleet", "resume", "out", "-c", "--parallel", "3").code == 0
    assert_done_once(home.folder / "out", [f"t{n:03}" for n in range(4)])


@pytest.mark.slow
def test_a_call_that_is_cut_off_is_counted_at_its_highest_price(home: Home, server: ScriptedServer) -> None:
    hanging = Hanging()
    server.script, server._every = [hanging], None
    head = lead(home, tasks(1), "-c")
    hanging.is_asked()
    for _ in range(2):  # at once
        head.send_signal(signal.SIGINT)
        time.sleep(0.3)
    _, said = head.communicate(timeout=PATIENCE)
    hanging.leave()
    assert head.returncode == 9, said
    summary = results(home)["summary"]
    assert summary["usd"] < CENTS <= summary["usd"] + summary["unknown_usd"]


@pytest.mark.parametrize("asks", ["verifier", pytest.param("role", marks=pytest.mark.slow)])
def test_a_question_that_a_kill_cuts_off_is_counted(home: Home, server: ScriptedServer, asks: str) -> None:
    """Twice asked, once charged: the first time may cost as much."""
    role = "{name: Al, profile: Poet, actions: [{name: Write, instruction: Write a line}]}"
    home.write("team.yaml", f"idea: A poem\nroles: [{role}]\n")
    hanging = Hanging(Reply("A line."))
    if asks == "role":
        server.script, server._every = [], hanging
        text = json.dumps({"id": "x", "team": "team.yaml"})
    else:
        server.judges = lambda prompt: (hanging(None), all_met(prompt))[1]
        text = tasks(1, check="")
    head = lead(home, text, "-c", "--retries", "1", *(["--accept-claims"] if asks == "role" else []))
    hanging.is_asked()
    for worker in children(head.pid):
        os.kill(worker, signal.SIGKILL)
    hanging.leave()
    out, err = head.communicate(timeout=PATIENCE)
    assert head.returncode == 0, out + err
    summary = results(home)["summary"]
    once = 2 * SMALL_CENTS if asks == "role" else len(server.requests) * CENTS + SMALL_CENTS
    assert summary["usd"] == pytest.approx(once, abs=1e-6) and summary["unknown_usd"] > 0
    assert len(server.requests if asks == "role" else server.verifications) == 2


@pytest.mark.slow
def test_a_question_is_answered_from_the_inbox(home: Home, server: ScriptedServer) -> None:
    head = lead(home, tasks(1))
    for _ in range(CALLS):
        for _ in range(600):
            waiting = json.loads(home.run("inbox", "--json").out)
            if waiting:
                break
            time.sleep(0.1)
        assert waiting and waiting[0]["command"]["name"] in ("write_to_file", "task_complete")
        assert home.run("answer", waiting[0]["id"], "y -9").code == 0
        if head.poll() is None:
            break
    head.communicate(timeout=PATIENCE)
    assert head.returncode == 0
    assert_done_once(home.folder / "out", ["t000"])


@pytest.mark.slow
def test_a_failing_run_is_tried_again_and_then_left(home: Home, server: ScriptedServer) -> None:
    server.refuses = lambda request: Fault(400, "no")
    text = run(home, tasks(1), "--retries", "1", code=9)
    assert "answered 400: no" in text
    started = [line for line in record(home.folder / "out") if line["type"] == "started"]
    assert len(started) == 2
    server.refuses = lambda request: None
    assert home.run("fleet", "resume", "out", "-c").code == 0
    assert_done_once(home.folder / "out", ["t000"])


@pytest.mark.slow
def test_files_repeats_and_rates(home: Home, server: ScriptedServer) -> None:
    home.write("data/a.txt", "a")
    home.write("data/deep/b.txt", "b")
    (home.folder / "data/loop").symlink_to("loop")
    text = json.dumps(
        {"id": "x", "goal": "Write all parts", "check": "test -s part-3.txt", "repeat": 2, "files": "data"}
    )
    run(home, text)
    assert home.read("out/x.2/workspace/deep/b.txt") == "b"
    assert (home.folder / "out/x.2/workspace/loop").is_symlink()
    summary = results(home)["summary"]
    assert summary["pass@1"] == summary["pass@2"] == 1.0 and summary["finished"] == 2
    assert home.run("fleet", "diff", "out", "out").code == 0
    rows = home.run("fleet", "results", "out", "--csv", "-").out.splitlines()
    assert rows[0].startswith("id,task,attempt,status,known") and rows[1].startswith(
        "x.1,x,1,finished,checked,4,12400,"
    )


@pytest.mark.slow
def test_a_task_whose_files_have_vanished_fails_alone(home: Home, server: ScriptedServer) -> None:
    home.write("data/a.txt", "a")
    made = [json.loads(line) for line in tasks(3).splitlines()]
    made[1]["files"] = "data/a.txt"
    server.refuses = lambda request: (home.folder / "data/a.txt").unlink(missing_ok=True)
    text = run(home, "\n".join(map(json.dumps, made)), "--parallel", "1", code=9)
    assert "a.txt: cannot be copied: No such file or directory" in text
    assert_done_once(home.folder / "out", ["t000", "t002"])
    home.write("data/a.txt", "a")
    server.refuses = lambda request: None
    assert home.run("fleet", "resume", "out", "-c").code == 0
    assert [run["status"] for run in results(home)["runs"]] == ["finished"] * 3


@pytest.mark.slow
def test_where_no_further_worker_can_be_started_the_fleet_goes_on_with_fewer(
    home: Home, server: ScriptedServer
) -> None:
    server._every = worked
    head = home.start("fleet", "-", "-c", "--out", "out", "--parallel", "10")
    resource.prlimit(head.pid, resource.RLIMIT_NOFILE, (20, 20))  # it holds a connection to each worker
    shown, said = head.communicate(tasks(10), timeout=PATIENCE * 10)
    assert head.returncode == 0, shown + said
    assert "no worker can be started: Too many open files. The fleet goes on with" in shown + said
    assert_done_once(home.folder / "out", [f"t{n:03}" for n in range(10)])


@pytest.mark.slow
def test_a_record_whose_last_line_is_torn_is_resumed_and_read_again(home: Home, server: ScriptedServer) -> None:
    run(home, tasks(1))
    path = home.folder / "out/fleet.jsonl"
    with path.open("a") as file:
        file.write('{"v": 1, "type": "lost", "id": "t0')
    assert home.run("fleet", "resume", "out", "-c").code == 0
    assert home.run("fleet", "status", "out").code == home.run("fleet", "results", "out").code == 0


WRONG = (
    ("a.yaml", "- {id: a, wish: b}\n- {id: a, wish: c}", "a.yaml:3: id: the id 'a' is taken by a.yaml:2"),
    ("a.yaml", "- id: a\n  wsh: b", "a.yaml:3: wsh: no such key of a task. Did you mean wish?"),
    ("a.yaml", "- id: a", "a.yaml:2: a task has one of `wish`, `goal`, `goals` and `team`."),
    ("a.yaml", "- {id: a, wish: b, budget: much}", "a.yaml:2: budget: must be a number above 0"),
    ("a.yaml", "- {id: ../a, wish: b}", "a.yaml:2: id: '../a' cannot name a folder"),
    ("a.yaml", "- {id: a, wish: b, files: no}", "a.yaml:2: files: 'no' is not there"),
    ("a.yaml", "- {id: a, wish: b, files: d}", "d/pipe is neither a file nor a folder"),
    ("a.yaml", "- {id: a, wish: b, settings: {openai_api_key: k}}", "openai_api_key: is a secret"),
    ("a.yaml", f"- {{id: a, wish: b, repeat: 1{'0' * 400}}}", "a.yaml:2: repeat: must be a whole number above 0"),
    ("a.yaml", "- {id: a, wish: b, repeat: 0}", "a.yaml:2: repeat: must be a whole number above 0"),
    ("a.yaml", '- {id: a, goal: "b :: true"}', "a.yaml:2: goal: ` :: ` makes no check here"),
    ("a.yaml", "- {id: a, goal: b, check: no-such-program}", "'no-such-program' is not a command that a shell can run"),
    ("a.jsonl", '{"id": "a", "wish": "b"}\n{"id": "b", "x": 1}\n', "a.jsonl:2: x: no such key"),
    ("a.jsonl", '{"id": "a"\n', "a.jsonl:1: is not a JSON object"),
    ("a.jsonl", '{"id": "a", "id": "b"}\n', "a.jsonl:1: is not a JSON object: a key occurs twice."),
    ("a.csv", "id,wish,colour\na,b,c\n", "a.csv:1: the column 'colour' is not a key of a task"),
    ("a.csv", "id,wish\na,b\na,c\n", "a.csv:3: id: the id 'a' is taken by a.csv:2"),
)


@pytest.mark.parametrize(("file", "text", "said"), WRONG)
def test_what_is_wrong_is_named_before_anything_starts(home: Home, file: str, text: str, said: str) -> None:
    home.write(file, f"tasks:\n{text}\n" if file == "a.yaml" else text)
    (home.folder / "d").mkdir()
    os.mkfifo(home.folder / "d/pipe")
    done = home.run("fleet", file, "-c", "--out", "out")
    assert done.code == 2 and said in done.err, done.err
    assert not (home.folder / "out").exists()


def test_each_file_that_a_task_attaches_waits_for_trust(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text('tasks:\n- id: a\n  wish: |\n    See (@/a/key.txt), and @"/b/my\n    key.txt".\n')
    assert [value.value for value in read_tasks(file, Settings()).untrusted] == ["/a/key.txt", "/b/my key.txt"]


@pytest.mark.slow
def test_a_task_files_checks_and_reach_wait_for_trust(home: Home, server: ScriptedServer) -> None:
    home.write("secret/key.txt", "s")
    home.write(
        "given/tasks.yaml",
        "tasks:\n  - {id: a, goal: Write all parts, check: test -s part-3.txt, files: ../secret}\n"
        "  - {id: b, goal: 'Look at @/etc/hostname', settings: {allow_downloads: 'true'}}\n",
    )
    refused = home.run("fleet", "given/tasks.yaml", "-c", "--out", "out")
    assert refused.code == 3 and not (home.folder / "out").exists()
    for name in ("2 check", "2 files", "3 @", "3 allow_downloads"):
        assert f"given/tasks.yaml:{name}" in refused.err
    assert home.run("trust", "given/tasks.yaml").code == 0
    assert home.run("fleet", "given/tasks.yaml", "-c", "--out", "out", "--accept-claims").code == 0
    assert home.read("out/a/workspace/key.txt") == "s"


@pytest.mark.slow
def test_python_iterates_over_results(place: Path, server: ScriptedServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEMORY_BACKEND", "no_memory")
    monkeypatch.setenv("AUTOAGENT_SANDBOX", "none")
    given = [{"id": "a", "goal": "Write all parts", "check": "test -s part-3.txt", "repeat": 2}]
    with Fleet(given, out="out", continuous=True) as fleet:
        rows = list(fleet)
    assert sorted(row.job.id for row in rows) == ["a.1", "a.2"]
    assert all(row.finished and row.known == ("checked",) for row in rows)
    assert_done_once(place / "out", ["a.1", "a.2"])
    with pytest.raises(StateError, match="already has a fleet"):
        Fleet(given, out="out")
    for room in (0, (place / "out/fleet.jsonl").stat().st_size):
        with full_disk(room), pytest.raises(StateError, match="File too large"):
            Fleet(out="out")
    with Fleet(out="out") as fleet:
        assert list(fleet) == [], "the failed attempt has left no lock behind"


def test_a_workers_lock_that_a_full_disk_refuses_is_named(tmp_path: Path) -> None:
    lock = tmp_path / "worker.lock"
    with full_disk(0), pytest.raises(StateError, match=f"{lock}: cannot be used: File too large"), exclusive_lock(lock):
        pass


def test_a_list_that_no_variable_can_hold_is_named_before_a_worker_on_another_machine_starts_without_it() -> None:
    assert variables_of({"shell_denylist": ("rm", "dd")}) == {"SHELL_DENYLIST": "rm, dd"}
    with pytest.raises(SettingsError, match="shell_denylist: an entry with a comma"):
        variables_of({"shell_denylist": ("echo a,b",)})


@pytest.mark.slow
def test_no_key_is_written_anywhere(home: Home, server: ScriptedServer) -> None:
    key = "sk-" + "a1B2c3D4" * 4
    home.env["OPENAI_API_KEY"] = key
    run(home, tasks(1))
    assert server.requests[0].headers["authorization"] == f"Bearer {key}"
    for path in (home.folder / "out").rglob("*"):
        assert not path.is_file() or key.encode() not in path.read_bytes(), path


def test_a_worker_of_another_version_is_refused_and_named(home: Home, server: ScriptedServer) -> None:
    home.env["PYTHONPATH"] = other_version(home)
    text = run(home, tasks(1), code=9)
    assert not server.requests
    assert f"The worker has autoagent 0.0.9 on Python {platform.python_version()}, and the head has autoagent" in text
    assert [line["type"] for line in record(home.folder / "out")].count("started") == 1


@pytest.mark.slow
def test_a_log_that_cannot_be_read_makes_another_attempt(home: Home, server: ScriptedServer) -> None:
    server.refuses = lambda request: Fault(400, "no") if "to part-1.txt" in request.prompt else None
    run(home, tasks(1), "--retries", "0", code=9)
    (log,) = (home.folder / "out/t000/state/runs").glob("*/events.jsonl")
    lines = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join([*lines[:3], b"{damaged}\n", *lines[4:]]))
    server.refuses = lambda request: None
    done = home.run("fleet", "resume", "out", "-c")
    assert done.code == 0 and "attempt 2. Attempt 1 cannot be resumed and may have acted outside" in done.text
    (row,) = results(home)["runs"]
    assert row["attempt"] == 2 and "may have acted outside" in row["again"] and row["folder"] == "out/t000/attempt-2"
    assert (home.folder / "out/t000/attempt-2/workspace/part-3.txt").read_text() == "3\n"


def test_tokens_a_minute_hold_back_a_call_until_the_minute_is_over() -> None:
    now = [0.0]
    ledger = Ledger(Ceilings(tpm=7000), lambda: now[0])
    for number in (1, 2, 3):
        ledger.waiting.append(Call(("t", number), "m", 3000, 100, None))
    assert [answer.key[1] for answer in ledger.answers()] == [1, 2]
    for number in (1, 2):
        ledger.settle(("t", number), 0.0, 3000, 100)
    now[0] = 59.0
    assert not list(ledger.answers()) and ledger.seconds_to_wake == 1.0
    now[0] = 60.5
    assert [answer.key[1] for answer in ledger.answers()] == [3]


def asks(ledger: Ledger, *numbers: int, run: str = "t") -> list[tuple[int, bool]]:
    """The calls that are answered once these are asked for, and whether each is granted."""
    ledger.waiting += [Call((run, number), "m", 100, 100, Price(1e4, 1e4, 1e4)) for number in numbers]
    return [(answer.key[1], not answer.refusal) for answer in ledger.answers()]


def test_calls_that_are_logged_together_are_counted_once() -> None:
    ledger = Ledger(Ceilings(usd=20.0), lambda: 0.0)
    for number in range(6):
        assert asks(ledger, number) == [(number, True)]
        ledger.settle(("t", number), 2.0, 100, 100)
    ledger.add_logged_cost("t", 12.0, 1200)
    assert [asks(ledger, number) for number in (6, 7, 8, 9)] == [[(6, True)], [(7, True)], [(8, True)], [(9, True)]]


def test_a_call_that_is_never_logged_holds_up_no_other_for_long() -> None:
    now = [0.0]
    ledger = Ledger(Ceilings(usd=4.0), lambda: now[0])
    assert asks(ledger, 1) == [(1, True)]
    ledger.settle(("t", 1), 3.0, 100, 100)
    assert asks(ledger, 2) == []
    now[0] = 11.0
    assert [number for number, _ in asks(ledger)] == [2]


def test_what_an_attempt_without_a_log_has_spent_stays_spent() -> None:
    ledger = Ledger(Ceilings(usd=10.0), lambda: 0.0)
    ledger.add_logged_cost("t", 8.0, 800)
    ledger.retire("t")
    ledger.set_spent("t", 1.0, 100)
    assert asks(ledger, 1) == [(1, False)], "of 10 dollars, 9 are spent"


def test_a_call_that_was_given_up_while_it_waited_is_not_granted() -> None:
    ledger = Ledger(Ceilings(usd=2.0), lambda: 0.0)
    assert asks(ledger, 1) == [(1, True)]
    assert asks(ledger, 2, run="u") == []
    ledger.leave_unsettled(("u", 2))
    ledger.settle(("t", 1), 0.0, 100, 0)
    ledger.add_logged_cost("t", 0.0, 100)
    assert asks(ledger, 3) == [(3, True)]


def test_a_call_of_unknown_cost_stays_reserved_while_its_run_logs_other_events() -> None:
    now = [0.0]
    ledger = Ledger(Ceilings(usd=3.0), lambda: now[0])
    assert asks(ledger, 1) == [(1, True)]
    ledger.leave_unsettled(("t", 1))
    ledger.add_logged_cost("t", 0.0, 0)
    assert asks(ledger, 2, run="u") == [], "the event of another agent of the run says nothing about the call"
    ledger.add_logged_cost("t", 0.5, 50)
    assert [number for number, _ in asks(ledger)] == [2], "the cost of the call is logged"

    ledger = Ledger(Ceilings(usd=3.0), lambda: now[0])
    assert asks(ledger, 1) == [(1, True)]
    ledger.leave_unsettled(("t", 1))
    now[0] = 11.0
    ledger.add_logged_cost("t", 0.0, 0)
    assert asks(ledger, 2, run="u") == [(2, True)], "a call that has cost nothing is never logged"


@pytest.mark.parametrize(("usage", "op"), [(Usage(), "settle"), (Usage(100, 10, 0, 0.1), "unsettled")])
def test_a_model_that_was_not_asked_how_to_ask_it_leaves_nothing_reserved(usage: Usage, op: str) -> None:
    told: list[str] = []
    head: Any = SimpleNamespace(ask=lambda *args, **fields: {"n": 1}, tell=lambda op, **fields: told.append(op))
    model = ScriptedModel([])
    model.take_usage = [Usage(), usage].pop
    metered = MeteredModel(model, head)
    assert (metered.asking, told) == (model.asking, [op])
    assert metered.take_usage() == usage, "the run charges it"


def test_a_reply_shorter_than_reserved_makes_no_room_beyond_its_minute() -> None:
    now = [0.0]
    ledger = Ledger(Ceilings(tpm=25_000), lambda: now[0])
    ledger.waiting.append(Call(("t", 1), "m", 1000, 16_000, None))
    assert len(list(ledger.answers())) == 1
    now[0] = 30.0
    ledger.settle(("t", 1), 0.0, 1000, 500)
    now[0] = 61.0
    ledger.waiting += [Call(("t", number), "m", 1000, 16_000, None) for number in (2, 3, 4)]
    assert [answer.key[1] for answer in ledger.answers()] == [2, 3]


def test_without_ray_the_extra_is_named(home: Home, server: ScriptedServer) -> None:
    home.write("none/ray.py", "raise ModuleNotFoundError(\"No module named 'ray'\", name='ray')\n")
    home.env["PYTHONPATH"] = str(home.folder / "none")
    text = run(home, tasks(1), "--engine", "ray", code=3)
    assert 'pip install "autoagent[ray]"' in text and len(text.splitlines()) == 1
    assert not (home.folder / "out" / "fleet.jsonl").exists()


@pytest.mark.slow
def test_a_memory_that_runs_share_is_of_their_fleet_alone(home: Home, server: ScriptedServer, redis_url: str) -> None:
    home.env |= {"MEMORY_URL": redis_url, "PYTHONPATH": str(ROOT / "extensions")}
    del home.env["MEMORY_BACKEND"]
    server._every = None
    held = []
    for out in ("one", "other"):
        written = (command("write_to_file", filename=f"{number}.txt", text="a") for number in (1, 2))
        ended = command("task_complete", reason="It is there.")
        server.script = [one for writes in written for one in (writes, ended)]
        text = tasks(2, check="")
        run(home, text, "--memory-url", "-", "--parallel", "1", "--accept-claims", out=out)
        made = record(home.folder / out)[0]["made"]
        own = {"MEMORY_BACKEND": "redis", "MEMORY_INDEX": f"fleet-{made[:16]}"}
        held.append(json.loads(home.run("memory", "list", "--json", env=own).out))
        assert redis_url not in (home.folder / out / "fleet.jsonl").read_text()
    runs = [{memory["run"] for memory in found} for found in held]
    assert [len(one) for one in runs] == [2, 2] and not runs[0] & runs[1]
    refused = home.run("fleet", "tasks.yaml", "-c", "--memory-url", "mysql://here")
    assert refused.code == 2 and "is not the address of a shared memory" in refused.err
