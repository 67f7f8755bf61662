"""Fleets on a Ray cluster of raylets on this machine."""

from __future__ import annotations

import base64
import json
import os
import random
import signal
import time
from pathlib import Path

import pytest
from driver import FINISH, PATIENCE, TEAM_OF_TWO, Hanging, Home
from fleets import (
    CALLS,
    CENTS,
    assert_done_once,
    assert_paced,
    assert_survives_kills,
    assert_used_up,
    lead,
    other_version,
    record,
    results,
    run,
    tasks,
    worked,
)
from raylets import Raylets, below, free_port, in_memory, named
from server import ScriptedServer, command

from autoagent.fleet.engine import GRACE_SECONDS, LEASE_SECONDS

WORKER, RELAY, RAYLET = b"autoagent fleet worker", b"ray::Relay", b"/raylet "

pytestmark = pytest.mark.slow


def test_nodes_do_the_tasks_in_the_folder_that_they_share(home: Home, cluster: Raylets) -> None:
    cluster.add()
    run(home, tasks(3), *cluster.flags, "--parallel", "2")
    assert_done_once(home.folder / "out", ("t000", "t001", "t002"))


def test_a_node_that_does_not_share_the_folder_hands_everything_back(home: Home, cluster: Raylets) -> None:
    cluster.add(hides=home.folder)
    run(home, tasks(2), *cluster.flags, "--parallel", "2")
    assert [line["id"] for line in record(home.folder / "out") if line["type"] == "placed"]
    assert_done_once(home.folder / "out", ("t000", "t001"))
    assert "All parts are written." in home.read("out/t000/output.txt")
    assert results(home)["summary"]["usd"] == pytest.approx(2 * CALLS * CENTS)


def test_a_team_works_on_a_node_that_has_not_its_file(home: Home, server: ScriptedServer, cluster: Raylets) -> None:
    home.write("team.yaml", TEAM_OF_TWO.format("write_to_file"))
    server._every = lambda request: FINISH[0]
    cluster.add(hides=home.folder)
    text = json.dumps({"id": "x", "team": "team.yaml"})
    run(home, text, *cluster.flags, "--accept-claims")


def test_what_bounds_all_runs_together_holds_on_a_cluster(home: Home, server: ScriptedServer, cluster: Raylets) -> None:
    """A budget, to the cent; the pause that an endpoint asks for; the requests a minute."""
    cluster.add(cpus=8)
    run(home, tasks(20), *cluster.flags, "--parallel", "8", "--budget", f"{12 * CALLS * CENTS:.6f}", code=9)
    assert_used_up(home, server, 12 * CALLS)
    assert_paced(home, server, *cluster.flags)


def test_a_cluster_gives_what_this_machine_gives_and_keeps_no_key(home: Home, server: ScriptedServer) -> None:
    """The same workspaces, byte for byte, and the same figures; no file of Ray's has the key, nor what it keeps."""
    key = "sk-" + "a1B2c3D4" * 4
    home.env["OPENAI_API_KEY"] = key
    run(home, tasks(6), out="here")
    with Raylets(home, client=True) as cluster:
        cluster.add()
        cluster.add(hides=home.folder)
        flags = ("--engine", "ray", "--parallel", "3")
        for address, out in ((cluster.address, "there"), (cluster.client, "far")):
            run(home, tasks(6), *flags, "--address", address, out=out)
        keepers = [pid for words in (b"/gcs_server ", RAYLET) for pid in named(below(os.getpid()), words)]
        assert len(keepers) == 4
        for pid in keepers:  # a dashboard shows what these know; an object store is in the memory of its raylet
            assert not in_memory(pid, key.encode()) and in_memory(pid, b"Relay")
        assert server.requests[-1].headers["authorization"] == f"Bearer {key}"
        files = [path for path in (*cluster.folder.rglob("*"), *(home.folder / "there").rglob("*")) if path.is_file()]
        assert len(files) > 50
        for path in files:
            raw = path.read_bytes()
            assert key.encode() not in raw and base64.b64encode(key.encode()) not in raw, path
    for out in ("there", "far"):
        for here in (home.folder / "here").glob("*/workspace/*"):
            there = home.folder / out / here.relative_to(home.folder / "here")
            assert there.read_bytes() == here.read_bytes()
        apart = ("seconds", "folder")
        rows = [{k: v for k, v in row.items() if k not in apart} for row in results(home, out)["runs"]]
        assert rows == [{k: v for k, v in row.items() if k not in apart} for row in results(home, "here")["runs"]]


def test_ctrl_c_while_no_node_is_free_leaves_what_resume_takes_up(home: Home, cluster: Raylets) -> None:
    flags = ("-c", *cluster.flags)
    head = lead(home, tasks(2), *flags)
    while not (home.folder / "out" / "fleet.jsonl").exists() or len(record(home.folder / "out")) < 3:
        time.sleep(0.1)
    second = home.run("fleet", "resume", "out", *flags)
    assert second.code == 1 and "another process leads this fleet" in second.err
    head.send_signal(signal.SIGINT)
    shown, said = head.communicate(timeout=PATIENCE)
    assert head.returncode == 9 and "stopped before a node was free" in shown, shown + said
    cluster.add(hides=home.folder)
    home.succeed("fleet", "resume", "out", *flags)
    assert_done_once(home.folder / "out", ["t000", "t001"])


