"""`autoagent runs`, `show` and `resume`: what happened in this state folder, and going on with it."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from autoagent.cli import resume_flags
from autoagent.errors import StateError
from autoagent.messages import Rejected, Resumed, RunStarted, Thought
from autoagent.printable import escape, shorten
from autoagent.runlog import RunLog, find_run, read, run_ids
from autoagent.settings import Settings, load
from autoagent.subcommands import assembly
from autoagent.subcommands.run import check_flags, warn
from autoagent.tally import Tally


def _settings(ctx: click.Context) -> Settings:
    return load(ctx.obj or {}, os.environ, Path.cwd()).settings


@click.command("runs")
@click.option("--json", "as_json", is_flag=True, help="A list: id, status, steps, cost, updated, workspace, goals.")
@click.pass_context
def runs(ctx: click.Context, as_json: bool) -> None:
    """List the runs of the state folder, the newest first."""
    state_dir = _settings(ctx).state_dir
    rows = list(_rows(state_dir))
    if as_json:
        click.echo(json.dumps(rows, ensure_ascii=False, indent=2))
        return
    for row in rows:
        cost = "cost ?" if row["cost"] is None else f"${row['cost']:.4f}"
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(row["updated"]))
        goals = shorten(escape("; ".join(row["goals"])), 100)
        click.echo(f"{row['id']}  {row['status']:11}  {row['steps']:4} steps  {cost}  {when}  {goals}")
    if not rows:
        click.echo(f"There are no runs in {state_dir}.", err=True)


def _rows(state_dir: Path) -> Iterator[dict[str, Any]]:
    for run in run_ids(state_dir):
        tally, workspace = Tally(), ""
        try:
            for event in read(state_dir, run):
                tally.add(event)
                workspace = event.workspace if isinstance(event, RunStarted) else workspace
        except StateError as error:
            click.echo(f"autoagent: {error}", err=True)
            continue
        yield {
            "id": run,
            "status": tally.ended.status if tally.ended else "unfinished",
            "steps": tally.step,
            "cost": tally.usage.cost,
            "updated": tally.updated,
            "workspace": workspace,
            "goals": [str(goal) for goal in tally.task.goals] if tally.task else [],
        }


@click.command("show")
@click.argument("run")
@click.option("--json", "as_json", is_flag=True, help="The events as they are in the log.")
@click.pass_context
def show(ctx: click.Context, run: str, as_json: bool) -> None:
    """Show RUN again as it was on screen, from its log. RUN is any unique prefix of an id."""
    settings = _settings(ctx)
    run = find_run(settings.state_dir, run)
    console = assembly.open_console(settings, json=as_json)
    for event in read(settings.state_dir, run):
        console.show(event)
    if not as_json:
        console.report(settings.state_dir / "runs" / run / "events.jsonl")


@click.command("resume")
@click.argument("run", required=False)
@resume_flags
@click.pass_context
def resume(ctx: click.Context, /, run: str | None, **given: Any) -> None:
    """Go on with RUN, or with the newest unfinished run, in its own workspace and with its own settings.

    Flags given here go before the settings of the run. Whether it runs without asking must be said anew (-c).
    """
    given = {**(ctx.obj or {}), **{name: value for name, value in given.items() if value}}
    state_dir = load(given, os.environ, Path.cwd()).settings.state_dir
    run = find_run(state_dir, run) if run else _newest_unfinished(state_dir)
    began = _last_start(state_dir, run)
    ctx.exit(_resume(given, settings_of_run(began, given), run, began))


def settings_of_run(began: RunStarted, given: Mapping[str, Any]) -> Settings:
    """The settings a run takes up again, with those of the flags `given` before its own."""
    own = {name: tuple(value) if isinstance(value, list) else value for name, value in began.settings.items()}
    flags = {name: value for name, value in given.items() if value}
    return load({**own, **flags}, os.environ, Path.cwd()).settings


def _resume(given: Mapping[str, Any], settings: Settings, run: str, began: RunStarted) -> int:
    check_flags(given, settings)
    console = assembly.open_console(settings, json=bool(given.get("json_output")))
    answered = 0
    with RunLog.open(settings.state_dir, run, mask=assembly.mask_of(settings)) as log:
        for event in log.events():
            console.pass_over(event)
            answered += isinstance(event, (Thought, Rejected))
        if console.tally.ended and console.tally.ended.status == "finished":
            raise StateError(f"The run {run} is finished; there is nothing to go on with.")
        model = assembly.open_model(settings, console, answered)
        attended = not settings.continuous or sys.stdin.isatty()
        registry = assembly.open_registry(settings, began.task, model.window, attended=attended)
        start = assembly.describe(began.task, settings, model, registry, Path(began.workspace), resumed=True)
        warn(given, settings, console.warn)
        return assembly.drive(start, model, registry, settings, console, log, attended=attended)


def _newest_unfinished(state_dir: Path) -> str:
    for run in run_ids(state_dir):
        tally = Tally()
        for event in read(state_dir, run):
            tally.add(event)
        if tally.ended is None or tally.ended.status != "finished":
            return run
    raise StateError(f"There is no unfinished run in {state_dir}.")


def _last_start(state_dir: Path, run: str) -> RunStarted:
    """The newest event that says what shapes the run."""
    found = [event for event in read(state_dir, run) if isinstance(event, (RunStarted, Resumed))]
    if not found:
        raise StateError(f"The run {run} was cut off before it began; start a new one.")
    return found[-1]
