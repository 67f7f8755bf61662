"""Define `autoagent resume` and `fork`: continue a run where it stopped, or a copy of it from one of its steps."""

from __future__ import annotations

import itertools
import shutil
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from autoagent.core.errors import SettingsError, StateError, StopRun
from autoagent.core.events import Event, Feedback, Forked, Rejected, Rewound, RunStarted, Snapshot, Thought
from autoagent.core.frozen import dataclass
from autoagent.core.task import Outcome, Status
from autoagent.log.event_log import EventLog
from autoagent.log.reader import find_run, read
from autoagent.safety.tainted_files import TaintedFiles
from autoagent.session import build, restoring
from autoagent.session.attachments import PIPED, with_piped_input
from autoagent.session.drive import drive
from autoagent.session.earlier_runs import (
    EarlierRun,
    count_replies,
    earlier_runs,
    newest_run,
    newest_state,
    replies,
    report_changes,
    report_lost_events,
    session_of_run,
)
from autoagent.session.plan import open_external_parts, plan_run
from autoagent.session.session import Session
from autoagent.settings import Settings
from autoagent.subcommands.flags import is_task, merge_flags, resume_flags, run_ids_here
from autoagent.subcommands.running import TASK_FLAGS, Leg, check_flags, next_wish, report_failure_as_event, task_of_run
from autoagent.terminal.answers import ClickTerminal
from autoagent.terminal.console import Console
from autoagent.text.figures import ago
from autoagent.text.sanitize import shorten
from autoagent.text.wrapping import cut

MAX_SEARCHED_RUNS = 500
_MAX_LISTED_RUNS = 10


@click.command("resume")
@click.argument("run", required=False, shell_complete=run_ids_here)
@click.argument("wish", metavar="[TASK]", required=False)
@click.option(
    "--from",
    "step",
    type=click.IntRange(min=0),
    metavar="STEP",
    help="Go back to the end of STEP, including the workspace; later steps no longer count.",
)
@click.option("--force", is_flag=True, help="With --from: go back even if you have changed files since.")
@resume_flags
@click.pass_context
def resume(
    ctx: click.Context, /, run: str | None, wish: str | None, step: int | None, force: bool, **flags: Any
) -> None:
    """Continue RUN in its own workspace and with its own settings, on its task or a new TASK.

    Without RUN you choose at a terminal. Elsewhere it is the newest unfinished run, or with a TASK the newest of all.
    Flags override the settings of the run, and goals replace its own. To run without asking, give -c again.
    """
    if run and wish is None and is_task(run):
        run, wish = None, run
    flags = merge_flags(ctx.obj or {}, flags, {"wish": wish})
    with report_failure_as_event(flags):
        ctx.exit(resume_run(flags, run, step, force=force))


def resume_run(
    flags: Mapping[str, Any], run: str | None = None, step: int | None = None, *, force: bool = False
) -> int:
    """Continue a run, and then with each further wish of the user. Return the exit code."""
    session = Session.open(with_piped_input(flags))
    run = find_run(session.settings.state_dir, run) if run else _choose_run(session)
    session.check_made_here(run)
    run_start, status = newest_state(session.settings.state_dir, run)
    run_session = session_of_run(run_start, session)
    if "team" in run_start.settings:
        return _resume_team(run_session, run, run_start, step)
    if step is None and status == Status.FINISHED and not (flags.get("wish") or flags.get("ai_goals")):
        console = build.console_of(run_session)
        if run_session.settings.continuous or not console.has_person:
            raise StateError(f'The run {run} is finished; give it a new task: autoagent resume {run} "..."')
        console.say(f"The run {run} is finished: {shorten(EarlierRun(run, run_start, None).name, 200)}")
        return continue_run(session, Leg(run, status.code, console.next_wish()))
    return continue_run(session, _resume(run_session, run, (run_start, status), step, force=force))


def continue_run(session: Session, leg: Leg) -> int:
    """Continue a run with each further wish of the user. Return the last exit code."""
    flags = {name: value for name, value in session.flags.items() if name not in (*TASK_FLAGS, PIPED)}
    while leg.wish:
        run_start, status = newest_state(session.settings.state_dir, leg.run)
        run_session = session_of_run(run_start, replace(session, flags={**flags, "wish": leg.wish}))
        leg = _resume(run_session, leg.run, (run_start, status), None, again=True)
    return leg.code


