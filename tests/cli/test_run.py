"""What the flags and files of a run do, seen on the screen, in the requests and in the folder."""

from __future__ import annotations

import json
import os
import re
import stat
import venv
from pathlib import Path

import pytest
from driver import FINISH, GOAL, Home
from fakes import judging
from server import Broken, Command, Fault, Reply, Request, ScriptedServer, command
from test_session import opened
from warm import LOADED_WITH

SAVED = "ai_name: SavedGPT\nai_role: a saved one\nai_goals:\n- A saved goal\n- Goal 2: with a colon\n"
MODELS = {"SMART_LLM": "smart", "FAST_LLM": "fast"}


def test_flags_alone_make_the_prompt(served: Home, server: ScriptedServer) -> None:
    served.write(
        "mine.yaml",
        "constraints: [Never hurry.]\nresources: [A quiet room.]\nperformance_evaluations: [Be kind to the reader.]\n",
    )
    server.add(*FINISH)
    task = ("--ai-name", "FlagGPT", "--ai-role", "a flagged one", "--ai-goal", "First", "--ai-goal", "Second")
    places = ("-P", "mine.yaml", "-w", "elsewhere", "--state-dir", "state", "-m", "none")
    ignored = ("-b", "chrome", "--allow-downloads", "--speak", "--install-plugin-deps", "--skip-news")
    chosen = ("--gpt3only", "--commands", "read_file,system")
    done = served.succeed("-c", *task, *places, *ignored, *chosen, env={**MODELS, "TEMPERATURE": "0.5"})
    assert {request.body["model"] for request in [*server.probes, *server.requests]} == {"fast"}
    assert "MODEL: fast, window 32,000 tokens, at 127.0.0.1:" in done.text
    prompt = server.requests[0].prompt
    for told in ("You are FlagGPT, a flagged one", "1. First\n2. Second", "1. Never hurry.\n\n",
                 "1. A quiet room.\n\n", "1. Be kind to the reader.\n\n"):  # fmt: skip
        assert told in prompt
    offered = [tool["function"]["name"] for tool in server.requests[0].body["tools"]]
    without_ask_user = ["read_file", "read_result", "do_nothing", "wait_for", "task_complete"]  # nobody is there
    assert offered == without_ask_user
    described = re.findall(r'"filename": .*?}|"first_line": .*?}', json.dumps(server.requests[0].body["tools"]))
    assert [text.count("description") for text in described] == [1, 1, 0, 1], "each argument is described once"
    assert server.requests[0].body["temperature"] == 0.5
    assert (served.folder / "elsewhere").is_dir()
    assert len(list((served.folder / "state" / "runs").iterdir())) == 1
    assert sorted(path.name for path in served.folder.iterdir()) == [".local", "elsewhere", "mine.yaml", "state"]
    assert done.text.startswith("Continuous mode: commands run without a question")


@pytest.mark.slow
def test_a_command_whose_package_is_missing_is_not_offered_and_what_to_install_is_said(
    served: Home, server: ScriptedServer
) -> None:
    hiding = "import sys\nsys.modules |= {'playwright': None, 'tweepy': None}\n"
    hidden = served.write("without/sitecustomize.py", hiding)
    keys = ("TW_CONSUMER_KEY", "TW_CONSUMER_SECRET", "TW_ACCESS_TOKEN", "TW_ACCESS_TOKEN_SECRET")
    env = {**dict.fromkeys(keys, "key-0123456789"), "USE_WEB_BROWSER": "chromium"}
    env["PYTHONPATH"] = os.pathsep.join((str(hidden.parent), LOADED_WITH["PYTHONPATH"]))
    browser = "playwright is not installed, which -b/USE_WEB_BROWSER asks for"
    tweets = "tweepy is not installed, which a tweet with all four TW_ keys asks for"
    reasons = {row["name"]: row["reason"] for row in json.loads(served.run("commands", "--json", env=env).out)}
    for name in ("browse_website", "get_text_summary", "get_hyperlinks"):
        assert reasons[name] == "", "pages come without a browser"
    assert reasons["send_tweet"] == f"{tweets}; pip install 'autoagent[twitter]'"
    server.add(*FINISH)
    done = served.succeed("-c", *GOAL, "--commands", "all", env=env)
    said = " ".join(done.text.split())
    assert f"{browser}: pip install 'autoagent[browser]'. Pages are read without a browser" in said
    offered = {tool["function"]["name"] for tool in server.requests[0].body["tools"]}
    assert "web_search" in offered
    assert offered.isdisjoint(name for name, reason in reasons.items() if reason)
    findings = {row["check"]: row for row in json.loads(served.run("doctor", "--json", env=env).out)}
    assert (findings["browser"]["found"], findings["twitter"]["found"]) == (browser, tweets)
    assert findings["twitter"]["mend"] == "pip install 'autoagent[twitter]'"


