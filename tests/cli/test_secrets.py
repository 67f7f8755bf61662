"""Secrets: files and programs get them as they were written; log, prompts and screen do not."""

from __future__ import annotations

import hashlib
import json

import pytest
from driver import FINISH, GOAL, Done, Home
from server import Reply, Request, ScriptedServer, command

SECRET = "postgres://app:s3cret-Pa55@db/app"
HIDDEN = "s3cret-Pa55"
KEY = "sk-test-0123456789abcdefghij"
TOLD = "[masked] stands for a secret that is shown nowhere; files and programs have it as it was written."
WRITE = command("write_to_file", filename="compose.yaml", text=f"url: {SECRET}\n")
QUIET = ("-m", "none")
WIDE = {"COLUMNS": "300"}  # no sentence is broken


def shown(home: Home, server: ScriptedServer, *done: Done) -> str:
    """All that left the program but for what it wrote for the user: log, prompts, screen."""
    logs = "".join(path.read_text() for path in home.state.rglob("*.jsonl"))
    return logs + json.dumps([request.body for request in server.requests]) + "".join(one.text for one in done)


def kept(home: Home, name: str = "compose.yaml") -> str:
    return home.read(f"autoagent_workspace/{name}")


def test_a_file_holds_the_secret_as_written_and_nothing_else_does(served: Home, server: ScriptedServer) -> None:
    server.add(WRITE, *FINISH)
    done = served.succeed("-c", *GOAL, *QUIET)
    assert kept(served) == f"url: {SECRET}\n"
    assert HIDDEN not in shown(served, server, done)
    assert "url: postgres://[masked]@db/app" in done.text
    assert TOLD in server.requests[1].prompt
    served.succeed("replay", served.runs[0], "--verify")


def test_placeholders_are_no_secrets(served: Home, server: ScriptedServer) -> None:
    text = "postgres://postgres:postgres@db\nkey: lm-studio\nkey: sk-no-key-required\nredis://:${PASSWORD}@cache\n"
    server.add(command("write_to_file", filename="compose.yaml", text=text))
    server.add(command("read_file", filename="compose.yaml"))
    server.add(*FINISH)
    done = served.succeed(
        "-c", *GOAL, *QUIET, env={"OPENAI_API_KEY": "lm-studio", "MEMORY_URL": "redis://localhost:6379"}
    )
    assert kept(served) == text
    assert text in server.requests[2].prompt
    assert "[masked]" not in shown(served, server, done)


def test_a_program_gets_the_secret_as_written(served: Home, server: ScriptedServer) -> None:
    server.add(command("execute_shell", command_line=f"printf %s {KEY} | sha256sum > digest.txt; echo {KEY}"), *FINISH)
    done = served.succeed("-c", *GOAL, *QUIET)
    assert kept(served, "digest.txt").startswith(hashlib.sha256(KEY.encode()).hexdigest())
    assert KEY not in shown(served, server, done)
    assert "It printed:\n[masked]" in server.requests[1].prompt
    assert TOLD in server.requests[1].prompt


def test_the_users_own_key_that_a_file_holds_stays_in_it_and_is_seen_by_nobody(
    served: Home, server: ScriptedServer
) -> None:
    key = "my-very-own-key-7"
    served.write("autoagent_workspace/settings.ini", f"key = {key}\nport = 1\n")
    server.add(
        command("read_file", filename="settings.ini"),
        command("write_to_file", filename="settings.ini", text="key = [masked]\nport = 2\n"),
        command("edit_file", filename="settings.ini", old="port = 1", new="port = 2"),
        command("execute_shell", command_line="cat settings.ini"),
        *FINISH,
    )
    done = served.succeed("-c", *GOAL, *QUIET, env={"OPENAI_API_KEY": key})
    assert kept(served, "settings.ini") == f"key = {key}\nport = 2\n"
    assert key not in shown(served, server, done)
    assert "key = [masked]\nport = 1" in server.requests[1].prompt
    assert "your text would overwrite it with this mask" in server.requests[2].prompt


def test_at_the_question_the_secret_is_hidden_and_an_edit_of_another_argument_keeps_it(
    served: Home, server: ScriptedServer
) -> None:
    server.add(WRITE, *FINISH)
    answers = ["d", "e", "filename=other.yaml", "e", "text=url: [masked]", "", "y", "y", "y"]
    done = served.succeed(*GOAL, *QUIET, stdin="\n".join(answers) + "\n", env=WIDE)
    assert kept(served, "other.yaml") == f"url: {SECRET}\n"
    assert HIDDEN not in shown(served, server, done)
    assert "[masked] stands for it here; it is used as it is." in done.text
    assert "[masked] in text stands for a hidden secret; write the whole value again." in done.text
    assert served.run("replay", served.runs[0], "--verify").code == 0


