"""Tasks for fleets, the model that does them, and what their logs must say."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from driver import Home
from server import Command, Request, command

PARTS = 3
CALLS = PARTS + 1
USAGE = {"prompt_tokens": 3000, "completion_tokens": 100}
CENTS = (3000 * 2 + 100 * 8) / 1e6  # USD of each call

SMALL_CENTS = (100 * 2 + 10 * 8) / 1e6  # of a verifier's


def worked(request: Request) -> Command:
    """Write one part after the other, as the history says what is written, then finish."""
    for number in range(1, PARTS + 1):
        if f"to part-{number}.txt" not in request.prompt:
            return replace(command("write_to_file", filename=f"part-{number}.txt", text=f"{number}\n"), usage=USAGE)
    return replace(command("task_complete", reason="All parts are written."), usage=USAGE)


def tasks(number: int, **more: Any) -> str:
    """Return a task file as JSON lines."""
    made = [{"id": f"t{n:03}", "goal": "Write all parts", "check": "test -s part-3.txt", **more} for n in range(number)]
    return "\n".join(map(json.dumps, made))


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
    (log,) = (log for log in logs if b"\n" in log.read_bytes())  # not of a run that was killed before it began
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
            elif event["type"] == "returned" and "put_off" not in event["data"]:
                returned.add(begun[event["call_id"]])