def _choose_run(session: Session) -> str:
    """Return the run that the user chooses, or the newest. Raises StateError if there is none."""
    flags, state_dir = session.flags, session.settings.state_dir
    may_be_finished = bool(flags.get("wish") or flags.get("newest"))
    may_ask = not may_be_finished and sys.stdin.isatty() and sys.stderr.isatty() and not flags.get("json_output")
    runs = list(itertools.islice(earlier_runs(state_dir), MAX_SEARCHED_RUNS)) if may_ask else []
    if len(runs) > 1:
        return _pick_run(runs, ClickTerminal())
    return runs[0].run if runs else newest_run(state_dir, finished=may_be_finished)


def _pick_run(runs: Sequence[EarlierRun], terminal: ClickTerminal) -> str:
    """Let the user choose a run by its number or by words in its name. Return its id.

    Enter takes the newest unfinished run. Raises StopRun at the end of the input.
    """
    searchable = {run.run: f"{run.run} {run.name} {run.status or 'unfinished'}".casefold() for run in runs}
    matches = list(runs)
    while True:
        default = next((number for number, run in enumerate(matches, 1) if run.status != Status.FINISHED), 1)
        for number, run in enumerate(matches[:_MAX_LISTED_RUNS], 1):
            start = f"{number:>3}  {ago(run.updated, time.time()):<15} {run.status or 'unfinished':<11} "
            terminal.say(next(cut(run.name, shutil.get_terminal_size().columns - 1, start, at_spaces=True)))
        more = f", {len(matches) - _MAX_LISTED_RUNS} more by words" if len(matches) > _MAX_LISTED_RUNS else ""
        try:
            answer = terminal.ask(f"Which run? Number, or words to search{more} [{default}]:", str(default)).strip()
        except EOFError:
            raise StopRun(Outcome(Status.STOPPED, "Nothing was resumed.")) from None
        if answer.isdecimal() and 0 < int(answer) <= len(matches):
            return matches[int(answer) - 1].run
        words = answer.casefold().split()
        new_matches = [run for run in runs if all(word in searchable[run.run] for word in words)]
        if len(new_matches) == 1:
            return new_matches[0].run
        if not new_matches:
            terminal.say(f"No run matches {answer!r}.")
        matches = new_matches or list(runs)


def _resume(
    session: Session,
    run: str,
    state: tuple[RunStarted, Status | None],
    step: int | None,
    *,
    force: bool = False,
    again: bool = False,
) -> Leg:
    (run_start, status), settings, wish = state, session.settings, session.flags.get("wish", "")
    old_workspace = run_start.workspace
    run_start = replace(run_start, workspace=session.flags.get("moved_to", old_workspace))
    check_flags(session.flags, settings)
    console = build.console_of(session)
    console.has_shown_run = again
    with (
        EventLog.open(settings.state_dir, run, mask=build.mask_of(settings), accept_truncated=step is not None) as log,
        open_external_parts(session, console) as parts,
    ):
        log.on_replay(console.pass_over)
        if step is not None:
            _check_step(settings, run, step)
        replies_used = count_replies(settings, run, step)
        model = parts.extensions.model(lambda: build.open_model(settings, console, replies_used))
        # Going back leaves the goals unfinished.
        task = task_of_run(run_start, session.flags, console.say, status if step is None else None)
        plan = plan_run(session, console, parts, model, task, run_start)

        def reopen_log(tainted: TaintedFiles) -> EventLog:
            if run_start.workspace != old_workspace:
                tainted.inherit(Path(old_workspace), {run}, sys.maxsize)
            _rewind(log, settings, run_start, step, console, force=force)
            if new := [*report_lost_events(log, console.warn), *report_changes(run_start, plan.start, console, wish)]:
                steps = (event.step for event in read(settings.state_dir, run, (Thought, Rejected)) if not event.agent)
                last = max(steps, default=0)  # including revoked steps
                for event in new:
                    log.append(replace(event, step=last))
            return log

        return Leg(run, drive(plan, reopen_log), next_wish(plan))


