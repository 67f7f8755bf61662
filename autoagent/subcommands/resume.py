"""`autoagent resume`: continues a run where it stopped, or from one of its steps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import click

from autoagent.app import run_factory
from autoagent.app.current import trusted_here
from autoagent.app.earlier_runs import answered, ends, newest_unfinished, replies, settings_of_run, tell_changes
from autoagent.app.folder_texts import folder_texts
from autoagent.app.plugins import opened_plugins
from autoagent.app.restoring import (
    cut_off,
    finish,
    history_of_run,
    history_until,
    open_snapshots,
    outcome_line,
    restore,
    workspace_of,
)
from autoagent.app.run_driver import RunPlan, drive, told_as_event
from autoagent.app.tool_servers import opened_servers
from autoagent.config.settings import Settings
from autoagent.core.errors import StateError
from autoagent.core.events import Rejected, Rewound, RunStarted, Thought
from autoagent.runs.event_log import EventLog
from autoagent.runs.log_reader import find_run, read
from autoagent.safety.tainted_files import TaintedFiles
from autoagent.subcommands.flags import given_in, resume_flags, run_ids_here
from autoagent.subcommands.task_flags import check_flags, task_of_run
from autoagent.terminal.console import Console


@click.command("resume")
@click.argument("run", required=False, shell_complete=run_ids_here)
@click.option(
    "--from",
    "step",
    type=click.IntRange(min=0),
    metavar="STEP",
    help="Go back to the end of STEP, the workspace with it; the steps after it do not count any more.",
)
@click.option("--force", is_flag=True, help="With --from: even if files were changed by hand since.")
@resume_flags
@click.pass_context
def resume(ctx: click.Context, /, run: str | None, step: int | None, force: bool, **given: Any) -> None:
    """Go on with RUN, or with the newest unfinished run, in its own workspace and with its own settings.

    Flags given here go before the settings of the run; goals given here take the place of its own. Whether it runs
    without asking must be said anew (-c).
    """
    given = given_in(ctx.obj or {}, given)
    with told_as_event(given):
        state_dir = trusted_here(given).settings.state_dir
        run = find_run(state_dir, run) if run else newest_unfinished(state_dir)
        began, finished = ends(state_dir, run)
        if step is None and finished:
            raise StateError(f"The run {run} is finished; there is nothing to go on with.")
        if "team" in began.settings:
            ctx.exit(_resume_team(given, settings_of_run(began, given), run, began, step))
        ctx.exit(_resume(given, settings_of_run(began, given), run, began, step, force=force))


def _resume(
    given: Mapping[str, Any], settings: Settings, run: str, began: RunStarted, step: int | None, *, force: bool
) -> int:
    check_flags(given, settings)
    console = run_factory.open_console(settings, json=bool(given.get("json_output")))
    with (
        EventLog.open(settings.state_dir, run, mask=run_factory.mask_of(settings)) as log,
        opened_servers(settings, given, console) as servers,
        opened_plugins(settings, given, console.say, console.warn) as plugins,
    ):
        log.subscribe(console.pass_over)
        if step is not None:
            _check_step(settings, run, step)
        had = answered(settings, run, step)
        model = plugins.model(settings, lambda: run_factory.open_model(settings, console, had))
        attended = run_factory.is_attended(settings)
        task = task_of_run(began, given, console.say)
        _, guidance = plugins.shape(task, run_factory.guidance_of(settings))  # the task is as they have made it
        texts = folder_texts(given, settings.workspace, console.say)
        more = (*servers, *texts.commands, *plugins.commands)
        registry = run_factory.open_registry(settings, task, model.window, attended=attended, more=more)
        own = run_factory.own_registry(registry, settings)
        start = run_factory.describe(task, settings, model, own, began, texts, guidance)

        def take_up(tainted: TaintedFiles) -> EventLog:
            _take_back(log, settings, began, step, console, force=force)
            for event in tell_changes(began, start, console):
                log.append(replace(event, step=_last_step(settings, run)))
            return log

        return drive(
            RunPlan(start, model, registry, settings, console, attended, texts, plugins, guidance=guidance), take_up
        )


def _resume_team(given: Mapping[str, Any], settings: Settings, run: str, began: RunStarted, step: int | None) -> int:
    from autoagent.teams.opening import plan_of_run
    from autoagent.teams.team_file import team_of_run

    if step is not None:
        raise click.UsageError(f"A team goes on where it stopped; `autoagent fork {run} --at ROUND` goes back.")
    check_flags(given, settings)
    console = run_factory.open_console(settings, json=bool(given.get("json_output")))
    plan, log = plan_of_run(settings, console, given, run, team_of_run(run, began))
    with log:
        return plan.drive(lambda _: log)


def _last_step(settings: Settings, run: str) -> int:
    """Return the newest step, whether or not it was taken back."""
    events = read(settings.state_dir, run, (Thought, Rejected))
    return max((event.step for event in events if not event.agent), default=0)


def _check_step(settings: Settings, run: str, step: int) -> None:
    """Raise StateError if the run cannot be taken back to the end of this step."""
    steps = {event.step for event in replies(settings, run)}
    if step and step not in steps:
        there = f"it is at step {max(steps)}" if steps else "it has none yet"
        raise StateError(
            f"The run {run} cannot go back to step {step}: {there}, and this one was never done or was taken back "
            f"already. `autoagent fork {run} --at {step}` can go on from a step that was taken back."
        )
    if step == max(steps, default=0) and ends(settings.state_dir, run)[1]:
        raise StateError(f"The run {run} finished with step {step}; go back to an earlier one.")


def _take_back(
    log: EventLog, settings: Settings, began: RunStarted, step: int | None, console: Console, *, force: bool
) -> None:
    """Take history and workspace back to the end of a step, and finish what was cut off in doing so before."""
    state_dir = settings.state_dir
    if step is None and not cut_off(state_dir, log.run):
        return
    history = history_of_run(state_dir, log.run)
    snapshots = open_snapshots(state_dir, workspace_of(began), console.warn)
    if history.unfinished:
        console.say(f"A restoration was cut off; now it is done. {outcome_line(finish(log, snapshots, history))}")
    if step is not None:
        tree = history_until(state_dir, log.run, step).tree or history.first
        if tree:
            restored = restore(log, snapshots, history, Rewound(to=step, tree=tree), force=force)
            console.say(f"Back to the end of step {step}. {outcome_line(restored)}")
        else:
            log.append(Rewound(step=history.step, to=step, tree=""))
            console.say(f"Back to the end of step {step}. The run has no snapshots: the files stay as they are.")
