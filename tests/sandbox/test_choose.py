"""Which sandbox is taken, and what is said where it is not the strongest."""

from __future__ import annotations

from pathlib import Path

import pytest
from agent import Hold

from autoagent.core.errors import SetupError
from autoagent.sandbox.process import ProcessLimits
from autoagent.sandbox.programs import open_sandbox
from autoagent.workspace.gate import Workspace


def test_the_strongest_that_works_is_taken(hold: Hold) -> None:
    strongest = hold("bubblewrap")
    assert hold("auto").name == strongest.name == "bubblewrap"
    assert strongest.gaps == ""


def test_without_bubblewrap_the_next_kind_says_what_is_missing(hold: Hold) -> None:
    agent = hold("auto", env={"PATH": "/nowhere"})
    assert agent.name in ("landlock", "none")
    assert "No bubblewrap: bubblewrap is not installed" in agent.gaps
    assert agent.run("true").status == 0


def test_a_bubblewrap_that_does_not_work_is_no_sandbox(place: Path, hold: Hold) -> None:
    broken = place / "bwrap"
    broken.write_text("#!/bin/sh\necho 'bwrap: No permissions to create a new namespace' >&2; exit 1\n")
    broken.chmod(0o755)
    agent = hold("auto", env={"PATH": f"{place}:/usr/bin:/bin"})
    assert agent.name in ("landlock", "none")
    assert "No bubblewrap: bwrap: No permissions to create a new namespace" in agent.gaps


def test_a_kind_asked_for_by_name_is_not_replaced(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(SetupError, match="bubblewrap is not installed"):
        open_sandbox(Workspace(place / "ws"), ProcessLimits(), kind="bubblewrap")


def test_none_is_no_answer_where_a_sandbox_is_required(place: Path) -> None:
    with pytest.raises(SetupError, match="required"):
        open_sandbox(Workspace(place / "ws"), ProcessLimits(), kind="none", required=True)


def test_the_network_is_among_the_gaps_where_programs_may_use_it(place: Path) -> None:
    try:
        sandbox = open_sandbox(Workspace(place / "ws"), ProcessLimits(), network=True)
    except SetupError as error:
        pytest.skip(str(error))
    assert "services of this machine" in "\n".join(sandbox.gaps)
    sandbox.close()


@pytest.mark.parametrize("kind", ["auto", "bubblewrap"])
def test_an_interpreter_that_is_none_is_refused_and_no_reason_for_a_weaker_kind(place: Path, kind: str) -> None:
    with pytest.raises(SetupError, match="/bin/false is not a working Python interpreter"):
        open_sandbox(Workspace(place / "ws"), ProcessLimits(), kind=kind, python="/bin/false")
