"""`autoagent resume`: continues a run where it stopped, or from one of its steps."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import click

from autoagent.core.errors import StateError
from autoagent.core.events import Rejected, Rewound, RunStarted, Thought
from autoagent.core.task import Status
from autoagent.log.event_log import EventLog
from autoagent.log.reader import find_run, read
from autoagent.safety.tainted_files import TaintedFiles
from autoagent.session import build
from autoagent.session.attachments import PIPED, with_piped_input
from autoagent.session.drive import Leg, drive, next_wish, report_failure_as_event
from autoagent.session.earlier_runs import (
    EarlierRun,
    answered,
    earlier_runs,
    ends,
    newest_run,
    replies,
    report_changes,
    report_lost_events,
    session_of_run,
)
from autoagent.session.plan import open_parts, planned
from autoagent.session.restoring import (
    cut_off,
    describe_outcome,
    finish,
    history_of_run,
    history_until,
    open_snapshots,
    restore,
    workspace_of,
)
from autoagent.session.session import Session
from autoagent.settings import Settings
from autoagent.subcommands.flags import given_in, resume_flags, run_ids_here
from autoagent.subcommands.task_flags import TASK_FLAGS, check_flags, task_of_run
from autoagent.terminal.answers import ClickTerminal
from autoagent.terminal.console import Console
from autoagent.terminal.setup_wizard import MOST_LISTED, ListedRun, pick_run
from autoagent.text.sanitize import shorten


@click.command("resume")
@click.argument("run", required=False, shell_complete=run_ids_here)
@click.argument("wish", metavar="[TASK]", required=False)
@click.option(
    "--from",
    "step",
    type=click.IntRange(min=0),
    metavar="STEP",
    help="Go back to the end of STEP, with the workspace; later steps no longer count.",
)
@click.option("--force", is_flag=True, help="With --from: even if you have changed files since.")
@resume_flags
@click.pass_context
def resume(
    ctx: click.Context, /, run: str | None, wish: str | None, step: int | None, force: bool, **given: Any
) -> None:
    """Continue RUN in its own workspace and with its own settings, on its task or a new TASK.

    Without RUN you choose at a terminal; elsewhere it is the newest unfinished run, or the newest of all for a TASK.
    Flags override the settings of the run, and goals replace its own. To run without asking, give -c again.
    """
    if run and wish is None and len(run.split()) > 1:
        run, wish = None, run
    given = given_in(ctx.obj or {}, given, {"wish": wish})
    with report_failure_as_event(given):
        ctx.exit(take_up(given, run, step, force=force))


def take_up(given: Mapping[str, Any], run: str | None = None, step: int | None = None, *, force: bool = False) -> int:
    """Go on with a run, with each wish that the person then has. Return the exit code."""
    here = Session.open(with_piped_input(given))
    run = find_run(here.settings.state_dir, run) if run else _chosen(here)
    here.check_made_here(run)
    began, status = ends(here.settings.state_dir, run)
    if "team" in began.settings:
        return _resume_team(session_of_run(began, here), run, began, step)
    if step is None and status == Status.FINISHED and not (given.get("wish") or given.get("ai_goals")):
        return go_on(here, Leg(run, status.code, _asked_for_more(session_of_run(began, here), run, began)))
    return go_on(here, _resume(session_of_run(began, here), run, (began, status), step, force=force))


def go_on(here: Session, leg: Leg) -> int:
    """Take up a run with each wish that the person has next. Return the exit code of its last part."""
    flags = {name: value for name, value in here.flags.items() if name not in (*TASK_FLAGS, PIPED)}
    while leg.wish:
        began, status = ends(here.settings.state_dir, leg.run)
        session = session_of_run(began, replace(here, flags={**flags, "wish": leg.wish}))
        leg = _resume(session, leg.run, (began, status), None, again=True)
    return leg.code


def _chosen(here: Session) -> str:
    """Return the run that the person picks of several, or the newest. Raises StateError if there is none."""
    given, state_dir = here.flags, here.settings.state_dir
    finished = bool(given.get("wish") or given.get("newest"))
    picks = not finished and sys.stdin.isatty() and sys.stderr.isatty() and not given.get("json_output")
    some = islice(earlier_runs(state_dir), MOST_LISTED) if picks else ()
    found = [ListedRun(one.run, one.name, one.status, one.updated) for one in some]
    if len(found) > 1:
        return pick_run(found, ClickTerminal())
    return found[0].run if found else newest_run(state_dir, finished=finished)


def _asked_for_more(here: Session, run: str, began: RunStarted) -> str:
    """Return the person's next wish for a finished run, '' for none. Raises StateError where nobody is to be asked."""
    console = build.console_of(here)
    if here.settings.continuous or not console.has_person:
        raise StateError(f'The run {run} is finished; give it a new task: autoagent resume {run} "..."')
    console.say(f"The run {run} is finished: {shorten(EarlierRun(run, began, None).name, 200)}")
    return console.next_wish()


