"""Every way in which a run ends: its exit code, and that it says where the run is and how to go on."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
from typing import Any

import pytest
from driver import FINISH, GOAL, PROGRAM, ROOT, Hanging, Home
from server import Command, Fault, Reply, ScriptedServer, command

KEY = "sk-never-to-be-seen-0123456789"
LOOK = command("list_files", directory=".")


def test_a_finished_run_has_nothing_to_resume(served: Home, server: ScriptedServer) -> None:
    server.add(*FINISH)
    done = served.succeed(*GOAL, "-c", "-m", "none")
    assert "FINISHED: It is done." in done.text
    assert f"Log: .autoagent/runs/{served.runs[0]}/events.jsonl" in done.text
    assert "Resume:" not in done.text


@pytest.mark.parametrize(
    ("script", "flags", "code", "says"),
    [
        ([Fault(400, "bad request")], [], 1, "FAILED: http://127.0.0.1:PORT/v1 answered 400: bad request"),
        ([Fault(404, "no such model")], [], 3, "has no model 'test-model' (404"),
        ([command("do_nothing")] * 3, ["-l", "2"], 4, "The limit of 2 commands (-l) is reached."),
        ([command("do_nothing")] * 9, ["--max-seconds", "0.01"], 4, "The time limit of 0.01 s is reached."),
        ([command("do_nothing")], ["--max-tokens", "2900"], 7, "of the limit of 2900 (--max-tokens)"),
        ([Reply("I will."), Reply("At once."), Reply("Soon.")], [], 8, "3 unusable replies in a row"),
        ([LOOK] * 9, [], 8, "The same call with the same results, 6 times over."),
    ],
    ids=["bad request", "model", "steps", "time", "tokens", "unusable", "circle"],
)
def test_an_end_has_its_code_and_says_how_to_go_on(
    served: Home, server: ScriptedServer, script: list[Any], flags: list[str], code: int, says: str
) -> None:
    server.add(*script)
    done = served.run(*GOAL, "-c", "-m", "none", *flags, env={"OPENAI_API_KEY": KEY})
    assert done.code == code, done.text
    text = " ".join(done.text.split()).replace(server.base_url, "http://127.0.0.1:PORT/v1")
    assert says in text
    assert f"Log: .autoagent/runs/{served.runs[0]}/events.jsonl" in text
    assert f"Resume: autoagent resume {served.runs[0]}" in text
    assert served.log()[-1]["type"] == "ended"


def test_the_key_is_nowhere_but_in_the_request(served: Home, server: ScriptedServer) -> None:
    served.write("autoagent_workspace/a.txt", f"OPENAI_API_KEY={KEY}")
    server.add(
        command("read_file", filename="a.txt"),
        Fault(500, f"crashed with {KEY}", headers={"retry-after": "0"}),
        Fault(401, f"Incorrect API key: {KEY}"),
    )
    done = served.exits(3, *GOAL, "-c", "-m", "none", env={"OPENAI_API_KEY": KEY})
    assert "NOT SET UP: 127.0.0.1 refused the key in OPENAI_API_KEY (401" in done.text
    assert server.requests[0].headers["authorization"] == f"Bearer {KEY}"
    assert KEY not in done.text
    assert all(KEY not in request.prompt for request in server.requests)
    for path in served.state.rglob("*"):
        assert path.is_dir() or KEY not in path.read_text(), path


@pytest.mark.parametrize("where", ["flag", "ai_settings.yaml"])
def test_a_budget_of_money_ends_the_run_before_it_is_passed(home: Home, server: ScriptedServer, where: str) -> None:
    usage = {"prompt_tokens": 1000, "completion_tokens": 1000}
    server.add(*[Command("write_to_file", {"filename": f"{i}.txt", "text": "x"}, {}, usage) for i in range(9)])
    home.pay(server, "gpt-5")
    home.write("ai_settings.yaml", "ai_name: A\nai_role: B\nai_goals: [C]\napi_budget: 0.05\n")
    flags = [*GOAL, "--budget", "0.06"] if where == "flag" else ["-y"]
    done = home.exits(7, *flags, "-c", "-m", "none")
    assert "BUDGET USED UP: The next call may cost $0." in done.text
    assert f"of the budget of ${'0.06' if where == 'flag' else '0.05'}" in " ".join(done.text.split())
    assert 1 <= len(server.requests) < 9
    for count, request in enumerate(server.requests):
        left = (0.06 if where == "flag" else 0.05) - count * 0.01125
        assert request.body["max_completion_tokens"] * 10 / 1e6 <= left, "what the model may reason is paid for too"


def test_an_unknown_price_is_said_loudly_and_money_is_no_limit(home: Home, server: ScriptedServer) -> None:
    server.add(*FINISH)
    home.pay(server, "nobody-knows-it")
    done = home.succeed(*GOAL, "-c", "-m", "none", "--budget", "0.01")
    assert "THE COST OF THIS RUN IS UNKNOWN: no price is known for nobody-knows-it." in " ".join(done.text.split())
    assert "Cost: $?" in done.text


@pytest.mark.parametrize(("typed", "code", "status"), [("", 5, "unanswered"), ("n\n", 6, "stopped")])
def test_nobody_answers_or_the_user_stops(home: Home, typed: str, code: int, status: str) -> None:
    done = home.run("--demo", "-m", "none", stdin=typed)
    assert (done.code, home.log()[-1]["status"]) == (code, status)
    assert ("pass -c to run without questions" in " ".join(done.text.split())) is (status == "unanswered")
    assert f"Resume: autoagent resume {home.runs[0]}" in done.text


def test_sigterm_saves_and_ends(served: Home, server: ScriptedServer) -> None:
    thinking = Hanging()
    server.add(command("write_to_file", filename="a.txt", text="x"), thinking)
    process = served.start(*GOAL, "-c", "-m", "none")
    thinking.is_asked()
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=60)
    thinking.leave()
    assert (process.returncode, err) == (130, "")
    assert "INTERRUPTED: Ended by SIGTERM." in out and "Resume: autoagent resume" in out
    assert served.log()[-1]["status"] == "interrupted"


def test_without_a_key_nothing_is_begun(home: Home) -> None:
    done = home.run(*GOAL, "-c", "--model", "gpt-5")
    assert done.code == 3 and done.err.startswith("autoagent: OPENAI_API_KEY is not set;")
    assert not home.state.exists()


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["-l", "3"], "-l/--continuous-limit requires -c/--continuous"),
        (["--json", "-l", "1"], "-l/--continuous-limit requires -c/--continuous"),
        (["-c", "-l", "0"], "0 is not in the range"),
        (["-c", "-l", "-2"], "-2 is not in the range"),
        (["-c", "--budget", "-1"], "'--budget'"),
        (["-c", "--budget", "nan"], "nan is not an amount"),
        (["-c", "--max-seconds", "inf"], "inf is not an amount"),
        (["-c", "--model", "replay"], "'replay' names no run"),
        (["-c", "--max-tokens", "many"], "'many' is not a valid integer; 'none' lifts the limit."),
        (["-c", "--budget", "much"], "'much' is not a valid number; 'none' lifts the limit."),
        (GOAL * 6, "--ai-goal was given 6 times; at most 5 are taken"),
        (["--ai-name", "A"], "pass at least one --ai-goal"),
        (["--ai-goal", " "], "--ai-goal is empty"),
        (["--gpt3only", "--gpt4only"], "--gpt3only and --gpt4only cannot be used together"),
        (["--commands", "dance", *GOAL], "neither a command nor a category 'dance'"),
        (["-m", "pinecone"], "use local"),
        (["--sandbox", "box"], "--sandbox: must be one of auto, bubblewrap, landlock, none, not 'box'."),
        (["memory", "search", " "], "QUERY is blank; `autoagent memory list` lists all."),
        (["--model", "demo", "-c", "Write a poem"], "--model demo has a task of its own"),
        (["--model", "human:me"], "--model: nothing may follow human, as in 'human:me'."),
        (["-C", "missing.yaml"], "missing.yaml: no such file"),
        (["-P", "missing.yaml", *GOAL], "missing.yaml: no such file"),
        (["--dance"], "No such option"),
        (["dance"], "There is no subcommand 'dance'"),
    ],
    ids=lambda value: " ".join(value)[:24] if isinstance(value, list | tuple) else "",
)
def test_what_cannot_be_meant_is_a_usage_error(home: Home, flags: list[str], says: str) -> None:
    done = home.run("--model", "human", *flags)
    assert (done.code, done.out) == (2, "")
    assert says in done.err
    assert not home.state.exists()


@pytest.mark.parametrize(
    ("variable", "names", "nearest"),
    [
        ("DISABLED_COMMAND_CATEGORIES", "autogpt.commands.execute_cod", "Did you mean autogpt.commands.execute_code?"),
        ("AUTOAGENT_COMMANDS", "fils", "Did you mean files?"),
        ("SHELL_DENYLIST", "rm -rf", "write the program alone"),
        ("SHELL_DENYLIST", "execute_shell", "DISABLED_COMMAND_CATEGORIES=execute_shell"),
    ],
)
def test_a_list_of_names_with_one_that_means_nothing_stops_the_start(
    home: Home, variable: str, names: str, nearest: str
) -> None:
    done = home.run("--model", "demo", "-c", *GOAL, env={variable: names})
    assert (done.code, len(done.err.splitlines())) == (2, 1)
    assert variable in done.err
    assert nearest in done.err
    assert not home.runs
    found = home.run("doctor", env={variable: names})
    assert nearest.split()[-1] in found.out
    assert "all values are valid" not in found.out


def test_settings_that_cannot_be_used_are_named_with_their_place(home: Home) -> None:
    home.write("ai_settings.yaml", "ai_name: A\nai_role: B\nai_goals: [1, 2, 3, 4, 5, 6]\n")
    done = home.run("--model", "human", "-y")
    reason = "ai_settings.yaml:3: ai_goals: holds 6 goals; at most 5 are taken."
    assert (done.code, done.out, done.err) == (2, "", f"autoagent: {reason}\n")
    done = home.run("--model", "human", *GOAL, env={"PLAIN_OUTPUT": "perhaps"})
    reason = "PLAIN_OUTPUT: must be true or false (1/0, yes/no, on/off), not 'perhaps'."
    assert (done.code, done.out, done.err) == (2, "", f"autoagent: {reason}\n")


def test_only_debug_or_the_users_config_shows_a_traceback(home: Home) -> None:
    for flags in (["--debug"], []):
        done = home.run(*flags, "show", "nothing")
        assert (done.code, "Traceback" in done.err) == (1, bool(flags))
    home.write(".config/autoagent/config.yaml", "debug: true\n")
    assert "Traceback" in home.run("show", "nothing").err
    home.write(".config/autoagent/config.yaml", "debug: perhaps\n")
    refused = home.run("show", "nothing").text
    assert refused.endswith("debug: must be true or false (1/0, yes/no, on/off), not 'perhaps'.\n")


def test_a_library_that_breaks_off_is_no_interruption(home: Home) -> None:
    home.write(".config/autoagent/config.yaml", "plain_output: true\n")
    cut = importlib.util.MAGIC_NUMBER + bytes(12) + b"\xe3"  # the beginning of a compiled module
    (home.folder / "broken").mkdir()
    (home.folder / "broken/yaml.pyc").write_bytes(cut)
    done = home.exits(1, "runs", env={"PYTHONPATH": os.pathsep.join((str(home.folder / "broken"), str(ROOT)))})
    assert "autoagent: internal error: EOFError: marshal data too short (--debug shows where)" in done.text


@pytest.mark.parametrize(
    ("flags", "env", "says"),
    [
        (("--allow", "dance:*"), {}, ""),
        (("-m", "postgres"), {}, ""),
        (("-w", "a-file"), {}, ""),
        (("--model", "replay:none"), {}, ""),
        (("-w", "/"), {}, "/ is the whole system"),
        ((), {"AUTOAGENT_WINDOW": "2000"}, "offer fewer commands (--commands)"),
        (("-m", "none"), {"AUTOAGENT_ALLOW_HOSTS": "nowhere"}, ""),
    ],
)
def test_who_is_refused_is_not_warned_first_and_nothing_is_asked_of_the_model(
    served: Home, server: ScriptedServer, flags: tuple[str, ...], env: dict[str, str], says: str
) -> None:
    served.write("a-file", "")
    done = served.run(*GOAL, "-c", *flags, env=env)
    assert done.code == (1 if "replay:none" in flags else 2), done.text
    assert len(done.text.splitlines()) == 1, done.text
    assert says in done.err and (server.requests, served.runs) == ([], [])


@pytest.mark.parametrize(
    "line",
    [
        r'OPENAI_ORGANIZATION="a\nb: c"',
        'OPENAI_ORGANIZATION="\u00e4"',
        r'OPENAI_BASE_URL="http://127.0.0.1:1/v1\nx"',
        "OPENAI_BASE_URL=http://..../v1",
        f"OPENAI_BASE_URL=http://{'a' * 64}.example/v1",
        r'USER_AGENT="a\r\nb: c"',
    ],
)
def test_what_cannot_be_sent_is_said_before_anything_is(home: Home, line: str) -> None:
    home.write(".env", f"OPENAI_API_KEY=key-0123456789\nOPENAI_BASE_URL=http://127.0.0.1:1/v1\n{line}\n")
    home.run("trust")
    done = home.run(*GOAL, "-c", "-m", "none")
    assert (done.code, len(done.text.splitlines())) == (2, 1), done.text
    assert done.err.startswith(("autoagent: .env:3: ", f"autoagent: {line.partition('=')[0]}")), done.err


@pytest.mark.parametrize("arguments", [["runs"], ["resume"], ["show", "x"], ["--demo", "-c"], ["memory", "list"]])
def test_a_state_folder_that_is_a_file_is_said_so(home: Home, arguments: list[str]) -> None:
    home.write("a-file", "")
    done = home.run("--state-dir", "a-file", *arguments)
    assert (done.code, done.out) == (2, "")
    assert done.err == "autoagent: The state folder a-file is a file; name a folder with --state-dir.\n"


@pytest.mark.parametrize("flags", [["--ai-goal", " "], ["--ai-name", "A"], ["-C", "missing.yaml"]])
def test_flags_that_cannot_be_used_are_told_before_anything_is_asked(home: Home, flags: list[str]) -> None:
    done = home.exits(2, *flags, stdin="3\nn\n")
    assert "Which model do you want to use?" not in done.text
    assert list(home.folder.iterdir()) == []


def test_what_cannot_be_opened_leaves_no_empty_run(home: Home) -> None:
    home.write("a-file", "")
    done = home.exits(2, "--demo", "-c", "-m", "none", "-w", "a-file")
    assert "The workspace" in done.err
    home.write(".autoagent/memory", "a file where the folder should be")
    assert home.run("--demo", "-c", "-m", "local", "--state-dir", ".autoagent").code == 1
    assert home.runs == []


@pytest.mark.slow
def test_a_log_that_cannot_be_written_any_more_still_tells_how_to_go_on(home: Home) -> None:
    limited = ["bash", "-c", 'ulimit -f 12; exec "$@"', "bash", *PROGRAM, "--demo", "-c", "-m", "none"]  # KiB a file
    env = {"PATH": os.environ["PATH"], "HOME": str(home.folder), "PYTHONPATH": str(ROOT), "LANG": "C.UTF-8"}
    done = subprocess.run(limited, cwd=home.folder, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stdout
    assert f"Resume: autoagent resume {home.runs[0]}" in done.stdout
    assert done.stderr.startswith("autoagent: Cannot write the log")
    assert "File too large" in done.stderr
    assert f"RESUMED: run {home.runs[0]}" in home.run("resume", "-c").text


def test_a_home_that_cannot_be_written_costs_no_run(served: Home, server: ScriptedServer) -> None:
    server.add(*FINISH)
    done = served.run("-c", *GOAL, "-m", "none", env={"HOME": "/proc/none", "XDG_STATE_HOME": "/proc/none"})
    assert done.code == 0 and "internal error" not in done.text, done.text


def test_a_check_that_cannot_run_is_said_of_a_typed_task(served: Home, server: ScriptedServer) -> None:
    server.add(*FINISH)
    assert "Taken as text, with no check" in served.run("Write x :: pytst", "-c", "-y").text


def test_set_up_without_an_answer_is_unanswered(served: Home) -> None:
    served.write("ai_settings.yaml", "ai_goals:\n- Write a poem\n")
    done = served.run("setup", stdin="")
    assert done.code == 5 and "an answer was needed" in done.err


def test_later_runs_recall_nothing_of_the_demo(home: Home) -> None:
    assert home.run("--demo", "-c").code == 0
    assert home.run("memory", "list", "--json").out.strip() == "[]"
