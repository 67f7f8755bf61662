"""Define `autoagent test`: play scenarios as real processes, and compare them with their expectations."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from autoagent.core.errors import SettingsError
from autoagent.scenarios.loader import Scenario, read_scenario
from autoagent.scenarios.runner import ScenarioResult, play
from autoagent.session.load import load
from autoagent.session.permissions import BOUNDS_VARIABLE, bounds_of
from autoagent.terminal.output import echo, echo_json
from autoagent.terminal.signals import Interrupts
from autoagent.text.sanitize import escape

SCREEN_LINES = 40  # lines of the screen shown for a failed scenario


@click.command("test")
@click.argument("files", nargs=-1, required=True, metavar="SCENARIO...", type=click.Path(path_type=Path))
@click.option("--keep", is_flag=True, help="Keep the folder of each scenario, and print its path.")
@click.option("--json", "as_json", is_flag=True, help="A list: file, about, passed, seconds, problems, screen, folder.")
@click.option("--trusted", is_flag=True, help="The scenarios are your own: allow any settings, variables and paths.")
@click.pass_context
def test(ctx: click.Context, files: tuple[Path, ...], keep: bool, as_json: bool, trusted: bool) -> None:
    """Play scenarios: settings, scripted replies, typed answers and expected results.

    A scenario can only tighten the sandbox of your own settings, and stays in its folder, unless it is --trusted.

    Exit codes: 0 all passed, 1 some failed, 2 a file is not a valid scenario (nothing is played then).
    docs/scenarios.md describes the files.
    """
    bounds: Mapping[str, Any] | None = None  # scenarios may only tighten these; nested ones inherit them
    if BOUNDS_VARIABLE in os.environ:
        bounds = json.loads(os.environ[BOUNDS_VARIABLE])
    elif not trusted:
        bounds = bounds_of(load(ctx.obj or {}, os.environ, Path.cwd()).settings)
    scenarios = _read(files, trusted=bounds is None)
    if scenarios is None:
        ctx.exit(2)
    rows: list[dict[str, Any]] = []
    state = (ctx.obj or {}).get("state_dir")
    with Interrupts().installed() as interrupts, interrupts.allowed():  # an interrupted test cleans up after itself
        for scenario in scenarios:
            played = play(scenario, keep=keep, state=Path(state) if state else None, bounds=bounds)
            rows.append(
                {
                    "file": str(scenario.path),
                    "about": scenario.about,
                    "passed": not played.problems,
                    "seconds": round(played.seconds, 3),
                    "problems": list(played.problems),
                    "screen": _last_lines(played),
                    "folder": str(played.folder) if played.folder else None,
                }
            )
            if not as_json:
                echo("\n".join(_report(scenario, played)))
    failed = sum(not row["passed"] for row in rows)
    if as_json:
        echo_json(rows)
    else:
        echo(f"{len(rows) - failed} passed, {failed} failed.")
    ctx.exit(1 if failed else 0)


def _read(files: tuple[Path, ...], *, trusted: bool) -> list[Scenario] | None:
    """Read the scenarios, or report every invalid file and return None."""
    scenarios = []
    for file in files:
        try:
            scenarios.append(read_scenario(file, trusted=trusted))
        except SettingsError as error:
            echo(f"autoagent: {error}", err=True)
    return scenarios if len(scenarios) == len(files) else None


def _report(scenario: Scenario, played: ScenarioResult) -> list[str]:
    about = f": {scenario.about}" if scenario.about else ""
    head = f"{'FAILED' if played.problems else 'passed'}  {scenario.path}{about} ({played.seconds:.1f} s)"
    folder_note = [f"  The folder is kept: {played.folder}"] if played.folder else []
    if not played.problems:
        return [head, *folder_note]
    indented = [f"  {line}" for problem in played.problems for line in problem.split("\n")]
    screen = [f"  | {line}".rstrip() for line in _last_lines(played)]
    folder_note = folder_note or ["  --keep keeps the folder for inspection."]
    return ["", head, *indented, f"  The end of the screen, {len(screen)} lines:", *screen, *folder_note, ""]


def _last_lines(played: ScenarioResult) -> list[str]:
    return [escape(line) for line in played.screen.rstrip().split("\n")[-SCREEN_LINES:]]