def _resume(
    here: Session,
    run: str,
    until_now: tuple[RunStarted, Status | None],
    step: int | None,
    *,
    force: bool = False,
    again: bool = False,
) -> Leg:
    (began, status), settings, wish = until_now, here.settings, here.flags.get("wish", "")
    place, began = began.workspace, replace(began, workspace=here.flags.get("moved_to", began.workspace))
    check_flags(here.flags, settings)
    console = build.console_of(here)
    console.goes_on = again
    with (
        EventLog.open(settings.state_dir, run, mask=build.mask_of(settings), accept_truncated=step is not None) as log,
        open_parts(here, console) as parts,
    ):
        log.subscribe(console.pass_over)
        if step is not None:
            _check_step(settings, run, step)
        had = answered(settings, run, step)
        model = parts.extensions.model(lambda: build.open_model(settings, console, had))
        plan = planned(here, console, parts, model, task_of_run(began, here.flags, console.say, status), began)

        def reopened(tainted: TaintedFiles) -> EventLog:
            if began.workspace != place:
                tainted.inherit(Path(place), {run}, sys.maxsize)
            _take_back(log, settings, began, step, console, force=force)
            done = (event.step for event in read(settings.state_dir, run, (Thought, Rejected)) if not event.agent)
            last = max(done, default=0)  # taken back or not
            for event in (*report_lost_events(log, console.warn), *report_changes(began, plan.start, console, wish)):
                log.append(replace(event, step=last))
            return log

        return Leg(run, drive(plan, reopened), next_wish(plan))


def _resume_team(here: Session, run: str, began: RunStarted, step: int | None) -> int:
    from autoagent.teams.opening import plan_of_run
    from autoagent.teams.team_file import team_of_run, told_if_changed

    if step is not None:
        raise click.UsageError(
            f"A team always continues where it stopped; `autoagent fork {run} --at ROUND` goes back."
        )
    check_flags(here.flags, here.settings)
    console = build.console_of(here)
    plan, log = plan_of_run(here, console, run, team_of_run(run, began))
    with log:
        if changed := told_if_changed(began):
            console.warn(changed)
        return plan.drive(lambda _: log)


def _check_step(settings: Settings, run: str, step: int) -> None:
    """Raise StateError if the run cannot be taken back to the end of this step."""
    steps = {event.step for event in replies(settings, run)}
    if step and step not in steps:
        there = f"it is at step {max(steps)}" if steps else "it has none yet"
        raise StateError(
            f"The run {run} cannot go back to step {step}: {there}, and this step was never done or was already "
            f"taken back. `autoagent fork {run} --at {step}` can continue from a step that was taken back."
        )
    if step == max(steps, default=0) and ends(settings.state_dir, run)[1] == Status.FINISHED:
        raise StateError(f"The run {run} finished with step {step}; go back to an earlier one.")


def _take_back(
    log: EventLog, settings: Settings, began: RunStarted, step: int | None, console: Console, *, force: bool
) -> None:
    """Take history and workspace back to the end of a step, and finish an earlier attempt that was interrupted."""
    state_dir = settings.state_dir
    if step is None and not cut_off(state_dir, log.run):
        return
    history = history_of_run(state_dir, log.run)
    snapshots = open_snapshots(state_dir, workspace_of(began), console.warn)
    if history.unfinished:
        console.say(f"Completed an interrupted restoration. {describe_outcome(finish(log, snapshots, history))}")
    if step is not None:
        tree = history_until(state_dir, log.run, step).tree or history.first
        if tree:
            restored = restore(log, snapshots, history, Rewound(to=step, tree=tree), force=force)
            console.say(f"Back to the end of step {step}. {describe_outcome(restored)}")
        else:
            log.append(Rewound(step=history.step, to=step, tree=""))
            console.say(f"Back to the end of step {step}. The run has no snapshots: the files stay as they are.")
