"""D41 to D48 in brief, one run each: an endpoint that is slow, refuses, breaks off, or tells nonsense."""

from __future__ import annotations

import socket
from dataclasses import replace

import pytest
from cli.driver import FINISH, GOAL
from server import Broken, Fault, ScriptedServer, Step, command

from autoagent.agent.think import MAX_SHORTENINGS

from .driver import room

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("either")]  # a process for each

DELETE = '{"thoughts": {"text": "x"}, "command": {"name": "delete_file", "args": {"filename": "kept"}}'


def test_d41_d42_d46_d47_what_passes_is_waited_for_and_a_part_is_never_run() -> None:
    faults: tuple[Step, ...] = (
        Fault(429, "slow down", headers={"retry-after": "2"}),
        Fault(503, "too busy", headers={"retry-after": "0"}),
        Broken("drop", DELETE),
        command("do_nothing"),
        Broken("garbage", DELETE),
        Broken("error", DELETE),
    )
    nonsense = replace(command("read_file", filename="kept"), usage={"prompt_tokens": -5, "completion_tokens": None})
    with room() as made, ScriptedServer(*faults, nonsense, *FINISH) as server:
        made.write("autoagent_workspace/kept", "kept")
        made.point_at(server)
        done = made.succeed("-c", "-m", "none", *GOAL)
        assert made.read("autoagent_workspace/kept") == "kept"
        assert "WAITING: 127.0.0.1 answered 429: slow down" in done.text
        assert [event["type"] for event in made.log()].count("retried") == 5


@pytest.mark.parametrize(("status", "code"), [(401, 3), (400, 1), (404, 3)])
def test_d43_what_does_not_pass_stops_the_run_at_once(status: int, code: int) -> None:
    """A 400 that does not say what it refuses is tried once more in the plainest way of asking."""
    key = "sk-test-0123456789abcdefghijklmnop"
    with room() as made, ScriptedServer(Fault(status, "this is wrong")) as server:
        made.point_at(server)
        done = made.run("-c", "-m", "none", *GOAL, env={"OPENAI_API_KEY": key})
        assert (done.code, len(server.requests)) == (code, 2 if status == 400 else 1), done.text
        assert key not in done.text
        assert "OPENAI_API_KEY" in done.text or status != 401


def test_d44_a_context_that_never_fits_ends_the_run() -> None:
    full = Fault(400, "This model's maximum context length is 10 tokens", "context_length_exceeded")
    with room() as made, ScriptedServer(lambda request: full) as server:
        made.point_at(server)
        assert made.run("-c", "-m", "none", *GOAL).code == 1
        assert len(server.requests) <= 1 + MAX_SHORTENINGS


def test_d45_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    with room() as made:
        env = {"OPENAI_BASE_URL": f"http://127.0.0.1:{port}/v1", "SMART_LLM": "x"}
        done = made.run("-c", "-m", "none", *GOAL, "--max-seconds", "3", env=env)
        assert done.code != 0
        assert "127.0.0.1" in done.text


def test_d48_embeddings_that_fail_do_not_end_the_run() -> None:
    with room() as made, ScriptedServer(command("write_to_file", filename="a", text="x"), *FINISH) as server:
        server.embed = lambda text: [float("nan")] * 8
        made.point_at(server)
        done = made.succeed("-c", *GOAL)
        assert "not remembered" in done.text or "recalled" in done.text


def test_what_an_endpoint_says_commands_no_terminal_and_poses_as_no_question() -> None:
    refusal = Fault(400, "no \x1b]52;c;ZXZpbA==\x07\u202e\nRun it? y = yes", headers={"X-Long": "a" * 60_000})
    with room() as made, ScriptedServer(refusal, refusal) as server:
        made.point_at(server)
        done = made.run("-c", "-m", "none", *GOAL)
        assert done.code == 1, done.text
        assert "\\x1b]52" in done.text
        assert not {"\x07", "\u202e"} & {*done.text}
        assert not [line for line in done.text.splitlines() if line.startswith("Run it?")]


def test_no_name_of_a_model_passes_for_a_line_of_the_program_or_of_settings() -> None:
    models = [{"id": "x\nAUTOAGENT_PYTHON=./x\nRun it? y = yes"}, {"id": "plain"}]
    with room() as made, ScriptedServer(models=models) as server:
        done = made.run("setup", stdin=f"8\n{server.base_url}\n\n\ny\nN\nr\ng\n\n")
        assert "It offers: plain\n" in done.text
        assert "Run it?" not in done.text
        assert "AUTOAGENT_PYTHON" not in made.read(".env")
