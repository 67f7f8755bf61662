"""Tasks for fleets, the model that does them, and what their logs must say."""

from __future__ import annotations

import json
import random
import re
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from driver import PATIENCE, Home
from server import Command, Fault, Request, ScriptedServer, command

from autoagent.fleet.folder_copy import FolderSender, receive

PARTS = 3
CALLS = PARTS + 1
USAGE = {"prompt_tokens": 3000, "completion_tokens": 100}
CENTS = (3000 * 2 + 100 * 8) / 1e6  # USD of each call
UNKNOWN = "The program ended while this command ran"  # so that nobody knows whether it was done
SMALL_CENTS = (100 * 2 + 10 * 8) / 1e6  # of a verifier's


def worked(request: Request) -> Command:
    """Write one part after the other, as the history says what is written, then finish."""
    for number in range(1, PARTS + 1):
        if not re.search(rf"to part-{number}\.txt|part-{number}\.txt already has exactly this text", request.prompt):
            return replace(command("write_to_file", filename=f"part-{number}.txt", text=f"{number}\n"), usage=USAGE)
    return replace(command("task_complete", reason="All parts are written."), usage=USAGE)


def tasks(number: int, **more: Any) -> str:
    """Return a task file as JSON lines. With the check "", the tasks have none."""
    made = [{"id": f"t{n:03}", "goal": "Write all parts", "check": "test -s part-3.txt", **more} for n in range(number)]
    return "\n".join(map(json.dumps, made))


def run(home: Home, text: str, *flags: str, out: str = "out", code: int = 0) -> str:
    """Lead a fleet of the tasks in a text to its end, with this exit code. Return all that it showed."""
    head = home.start("fleet", "-", "-c", "--out", out, *flags)
    shown, said = head.communicate(text, timeout=PATIENCE * 10)
    assert "Traceback" not in shown + said and head.returncode == code, (head.returncode, shown + said)
    return shown + said


def lead(home: Home, text: str, *flags: str) -> subprocess.Popen[str]:
    """Start to lead a fleet of the tasks in a text, in the folder `out`."""
    head = home.start("fleet", "-", "--out", "out", *flags)
    head.stdin.write(text)
    head.stdin.close()
    head.stdin = None
    return head


def record(out: Path) -> list[dict[str, Any]]:
    """Return the lines of a fleet's record."""
    return [json.loads(line) for line in (out / "fleet.jsonl").read_text().splitlines()]


def results(home: Home, out: str = "out") -> dict[str, Any]:
    """Return what `fleet results --json` says."""
    found: dict[str, Any] = json.loads(home.run("fleet", "results", out, "--json").out)
    return found


def events(out: Path, id: str) -> list[dict[str, Any]]:
    """Return the events of a run of a fleet."""
    logs = (out / id / "state" / "runs").glob("*/events.jsonl")
    (log,) = (log for log in logs if b'"type":"run_started"' in log.read_bytes())  # not of one killed before it began
    return [json.loads(line) for line in log.read_text().splitlines()]


def assert_done_once(out: Path, ids: Iterable[str]) -> None:
    """Check that each run finished in one log, with the workspace of a run that nobody killed, nothing run twice."""
    for id in ids:
        written = {path.name: path.read_text() for path in (out / id / "workspace").iterdir()}
        assert written == {f"part-{n}.txt": f"{n}\n" for n in range(1, PARTS + 1)}
        log = events(out, id)
        assert [event["status"] for event in log if event["type"] == "ended"][-1] == "finished"
        begun: dict[str, str] = {}  # of each call that has begun, its command and arguments
        returned: set[str] = set()
        for event in log:
            if event["type"] == "started":
                call = event["call"]
                begun[call["id"]] = json.dumps([call["name"], call["args"]])
                assert begun[call["id"]] not in returned, f"{id} did again what had returned: {call}"
            elif event["type"] == "returned" and "put_off" not in event["data"] and UNKNOWN not in str(event):
                returned.add(begun[event["call_id"]])


def assert_used_up(home: Home, server: ScriptedServer, paid: int) -> None:
    """Check that what was spent is within the budget, to the cent: the next call would not have fitted."""
    found = results(home)["summary"]
    assert found["usd"] == pytest.approx(len(server.requests) * CENTS)
    assert paid * CENTS - 0.01 < found["usd"] <= paid * CENTS + 1e-9
    assert found["unknown_usd"] == 0.0


