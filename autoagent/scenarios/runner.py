"""Play a scenario in a fresh folder: the home, the state and the workspace of a separate user."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autoagent.core.errors import SettingsError, StateError
from autoagent.log.reader import log_path, read, run_ids
from autoagent.registry.memory import NOTHING
from autoagent.scenarios.assertions import differences
from autoagent.scenarios.loader import CONFIG, RUN, GivenFile, Scenario, ScenarioSession
from autoagent.scenarios.process import run_at_terminal, run_on_pipes
from autoagent.scenarios.scripted_endpoint import ScriptedEndpoint
from autoagent.session.permissions import BOUNDS_VARIABLE, tighter_bounds
from autoagent.settings import all_settings

_TRUSTED = (".env", ".autoagent", ".mcp.json", ".agents", ".claude", "AGENTS.md", "ai_settings.yaml")
"""The first parts of paths that need trust. These belong to the scenario, whose bounds apply in any case."""
_WINDOW_TOKENS = 32_000  # room for every command
_STATE_DIR = "AUTOAGENT_STATE_DIR"


@dataclass(frozen=True, slots=True)
class ScenarioResult:
    """The outcome of a scenario: its `problems` if it is not as expected, and the last session's screen.

    `folder` is where it was played, None if it was deleted.
    """

    seconds: float
    problems: tuple[str, ...]
    screen: str
    folder: Path | None


def play(
    scenario: Scenario, *, keep: bool, state: Path | None = None, bounds: Mapping[str, Any] | None = None
) -> ScenarioResult:
    """Play the sessions up to the first with a problem. Leave no process behind.

    `state` holds their runs unless the scenario sets another, None for its own folder. `bounds` are the settings that
    it may only tighten (see session.permissions), None for no bounds. Raises SettingsError if its files cannot be
    created.
    """
    start_time = time.monotonic()
    with ExitStack() as stack:
        folder = Path(tempfile.mkdtemp(prefix="autoagent-test-")).resolve()
        if not keep:
            stack.callback(shutil.rmtree, folder, ignore_errors=True)
        endpoint = stack.enter_context(closing(ScriptedEndpoint()))
        state_setting = {"state_dir": str(state.absolute())} if state else {}
        config = _config(scenario, endpoint.base_url, state_setting, bounds or {})
        bounds_variable = {} if bounds is None else {BOUNDS_VARIABLE: json.dumps({**bounds, **state_setting})}
        variables = _environment(folder, scenario, bounds_variable)
        for file in (GivenFile(CONFIG, json.dumps(config, ensure_ascii=False, indent=1)), *scenario.files):
            path = folder / file.path
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                if file.source is None:
                    path.write_text(file.content, encoding="utf-8", newline="")
                elif file.source.is_dir():
                    shutil.copytree(file.source, path, dirs_exist_ok=True)
                else:
                    shutil.copyfile(file.source, path)
            except OSError as error:
                raise SettingsError(f"{scenario.path}: files: {file.path}: {error.strerror or error}.") from error
        default_state = folder / scenario.environment.get(_STATE_DIR, str(config.get("state_dir") or ".autoagent"))
        if any(Path(file.path).parts[0] in _TRUSTED for file in scenario.files):
            run_on_pipes(["trust"], folder, variables, (), scenario.seconds)
        player = _SessionPlayer(scenario, folder, variables, default_state, endpoint, start_time + scenario.seconds)
        for session in scenario.sessions:
            problems, screen = player.play(session)
            if problems:
                break
    return ScenarioResult(time.monotonic() - start_time, tuple(problems), screen, folder if keep else None)


@dataclass(slots=True)
class _SessionPlayer:
    """Play the sessions of a scenario in its folder, until `deadline` (as time.monotonic counts).

    `default_state` is the state folder for sessions without their own, `last_state` that of the last session.
    """

    scenario: Scenario
    folder: Path
    variables: Mapping[str, str]
    default_state: Path
    endpoint: ScriptedEndpoint
    deadline: float
    last_state: Path | None = None

    def play(self, session: ScenarioSession) -> tuple[list[str], str]:
        """Play a session. Return its problems and its screen."""
        place = session.expected.place
        logs = [log_path(self.last_state, run) for run in run_ids(self.last_state)] if self.last_state else []
        # the most recently written, as ids have no order within a second
        run = max(logs, key=lambda log: log.stat().st_mtime_ns).parent.name if logs else ""
        if RUN in session.arguments and not run:
            return [f"{place}: arguments: {RUN} names the run of an earlier session, and there is none."], ""
        arguments = [run if argument == RUN else argument for argument in session.arguments]
        state = self.last_state = self.folder / _named_state(arguments, self.default_state)
        self.endpoint.load(session.replies)
        start = run_at_terminal if session.terminal else run_on_pipes
        seconds = self.deadline - time.monotonic()
        old_events = _events(state)
        outcome = start(arguments, self.folder, self.variables, session.answers, seconds)
        if outcome.code is None:
            problem = f"{place}: it took longer than {self.scenario.seconds:g} s (`seconds`) and was ended."
            return [problem], outcome.screen
        try:
            events = _events(state) - old_events
        except StateError as error:
            return [f"{place}: {error}"], outcome.screen
        problems = list(differences(session, outcome, self.endpoint, events, self.folder))
        if problems and outcome.eofs_sent:
            problems.append(f"{place}: answers: no answer was left for the last question, so the input ended.")
        return problems, outcome.screen


def _named_state(arguments: Sequence[str], default: Path) -> Path:
    """Return the last state folder named in the arguments, else the default."""
    flag, state = "--state-dir", default
    for number, argument in enumerate(arguments):
        if argument == flag:
            state = Path(*arguments[number + 1 : number + 2])
        elif argument.startswith(f"{flag}="):
            state = Path(argument.removeprefix(f"{flag}="))
    return state


def _events(state: Path) -> Counter[str]:
    return Counter(event.type for run in run_ids(state) for event in read(state, run))


def _config(
    scenario: Scenario, base_url: str, state_setting: Mapping[str, str], bounds: Mapping[str, Any]
) -> Mapping[str, str | list[str]]:
    """Return the user's configuration: the scripted model unless the scenario sets another."""
    tighter = tighter_bounds(bounds, all_settings()())
    return {
        **{name: value if isinstance(value, list) else str(value) for name, value in tighter.items()},
        "openai_base_url": base_url,
        "smart_llm": "scripted",
        "fast_llm": "scripted",
        "window": str(_WINDOW_TOKENS),
        "memory_backend": NOTHING.name,
        "memory_distil": "false",  # a script has only the replies of the run
        **state_setting,
        **scenario.settings,
    }


def _environment(folder: Path, scenario: Scenario, bounds_variable: Mapping[str, str]) -> dict[str, str]:
    """Build the environment from nothing but the user's PATH, the scenario's variables and its bounds."""
    return {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": str(folder),
        "LANG": "C.UTF-8",
        "TZ": "UTC",
        "TERM": "dumb",  # a plain screen, with nothing redrawn
        "INPUTRC": os.devnull,
        **scenario.environment,
        **bounds_variable,
    }