def test_saved_settings_are_taken_and_flags_go_before_them(served: Home, server: ScriptedServer) -> None:
    served.write("ai_settings.yaml", SAVED)
    served.write("other.yaml", SAVED.replace("SavedGPT", "OtherGPT"))
    server.add(*FINISH * 3)
    assert served.run("-y", "-c", "-m", "none").code == 0
    assert "You are SavedGPT, a saved one" in server.requests[0].prompt
    assert "1. A saved goal\n2. Goal 2: with a colon" in server.requests[0].prompt
    assert served.run("-C", "other.yaml", "--skip-reprompt", "-c", "-m", "none", "--gpt4only", env=MODELS).code == 0
    assert "You are OtherGPT, a saved one" in server.requests[1].prompt
    flags = ("--ai-role", "a new one", "--model", "named")
    served.succeed(*flags, "-c", "-m", "none", env={**MODELS, "AI_SETTINGS_FILE": "other.yaml"})
    assert "You are OtherGPT, a new one" in server.requests[2].prompt
    assert served.read("ai_settings.yaml") == SAVED
    models = [request.body["model"] for request in server.requests]
    assert models == ["test-model", "smart", "named"]


@pytest.mark.parametrize(
    ("rejects", "ignores", "asking"),
    [((), (), "tools"), (("tools",), (), "schema"), (("response_format",), ("tools",), "text")],
)
def test_the_way_of_asking_is_found_out_once(
    home: Home, rejects: tuple[str, ...], ignores: tuple[str, ...], asking: str
) -> None:
    with ScriptedServer(*FINISH * 2, rejects=rejects, ignores=ignores) as server:
        home.point_at(server)
        for _ in range(2):
            assert home.run(*GOAL, "-c", "-m", "none").code == 0
            assert home.log()[0]["asking"] == asking
            probes, refused = len(server.probes), len(server.refused)
            server.on_probe = lambda request: Fault(500, "probed again", headers={"x-should-retry": "false"})
        assert (len(server.probes), len(server.refused)) == (probes, refused)
        assert ("tools" in server.requests[-1].body) is (asking == "tools")
        assert ("response_format" in server.requests[-1].body) is (asking == "schema")


def test_answers_on_a_pipe_are_read_as_if_typed(served: Home, server: ScriptedServer) -> None:
    server.add(
        command("write_to_file", filename="a.txt", text="one"),
        command("write_to_file", filename="b.txt", text="two"),
        command("ask_user", question="Which colour?"),
        *FINISH,
    )
    answers = ["", "PipedGPT", "an AI on a pipe", "Write two files", "", "", "rather b.txt", "y -2", "green", "y", "y"]
    done = served.succeed("-m", "none", stdin="\n".join(answers) + "\n")
    assert not (served.folder / "autoagent_workspace" / "a.txt").exists()
    assert served.read("autoagent_workspace/b.txt") == "two"
    told = {0: "You are PipedGPT, an AI on a pipe", 1: "Human feedback: rather b.txt", 3: "The user answered: green"}
    assert all(text in server.requests[number].prompt for number, text in told.items())
    assert "The agent asks: Which colour?" in done.out
    assert "ai_name: PipedGPT" in served.read("ai_settings.yaml")
    assert "\nGoal 1: Write two files\nGoal 2: \nSaved in ai_settings.yaml.\n" in done.err


def test_without_a_terminal_one_line_says_what_to_pass(home: Home) -> None:
    saved = "autoagent: an answer was needed and the input has ended; "
    nothing = home.exits(3)
    way_out = "set OPENAI_API_KEY or OPENAI_BASE_URL, or pass --model local or --demo"
    assert nothing.err.endswith(f"\nautoagent: no model is set up: {way_out}\n")
    alone = home.run("-c", "do it")
    assert (alone.code, alone.err) == (3, f"autoagent: no model is set up: {way_out}\n"), "nobody reads a menu"
    no_task = home.exits(5, "--model", "human", "-c")
    assert f"\n{saved}pass --ai-name, --ai-role and --ai-goal, or a saved ai_settings.yaml with -y\n" in no_task.err
    home.write("ai_settings.yaml", SAVED)
    not_confirmed = home.exits(5, "--model", "human", "-c")
    assert f"\n{saved}pass -y to use the saved settings\n" in not_confirmed.err
    assert not home.state.exists()


