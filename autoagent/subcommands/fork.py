"""`autoagent fork`: a new run that shares the history of another one up to a step, and diverges there."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click

from autoagent.core.errors import SettingsError, StateError
from autoagent.core.events import Event, Feedback, Forked, RunStarted, Snapshot
from autoagent.log.event_log import EventLog
from autoagent.log.reader import find_run, read
from autoagent.safety.tainted_files import TaintedFiles
from autoagent.session import build
from autoagent.session.drive import Leg, drive, next_wish, report_failure_as_event
from autoagent.session.earlier_runs import answered, report_changes, session_of_run
from autoagent.session.plan import open_parts, planned
from autoagent.session.restoring import describe_outcome, history_of, history_of_run, open_snapshots, workspace_of
from autoagent.session.session import Session
from autoagent.subcommands.flags import given_in, resume_flags, run_ids_here
from autoagent.subcommands.task_flags import check_flags, task_of_run
from autoagent.terminal.console import Console


@click.command("fork")
@click.argument("run", shell_complete=run_ids_here)
@click.option("--at", "step", type=click.IntRange(min=0), required=True, metavar="STEP", help="The last step shared.")
@click.option("--feedback", metavar="TEXT", help="A message to the agent before it continues.")
@click.option(
    "-w",
    "--workspace-directory",
    "folder",
    metavar="DIR",
    help="A new or empty folder for the workspace. Default: beside the one of RUN, with -fork1 added to its name.",
)
@resume_flags
@click.pass_context
def fork(ctx: click.Context, /, run: str, step: int, feedback: str | None, folder: str | None, **given: Any) -> None:
    """Start a new run that shares the history of RUN up to STEP, and continue from there.

    Its workspace is a new folder with the files as they were after STEP; RUN and its workspace stay unchanged. Settings
    and flags work as in resume.
    """
    given = given_in(ctx.obj or {}, given)
    with report_failure_as_event(given):
        here = Session.open(given)
        state_dir = here.settings.state_dir
        run = find_run(state_dir, run)
        here.check_made_here(run)
        shared = list(itertools.takewhile(lambda event: event.agent or event.step <= step, read(state_dir, run)))
        from autoagent.subcommands.resume import go_on

        ctx.exit(go_on(here, _fork(here, run, step, shared, feedback, folder)))


def _fork(here: Session, run: str, step: int, shared: list[Event], feedback: str | None, folder: str | None) -> Leg:
    began = _began(run, step, shared)
    here = session_of_run(began, here)
    settings = here.settings
    check_flags(here.flags, settings)
    console = build.console_of(here)
    if "team" in began.settings:
        with ExitStack() as unused:
            place = _new_folder(Path(began.workspace), folder, unused)
            moved = replace(began, workspace=str(place))
            return Leg("", _fork_team(_Branch(run, step, shared, began, moved, here, console, unused), feedback))
    with open_parts(here, console) as parts, ExitStack() as unused:
        had = answered(settings, run, step)
        model = parts.extensions.model(lambda: build.open_model(settings, console, had))
        place = _new_folder(Path(began.workspace), folder, unused)
        moved = replace(began, workspace=str(place))
        task = task_of_run(began, here.flags, console.say)
        plan = planned(here.working_in(place), console, parts, model, task, moved)
        said = [Feedback(text=feedback)] if feedback else []
        branch = _Branch(run, step, shared, began, moved, here, console, unused)
        code = drive(plan, lambda tainted: branch.new_log(tainted, said, report_changes(moved, plan.start, console)))
        return Leg(console.tally.run, code, next_wish(plan))


def _fork_team(branch: _Branch, feedback: str | None) -> int:
    """Go on from the end of a round, with the user's word as a message to all."""
    from autoagent.teams.message import Message
    from autoagent.teams.opening import TeamPlan
    from autoagent.teams.team_file import team_of_run

    team = team_of_run(branch.run, branch.began)
    if feedback:
        team.env.publish_message(Message(feedback, "Human", id=f"user.fork.{branch.run}.{branch.step}"))
    until = branch.step + int(branch.began.settings["team"]["n_round"])
    plan = TeamPlan(team, branch.session, branch.console, until, branch.moved)
    return plan.drive(lambda tainted: branch.new_log(tainted, (), ()))


@dataclass(frozen=True, slots=True)
class _Branch:
    """A run that begins as another one began, up to a step, and with its workspace in another place.

    `moved` is how that run `began`, there. `unused` puts away what is made for this one, if it cannot begin.
    """

    run: str
    step: int
    shared: list[Event]
    began: RunStarted
    moved: RunStarted
    session: Session
    console: Console
    unused: ExitStack

    def new_log(self, tainted: TaintedFiles, said: Iterable[Event], changes: Iterable[Event]) -> EventLog:
        """Restore the files, and what is known of them; then begin the log: a fork that is there is whole."""
        settings, console, run, step = self.session.settings, self.console, self.run, self.step
        place = Path(self.moved.workspace)
        snapshots = open_snapshots(settings.state_dir, workspace_of(self.moved), console.warn)
        history = history_of(self.shared)
        tree = history.tree or history_of_run(settings.state_dir, run).first
        if not tree:  # nothing in the run was changed under snapshots
            tree = open_snapshots(settings.state_dir, workspace_of(self.began), console.warn).take()
            console.say("The run has no snapshots: the workspace begins with the files as they are now.")
        console.say(f"Forked from {run} after step {step} into {place}. {describe_outcome(snapshots.restore(tree))}")
        runs = {run, *(event.run for event in self.shared)}
        tainted.inherit(Path(self.began.workspace), runs, len(self.shared))
        log = EventLog.fork(settings.state_dir, run, len(self.shared), mask=build.mask_of(settings))
        self.unused.pop_all()
        log.subscribe(console.pass_over)
        marks = [Forked(origin=run, at=step), Snapshot(tree=snapshots.take()), *said]
        for event in (*marks, *changes):
            log.append(replace(event, step=history.step))
        return log


def _began(run: str, step: int, shared: list[Event]) -> RunStarted:
    """Return the newest start among the shared events. Raises StateError if the run has none, or no such step."""
    starts = [event for event in shared if isinstance(event, RunStarted) and not event.agent]
    last = max((event.step for event in shared if not event.agent), default=0)
    if not starts:
        raise StateError(f"The run {run} was cut off before it began; start a new run.")
    if last < step:
        raise StateError(f"The run {run} has no step {step}; its last is {last}.")
    return starts[-1]


def _new_folder(origin: Path, named: str | None, unused: ExitStack) -> Path:
    """Return an empty folder for the workspace: the named one, or a new one beside that of the other run.

    What is made here goes with `unused`, if it is empty then. Raises SettingsError if it is not empty or cannot be
    made.
    """
    place = Path(named).absolute() if named else origin
    try:
        if named and place.exists():
            if any(place.iterdir()):
                raise SettingsError(f"The folder {named} is not empty; name a new folder for the fork.")
            return place
        if not named:
            free = (origin.with_name(f"{origin.name}-fork{number}") for number in itertools.count(1))
            place = next(folder for folder in free if not folder.exists())
        place.mkdir(parents=True)
    except OSError as error:
        raise SettingsError(f"Cannot use {place}: {error.strerror}. Name another folder with -w.") from error
    unused.callback(_remove_empty, place)
    return place


def _remove_empty(folder: Path) -> None:
    with suppress(OSError):  # it is not empty
        folder.rmdir()
