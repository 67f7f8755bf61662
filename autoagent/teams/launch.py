"""Set up and run a team, for the command line or a user's program."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from autoagent import __version__
from autoagent.commands import selection
from autoagent.commands.registry import Registry
from autoagent.core.errors import NoMoneyException, RunEnded, SettingsError, StateError, StopRun
from autoagent.core.events import Ended, Event, Resumed, RoundBegan, RunStarted
from autoagent.core.model import reply_tokens
from autoagent.core.protocols import Model
from autoagent.core.task import Goal, Status, Task
from autoagent.log.event_log import EventLog
from autoagent.log.reader import find_run, read
from autoagent.safety.tainted_files import TaintedFiles
from autoagent.session import build
from autoagent.session.drive import OpenedRun, drive
from autoagent.session.earlier_runs import report_lost_events
from autoagent.session.plan import (
    RunPlan,
    apply_extensions,
    limits_of,
    load_guidance,
    logged_settings,
    open_external_parts,
)
from autoagent.session.session import Session, claimed_state
from autoagent.teams.tools import commands_of, registry_of, writes_whole
from autoagent.terminal.console import Console

if TYPE_CHECKING:
    from autoagent.teams.rounds import TeamRun
    from autoagent.teams.team import Team


class OutOfMoney(NoMoneyException, RunEnded):
    """Report to a program that the team's investment is used up."""


@dataclasses.dataclass(slots=True)
class TeamPlan:
    """Describe a team that is about to run.

    `until` is the last round. `earlier_start` is the start of the run to resume, if any.
    """

    team: Team
    session: Session
    console: Console
    until: int
    earlier_start: RunStarted | None = None
    team_run: TeamRun | None = None

    def drive(self, open_log: Callable[[TaintedFiles], EventLog] | None = None) -> int:
        """Run the team until it ends. Return the exit code. Raises ForUser."""
        settings, console, team = self.session.settings, self.console, self.team
        provider = settings.model_choice.provider
        if provider.recorded or provider.one_agent:
            hint = "; set `is_human: yes` for the role of a person" if provider.one_agent else ""
            raise SettingsError(f"The model {provider.name!r} cannot answer for several roles{hint}.")
        roles = f"a team of {', '.join(map(str, team.env.roles))}"
        remaining = max(0.0, team.investment - (0.0 if self.earlier_start else team.spent))
        task = Task(team.name, roles, (Goal(team.idea),) if team.idea else (), remaining)
        with open_external_parts(self.session, console) as parts:
            model = build.open_model(settings, console)
            _, _, added = apply_extensions(parts.extensions, task, load_guidance(settings))
            added_commands = (*parts.commands, *added)
            names = [spec.name for spec in selection.all_specs()] + [command.spec.name for command in added_commands]
            tools = [tool for role in team.env.roles for action in role.actions for tool in action.tools.values()]
            registry = registry_of(team.env.roles, settings, (*added_commands, *commands_of(tools, names)))
            start = _start_event(self, task, model, registry)
            attended = build.is_attended(settings)
            plan = RunPlan(
                start, model, registry, settings, console, attended, parts.texts, parts.extensions,
                workers=2 * len(team.env.roles), workers_resume=True,
            )  # fmt: skip
            mask = build.mask_of(settings)
            return drive(plan, open_log or (lambda _: EventLog.create(settings.state_dir, mask=mask)), lead=self._lead)

    def _lead(self, opened: OpenedRun) -> Iterator[Event]:
        from autoagent.teams.rounds import TeamRun

        if not self.team.definition:  # a program judges its own results
            policy = dataclasses.replace(opened.policy, verifier=None, accept_claims=True)
            opened = dataclasses.replace(opened, policy=policy)
        self.team_run = TeamRun(self.team.env, opened, until=self.until)
        return self.team_run.run()