@pytest.mark.slow
def test_asking_again_is_seen_and_a_broken_reply_is_never_run(served: Home, server: ScriptedServer) -> None:
    half = '{"thoughts": {"text": "I delete"}, "command": {"name": "delete_file", "args": {"filename": "a.txt"}}'
    served.write("autoagent_workspace/a.txt", "keep me")
    server.add(
        Broken("drop", half),  # first, as the waits grow
        Fault(429, "slow down", headers={"retry-after": "0"}),
        Fault(503, "too busy", headers={"retry-after": "0"}),
        *FINISH,
    )

    def loading(request: Request) -> Fault:
        server.on_probe = None
        return Fault(500, "still loading", headers={"retry-after": "0"})

    server.on_probe = loading
    done = served.succeed(*GOAL, "-c", "-m", "none")
    assert "WAITING: 127.0.0.1 answered 500: still loading" in done.text.partition("NAME:")[0]  # while it is probed
    assert "WAITING: 127.0.0.1 answered 429: slow down" in done.text
    assert "WAITING: 127.0.0.1 answered 503: too busy" in done.text
    assert "WAITING: the connection to 127.0.0.1 broke" in done.text
    assert [event["type"] for event in served.log()].count("retried") == 3
    assert served.read("autoagent_workspace/a.txt") == "keep me"


def test_what_a_run_did_is_recalled_by_the_next_for_this_user_alone(served: Home, server: ScriptedServer) -> None:
    fact = "The lamp of the lighthouse is green."
    server.add(command("write_to_file", filename="lighthouse.txt", text=fact), *FINISH)
    assert served.run("--ai-goal", "Write down the colour of the lighthouse lamp", "-c").code == 0
    first = served.runs[0]

    listed = json.loads(served.run("memory", "list", "--json").out)
    assert [(memory["kind"], memory["step"]) for memory in listed] == [("fact", 2), ("step", 1)]
    assert {memory["run"] for memory in listed} == {first}
    found = served.run("memory", "search", "lighthouse lamp green", "-k", "1")
    assert "lighthouse.txt" in found.text
    assert f"memories  {len(listed)}" in served.run("memory", "stats").text

    server.add(*FINISH)
    before = len(server.requests)
    assert served.run("--ai-goal", "Tell the colour of the lighthouse lamp", "-c").code == 0
    told = server.requests[before].body["messages"][-1]["content"]
    assert "Memories that may matter for the goals" in told
    assert fact in told
    recalled = next(event for event in served.log() if event["type"] == "recalled")
    assert {memory["run"] for memory in recalled["memories"]} == {first}

    paths = [served.state, *served.state.rglob("*")]
    modes = {str(path.relative_to(served.state)): stat.S_IMODE(path.stat().st_mode) for path in paths}
    assert {".", "runs", "memory", "models.json", f"runs/{first}/events.jsonl"} <= set(modes)
    for name, mode in modes.items():
        assert oct(mode) == oct(0o700 if (served.state / name).is_dir() else 0o600), name


def test_a_run_can_be_replayed_without_a_model(home: Home) -> None:
    assert home.run("--demo", "-c", "-m", "none").code == 0
    recorded = home.runs[0]
    (home.folder / "autoagent_workspace" / "haiku.txt").unlink()
    home.succeed("--model", f"replay:{recorded[:15]}", "-c", "-m", "none", *GOAL)
    assert home.read("autoagent_workspace/haiku.txt").startswith("Last leaf")


def test_the_subcommand_run_is_the_same_as_none(home: Home) -> None:
    before = home.exits(4, "--model", "demo", "-m", "none", "run", "-c", "-l", "1")
    assert "The limit of 1 command" in before.text
    assert home.run("run", "--help").out.startswith("Usage: autoagent run [OPTIONS]")


def test_pipes_get_no_colour_unless_it_is_forced(home: Home) -> None:
    assert "DEMOGPT THOUGHTS" in home.run("--demo", "-c", "-l", "1", "-m", "none").text
    forced = home.run("--demo", "-c", "-l", "1", "-m", "none", env={"CLICOLOR_FORCE": "1"})
    assert "\x1b[" in forced.out


def test_a_full_disk_and_a_closed_pipe_end_the_run_in_order(home: Home) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with Path("/dev/full").open("w") as full, os.fdopen(writer, "w") as closed:
        for stdout, reason in ((full, "No space left on device"), (closed, "Broken pipe")):
            done = home.run("--demo", "-c", "-m", "none", stdout=stdout)
            reason = f"autoagent: The output cannot be written: {reason}. The run is saved.\n"
            assert (done.code, done.err) == (1, reason)
    assert home.run("resume", "-c").code == 0


