"""The durable log: what is acknowledged is there, what is torn is dropped, what is damaged is named."""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from processes import full_disk

from autoagent.core.commands import Call
from autoagent.core.errors import StateError
from autoagent.core.events import Ended, Event, Feedback, Forked, Recalled, Rewound, Spent, SystemNotice, Thought
from autoagent.core.model import Thoughts, Usage
from autoagent.core.task import Status
from autoagent.log.event_log import EventLog
from autoagent.log.reader import is_cut_off, read, run_ids


def write(state: Path, *texts: str) -> str:
    with EventLog.create(state) as log:
        for text in texts:
            log.append(Feedback(text=text))
        return log.run


def texts(events: list[Event]) -> list[str]:
    return [event.text for event in events if isinstance(event, (Feedback, SystemNotice))]


def test_events_come_back_stamped_and_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.time", lambda: 12.5)
    with EventLog.create(tmp_path) as log:
        stamped = log.append(Feedback(step=3, text="naïve ☃ \ud800"))
    (event,) = read(tmp_path, log.run)
    assert (stamped.run, stamped.seq, stamped.step, stamped.t) == (log.run, 0, 3, 12.5)
    assert event == stamped
    assert texts([event]) == ["naïve ☃ \ud800"], "even half a character comes back"


def test_a_log_is_written_where_python_has_no_fdatasync_as_on_macos(tmp_path: Path) -> None:
    code = (
        "import os; del os.fdatasync; from pathlib import Path; from autoagent.core.events import Feedback;"
        "from autoagent.log.event_log import EventLog;"
        f"EventLog.create(Path({str(tmp_path)!r})).append(Feedback(text='x'))"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    assert texts(list(read(tmp_path, *run_ids(tmp_path)))) == ["x"]


def test_any_thread_may_append(tmp_path: Path) -> None:
    with EventLog.create(tmp_path) as log:
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda _: [log.append(SystemNotice(text="x" * 500)) for _ in range(50)], range(4)))
        assert [event.seq for event in log.events()] == list(range(200))


def test_folders_and_files_are_private(tmp_path: Path) -> None:
    run = write(tmp_path / "state", "x")
    modes = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "state").rglob("*")}
    files = dict.fromkeys((".gitignore", "events.jsonl", "holder"), 0o600)
    assert modes == {"runs": 0o700, run: 0o700, **files}


def test_a_torn_last_line_is_dropped_and_the_run_goes_on(tmp_path: Path) -> None:
    run = write(tmp_path, "one", "two")
    path = tmp_path / "runs" / run / "events.jsonl"
    whole = path.read_bytes()
    for cut in range(1, len(whole.splitlines()[-1]) + 1):
        path.write_bytes(whole[:-cut])
        assert texts(list(read(tmp_path, run))) == ["one"]
        with EventLog.open(tmp_path, run) as log:
            log.append(SystemNotice(text="three"))
            assert texts(list(log.events())) == ["one", "three"]


def test_a_log_that_was_refused_is_not_held(tmp_path: Path) -> None:
    run = write(tmp_path, *["x" * 50] * 5)
    path = tmp_path / "runs" / run / "events.jsonl"
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(StateError):
        EventLog.open(tmp_path, run)
    with EventLog.open(tmp_path, run, accept_truncated=True) as log:
        assert log.lost > 1


def test_a_second_process_is_told_who_holds_the_run(tmp_path: Path) -> None:
    code = (
        "from pathlib import Path; from autoagent.log.event_log import EventLog;"
        f"log = EventLog.create(Path({str(tmp_path)!r})); print(log.run, flush=True); input()"
    )
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    holder = subprocess.Popen([sys.executable, "-c", code], text=True, **pipes)
    try:
        assert holder.stdout is not None
        run = holder.stdout.readline().strip()
        with pytest.raises(StateError, match=f"held by process {holder.pid}"):
            EventLog.open(tmp_path, run)
    finally:
        holder.kill()
        holder.communicate()
    with EventLog.open(tmp_path, run):
        pass  # the lock went with the process, and what it left behind does not count
    assert (tmp_path / "runs" / run / "holder").exists()


def test_a_log_is_cut_off_where_its_own_run_has_not_ended(tmp_path: Path) -> None:
    with EventLog.create(tmp_path) as log:
        log.append(Feedback(text="x"))
        log.append(Ended(status=Status.FINISHED, reason="", agent="1"))
        assert is_cut_off(log.path), "a sub-agent's end is not the run's"
        log.append(Ended(status=Status.FINISHED, reason=""))
        assert not is_cut_off(log.path)