def test_a_masked_call_that_waited_for_an_answer_is_not_run_by_another_process(
    served: Home, server: ScriptedServer
) -> None:
    server.add(WRITE)
    stopped = served.run(*GOAL, *QUIET, stdin="n\n")
    assert stopped.code == 6
    server.add(*FINISH)
    done = served.succeed("resume", "-c", env=WIDE)
    assert not (served.folder / "autoagent_workspace/compose.yaml").exists()
    reason = "[masked] stands in it for a secret, which only the process knew that has ended."
    assert f"NOT RUN (resume): {reason}" in done.text
    assert reason in server.requests[1].prompt
    assert HIDDEN not in shown(served, server, stopped, done)


def test_further_calls_of_a_reply_keep_their_secrets_as_long_as_their_process_lives(
    served: Home, server: ScriptedServer
) -> None:
    calls = tuple(
        ("write_to_file", json.dumps({"filename": f"{n}.txt", "text": f"{n} postgres://app:s3cret-Pa55{n}@db"}))
        for n in range(4)
    )
    server.add(Reply("", calls, "tool_calls"))
    stopped = served.run(*GOAL, *QUIET, stdin="y\ny\nn\n")
    assert stopped.code == 6
    assert [kept(served, f"{n}.txt") for n in range(2)] == [f"{n} postgres://app:s3cret-Pa55{n}@db" for n in range(2)]
    server.add(*FINISH)
    done = served.succeed("resume", "-c")
    assert not (served.folder / "autoagent_workspace/2.txt").exists()
    assert not (served.folder / "autoagent_workspace/3.txt").exists()
    assert server.requests[1].prompt.count("which only the process knew that has ended") >= 2
    assert HIDDEN not in shown(served, server, stopped, done)


def test_a_sub_agent_writes_secrets_as_they_are(served: Home, server: ScriptedServer) -> None:
    scripts = {
        "Boss": iter(
            [
                command("start_agent", name="Anna", task="writing", prompt="Write compose.yaml"),
                command("list_agents", wait=60),
                *FINISH,
            ]
        ),
        "Anna": iter([WRITE, *FINISH]),
    }

    def answer(request: Request) -> object:
        return next(scripts[next(name for name in scripts if request.asked_by(name))])

    with ScriptedServer(answer) as both:
        served.point_at(both)
        done = served.succeed("-c", "--ai-name", "Boss", "--ai-role", "who delegates", *GOAL, *QUIET)
        assert kept(served) == f"url: {SECRET}\n"
        assert HIDDEN not in shown(served, both, done)


def test_a_recording_with_a_masked_call_is_not_replayed_into_files(served: Home, server: ScriptedServer) -> None:
    server.add(WRITE, *FINISH)
    assert served.run("-c", *GOAL, *QUIET).code == 0
    again = served.run("-c", *GOAL, *QUIET, "-w", "again", "--model", f"replay:{served.runs[0]}", env=WIDE)
    assert again.code == 1
    assert "The reply of step 1 contained a secret, which the log holds as [masked]" in again.text
    assert list((served.folder / "again").iterdir()) == []


def test_a_memory_is_kept_without_the_secret(served: Home, server: ScriptedServer) -> None:
    server.add(command("memory_add", text=f"The database is {SECRET}."), *FINISH)
    served.succeed("-c", *GOAL)
    assert "with [masked] in place of a secret" in server.requests[1].prompt
    stored = b"".join(path.read_bytes() for path in served.state.rglob("*") if path.is_file())
    assert HIDDEN.encode() not in stored
    assert HIDDEN not in json.dumps([request.body for request in server.embeddings])


@pytest.mark.parametrize(
    "settings",
    [
        {"OPENAI_BASE_URL": f"htp://me:{HIDDEN}@host.example/v1"},
        {"OPENAI_BASE_URL": f"http://me:{HIDDEN}@host.example:99999/v1"},
        {"OPENAI_BASE_URL": f"http://me:{HIDDEN}@[::1/v1"},
        {"OPENAI_BASE_URL": f"http://127.0.0.1:9/v1?api_key={HIDDEN}"},
        {"AUTOAGENT_SEARCH_URL": f"htp://me:{HIDDEN}@host.example"},
    ],
    ids=["scheme", "port", "brackets", "a key as a parameter", "search"],
)
@pytest.mark.parametrize("flags", [(), ("--json",)], ids=["text", "json"])
def test_an_address_that_cannot_be_used_is_named_without_its_secret(
    served: Home, settings: dict[str, str], flags: tuple[str, ...]
) -> None:
    done = served.run(*GOAL, "-c", "--patience", "1", *QUIET, *flags, env={**settings, **WIDE})
    assert done.code in (1, 2)
    assert "[masked]" in done.text
    assert HIDDEN not in done.text
