"""Opens the parts of a team's run from the settings, and runs it, for the command line or the user's program."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from autoagent import __version__
from autoagent.commands import selection
from autoagent.commands.registry import Command, Registry
from autoagent.core.commands import CommandSpec, Question
from autoagent.core.errors import NoMoneyException, SettingsError, StateError, StopRun
from autoagent.core.events import Ended, Event, Resumed, RoundBegan, RunStarted
from autoagent.core.model import reply_tokens
from autoagent.core.protocols import Model
from autoagent.core.task import Goal, Outcome, Status, Task
from autoagent.log.event_log import EventLog
from autoagent.log.reader import find_run, read
from autoagent.safety.tainted_files import TaintedFiles
from autoagent.session import build
from autoagent.session.drive import OpenedRun, drive
from autoagent.session.earlier_runs import report_lost_events
from autoagent.session.extension_hooks import hooked_registry
from autoagent.session.plan import (
    RunPlan,
    limits_of,
    load_guidance,
    logged_settings,
    open_parts,
    persistent_settings,
    shape,
)
from autoagent.session.session import Session, claimed_state
from autoagent.settings import Settings
from autoagent.teams.tools import commands_of
from autoagent.terminal.console import Console

if TYPE_CHECKING:
    from autoagent.teams.role import Role
    from autoagent.teams.rounds import TeamRun
    from autoagent.teams.team import Team

LEAVING = ("exit", "quit")
QUOTES = '"""'
_HOW = f"Your answer; an empty line ends it, or {QUOTES} if it began with {QUOTES}. `exit` saves and ends."

OpenLog = Callable[[TaintedFiles], EventLog]


@dataclasses.dataclass(slots=True)
class TeamPlan:
    """A team that is about to run.

    `until`: its last round. `began`: the start of the run to resume, if any.
    """

    team: Team
    session: Session
    console: Console
    until: int
    began: RunStarted | None = None
    running: TeamRun | None = None

    def drive(self, open_log: OpenLog | None = None) -> int:
        """Run the team to its end. Return the exit code. Raises ForUser."""
        settings, console, team = self.session.settings, self.console, self.team
        provider = settings.model_choice.provider
        if provider.recorded or provider.one_agent:
            hint = "; set `is_human: yes` for the role of a person" if provider.one_agent else ""
            raise SettingsError(f"The model {provider.name!r} cannot answer for several roles{hint}.")
        with open_parts(self.session, console) as parts:
            model = build.open_model(settings, console)
            _, _, added = shape(parts.extensions, _task(self), load_guidance(settings))
            others = (*parts.commands, *added)
            known = [spec.name for spec in selection.all_specs()] + [each.spec.name for each in others]
            tools = [tool for role in team.env.roles for action in role.actions for tool in action.tools.values()]
            registry = _registry(settings, team, (*others, *commands_of(tools, known)))
            start = _described(self, model, registry)
            attended = build.is_attended(settings)
            plan = RunPlan(
                start, model, registry, settings, console, attended, parts.texts, parts.extensions,
                workers=2 * len(team.env.roles), workers_resume=True,
            )  # fmt: skip
            mask = build.mask_of(settings)
            return drive(plan, open_log or (lambda _: EventLog.create(settings.state_dir, mask=mask)), lead=self._lead)

    def _lead(self, opened: OpenedRun) -> Iterator[Event]:
        from autoagent.session.restoring import open_snapshots
        from autoagent.teams.copies import Copies
        from autoagent.teams.member import Office
        from autoagent.teams.rounds import TeamRun

        settings, console, registry = self.session.settings, self.console, opened.plan.registry
        policy = opened.policy
        if not self.team.definition:  # a program judges its own results
            policy = dataclasses.replace(policy, verifier=None, accept_claims=True)
        office = Office(
            pool=opened.pool,
            open_model=lambda key, named: build.model_of_worker(settings, console, opened.plan.model, key, named),
            commands=lambda names: _specs(registry, names),
            writing=tuple(spec for spec in registry.specs if _writes(spec) or _ends(spec)),
            ask_person=lambda role, prompt: ask_person(console, role, prompt, settings.unanswered_text),
            hear=console.overhear,
            reply_tokens=settings.reply_tokens,
            interruptible=opened.interrupts.allowed,
            copies=Copies(
                opened.log.path.parent / "copies",
                opened.tools.context.workspace,
                lambda workspace: open_snapshots(settings.state_dir, workspace),
                console.warn,
            ),
            tainted=opened.tainted,
            tools=opened.tools,
            policy=policy,
            listener=console,
        )
        start, log, budget = opened.plan.start, opened.log, opened.budget
        self.running = TeamRun(self.team.env, start, office, log, budget, until=self.until)
        return self.running.run()


