"""`autoagent runs` and `show`: what happened in this state folder."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from autoagent.app import run_factory
from autoagent.app.current import look, said_here, settings_here
from autoagent.config.settings import EMBEDDER, KEPT, Settings
from autoagent.core.errors import StateError
from autoagent.core.events import Ended, Resumed, Rewound, RunStarted
from autoagent.runs.event_log import find_run, read, run_ids
from autoagent.runs.stats import RunStats
from autoagent.subcommands.flags import given_in
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
    """Every run that began, the newest first, with its newest start; says which logs are damaged."""
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


def settings_of_run(began: RunStarted, given: Mapping[str, Any]) -> Settings:
    """The settings a run takes up again. Before its own go those of the flags `given`, and those that environment,
    `.env` or user config say now and did not say when it last began: the user has set them since.
    """
    own = {name: tuple(value) if isinstance(value, list) else value for name, value in began.settings.items()}
    if "said" not in own and own.get("embedding_model") == EMBEDDER:  # so an older log has what nobody named
        del own["embedding_model"]
    before = began.settings.get("said", {})
    said = run_factory.as_kept(said_here(name for name in run_factory.KEPT_SETTINGS if name != "workspace"))
    since = [name for name, value in said.items() if name not in before or before[name] != value]
    kept = {name: value for name, value in own.items() if name not in since}
    here = look({KEPT: kept, **given_in(given)})
    here.tell_unsent(but=look(given).loaded.unsent)
    return here.settings


def last_start(state_dir: Path, run: str) -> RunStarted:
    """The newest event that says what shapes the run. Raises StateError where there is none."""
    return ends(state_dir, run)[0]


def ends(state_dir: Path, run: str) -> tuple[RunStarted, bool]:
    """The newest event that says what shapes the run, and whether it is finished. Raises StateError as `last_start`."""
    began, ended = _ends(state_dir, run)
    if began is None:
        raise StateError(f"The run {run} was cut off before it began; start a new one.")
    return began, ended is not None and ended.status == "finished"


def newest_unfinished(state_dir: Path) -> str:
    """The newest run that is not finished; says which logs are damaged. Raises StateError where there is none."""
    for run in run_ids(state_dir):
        try:
            began, ended = _ends(state_dir, run)
        except StateError as error:
            echo(f"autoagent: {error}", err=True)
        else:
            if began is not None and (ended is None or ended.status != "finished"):
                return run
    raise StateError(f"There is no unfinished run in {state_dir}.")


def _ends(state_dir: Path, run: str) -> tuple[RunStarted | None, Ended | None]:
    """The newest start of a run and the end after it, as far as they are there."""
    began, ended = None, None
    for event in read(state_dir, run, (RunStarted, Resumed, Rewound, Ended)):
        if event.agent:
            continue
        if isinstance(event, Ended):
            ended = event
        else:
            began, ended = event if isinstance(event, RunStarted) else began, None
    return began, ended