@pytest.mark.parametrize("signals", [1, 2])
def test_ctrl_c_ends_running_ones_at_their_next_call_or_at_once(
    home: Home, server: ScriptedServer, cluster: Raylets, signals: int
) -> None:
    hanging = Hanging(command("write_to_file", filename="part-1.txt", text="1\n"))
    server.script, server._every = [hanging], None
    cluster.add(hides=home.folder)
    flags = ("-c", *cluster.flags, "--accept-claims")
    head = lead(home, tasks(1, check=""), *flags)
    hanging.is_asked()
    server._every = worked
    for _ in range(signals):
        head.send_signal(signal.SIGINT)
        time.sleep(0.3)
    if signals == 1:
        hanging.leave()
    shown, said = head.communicate(timeout=PATIENCE)
    hanging.leave()
    assert head.returncode == 9, shown + said
    assert home.run("fleet", "resume", "out", *flags).code == 0
    assert_done_once(home.folder / "out", ["t000"])


def test_a_cluster_that_does_not_answer_is_named_in_a_line(home: Home, server: ScriptedServer) -> None:
    pytest.importorskip("ray")
    for address in (f"127.0.0.1:{free_port()}", f"ray://127.0.0.1:{free_port()}"):
        text = run(home, tasks(1), "--engine", "ray", "--address", address, code=1)
        assert f"No Ray cluster answers at '{address}'" in text and len(text.splitlines()) == 1, text
        assert not (home.folder / "out").exists()


def test_a_question_that_nobody_can_be_asked_ends_its_run_and_is_said(home: Home, cluster: Raylets) -> None:
    cluster.add(hides=home.folder)
    head = home.start("fleet", "-", "--out", "out", *cluster.flags)
    shown, said = head.communicate(tasks(1), timeout=PATIENCE)
    assert head.returncode == 9 and "do not reach the inbox" in shown + said
    assert results(home)["runs"][0]["status"] == "unanswered"


def test_a_node_with_another_version_is_named(home: Home, cluster: Raylets) -> None:
    cluster.add(PYTHONPATH=other_version(home))
    text = run(home, tasks(1), *cluster.flags, code=9)
    assert "The worker has autoagent 0.0.9 on Python" in text, text


def test_a_fleet_outlives_kills_of_workers_relays_nodes_and_its_head(
    home: Home, server: ScriptedServer, cluster: Raylets
) -> None:
    number = int(os.environ.get("FLEET_KILLS", "5"))
    nodes = {hides: cluster.add(hides=hides) for hides in (None, home.folder)}

    def by_turns(head: int, turn: int, chance: random.Random) -> None:
        hides = chance.choice([*nodes])
        match turn % 5:
            case 0 | 1:
                pids = [pid for node in nodes.values() for pid in below(node.pid)]
                if not (found := named(pids, RELAY if turn % 5 else WORKER)):
                    raise ProcessLookupError  # not yet: the turn is not over
                os.kill(chance.choice(found), signal.SIGKILL)
            case 2:
                os.kill(named(below(nodes[hides].pid), RAYLET)[0], signal.SIGKILL)
                nodes[hides] = cluster.add(hides=hides)
            case 3:
                cluster.kill(nodes[hides])
                nodes[hides] = cluster.add(hides=hides)
            case 4:
                os.kill(head, signal.SIGKILL)

    assert_survives_kills(home, server, by_turns, *cluster.flags, number=2 * number, kills=number, seed=3)


def test_a_node_that_is_cut_off_ends_its_run_before_another_has_it(
    home: Home, server: ScriptedServer, cluster: Raylets
) -> None:
    hanging = Hanging(command("write_to_file", filename="part-1.txt", text="1\n"))
    server.script, server._every = [hanging], None
    node = cluster.add(hides=home.folder)
    head = lead(home, tasks(1), "-c", *cluster.flags)
    hanging.is_asked()
    server._every = worked
    (worker,) = named(below(node.pid), WORKER)
    (relay,) = named(below(node.pid), RELAY)
    os.kill(relay, signal.SIGSTOP)  # nothing comes through any more
    started = [line for line in record(home.folder / "out") if line["type"] == "started"]
    until = time.monotonic() + LEASE_SECONDS + GRACE_SECONDS + 5
    while Path(f"/proc/{worker}/stat").read_text().split()[2] != "Z":
        assert time.monotonic() < until
        assert [line for line in record(home.folder / "out") if line["type"] == "started"] == started
        time.sleep(0.1)
    hanging.leave()
    _, said = head.communicate(timeout=PATIENCE * 2)
    assert head.returncode == 0, said
    assert_done_once(home.folder / "out", ["t000"])
    assert len([line for line in record(home.folder / "out") if line["type"] == "started"]) == 2
