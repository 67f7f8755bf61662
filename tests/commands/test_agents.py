"""What the model reads of its sub-agents, and what their words carry on."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from autoagent.commands import agents
from autoagent.commands.context import Context
from autoagent.commands.registry import Registry
from autoagent.core.commands import Call, Result
from autoagent.core.errors import CommandError
from autoagent.core.memory import Origin
from autoagent.core.protocols import SubAgent
from autoagent.memory.none import NoMemory
from autoagent.settings import Settings, all_settings
from autoagent.workspace.gate import Workspace

PAGE = Origin("https://example.org/", trusted=False)
ANNA = SubAgent("1", "Anna", "writing", status="running", steps=3, seconds=12.4, said="I have\nthe title.")
BEA = SubAgent("2", "Bea", "reading", status="finished", reason="all read", steps=1, said="all read", origin=PAGE)
CLEO = SubAgent("3", "Cleo", "looking", status="asking", origin=Origin("private"))


class Known:
    """Satisfies SubAgents with agents that stand as they are; keeps what it was asked."""

    def __init__(self, *known: SubAgent) -> None:
        self.known = {agent.key: agent for agent in known}
        self.asked: list[object] = []

    def start(
        self, name: str, task: str, prompt: str, *, commands: Sequence[str] = (), origin: Origin | None = None
    ) -> SubAgent:
        self.asked.append((name, task, prompt, tuple(commands), origin))
        return self.known["1"]

    def message(self, key: str, text: str, *, origin: Origin | None = None) -> SubAgent:
        self.asked.append((key, text, origin))
        return self.known[key]

    def listed(self, wait: float = 0.0) -> Sequence[SubAgent]:
        self.asked.append(wait)
        return list(self.known.values())

    def end(self, key: str) -> SubAgent:
        if key not in self.known:
            raise CommandError(f"There is no agent {key!r}.")
        return self.known[key]


def run(tmp_path: Path, known: Known, command: str, origin: Origin | None = None, **args: object) -> Result:
    context = Context(
        Workspace(tmp_path), NoMemory(), lambda question, timeout: "", agents=known, origin=lambda: origin or Origin()
    )
    registry = Registry(agents.COMMANDS)
    return registry.execute(registry.check(Call("1", command, args)), context)


def test_each_stands_in_a_line_of_its_own(tmp_path: Path) -> None:
    listed = run(tmp_path, Known(ANNA, BEA, CLEO), "list_agents")
    assert listed.text.splitlines() == [
        "1. Anna: running for 12 s, 3 steps. It said last: I have the title.",
        "2. Bea: ended (finished) after 1 step: all read",
        "3. Cleo: waits for the user's answer to a question, 0 steps.",
    ]
    assert run(tmp_path, Known(), "list_agents").text == "You have started no agent."


def test_their_words_carry_what_they_have_read(tmp_path: Path) -> None:
    assert run(tmp_path, Known(ANNA), "list_agents").meta.to_json() == {"waits": True}
    both = run(tmp_path, Known(ANNA, BEA, CLEO), "list_agents").meta.to_json()
    assert both == {"untrusted": "https://example.org/", "private": True, "waits": True}
    assert run(tmp_path, Known(BEA), "list_agents").meta.to_json()["waits"] is False
    for command, args in ("message_agent", {"key": "2", "message": "hi"}), ("delete_agent", {"key": "2"}):
        assert run(tmp_path, Known(BEA), command, **args).meta.untrusted == "https://example.org/"


def test_what_this_agent_has_read_goes_with_its_own_words(tmp_path: Path) -> None:
    known = Known(ANNA)
    started = run(tmp_path, known, "start_agent", PAGE, name="Anna", task="t", prompt="p", commands=["read_file"])
    assert started.meta.to_json() == {"agent": "1"}
    run(tmp_path, known, "message_agent", PAGE, key="1", message="go on")
    assert known.asked == [("Anna", "t", "p", ("read_file",), PAGE), ("1", "go on", PAGE)]


def test_it_is_waited_for_as_long_as_is_asked(tmp_path: Path) -> None:
    known = Known(ANNA)
    run(tmp_path, known, "list_agents", wait=30)
    run(tmp_path, known, "list_agents")
    assert known.asked == [30.0, 0.0]


def test_an_unknown_key_fails_with_its_line(tmp_path: Path) -> None:
    assert run(tmp_path, Known(), "delete_agent", key="9").text == "There is no agent '9'."


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        (all_settings()(), ""),
        (all_settings()(agents_at_once=0), "AUTOAGENT_AGENTS=0"),
        (all_settings()(agents_depth=0), "AUTOAGENT_AGENTS_DEPTH=0"),
        (all_settings()(model="human"), "one agent alone"),
    ],
    ids=["usual", "none at once", "no depth", "a person"],
)
def test_they_say_why_they_cannot_be_used(settings: Settings, reason: str) -> None:
    for command in (known for known in agents.COMMANDS if known.spec.category == "agents"):
        assert command.available is not None
        found = command.available(settings)
        assert (reason in found) if reason else not found