def _resume_team(session: Session, run: str, run_start: RunStarted, step: int | None) -> int:
    from autoagent.teams.launch import plan_of_run
    from autoagent.teams.team_file import change_warning, team_of_run

    if step is not None:
        raise click.UsageError(
            f"A team always continues where it stopped; `autoagent fork {run} --at ROUND` goes back."
        )
    if any(session.flags.get(name) for name in ("wish", "ai_goals", "ai_name", "ai_role")):
        raise click.UsageError(f"A team keeps its idea; `autoagent fork {run} --at ROUND --feedback TEXT` adds to it.")
    check_flags(session.flags, session.settings)
    console = build.console_of(session)
    plan, log = plan_of_run(session, console, run, team_of_run(run, run_start))
    with log:
        if warning := change_warning(run_start):
            console.warn(warning)
        return plan.drive(lambda _: log)


def _check_step(settings: Settings, run: str, step: int) -> None:
    steps = {event.step for event in replies(settings, run)}
    if step and step not in steps:
        position = f"it is at step {max(steps)}" if steps else "it has none yet"
        raise StateError(
            f"The run {run} cannot go back to step {step}: {position}, and this step was never done or was already "
            f"taken back. `autoagent fork {run} --at {step}` can continue from a step that was taken back."
        )
    if step == max(steps, default=0) and newest_state(settings.state_dir, run)[1] == Status.FINISHED:
        raise StateError(f"The run {run} finished with step {step}; go back to an earlier one.")


def _rewind(
    log: EventLog, settings: Settings, run_start: RunStarted, step: int | None, console: Console, *, force: bool
) -> None:
    """Return history and workspace to the end of a step. First complete any interrupted attempt."""
    state_dir = settings.state_dir
    if step is None and not restoring.has_unfinished_restoration(state_dir, log.run):
        return
    history = restoring.history_of_run(state_dir, log.run)
    snapshots = restoring.open_snapshots(state_dir, restoring.workspace_of(run_start), console.warn)
    if history.unfinished:
        outcome = restoring.describe_outcome(restoring.finish(log, snapshots, history))
        console.say(f"Completed an interrupted restoration. {outcome}")
    if step is not None:
        tree = restoring.history_of_run(state_dir, log.run, until=step).tree or history.first
        if tree:
            outcome = restoring.restore(log, snapshots, history, Rewound(to=step, tree=tree), force=force)
            console.say(f"Back to the end of step {step}. {outcome}")
        else:
            log.append(Rewound(step=history.step, to=step, tree=""))
            console.say(f"Back to the end of step {step}. The run has no snapshots: the files stay as they are.")


@click.command("fork")
@click.argument("run", shell_complete=run_ids_here)
@click.option("--at", "step", type=click.IntRange(min=0), required=True, metavar="STEP", help="The last shared step.")
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
def fork(ctx: click.Context, /, run: str, step: int, feedback: str | None, folder: str | None, **flags: Any) -> None:
    """Start a new run that shares the history of RUN up to STEP, and continue from there.

    Its workspace is a new folder with the files as they were after STEP. RUN and its workspace stay unchanged. Settings
    and flags work as they do for `resume`.
    """
    flags = merge_flags(ctx.obj or {}, flags)
    with report_failure_as_event(flags):
        session = Session.open(flags)
        state_dir = session.settings.state_dir
        run = find_run(state_dir, run)
        session.check_made_here(run)
        shared = list(itertools.takewhile(lambda event: event.agent or event.step <= step, read(state_dir, run)))
        ctx.exit(continue_run(session, _fork(session, run, step, shared, feedback, folder)))


def _fork(session: Session, run: str, step: int, shared: list[Event], feedback: str | None, folder: str | None) -> Leg:
    starts = [event for event in shared if isinstance(event, RunStarted) and not event.agent]
    last = max((event.step for event in shared if not event.agent), default=0)
    if not starts:
        raise StateError(f"The run {run} was cut off before it began; start a new run.")
    if last < step:
        raise StateError(f"The run {run} has no step {step}; its last is {last}.")
    run_start = starts[-1]
    session = session_of_run(run_start, session)
    settings = session.settings
    check_flags(session.flags, settings)
    console = build.console_of(session)
    with ExitStack() as cleanup:
        place = _new_folder(Path(run_start.workspace), folder, cleanup)
        moved_start = replace(run_start, workspace=str(place))
        branch = _Branch(run, step, shared, run_start, moved_start, session, console, cleanup)
        if "team" in run_start.settings:
            return Leg("", _fork_team(branch, feedback))
        with open_external_parts(session, console) as parts:
            replies_used = count_replies(settings, run, step)
            model = parts.extensions.model(lambda: build.open_model(settings, console, replies_used))
            task = task_of_run(run_start, session.flags, console.say)
            plan = plan_run(session.working_in(place), console, parts, model, task, moved_start)
            if feedback:
                plan = replace(plan, user_texts=(*plan.user_texts, feedback))  # it may name files to attach
            user_events = [Feedback(text=feedback)] if feedback else []
            changes = report_changes(moved_start, plan.start, console)
            code = drive(plan, lambda tainted: branch.new_log(tainted, itertools.chain(user_events, changes)))
            return Leg(console.stats.run, code, next_wish(plan))


