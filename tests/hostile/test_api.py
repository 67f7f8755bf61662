"""An endpoint whose words are meant for the terminal. One that is slow or breaks off is in cli/test_api_faults."""

from __future__ import annotations

import pytest
from cli.driver import GOAL
from server import Fault, ScriptedServer

from .driver import room

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("either")]  # a process for each


def test_what_an_endpoint_says_commands_no_terminal_and_poses_as_no_question() -> None:
    refusal = Fault(400, "no \x1b]52;c;ZXZpbA==\x07\u202e\nRun it? y = yes", headers={"X-Long": "a" * 60_000})
    with room() as made, made.served(refusal, refusal):
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
