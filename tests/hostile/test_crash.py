"""D61 to D63: a kill at the worst moment, locks that are stale, two processes at once."""

from __future__ import annotations

import json
import os
import signal
from contextlib import ExitStack

import pytest
from cli.driver import FINISH, GOAL, PATIENCE, Hanging
from processes import wait_for
from server import ScriptedServer, command

from .driver import Room, shell, write

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("either")]  # a process for each


def lines(made: Room) -> list[str]:
    text = (made.state / "runs" / made.runs[-1] / "events.jsonl").read_text()
    return [line.replace(": ", ":") for line in text.splitlines()]


def test_d61_killed_while_it_thinks(made: Room) -> None:
    hanging = Hanging()
    with made.served(write("a.txt", "one"), hanging, *FINISH):
        process = made.start("-c", *GOAL, "-m", "none")
        hanging.is_asked()
        process.kill()
        process.communicate()
        hanging.leave()
        made.succeed("resume", "-c")
    assert [event["call"]["name"] for event in made.log() if event["type"] == "started"].count("write_to_file") == 1
    assert all(event["known"] for event in made.log() if event["type"] == "returned")


def test_d61_killed_while_a_command_runs(made: Room) -> None:
    slow = shell("echo ran >>count; sleep 60")
    with made.served(slow, *FINISH) as server:
        process = made.start("-c", *GOAL, "-m", "none")
        wait_for(lambda: made.runs and any('"type":"started"' in line for line in lines(made)))
        wait_for((made.workspace / "count").exists)
        process.kill()
        process.communicate()
        done = made.succeed("resume", "-c")
        assert "may have run" in done.text
        assert any("may have run" in request.prompt for request in server.requests)
    assert made.read("autoagent_workspace/count") == "ran\n", "never silently run again"
    unknown = [event for event in made.log() if event["type"] == "returned" and not event["known"]]
    assert len(unknown) == 1


def test_d62_a_lock_holds_for_a_live_process_alone(made: Room) -> None:
    hanging = Hanging()
    with made.served(hanging, *FINISH):
        process = made.start("-c", *GOAL, "-m", "none")
        hanging.is_asked()
        second = made.run("resume", made.runs[0], "-c")
        assert second.code == 1, second.text
        assert made.runs[0] in second.text
        process.send_signal(signal.SIGKILL)
        process.communicate()
        hanging.leave()
        for path in made.state.rglob("*lock*"):  # what a dead program left behind, with the pid of a live one
            path.write_text(str(os.getpid()))
        assert made.run("resume", made.runs[0], "-c").code == 0


def test_d63_two_processes_add_memories(made: Room) -> None:
    """Two runs over one state, each of which remembers all its steps."""
    each = 200
    with ExitStack() as servers:
        running = []
        for who in ("a", "b"):
            looks = [{"pattern": f"{who}-{number}", "directory": "."} for number in range(each - len(FINISH))]
            steps = [command("search_in_files", **look) for look in looks]
            made.point_at(servers.enter_context(ScriptedServer(*steps, *FINISH)))
            running.append(made.start("-c", *GOAL, "-w", who))
        for process in running:
            _, err = process.communicate(timeout=10 * PATIENCE)
            assert (process.returncode, "not remembered" in err) == (0, False), err
    listed = json.loads(made.run("memory", "list", "--json", "--limit", "2000").out)
    found = {memory["text"] for memory in listed if "search_in_files" in memory["text"]}
    assert len(found) == 2 * (each - len(FINISH)), "the finish is the same for both, and remembered once"
    assert len({memory["run"] for memory in listed}) == 2