def assert_paced(home: Home, server: ScriptedServer, *flags: str) -> None:
    """Check that all runs pause for as long as an endpoint asks, and share the requests of a minute."""
    times: list[float] = []
    refused: list[float] = []

    def refuse(request: Request) -> Fault | None:
        """Refuse every third request for a second."""
        times.append(time.monotonic())
        if len(times) % 3:
            return None
        refused.append(times[-1])
        return Fault(429, "too many requests", headers={"Retry-After": "1"})

    server.refuses = refuse
    run(home, tasks(2), *flags, "--parallel", "2", out="refused")
    assert_done_once(home.folder / "refused", ["t000", "t001"])
    early = [t - r for r in refused for t in times if 0.7 < t - r < 0.95]  # later than those on their way then
    assert len(refused) >= 3 and not early, early

    times.clear()
    server.refuses = lambda request: times.append(time.monotonic())
    run(home, tasks(2), *flags, "--parallel", "2", "--rpm", "240", out="spaced")
    assert times[-1] - times[0] >= (len(times) - 1) * 0.25 - 1.0  # the first waits for imports


def children(pid: int) -> list[int]:
    """Return the processes that a process has started."""
    found: list[int] = []
    with suppress(FileNotFoundError, ProcessLookupError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            found += map(int, (task / "children").read_text().split())
    return found


Kill = Callable[[int, int, random.Random], None]
"""Kills something of a fleet, given its head, the number of the turn, and chance."""


def assert_survives_kills(
    home: Home, server: ScriptedServer, kill: Kill, *flags: str, number: int, kills: int, seed: int, longest: float = 4
) -> None:
    """Kill at random moments, and check that nothing is lost, nothing done twice, and no money counted twice."""
    chance, out = random.Random(seed), home.folder / "out"
    home.write("tasks.jsonl", tasks(number, check=""))
    flags = ("-c", "--parallel", "3", "--retries", "9", "--accept-claims", *flags)
    done = 0
    while True:
        begun = (out / "fleet.jsonl").exists()
        head = home.start("fleet", *(("resume", "out") if begun else ("tasks.jsonl", "--out", "out")), *flags)
        while head.poll() is None and done < kills:
            time.sleep(chance.uniform(0.5, longest))
            with suppress(ProcessLookupError):
                kill(head.pid, done, chance)
                done += 1
        shown, err = head.communicate(timeout=PATIENCE * number)
        assert "raylet" not in shown + err, shown + err
        if head.returncode == 0:
            break
        assert head.returncode == -signal.SIGKILL, err
    assert done >= 2
    ids = [f"t{n:03}" for n in range(number)]
    assert_done_once(out, ids)
    ends = Counter(line["id"] for line in record(out) if line["type"] == "ended" and line["status"] == "finished")
    assert ends == dict.fromkeys(ids, 1)
    found = results(home)
    paid = [event for id in ids for event in events(out, id) if event.get("usage")]
    assert found["summary"]["usd"] == pytest.approx(sum(event["usage"]["cost"] for event in paid), abs=1e-6)
    served = len(server.requests) * CENTS + len(server.verifications) * SMALL_CENTS
    known = sum(event["usage"]["cost"] for event in paid if event["type"] != "spent")  # a call that was cut off
    assert known <= served + 1e-9
    assert served <= found["summary"]["usd"] + found["summary"]["unknown_usd"] + 1e-9


def other_version(home: Home) -> str:
    """Return a folder for PYTHONPATH with which a worker is another version of the program."""
    home.write(
        "other/sitecustomize.py",
        "import sys\nif 'worker' in sys.orig_argv:\n    import autoagent\n    autoagent.__version__ = '0.0.9'\n",
    )
    return str(home.folder / "other")


class Copying:
    """A folder `here`, the folder `there` that is to become its copy, and what was `said` of skipped files."""

    def __init__(self, base: Path) -> None:
        self.here, self.there = base / "here", base / "there"
        for folder in (self.here / "workspace", self.here / "state", self.there):
            folder.mkdir(parents=True)
        self.said: list[str] = []
        self.sender = FolderSender(self.here, self.said.append)

    def changes(self, **options: bool) -> Iterator[Any]:
        """Send the changes, and yield each after its arrival."""
        for change in self.sender.changes(**options):
            receive(self.there, json.loads(json.dumps(change)))
            yield change

    def update(self) -> None:
        for _ in self.changes():
            pass
