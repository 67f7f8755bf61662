"""For scripts: `--json` gives events and nothing else on stdout, and every listing a list of objects."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable

import pytest
from driver import FINISH, GOAL, Home
from server import ScriptedServer, command

from autoagent.core.codec import event_from_line
from autoagent.settings import GROUPS


def test_stdout_is_the_log_and_stderr_is_for_the_person(served: Home, server: ScriptedServer) -> None:
    server.add(command("write_to_file", filename="a.txt", text="one"), *FINISH)
    done = served.succeed("--json", "-m", "none", stdin="\nA\nB\nC\n\ny -9\n")
    assert done.events == served.log()
    lines = done.out.encode().splitlines()[:3]
    assert [event_from_line(line).type for line in lines] == ["run_started", "spent", "prompted"]
    assert done.events[-1]["status"] == "finished"
    assert "Name of the AI" in done.err
    assert "Run it? y = yes" in done.err
    assert "Files changed: a.txt" in done.err

    shown = served.run("show", served.runs[0], "--json")
    assert (shown.events, shown.err) == (served.log(), "")

    server.add(*FINISH)
    continuous = served.run("--json", "-c", "-m", "none", *GOAL, "--skip-news")
    assert continuous.events == served.log()
    assert "Continuous mode" in continuous.err


@pytest.mark.parametrize(
    ("flags", "code", "status"),
    [
        (["--model", "gpt-5", *GOAL], 3, "setup"),
        ([], 3, "setup"),
        (["--model", "human"], 5, "unanswered"),
        (["resume", "nothing"], 1, "failed"),
    ],
)
def test_an_end_before_the_run_is_an_event_too(home: Home, flags: list[str], code: int, status: str) -> None:
    arguments = [*flags, "--json"]
    done = home.run(*arguments)
    assert done.code == code, done.text
    [ended] = done.events
    assert (ended["type"], ended["status"], ended["run"]) == ("ended", status, "")
    assert event_from_line(json.dumps(ended).encode()).type == "ended"
    assert ended["reason"] in done.err
    assert home.runs == []


def test_an_endpoint_that_is_down_ends_with_an_event(home: Home, server: ScriptedServer) -> None:
    home.point_at(server)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        away = f"http://127.0.0.1:{listening.getsockname()[1]}/v1"
    done = home.exits(1, "--json", *GOAL, "-c", "--patience", "1", env={"OPENAI_BASE_URL": away})
    [ended] = done.events
    assert (ended["type"], ended["status"]) == ("ended", "failed")
    assert f"nothing answers at {away} (connection refused)" in ended["reason"]


def test_resume_goes_on_with_the_events_of_this_process(home: Home) -> None:
    unanswered = home.exits(5, "--demo", "--json", "-m", "none", stdin="y\n")
    assert "pass -c to run without questions" in " ".join(unanswered.err.split())
    assert "Run it? y = yes" in unanswered.err and "Resume: autoagent resume" in unanswered.err
    assert [event["type"] for event in unanswered.events][:3] == ["run_started", "prompted", "thought"]
    before = len(home.log())
    done = home.succeed("resume", "--json", "-c")
    assert done.events == home.log()[before:]
    assert done.events[0]["type"] == "resumed"


def test_runs_are_listed_the_newest_first(home: Home) -> None:
    empty = home.succeed("runs")
    assert (empty.out, empty.err) == ("", "There are no runs in .autoagent.\n")
    assert json.loads(home.run("runs", "--json").out) == []
    assert home.run("--demo", "-m", "none", "-c").code == 0
    assert home.run("--demo", "-m", "none", "-w", "other", stdin="y\nn\n").code == 6
    rows = json.loads(home.run("runs", "--json").out)
    fields = {"id", "name", "status", "steps", "cost", "updated", "workspace", "parent", "goals", "proofs"}
    assert set(rows[0]) == fields
    rows.sort(key=lambda row: row["updated"], reverse=True)
    assert [(row["status"], row["steps"], row["cost"]) for row in rows] == [("stopped", 2, 0.0), ("finished", 4, 0.0)]
    assert rows[0]["workspace"] == str(home.folder / "other")
    assert rows[0]["goals"][0] == "Write a haiku about autumn to haiku.txt"
    listed = home.run("runs").text
    assert len(listed.splitlines()) == 2
    assert all(row["id"] in listed and row["status"] in listed for row in rows)

    shown = home.run("show", rows[1]["id"]).text
    assert "DEMOGPT THOUGHTS: Autumn in three lines" in shown
    assert "FINISHED: haiku.txt holds a haiku about autumn" in shown
    assert "Files changed: haiku.txt" in shown


def test_a_log_is_read_again_only_once_it_has_changed(home: Home) -> None:
    assert home.run("--demo", "-m", "none", "-w", "other", stdin="y\nn\n").code == 6
    listed = home.run("runs").out
    kept = home.state / "runs" / home.runs[0] / "row"
    kept.write_text((whole := kept.read_text()).replace("Write a haiku", "As it was kept"))
    assert "As it was kept" in home.run("runs").out, "the log was not read"
    spoil: list[Callable[[], object]] = [
        lambda: kept.write_text(whole.partition("\n")[0] + '\n{"id": 1}'),
        lambda: kept.symlink_to(home.folder / "elsewhere"),
        lambda: os.mkfifo(kept),
    ]
    for each in spoil:
        kept.unlink()
        each()
        assert home.run("runs").out == listed
        assert kept.read_text() == whole, "and it is kept anew"
    assert home.run("resume", "-c").code == 0
    [row] = json.loads(home.run("runs", "--json").out)
    assert (row["status"], row["steps"]) == ("finished", 4)


def test_commands_say_why_they_cannot_be_used(home: Home) -> None:
    rows = {row["name"]: row for row in json.loads(home.run("commands", "--json").out)}
    assert rows["read_file"]["signature"] == "read_file(filename, first_line=1, lines=None, column=1)"
    assert rows["read_file"]["reason"] == ""
    assert rows["task_complete"]["aliases"] == ["goals_accomplished", "shutdown"]
    off = home.run("commands", "--json", env={"DISABLED_COMMAND_CATEGORIES": "memory", "MEMORY_BACKEND": "none"})
    rows = {row["name"]: row for row in json.loads(off.out)}
    assert rows["recall"]["reason"] == "the category memory is switched off (DISABLED_COMMAND_CATEGORIES)"
    assert rows["read_file"]["reason"] == ""
    said = home.run("commands", env={"MEMORY_BACKEND": "none"}).text
    assert "memory_add(text, about_user=False) [remember]" in said
    assert "NOT HERE: the memory is switched off (MEMORY_BACKEND=none)" in said


def test_settings_and_their_origins(home: Home) -> None:
    home.write(".env", "TEMPERATURE=0.7\nSMART_LLM=from-dotenv\n")
    done = home.run("--state-dir", "mine", "config", "--json", env={"SMART_LLM": "from-env"})
    rows = {row["name"]: (row["value"], row["origin"]) for row in json.loads(done.out)}
    assert rows["temperature"] == (0.7, ".env:1")
    assert rows["smart_llm"] == ("from-env", "environment: SMART_LLM")
    assert rows["state_dir"] == ("mine", "flag")
    assert rows["exit_key"] == ("n", "default")
    short = home.run("config", "--show-origin")
    models = "The models:\n  smart_llm = from-dotenv  (.env:2)\n  temperature = 0.7  (.env:1)\n"
    assert short.out == models + "Memory:\n  memory_distil = False  (environment: MEMORY_DISTIL)\n"
    assert f"{len(rows) - 3} of {len(rows)} settings have their default values; --all shows them." in short.err
    origins = home.run("--state-dir", "mine", "config", "--show-origin", "--all").out
    assert "  state_dir = mine  (flag)\n" in origins and "  exit_key = n  (default)\n" in origins
    every = home.run("config", "--all").out
    assert all(f"  {name} = " in every for name in rows)
    assert [line[:-1] for line in every.splitlines() if not line.startswith(" ")] == [
        *GROUPS.values(), "AutoGPT plug-ins", "Repositories", "MCP servers", "Pictures, recordings, speech", "Tweets",
    ]  # fmt: skip


def test_the_state_folder_is_named_before_or_after_the_subcommand(home: Home) -> None:
    assert home.run("run", "--demo", "-c", "-m", "none", "--state-dir", "mine").code == 0
    listed = home.run("--state-dir", "mine", "runs", "--json").out
    assert len(json.loads(listed)) == 1
    assert home.run("runs", "--json", "--state-dir", "mine", "--debug").out == listed
    assert json.loads(home.run("--state-dir", "other", "memory", "list", "--json", "--state-dir", "mine").out) == []
    rows = {row["name"]: row["value"] for row in json.loads(home.run("config", "--json", "--state-dir", "x").out)}
    assert rows["state_dir"] == "x"
    for subcommand in (("doctor",), ("commands",), ("setup",), ("show",), ("resume",), ("model", "list")):
        assert "--state-dir DIR" in home.run(*subcommand, "--help").out
    assert not home.state.exists()