def _fork_team(branch: _Branch, feedback: str | None) -> int:
    """Continue a team from the end of a round, with the user's message to all roles."""
    from autoagent.teams.launch import TeamPlan
    from autoagent.teams.message import Message
    from autoagent.teams.team_file import team_of_run

    team = team_of_run(branch.run, branch.run_start)
    if feedback:
        team.env.publish_message(Message(feedback, "Human", id=f"user.fork.{branch.run}.{branch.step}"))
    until = branch.step + int(branch.run_start.settings["team"]["n_round"])
    plan = TeamPlan(team, branch.session, branch.console, until, branch.moved_start)
    return plan.drive(lambda tainted: branch.new_log(tainted, ()))


@dataclass(frozen=True, slots=True)
class _Branch:
    """A run that shares the steps of another one up to a `step`, with its workspace in another place.

    `moved_start` is the other run's `run_start`, in the new place. `cleanup` removes the files if it cannot begin.
    """

    run: str
    step: int
    shared: list[Event]
    run_start: RunStarted
    moved_start: RunStarted
    session: Session
    console: Console
    cleanup: ExitStack

    def new_log(self, tainted: TaintedFiles, further_events: Iterable[Event]) -> EventLog:
        """Restore the files and their labels before creating the log, so that an existing fork is always complete."""
        settings, console, run, step = self.session.settings, self.console, self.run, self.step
        place = Path(self.moved_start.workspace)
        snapshots = restoring.open_snapshots(settings.state_dir, restoring.workspace_of(self.moved_start), console.warn)
        history = restoring.history_of(self.shared)
        tree = history.tree or restoring.history_of_run(settings.state_dir, run).first
        if not tree:  # no snapshot recorded a change in the run
            original = restoring.workspace_of(self.run_start)
            tree = restoring.open_snapshots(settings.state_dir, original, console.warn).take()
            console.say("The run has no snapshots: the workspace begins with the files as they are now.")
        outcome = restoring.describe_outcome(snapshots.restore(tree))
        console.say(f"Forked from {run} after step {step} into {place}. {outcome}")
        runs = {run, *(event.run for event in self.shared)}
        tainted.inherit(Path(self.run_start.workspace), runs, len(self.shared))
        log = EventLog.fork(settings.state_dir, run, len(self.shared), mask=build.mask_of(settings))
        self.cleanup.pop_all()
        log.on_replay(console.pass_over)
        for event in (Forked(origin=run, at=step), Snapshot(tree=snapshots.take()), *further_events):
            log.append(replace(event, step=history.step))
        return log


def _new_folder(origin: Path, name: str | None, cleanup: ExitStack) -> Path:
    """Return an empty folder for the workspace: the one with this name, or a new one beside the other run's.

    `cleanup` removes a folder created here if it is still empty. Raises SettingsError if it is not empty or
    cannot be created.
    """
    place = Path(name).absolute() if name else origin
    try:
        if name and place.exists():
            if any(place.iterdir()):
                raise SettingsError(f"The folder {name} is not empty; name a new folder for the fork.")
            return place
        if not name:
            candidates = (origin.with_name(f"{origin.name}-fork{number}") for number in itertools.count(1))
            place = next(folder for folder in candidates if not folder.exists())
        place.mkdir(parents=True)
    except OSError as error:
        raise SettingsError(f"Cannot use {place}: {error.strerror}. Name another folder with -w.") from error
    cleanup.callback(_remove_empty, place)
    return place


def _remove_empty(folder: Path) -> None:
    with suppress(OSError):  # not empty
        folder.rmdir()