def run_in_program(team: Team, n_round: int, resume: str, flags: Mapping[str, Any]) -> None:
    """Run a team for the program that defines it. Raises the same errors as Team.run."""
    try:
        session = Session.open(flags)
        console = build.console_of(session)
        with claimed_state(session.settings.state_dir):
            if resume:
                run = find_run(session.settings.state_dir, resume)
                session.check_made_here(run)
                plan, log = plan_of_run(session, console, run, team, n_round)
                with log:
                    plan.drive(lambda _: log)
            else:
                plan = TeamPlan(team, session, console, team.env.round + n_round)
                plan.drive()
    except StopRun as stop:  # before the run began, such as when the folder is not trusted
        raise RunEnded(stop.outcome) from stop
    team_run = plan.team_run
    assert team_run is not None
    assert team_run.outcome is not None
    stats = console.stats
    team.spent_by_run[stats.run] = stats.usage.cost or 0.0  # also what the run had spent before it was resumed
    team.spent = sum(team.spent_by_run.values())
    if team_run.error is not None:
        raise team_run.error
    if team_run.outcome.status == Status.BUDGET:
        raise OutOfMoney(team_run.outcome, team.spent)
    if team_run.outcome.status != Status.FINISHED and not team_run.rounds_over:
        raise RunEnded(team_run.outcome)


def plan_of_run(
    session: Session, console: Console, run: str, team: Team, n_round: int = 0
) -> tuple[TeamPlan, EventLog]:
    """Return the plan for this team to resume a run, and the run's log, locked.

    If its rounds are over, grant the run `n_round` more, or as many as before with 0. Raises StateError if it is not
    the run of a team.
    """
    settings = session.settings
    events = list(read(settings.state_dir, run, (RunStarted, Resumed, RoundBegan, Ended)))
    team_events = [event for event in events if not event.agent]
    starts = [event for event in team_events if isinstance(event, RunStarted)]
    if not starts or "team" not in starts[-1].settings:
        raise StateError(f"The run {run} is not the run of a team.")
    earlier_start = dataclasses.replace(starts[-1], workspace=session.flags.get("moved_to", starts[-1].workspace))
    team_settings = earlier_start.settings["team"]
    team.idea = team.idea or (earlier_start.task.goals[0].text if earlier_start.task.goals else "")
    last_round = max((event.step for event in team_events if isinstance(event, RoundBegan)), default=0)
    until = int(team_settings["until"])
    last = team_events[-1]
    if isinstance(last, Ended) and last.status in (Status.LIMIT, Status.FINISHED) and last_round >= until:
        until = last_round + (n_round or int(team_settings["n_round"]))
    log = EventLog.open(settings.state_dir, run, mask=build.mask_of(settings))
    log.on_replay(console.pass_over)
    for event in report_lost_events(log, console.warn):
        log.append(event)
    return TeamPlan(team, session, console, until, earlier_start), log


def _start_event(plan: TeamPlan, task: Task, model: Model, registry: Registry) -> RunStarted:
    """Return the event that begins or resumes a team's run."""
    team, settings, earlier_start = plan.team, plan.session.settings, plan.earlier_start
    names = {name for role in team.env.roles for action in role.actions for name in action.commands}
    if any(action.file for role in team.env.roles for action in role.actions):
        names |= {spec.name for spec in registry.specs if writes_whole(spec)}
    team_settings = {
        "definition": team.definition,
        "investment": task.budget,
        "n_round": plan.until - team.env.round,
        "until": plan.until,
        "person": any(role.is_human for role in team.env.roles),
    }
    if earlier_start:
        team_settings |= {name: earlier_start.settings["team"][name] for name in ("n_round", "person")}
    return (Resumed if earlier_start else RunStarted)(
        version=__version__,
        task=task,
        model=model.name,
        window=model.window,
        reply_tokens=min(settings.reply_tokens, model.window // 2) or reply_tokens(model.window),
        system="",
        system_tokens=0,
        asking="text",
        commands=tuple(spec.name for spec in registry.specs if spec.name in names),
        workspace=earlier_start.workspace if earlier_start else str(settings.workspace.absolute()),
        settings={**logged_settings(settings, earlier_start, plan.session), "team": team_settings},
        limits=dataclasses.asdict(limits_of(settings, task)),
    )