def run_in_program(team: Team, n_round: int, resume: str, flags: Mapping[str, Any]) -> None:
    """Run a team for the program that defines it. Raises as Team.run."""
    session = Session.open(flags)
    settings = session.settings
    console = build.console_of(session)
    with claimed_state(settings.state_dir):
        if resume:
            run = find_run(settings.state_dir, resume)
            session.check_made_here(run)
            plan, log = plan_of_run(session, console, run, team, n_round)
            with log:
                plan.drive(lambda _: log)
        else:
            plan = TeamPlan(team, session, console, team.env.round + n_round)
            plan.drive()
    running = plan.running
    assert running is not None
    assert running.outcome is not None
    team.spent += console.tally.usage.cost or 0.0
    if running.error is not None:
        raise running.error
    if running.outcome.status == Status.BUDGET:
        raise NoMoneyException(running.outcome, team.spent)
    if running.outcome.status != Status.FINISHED and not running.rounds_over:
        raise StopRun(running.outcome)


def plan_of_run(
    session: Session, console: Console, run: str, team: Team, n_round: int = 0
) -> tuple[TeamPlan, EventLog]:
    """Return the plan for this team to resume a run, and the run's log, locked.

    Grant a run at the end of its rounds `n_round` more, 0 for as many as before. Raises StateError if the run is not a
    team's.
    """
    settings = session.settings
    events = list(read(settings.state_dir, run, (RunStarted, Resumed, RoundBegan, Ended)))
    own = [event for event in events if not event.agent]
    starts = [event for event in own if isinstance(event, RunStarted)]
    if not starts or "team" not in starts[-1].settings:
        raise StateError(f"The run {run} is not the run of a team.")
    began = dataclasses.replace(starts[-1], workspace=session.flags.get("moved_to", starts[-1].workspace))
    made = began.settings["team"]
    team.idea = team.idea or (began.task.goals[0].text if began.task.goals else "")
    rounds = max((event.step for event in own if isinstance(event, RoundBegan)), default=0)
    until = int(made["until"])
    if isinstance(own[-1], Ended) and own[-1].status in (Status.LIMIT, Status.FINISHED) and rounds >= until:
        until = rounds + (n_round or int(made["n_round"]))
    log = EventLog.open(settings.state_dir, run, mask=build.mask_of(settings))
    log.subscribe(console.pass_over)
    for event in report_lost_events(log, console.warn):
        log.append(event)
    return TeamPlan(team, session, console, until, began), log


def _registry(settings: Settings, team: Team, more: Sequence[Command]) -> Registry:
    """Return all available commands that agents of a team may use. `more` are the commands of skills and extensions.

    Raises SettingsError for a role's command that is not among them.
    """
    from autoagent.teams.member import NO_WRITER

    registry = hooked_registry(selection.available(settings, more))
    asking = {spec.name for spec in registry.specs if spec.effects is not None and spec.effects.asks_user}
    starting = {spec.name for spec in registry.specs if spec.effects is not None and spec.effects.tells_agents}
    registry = registry.without(asking, "in a team a role with is_human asks the user")
    registry = registry.without(starting, "in a team the roles work together")
    for role in team.env.roles:
        for action in role.actions:
            _specs(registry, action.commands, f"{role}, {action}: ")
            if action.file and not any(map(_writes, registry.specs)):
                raise SettingsError(f"{role}, {action}: {NO_WRITER}")
    return registry