def test_an_ascii_terminal_shows_escapes_and_the_files_stay_readable(home: Home) -> None:
    home.env |= {"LC_ALL": "C", "PYTHONIOENCODING": "ascii"}
    done = home.exits(6, "--model", "human", "--ai-goal", "Schreib über 雪", "-m", "none", stdin="list_files\nn\n")
    assert "Schreib \\xfcber \\u96ea" in done.text
    assert home.log()[0]["task"]["goals"][0]["text"] == "Schreib über 雪"


def test_nobody_is_asked_to_authorise_the_same_end_twice(served: Home, server: ScriptedServer) -> None:
    server.judges = judging("not met")
    server.add(*FINISH * 2)
    done = served.exits(9, "-m", "none", *GOAL, stdin="y\n")
    assert done.text.count("Run it?") == 1
    assert [event["by"] for event in served.log() if event["type"] == "decided"] == ["user", "earlier: user"]

    server.add(FINISH[0], command("list_files", directory="."), FINISH[0])  # something else came between
    assert served.run("-m", "none", *GOAL, stdin="y\ny\n").code == 5
    assert [event["type"] for event in served.log()].count("started") == 2

    server.add(FINISH[0], command("do_nothing"))  # the word of a user is one, too: it takes the permission back
    assert served.run("-m", "none", *GOAL, stdin="y\nLook again.\n").code in (1, 5)


def test_an_end_that_a_check_puts_off_is_told_as_that(served: Home, server: ScriptedServer) -> None:
    server.add(FINISH[0], command("write_to_file", filename="a.txt", text="x"), *FINISH)
    done = served.succeed("-c", "-m", "none", "--ai-goal", "Write a.txt :: test -s a.txt")
    assert "task_complete is put off: Not ended yet.\nGoal 1 (Write a.txt) is not met" in server.requests[1].prompt
    assert "task_complete failed" not in server.requests[-1].prompt
    assert "CHECKING: Goal 1 (Write a.txt) is not met: its check `test -s a.txt` says: exit" in done.text
    assert "put off" not in done.text and "failed" not in done.text


def test_a_model_that_thinks_has_room_for_it_whatever_its_name(served: Home, server: ScriptedServer) -> None:
    ready = {"function": {"name": "answer", "arguments": '{"ready": "yes"}'}}
    thought = {"content": None, "reasoning_content": "Am I? Yes.", "tool_calls": [ready]}
    server.on_probe = lambda request: {"choices": [{"message": thought, "finish_reason": "tool_calls"}]}

    def thinks(request: Request) -> Reply | Command:
        """For 6,000 tokens before each command."""
        return Reply("", finish="length") if request.body["max_tokens"] < 6_000 else FINISH[0]

    server.add(thinks)
    served.succeed(*GOAL, "-c", "-m", "none", env={"AUTOAGENT_REPLY_TOKENS": "1000"})
    start = served.log()[0]
    assert (start["window"], start["reply_tokens"]) == (24_000, 1_000), "a quarter of the window is for thinking"
    assert [request.body["max_tokens"] for request in server.requests] == [9_000]


def test_a_rule_for_deleting_goes_by_the_link_and_not_by_what_it_leads_to(served: Home, server: ScriptedServer) -> None:
    kept = served.write("autoagent_workspace/notes/a.md", "kept")
    links = [served.folder / "autoagent_workspace" / name for name in ("notes/link", "plan")]
    for link, leads in zip(links, ("../plan.md", "notes/a.md"), strict=True):
        link.symlink_to(leads)
    server.add(*(command("delete_file", filename=name) for name in ("notes/link", "plan")))
    done = served.exits(5, *GOAL, "-m", "none", "--allow", "delete_file:notes/*")
    assert done.text.count("ALLOWED: rule delete_file:notes/*") == 1
    assert [link.is_symlink() for link in links] == [False, True]
    assert kept.read_text() == "kept"


def test_an_empty_folder_is_refused(home: Home) -> None:
    assert "--workspace" in home.exits(2, "-c", "-w", "", *GOAL).err