def test_ids_sort_as_the_runs_began_also_within_one_instant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = []
    for now in (1e9, 1e9, 1e9 + 0.25, 1e9 + 0.25, 1e9 + 1):
        monkeypatch.setattr("time.time", lambda now=now: now)
        with EventLog.create(tmp_path) as log:
            runs.append(log.run)
    assert runs == sorted(set(runs))
    assert run_ids(tmp_path) == runs[::-1]


def test_a_state_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StateError, match=r"Cannot write the log .*file/state: Not a directory"):
        EventLog.create(tmp_path / "file" / "state")


def test_a_run_that_a_full_disk_keeps_from_beginning_leaves_nothing_behind(tmp_path: Path) -> None:
    write(tmp_path)
    before = {*tmp_path.rglob("*"), *Path("/proc/self/fd").iterdir()}
    with full_disk(100), pytest.raises(StateError, match="File too large"):
        EventLog.create(tmp_path, lines=b"x" * 200)
    assert {*tmp_path.rglob("*"), *Path("/proc/self/fd").iterdir()} == before


def step(number: int) -> Thought:
    usage = Usage(10 * number, 1, 0, 0.1)
    return Thought(step=number, thoughts=Thoughts(), call=Call(str(number), "do_nothing", {}), text="", usage=usage)


def test_what_was_taken_back_does_not_count_but_for_its_cost(tmp_path: Path) -> None:
    with EventLog.create(tmp_path) as log:
        for number in (1, 2, 3):
            log.append(Recalled(step=number, query="q", memories=()))
            log.append(step(number))
            log.append(SystemNotice(step=7, agent="a", text=f"of another agent, in step {number} of the run"))
        log.append(Rewound(step=3, to=1, tree=""))
        log.append(step(4))
        log.append(step(5))
        log.append(Rewound(step=5, to=4, tree=""))
        run = log.run
    with EventLog.open(tmp_path, run) as log:
        heard: list[Event] = []
        log.on_replay(heard.append)
        counting = list(log.effective())
        assert heard == counting
        assert len(list(log.events())) == 13, "nothing is taken out of the log"
        assert [event.seq for event in log.events(sub_agents=True)] == [2, 5, 8]
        assert log.append(step(6)).seq == 13
    assert [event.step for event in counting if isinstance(event, Thought)] == [1, 4]
    assert [event.usage.prompt for event in counting if isinstance(event, Spent)] == [20, 30, 50]
    assert texts(counting) == ["of another agent, in step 1 of the run"]
    assert not any(isinstance(event, Recalled) for event in counting)


def test_a_fork_begins_with_the_lines_of_its_origin(tmp_path: Path) -> None:
    run = write(tmp_path, "one", "two", "three")
    with EventLog.fork(tmp_path, run, 2) as log:
        assert log.append(Forked(origin=run, at=0)).seq == 2
        first, second = ((tmp_path / "runs" / name / "events.jsonl").read_bytes() for name in (run, log.run))
        assert second.splitlines()[:2] == first.splitlines()[:2]
        assert [event.run for event in log.events()] == [run, run, log.run]
        with pytest.raises(StateError, match="is held by process"):
            EventLog.open(tmp_path, log.run)
    assert {path.name for path in (tmp_path / "runs" / log.run).iterdir()} == {"events.jsonl", "holder"}
    assert texts(list(read(tmp_path, run))) == ["one", "two", "three"]


def test_events_of_some_kinds_are_read_alone(tmp_path: Path) -> None:
    """By whatever JSON writer a line was written."""
    run = write(tmp_path, "one", "two")
    with EventLog.open(tmp_path, run) as log:
        log.append(Ended(status=Status.FINISHED, reason='"type":"feedback"'))
    path = tmp_path / "runs" / run / "events.jsonl"
    lines = path.read_text().splitlines()
    path.write_text("\n".join([lines[0], json.dumps(json.loads(lines[1]), indent=None, sort_keys=True), lines[2], ""]))
    assert [event.type for event in read(tmp_path, run, (Ended,))] == ["ended"]
    assert texts(list(read(tmp_path, run, (Feedback, SystemNotice)))) == ["one", "two"]