def _writes(spec: CommandSpec) -> bool:
    return spec.effects is not None and spec.effects.writes_whole


def _ends(spec: CommandSpec) -> bool:
    return spec.effects is not None and spec.effects.ends_run


def _specs(registry: Registry, names: Any, whose: str = "") -> tuple[CommandSpec, ...]:
    """Return the specs of these commands and of any command that ends a run. Raises SettingsError for unknown names."""
    known = {name: spec.name for spec in registry.specs for name in (spec.name, *spec.aliases)}
    if unknown := [name for name in names if name not in known]:
        raise SettingsError(f"{whose}there is no command {unknown[0]!r} here; `autoagent commands` says why.")
    chosen = {known[name] for name in names}
    return tuple(spec for spec in registry.specs if spec.name in chosen or _ends(spec))


def _task(plan: TeamPlan) -> Task:
    """Return the task of a team for the log: its roles, its idea and its remaining budget in USD."""
    team = plan.team
    roles = f"a team of {', '.join(map(str, team.env.roles))}"
    left = max(0.0, team.investment - (0.0 if plan.began else team.spent))
    return Task(team.name, roles, (Goal(team.idea),) if team.idea else (), left)


def _described(plan: TeamPlan, model: Model, registry: Registry) -> RunStarted:
    """Return the event that begins or resumes the run of a team."""
    team, settings, began = plan.team, plan.session.settings, plan.began
    names = {name for role in team.env.roles for action in role.actions for name in action.commands}
    if any(action.file for role in team.env.roles for action in role.actions):
        names |= {spec.name for spec in registry.specs if _writes(spec)}
    task, said = _task(plan), persistent_settings(plan.session)
    made = {
        "definition": team.definition,
        "investment": task.budget,
        "n_round": plan.until - team.env.round,
        "until": plan.until,
        "person": any(role.is_human for role in team.env.roles),
    }
    if began:
        made = {**made, "n_round": began.settings["team"]["n_round"], "person": began.settings["team"]["person"]}
    return (Resumed if began else RunStarted)(
        version=__version__,
        task=task,
        model=model.name,
        window=model.window,
        reply_tokens=min(settings.reply_tokens, model.window // 2) or reply_tokens(model.window),
        system="",
        system_tokens=0,
        asking="text",
        commands=tuple(spec.name for spec in registry.specs if spec.name in names),
        workspace=began.workspace if began else str(settings.workspace.absolute()),
        settings={**logged_settings(settings, began, said), "team": made},
        limits=dataclasses.asdict(limits_of(settings, task)),
    )


# A person in the place of a role's model ------------------------------------------------------------------------------


def ask_person(console: Console, role: Role, prompt: str, unanswered: str) -> str:
    """Show the prompt and return the person's answer, given here or in another terminal.

    If nobody answers in time and the run is to continue, return `unanswered`.

    Raises:
        StopRun: the person ends the work, or nobody is there.
        KeyboardInterrupt: Ctrl-C.
    """
    console.discard_typeahead()
    console.say(prompt)
    asked = Question(text=prompt)
    while True:
        try:
            text = console.ask(f"You are {role.name}, {role.profile}. {_HOW}", question=asked, goes_on=_goes_on)
        except EOFError:
            reason = f"{role} is a person, and nobody is there to answer; run it in a terminal, or pipe the answer in."
            raise StopRun(Outcome(Status.UNANSWERED, reason)) from None
        except TimeoutError:
            return unanswered
        if text.strip().lower() in LEAVING:
            raise StopRun(Outcome(Status.STOPPED, f"Ended by {role}."))
        text = text.strip()
        if answer := text.removeprefix(QUOTES).removesuffix(QUOTES).strip() if text.startswith(QUOTES) else text:
            return answer


def _goes_on(text: str) -> bool:
    """Return whether the person's answer is still incomplete."""
    begun = text.strip()
    if begun.startswith(QUOTES):
        return not begun.removeprefix(QUOTES).endswith(QUOTES)
    return begun.lower() not in ("", *LEAVING) and bool(text.rpartition("\n")[2].strip())