def test_the_help_is_grouped_and_short_and_an_unknown_name_is_one_line(home: Home) -> None:
    shown, every = home.run("--help").out, home.run("--help-all").out
    flags, groups = shown.split("Run:\n")
    assert len(re.findall(r"^  -", flags, re.M)) <= 25
    assert len(re.findall(r"^  [a-z]", groups, re.M)) <= 16
    assert "--patience" not in shown and "--patience" in every and "  doctor " in every
    for arguments, said in (
        (("--modle", "x"), "autoagent: No such option '--modle'. Did you mean --model? See `autoagent --help`."),
        (("show", "--ful"), "autoagent: No such option '--ful'. Did you mean --full? See `autoagent show --help`."),
        (("tools", "skils"), "autoagent: No such command 'skils'. See `autoagent tools --help`."),
    ):
        done = home.run(*arguments)
        assert (done.code, done.err.splitlines()) == (2, [said])


def test_what_is_one_thing_has_one_name_and_the_old_ones_go_on(home: Home) -> None:
    for new, old in (
        (("tools", "commands", "--json"), ("commands", "--json")),
        (("tools", "skills", "list"), ("skills", "list")),
        (("tools",), ("commands",)),
        (("setup", "show", "--all"), ("config", "--all")),
        (("setup", "check"), ("doctor",)),
        (("inbox", "y"), ("answer", "y")),
    ):
        ours, theirs = home.run(*new), home.run(*old)
        assert (ours.code, ours.out, ours.err) == (theirs.code, theirs.out, theirs.err), new


# An endpoint and its models --------------------------------------------------------------------------------------


def lists(*names: str) -> list[dict[str, str]]:
    return [{"id": name, "object": "model"} for name in names]


def test_where_no_model_is_named_the_endpoint_offers_one(home: Home, server: ScriptedServer) -> None:
    server.models = lists("qwen3:8b", "nomic-embed-text")
    server.add(*FINISH)
    home.env |= {"OPENAI_BASE_URL": server.base_url, "AUTOAGENT_WINDOW": "32000"}
    done = home.succeed("-c", "--ai-goal", "Say hello", "-m", "none", "--accept-claims")
    line = f"No model is named (SMART_LLM); using qwen3:8b of {server.base_url[7:-3]}."
    assert line in " ".join(done.err.split())
    assert "No model is named" not in home.run("-r", "and now?", "-c").text, "the run has its model"
    assert {request.body["model"] for request in server.requests} == {"qwen3:8b"}


def test_at_a_terminal_the_user_picks_one_of_them(home: Home, server: ScriptedServer) -> None:
    server.models = lists("qwen3:8b", "gemma3:4b")
    server.add(*FINISH)
    home.env |= {"OPENAI_BASE_URL": server.base_url, "AUTOAGENT_WINDOW": "32000"}
    with opened(home.terminal("--ai-goal", "Say hello", "-m", "none")) as session:
        session.sees("It offers: qwen3:8b, gemma3:4b")
        session.answers("Model [qwen3:8b]: ", "gemma3:4b")
        session.answers("> ", "y")
        session.sees("What next?")
    assert {request.body["model"] for request in server.requests} == {"gemma3:4b"}


def test_a_model_that_a_server_does_not_list_is_said_at_once_and_once(home: Home, server: ScriptedServer) -> None:
    server.models = lists("qwen3:8b")
    server.add(*FINISH, *FINISH)
    home.point_at(server)
    arguments = ("-c", "--ai-goal", "Say hello", "-m", "none", "--accept-claims")
    line = f"{server.base_url[7:-3]} does not list the model test-model; it has qwen3:8b."
    first = home.succeed(*arguments)
    assert line in " ".join(first.err.split())
    assert "does not list" not in home.run(*arguments).text, "it has answered: the list is not everything"


def test_programs_run_in_the_active_virtual_environment(served: Home, server: ScriptedServer) -> None:
    place = served.folder / "project-env"
    venv.create(place, symlinks=True)
    tool = place / "bin" / "tool-of-the-project"
    tool.write_text("#!/bin/sh\necho the tool runs\n")
    tool.chmod(0o755)
    served.env["VIRTUAL_ENV"] = str(place)
    server.add(command("execute_shell", command_line="tool-of-the-project; command -v python"), *FINISH)
    served.succeed(*GOAL, "-c", "--accept-claims")
    (printed, _) = [event["text"] for event in served.log() if event["type"] == "returned"]
    assert f"the tool runs\n{place}/bin/python" in printed
    assert "environment: VIRTUAL_ENV" in served.run("config", "--show-origin").text
    served.env["AUTOAGENT_PYTHON"] = "/usr/bin/python3"
    assert "environment: VIRTUAL_ENV" not in served.run("config", "--show-origin").text
