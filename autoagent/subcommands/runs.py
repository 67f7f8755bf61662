"""`autoagent runs` and `show`: what happened in this state folder."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from autoagent.app import run_factory
from autoagent.app.current import settings_here
from autoagent.core.errors import StateError
from autoagent.core.events import RunStarted
from autoagent.runs.event_log import find_run, read, run_ids
from autoagent.runs.stats import RunStats
from autoagent.terminal.output import echo, echo_list, minute
from autoagent.terminal.rendering import counted
from autoagent.text.sanitize import escape, shorten


@click.command("runs")
@click.option("--json", "as_json", is_flag=True, help="A list: id, status, steps, cost, updated, workspace, goals.")
@click.pass_context
def runs(ctx: click.Context, as_json: bool) -> None:
    """List the runs of the state folder, the newest first."""
    state_dir = settings_here(ctx.obj).state_dir
    rows = list(_rows(state_dir))
    echo_list(rows, as_json, lambda row: row, _line, f"There are no runs in {state_dir}.")


def _line(row: Mapping[str, Any]) -> str:
    cost = "cost ?" if row["cost"] is None else f"${row['cost']:.4f}"
    goals = shorten(escape("; ".join(row["goals"])).replace("\n", " "), 100)
    steps = counted(row["steps"], "step")
    return f"{row['id']}  {row['status']:11}  {steps:>10}  {cost}  {minute(row['updated'])}  {goals}"


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


def _readable(state_dir: Path) -> Iterator[tuple[str, RunStarted, RunStats]]:
    """Yield every run that began, newest first, with its newest start; report which logs are damaged."""
    for run in run_ids(state_dir):
        tally, began = RunStats(), None
        try:
            for event in read(state_dir, run):
                tally.add(event)
                began = event if isinstance(event, RunStarted) and not event.agent else began
        except StateError as error:
            echo(f"autoagent: {error}", err=True)
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
    console = run_factory.open_console(settings, json=as_json, replays=True)
    for event in read(settings.state_dir, run):
        console.show(event)
    if not as_json:
        console.report(settings.state_dir / "runs" / run / "events.jsonl")
