"""`autoagent runs`, `show` and `resume`: what happened in this state folder, and going on with it."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from autoagent.cli import resume_flags
from autoagent.errors import StateError
from autoagent.messages import Rejected, RunStarted, Thought
from autoagent.printable import escape, shorten
from autoagent.runlog import RunLog, find_run, read, run_ids
from autoagent.screen_text import counted
from autoagent.settings import Settings
from autoagent.subcommands import assembly
from autoagent.subcommands.here import settings_here
from autoagent.subcommands.run import check_flags, warn
from autoagent.tally import Tally


@click.command("runs")
@click.option("--json", "as_json", is_flag=True, help="A list: id, status, steps, cost, updated, workspace, goals.")
@click.pass_context
def runs(ctx: click.Context, as_json: bool) -> None:
    """List the runs of the state folder, the newest first."""
    state_dir = settings_here(ctx.obj).state_dir
    rows = list(_rows(state_dir))
    if as_json:
        click.echo(json.dumps(rows, ensure_ascii=False, indent=2))
        return
    for row in rows:
        cost = "cost ?" if row["cost"] is None else f"${row['cost']:.4f}"
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(row["updated"]))
        goals = shorten(escape("; ".join(row["goals"])).replace("\n", " "), 100)
        steps = counted(row["steps"], "step")
        click.echo(f"{row['id']}  {row['status']:11}  {steps:>10}  {cost}  {when}  {goals}")
    if not rows:
        click.echo(f"There are no runs in {state_dir}.", err=True)


def _rows(state_dir: Path) -> Iterator[dict[str, Any]]:
    for run, began, tally in _readable(state_dir):
        yield {
            "id": run,
            "status": tally.ended.status if tally.ended else "unfinished",
            "steps": tally.step,
            "cost": tally.usage.cost,
            "updated": tally.updated,
            "workspace": began.workspace,
            "goals": [str(goal) for goal in began.task.goals],
        }


def _readable(state_dir: Path) -> Iterator[tuple[str, RunStarted, Tally]]:
    """Every run that began, the newest first, with its newest start; says which logs are damaged."""
    for run in run_ids(state_dir):
        tally, began = Tally(), None
        try:
            for event in read(state_dir, run):
                tally.add(event)
                began = event if isinstance(event, RunStarted) else began
        except StateError as error:
            click.echo(f"autoagent: {error}", err=True)
        else:
            if began is not None:
                yield run, began, tally


@click.command("show")
@click.argument("run")
@click.option("--json", "as_json", is_flag=True, help="The events as they are in the log.")
@click.pass_context
def show(ctx: click.Context, run: str, as_json: bool) -> None:
    """Show RUN again as it was on screen, from its log. RUN is any unique prefix of an id."""
    settings = settings_here(ctx.obj)
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
    given = {name: value for flags in (ctx.obj or {}, given) for name, value in flags.items() if value}
    state_dir = settings_here(given).state_dir
    run = find_run(state_dir, run) if run else _newest_unfinished(state_dir)
    began = _last_start(state_dir, run)
    ctx.exit(_resume(given, settings_of_run(began, given), run, began))


def settings_of_run(began: RunStarted, given: Mapping[str, Any]) -> Settings:
    """The settings a run takes up again, with those of the flags `given` before its own."""
    own = {name: tuple(value) if isinstance(value, list) else value for name, value in began.settings.items()}
    return settings_here({**own, **{name: value for name, value in given.items() if value}})


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
        start = assembly.describe(began.task, settings, model, registry, began)
        warn(given, settings, console.warn)
        return assembly.drive(start, model, registry, settings, console, lambda: log, attended=attended)


def _newest_unfinished(state_dir: Path) -> str:
    for run, _, tally in _readable(state_dir):
        if tally.ended is None or tally.ended.status != "finished":
            return run
    raise StateError(f"There is no unfinished run in {state_dir}.")


def _last_start(state_dir: Path, run: str) -> RunStarted:
    """The newest event that says what shapes the run."""
    found = [event for event in read(state_dir, run) if isinstance(event, RunStarted)]
    if not found:
        raise StateError(f"The run {run} was cut off before it began; start a new one.")
    return found[-1]
